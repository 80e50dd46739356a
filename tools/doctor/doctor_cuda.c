// SPDX-License-Identifier: Apache-2.0
/*
 * Queries the driver in a child, which fills in a struct doctor_cuda that it shares with the parent. A child that does
 * not answer in time is killed; a child that is stuck in the kernel is abandoned without waiting.
 */
#include "tools/doctor/doctor.h"

#include <cuda.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "tools/common/progress.h"

/* ---- the child ---- */

/* The functions that are asked for; those from cuDevicePrimaryCtxRetain on are what is measured with. */
/* clang-format off */
#define FUNCTIONS(ROW)                                                                                                 \
	ROW(cuInit) ROW(cuGetErrorName) ROW(cuDriverGetVersion) ROW(cuDeviceGetCount) ROW(cuDeviceGetAttribute)        \
	ROW(cuDeviceGetName) ROW(cuDeviceTotalMem) ROW(cuDeviceGetPCIBusId) ROW(cuDeviceCanAccessPeer)                 \
	ROW(cuDeviceGetP2PAttribute) ROW(cuDevicePrimaryCtxRetain) ROW(cuDevicePrimaryCtxRelease)                      \
	ROW(cuCtxSetCurrent) ROW(cuCtxEnablePeerAccess) ROW(cuCtxDisablePeerAccess) ROW(cuMemGetInfo)                  \
	ROW(cuMemAlloc) ROW(cuMemFree) ROW(cuMemHostAlloc) ROW(cuMemFreeHost) ROW(cuStreamCreate)                      \
	ROW(cuStreamDestroy) ROW(cuStreamSynchronize) ROW(cuMemcpyHtoDAsync) ROW(cuMemcpyDtoHAsync)                    \
	ROW(cuMemcpyPeerAsync)
/* clang-format on */

/* cuMemAlloc and others are macros for their newest versions, here and where a member is called. */
static struct {
#define ROW(name) __typeof__(&name) name;
	FUNCTIONS(ROW)
#undef ROW
} driver;

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

static const struct {
	const char *name;
	void *member;
} functions[] = {
#define ROW(name) {TEXT(name), &driver.name},
    FUNCTIONS(ROW)
#undef ROW
};

/* Returns the name of a function to measure with that the driver does not have; NULL if it has all. */
static const char *find_functions(void *library)
{
	const char *lacking = NULL;
	bool measures = false;

	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = dlsym(library, functions[i].name);

		measures |= functions[i].member == &driver.cuDevicePrimaryCtxRetain;
		if (measures && !function && !lacking)
			lacking = functions[i].name;
		memcpy(functions[i].member, &function, sizeof(function));
	}
	return lacking;
}

/* Returns -1 if the driver does not know the attribute. */
static int attribute(int ordinal, CUdevice_attribute which)
{
	int value;

	return driver.cuDeviceGetAttribute && !driver.cuDeviceGetAttribute(&value, which, ordinal) ? value : -1;
}

static void look_at_device(int ordinal, struct doctor_gpu *gpu)
{
	const struct {
		CUdevice_attribute attribute;
		int *value;
	} asked[] = {
	    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &gpu->vmm},
	    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &gpu->host_vmm},
	    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &gpu->managed},
	    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &gpu->concurrent},
	    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &gpu->pageable},
	    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, &gpu->host_tables},
	    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &gpu->compute_mode},
	    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &gpu->rdma},
	};
	size_t bytes = 0;

	for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++)
		*asked[i].value = attribute(ordinal, asked[i].attribute);
	/* Either kind of host memory is sufficient, as in shim/device/device.c. */
	if (gpu->host_vmm < 1 && attribute(ordinal, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) >= 0)
		gpu->host_vmm = attribute(ordinal, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	if (!driver.cuDeviceGetName || driver.cuDeviceGetName(gpu->name, sizeof(gpu->name), ordinal))
		snprintf(gpu->name, sizeof(gpu->name), "a device without a name");
	if (!driver.cuDeviceGetPCIBusId || driver.cuDeviceGetPCIBusId(gpu->bus, sizeof(gpu->bus), ordinal))
		gpu->bus[0] = '\0';
	gpu->total = driver.cuDeviceTotalMem && !driver.cuDeviceTotalMem(&bytes, ordinal) ? bytes : 0;
}

static int link_attribute(CUdevice_P2PAttribute which, int from, int to)
{
	int value = -1;

	return driver.cuDeviceGetP2PAttribute && !driver.cuDeviceGetP2PAttribute(&value, which, from, to) ? value : -1;
}

static void look_at_links(int ordinal, int n, struct doctor_gpu *gpu)
{
	for (int other = 0; other < n; other++) {
		struct doctor_link *link = &gpu->links[other];
		int can = 0;

		if (other == ordinal)
			continue;
		if (driver.cuDeviceCanAccessPeer && !driver.cuDeviceCanAccessPeer(&can, ordinal, other) && can)
			gpu->peers |= UINT64_C(1) << other;
		link->performance_rank = link_attribute(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, ordinal, other);
		link->atomics = link_attribute(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, ordinal, other);
	}
}

/* ---- measuring: copies of pinned memory to each device, to the host, and both at once; then between devices ----
 *
 * Pieces are as large as those that Spillway moves; the measurement uses little memory and time. Only two devices at a
 * time have access to each other, if they can, so that no platform limit is exceeded. If they cannot, the driver copies
 * through the host, and the rate of that is measured.
 */

#define PIECE ((size_t)32 << 20)
/* With less free memory than this, the measurement could disturb other programs. */
#define FREE_LEAST (4 * PIECE)

enum {
	ALL_MS = 600, /* time for the copies of all devices in one direction */
	ONE_MS = 80,  /* maximum time for one direction of one device */
	PEER_MS = 20, /* for one direction between two devices */
	AT_ONCE = 4,  /* copies submitted before waiting for them: a round */
};

/*
 * One device with what is copied from and to. context NULL: it is not measured. All is kept until everything is
 * measured, because creating a context takes longer than the copies.
 */
struct side {
	CUcontext context;
	CUdeviceptr block[2];
	CUstream in, out;
};
static struct side sides[DOCTOR_DEVICES];

static void close_side(int ordinal)
{
	struct side *side = &sides[ordinal];

	if (!side->context)
		return;
	driver.cuCtxSetCurrent(side->context);
	if (side->in)
		driver.cuStreamDestroy(side->in);
	if (side->out)
		driver.cuStreamDestroy(side->out);
	for (int i = 0; i < 2; i++)
		if (side->block[i])
			driver.cuMemFree(side->block[i]);
	driver.cuDevicePrimaryCtxRelease(ordinal);
	*side = (struct side){0};
}

/* Returns whether the device can be measured; records why if not. */
static bool open_side(int ordinal, struct doctor_gpu *gpu)
{
	struct side *side = &sides[ordinal];
	size_t free = 0, total = 0;
	CUresult result = driver.cuDevicePrimaryCtxRetain(&side->context, ordinal);

	if (result) {
		side->context = NULL;
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "no context: error %d", (int)result);
		return false;
	}
	result = driver.cuCtxSetCurrent(side->context) ?: driver.cuMemGetInfo(&free, &total);
	gpu->free = free;
	if (!result && free < FREE_LEAST) {
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "less than %zu MiB of its memory are free",
			 FREE_LEAST >> 20);
		close_side(ordinal);
		return false;
	}
	for (int i = 0; i < 2 && !result; i++)
		result = driver.cuMemAlloc(&side->block[i], PIECE);
	result = result ?: driver.cuStreamCreate(&side->in, CU_STREAM_NON_BLOCKING);
	result = result ?: driver.cuStreamCreate(&side->out, CU_STREAM_NON_BLOCKING);
	if (!result)
		return true;
	snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver answered error %d", (int)result);
	close_side(ordinal);
	return false;
}

/* What is copied at once between a device and host memory (NULL: not in this direction), or to another device. */
struct flow {
	const struct side *side;
	void *in, *out;
	const struct side *to;
};

static CUresult round_of(const struct flow *flow)
{
	const struct side *side = flow->side, *to = flow->to;
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < AT_ONCE && !result; i++) {
		if (flow->in)
			result = driver.cuMemcpyHtoDAsync(side->block[0], flow->in, PIECE, side->in);
		if (flow->out && !result)
			result = driver.cuMemcpyDtoHAsync(flow->out, side->block[1], PIECE, side->out);
		if (to)
			result = driver.cuMemcpyPeerAsync(to->block[0], to->context, side->block[0], side->context,
							  PIECE, side->in);
	}
	CUresult end_in = driver.cuStreamSynchronize(side->in), end_out = driver.cuStreamSynchronize(side->out);
	return result ? result : end_in ? end_in : end_out;
}

/* Measures bytes per second, all directions added. The first round is only a warm-up; at least one more is made. */
static CUresult rate_of(const struct flow *flow, double for_ms, double *ret_rate)
{
	CUresult result = driver.cuCtxSetCurrent(flow->side->context) ?: round_of(flow);
	uint64_t start = clock_now(), end = start;
	double rounds = 0;

	while (!result && (double)(end - start) < for_ms * 1e6) {
		result = round_of(flow);
		rounds++;
		end = clock_now();
	}
	if (!result && end > start)
		*ret_rate = rounds * AT_ONCE * (double)PIECE * (!!flow->in + !!flow->out + !!flow->to) * 1e9 /
			    (double)(end - start);
	return result;
}

static void measure_device(const struct side *side, struct doctor_gpu *gpu, double for_ms)
{
	void *host[2] = {0};
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < 2 && !result; i++) {
		result = driver.cuMemHostAlloc(&host[i], PIECE, 0);
		if (!result)
			memset(host[i], 0, PIECE);
	}
	result = result ?: rate_of(&(struct flow){.side = side, .in = host[0]}, for_ms, &gpu->to_device);
	result = result ?: rate_of(&(struct flow){.side = side, .out = host[1]}, for_ms, &gpu->to_host);
	result = result ?: rate_of(&(struct flow){.side = side, .in = host[0], .out = host[1]}, for_ms, &gpu->both);
	for (int i = 0; i < 2; i++)
		if (host[i])
			driver.cuMemFreeHost(host[i]);
	if (result)
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver answered error %d", (int)result);
}

static void measure_devices(const char *lacking, struct doctor_cuda *cuda)
{
	int n = cuda->n_devices < DOCTOR_DEVICES ? cuda->n_devices : DOCTOR_DEVICES;

	for (int i = 0; i < n; i++) {
		struct doctor_gpu *gpu = &cuda->devices[i];

		if (lacking)
			snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver has no %s", lacking);
		else if (open_side(i, gpu))
			measure_device(&sides[i], gpu, ALL_MS / n < ONE_MS ? ALL_MS / n : ONE_MS);
	}
}

/* ---- between devices ---- */

/* Enables or disables one device's access to the memory of the other, if it can have any. */
static CUresult give_access(const struct doctor_cuda *cuda, int one, int other, bool enable)
{
	if (!(cuda->devices[one].peers >> other & 1))
		return CUDA_SUCCESS;
	CUresult result = driver.cuCtxSetCurrent(sides[one].context);
	if (!result)
		result = enable ? driver.cuCtxEnablePeerAccess(sides[other].context, 0)
				: driver.cuCtxDisablePeerAccess(sides[other].context);
	return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
}

static void measure_pair(struct doctor_cuda *cuda, int a, int b)
{
	struct doctor_link *to_b = &cuda->devices[a].links[b], *to_a = &cuda->devices[b].links[a];
	CUresult ab = give_access(cuda, a, b, true), ba = give_access(cuda, b, a, true);

	/* If access cannot be enabled although it should, the rate would be that of another path. */
	to_b->error = to_a->error = (int)(ab ? ab : ba);
	if (!to_b->error) {
		to_b->error = (int)rate_of(&(struct flow){.side = &sides[a], .to = &sides[b]}, PEER_MS, &to_b->rate);
		to_a->error = (int)rate_of(&(struct flow){.side = &sides[b], .to = &sides[a]}, PEER_MS, &to_a->rate);
	}
	if (!ab)
		give_access(cuda, a, b, false);
	if (!ba)
		give_access(cuda, b, a, false);
}

static void measure_links(double at_most_seconds, struct doctor_cuda *cuda)
{
	int n = cuda->n_devices < DOCTOR_LINKED ? cuda->n_devices : DOCTOR_LINKED;
	uint64_t start = clock_now();

	for (int a = 0; a < n; a++)
		for (int b = a + 1; b < n; b++) {
			if (!sides[a].context || !sides[b].context)
				continue;
			if ((double)(clock_now() - start) < at_most_seconds * 1e9)
				measure_pair(cuda, a, b);
			else
				cuda->devices[a].links[b].error = cuda->devices[b].links[a].error = DOCTOR_LINK_LATE;
		}
	for (int i = 0; i < DOCTOR_DEVICES; i++)
		close_side(i);
}

/* ---- the order of the questions ---- */

static void *cuda_load(const char *root, struct doctor_cuda *cuda)
{
	char name[PATH_MAX] = "libcuda.so.1";
	Dl_info info;

	if (*root)
		snprintf(name, sizeof(name), "%s/usr/lib/libcuda.so.1", root);
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *error = dlerror();

		snprintf(cuda->load_error, sizeof(cuda->load_error), "%s", error ? error : "it cannot be opened");
		return NULL;
	}
	void *function = dlsym(library, "cuInit");
	if (function && dladdr(function, &info) && info.dli_fname && !realpath(info.dli_fname, cuda->path))
		snprintf(cuda->path, sizeof(cuda->path), "%s", info.dli_fname);
	return library;
}

static void cuda_child(const char *root, bool measure, unsigned patience_s, struct doctor_cuda *cuda)
{
	uint64_t start = clock_now();

	/* If Spillway is preloaded here, it must not act: the driver itself is queried. */
	setenv("SPILLWAY", "0", 1);
	void *library = cuda_load(root, cuda);
	if (!library)
		return;
	const char *lacking = find_functions(library), *name = NULL;
	cuda->has_vmm = dlsym(library, "cuMemCreate") && dlsym(library, "cuMemMap");
	cuda->has_moves = dlsym(library, "cuCtxRecordEvent") && dlsym(library, "cuFuncGetParamInfo");
	if (driver.cuDriverGetVersion && driver.cuDriverGetVersion(&cuda->version))
		cuda->version = 0;
	cuda->stage = DOCTOR_LOADED;

	cuda->init = driver.cuInit ? (int)driver.cuInit(0) : CUDA_ERROR_NOT_FOUND;
	if (cuda->init && driver.cuGetErrorName && !driver.cuGetErrorName((CUresult)cuda->init, &name) && name)
		snprintf(cuda->init_name, sizeof(cuda->init_name), "%s", name);
	else
		snprintf(cuda->init_name, sizeof(cuda->init_name), "error %d", cuda->init);
	cuda->stage = DOCTOR_STARTED;
	if (cuda->init)
		return;

	int count = 0;
	if (!driver.cuDeviceGetCount || driver.cuDeviceGetCount(&count) || count < 0)
		count = 0;
	int n = count < DOCTOR_DEVICES ? count : DOCTOR_DEVICES;

	for (int i = 0; i < n; i++) {
		look_at_device(i, &cuda->devices[i]);
		look_at_links(i, n, &cuda->devices[i]);
	}
	cuda->n_devices = count; /* the devices exist for the parent from here on */
	cuda->stage = DOCTOR_LOOKED;
	if (!measure || !cuda->n_devices)
		return;
	measure_devices(lacking, cuda);
	cuda->stage = DOCTOR_MEASURED;
	/* A third of the patience is for the links, and a third is reserved for a slow copy. */
	double third = patience_s / 3.0, left = 2 * third - (double)(clock_now() - start) / 1e9;
	measure_links(left < third ? left : third, cuda);
	cuda->stage = DOCTOR_ALL;
}

/* ---- the parent ---- */

/* Waits until the child has ended. One that hangs is killed, and is not waited for if that has no effect. */
static enum doctor_end cuda_reap(pid_t pid, uint64_t until)
{
	int status = 0;
	bool late = false;

	for (unsigned waits = 0; waits < 20; waits += late) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return late                                            ? DOCTOR_HUNG
			       : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? DOCTOR_ENDED
									       : DOCTOR_CRASHED;
		late = clock_now() >= until;
		if (late)
			kill(pid, SIGKILL);
		progress_at(0);
		poll(NULL, 0, late ? 50 : 5);
	}
	return DOCTOR_HUNG;
}

void doctor_cuda_ask(const char *root, bool measure, unsigned patience_s, struct doctor_cuda *ret_cuda)
{
	struct doctor_cuda *shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	memset(ret_cuda, 0, sizeof(*ret_cuda));
	snprintf(ret_cuda->load_error, sizeof(ret_cuda->load_error), "no process could be made to ask it");
	if (shared == MAP_FAILED)
		return;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		cuda_child(root, measure, patience_s, shared);
		_exit(0);
	}
	if (pid > 0) {
		progress_begin(measure ? "asking the driver, measuring the link" : "asking the driver", 0);
		enum doctor_end end = cuda_reap(pid, clock_now() + patience_s * UINT64_C(1000000000));
		*ret_cuda = *shared;
		ret_cuda->end = end;
		progress_end();
	}
	munmap(shared, sizeof(*shared));
}
