// SPDX-License-Identifier: Apache-2.0
/*
 * managed_facts.c: what managed memory on the heap relies on, asked of a real driver: memory of the process at an address
 * that the driver has reserved, with the GPU's mapping in place. Each line is "fact NAME: what was found". Needs one GPU
 * and 16 MiB of it. Build: cc -O2 managed_facts.c -lcuda
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)2 << 20)
#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_ != CUDA_SUCCESS) {                                                                         \
			printf("%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)result_);                            \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry add(.param .u64 at) {.reg .b32 %r<2>; .reg .b64 %rd<2>;"
			  "ld.param.u64 %rd1, [at]; ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1;"
			  "st.global.u32 [%rd1], %r1; ret;}\n";

static CUdevice device;
static CUfunction add;
static sigjmp_buf out;

static void on_fault(int number)
{
	siglongjmp(out, number);
}

/* 0: the CPU can read there, else the signal. */
static int cpu_reads(CUdeviceptr at, uint32_t *ret_word)
{
	int number = sigsetjmp(out, 1);

	if (!number)
		*ret_word = *(volatile uint32_t *)at;
	return number;
}

static void maps(const char *when, CUdeviceptr at)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned long long start, end;
	char line[512];
	int found = 0;

	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%llx-%llx", &start, &end) == 2 && at >= start && at < end) {
			printf("fact maps %s: %s", when, line);
			found = 1;
		}
	if (!found)
		printf("fact maps %s: nothing\n", when);
	fclose(file);
}

static void says(const char *what, CUdeviceptr at)
{
	uint32_t gpu = 0, cpu = 0;
	CUresult copied = cuMemcpyDtoH(&gpu, at, sizeof(gpu));
	int number = cpu_reads(at, &cpu);

	printf("fact %s: GPU %u (%d), CPU %u (signal %d)\n", what, gpu, (int)copied, cpu, number);
}

static CUmemGenericAllocationHandle map(CUdeviceptr at)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;

	MUST(cuMemCreate(&handle, BYTES, &prop, 0));
	MUST(cuMemMap(at, BYTES, 0, handle, 0));
	MUST(cuMemSetAccess(at, BYTES, &access, 1));
	return handle;
}

static void *cpu_maps(CUdeviceptr at, int file)
{
	void *there = file < 0 ? mmap((void *)at, BYTES, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0)
			       : mmap((void *)at, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);

	printf("fact mmap MAP_FIXED of %s: %s\n", file < 0 ? "anonymous memory" : "a memfd",
	       there == (void *)at ? "done" : "refused");
	return there;
}

static void queries(CUdeviceptr at)
{
	unsigned type = 0, managed = 0;
	void *host = NULL;
	CUresult a = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
	CUresult b = cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
	CUresult c = cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at);

	printf("fact queries: MEMORY_TYPE %u (%d), IS_MANAGED %u (%d), HOST_POINTER %p (%d)\n", type, (int)a, managed,
	       (int)b, host, (int)c);
}

static void child(const char *what, CUdeviceptr at)
{
	uint32_t word;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(cpu_reads(at, &word));
	waitpid(pid, &status, 0);
	printf("fact a child of a fork reads %s: signal %d\n", what, WEXITSTATUS(status));
}

/* One round with plain memory of either kind. */
static void round_of(int file)
{
	CUdeviceptr at, managed;
	uint32_t word = 0, five = 5;

	MUST(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
	maps("of a reserved address", at);
	printf("fact the CPU reads there: signal %d\n", cpu_reads(at, &word));
	cpu_maps(at, file);
	*(uint32_t *)at = 7;
	CUmemGenericAllocationHandle handle = map(at);
	maps("with both mappings", at);
	MUST(cuMemcpyHtoD(at, &five, sizeof(five)));
	says("after cuMemcpyHtoD of 5 over the CPU's 7", at);
	*(volatile uint32_t *)at = 9;
	says("after the CPU writes 9", at);
	void *params[] = {&at};
	MUST(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
	says("after a kernel adds 1", at);
	/* The address as a pointer of the host. */
	MUST(cuMemcpyHtoD(at + 64, (void *)at, sizeof(word)));
	MUST(cuMemcpyDtoH(&word, at + 64, sizeof(word)));
	printf("fact cuMemcpyHtoD from the address as a host pointer: copies %u\n", word);
	queries(at);
	madvise((void *)at, BYTES, MADV_DONTFORK);
	child("it, with MADV_DONTFORK", at);
	printf("fact mprotect PROT_READ: %d\n", mprotect((void *)at, BYTES, PROT_READ));
	MUST(cuMemsetD32(at, 20, 4));
	says("after mprotect PROT_READ and a set of 20", at);
	mmap((void *)at, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	MUST(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
	says("after PROT_NONE and a kernel that adds 1", at);
	cpu_maps(at, file);
	*(uint32_t *)at = 30;
	printf("fact cuMemUnmap: %d\n", (int)cuMemUnmap(at, BYTES));
	printf("fact the CPU's memory after cuMemUnmap: signal %d, ", cpu_reads(at, &word));
	printf("%u\n", word);
	MUST(cuMemRelease(handle));
	printf("fact cuMemAddressFree: %d\n", (int)cuMemAddressFree(at, BYTES));
	maps("after cuMemAddressFree", at);
	printf("fact the CPU's memory after cuMemAddressFree: signal %d, ", cpu_reads(at, &word));
	printf("%u\n", word);
	munmap((void *)at, BYTES);

	MUST(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
	*(volatile uint32_t *)managed = 3;
	maps("of managed memory", managed);
	queries(managed);
	child("managed memory of the driver", managed);
	MUST(cuMemFree(managed));
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_fault};
	CUcontext context;
	CUmodule module;
	CUdeviceptr at;
	int file;

	MUST(cuInit(0));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, ptx));
	MUST(cuModuleGetFunction(&add, module, "add"));
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	file = memfd_create("managed facts", MFD_CLOEXEC);
	if (file < 0 || ftruncate(file, (off_t)BYTES))
		return 1;
	round_of(file);
	round_of(-1);
	/* The process ends with both mappings in place. */
	MUST(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
	cpu_maps(at, -1);
	*(uint32_t *)at = 1;
	map(at);
	printf("fact exit with both mappings in place: follows\n");
	return 0;
}
