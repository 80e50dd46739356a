// SPDX-License-Identifier: Apache-2.0
/* rules.c: the table of the driver's functions, the context, and short ways to map memory (rules.h). */
#include "rules.h"
#include <dlfcn.h>

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

struct rules_driver cu;
CUcontext rules_context;
bool rules_host_vmm;
bool rules_simulated;

static bool load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		return false;
#define ROW(name)                                                                                                      \
	cu.name = (__typeof__(cu.name))dlsym(library, TEXT(name));                                                     \
	if (!cu.name)                                                                                                  \
		return false;
	RULES_FUNCTIONS(ROW)
#undef ROW
	rules_simulated = dlsym(library, "sim_calls") != NULL;
	return true;
}

int rules_init(void)
{
	int vmm = 0, host = 0;

	alarm(RULES_SECONDS);
	if (!load() || cu.cuInit(0)) {
		fprintf(stderr, "no usable libcuda.so.1: skipped\n");
		return 77;
	}
	cu.cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
	cu.cuDeviceGetAttribute(&host, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
	rules_host_vmm = host;
	if (!vmm || cu.cuDevicePrimaryCtxRetain(&rules_context, 0) || cu.cuCtxSetCurrent(rules_context)) {
		fprintf(stderr, "no virtual memory management, or no context: skipped\n");
		return 77;
	}
	fprintf(stderr, "the driver is %s\n", rules_simulated ? "simulated" : "real");
	return 0;
}

void rules_fini(void)
{
	cu.cuDevicePrimaryCtxRelease(0);
}

void rules_found(const char *rule, const char *found, const char *assumed)
{
	bool as_assumed = !strcmp(found, assumed);

	print_message("rule: %s: %s%s%s%s\n", rule, found, as_assumed ? "" : " (ASSUMED: ", as_assumed ? "" : assumed,
		      as_assumed ? "" : ")");
	assert_true(as_assumed || !rules_simulated);
}

/* ---- helpers ---- */

CUmemAllocationProp rules_at_location(CUmemLocationType type)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = type;
	return prop;
}

CUmemGenericAllocationHandle rules_new_handle(size_t bytes, CUmemLocationType type)
{
	CUmemAllocationProp prop = rules_at_location(type);
	CUmemGenericAllocationHandle handle;

	ok(cu.cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

CUdeviceptr rules_alloc(size_t bytes)
{
	CUdeviceptr at;

	ok(cu.cuMemAlloc(&at, bytes));
	return at;
}

CUstream rules_stream(void)
{
	CUstream stream;

	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

CUevent rules_event(unsigned flags)
{
	CUevent event;

	ok(cu.cuEventCreate(&event, flags));
	return event;
}

CUgraph rules_graph(void)
{
	CUgraph graph;

	ok(cu.cuGraphCreate(&graph, 0));
	return graph;
}

CUgraphExec rules_instance(CUgraph graph)
{
	CUgraphExec instance;

	ok(cu.cuGraphInstantiate(&instance, graph, 0));
	return instance;
}

CUdeviceptr rules_reserve(size_t bytes)
{
	CUdeviceptr at;

	ok(cu.cuMemAddressReserve(&at, bytes, 0, 0, 0));
	return at;
}

CUresult rules_set_access(CUdeviceptr at, size_t bytes)
{
	CUmemAccessDesc desc = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	return cu.cuMemSetAccess(at, bytes, &desc, 1);
}

void rules_map_new(CUdeviceptr at, size_t bytes, CUmemLocationType type)
{
	CUmemGenericAllocationHandle handle = rules_new_handle(bytes, type);

	ok(cu.cuMemMap(at, bytes, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(rules_set_access(at, bytes));
}

void rules_unmap_and_free(CUdeviceptr at, size_t bytes)
{
	ok(cu.cuMemUnmap(at, bytes));
	ok(cu.cuMemAddressFree(at, bytes));
}

/* Of a program that has no other. */
__attribute__((weak)) int main(void)
{
	int failed = rules_init();

	if (failed)
		return failed;
	failed = test_run();
	rules_fini();
	return failed;
}
