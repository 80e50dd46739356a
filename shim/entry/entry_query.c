// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies of the entry points that answer queries about memory. For heap blocks the ledger answers, as the driver would
 * for a block of cuMemAlloc; the comment of union answer lists the differences. is_ours_to_answer() says for what else
 * the library answers; for the rest the driver does.
 */
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/process/process.h"
#include "shim/serve/backend.h"
#include "shim/serve/deferred_free.h"

#include <string.h>

/* ---- capacity ---- */

/*
 * The free and total memory that the program sees (report.capacity). Free memory is what may still be allocated, and
 * at most total minus what the program holds: so it changes with every allocation, and total - free is what is in
 * use, as without Spillway. Warm memory of our heap is free. Memory that other processes use on the device is not
 * free, nor is what others in this process have taken of the budget that warm memory is charged to.
 */
static bool entry_query_capacity(struct device *device, size_t *ret_free, size_t *ret_total)
{
	struct heap *heap = policy_uses(process_policy(), POLICY_USE_HEAP) ? device_heap(device) : NULL;
	size_t driver_free, driver_total;

	/* If no allocation can go to a heap, the driver's answer is complete. */
	if (!heap || REAL(cuMemGetInfo_v2)(&driver_free, &driver_total) != CUDA_SUCCESS)
		return false;
	deferred_free_reap(device->ordinal);
	pool_refresh(device, false);
	bool spills = process_settings()->spill != POLICY_SPILL_OFF && device->host_vmm;
	uint64_t lent_used, lent_left, lent = heap_lent(heap, &lent_used, &lent_left);
	uint64_t budget = atomic_load(&device->budget.limit), host = spills ? atomic_load(&host_budget.limit) : 0;
	uint64_t idle = heap_idle(heap, CHUNK_DEVICE);
	uint64_t device_left =
	    smaller(budget_left(&device->budget), driver_free) + idle - smaller(idle, budget_over(&device->budget));
	uint64_t host_left = (spills ? budget_left(&host_budget) + heap_idle(heap, CHUNK_HOST) : 0) + lent_left;
	uint64_t in_use = lent_used + atomic_load(&device->budget.used) -
			  smaller(idle, atomic_load(&device->budget.used)) + atomic_load(&host_budget.used) -
			  smaller(heap_idle(heap, CHUNK_HOST), atomic_load(&host_budget.used));
	uint64_t total, left, most = backend_heap_most(device, process_settings()->spill_limit);

	switch (process_settings()->capacity) {
	case POLICY_CAPACITY_BUDGET:
		total = budget;
		left = device_left;
		break;
	case POLICY_CAPACITY_DEVICE_HOST:
		total = smaller(budget + lent + host, most);
		left = device_left + host_left;
		break;
	default:
		/* Of a device that is shared, the same whatever the others have (device.total). */
		total = atomic_load(&device->shared_total);
		if (total) {
			left = total;
			/* What is charged counts memory twice that is just moving. */
			in_use = heap_block_bytes(heap) + heap_others_bytes(heap);
			break;
		}
		left = device_left + host_left;
		total = device->total;
		break;
	}
	if (most != UINT64_MAX)
		left = smaller(left, beyond(most, heap_block_bytes(heap) + heap_others_bytes(heap)));
	*ret_total = total;
	*ret_free = smaller(left, total > in_use ? total - in_use : 0);
	return true;
}

static CUresult serve_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	size_t is_free, is_total;

	struct device *device = device_current(NULL);
	if (!device || !entry_query_capacity(device, &is_free, &is_total)) {
		/* Drivers differ in whether they accept NULL; this library always does. */
		return REAL(cuMemGetInfo_v2)(free ? free : &is_free, total ? total : &is_total);
	}
	if (free)
		*free = is_free;
	if (total)
		*total = is_total;
	return CUDA_SUCCESS;
}

/* The 32-bit form of CUDA before 3.2: the same answer, limited to 32 bits. */
static CUresult serve_cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	size_t is_free, is_total;

	struct device *device = device_current(NULL);
	if (!device || !entry_query_capacity(device, &is_free, &is_total))
		return REAL(cuMemGetInfo)(free, total);
	if (free)
		*free = (unsigned)smaller(is_free, UINT32_MAX);
	if (total)
		*total = (unsigned)smaller(is_total, UINT32_MAX);
	return CUDA_SUCCESS;
}

/*
 * The total needs no context, but the default budget does. Until the first allocation has fixed the budget, a program
 * that asks by device gets the total by policy as far as it is known.
 */
static CUresult total_of(CUdevice dev, size_t *ret_total)
{
	struct device *device = device_get(dev);

	if (!device || !device->vmm || !policy_uses(process_policy(), POLICY_USE_HEAP) ||
	    (process_settings()->capacity == POLICY_CAPACITY_PHYSICAL &&
	     !sizes_device_total(process_policy(), device->total, device->total)))
		return REAL(cuDeviceTotalMem_v2)(ret_total, dev);
	device_known_budget(device);
	if (process_settings()->capacity == POLICY_CAPACITY_PHYSICAL) {
		*ret_total = atomic_load(&device->shared_total);
		return *ret_total ? CUDA_SUCCESS : REAL(cuDeviceTotalMem_v2)(ret_total, dev);
	}
	*ret_total = atomic_load(&device->budget.limit);
	if (process_settings()->capacity != POLICY_CAPACITY_DEVICE_HOST)
		return CUDA_SUCCESS;
	*ret_total += device_lent(device);
	if (process_settings()->spill != POLICY_SPILL_OFF && device->host_vmm)
		*ret_total += atomic_load(&host_budget.limit);
	*ret_total = smaller(*ret_total, backend_heap_most(device, process_settings()->spill_limit));
	return CUDA_SUCCESS;
}

static CUresult serve_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	return bytes ? total_of(dev, bytes) : REAL(cuDeviceTotalMem_v2)(bytes, dev);
}

static CUresult serve_cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	size_t total = 0;

	if (!bytes)
		return REAL(cuDeviceTotalMem)(bytes, dev);
	CUresult result = total_of(dev, &total);
	if (result == CUDA_SUCCESS)
		*bytes = (unsigned)smaller(total, UINT32_MAX);
	return result;
}

/* ---- pointers ---- */

/*
 * Returns true if the library answers for the address: it is in a heap, live or not; it is system memory, about which
 * the driver knows nothing or something else; or it was opened from another process, where the driver knows only
 * mappings. The driver answers for managed memory that the program asked for as device memory, except for the
 * attributes in driver_answers(), and for address space of a heap that the program has reserved, where no heap
 * memory lies. *ret_known: something is allocated there.
 */
static bool is_ours_to_answer(CUdeviceptr address, struct ledger_row *ret_row, bool *ret_known)
{
	struct va_range space;

	*ret_known = serve_find(address, ret_row) || vmm_find(address, ret_row) || vmm_find_further(address, ret_row) ||
		     ledger_find(LEDGER_SYSTEM | LEDGER_TAKEN, address, ret_row);
	return *ret_known || (device_of(address) && !va_ranges_find(address, &space));
}

/* Returns the access of the current context to the address, or NONE if the driver does not say. */
static unsigned access_of(const struct ledger_row *row, CUdeviceptr address)
{
	unsigned flags;

	if (row->kind != LEDGER_MAPPING)
		return peer_access(context_current(), row);
	return vmm_access_of(row, address, &flags) == CUDA_SUCCESS ? flags : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static CUresult serve_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct ledger_row row;
	bool known;

	if (!is_ours_to_answer(dptr, &row, &known))
		return REAL(cuMemGetAddressRange_v2)(pbase, psize, dptr);
	if (!known)
		return CUDA_ERROR_NOT_FOUND;
	/* For memory that is mapped without access the driver answers 0 and "not found" (rules_memory_test). */
	bool is_open = row.kind != LEDGER_MAPPING || access_of(&row, dptr) != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	if (pbase)
		*pbase = is_open ? row.key : 0;
	if (psize)
		*psize = is_open ? row.bytes : 0;
	return is_open ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/*
 * The attributes of a heap block, of memory opened from another process, and of system memory, which has a host
 * pointer in addition. They differ from those of a cuMemAlloc block on purpose in these: RDMA and its P2P tokens are
 * not possible on memory that may move; legacy IPC (serve.h) is possible only if the policy says that all processes run
 * under Spillway (a library that reads 0 uses another method, one that reads 1 does not try another); hardware
 * decompression is not possible (docs/facts.md, Pointer queries). For memory that never moves, the driver answers
 * what it was made with.
 *
 * Measured (H200, driver 580): widths and the other values are what the driver writes for a cuMemAlloc block. Flags
 * are 32 bits wide, HOST_POINTER is refused but cleared, P2P_TOKENS turns SYNC_MEMOPS on.
 */
union answer {
	CUcontext context;
	CUdeviceptr address;
	void *pointer;
	unsigned long long number;
	size_t bytes;
	unsigned word;
	int ordinal;
};

/*
 * Returns the range of a row. For memory that the program maps itself (serve.h), this is the program's reservation, in
 * our address space or in the driver's.
 */
static struct va_range space_of(const struct ledger_row *row)
{
	struct va_range space = {.start = row->key, .bytes = row->bytes};

	if (row->kind != LEDGER_MAPPING || va_ranges_find(row->key, &space))
		return space;
	REAL(cuPointerGetAttribute)(&space.start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, row->key);
	REAL(cuPointerGetAttribute)(&space.bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, row->key);
	return space;
}

static bool is_managed(const struct ledger_row *row)
{
	return row->kind == LEDGER_SYSTEM ? row->system.asked_managed : row->kind == LEDGER_HEAP && row->heap.managed;
}

static CUresult pointer_answer(const struct ledger_row *row, CUpointer_attribute attribute, CUdeviceptr address,
			       union answer *ret, size_t *ret_bytes)
{
	CUdeviceptr first_page = row->key & ~(CUdeviceptr)(HEAP_UNIT - 1);
	bool is_fixed = row->fixed && row->kind == LEDGER_HEAP;
	CUmemoryPool pool = row->kind == LEDGER_HEAP ? row->heap.pool : NULL;
	bool is_mapping = row->kind == LEDGER_MAPPING;
	CUdeviceptr end_page = (row->key + row->bytes + HEAP_UNIT - 1) & ~(CUdeviceptr)(HEAP_UNIT - 1);

#define ANSWER(member, value) (*ret_bytes = sizeof(ret->member), ret->member = (value), CUDA_SUCCESS)
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return ANSWER(context, row->context);
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return ANSWER(word, CU_MEMORYTYPE_DEVICE);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		/* cuda.h: an error if kernels of the current context may not access the address. */
		(void)ANSWER(address, 0);
		if (access_of(row, address) == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			return CUDA_ERROR_INVALID_VALUE;
		return ANSWER(address, address);
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		return ANSWER(number, row->id);
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return ANSWER(number, is_mapping ? row->mapping.handle : row->id);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return ANSWER(ordinal, row->device);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		return ANSWER(address, space_of(row).start);
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		return ANSWER(bytes, space_of(row).bytes);
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		return ANSWER(word, row->sync_memops);
	case CU_POINTER_ATTRIBUTE_MAPPED:
		return ANSWER(word, 1);
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*ret_bytes = sizeof(ret->word);
		return is_fixed ? REAL(cuPointerGetAttribute)(&ret->word, attribute, address) : ANSWER(word, 0);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return ANSWER(word, is_managed(row));
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return ANSWER(word, row->kind == LEDGER_HEAP && !row->heap.on_use && process_settings()->ipc);
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return ANSWER(word, 0);
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*ret_bytes = sizeof(ret->number);
		return is_fixed ? REAL(cuPointerGetAttribute)(&ret->number, attribute, address)
				: ANSWER(number, is_mapping ? row->mapping.asked_types : CU_MEM_HANDLE_TYPE_NONE);
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		/*
		 * The driver answers so for memory of cuMemAlloc, also to a context without access (rules_peer_test).
		 */
		return ANSWER(word, pool || is_mapping ? access_of(row, address) : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return ANSWER(pointer, pool);
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		return ANSWER(bytes, end_page - first_page);
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		return ANSWER(address, first_page);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (row->kind == LEDGER_SYSTEM || is_managed(row))
			return ANSWER(address, address);
		(void)ANSWER(pointer, NULL);
		return CUDA_ERROR_INVALID_VALUE;
	default: /* P2P_TOKENS, and attributes that are newer than this library */
		*ret_bytes = 0;
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/*
 * Answers for an address in the heap where nothing is allocated, as cuPointerGetAttributes does for an unknown
 * address.
 */
static CUresult stranger_answer(CUpointer_attribute attribute, CUdeviceptr address, union answer *ret,
				size_t *ret_bytes)
{
	static const struct ledger_row nothing;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return ANSWER(address, address);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return ANSWER(ordinal, CU_DEVICE_INVALID);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*ret_bytes = 0;
		return CUDA_SUCCESS;
	default:
		if (pointer_answer(&nothing, attribute, 0, ret, ret_bytes) != CUDA_SUCCESS)
			return CUDA_ERROR_INVALID_VALUE;
		memset(ret, 0, sizeof(*ret));
		return CUDA_SUCCESS;
	}
}
#undef ANSWER

/*
 * Corrects the driver's answers: for managed memory that the program asked for as device memory (backend.c says why
 * these two attributes); and in an arena, which the driver takes for one reservation, while the program's is a part.
 */
static CUresult driver_answers(CUresult result, unsigned n, const CUpointer_attribute *attributes, void *const *data,
			       CUdeviceptr ptr)
{
	struct ledger_row row;
	struct va_range space;
	bool in_space = result == CUDA_SUCCESS && va_ranges_find(ptr, &space);
	bool managed = result == CUDA_SUCCESS && ledger_find(LEDGER_MANAGED, ptr, &row);

	for (unsigned i = 0; i < n && (in_space || managed); i++) {
		if (!data[i])
			continue;
		if (managed && attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned *)data[i] = CU_MEMORYTYPE_DEVICE;
		else if (managed && attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
			*(unsigned *)data[i] = row.sync_memops;
		else if (in_space && attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
			*(CUdeviceptr *)data[i] = space.start;
		else if (in_space && attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
			*(size_t *)data[i] = space.bytes;
	}
	return result;
}

static CUresult serve_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct ledger_row row;
	union answer answer;
	size_t bytes;
	bool known;

	if (!is_ours_to_answer(ptr, &row, &known))
		return driver_answers(REAL(cuPointerGetAttribute)(data, attribute, ptr), 1, &attribute, &data, ptr);
	if (!data || !known)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = pointer_answer(&row, attribute, ptr, &answer, &bytes);
	memcpy(data, &answer, bytes);
	return result;
}

static CUresult serve_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
					     CUdeviceptr ptr)
{
	struct ledger_row row;
	bool known;

	if (!is_ours_to_answer(ptr, &row, &known) || !numAttributes || !attributes || !data)
		return driver_answers(REAL(cuPointerGetAttributes)(numAttributes, attributes, data, ptr), numAttributes,
				      attributes, data, ptr);
	/* Unlike cuPointerGetAttribute, this call succeeds if an attribute does not apply. */
	for (unsigned i = 0; i < numAttributes; i++) {
		union answer answer = {0};
		size_t bytes = 0;
		CUresult result = known ? pointer_answer(&row, attributes[i], ptr, &answer, &bytes)
					: stranger_answer(attributes[i], ptr, &answer, &bytes);

		if (result != CUDA_SUCCESS && !bytes)
			return result;
		if (data[i])
			memcpy(data[i], &answer, bytes);
	}
	return CUDA_SUCCESS;
}

static CUresult serve_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct ledger_row row;

	if (!serve_is_ours(ptr))
		return REAL(cuPointerSetAttribute)(value, attribute, ptr);
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
	    !(serve_find(ptr, &row) || serve_find_outside(ptr, &row)))
		return CUDA_ERROR_INVALID_VALUE;
	/* The driver refuses this on VMM and managed memory; submit_finish_memop() waits after synchronous calls. */
	ledger_set_sync_memops(row.key, *(const unsigned *)value != 0);
	return CUDA_SUCCESS;
}

#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_QUERY
#include "shim/driver/hooks.def"
