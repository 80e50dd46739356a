// SPDX-License-Identifier: Apache-2.0
/*
 * sim_outside.c: memory that others come to know: handles and ranges that leave the process, tensor maps and textures.
 * Only what tells a right caller from a wrong one is modelled: the file descriptor of a range leads to nothing. That of
 * a handle is the memory itself, for any process of the simulation. From cuda.h 13.0, not measured: a range must be
 * mapped all over, and on one device with like properties. Of legacy IPC there is what refuses: no process can open
 * what another one's cuMemAlloc gave, and in the process that has it the handle is refused, with an error that is
 * assumed.
 */
#include "sim_memory.h"
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096

static int new_file(void)
{
	return memfd_create("sim_outside", MFD_CLOEXEC);
}

static bool is_alike(const CUmemAllocationProp *a, const CUmemAllocationProp *b)
{
	return a->location.type == b->location.type && a->location.id == b->location.id &&
	       a->requestedHandleTypes == b->requestedHandleTypes &&
	       a->allocFlags.gpuDirectRDMACapable == b->allocFlags.gpuDirectRDMACapable;
}

static CUresult range_handle(int *ret_file, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
			     unsigned long long flags)
{
	const struct sim_mapping *first = sim_mapping_at(address);
	struct sim_block *block = sim_block_at(address);

	if (!ret_file || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags || !bytes || address % PAGE ||
	    bytes % PAGE)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the range, its type or flags are wrong");
	if (block && block->kind == SIM_BLOCK_DEVICE && address + bytes <= block->range.start + block->range.bytes) {
		*ret_file = new_file();
		return CUDA_SUCCESS;
	}
	for (CUdeviceptr at = address; at < address + bytes;) {
		const struct sim_mapping *mapping = sim_mapping_at(at);

		if (!mapping || !is_alike(&mapping->handle->prop, &first->handle->prop))
			return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx is not mapped as the rest is", at);
		at = mapping->range.start + mapping->range.bytes;
	}
	*ret_file = new_file();
	return CUDA_SUCCESS;
}

static CUresult export_handle(int *ret_file, CUmemGenericAllocationHandle id, CUmemAllocationHandleType type,
			      unsigned long long flags)
{
	const struct sim_handle *handle = sim_handle_of(id);

	if (!ret_file || !handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(handle->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx was not made to be exported so", id);
	*ret_file = fcntl(handle->physical.file, F_DUPFD, 3); /* not closed by exec: stricter than is known */
	return *ret_file < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *ret_handle, void *os_handle, CUmemAllocationHandleType type)
{
	static const char head[] = "/memfd:" SIM_FILE_NAME;
	int file = (int)(intptr_t)os_handle;
	char path[64], name[64] = "";
	struct stat status;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	if (!ret_handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    readlink(path, name, sizeof(name) - 1) <= 0 || strncmp(name, head, sizeof(head) - 1) ||
	    fstat(file, &status))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "descriptor %d is no exported memory", file);
	struct sim_physical physical = {.bytes = (size_t)status.st_size,
					.device = atoi(name + sizeof(head) - 1),
					.file = fcntl(file, F_DUPFD_CLOEXEC, 3),
					.borrowed = true};
	if (physical.file < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	bool host = physical.device < 0;
	CUmemAllocationProp prop = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
			 .id = host ? 0 : physical.device}};
	*ret_handle = sim_handle_new(&prop, &physical)->id;
	return CUDA_SUCCESS;
}

static CUresult ipc_open(const CUipcMemHandle *handle, unsigned flags)
{
	static const char zero[sizeof(handle->reserved) - 8];

	if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || memcmp(handle->reserved + 8, zero, sizeof(zero)))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "flags, or a handle that the model did not make");
	return sim_why(CUDA_ERROR_INVALID_CONTEXT, "a handle of this process");
}

/* What is bound stays the endpoint's: a caller that maps other memory at the address has lost it. */
static CUresult bind_range(const void *address, cuuint64_t bytes, unsigned long long flags)
{
	int file = -1;
	CUresult result = range_handle(&file, (uintptr_t)address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);

	if (file >= 0)
		close(file);
	return result;
}

static CUresult bind_handle(CUmemGenericAllocationHandle id, unsigned long long flags)
{
	return sim_handle_of(id) && !flags ? CUDA_SUCCESS : sim_why(CUDA_ERROR_INVALID_VALUE, "no handle, or flags");
}

/* A program must not look into one. */
static CUresult tensor_map(CUtensorMap *ret_map, const void *address)
{
	if (!ret_map || (uintptr_t)address % 16)
		return CUDA_ERROR_INVALID_VALUE;
	memset(ret_map, 0x5a, sizeof(*ret_map));
	return CUDA_SUCCESS;
}

static CUresult texture(CUtexObject *ret_texture, const CUDA_RESOURCE_DESC *resource)
{
	static CUtexObject last;

	if (!ret_texture || !resource ||
	    (resource->resType != CU_RESOURCE_TYPE_LINEAR && resource->resType != CU_RESOURCE_TYPE_PITCH2D))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the model has textures of device memory alone");
	*ret_texture = ++last;
	return CUDA_SUCCESS;
}

static CUresult reference(CUtexref reference_, CUdeviceptr address)
{
	return reference_ && address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SPELL(cuMemGetHandleForAddressRange,
      (void *handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type, unsigned long long flags),
      range_handle(handle, address, size, type, flags))
SPELL_FREE(cuMemExportToShareableHandle,
	   (void *file, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
	   export_handle(file, handle, type, flags))

SPELL_FREE(cuMemImportFromShareableHandle,
	   (CUmemGenericAllocationHandle * handle, void *os_handle, CUmemAllocationHandleType type),
	   import_handle(handle, os_handle, type))

#pragma GCC diagnostic ignored "-Wunused-parameter"
SPELL_2(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags), ipc_open(&handle, flags))
SPELL(cuIpcCloseMemHandle, (CUdeviceptr address), sim_why(CUDA_ERROR_INVALID_VALUE, "nothing was opened there"))
SPELL(cuLogicalEndpointBindAddr,
      (CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset, void *address, cuuint64_t bytes,
       unsigned long long flags),
      bind_range(address, bytes, flags))
SPELL(cuLogicalEndpointBindMem,
      (CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset, CUmemGenericAllocationHandle handle,
       cuuint64_t at, cuuint64_t bytes, unsigned long long flags),
      bind_handle(handle, flags))
SPELL_FREE(cuTensorMapEncodeTiled,
	   (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dim,
	    const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
	    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
	    CUtensorMapFloatOOBfill fill),
	   tensor_map(map, address))
SPELL_FREE(cuTensorMapReplaceAddress, (CUtensorMap * map, void *address), tensor_map(map, address))
SPELL(cuTexObjectCreate,
      (CUtexObject * object, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *description,
       const CUDA_RESOURCE_VIEW_DESC *view),
      texture(object, resource))
SPELL(cuTexObjectDestroy, (CUtexObject object), object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)
SPELL(cuTexRefSetAddress_v2, (size_t * offset, CUtexref ref, CUdeviceptr address, size_t bytes),
      reference(ref, address))

/* ---- what no header has yet: a function of a newer driver, and a variable ---- */

__attribute__((visibility("default"))) int cuBrandNew(int a, int b);
int cuBrandNew(int a, int b)
{
	return a - b;
}

__attribute__((visibility("default"))) extern int cuBrandNewVariable;
int cuBrandNewVariable = 7;
