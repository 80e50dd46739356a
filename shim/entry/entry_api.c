// SPDX-License-Identifier: Apache-2.0
/*
 * What programs and their libraries call that is no function of the driver, so it has no row in hooks.def: spillway.h,
 * the function by which PyTorch's allocator reports births and deaths, and what NVTX calls.
 */
#define SPILLWAY_API __attribute__((visibility("default")))
#include "shim/spillway.h"

#include "shim/base/call_site.h"
#include "shim/base/libc.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/heap/arena.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/account.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/managed.h"
#include "shim/submit/completion.h"
#include "shim/trace/trace.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

/* ---- the process ---- */

int spillway_suspend(void)
{
	int saved = errno, result = status_errno(control_suspend(NULL, NULL));

	errno = saved;
	return result;
}

int spillway_resume(void)
{
	int saved = errno, result = status_errno(control_resume(NULL));

	errno = saved;
	return result;
}

const char *spillway_version(void)
{
	return SPILLWAY_VERSION;
}

int spillway_checkpoint_stats(void)
{
	int saved = errno;

	if (process_stage() != STAGE_RUNNING || !stats_get(STAT_allocations))
		return -ENOTSUP;
	exit_summary_print();
	errno = saved;
	return 0;
}

/* ---- budgets and single blocks ---- */

/*
 * Like all entry points these check first whether the library serves calls, which covers SPILLWAY=0, a fork and the
 * end of the process; then they find the block of the address.
 */

static int entry_memory_leave(const struct enter_scope *scope, int result)
{
	enter_leave(scope, CUDA_SUCCESS);
	return result;
}

static CUdeviceptr address_of(const void *address)
{
	return (CUdeviceptr)(uintptr_t)address;
}

/* ---- budgets ---- */

static uint64_t in_use(const struct budget *budget, uint64_t idle)
{
	uint64_t used = atomic_load(&budget->used);

	return used > idle ? used - idle : 0;
}

int spillway_budget(int ordinal, uint64_t *device_bytes, uint64_t *host_bytes, uint64_t *device_used,
		    uint64_t *host_used)
{
	struct enter_scope scope;
	uint64_t idle = 0;

	if (!lifecycle_enter(&scope))
		return -ENOTSUP;
	struct device *device = device_get(ordinal);
	if (!device)
		return entry_memory_leave(&scope, -ENODEV);
	device_known_budget(device);
	struct heap *heap = atomic_load(&device->heap);
	for (const struct device *other = device_next(NULL); other; other = device_next(other)) {
		const struct heap *its = atomic_load(&other->heap);

		idle += its ? heap_idle(its, CHUNK_HOST) : 0;
	}
	if (device_bytes)
		*device_bytes = atomic_load(&device->budget.limit);
	if (host_bytes)
		*host_bytes = atomic_load(&host_budget.limit);
	if (device_used)
		*device_used = in_use(&device->budget, heap ? heap_idle(heap, CHUNK_DEVICE) : 0);
	if (host_used)
		*host_used = in_use(&host_budget, idle);
	return entry_memory_leave(&scope, 0);
}

/* ---- where an address lies ---- */

static enum spillway_backend backend_of(enum ledger_kind kind)
{
	switch (kind) {
	case LEDGER_HEAP:
	case LEDGER_MAPPING: /* only of heap memory: other mappings are not looked up */
		return SPILLWAY_HEAP;
	case LEDGER_MANAGED:
		return SPILLWAY_MANAGED;
	case LEDGER_SYSTEM:
		return SPILLWAY_SYSTEM;
	case LEDGER_ASYNC:
		return SPILLWAY_POOL;
	case LEDGER_PINNED:
	case LEDGER_REGISTERED:
		return SPILLWAY_PINNED;
	default:
		return SPILLWAY_DRIVER;
	}
}

/* Finds a block of cuMemAlloc, or heap memory that the program maps itself (serve.h). */
static bool find_in_heap(CUdeviceptr address, struct ledger_row *ret_row)
{
	return serve_find(address, ret_row) || vmm_find(address, ret_row);
}

/*
 * Finds an allocation outside the heap. If the address is inside one of the driver's, only the driver knows its
 * start.
 */
static bool find_elsewhere(CUdeviceptr address, struct ledger_row *ret_row)
{
	const unsigned kinds = LEDGER_FREEABLE | LEDGER_PINNED | LEDGER_REGISTERED;
	CUdeviceptr base = 0;

	if (serve_find_outside(address, ret_row) || ledger_get(kinds, address, ret_row))
		return true;
	return REAL(cuPointerGetAttribute)(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) == CUDA_SUCCESS &&
	       ledger_get(kinds, base, ret_row) && address - base < ret_row->bytes;
}

static bool is_moved(void)
{
	enum policy_spill mode = process_settings()->spill;

	return mode == POLICY_SPILL_EXACT || mode == POLICY_SPILL_FAST;
}

static struct heap *heap_of(const struct ledger_row *row)
{
	return atomic_load_explicit(&device_get(row->device)->heap, memory_order_acquire);
}

static bool is_on_use(const struct ledger_row *row)
{
	return row->kind == LEDGER_HEAP && row->heap.on_use;
}

static bool place_of(const struct ledger_row *row, struct spillway_place *place)
{
	uint64_t bytes[CHUNK_PLACES];
	bool stays;

	*place = (struct spillway_place){.backend = backend_of(row->kind), .bytes = row->bytes};
	if (place->backend == SPILLWAY_HEAP) {
		enum sw_status status = is_on_use(row) ? heap_on_use_where(heap_of(row), row->key, bytes, &stays)
						       : heap_where(heap_of(row), row->key, row->bytes, bytes, &stays);

		if (status != SW_OK)
			return false;
		/* Memory on use is in whole units, also at the end. */
		place->bytes_on_device = bytes[CHUNK_DEVICE] < row->bytes ? bytes[CHUNK_DEVICE] : row->bytes;
		place->bytes_on_host = bytes[CHUNK_HOST] + bytes[CHUNK_PEER];
		if (place->bytes_on_host > row->bytes - place->bytes_on_device)
			place->bytes_on_host = row->bytes - place->bytes_on_device;
		place->movable = !stays && is_moved();
	} else if (place->backend == SPILLWAY_PINNED || (row->kind == LEDGER_SYSTEM && row->system.registered)) {
		place->bytes_on_host = row->bytes;
	} else if (place->backend != SPILLWAY_MANAGED && place->backend != SPILLWAY_SYSTEM) {
		place->bytes_on_device = row->bytes;
	}
	return true;
}

int spillway_where(const void *address, struct spillway_place *place)
{
	struct enter_scope scope;
	struct spillway_place found;
	struct ledger_row row;

	if (!place)
		return -EINVAL;
	if (!enter_serve(&scope))
		return -ENOTSUP;
	if ((!find_in_heap(address_of(address), &row) && !find_elsewhere(address_of(address), &row)) ||
	    !place_of(&row, &found))
		return entry_memory_leave(&scope, -ENOENT);
	*place = found;
	return entry_memory_leave(&scope, 0);
}

/* ---- requests for one block of the heap ---- */

/* Returns 0 and leaves the scope open; or an error, with the scope closed. */
static int entry_memory_begin(struct enter_scope *scope, const void *address, struct ledger_row *ret_row)
{
	struct ledger_row other;

	if (!enter_serve(scope))
		return -ENOTSUP;
	if (find_in_heap(address_of(address), ret_row))
		return 0;
	return entry_memory_leave(scope, find_elsewhere(address_of(address), &other) ? -ENOTSUP : -ENOENT);
}

/* The same for what needs one block: an allocation with place: on-use is in several, and not all there. */
static int begin_with_block(struct enter_scope *scope, const void *address, struct ledger_row *ret_row)
{
	int result = entry_memory_begin(scope, address, ret_row);

	return !result && is_on_use(ret_row) ? entry_memory_leave(scope, -ENOTSUP) : result;
}

static int ask_heap(const void *address, enum sw_status (*ask)(struct heap *heap, CUdeviceptr address))
{
	struct enter_scope scope;
	struct ledger_row row;
	int result = begin_with_block(&scope, address, &row);

	return result ? result : entry_memory_leave(&scope, status_errno(ask(heap_of(&row), row.key)));
}

int spillway_pin(const void *address)
{
	return ask_heap(address, heap_pin_asked);
}

int spillway_unpin(const void *address)
{
	return ask_heap(address, heap_unpin_asked);
}

int spillway_prefer_host(const void *address)
{
	struct enter_scope scope;
	struct ledger_row row;
	int result = begin_with_block(&scope, address, &row);

	if (result)
		return result;
	/* The place of memory that the program maps itself belongs to the mapping, and would end with it. */
	if (!is_moved() || row.kind == LEDGER_MAPPING)
		return entry_memory_leave(&scope, -ENOTSUP);
	enum sw_status status = heap_to_host(heap_of(&row), row.key);
	/* Starts the mover, which may not have been needed so far. */
	if (status == SW_OK)
		spill_prepare(device_get(row.device), false);
	return entry_memory_leave(&scope, status_errno(status));
}

int spillway_grow(const void *address, uint64_t new_bytes)
{
	struct enter_scope scope;
	struct ledger_row row;
	uint64_t on_host = 0;
	int result = begin_with_block(&scope, address, &row);

	if (result)
		return result;
	if (row.kind == LEDGER_MAPPING)
		return entry_memory_leave(&scope, -ENOTSUP); /* the program itself can map more memory behind it */
	enum heap_from from = process_settings()->spill == POLICY_SPILL_OFF ? HEAP_DEVICE : HEAP_DEVICE_FIRST;
	enum sw_status status = SW_OK;
	if (new_bytes > row.bytes && !account_grow(&row, new_bytes)) {
		status = SW_NO_MEMORY;
	} else if (new_bytes > row.bytes) {
		status = heap_grow(heap_of(&row), row.key, new_bytes, from, &on_host);
		account_grown(&row, new_bytes, status == SW_OK);
	}
	if (on_host) {
		stats_add(STAT_spilled_bytes, on_host);
		if (!row.fixed)
			spill_prepare(device_get(row.device), false);
	}
	return entry_memory_leave(&scope, status_errno(status));
}

/*
 * Reports a birth or a death in a block of the heap that has addresses of its own. In slabs, small blocks of several
 * owners share units of the map.
 */
static void declare(const struct ledger_row *row, CUdeviceptr address, uint64_t bytes, bool born)
{
	struct lifetimes_report report = {
	    .device = row->device,
	    .address = address,
	    .bytes = bytes,
	    .born = born,
	    .number = completion_newest(),
	    .own = completion_own(),
	};

	if (row->kind == LEDGER_MAPPING || arena_look(heap_arena(heap_of(row)), address) & ARENA_SLAB)
		return;
	if (capture_is_open()) {
		report.block = row->key;
		report.block_bytes = row->bytes;
	}
	lifetimes_declare(&report, row->key, row->bytes);
}

/*
 * A birth says that nothing is there yet. It has no effect on managed memory that the CPU alone has, because the CPU
 * writes it later, unseen. What the CPU touches after the GPU's use is alive once the CPU has written it (managed.c).
 */
int spillway_born(const void *address, uint64_t bytes)
{
	struct enter_scope scope;
	struct ledger_row row;
	uint32_t unit;
	int result = entry_memory_begin(&scope, address, &row);

	if (result)
		return result;
	if (bytes > row.bytes - (address_of(address) - row.key))
		return entry_memory_leave(&scope, -EINVAL);
	const struct arena *arena = heap_arena(heap_of(&row));
	if (arena_is_on_use(arena, row.key, &unit) && arena_on_use_is_cpus(arena, unit))
		return entry_memory_leave(&scope, 0);
	spill_reused(address_of(address), bytes);
	declare(&row, address_of(address), bytes, true);
	return entry_memory_leave(&scope, 0);
}

int spillway_discard(const void *address, uint64_t bytes)
{
	struct enter_scope scope;
	struct ledger_row row;
	int result = entry_memory_begin(&scope, address, &row);

	if (result)
		return result;
	uint64_t left = row.bytes - (address_of(address) - row.key);
	if (bytes > left)
		return entry_memory_leave(&scope, -EINVAL);
	/* Of what the CPU has or has touched, a death says nothing: it writes later, unseen. */
	if (managed_is_cpus(device_get(row.device), row.key))
		return entry_memory_leave(&scope, 0);
	/* A discard up to the end of the block includes the rest of its last piece, which belongs to no block. */
	spill_discard(device_get(row.device), address_of(address), bytes == left ? UINT64_MAX : bytes);
	declare(&row, address_of(address), bytes, false);
	return entry_memory_leave(&scope, 0);
}

/* ---- allocators for PyTorch and CuPy ---- */

/*
 * They call the same entry points as cuMemAlloc and cuMemFree, with the device's primary context current.
 *
 * PyTorch frees from any thread, often, and in the middle of a step; cuMemFree would wait for the device each time. So
 * the free is deferred until everything that was submitted to the context so far is complete (deferred_free.h), which
 * is as safe and does not wait. The stream that comes with a free says nothing about other streams that have used the
 * memory, so it is ignored.
 */

/*
 * Primary contexts, each retained once: memory allocated in one must not end when the program releases its reference.
 */
static _Atomic(CUcontext) primary[DEVICE_MOST];

static CUcontext primary_of(int device)
{
	CUcontext context, none = NULL;

	if (device < 0 || device >= DEVICE_MOST)
		return NULL;
	context = atomic_load(&primary[device]);
	if (context || cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
		return context;
	if (!atomic_compare_exchange_strong(&primary[device], &none, context))
		cuDevicePrimaryCtxRelease_v2(device);
	return context;
}

static void *entry_plug_allocate(size_t bytes, int device)
{
	CUcontext context = primary_of(device);
	CUdeviceptr address = 0;
	bool pushed;

	if (!bytes || !context || context_enter(context, &pushed) != CUDA_SUCCESS)
		return NULL;
	if (cuMemAlloc_v2(&address, bytes) != CUDA_SUCCESS)
		address = 0;
	context_leave(pushed);
	return (void *)(uintptr_t)address;
}

/* Returns false if the address is not ours, or if the driver cannot record when the context is idle (before 12.5). */
static bool put_off(CUdeviceptr address)
{
	struct enter_scope scope;

	if (!real_has(HOOK_cuCtxRecordEvent) || !enter_serve(&scope))
		return false;
	struct ledger_row *row = serve_take_ours(address);
	if (row) {
		int device = row->device;

		trace_freed(trace_freeing(row));
		stats_add(STAT_frees, 1);
		stats_add(STAT_deferred_frees, 1);
		deferred_free_add(row);
		deferred_free_reap(device);
	}
	enter_leave(&scope, CUDA_SUCCESS);
	return row != NULL;
}

static void give_back(void *address, int device)
{
	CUcontext context = primary_of(device);
	bool pushed = false;

	if (!address || put_off((CUdeviceptr)(uintptr_t)address))
		return;
	if (context && context_enter(context, &pushed) == CUDA_SUCCESS) {
		cuMemFree_v2((CUdeviceptr)(uintptr_t)address);
		context_leave(pushed);
	}
}

void *spillway_torch_alloc(ssize_t size, int device, void *stream)
{
	(void)stream;
	return size > 0 ? entry_plug_allocate((size_t)size, device) : NULL;
}

void spillway_torch_free(void *ptr, ssize_t size, int device, void *stream)
{
	(void)size;
	(void)stream;
	give_back(ptr, device);
}

void *spillway_cupy_malloc(void *param, size_t size, int device)
{
	(void)param;
	return entry_plug_allocate(size, device);
}

void spillway_cupy_free(void *param, void *ptr, int device)
{
	(void)param;
	give_back(ptr, device);
}

/* ---- births and deaths as PyTorch's allocator reports them ---- */

/*
 * The function by which PyTorch's allocator reports each tensor that is born or dies, to its profiler. libc10.so
 * defines it, libc10_cuda.so calls it through its procedure linkage table, whether or not a profiler is on, so this one
 * is called in its place. It writes one record (lifetimes.h), and calls PyTorch's own.
 *
 * It runs under the lock of PyTorch's allocator, perhaps in a stream capture: it takes no lock of the library, and
 * calls no function of the driver. Only the first call asks the loader, for functions of PyTorch's. RTLD_NEXT does not
 * find it: Python opens PyTorch's libraries locally. If a trace is recorded, the first event of a thread makes the
 * thread's ring (trace.h); the drainer runs by then, since the trace has the block that is reported about.
 *
 * Measured (PyTorch 2.7.1, 2.11 and 2.15): the same name; in 2.11 13,094 births and 12,699 deaths in nine steps of a
 * GPT, also with expandable segments.
 */

#define TORCH_CUDA 1                   /* c10::DeviceType */
#define BYTES_MOST (UINT64_C(1) << 44) /* of a tensor: as much as a heap has addresses (births.c) */

/* c10::Device */
struct torch_device {
	int8_t type, index;
};

/* void c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device) */
#define TORCH_REPORT  _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

typedef void torch_report_function(void *address, int64_t bytes, size_t allocated, size_t reserved,
				   struct torch_device device);

torch_report_function TORCH_REPORT;

/* Returns PyTorch's own function; NULL if its library is not loaded, or has none. */
static torch_report_function *torch_own(void)
{
	static torch_report_function *_Atomic own; /* TORCH_REPORT: there is none */
	torch_report_function *found = atomic_load_explicit(&own, memory_order_acquire);

	if (!found) {
		void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
		real_dlsym_function *c_dlsym = real_dlsym();

		if (library && c_dlsym)
			found = (torch_report_function *)c_dlsym(library, NAME_OF(TORCH_REPORT));
		dlerror(); /* the program must not find an error of ours */
		autograd_bind();
		if (!found)
			found = TORCH_REPORT;
		atomic_store_explicit(&own, found, memory_order_release);
	}
	return found != TORCH_REPORT ? found : NULL;
}

/*
 * Returns the object that was the first to report of a GPU (caller_name_object). PyTorch's libraries for the CPU
 * report, too, perhaps earlier: of files that they map, and all that they do while memory is profiled.
 */
static const void *torch_reporter(const void *caller)
{
	static _Atomic(const void *) reporter;
	const void *known = atomic_load_explicit(&reporter, memory_order_relaxed);

	if (!known) {
		known = caller_name_object(caller);
		atomic_store_explicit(&reporter, known, memory_order_relaxed);
	}
	return known;
}

static void torch_tell(uint64_t address, int64_t bytes, uint64_t allocated, uint64_t reserved, int device,
		       const void *caller)
{
	uint64_t size = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;
	/* What is cut is not what the sum of all says, so nothing is trusted any more (lifetimes_tell). */
	struct lifetimes_report report = {
	    .device = device,
	    .address = address,
	    .bytes = size < BYTES_MOST ? size : BYTES_MOST,
	    .born = bytes > 0,
	    .reserved = reserved,
	    .allocated = allocated,
	    .reporter = torch_reporter(caller),
	    .number = completion_newest(),
	    .own = completion_own(),
	};
	struct device *owner = capture_is_open() ? device_of(address) : NULL;
	CUdeviceptr block;

	if (owner && arena_bounds(heap_arena(atomic_load(&owner->heap)), address, &block, &report.block_bytes))
		report.block = block;
	if (report.born)
		spill_reused(address, report.bytes);
	lifetimes_tell(&report);
}

HOOK_EXPORT void TORCH_REPORT(void *address, int64_t bytes, size_t allocated, size_t reserved,
			      struct torch_device device)
{
	torch_report_function *own = torch_own();

	if (process_stage() == STAGE_RUNNING && device.type == TORCH_CUDA && bytes)
		torch_tell((uintptr_t)address, bytes, allocated, reserved, device.index, __builtin_return_address(0));
	if (own)
		own(address, bytes, allocated, reserved, device);
}

/* ---- NVTX ranges ---- */

/*
 * The NVTX ranges of each thread, for the trace. NVTX is compiled into its users, and calls the one tool
 * that NVTX_INJECTION64_PATH names; a profiler names itself there. Registered strings are kept for good, as NVTX keeps
 * their handles.
 *
 * The layout of what NVTX passes to us is its binary interface, the same since version 3.0: nvtxDetail/nvtxTypes.h.
 */

enum { NAME_BYTES = 256, DOMAINS = 16 };

static __thread struct {
	unsigned n;         /* ranges that are open */
	unsigned early;     /* so many of them, the outermost, began while no trace was on */
	int level[DOMAINS]; /* open ones of each domain; some of more than 15 domains share theirs */
} mine __attribute__((tls_model("initial-exec")));

static int nvtx_push(const void *domain, const char *name)
{
	char copy[NAME_BYTES] = "";

	mine.n++;
	if (trace_is_on())
		trace_event(push, trace_range(name ? strncpy(copy, name, NAME_BYTES - 1) : copy));
	else
		mine.early = mine.n;
	return mine.level[(uintptr_t)domain % DOMAINS]++;
}

/* -2 is what NVTX returns if nothing was pushed. */
static int nvtx_pop(const void *domain)
{
	int *level = &mine.level[(uintptr_t)domain % DOMAINS];

	if (!*level)
		return -2;
	if (mine.n-- > mine.early)
		trace_event(pop, 0);
	else
		mine.early--;
	return --*level;
}

/* ---- functions that NVTX calls ---- */

/* nvtxEventAttributes_t, as far as its first version goes. */
struct attributes {
	uint16_t version, size;
	uint32_t unread[7];
	int32_t message_type;
	const void *message;
};
enum { MESSAGE_ASCII = 1, MESSAGE_WIDE, MESSAGE_REGISTERED };

/* Non-ASCII characters become '?'. */
static const char *nvtx_narrow(const wchar_t *wide, char name[NAME_BYTES])
{
	size_t n = 0;

	for (; wide && wide[n] && n < NAME_BYTES - 1; n++)
		name[n] = wide[n] < 0x80 ? (char)wide[n] : '?';
	name[n] = '\0';
	return name;
}

static int push_wide(const wchar_t *wide)
{
	return nvtx_push(NULL, nvtx_narrow(wide, (char[NAME_BYTES]){0}));
}

static int push_plain(const char *name)
{
	return nvtx_push(NULL, name);
}

static int push_in(const void *domain, const struct attributes *attributes)
{
	int type = attributes && attributes->size >= sizeof(*attributes) ? attributes->message_type : 0;

	if (type == MESSAGE_WIDE)
		return nvtx_push(domain, nvtx_narrow(attributes->message, (char[NAME_BYTES]){0}));
	return nvtx_push(domain, type == MESSAGE_ASCII || type == MESSAGE_REGISTERED ? attributes->message : NULL);
}

static int push_attributes(const struct attributes *attributes)
{
	return push_in(NULL, attributes);
}

static int pop_plain(void)
{
	return nvtx_pop(NULL);
}

/* The name of a domain is never needed. */
static void *make_domain(const void *name)
{
	static _Atomic uintptr_t n;

	(void)name;
	return (void *)(atomic_fetch_add(&n, 1) + 1);
}

static void *register_plain(const void *domain, const char *name)
{
	(void)domain;
	return name ? strdup(name) : NULL;
}

static void *register_wide(const void *domain, const wchar_t *wide)
{
	return register_plain(domain, nvtx_narrow(wide, (char[NAME_BYTES]){0}));
}

/* ---- attaching ---- */

typedef void any_function(void);
struct callbacks {
	size_t struct_size;
	int (*table)(int module, any_function ****ret_table, unsigned *ret_n);
};
enum { EXPORT_CALLBACKS = 1, MODULE_CORE = 1, MODULE_DOMAINS = 5 };

static const struct {
	int module;
	unsigned id; /* NVTX_CBID_CORE_*, NVTX_CBID_CORE2_* */
	any_function *function;
} rows[] = {
    {MODULE_CORE, 8, (any_function *)push_attributes},    {MODULE_CORE, 9, (any_function *)push_plain},
    {MODULE_CORE, 10, (any_function *)push_wide},         {MODULE_CORE, 11, (any_function *)pop_plain},
    {MODULE_DOMAINS, 4, (any_function *)push_in},         {MODULE_DOMAINS, 5, (any_function *)nvtx_pop},
    {MODULE_DOMAINS, 10, (any_function *)register_plain}, {MODULE_DOMAINS, 11, (any_function *)register_wide},
    {MODULE_DOMAINS, 12, (any_function *)make_domain},    {MODULE_DOMAINS, 13, (any_function *)make_domain},
};

/* NvtxInitializeInjectionNvtxFunc_t: called by the NVTX of each library. Returns 0 if no ranges are wanted. */
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id));

HOOK_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
	const struct callbacks *callbacks = trace_is_wanted() ? export_table(EXPORT_CALLBACKS) : NULL;

	if (!callbacks || callbacks->struct_size < sizeof(*callbacks))
		return 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		any_function ***table;
		unsigned n = 0;

		/* The table has the addresses of NVTX's own pointers. */
		if (callbacks->table(rows[i].module, &table, &n) && rows[i].id < n && table[rows[i].id])
			*table[rows[i].id] = rows[i].function;
	}
	return 1;
}
