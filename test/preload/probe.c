// SPDX-License-Identifier: Apache-2.0
/*
 * probe: asks the driver everything a program might, right and wrong, and prints the answers. Addresses are printed as
 * places: what differs from run to run does not show. With "answers" it leaves out where functions lie.
 */
#include "test/preload/driver.h"

#include <dlfcn.h>

/* clang-format off */
static const char *const hooked[] = {
#define HOOK_NAME(name) #name,
#include "shim/driver/hooks.def"
};
/* clang-format on */

static void show(const char *what, CUresult result)
{
	printf("%s: %d\n", what, result);
}
#define SHOW(call) show(#call, call)

static void show_place(const char *how, const char *name, void *address)
{
	Dl_info info = {0};

	if (address && dladdr(address, &info))
		printf("%s %s: %s %s\n", how, name, strrchr(info.dli_fname, '/') + 1,
		       info.dli_sname ? info.dli_sname : "?");
	else
		printf("%s %s: none\n", how, name);
}

static void doors(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *address;
	char base[128];

	for (size_t i = 0; i < sizeof(hooked) / sizeof(hooked[0]); i++) {
		driver_base_name(hooked[i], base, sizeof(base));
		show_place("dlsym", hooked[i], dlsym(library, hooked[i]));
		show_place("dlsym default", hooked[i], dlsym(RTLD_DEFAULT, hooked[i]));
		for (cuuint64_t flags = 0; flags < 3; flags++) {
			address = NULL;
			printf("%d ", cuGetProcAddress_v2(base, &address, 13000, flags, NULL));
			show_place("cuGetProcAddress", base, address);
		}
	}
}

static void nothing(void)
{
	CUdeviceptr block = 1;
	size_t pitch = 1, free = 1, total = 1;
	unsigned word;

	SHOW(cuMemAlloc_v2(NULL, 0));
	SHOW(cuMemAlloc_v2(NULL, 1));
	SHOW(cuMemAlloc_v2(&block, 0));
	SHOW(cuMemAlloc_v2(&block, (size_t)-1));
	SHOW(cuMemAllocPitch_v2(NULL, NULL, 0, 0, 0));
	SHOW(cuMemAllocPitch_v2(NULL, &pitch, 100, 100, 4));
	SHOW(cuMemAllocPitch_v2(&block, NULL, 100, 100, 4));
	SHOW(cuMemAllocPitch_v2(&block, &pitch, 100, 100, 3));
	SHOW(cuMemAllocManaged(NULL, 100, 1));
	SHOW(cuMemAllocManaged(&block, 0, 1));
	SHOW(cuMemAllocManaged(&block, 100, 77));
	SHOW(cuMemAllocAsync(NULL, 100, NULL));
	SHOW(cuMemAllocAsync(&block, 0, NULL));
	SHOW(cuMemFree_v2(0));
	SHOW(cuMemFree_v2(1));
	SHOW(cuMemFreeAsync(0, NULL));
	SHOW(cuMemFreeAsync(1, NULL));
	SHOW(cuMemGetInfo_v2(NULL, NULL));
	SHOW(cuMemGetInfo_v2(&free, NULL));
	SHOW(cuMemGetInfo_v2(NULL, &total));
	SHOW(cuDeviceTotalMem_v2(NULL, 0));
	SHOW(cuDeviceTotalMem_v2(&total, 7));
	SHOW(cuMemGetAddressRange_v2(NULL, NULL, 0));
	SHOW(cuMemGetAddressRange_v2(&block, &pitch, 1));
	SHOW(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_CONTEXT, 0));
	SHOW(cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));
	SHOW(cuPointerGetAttribute(&word, (CUpointer_attribute)99, 0));
	SHOW(cuPointerGetAttributes(0, NULL, NULL, 0));
	SHOW(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0));
	SHOW(cuIpcGetMemHandle(NULL, 0));
	SHOW(cuMemHostAlloc(NULL, 100, 0));
	SHOW(cuMemFreeHost(NULL));
	SHOW(cuMemCreate(NULL, 0, NULL, 0));
	SHOW(cuMemRelease(0));
	SHOW(cuMemMap(0, 0, 0, 0, 0));
	SHOW(cuMemUnmap(0, 0));
	SHOW(cuMemSetAccess(0, 0, NULL, 0));
	SHOW(cuMemAddressFree(0, 0));
	SHOW(cuMemRetainAllocationHandle(NULL, NULL));
	SHOW(cuStreamBeginCapture_v2((CUstream)1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuStreamEndCapture((CUstream)2, NULL));
	SHOW(cuCtxDestroy_v2(NULL));
	SHOW(cuDevicePrimaryCtxReset_v2(7));
	SHOW(cuDevicePrimaryCtxRelease_v2(7));
	printf("%d %zu %d %d\n", (int)block, pitch, free > 0, total > 0);
}

static void about(const char *what, CUdeviceptr block, size_t bytes)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	for (int attribute = 0; attribute < 24; attribute++) {
		unsigned char data[16];

		memset(data, 0x55, sizeof(data));
		printf("%s %d: %d", what, attribute,
		       cuPointerGetAttribute(data, (CUpointer_attribute)attribute, block + bytes / 2));
		bool is_address = false;
		for (CUdeviceptr near = 0; near < 2; near++)
			is_address = is_address || !memcmp(data, &(CUdeviceptr){block + near * (bytes / 2)}, 8);
		if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT || is_address ||
		    attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR ||
		    attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
			printf(" an address\n");
		else
			printf(" %02x%02x%02x%02x %02x%02x%02x%02x\n", data[0], data[1], data[2], data[3], data[4],
			       data[5], data[6], data[7]);
	}
	show(what, cuMemGetAddressRange_v2(&base, &size, block + bytes / 2));
	printf("%s: %d %zu\n", what, base == block, size);
}

static void memory(void)
{
	size_t free, total, pitch;
	CUdeviceptr block[6];

	SHOW(cuMemGetInfo_v2(&free, &total));
	printf("free %zu of %zu\n", free, total);
	SHOW(cuMemAlloc_v2(&block[0], 1000));
	SHOW(cuMemAlloc_v2(&block[1], 10 * MIB));
	SHOW(cuMemAllocPitch_v2(&block[2], &pitch, 1000, 100, 4));
	SHOW(cuMemAllocManaged(&block[3], 100, CU_MEM_ATTACH_GLOBAL));
	SHOW(cuMemAllocAsync(&block[4], 5000, NULL));
	SHOW(cuMemAlloc_v2(&block[5], (size_t)1 << 40));
	about("small", block[0], 1000);
	about("large", block[1], 10 * MIB);
	about("pitched", block[2], pitch * 100);
	about("managed", block[3], 100);
	about("pooled", block[4], 5000);
	SHOW(cuMemGetInfo_v2(&free, &total));
	printf("free %zu of %zu\n", free, total);
	SHOW(cuMemFree_v2(block[1] + 512));
	for (int i = 0; i < 4; i++)
		SHOW(cuMemFree_v2(block[i]));
	SHOW(cuMemFreeAsync(block[4], NULL));
	SHOW(cuMemFree_v2(block[1]));
	SHOW(cuMemGetAddressRange_v2(NULL, NULL, block[1]));
	SHOW(cuCtxSynchronize());
	SHOW(cuMemGetInfo_v2(&free, &total));
	printf("free %zu of %zu\n", free, total);
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUdeviceptr block;

	SHOW(cuMemAlloc_v2(&block, 100));
	SHOW(cuInit(0));
	SHOW(cuMemAlloc_v2(&block, 100));
	SHOW(cuDevicePrimaryCtxRetain(&context, 0));
	SHOW(cuCtxSetCurrent(context));
	if (argc < 2 || strcmp(argv[1], "answers"))
		doors();
	nothing();
	memory();
	SHOW(cuDevicePrimaryCtxRelease_v2(0));
	SHOW(cuMemAlloc_v2(&block, 100));
	return 0;
}
