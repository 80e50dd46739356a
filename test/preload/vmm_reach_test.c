// SPDX-License-Identifier: Apache-2.0
/*
 * Who reaches memory that a program makes itself: other devices, other contexts and none, other processes, and kernels
 * that may not. Natively, and under the library whatever vmm.spill is (vmm_help.h).
 */
#include "test/preload/vmm_help.h"
#include "test/test.h"

#include <sys/socket.h>

/* ---- devices, contexts ---- */

static void two_devices(void)
{
	const size_t bytes = 4 * MIB, words = bytes / 4;
	CUmemAccessDesc both[2] = {
	    {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ},
	    {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
	CUcontext first = driver_current(), second;
	CUmemAllocationProp prop;
	int ordinal = 77;

	/* Reserved while device 0 is current: addresses belong to none. */
	CUdeviceptr at = vmm_reserve(8 * bytes);
	handle_id one = vmm_create(1, bytes), zero = vmm_create(0, bytes);
	MUST(cu.cuMemMap(at, bytes, 0, one, 0));
	MUST(cu.cuMemMap(at + bytes, bytes, 0, zero, 0));
	MUST(cuMemGetAllocationPropertiesFromHandle(&prop, one));
	CHECK(prop.location.id == 1);
	MUST(vmm_access(at, bytes, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	MUST(vmm_access(at + bytes, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CHECK(vmm_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	CHECK(vmm_access_of(at, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at + 5));
	CHECK(ordinal == 1);
	CHECK(cu.cuMemsetD32_v2(at, 5, 100) == CUDA_ERROR_INVALID_VALUE);
	second = driver_start(1);
	vmm_count(NULL, at, 21, words);
	CHECK(vmm_counts(at, 21, words));
	CHECK(cu.cuMemsetD32_v2(at + bytes, 5, 100) == CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuCtxSynchronize());
	/* Both at once, over both handles. */
	MUST(cu.cuMemSetAccess(at, 2 * bytes, both, 2));
	CHECK(vmm_access_of(at + bytes, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
	CHECK(vmm_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
	CHECK(vmm_access_of(at + bytes, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(driver_copy(NULL, at + bytes, at, words));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuCtxSetCurrent(first));
	CHECK(vmm_counts(at + bytes, 21, words));
	CHECK(cu.cuMemsetD32_v2(at + bytes, 5, 100) == CUDA_ERROR_INVALID_VALUE);
	MUST(vmm_access(at, 2 * bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	vmm_count(NULL, at + MIB, 5, 5 * MIB / 4);
	MUST(cu.cuCtxSynchronize());
	for (int i = 0; i < 2; i++) {
		MUST(cu.cuCtxSetCurrent(i ? first : second));
		vmm_press();
		CHECK(vmm_counts(at + MIB, 5, 5 * MIB / 4));
	}
	CUdeviceptr block = child_alloc(bytes);
	MUST(cu.cuMemcpyPeer(block, first, at, second, bytes));
	CHECK(vmm_counts(block, 21, MIB / 4) && vmm_counts(block + MIB, 5, 3 * MIB / 4));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemRelease(one));
	MUST(cu.cuMemRelease(zero));
	vmm_unmap_and_free(at, 2 * bytes, 8 * bytes);
}

/* As a framework with one segment for each: the second device's budget is its own. */
static void full_on_both(void)
{
	enum { N = 5 };
	const size_t bytes = 8 * MIB, words = bytes / 4;
	CUdeviceptr at[2];

	for (int device = 0; device < 2; device++) {
		driver_start(device);
		at[device] = vmm_reserve(N * bytes);
		for (unsigned i = 0; i < N; i++) {
			handle_id handle = vmm_create(device, bytes);

			MUST(cu.cuMemMap(at[device] + i * bytes, bytes, 0, handle, 0));
			MUST(cu.cuMemRelease(handle));
			MUST(vmm_access(at[device] + i * bytes, bytes, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
		}
	}
	for (unsigned round = 0; round < 10; round++)
		for (int device = 0; device < 2; device++) {
			driver_start(device);
			for (unsigned i = 0; i < N; i++)
				vmm_count(NULL, at[device] + i * bytes, round * 100 + i, words);
		}
	for (int device = 0; device < 2; device++) {
		driver_start(device);
		for (unsigned i = 0; i < N; i++)
			CHECK(vmm_counts(at[device] + i * bytes, 900 + i, words));
		vmm_unmap_and_free(at[device], N * bytes, N * bytes);
	}
	driver_start(0);
}

/* Neither handles nor mappings are a context's. */
static void contexts_end(void)
{
	CUcontext primary, mine = child_context();
	CUdeviceptr at = vmm_segment();

	vmm_count(NULL, at, 13, VMM_MIB * MIB / 4);
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuCtxDestroy_v2(mine));
	primary = driver_start(0);
	CHECK(primary && vmm_counts(at, 13, VMM_MIB * MIB / 4));
	vmm_count(NULL, at, 14, VMM_MIB * MIB / 4);
	CHECK(vmm_counts(at, 14, VMM_MIB * MIB / 4));
	vmm_segment_drop(at);
}

/* NCCL makes memory before there is one. */
static void no_context(void)
{
	driver_open();
	MUST(cu.cuInit(0));
	CUdeviceptr at = vmm_segment();
	CHECK(vmm_access_of(at + MIB, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuMemUnmap(at, vmm_sizes[0]));
	vmm_map_new(at, vmm_sizes[0]);
	driver_start(0);
	vmm_count(NULL, at, 13, VMM_MIB * MIB / 4);
	CHECK(vmm_counts(at, 13, VMM_MIB * MIB / 4));
	vmm_segment_drop(at);
	vmm_end();
}

TEST(each_device_has_the_access_it_was_given)
{
	vmm_run(two_devices);
	vmm_run(full_on_both);
}

TEST(memory_is_no_contexts)
{
	vmm_run(contexts_end);
	vmm_run_bare(no_context);
}

/* ---- what a kernel may not do ---- */

/* Ends the part. */
static void dies(CUdeviceptr of_kernel, CUdeviceptr at)
{
	vmm_count(NULL, of_kernel, 5, 100);
	CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(cu.cuMemsetD32_v2(at, 5, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
	/* In a dead context these go on working. */
	handle_id handle = vmm_create(0, GRANULE);
	MUST(cu.cuMemMap(at + 5 * GRANULE, GRANULE, 0, handle, 0));
	MUST(vmm_access(at + 5 * GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CHECK(vmm_access_of(at + 5 * GRANULE, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuMemUnmap(at + 5 * GRANULE, GRANULE));
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemUnmap(at, 2 * GRANULE));
	MUST(cu.cuMemAddressFree(at, 8 * GRANULE));
	MUST(cu.cuMemAddressFree(vmm_reserve(GRANULE), GRANULE));
	_exit(0); /* the kernel has broken a rule of the model */
}

static CUdeviceptr two_handles(void)
{
	CUdeviceptr at = vmm_reserve(8 * GRANULE);
	vmm_map_new(at, GRANULE);
	vmm_map_new(at + GRANULE, GRANULE);
	vmm_count(NULL, at, 5, 2 * GRANULE / 4);
	MUST(cu.cuCtxSynchronize());
	return at;
}

static void kernel_in_a_hole(void)
{
	CUdeviceptr at = two_handles();

	dies(at + 3 * GRANULE, at);
}

static void kernel_writes_what_is_to_be_read(void)
{
	CUdeviceptr at = two_handles();

	MUST(vmm_access(at, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	dies(at + MIB, at);
}

static void kernel_in_what_was_unmapped(void)
{
	CUdeviceptr at = two_handles();
	handle_id handle;

	MUST(cu.cuMemRetainAllocationHandle(&handle, (void *)at));
	vmm_unmap(at, GRANULE);
	MUST(cu.cuMemMap(at, GRANULE, 0, handle, 0)); /* without access */
	MUST(cu.cuMemRelease(handle));
	dies(at + MIB, at);
}

TEST(kernel_that_goes_where_it_may_not_ends_its_context)
{
	vmm_run(kernel_in_a_hole);
	vmm_run(kernel_writes_what_is_to_be_read);
	vmm_run(kernel_in_what_was_unmapped);
}

/* ---- other processes ---- */

static void send_file(int to, int file)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &file, sizeof(file));
	CHECK(sendmsg(to, &message, 0) == 1);
}

static int take_file(int from)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int file;

	CHECK(recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
	memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
	return file;
}

static handle_id create_to_export(size_t bytes)
{
	CUmemAllocationProp prop = form_memory(0);
	handle_id handle;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	MUST(cu.cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

static handle_id import(int file)
{
	handle_id handle;

	MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(file);
	return handle;
}

static int export_of(handle_id handle)
{
	int file = -1;

	MUST(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(file >= 0);
	return file;
}

static void imported_here(void)
{
	const size_t bytes = 6 * MIB, words = bytes / 4;
	unsigned long long types = 77;
	int file = -1;

	CUdeviceptr at = vmm_reserve(2 * bytes), other = at + bytes;
	handle_id plain = vmm_create(0, GRANULE), handle = create_to_export(bytes), imported, same;
	CHECK(cuMemExportToShareableHandle(&file, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	      CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuMemRelease(plain));
	vmm_map(at, bytes, handle);
	vmm_count(NULL, at, 40, words);
	vmm_press(); /* it may have been moved until now */
	imported = import(export_of(handle));
	CHECK(imported != handle);
	vmm_map(other, bytes, imported);
	MUST(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
	CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CHECK(vmm_counts(other, 40, words));
	for (unsigned round = 0; round < 3; round++) {
		vmm_press();
		vmm_count(NULL, at, 41 + round, words);
		CHECK(vmm_counts(other, 41 + round, words));
		vmm_count(NULL, other, 61 + round, words);
		CHECK(vmm_counts(at, 61 + round, words));
	}
	MUST(cu.cuMemRetainAllocationHandle(&same, (void *)other));
	CHECK(same == imported);
	MUST(cu.cuMemRelease(same));
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemRelease(imported));
	vmm_unmap(at, bytes);
	CHECK(vmm_counts(other, 63, words));
	vmm_unmap(other, bytes);
	MUST(cu.cuMemAddressFree(at, 2 * bytes));
}

/* The child maps it, checks it, writes it, and ends. */
static void other_process(int peer, size_t bytes)
{
	char byte = 1;

	driver_start(0);
	CUdeviceptr at = vmm_reserve(bytes);
	handle_id handle = import(take_file(peer));
	vmm_map(at, bytes, handle);
	MUST(cu.cuMemRelease(handle));
	CHECK(vmm_counts(at, 70, bytes / 4));
	vmm_count(NULL, at, 80, bytes / 4);
	MUST(cu.cuCtxSynchronize());
	CHECK(write(peer, &byte, 1) == 1 && read(peer, &byte, 1) == 1);
	CHECK(vmm_counts(at, 90, bytes / 4));
	vmm_unmap_and_free(at, bytes, bytes);
	_exit(0);
}

static void imported_there(void)
{
	const size_t bytes = 6 * MIB;
	int ends[2], status;
	char byte = 1;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pid_t child = fork();
	if (!child)
		other_process(ends[1], bytes);
	driver_start(0);
	CUdeviceptr at = vmm_reserve(bytes);
	handle_id handle = create_to_export(bytes);
	vmm_map(at, bytes, handle);
	vmm_count(NULL, at, 70, bytes / 4);
	MUST(cu.cuCtxSynchronize());
	int file = export_of(handle);
	send_file(ends[0], file);
	close(file);
	CHECK(read(ends[0], &byte, 1) == 1);
	vmm_press();
	CHECK(vmm_counts(at, 80, bytes / 4));
	vmm_count(NULL, at, 90, bytes / 4);
	MUST(cu.cuCtxSynchronize());
	CHECK(write(ends[0], &byte, 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	MUST(cu.cuMemRelease(handle));
	vmm_unmap_and_free(at, bytes, bytes);
	vmm_end();
}

PART_TEST(fork_leaves_memory_as_it_is, vmm_run(part))
{
	int status;

	CUdeviceptr at = vmm_segment();
	vmm_count(NULL, at, 17, VMM_MIB * MIB / 4);
	for (unsigned i = 0; i < 3; i++) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(vmm_counts(at, 17 + i, VMM_MIB * MIB / 4));
		vmm_count(NULL, at, 18 + i, VMM_MIB * MIB / 4);
	}
	vmm_press();
	CHECK(vmm_counts(at, 20, VMM_MIB * MIB / 4));
	vmm_segment_drop(at);
}

TEST(exported_memory_is_the_same_wherever_it_is_imported)
{
	vmm_run(imported_here);
	vmm_run_bare(imported_there);
}
