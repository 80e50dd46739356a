/*
 * Work on memory that a program makes itself: across the borders of handles, by way of aliases, on two devices, from
 * another process, in graphs, from many threads. Natively, and under the library whatever vmm.spill is (virtual_help.h).
 */
#include "test/preload/virtual_help.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmocka.h>

/* Handles of unequal sizes, one behind the other. */
static const size_t sizes[] = {2 * MIB, 6 * MIB, 2 * MIB, 10 * MIB, 4 * MIB, 2 * MIB, 14 * MIB, 8 * MIB};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ALL = 48 };

static CUdeviceptr segment_make(void)
{
	CUdeviceptr at = virtual_reserve(64 * MIB), next = at;

	for (int i = 0; i < SIZES; next += sizes[i++])
		virtual_map_new(next, sizes[i]);
	CHECK(next == at + ALL * MIB);
	return at;
}

static void segment_drop(CUdeviceptr at)
{
	virtual_unmap_and_free(at, ALL * MIB, 64 * MIB);
}

/* ---- across borders ---- */

static int copies_and_kernels(void)
{
	unsigned *want = malloc(ALL * MIB), *got = malloc(ALL * MIB);
	const size_t n = ALL * MIB / 4, odd = 3 * MIB / 4 + 17;

	driver_start(0);
	CUdeviceptr at = segment_make(), block = child_alloc(8 * MIB);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < n; i++)
			want[i] = (unsigned)(i * 2654435761u) + (unsigned)round;
		MUST(cu.cuMemcpyHtoD_v2(at, want, ALL * MIB));
		/* By a kernel, a copy on the device both ways, sets of every kind, a copy of rows. */
		virtual_count(NULL, at + odd * 4, 7, 9 * MIB / 4);
		for (size_t i = 0; i < 9 * MIB / 4; i++)
			want[odd + i] = 7 + (unsigned)i;
		MUST(cu.cuMemcpyDtoD_v2(at + 20 * MIB + 12, at + MIB + 4, 15 * MIB));
		memcpy((char *)want + 20 * MIB + 12, (char *)want + MIB + 4, 15 * MIB);
		MUST(cu.cuMemcpyDtoD_v2(block, at + 7 * MIB, 8 * MIB));
		MUST(cu.cuMemcpyDtoD_v2(at + 36 * MIB + 4, block, 8 * MIB));
		memcpy((char *)want + 36 * MIB + 4, (char *)want + 7 * MIB, 8 * MIB);
		MUST(cu.cuMemsetD32_v2(at + 2 * MIB - 400, 0xabcd1234, 2 * MIB / 4 + 200));
		for (size_t i = 0; i < 2 * MIB / 4 + 200; i++)
			want[(2 * MIB - 400) / 4 + i] = 0xabcd1234;
		MUST(cu.cuMemsetD8Async(at + 44 * MIB, 0x77, 4 * MIB, NULL));
		memset((char *)want + 44 * MIB, 0x77, 4 * MIB);
		MUST(cuMemsetD2D32_v2(at + 10 * MIB, 65536, 9, 100, 64));
		for (size_t y = 0; y < 64; y++)
			for (size_t x = 0; x < 100; x++)
				want[10 * MIB / 4 + y * 16384 + x] = 9;
		CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				      .srcDevice = at,
				      .srcPitch = 1 * MIB,
				      .dstMemoryType = CU_MEMORYTYPE_HOST,
				      .dstHost = got,
				      .dstPitch = 4096,
				      .WidthInBytes = 4096,
				      .Height = ALL};
		MUST(cuMemcpy2D_v2(&rows));
		for (size_t y = 0; y < ALL; y++)
			CHECK(!memcmp((char *)got + y * 4096, (char *)want + y * MIB, 4096));
		virtual_press();
		MUST(cu.cuMemcpyDtoH_v2(got, at, ALL * MIB));
		CHECK(!memcmp(got, want, ALL * MIB));
	}
	segment_drop(at);
	MUST(cu.cuMemFree_v2(block));
	free(want);
	free(got);
	return virtual_end();
}

static void copies_and_kernels_cross_the_borders_of_handles(void **state)
{
	(void)state;
	virtual_run(copies_and_kernels);
}

/* ---- a handle at another place, and at two ---- */

static int handles_change_places(void)
{
	enum { N = 6, ROUNDS = 12 };
	const size_t bytes = 6 * MIB, words = bytes / 4;
	handle_id handle[N];

	driver_start(0);
	CUdeviceptr at = virtual_reserve(N * bytes);
	for (unsigned i = 0; i < N; i++) {
		handle[i] = virtual_create(0, bytes);
		virtual_map(at + i * bytes, bytes, handle[i]);
		virtual_count(NULL, at + i * bytes, i << 24, words);
	}
	for (unsigned round = 1; round < ROUNDS; round++) {
		virtual_unmap(at, N * bytes);
		for (unsigned i = 0; i < N; i++)
			virtual_map(at + (i + round) % N * bytes, bytes, handle[i]);
		if (round % 4 == 1)
			virtual_press();
		for (unsigned i = 0; i < N; i++) {
			CUdeviceptr here = at + (i + round) % N * bytes;

			CHECK(virtual_counts(here, (i << 24) + (round - 1) % 2, words));
			virtual_count(NULL, here, (i << 24) + round % 2, words);
		}
	}
	for (unsigned i = 0; i < N; i++)
		MUST(cu.cuMemRelease(handle[i]));
	virtual_unmap_and_free(at, N * bytes, N * bytes);
	return virtual_end();
}

/* Unmapped it is nowhere, and still holds what it held, for as long as its handle lives. */
static int handles_lie_by(void)
{
	enum { N = 6 };
	const size_t bytes = 6 * MIB, words = bytes / 4;
	handle_id handle[N];

	driver_start(0);
	CUdeviceptr at = virtual_reserve(bytes);
	for (unsigned i = 0; i < N; i++) {
		handle[i] = virtual_create(0, bytes);
		virtual_map(at, bytes, handle[i]);
		virtual_write(at, i << 24, words);
		virtual_unmap(at, bytes);
	}
	virtual_press();
	for (unsigned i = N; i--;) {
		virtual_map(at, bytes, handle[i]);
		MUST(cu.cuMemRelease(handle[i]));
		CHECK(virtual_counts(at, i << 24, words));
		virtual_unmap(at, bytes);
	}
	MUST(cu.cuMemAddressFree(at, bytes));
	return virtual_end();
}

static int aliases(void)
{
	enum { N = 5 };
	const size_t bytes = 4 * MIB, words = bytes / 4;
	handle_id handle[N];

	driver_start(0);
	CUdeviceptr at = virtual_reserve(N * bytes), other = virtual_reserve(N * bytes), third = virtual_reserve(bytes);
	for (unsigned i = 0; i < N; i++) {
		handle[i] = virtual_create(0, bytes);
		virtual_map(at + i * bytes, bytes, handle[i]);
		virtual_map(other + (N - 1 - i) * bytes, bytes, handle[i]);
	}
	virtual_map(third, bytes, handle[2]);
	MUST(virtual_access(third, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < N; i++) {
			CUdeviceptr here = at + i * bytes, there = other + (N - 1 - i) * bytes;

			virtual_count(NULL, here, i * 16 + round, words);
			MUST(cu.cuMemsetD32_v2(there + 4096, 99, 1));
			CHECK(virtual_counts(there, i * 16 + round, 1024) && driver_holds(here + 4096, 99, 1));
			virtual_count(NULL, there, 3, words);
			virtual_count(NULL, here + MIB, 5, 100);
			CHECK(virtual_counts(there + MIB, 5, 100) && virtual_counts(here, 3, MIB / 4));
			/* One copy that names it twice. */
			MUST(cu.cuMemcpyDtoD_v2(here, there + 2 * MIB, MIB));
			CHECK(virtual_counts(there, 3 + 2 * MIB / 4, MIB / 4));
		}
		CHECK(virtual_counts(third + 2 * MIB, 3 + 2 * MIB / 4, 100));
		CHECK(virtual_access_of(third, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
		virtual_press();
	}
	virtual_unmap(at, N * bytes);
	for (unsigned i = 0; i < N; i++)
		MUST(cu.cuMemRelease(handle[i]));
	CHECK(virtual_counts(other + 2 * bytes + 2 * MIB, 3 + 2 * MIB / 4, 100));
	virtual_unmap(other, N * bytes);
	CHECK(virtual_counts(third + 2 * MIB, 3 + 2 * MIB / 4, 100));
	virtual_unmap_and_free(third, bytes, bytes);
	MUST(cu.cuMemAddressFree(at, N * bytes));
	MUST(cu.cuMemAddressFree(other, N * bytes));
	return virtual_end();
}

static void handle_takes_its_contents_along(void **state)
{
	(void)state;
	virtual_run(handles_change_places);
	virtual_run(handles_lie_by);
}

static void aliases_see_the_same_memory(void **state)
{
	(void)state;
	virtual_run(aliases);
}

/* ---- devices, contexts ---- */

static int two_devices(void)
{
	const size_t bytes = 4 * MIB, words = bytes / 4;
	CUmemAccessDesc both[2] = {
	    {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ},
	    {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
	CUcontext first = driver_start(0), second;
	CUmemAllocationProp prop;
	int ordinal = 77;

	/* Reserved while device 0 is current: addresses belong to none. */
	CUdeviceptr at = virtual_reserve(8 * bytes);
	handle_id one = virtual_create(1, bytes), zero = virtual_create(0, bytes);
	MUST(cu.cuMemMap(at, bytes, 0, one, 0));
	MUST(cu.cuMemMap(at + bytes, bytes, 0, zero, 0));
	MUST(cuMemGetAllocationPropertiesFromHandle(&prop, one));
	CHECK(prop.location.id == 1);
	MUST(virtual_access(at, bytes, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	MUST(virtual_access(at + bytes, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CHECK(virtual_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	CHECK(virtual_access_of(at, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at + 5));
	CHECK(ordinal == 1);
	CHECK(cu.cuMemsetD32_v2(at, 5, 100) == CUDA_ERROR_INVALID_VALUE);
	second = driver_start(1);
	virtual_count(NULL, at, 21, words);
	CHECK(virtual_counts(at, 21, words));
	CHECK(cu.cuMemsetD32_v2(at + bytes, 5, 100) == CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuCtxSynchronize());
	/* Both at once, over both handles. */
	MUST(cu.cuMemSetAccess(at, 2 * bytes, both, 2));
	CHECK(virtual_access_of(at + bytes, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
	CHECK(virtual_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
	CHECK(virtual_access_of(at + bytes, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(driver_copy(NULL, at + bytes, at, words));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuCtxSetCurrent(first));
	CHECK(virtual_counts(at + bytes, 21, words));
	CHECK(cu.cuMemsetD32_v2(at + bytes, 5, 100) == CUDA_ERROR_INVALID_VALUE);
	MUST(virtual_access(at, 2 * bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	virtual_count(NULL, at + MIB, 5, 5 * MIB / 4);
	MUST(cu.cuCtxSynchronize());
	for (int i = 0; i < 2; i++) {
		MUST(cu.cuCtxSetCurrent(i ? first : second));
		virtual_press();
		CHECK(virtual_counts(at + MIB, 5, 5 * MIB / 4));
	}
	CUdeviceptr block = child_alloc(bytes);
	MUST(cu.cuMemcpyPeer(block, first, at, second, bytes));
	CHECK(virtual_counts(block, 21, MIB / 4) && virtual_counts(block + MIB, 5, 3 * MIB / 4));
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemRelease(one));
	MUST(cu.cuMemRelease(zero));
	virtual_unmap_and_free(at, 2 * bytes, 8 * bytes);
	return virtual_end();
}

/* As a framework with one segment for each: the second device's budget is its own. */
static int full_on_both(void)
{
	enum { N = 5 };
	const size_t bytes = 8 * MIB, words = bytes / 4;
	CUdeviceptr at[2];

	for (int device = 0; device < 2; device++) {
		driver_start(device);
		at[device] = virtual_reserve(N * bytes);
		for (unsigned i = 0; i < N; i++) {
			handle_id handle = virtual_create(device, bytes);

			MUST(cu.cuMemMap(at[device] + i * bytes, bytes, 0, handle, 0));
			MUST(cu.cuMemRelease(handle));
			MUST(virtual_access(at[device] + i * bytes, bytes, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
		}
	}
	for (unsigned round = 0; round < 10; round++)
		for (int device = 0; device < 2; device++) {
			driver_start(device);
			for (unsigned i = 0; i < N; i++)
				virtual_count(NULL, at[device] + i * bytes, round * 100 + i, words);
		}
	for (int device = 0; device < 2; device++) {
		driver_start(device);
		for (unsigned i = 0; i < N; i++)
			CHECK(virtual_counts(at[device] + i * bytes, 900 + i, words));
		virtual_unmap_and_free(at[device], N * bytes, N * bytes);
	}
	driver_start(0);
	return virtual_end();
}

/* Neither handles nor mappings are a context's. */
static int contexts_end(void)
{
	driver_start(0);
	CUcontext primary, mine = child_context();
	CUdeviceptr at = segment_make();

	virtual_count(NULL, at, 13, ALL * MIB / 4);
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuCtxDestroy_v2(mine));
	primary = driver_start(0);
	CHECK(primary && virtual_counts(at, 13, ALL * MIB / 4));
	virtual_count(NULL, at, 14, ALL * MIB / 4);
	CHECK(virtual_counts(at, 14, ALL * MIB / 4));
	segment_drop(at);
	return virtual_end();
}

/* NCCL makes memory before there is one. */
static int no_context(void)
{
	driver_open();
	MUST(cu.cuInit(0));
	CUdeviceptr at = segment_make();
	CHECK(virtual_access_of(at + MIB, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuMemUnmap(at, sizes[0]));
	virtual_map_new(at, sizes[0]);
	driver_start(0);
	virtual_count(NULL, at, 13, ALL * MIB / 4);
	CHECK(virtual_counts(at, 13, ALL * MIB / 4));
	segment_drop(at);
	return virtual_end();
}

static void each_device_has_the_access_it_was_given(void **state)
{
	(void)state;
	virtual_run(two_devices);
	virtual_run(full_on_both);
}

static void memory_is_no_contexts(void **state)
{
	(void)state;
	virtual_run(contexts_end);
	virtual_run(no_context);
}

/* ---- what a kernel may not do ---- */

static int dies(CUdeviceptr of_kernel, CUdeviceptr at)
{
	virtual_count(NULL, of_kernel, 5, 100);
	CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(cu.cuMemsetD32_v2(at, 5, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
	/* In a dead context these go on working. */
	handle_id handle = virtual_create(0, GRANULE);
	MUST(cu.cuMemMap(at + 5 * GRANULE, GRANULE, 0, handle, 0));
	MUST(virtual_access(at + 5 * GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CHECK(virtual_access_of(at + 5 * GRANULE, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuMemUnmap(at + 5 * GRANULE, GRANULE));
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemUnmap(at, 2 * GRANULE));
	MUST(cu.cuMemAddressFree(at, 8 * GRANULE));
	MUST(cu.cuMemAddressFree(virtual_reserve(GRANULE), GRANULE));
	return 0;
}

static CUdeviceptr two_handles(void)
{
	driver_start(0);
	CUdeviceptr at = virtual_reserve(8 * GRANULE);
	virtual_map_new(at, GRANULE);
	virtual_map_new(at + GRANULE, GRANULE);
	virtual_count(NULL, at, 5, 2 * GRANULE / 4);
	MUST(cu.cuCtxSynchronize());
	return at;
}

static int kernel_in_a_hole(void)
{
	CUdeviceptr at = two_handles();

	return dies(at + 3 * GRANULE, at);
}

static int kernel_writes_what_is_to_be_read(void)
{
	CUdeviceptr at = two_handles();

	MUST(virtual_access(at, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	return dies(at + MIB, at);
}

static int kernel_in_what_was_unmapped(void)
{
	CUdeviceptr at = two_handles();
	handle_id handle;

	MUST(cu.cuMemRetainAllocationHandle(&handle, (void *)at));
	virtual_unmap(at, GRANULE);
	MUST(cu.cuMemMap(at, GRANULE, 0, handle, 0)); /* without access */
	MUST(cu.cuMemRelease(handle));
	return dies(at + MIB, at);
}

static void kernel_that_goes_where_it_may_not_ends_its_context(void **state)
{
	(void)state;
	virtual_run(kernel_in_a_hole);
	virtual_run(kernel_writes_what_is_to_be_read);
	virtual_run(kernel_in_what_was_unmapped);
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
	CUmemAllocationProp prop = virtual_prop(0);
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

static int imported_here(void)
{
	const size_t bytes = 6 * MIB, words = bytes / 4;
	unsigned long long types = 77;
	int file = -1;

	driver_start(0);
	CUdeviceptr at = virtual_reserve(2 * bytes), other = at + bytes;
	handle_id plain = virtual_create(0, GRANULE), handle = create_to_export(bytes), imported, same;
	CHECK(cuMemExportToShareableHandle(&file, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	      CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuMemRelease(plain));
	virtual_map(at, bytes, handle);
	virtual_count(NULL, at, 40, words);
	virtual_press(); /* it may have been moved until now */
	imported = import(export_of(handle));
	CHECK(imported != handle);
	virtual_map(other, bytes, imported);
	MUST(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
	CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CHECK(virtual_counts(other, 40, words));
	for (unsigned round = 0; round < 3; round++) {
		virtual_press();
		virtual_count(NULL, at, 41 + round, words);
		CHECK(virtual_counts(other, 41 + round, words));
		virtual_count(NULL, other, 61 + round, words);
		CHECK(virtual_counts(at, 61 + round, words));
	}
	MUST(cu.cuMemRetainAllocationHandle(&same, (void *)other));
	CHECK(same == imported);
	MUST(cu.cuMemRelease(same));
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemRelease(imported));
	virtual_unmap(at, bytes);
	CHECK(virtual_counts(other, 63, words));
	virtual_unmap(other, bytes);
	MUST(cu.cuMemAddressFree(at, 2 * bytes));
	return virtual_end();
}

/* The child maps it, checks it, writes it, and ends. */
static void other_process(int peer, size_t bytes)
{
	char byte = 1;

	driver_start(0);
	CUdeviceptr at = virtual_reserve(bytes);
	handle_id handle = import(take_file(peer));
	virtual_map(at, bytes, handle);
	MUST(cu.cuMemRelease(handle));
	CHECK(virtual_counts(at, 70, bytes / 4));
	virtual_count(NULL, at, 80, bytes / 4);
	MUST(cu.cuCtxSynchronize());
	CHECK(write(peer, &byte, 1) == 1 && read(peer, &byte, 1) == 1);
	CHECK(virtual_counts(at, 90, bytes / 4));
	virtual_unmap_and_free(at, bytes, bytes);
	_exit(0);
}

static int imported_there(void)
{
	const size_t bytes = 6 * MIB;
	int ends[2], status;
	char byte = 1;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pid_t child = fork();
	if (!child)
		other_process(ends[1], bytes);
	driver_start(0);
	CUdeviceptr at = virtual_reserve(bytes);
	handle_id handle = create_to_export(bytes);
	virtual_map(at, bytes, handle);
	virtual_count(NULL, at, 70, bytes / 4);
	MUST(cu.cuCtxSynchronize());
	int file = export_of(handle);
	send_file(ends[0], file);
	close(file);
	CHECK(read(ends[0], &byte, 1) == 1);
	virtual_press();
	CHECK(virtual_counts(at, 80, bytes / 4));
	virtual_count(NULL, at, 90, bytes / 4);
	MUST(cu.cuCtxSynchronize());
	CHECK(write(ends[0], &byte, 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	MUST(cu.cuMemRelease(handle));
	virtual_unmap_and_free(at, bytes, bytes);
	return virtual_end();
}

static int forks(void)
{
	int status;

	driver_start(0);
	CUdeviceptr at = segment_make();
	virtual_count(NULL, at, 17, ALL * MIB / 4);
	for (unsigned i = 0; i < 3; i++) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(virtual_counts(at, 17 + i, ALL * MIB / 4));
		virtual_count(NULL, at, 18 + i, ALL * MIB / 4);
	}
	virtual_press();
	CHECK(virtual_counts(at, 20, ALL * MIB / 4));
	segment_drop(at);
	return virtual_end();
}

static void exported_memory_is_the_same_wherever_it_is_imported(void **state)
{
	(void)state;
	virtual_run(imported_here);
	virtual_run(imported_there);
}

static void fork_leaves_memory_as_it_is(void **state)
{
	(void)state;
	virtual_run(forks);
}

/* ---- graphs ---- */

static int graphs(void)
{
	const size_t half = ALL / 2 * MIB;
	CUstream stream;
	CUgraphExec exec;
	CUgraph graph;
	void *host;

	driver_start(0);
	CUdeviceptr at = segment_make(), block = child_alloc(2 * MIB);
	virtual_kernel();
	MUST(cu.cuMemHostAlloc(&host, half, 0));
	stream = child_stream();
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	/* While captured: what makes and maps memory is none of the capture's business. */
	virtual_map_new(at + ALL * MIB, GRANULE);
	virtual_count(stream, at + 4, 1000, half / 4);
	MUST(cuMemcpyDtoDAsync_v2(at + half, at + 4, half - 4, stream));
	MUST(cuMemsetD32Async(at + half - 4096, 0xfeed, 2048, stream));
	MUST(cuMemcpyDtoDAsync_v2(block, at + 5 * MIB, 2 * MIB, stream));
	MUST(cu.cuMemcpyDtoHAsync_v2(host, at + half, half, stream));
	MUST(cu.cuMemUnmap(at + ALL * MIB, GRANULE));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (unsigned round = 0; round < 6; round++) {
		if (round % 2) {
			/* Other memory at the same addresses; the graph is none the wiser. */
			virtual_unmap(at + sizes[0], sizes[1] + sizes[2]);
			virtual_map_new(at + sizes[0], sizes[1]);
			virtual_map_new(at + sizes[0] + sizes[1], sizes[2]);
		}
		virtual_press();
		MUST(cu.cuMemsetD32_v2(at, 7, ALL * MIB / 4));
		MUST(cu.cuCtxSynchronize());
		MUST(cu.cuGraphLaunch(exec, stream));
		MUST(cu.cuStreamSynchronize(stream));
		CHECK(driver_holds(at, 7, 1) && virtual_counts(at + 4, 1000, half / 4 - 1025));
		CHECK(driver_holds(at + half - 4096, 0xfeed, 2048));
		CHECK(virtual_counts(at + half + 4096, 1000 + 1024, half / 4 - 1025));
		CHECK(virtual_counts(block, 1000 + 5 * MIB / 4 - 1, MIB / 2));
		CHECK(((unsigned *)host)[0] == 0xfeed && ((unsigned *)host)[half / 4 - 2] == 1000 + half / 4 - 2);
	}
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuMemFreeHost(host));
	MUST(cu.cuMemFree_v2(block));
	segment_drop(at);
	return virtual_end();
}

static void graph_runs_over_many_handles_again_and_again(void **state)
{
	(void)state;
	virtual_run(graphs);
}

/* ---- many at once ---- */

enum { THREADS = 4, TURNS = 60 };
static CUcontext shared;
static CUdeviceptr common; /* one reservation for all: each has its part */

static void *thread_body(void *argument)
{
	unsigned me = (unsigned)(uintptr_t)argument, random = me + 1;
	CUdeviceptr at = common + me * 16 * MIB, block;
	bool mapped[4] = {false};
	handle_id kept = 0;

	MUST(cu.cuCtxSetCurrent(shared));
	CUstream stream = child_stream();
	for (unsigned turn = 0; turn < TURNS; turn++) {
		random = random * 1664525u + 1013904223u;
		unsigned i = random >> 30;
		CUdeviceptr here = at + i * 4 * MIB;

		if (mapped[i]) {
			CHECK(virtual_counts(here, me * 4 + i, MIB));
			MUST(cu.cuMemUnmap(here, 4 * MIB));
		} else if (i == 3) {
			if (!kept)
				kept = virtual_create(0, 4 * MIB);
			virtual_map(here, 4 * MIB, kept);
		} else {
			virtual_map_new(here, 4 * MIB);
		}
		mapped[i] = !mapped[i];
		if (mapped[i])
			virtual_count(stream, here, me * 4 + i, MIB);
		if (random >> 28 & 1) {
			block = child_alloc(MIB);
			virtual_count(stream, block, turn, MIB / 4);
			MUST(cu.cuStreamSynchronize(stream));
			CHECK(virtual_counts(block, turn, MIB / 4));
			MUST(cu.cuMemFree_v2(block));
		}
		MUST(cu.cuStreamSynchronize(stream));
	}
	for (unsigned i = 0; i < 4; i++)
		if (mapped[i])
			MUST(cu.cuMemUnmap(at + i * 4 * MIB, 4 * MIB));
	if (kept)
		MUST(cu.cuMemRelease(kept));
	MUST(cu.cuStreamDestroy_v2(stream));
	return NULL;
}

static int threads(void)
{
	pthread_t thread[THREADS];

	shared = driver_start(0);
	common = virtual_reserve(THREADS * 16 * MIB);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, thread_body, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	MUST(cu.cuMemAddressFree(common, THREADS * 16 * MIB));
	return virtual_end();
}

static void threads_map_and_unmap_at_once(void **state)
{
	(void)state;
	virtual_run(threads);
}

/* ---- no room ---- */

static int fills(void)
{
	const CUmemAllocationProp prop = virtual_prop(0);
	enum { PIECES = 64 };
	const size_t bytes = 8 * MIB;
	handle_id handle[PIECES], more;
	CUresult result;
	unsigned n = 0;

	driver_start(0);
	CUdeviceptr at = virtual_reserve(PIECES * bytes);
	for (int round = 0; round < 3; round++) {
		while (n < PIECES && (result = cu.cuMemCreate(&handle[n], bytes, &prop, 0)) == CUDA_SUCCESS)
			n++;
		CHECK(n < PIECES && result == CUDA_ERROR_OUT_OF_MEMORY && n * bytes >= 64 * MIB);
		/* What was made can be mapped. */
		for (unsigned i = 0; i < n; i++) {
			virtual_map(at + i * bytes, bytes, handle[i]);
			virtual_count(NULL, at + i * bytes, i << 24, bytes / 4);
		}
		for (unsigned i = 0; i < n; i++)
			CHECK(virtual_counts(at + i * bytes, i << 24, bytes / 4));
		CHECK(cu.cuMemCreate(&more, bytes, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
		/* Where one goes there is room for one; while it is mapped it has not gone. */
		MUST(cu.cuMemRelease(handle[0]));
		CHECK(cu.cuMemCreate(&more, bytes, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
		virtual_unmap(at, bytes);
		MUST(cu.cuMemCreate(&handle[0], bytes, &prop, 0));
		virtual_map(at, bytes, handle[0]);
		virtual_count(NULL, at, 9, bytes / 4);
		CHECK(virtual_counts(at, 9, bytes / 4));
		virtual_unmap(at, n * bytes);
		while (n)
			MUST(cu.cuMemRelease(handle[--n]));
	}
	MUST(cu.cuMemAddressFree(at, PIECES * bytes));
	return virtual_end();
}

/* A job that is put to sleep and woken: addresses stay, memory goes and comes. */
static int sleeps_and_wakes(void)
{
	enum { ROUNDS = 10, N = 6 };
	const size_t bytes = 10 * MIB, words = bytes / 4;

	driver_start(0);
	CUdeviceptr at = virtual_reserve(N * bytes);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < N; i++)
			virtual_map_new(at + i * bytes, bytes);
		for (unsigned again = 0; again < 2; again++)
			for (unsigned i = 0; i < N; i++)
				virtual_count(NULL, at + i * bytes, round * 100 + i + again, words);
		for (unsigned i = 0; i < N; i++)
			CHECK(virtual_counts(at + i * bytes, round * 100 + i + 1, words));
		virtual_unmap(at, N * bytes);
		if (round % 4 == 1)
			virtual_press();
	}
	MUST(cu.cuMemAddressFree(at, N * bytes));
	return virtual_end();
}

static void out_of_memory_is_told_when_it_is_made(void **state)
{
	(void)state;
	virtual_run(fills);
}

static void memory_that_is_released_can_be_had_again(void **state)
{
	(void)state;
	virtual_run(sleeps_and_wakes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(copies_and_kernels_cross_the_borders_of_handles),
	    cmocka_unit_test(handle_takes_its_contents_along),
	    cmocka_unit_test(aliases_see_the_same_memory),
	    cmocka_unit_test(each_device_has_the_access_it_was_given),
	    cmocka_unit_test(memory_is_no_contexts),
	    cmocka_unit_test(kernel_that_goes_where_it_may_not_ends_its_context),
	    cmocka_unit_test(exported_memory_is_the_same_wherever_it_is_imported),
	    cmocka_unit_test(fork_leaves_memory_as_it_is),
	    cmocka_unit_test(graph_runs_over_many_handles_again_and_again),
	    cmocka_unit_test(threads_map_and_unmap_at_once),
	    cmocka_unit_test(out_of_memory_is_told_when_it_is_made),
	    cmocka_unit_test(memory_that_is_released_can_be_had_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
