// SPDX-License-Identifier: Apache-2.0
/*
 * Helpers shared by the parts of the digest: spans of time, and names.
 */
#include "tools/digest/digest_part.h"

#include "policy/policy.h"

void digest_cover_add(struct digest_cover *cover, uint64_t begin, uint64_t end)
{
	if (begin < cover->until)
		begin = cover->until;
	if (end <= begin)
		return;
	cover->total += end - begin;
	cover->until = end;
}

const char *digest_why_name(unsigned why)
{
	static const char *const names[TRACE_WHYS] = {"waited", "ahead", "room", "suspend"};

	return why < TRACE_WHYS ? names[why] : "unknown";
}

const char *digest_away(const struct digest *digest)
{
	struct digest_device sum = {0};

	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		sum.host_alone |= digest->devices[i].host_alone;
		sum.peers |= digest->devices[i].peers;
	}
	return digest_device_away(&sum);
}

const char *digest_device_away(const struct digest_device *device)
{
	if (!device->peers)
		return "on the host";
	return device->host_alone ? "on the host or on other GPUs" : "on other GPUs";
}

const char *digest_backend_name(uint32_t backend)
{
	return backend < POLICY_USE_DENY ? policy_use_name((enum policy_use)backend) : "unknown";
}
