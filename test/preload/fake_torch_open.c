// SPDX-License-Identifier: Apache-2.0
/* Both libraries of fake_torch.h are opened locally: the program does not see what they export. */
#include "test/check.h"
#include "test/preload/fake_torch.h"

#include <dlfcn.h>

static void *c10;

const struct fake_torch_functions *fake_torch_open(void)
{
	static const struct fake_torch_functions *functions;

	if (functions)
		return functions;
	c10 = dlopen(FAKE_C10, RTLD_LAZY | RTLD_LOCAL);
	CHECK(c10);
	void *library = dlopen(FAKE_C10_CUDA, RTLD_LAZY | RTLD_LOCAL);
	CHECK(library);
	functions = (const struct fake_torch_functions *)dlsym(library, "fake_torch_functions");
	CHECK(functions);
	return functions;
}

struct fake_reports fake_torch_reports(void)
{
	struct fake_reports (*reports)(void) = (struct fake_reports(*)(void))dlsym(c10, "fake_c10_reports");

	CHECK(reports);
	return reports();
}
