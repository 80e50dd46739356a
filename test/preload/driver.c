// SPDX-License-Identifier: Apache-2.0
#include "test/preload/driver.h"

#include <dlfcn.h>

struct driver cu;

void driver_must(CUresult result, const char *call, const char *file, int line)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s:%d: %s: CUDA error %d\n", file, line, call, result);
	exit(1);
}

static void *library(void)
{
	static _Atomic(void *) handle; /* each thread that opens it gets the same one */

	if (!handle && !(handle = dlopen("libcuda.so.1", RTLD_NOW))) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return handle;
}

dlsym_function *driver_dlsym(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	void *function = NULL;

	for (unsigned i = 0; i < 3 && !function; i++)
		function = dlvsym(libc, "dlsym", versions[i]);
	return (dlsym_function *)function;
}

void *driver_native(const char *name)
{
	return driver_dlsym()(library(), name);
}

void driver_base_name(const char *name, char *ret_base, size_t room)
{
	snprintf(ret_base, room, "%s", name);
	size_t length = strlen(ret_base);
	if (length > 5 && (!strcmp(ret_base + length - 5, "_ptsz") || !strcmp(ret_base + length - 5, "_ptds")))
		ret_base[length -= 5] = 0;
	if (length > 3 && !strncmp(ret_base + length - 3, "_v", 2))
		ret_base[length - 3] = 0;
}

/* ---- the doors ---- */

static void *by_handle(const char *name)
{
	return dlsym(library(), name);
}

static void *by_default(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void *by_proc(const char *name)
{
	__typeof__(&cuGetProcAddress) ask = (__typeof__(ask))dlsym(library(), "cuGetProcAddress");
	char base[128];
	void *address = NULL;

	driver_base_name(name, base, sizeof(base));
	return ask(base, &address, 12000, 0) == CUDA_SUCCESS ? address : NULL;
}

static void *by_proc_v2(const char *name)
{
	__typeof__(&cuGetProcAddress_v2) ask = (__typeof__(ask))dlsym(library(), "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;
	char base[128];
	void *address = NULL;

	driver_base_name(name, base, sizeof(base));
	return ask(base, &address, 12000, 0, &status) == CUDA_SUCCESS ? address : NULL;
}

/* A version may hand out a younger function of another type (cuCtxCreate): take the one we have the type of then. */
static void *through(void *(*door)(const char *), const char *name, void *linked)
{
	void *address = door ? door(name) : linked;
	Dl_info info;

	if (!address || !dladdr(address, &info) || !info.dli_sname || strcmp(info.dli_sname, name))
		address = door ? dlsym(library(), name) : linked;
	if (!address) {
		fprintf(stderr, "no %s behind this door\n", name);
		exit(1);
	}
	return address;
}

void driver_open(void)
{
	static const struct {
		const char *name;
		void *(*door)(const char *);
	} doors[] = {
	    {"link", NULL}, {"handle", by_handle}, {"default", by_default}, {"proc", by_proc}, {"proc_v2", by_proc_v2}};
	const char *wanted = getenv("DRIVER_DOOR");
	size_t i = 0;

	while (wanted && strcmp(doors[i].name, wanted))
		if (++i == sizeof(doors) / sizeof(doors[0]))
			exit(2);
#define FILL(name) cu.name = (__typeof__(&name))through(doors[i].door, #name, (void *)name);
	DRIVER_FUNCTIONS(FILL)
#undef FILL
}

static pid_t user; /* the process that has started the driver; 0: none */

#ifdef __SANITIZE_ADDRESS__
/* What the threads hold that a child of its fork lacks is lost to the sanitizer; it is not ours to free there. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return user && getpid() != user;
}
#endif

CUcontext driver_start(int device)
{
	CUcontext context;

	user = getpid();
	if (!cu.cuInit)
		driver_open();
	MUST(cu.cuInit(0));
	MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
	MUST(cu.cuCtxSetCurrent(context));
	return context;
}

bool driver_is_heap(CUdeviceptr address)
{
	__typeof__(&cuMemRetainAllocationHandle) retain =
	    (__typeof__(retain))driver_native("cuMemRetainAllocationHandle");
	__typeof__(&cuMemRelease) release = (__typeof__(release))driver_native("cuMemRelease");
	CUmemGenericAllocationHandle handle;

	if (retain(&handle, (void *)address) != CUDA_SUCCESS)
		return false;
	release(handle);
	return true;
}

static CUdeviceptr allocated[256];
static unsigned n_allocated;

CUdeviceptr driver_alloc(size_t bytes)
{
	if (n_allocated == sizeof(allocated) / sizeof(*allocated))
		abort();
	MUST(cu.cuMemAlloc_v2(&allocated[n_allocated], bytes));
	return allocated[n_allocated++];
}

void driver_free_rest(void)
{
	CUdeviceptr base;

	while (n_allocated)
		if (cu.cuMemGetAddressRange_v2(&base, NULL, allocated[--n_allocated]) == CUDA_SUCCESS &&
		    base == allocated[n_allocated])
			MUST(cu.cuMemFree_v2(base));
}

/* ---- kernels: C functions for the simulated GPU, PTX for a real one ---- */

static void fill_body(const struct sim_launch *launch, void **args)
{
	unsigned *at = *(unsigned **)args[0], value = *(unsigned *)args[1];
	size_t n = *(size_t *)args[2];

	for (size_t i = 0; i < n; i++)
		at[i] = value;
}

static void copy_body(const struct sim_launch *launch, void **args)
{
	unsigned *to = *(unsigned **)args[0];
	const unsigned *from = *(const unsigned **)args[1];
	size_t n = *(size_t *)args[2];

	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

SIM_MODULE(image, SIM_KERNEL("fill", fill_body, sizeof(CUdeviceptr), sizeof(unsigned), sizeof(size_t)),
	   SIM_KERNEL("copy", copy_body, sizeof(CUdeviceptr), sizeof(CUdeviceptr), sizeof(size_t)));

/* Each thread begins at its number (rd3) and goes on by the number of threads (rd4), to the n-th word (rd2). */
#define PTX_NUMBERS                                                                                                    \
	"mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;"             \
	"cvt.u64.u32 %rd3, %r5; mov.u32 %r6, %nctaid.x; mul.lo.u32 %r7, %r6, %r3; cvt.u64.u32 %rd4, %r7;"
#define PTX_REGISTERS ".reg .pred %p; .reg .b32 %r<10>; .reg .b64 %rd<10>;"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry fill(.param .u64 at, .param .u32 value, .param .u64 n) {" PTX_REGISTERS
			  "ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value]; ld.param.u64 %rd2, [n];" PTX_NUMBERS
			  "next: setp.ge.u64 %p, %rd3, %rd2; @%p bra done;"
			  "shl.b64 %rd5, %rd3, 2; add.u64 %rd6, %rd1, %rd5; st.global.u32 [%rd6], %r1;"
			  "add.u64 %rd3, %rd3, %rd4; bra next; done: ret; }\n"
			  ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 n) {" PTX_REGISTERS
			  "ld.param.u64 %rd1, [to]; ld.param.u64 %rd7, [from]; ld.param.u64 %rd2, [n];" PTX_NUMBERS
			  "next: setp.ge.u64 %p, %rd3, %rd2; @%p bra done;"
			  "shl.b64 %rd5, %rd3, 2; add.u64 %rd6, %rd7, %rd5; ld.global.u32 %r1, [%rd6];"
			  "add.u64 %rd6, %rd1, %rd5; st.global.u32 [%rd6], %r1;"
			  "add.u64 %rd3, %rd3, %rd4; bra next; done: ret; }\n";

CUfunction driver_function(const void *code, const char *name)
{
	CUfunction function;
	CUmodule module;

	MUST(cu.cuModuleLoadData(&module, code));
	MUST(cu.cuModuleGetFunction(&function, module, name));
	return function;
}

CUfunction driver_kernel(const char *name)
{
	return driver_function(driver_native("sim_calls") ? (const void *)&image : ptx, name);
}

CUgraphExec driver_instance(CUgraph graph)
{
	CUgraphExec instance;

	MUST(cu.cuGraphInstantiateWithFlags(&instance, graph, 0));
	return instance;
}

CUgraphExec driver_captured(CUstream stream)
{
	CUgraph graph;

	MUST(cu.cuStreamEndCapture(stream, &graph));
	CUgraphExec instance = driver_instance(graph);
	MUST(cu.cuGraphDestroy(graph));
	return instance;
}

void driver_forget_capture(CUstream stream)
{
	CUgraph graph;

	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cu.cuGraphDestroy(graph));
}

CUcontext driver_current(void)
{
	CUcontext context;

	MUST(cu.cuCtxGetCurrent(&context));
	return context;
}

uint64_t driver_attribute(CUpointer_attribute which, CUdeviceptr at)
{
	uint64_t value = 0;

	MUST(cu.cuPointerGetAttribute(&value, which, at));
	return value;
}

CUresult driver_create(CUmemGenericAllocationHandle *ret_handle, int device, size_t bytes)
{
	const CUmemAllocationProp prop = form_memory(device);

	return cu.cuMemCreate(ret_handle, bytes, &prop, 0);
}

CUdeviceptr driver_managed(size_t bytes)
{
	CUdeviceptr at;

	MUST(cu.cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL));
	return at;
}

CUresult driver_fill(CUstream stream, CUdeviceptr address, unsigned value, size_t n)
{
	void *params[] = {&address, &value, &n};

	return cu.cuLaunchKernel(driver_kernel("fill"), 64, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

CUresult driver_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t n)
{
	void *params[] = {&to, &from, &n};

	return cu.cuLaunchKernel(driver_kernel("copy"), 64, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

/* Read at once: malloc() has that much again without new pages. */
#define HOLDS_WORDS ((size_t)1 << 20)

bool driver_holds(CUdeviceptr address, unsigned value, size_t n)
{
	size_t most = n < HOLDS_WORDS ? n : HOLDS_WORDS;
	unsigned *words = malloc(most * sizeof(*words));
	bool same = words != NULL;

	for (size_t at = 0, now; at < n && same; at += now) {
		now = n - at < most ? n - at : most;
		same = cu.cuMemcpyDtoH_v2(words, address + at * sizeof(*words), now * sizeof(*words)) == CUDA_SUCCESS &&
		       words[0] == value && !memcmp(words, words + 1, (now - 1) * sizeof(*words));
	}
	free(words);
	return same;
}
