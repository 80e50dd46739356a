// SPDX-License-Identifier: Apache-2.0
#include "test/preload/mpi_internal.h"

#include "test/check.h"
#include "test/preload/driver.h"

enum { KEPT = 16, OPEN_MOST = 4 };

CUcontext mpi_own;
CUdevice mpi_device;
struct mpi_counts mpi_seen;

static struct mpi_given given[KEPT]; /* found by the number of their buffer */
static unsigned n_given;
static struct mpi_opened opened[OPEN_MOST];

/* ---- whose is it ---- */

struct mpi_pointer mpi_look_at(CUdeviceptr at)
{
	unsigned type = 77, managed = 77;
	struct mpi_pointer pointer = {0};
	int ordinal = 77;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_BUFFER_ID,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	void *data[] = {&type, &pointer.context, &managed, &pointer.buffer, &ordinal};

	MUST(cuPointerGetAttributes(5, which, data, at));
	CHECK(type == 0 || type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE);
	pointer.on_device = type == CU_MEMORYTYPE_DEVICE;
	if (!pointer.on_device)
		return pointer;
	/* A thread of the library's works in the context of the pointer. */
	CHECK(pointer.context == mpi_own && ordinal == mpi_device && managed <= 1 && pointer.buffer);
	return pointer;
}

/* Memory of cuMemMap is asked for where it lies; a library takes what is said to be on the host for host memory. */
static void look_for_vmm(CUdeviceptr at)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;

	if (cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at) != CUDA_SUCCESS)
		return;
	MUST(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	CHECK(prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == mpi_device);
	MUST(cuMemRelease(handle));
	mpi_seen.retained++;
}

void mpi_look_closer(struct mpi_pointer *pointer, CUdeviceptr at, size_t bytes)
{
	unsigned on = 1, managed, capable = 0, direct;
	size_t range;

	MUST(cuMemGetAddressRange_v2(&pointer->base, &range, at));
	CHECK(pointer->base <= at && at + bytes <= pointer->base + range);
	look_for_vmm(at);
	MUST(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
	if (!managed)
		MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer->base));
	MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
	MUST(cuPointerGetAttribute(&direct, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at));
	mpi_seen.capable += capable;
}

/* ---- giving ---- */

const struct mpi_given *mpi_give(const struct mpi_pointer *pointer)
{
	struct mpi_given *entry = &given[n_given % KEPT];

	for (unsigned i = 0; i < KEPT; i++)
		if (given[i].buffer == pointer->buffer)
			return &given[i];
	n_given++;
	entry->buffer = pointer->buffer;
	entry->refused = cuIpcGetMemHandle(&entry->handle, pointer->base) != CUDA_SUCCESS;
	*(entry->refused ? &mpi_seen.gave_not : &mpi_seen.gave) += 1;
	return entry;
}

/* ---- taking ---- */

static struct mpi_opened *take_place(void)
{
	struct mpi_opened *oldest = NULL;

	for (unsigned i = 0; i < OPEN_MOST; i++)
		if (!opened[i].users && (!oldest || opened[i].turn < oldest->turn))
			oldest = &opened[i];
	if (oldest && oldest->at)
		MUST(cuIpcCloseMemHandle(oldest->at));
	if (oldest)
		oldest->at = 0;
	return oldest;
}

struct mpi_opened *mpi_open(const CUipcMemHandle *handle)
{
	static unsigned long turn;
	struct mpi_opened *place = NULL;

	for (unsigned i = 0; i < OPEN_MOST; i++)
		if (opened[i].at && !memcmp(&opened[i].handle, handle, sizeof(*handle)))
			place = &opened[i];
	if (!place) {
		place = take_place();
		if (!place)
			return NULL; /* all in use: that message goes piece by piece */
		if (cuIpcOpenMemHandle_v2(&place->at, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS) {
			place->at = 0;
			mpi_seen.opened_not++;
			return NULL;
		}
		place->handle = *handle;
		mpi_seen.opened++;
	}
	place->users++;
	place->turn = ++turn;
	return place;
}

void mpi_close_all(void)
{
	for (unsigned i = 0; i < OPEN_MOST; i++)
		if (opened[i].at)
			MUST(cuIpcCloseMemHandle(opened[i].at));
}

void mpi_look_at_opened(CUdeviceptr at, size_t offset, size_t bytes)
{
	unsigned type = 77, managed = 77;
	unsigned long long buffer = 0;
	CUcontext context;
	int ordinal = -1;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_BUFFER_ID,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	void *data[] = {&type, &context, &managed, &buffer, &ordinal};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base;
	size_t range;

	MUST(cuPointerGetAttributes(5, which, data, at + offset + bytes - 1));
	CHECK(type == CU_MEMORYTYPE_DEVICE && context == mpi_own && !managed && buffer &&
	      (ordinal == 0 || ordinal == 1));
	MUST(cuMemGetAddressRange_v2(&base, &range, at + offset + bytes - 1));
	CHECK(base == at && range >= offset + bytes);
	CHECK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at) == CUDA_ERROR_INVALID_VALUE);
}
