// SPDX-License-Identifier: Apache-2.0
/*
 * A library that marks ranges with NVTX as the header makes it, which looks for a tool by itself: for nvtx_test.c.
 */
#include "test/preload/nvtx_user.h"

#include <nvtx3/nvToolsExt.h>

int user_push(const char *name)
{
	return nvtxRangePushA(name);
}

int user_push_wide(const wchar_t *name)
{
	return nvtxRangePushW(name);
}

int user_pop(void)
{
	return nvtxRangePop();
}

void *user_domain(const char *name)
{
	return nvtxDomainCreateA(name);
}

int user_push_in(void *domain, const char *name, int registered)
{
	nvtxEventAttributes_t attributes = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};

	attributes.messageType = registered ? NVTX_MESSAGE_TYPE_REGISTERED : NVTX_MESSAGE_TYPE_ASCII;
	if (registered)
		attributes.message.registered = nvtxDomainRegisterStringA(domain, name);
	else
		attributes.message.ascii = name;
	return domain ? nvtxDomainRangePushEx(domain, &attributes) : nvtxRangePushEx(&attributes);
}

int user_pop_in(void *domain)
{
	return nvtxDomainRangePop(domain);
}
