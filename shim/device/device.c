// SPDX-License-Identifier: Apache-2.0
/* Examines devices, sets their budgets from the policy, finds the peers that lend to them, and creates their heaps. */
#include "shim/device/device.h"
#include "shim/accounting/quota.h"
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/plan/piece_sizes.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"

#include <stdlib.h>
#include <string.h>

struct budget host_budget;
_Atomic bool peer_any;
_Atomic uint64_t peer_mapped_for[DEVICE_MOST];

/* `row` is read for each address that a submission names: nothing that is written often lies beside it. */
static struct {
	_Atomic(struct device *) row[DEVICE_MOST]; /* by ordinal; written under START */
	atomic_uint n;                             /* highest examined ordinal, plus 1; written under START */
	struct policy_size budget;                 /* set while the process runs, if is_changed. Guarded by START. */
	bool is_changed, is_host_changed;          /* Guarded by START. */
	bool beside, is_beside_changed;            /* memory moves beside what runs. Guarded by START. */
} devices;

/* Devices with a heap, and devices with a context, as bits; only ever set, by any thread. */
static _Atomic uint64_t with_heap, with_context;

/* Left to the driver for contexts, libraries and arrays if the user sets no budget (docs/design.md, Budgets). */
#define DEFAULT_RESERVE ((uint64_t)1 << 30)
/*
 * Left free by a budget that follows what is free: what a neighbour takes until it is seen and memory has left for it,
 * 0.5 s at 4 GiB/s. Of a small device a 16th.
 */
#define LIVE_RESERVE ((uint64_t)2 << 30)
#define LIVE_SHARE   16
/* Free memory kept warm: a quarter of the budget, at most KEEP_MOST, because other processes need memory too. */
#define KEEP_MOST  ((uint64_t)4 << 30)
#define KEEP_SHARE 4
/*
 * Address space of a heap: this multiple of what all budgets could hold, so that fragmentation never matters. Address
 * space costs nothing (docs/facts.md, Mapping).
 */
#define ARENA_TIMES 4
/*
 * Preferred start of each arena: high, and 4 TiB apart by device, so that a heap address is unlikely to equal a number
 * that is a kernel parameter; and 256 MiB behind a multiple of 4 GiB, where two int32 lead that are indices. The driver
 * honoured such hints (docs/facts.md, Mapping); without one it gave 0x302000000.
 */
#define ARENA_HINT(ordinal)                                                                                            \
	((ordinal) < 16 ? (((CUdeviceptr)0x2000 + 0x400 * (CUdeviceptr)(ordinal)) << 32) + ((CUdeviceptr)1 << 28) : 0)

/*
 * Address space for programs that map memory themselves, as a multiple of the device's memory: PyTorch reserves 9/8 of
 * the device for each of two pools of each stream.
 */
#define SPACES 18

/* ---- sizes of the policy in bytes ---- */

uint64_t sizes_resolve(struct policy_size size, uint64_t whole, uint64_t automatic)
{
	if (size.kind == POLICY_SIZE_BYTES)
		return size.value;
	if (size.kind == POLICY_SIZE_PERCENT)
		return (uint64_t)((unsigned __int128)whole * size.value / 10000);
	return automatic;
}

bool sizes_limited(enum policy_limit limit)
{
	return process_settings()->limits.most[limit].kind != POLICY_SIZE_AUTO;
}

/* Returns bytes, but at most what the machine's policy allows. whole: what a share of the limit is a share of. */
static uint64_t sizes_within(enum policy_limit limit, uint64_t bytes, uint64_t whole)
{
	uint64_t most = sizes_resolve(process_settings()->limits.most[limit], whole, UINT64_MAX);

	return bytes < most ? bytes : most;
}

/* Returns the device's budget: at most what the device has, which is said, and what the machine's policy allows. */
static uint64_t sizes_device_budget(struct policy_size size, uint64_t whole, uint64_t automatic)
{
	uint64_t limit = sizes_within(POLICY_LIMIT_DEVICE_BUDGET, sizes_resolve(size, whole, automatic), whole);
	char asked[32], has[32];

	if (limit <= whole)
		return limit;
	log_once("device.budget: %s is more than the GPU has (%s): the budget is what it has",
		 log_bytes(asked, sizeof(asked), limit), log_bytes(has, sizeof(has), whole));
	return whole;
}

uint64_t sizes_host_total(const struct policy *policy, const struct hostmem *memory)
{
	uint64_t total =
	    sizes_resolve(policy_settings(policy)->host_total, memory->total, hostmem_default_budget(memory));

	return sizes_within(POLICY_LIMIT_HOST_TOTAL, total, memory->total);
}

/* Returns whether the policy or the machine's sets what all processes pin together. */
static bool sizes_gives_host_total(const struct policy *policy)
{
	return policy_settings(policy)->host_total.kind != POLICY_SIZE_AUTO || sizes_limited(POLICY_LIMIT_HOST_TOTAL);
}

/* A size set for each process is used alone, unless the policy also sets the total of all processes. */
bool sizes_shares_host(const struct policy *policy)
{
	bool has_own = policy_settings(policy)->host_budget.kind != POLICY_SIZE_AUTO;

	return sizes_limited(POLICY_LIMIT_HOST_TOTAL) || (policy_settings(policy)->host_share == POLICY_SHARE_USER &&
							  (sizes_gives_host_total(policy) || !has_own));
}

/* Of the device: what is left for contexts, libraries, and what programs take beside the heap. */
#define TOTAL_SPARES 10

uint64_t sizes_device_total(const struct policy *policy, uint64_t whole, uint64_t mine)
{
	struct policy_size size = policy_settings(policy)->device_total;
	/* If others that share have the rest, the total of their account holds, which is not known here. */
	uint64_t spare = whole / TOTAL_SPARES, automatic = mine > 2 * spare ? mine - spare : spare;

	if (size.kind == POLICY_SIZE_AUTO &&
	    (policy_settings(policy)->turns.mode == POLICY_TURNS_OFF || !policy_settings(policy)->control ||
	     policy_settings(policy)->spill < POLICY_SPILL_EXACT))
		return 0;
	return sizes_within(POLICY_LIMIT_DEVICE_TOTAL, sizes_resolve(size, whole, automatic), whole);
}

/* ---- what a device is ---- */

static int device_attribute(CUdevice ordinal, CUdevice_attribute which)
{
	int value = 0;

	return REAL(cuDeviceGetAttribute)(&value, which, ordinal) == CUDA_SUCCESS ? value : 0;
}

static void find_host_location(struct device *device)
{
	device->host_vmm = true;
	if (device_attribute(device->ordinal, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
		device->host_location =
		    (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = device->node > 0 ? device->node : 0};
	else if (device_attribute(device->ordinal, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
		device->host_location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
	else
		device->host_vmm = false;
}

static void tell_stats(struct device *device)
{
	char name[STATS_TEXT] = "";
	CUuuid uuid = {{0}};

	REAL(cuDeviceGetName)(name, sizeof(name), device->ordinal);
	REAL(cuDeviceGetUuid)(&uuid, device->ordinal);
	memcpy(device->uuid, uuid.bytes, sizeof(device->uuid));
	stats_know_device(device->ordinal, name, (const unsigned char *)uuid.bytes, device->total);
}

static struct device *look_at(CUdevice ordinal)
{
	size_t total = 0;

	if (REAL(cuDeviceTotalMem_v2)(&total, ordinal) != CUDA_SUCCESS)
		return NULL;
	struct device *device = calloc(1, sizeof(*device));
	if (!device)
		return NULL;
	device->ordinal = device->lender.device = ordinal;
	device->lender.own = &device->budget;
	device->total = total;
	device->vmm = device_attribute(ordinal, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	/*
	 * Without concurrent access, managed memory is device memory that the CPU may access only while the GPU is
	 * idle.
	 */
	device->managed = device_attribute(ordinal, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) &&
			  device_attribute(ordinal, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
	device->pageable = device_attribute(ordinal, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
	if (REAL(cuDeviceGetAttribute)(&device->node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal) != CUDA_SUCCESS)
		device->node = -1;
	if (device->vmm)
		find_host_location(device);
	tell_stats(device);
	/* Until a context can say how much is free; see set_budget(). */
	atomic_store(&device->budget.limit, total > DEFAULT_RESERVE ? total - DEFAULT_RESERVE : total);
	return device;
}

static struct device *device_find(CUdevice ordinal)
{
	struct device *device = atomic_load(&devices.row[ordinal]);

	lock_assert_held(LOCK_START);
	if (device)
		return device;
	device = look_at(ordinal);
	atomic_store(&devices.row[ordinal], device);
	if (device && atomic_load(&devices.n) <= (unsigned)ordinal)
		atomic_store(&devices.n, (unsigned)ordinal + 1);
	return device;
}

struct device *device_get(CUdevice ordinal)
{
	if (ordinal < 0 || ordinal >= DEVICE_MOST)
		return NULL;
	struct device *device = atomic_load_explicit(&devices.row[ordinal], memory_order_acquire);
	if (__builtin_expect(device != NULL, 1))
		return device;
	real_bind(); /* not under START, because it may need the loader's lock */
	lock_take(&start_lock);
	device = device_find(ordinal);
	lock_drop(&start_lock);
	return device;
}

struct device *device_current(CUresult *ret_result)
{
	CUdevice ordinal;
	CUresult result = REAL(cuCtxGetDevice)(&ordinal);

	if (ret_result)
		*ret_result = result;
	return result == CUDA_SUCCESS ? device_get(ordinal) : NULL;
}

uint64_t device_headroom(const struct device *device)
{
	return device->total / 8 < DEFAULT_RESERVE ? device->total / 8 : DEFAULT_RESERVE;
}

uint64_t device_reserve(const struct device *device)
{
	struct policy_size size = process_settings()->device_reserve;
	uint64_t share = device->total / LIVE_SHARE;

	return size.kind == POLICY_SIZE_BYTES ? size.value : share < LIVE_RESERVE ? share : LIVE_RESERVE;
}

uint64_t device_within_limit(const struct device *device, uint64_t bytes)
{
	return sizes_within(POLICY_LIMIT_DEVICE_BUDGET, bytes, device->total);
}

/*
 * A size set for each process is used alone, unless the policy also sets the total of all processes. Where the machine
 * limits that total, all count what they take.
 */
static void set_host_budget(const struct policy *policy)
{
	struct hostmem memory = hostmem_read("");
	struct policy_size own = policy_settings(policy)->host_budget;
	bool has_own = own.kind != POLICY_SIZE_AUTO, shared = sizes_shares_host(policy);
	struct quota_terms terms = {
	    .total = sizes_host_total(policy, &memory),
	    .given = sizes_gives_host_total(policy),
	    .domain = memory.domain,
	    .limit = has_own || sizes_limited(POLICY_LIMIT_HOST_BUDGET) ? NULL : &host_budget.limit,
	};

	if (shared) {
		quota_arrange(&terms);
		atomic_store(&host_budget.shared, true);
	}
	uint64_t limit = sizes_resolve(own, memory.total, shared ? terms.total : hostmem_default_budget(&memory));
	atomic_store(&host_budget.limit, sizes_within(POLICY_LIMIT_HOST_BUDGET, limit, memory.total));
}

/*
 * Sets how much the device lends. most: what all heaps together may take of the device. shared: what all processes may
 * have of it together; 0: it is not shared. Unless the policy sets it, half of the device's budget is never lent. A
 * shared device lends of this process's part alone, once that is known. The part changes, so its maximum counts here.
 */
static void set_lender(struct device *device, uint64_t most, uint64_t shared, bool known)
{
	uint64_t own = shared ? smaller(atomic_load(&device->own_limit), shared) : atomic_load(&device->budget.limit);
	uint64_t beyond = most > own && !shared ? most - own : 0;
	uint64_t half = device->total / 2, automatic = beyond + own / 2;
	uint64_t limit = sizes_resolve(process_settings()->peer_budget, device->total, smaller(automatic, half));

	atomic_store(&device->lender.beyond.limit, beyond);
	atomic_store(&device->lender.lent.limit, shared && !known ? 0 : limit);
}

static struct policy_size chosen_budget(void)
{
	lock_assert_held(LOCK_START);
	return devices.is_changed ? devices.budget : process_settings()->device_budget;
}

/*
 * If the policy shares the device (total is not 0): enters its account, and takes what is left of the total, up to
 * `limit`. Returns the limit then. The control thread keeps the account up to date (lifecycle/types.h).
 */
static uint64_t take_share(struct device *device, uint64_t total, uint64_t limit)
{
	uint64_t used = atomic_load(&device->budget.used), wanted = limit;

	if (!total)
		return limit;
	if (!process_settings()->control) {
		log_once("device.total needs control: yes; this process goes by its own budget");
		return limit < total ? limit : total;
	}
	device->account.keeps_total = process_settings()->device_total.kind == POLICY_SIZE_AUTO;
	limit = gpu_account_begin(&device->account, device->uuid, total, used, limit);
	atomic_store(&device->shared_total, device->account.file.open ? device->account.file.total : total);
	/* Until the control thread has looked. */
	atomic_store(&device->out_of_turn,
		     limit < wanted && !device->account.lasting && process_settings()->turns.mode != POLICY_TURNS_OFF);
	return limit;
}

/*
 * Returns the budget of a shared device without what others leave. Where the policy does not set it, what was free at
 * the start says nothing: another process may have had most of it, and gives it up when it is to.
 */
static uint64_t own_limit(const struct device *device, uint64_t limit)
{
	if (!atomic_load(&device->shared_total) || chosen_budget().kind != POLICY_SIZE_START ||
	    device->total <= 2 * DEFAULT_RESERVE)
		return limit;
	return device_within_limit(device, device->total - DEFAULT_RESERVE);
}

static void set_budget(struct device *device)
{
	size_t free = device->total, total = device->total;
	CUdevice current;

	lock_assert_held(LOCK_START);
	if (device->budget_known)
		return;
	/* The driver reports free memory of the current device only. */
	bool known = REAL(cuCtxGetDevice)(&current) == CUDA_SUCCESS && current == device->ordinal &&
		     REAL(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS;
	if (!known)
		free = device->total;
	/*
	 * Memory that was charged before (taken by the program or borrowed by others) is not in `free`, so it is added:
	 * it counts once.
	 */
	uint64_t mine = free + atomic_load(&device->budget.used) + atomic_load(&device->lender.beyond.used);
	if (mine > device->total)
		mine = device->total;
	uint64_t automatic = mine > 2 * DEFAULT_RESERVE ? mine - DEFAULT_RESERVE : mine / 2;
	bool follows = chosen_budget().kind == POLICY_SIZE_AUTO;
	uint64_t reserve = device_reserve(device);
	if (follows)
		automatic = mine > reserve ? mine - reserve : 0;
	automatic = device_within_limit(device, automatic);
	uint64_t limit = sizes_device_budget(chosen_budget(), device->total, automatic);
	uint64_t shared = sizes_device_total(process_policy(), device->total, mine);
	atomic_store(&device->budget.limit, known ? take_share(device, shared, limit) : limit);
	atomic_store(&device->own_limit, own_limit(device, limit));
	atomic_store(&device->follows, follows && known);
	set_lender(device, automatic, shared, known);
	if (!atomic_load(&host_budget.limit) && !devices.is_host_changed)
		set_host_budget(process_policy());
	atomic_store_explicit(&device->budget_known, known, memory_order_release);
}

static uint64_t keep_of(const struct budget *budget)
{
	uint64_t share = atomic_load(&budget->limit) / KEEP_SHARE;

	return share < KEEP_MOST ? share : KEEP_MOST;
}

bool device_reaches(CUdevice from, CUdevice to)
{
	int can = 0;

	return REAL(cuDeviceCanAccessPeer)(&can, from, to) == CUDA_SUCCESS && can;
}

/* The driver does not name the link. NVLink has native atomics, PCIe has not (doctor uses the same rule). */
static enum stats_link_kind link_between(const struct device *from, const struct device *to)
{
	int atomics = 0;

	if (!device_reaches(from->ordinal, to->ordinal))
		return STATS_LINK_NONE;
	if (REAL(cuDeviceGetP2PAttribute)(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from->ordinal,
					  to->ordinal) != CUDA_SUCCESS)
		return STATS_LINK_UNKNOWN;
	return atomics ? STATS_LINK_NVLINK : STATS_LINK_PCIE;
}

/*
 * Returns NULL if the device can lend. A device that may get access to the heap must be able to access all of it, lent
 * memory included.
 */
static const char *why_not_lend(const struct device *device, const struct device *lender)
{
	if (!lender)
		return "there is no such device";
	if (!lender->vmm)
		return "it has no virtual memory management";
	if (!device_reaches(device->ordinal, lender->ordinal))
		return "the one does not reach the other";
	for (int i = 0; i < DEVICE_MOST; i++) {
		const struct device *other = i == device->ordinal || i == lender->ordinal ? lender : device_find(i);

		if (!other)
			break;
		if (other != lender && device_reaches(i, device->ordinal) && !device_reaches(i, lender->ordinal))
			return "a third reaches this one and not that";
	}
	return NULL;
}

/*
 * Collects the lenders of a device; leaves out those that cannot lend. say: the heap is being created; report what was
 * found in the log and to stats.
 */
static void find_lenders(const struct device *device, struct heap_config *config, bool say)
{
	uint64_t lenders = process_settings()->peers;

	if (process_settings()->spill == POLICY_SPILL_OFF)
		return;
	for (int i = 0; i < DEVICE_MOST && config->n_lenders < HEAP_LENDERS; i++) {
		if (!(lenders >> i & 1) || i == device->ordinal)
			continue;
		struct device *lender = device_find(i);
		const char *why_not = why_not_lend(device, lender);

		if (say && lender)
			stats_know_link(device->ordinal, i, link_between(device, lender));
		if (why_not && say)
			log_line("spill.peers: device %d cannot lend memory to device %d: %s", i, device->ordinal,
				 why_not);
		if (why_not)
			continue;
		set_budget(lender);
		config->lenders[config->n_lenders++] = &lender->lender;
	}
}

/*
 * Return, for heaps that are made or changed: whether their memory moves beside what runs; and the limit of the pieces
 * in bytes (0: none). Locking: the caller must hold START.
 */
static bool is_beside(void)
{
	lock_assert_held(LOCK_START);
	return devices.is_beside_changed ? devices.beside : process_spill_mode() == POLICY_SPILL_FAST;
}

static uint64_t piece_most(void)
{
	return is_beside() ? FAST_PIECE : 0;
}

_Static_assert(POLICY_CHUNK_LEAST == HEAP_UNIT, "heap.chunk is what the heap can have");

static struct heap *make_heap(struct device *device)
{
	struct heap *heap = NULL;

	/* The context is known already, unless it was created before the library could see it. */
	if (context_of_memory())
		context_known(context_of_memory(), device->ordinal);
	set_budget(device);
	uint64_t host = atomic_load(&host_budget.limit);
	struct heap_config config = {
	    .device = device->ordinal,
	    .host_usable = device->host_vmm,
	    .host_location = device->host_location,
	    .moves = process_settings()->spill >= POLICY_SPILL_EXACT,
	    .beside = is_beside(),
	    .rdma = device_attribute(device->ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
	    .exportable =
		device_attribute(device->ordinal, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
	    /* The program may export any memory that it makes itself (serve.h). */
	    .share = process_settings()->ipc || policy_vmm_moves(process_policy()),
	    .peers = peer_heap(device->ordinal),
	    .device_budget = &device->budget,
	    .host_budget = &host_budget,
	    .arena_hint = ARENA_HINT(device->ordinal),
	    .arena_bytes = ARENA_TIMES * (device->total + host),
	    .keep_device =
		sizes_resolve(process_settings()->heap_release_threshold, device->total, keep_of(&device->budget)),
	    .keep_host = keep_of(&host_budget),
	    .device_at_once =
		!process_settings()->control || process_settings()->heap_release_threshold.kind != POLICY_SIZE_AUTO,
	    .piece_bytes = sizes_resolve(process_settings()->heap_chunk, 0, 0),
	    .piece_most = piece_most(),
	    .piece_budget = process_settings()->turns.mode == POLICY_TURNS_OFF ? NULL : &device->shared_total,
	};
	find_lenders(device, &config, true);
	if (policy_vmm_moves(process_policy()))
		config.arena_bytes += SPACES * device->total;
	for (unsigned i = 0; i < config.n_lenders; i++)
		config.arena_bytes += ARENA_TIMES * device_get(config.lenders[i]->device)->total;
	enum sw_status status = heap_create(&config, &heap);
	if (status != SW_OK) {
		log_once("no heap on device %d (%s); allocations go to the driver", device->ordinal,
			 status_text(status));
		device->heap_refused = true;
	} else if (!device->host_vmm && process_settings()->spill != POLICY_SPILL_OFF) {
		log_once("this driver or device has no host-backed VMM memory: nothing can spill, what is over the "
			 "device budget gets out of memory");
	}
	return heap;
}

struct heap *device_heap(struct device *device)
{
	struct heap *heap = atomic_load_explicit(&device->heap, memory_order_acquire);

	if (__builtin_expect(heap != NULL, 1))
		return heap;
	lock_take(&start_lock);
	heap = atomic_load(&device->heap);
	if (!heap && device->vmm && !device->heap_refused) {
		heap = make_heap(device);
		atomic_store_explicit(&device->heap, heap, memory_order_release);
	} else if (!heap && !device->vmm) {
		log_once("this driver or device has no virtual memory management: allocations on device %d go to the "
			 "driver, nothing can spill",
			 device->ordinal);
	}
	lock_drop(&start_lock);
	return heap;
}

struct heap *device_heap_there(CUdevice ordinal)
{
	const struct device *device = ordinal >= 0 && ordinal < DEVICE_MOST
					  ? atomic_load_explicit(&devices.row[ordinal], memory_order_acquire)
					  : NULL;

	return device ? atomic_load_explicit(&device->heap, memory_order_acquire) : NULL;
}

/* Returns the first heap of a device with at least this ordinal, and sets *at behind it; NULL: there is none. */
static struct heap *next_heap(CUdevice *at)
{
	struct heap *heap = NULL;

	while (*at < DEVICE_MOST && !heap)
		heap = device_heap_there((*at)++);
	return heap;
}

uint64_t device_lent(struct device *device)
{
	struct heap_config config = {0};
	uint64_t bytes = 0, used, left;

	lock_take(&start_lock);
	const struct heap *heap = atomic_load(&device->heap);
	if (heap)
		bytes = heap_lent(heap, &used, &left);
	else
		find_lenders(device, &config, false);
	lock_drop(&start_lock);
	for (unsigned i = 0; i < config.n_lenders; i++)
		bytes += atomic_load(&config.lenders[i]->lent.limit);
	return bytes;
}

void device_known_budget(struct device *device)
{
	if (atomic_load_explicit(&device->budget_known, memory_order_acquire))
		return;
	lock_take(&start_lock);
	set_budget(device);
	lock_drop(&start_lock);
}

static void change_budget(struct device *device)
{
	if (!atomic_load(&device->budget_known))
		return;
	uint64_t limit = sizes_device_budget(chosen_budget(), device->total, atomic_load(&device->own_limit));
	atomic_store(&device->own_limit, limit);
	/* Of a device that is shared, the control thread takes what the others leave. */
	if (!atomic_load(&device->shared_total) || limit < atomic_load(&device->budget.limit))
		atomic_store(&device->budget.limit, limit);
	atomic_store(&device->follows, chosen_budget().kind == POLICY_SIZE_AUTO);
}

void device_change_budget(struct policy_size size)
{
	lock_take(&start_lock);
	devices.budget = size;
	devices.is_changed = true;
	for (struct device *device = device_next(NULL); device; device = device_next(device))
		change_budget(device);
	lock_drop(&start_lock);
}

void device_change_host_budget(struct policy_size size)
{
	struct hostmem memory = hostmem_read("");

	lock_take(&start_lock);
	quota_keep_limit();
	devices.is_host_changed = true;
	uint64_t limit = sizes_resolve(size, memory.total, atomic_load(&host_budget.limit));
	atomic_store(&host_budget.limit, sizes_within(POLICY_LIMIT_HOST_BUDGET, limit, memory.total));
	lock_drop(&start_lock);
}

void device_tick(void)
{
	struct heap *heap;

	for (CUdevice at = 0; (heap = next_heap(&at));)
		heap_tick(heap);
}

/* Also gives back what these heaps keep idle of other lenders. */
static bool take_back(const struct device *device)
{
	uint64_t before = atomic_load(&device->lender.lent.used);
	struct heap *heap;

	for (CUdevice at = 0; before && (heap = next_heap(&at));)
		heap_give_back_lent(heap);
	return atomic_load(&device->lender.lent.used) < before;
}

bool device_take_back(struct device *device, uint64_t bytes)
{
	const struct heap *heap = atomic_load_explicit(&device->heap, memory_order_acquire);

	if (!heap || !atomic_load(&device->lender.lent.used))
		return false;
	bool over = budget_left(&device->budget) + heap_idle(heap, CHUNK_DEVICE) < bytes;
	return ((over && atomic_load(&device->lender.of_own)) || heap_is_full(heap)) && take_back(device);
}

bool device_make_room(struct device *device)
{
	struct heap *heap = atomic_load_explicit(&device->heap, memory_order_acquire);
	uint64_t before = heap ? heap_idle(heap, CHUNK_DEVICE) : 0;
	bool any = take_back(device);

	if (!before)
		return any;
	heap_trim(heap, 0, heap_idle(heap, CHUNK_HOST));
	return heap_idle(heap, CHUNK_DEVICE) < before || any;
}

bool device_make_host_room(struct device *device)
{
	const struct heap *own = device ? atomic_load(&device->heap) : NULL;
	struct heap *heap;
	bool any = false;

	for (CUdevice at = 0; (heap = next_heap(&at));) {
		uint64_t before = heap == own ? 0 : heap_idle(heap, CHUNK_HOST);

		if (!before)
			continue;
		heap_trim(heap, heap_idle(heap, CHUNK_DEVICE), 0);
		any |= heap_idle(heap, CHUNK_HOST) < before;
	}
	return any;
}

bool device_take_host(uint64_t bytes)
{
	return budget_take(&host_budget, bytes) || (device_make_host_room(NULL) && budget_take(&host_budget, bytes));
}

struct device *device_of(CUdeviceptr address)
{
	unsigned n = atomic_load_explicit(&devices.n, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct device *device = atomic_load_explicit(&devices.row[i], memory_order_acquire);

		if (!device)
			continue;
		struct heap *heap = atomic_load_explicit(&device->heap, memory_order_acquire);
		if (heap && heap_contains(heap, address))
			return device;
	}
	return NULL;
}

struct device *device_next(const struct device *device)
{
	struct device *next = NULL;

	for (CUdevice i = device ? device->ordinal + 1 : 0; !next && i < DEVICE_MOST; i++)
		next = atomic_load(&devices.row[i]);
	return next;
}

/* ---- whether memory of the heaps moves beside what runs, and how large the pieces are then ---- */

void device_set_beside(bool beside)
{
	struct heap *heap;

	lock_take(&start_lock);
	devices.beside = beside;
	devices.is_beside_changed = true;
	for (CUdevice at = 0; (heap = next_heap(&at));)
		heap_set_beside(heap, is_beside(), piece_most());
	lock_drop(&start_lock);
}

/*
 * ---- which devices have a heap and which a context; peer_any is set when a heap and contexts on two GPUs exist ----
 */

/* Adds devices with a heap and devices with a context, as bits. */
static void peer_map_look(uint64_t heap, uint64_t context)
{
	atomic_fetch_or(&with_heap, heap);
	atomic_fetch_or(&with_context, context);
	heap = atomic_load(&with_heap);
	context = heap | atomic_load(&with_context);
	if (heap && (context & (context - 1)))
		atomic_store(&peer_any, true);
}

const _Atomic uint64_t *peer_heap(int owner)
{
	peer_map_look(UINT64_C(1) << owner, 0);
	return &peer_mapped_for[owner];
}

void peer_context_made(CUdevice device)
{
	if (device >= 0 && device < DEVICE_MOST)
		peer_map_look(0, UINT64_C(1) << device);
}
