/*
 * Queries the driver in a child. The child writes the whole struct doctor_cuda into a pipe at each stage; the parent
 * keeps the last complete one. A child that does not answer in time is killed; a child that is stuck in the kernel is
 * abandoned without waiting.
 */
#include "tools/doctor/doctor_cuda.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "tools/common/progress.h"

/* ---- the child ---- */

static const struct {
	int number;
	const char *name;
} known_errors[] = {
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {34, "CUDA_ERROR_STUB_LIBRARY"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    {805, "CUDA_ERROR_MPS_CONNECTION_FAILED"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

/* Uses the driver's name of the error if it has one. */
static void name_error(void *driver, int number, char *name, size_t room)
{
	__typeof__(&cuGetErrorName) get = (__typeof__(&cuGetErrorName))dlsym(driver, "cuGetErrorName");
	const char *text = NULL;

	if (get && get((CUresult)number, &text) != CUDA_SUCCESS)
		text = NULL;
	for (size_t i = 0; !text && i < sizeof(known_errors) / sizeof(*known_errors); i++)
		if (known_errors[i].number == number)
			text = known_errors[i].name;
	if (text)
		snprintf(name, room, "%s", text);
	else
		snprintf(name, room, "error %d", number);
}

static void look_at_device(void *driver, int ordinal, struct doctor_gpu *gpu)
{
	__typeof__(&cuDeviceGetAttribute) get =
	    (__typeof__(&cuDeviceGetAttribute))dlsym(driver, "cuDeviceGetAttribute");
	__typeof__(&cuDeviceGetName) name = (__typeof__(&cuDeviceGetName))dlsym(driver, "cuDeviceGetName");
	__typeof__(&cuDeviceTotalMem) total = (__typeof__(&cuDeviceTotalMem))dlsym(driver, "cuDeviceTotalMem_v2");
	__typeof__(&cuDeviceGetPCIBusId) bus = (__typeof__(&cuDeviceGetPCIBusId))dlsym(driver, "cuDeviceGetPCIBusId");
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
	int host = 0;
	size_t bytes = 0;

	if (!get || get(asked[0].value, asked[0].attribute, ordinal) != CUDA_SUCCESS)
		gpu->vmm = -1;
	for (size_t i = 1; i < sizeof(asked) / sizeof(*asked); i++)
		if (!get || get(asked[i].value, asked[i].attribute, ordinal) != CUDA_SUCCESS)
			*asked[i].value = -1;
	/* Either kind of host memory is sufficient, as in shim/device/device.c. */
	if (gpu->host_vmm < 1 && get &&
	    get(&host, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal) == CUDA_SUCCESS)
		gpu->host_vmm = host;
	if (!name || name(gpu->name, sizeof(gpu->name), ordinal) != CUDA_SUCCESS)
		snprintf(gpu->name, sizeof(gpu->name), "a device without a name");
	if (!bus || bus(gpu->bus, sizeof(gpu->bus), ordinal) != CUDA_SUCCESS)
		gpu->bus[0] = '\0';
	gpu->total = total && total(&bytes, ordinal) == CUDA_SUCCESS ? bytes : 0;
}

static int link_attribute(void *driver, CUdevice_P2PAttribute which, int from, int to)
{
	__typeof__(&cuDeviceGetP2PAttribute) get =
	    (__typeof__(&cuDeviceGetP2PAttribute))dlsym(driver, "cuDeviceGetP2PAttribute");
	int value = -1;

	return get && get(&value, which, from, to) == CUDA_SUCCESS && value >= 0 ? value : -1;
}

static void look_at_links(void *driver, int ordinal, int n, struct doctor_gpu *gpu)
{
	__typeof__(&cuDeviceCanAccessPeer) can_access =
	    (__typeof__(&cuDeviceCanAccessPeer))dlsym(driver, "cuDeviceCanAccessPeer");

	for (int other = 0; other < n; other++) {
		struct doctor_link *link = &gpu->links[other];
		int can = 0;

		if (other == ordinal)
			continue;
		if (can_access && can_access(&can, ordinal, other) == CUDA_SUCCESS && can)
			gpu->peers |= UINT64_C(1) << other;
		link->performance_rank =
		    link_attribute(driver, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, ordinal, other);
		link->atomics = link_attribute(driver, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, ordinal, other);
	}
}

static void *cuda_load(const char *root, struct doctor_cuda *cuda)
{
	char name[PATH_MAX] = "libcuda.so.1";
	Dl_info info;

	if (*root)
		snprintf(name, sizeof(name), "%s/usr/lib/libcuda.so.1", root);
	void *driver = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!driver) {
		const char *error = dlerror();

		snprintf(cuda->load_error, sizeof(cuda->load_error), "%s", error ? error : "it cannot be opened");
		return NULL;
	}
	void *function = dlsym(driver, "cuInit");
	if (function && dladdr(function, &info) && info.dli_fname && !realpath(info.dli_fname, cuda->path))
		snprintf(cuda->path, sizeof(cuda->path), "%s", info.dli_fname);
	return driver;
}

static void send_stage(int pipe, struct doctor_cuda *cuda, enum doctor_stage stage)
{
	cuda->stage = stage;
	for (size_t at = 0; at < sizeof(*cuda);) {
		ssize_t n = write(pipe, (const char *)cuda + at, sizeof(*cuda) - at);

		if (n < 0 && errno != EINTR)
			_exit(1);
		at += n > 0 ? (size_t)n : 0;
	}
}

/* A third of the patience is for the links, and a third is reserved for a slow copy. */
static double time_for_links(uint64_t start, unsigned patience_s)
{
	double third = patience_s / 3.0, left = 2 * third - (double)(clock_now() - start) / 1e9;

	return left < third ? left : third;
}

static void cuda_child(int pipe, const char *root, bool measure, unsigned patience_s, struct doctor_cuda *cuda)
{
	uint64_t start = clock_now();

	/* If Spillway is preloaded here, it must not act: the driver itself is queried. */
	setenv("SPILLWAY", "0", 1);
	void *driver = cuda_load(root, cuda);
	if (!driver) {
		send_stage(pipe, cuda, DOCTOR_NOT_ASKED);
		return;
	}
	cuda->has_vmm = dlsym(driver, "cuMemCreate") && dlsym(driver, "cuMemMap");
	cuda->has_moves = dlsym(driver, "cuCtxRecordEvent") && dlsym(driver, "cuFuncGetParamInfo");
	__typeof__(&cuDriverGetVersion) version = (__typeof__(&cuDriverGetVersion))dlsym(driver, "cuDriverGetVersion");
	__typeof__(&cuInit) init = (__typeof__(&cuInit))dlsym(driver, "cuInit");
	__typeof__(&cuDeviceGetCount) count = (__typeof__(&cuDeviceGetCount))dlsym(driver, "cuDeviceGetCount");
	if (version && version(&cuda->version) != CUDA_SUCCESS)
		cuda->version = 0;
	send_stage(pipe, cuda, DOCTOR_LOADED);

	cuda->init = init ? (int)init(0) : CUDA_ERROR_NOT_FOUND;
	if (cuda->init)
		name_error(driver, cuda->init, cuda->init_name, sizeof(cuda->init_name));
	send_stage(pipe, cuda, DOCTOR_STARTED);
	if (cuda->init)
		return;

	if (!count || count(&cuda->n_devices) != CUDA_SUCCESS || cuda->n_devices < 0)
		cuda->n_devices = 0;
	int n = cuda->n_devices < DOCTOR_DEVICES ? cuda->n_devices : DOCTOR_DEVICES;

	for (int i = 0; i < n; i++) {
		look_at_device(driver, i, &cuda->devices[i]);
		look_at_links(driver, i, n, &cuda->devices[i]);
	}
	send_stage(pipe, cuda, DOCTOR_LOOKED);
	if (!measure || !cuda->n_devices)
		return;
	doctor_measure(driver, cuda);
	send_stage(pipe, cuda, DOCTOR_MEASURED);
	doctor_measure_links(time_for_links(start, patience_s), cuda);
	send_stage(pipe, cuda, DOCTOR_ALL);
}

/* ---- the parent ---- */

/* Reads until the child closes its end. Returns false if the time was over. */
static bool cuda_receive(int pipe, uint64_t until, struct doctor_cuda *ret_cuda)
{
	static struct doctor_cuda coming;
	size_t at = 0;

	while (clock_now() < until) {
		struct pollfd ready = {.fd = pipe, .events = POLLIN};

		progress_at(0);
		if (poll(&ready, 1, 50) <= 0)
			continue;
		ssize_t n = read(pipe, (char *)&coming + at, sizeof(coming) - at);
		if (n == 0)
			return true;
		at += n > 0 ? (size_t)n : 0;
		if (at < sizeof(coming))
			continue;
		*ret_cuda = coming;
		at = 0;
	}
	return false;
}

/* Determines how the child ended. A child that hangs is killed, and is not waited for if that has no effect. */
static enum doctor_end cuda_reap(pid_t pid, bool in_time)
{
	int status = 0;

	if (in_time) {
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? DOCTOR_ENDED : DOCTOR_CRASHED;
	}
	kill(pid, SIGKILL);
	for (int i = 0; i < 20 && waitpid(pid, &status, WNOHANG) == 0; i++)
		poll(NULL, 0, 50);
	return DOCTOR_HUNG;
}

void doctor_cuda_ask(const char *root, bool measure, unsigned patience_s, struct doctor_cuda *ret_cuda)
{
	static struct doctor_cuda cuda;
	int ends[2];

	memset(ret_cuda, 0, sizeof(*ret_cuda));
	snprintf(ret_cuda->load_error, sizeof(ret_cuda->load_error), "no process could be made to ask it");
	if (pipe(ends) != 0)
		return;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		cuda_child(ends[1], root, measure, patience_s, &cuda);
		_exit(0);
	}
	close(ends[1]);
	if (pid > 0) {
		progress_begin(measure ? "asking the driver, measuring the link" : "asking the driver", 0);
		bool in_time = cuda_receive(ends[0], clock_now() + patience_s * UINT64_C(1000000000), ret_cuda);
		ret_cuda->end = cuda_reap(pid, in_time);
		progress_end();
	}
	close(ends[0]);
}
