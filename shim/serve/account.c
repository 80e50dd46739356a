// SPDX-License-Identifier: Apache-2.0
/*
 * account.c: the account of what is live: a row is made known and counted, and leaves. All code that makes memory,
 * for the program or for the library, calls this; nothing here allocates program memory.
 */
#include "shim/serve/account.h"
#include "policy/policy.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/base/hostmem.h"
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/heap/heap.h"
#include "shim/process/process.h"
#include "shim/serve/control.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

/* What the room keeps for the process (types.h); here, because all files of the room may call this one. */
struct serve_state serve_state = {
    .deferred_free = {.lock = LOCK_INIT(LOCK_DEFERRED_FREE), .tail = &serve_state.deferred_free.list},
    .ipc_give =
	{
	    .lock = LOCK_INIT(LOCK_IPC_SERVER),
	    .server =
		{
		    .tail = USER_DIR_IPC,
		    .thread_name = "spillway-ipc",
		    .cannot = "memory cannot be handed out by",
		},
	},
    .ipc_take.lock = LOCK_INIT(LOCK_IPC_OPENED),
    .limit = LOCK_INIT(LOCK_LIMIT),
    .vmm.lock = LOCK_INIT(LOCK_VMM),
    .managed.lock = LOCK_INIT(LOCK_MANAGED),
};

static atomic_bool said_first;      /* the line about the first device memory */
static atomic_bool said_refused[2]; /* the lines about the first request that was refused; [1]: by spill.limit */

void account_claim_end(const struct account_claim *claim, size_t bytes)
{
	if (claim->cap)
		budget_give(claim->cap, bytes);
	pool_unclaim(claim->pool, bytes);
}

/* Returns the place under which rows of a kind that the driver serves are counted. */
static enum place place_of(const struct ledger_row *row)
{
	switch (row->kind) {
	case LEDGER_MANAGED:
		return PLACE_MANAGED;
	case LEDGER_PINNED:
	case LEDGER_REGISTERED:
		return PLACE_PINNED;
	case LEDGER_HANDLE:
		return row->handle.on_host ? PLACE_PINNED : PLACE_DRIVER;
	default:
		return PLACE_DRIVER;
	}
}

/* Device memory that the driver gave outside the heap is charged to the budget: the heap cannot have it. */
static void count_driver_memory(const struct ledger_row *row, bool live)
{
	enum place place = place_of(row);
	/* Pools are charged as a whole, with what they have reserved (device.h). */
	bool charged = place == PLACE_DRIVER && row->kind != LEDGER_ASYNC;
	struct device *device = charged ? device_get(row->device) : NULL;

	if (live)
		stats_live_add(row->device, place, row->bytes);
	else
		stats_live_sub(row->device, place, row->bytes);
	if (device && live)
		budget_charge(&device->budget, row->bytes);
	else if (device)
		budget_give(&device->budget, row->bytes);
}

/* Returns the use that a row is counted for, and traced as. */
static enum policy_use use_of(const struct ledger_row *row)
{
	bool heap = row->kind == LEDGER_HEAP || ledger_is_heap_handle(row) || ledger_is_heap_mapping(row);

	return heap                          ? POLICY_USE_HEAP
	       : row->kind == LEDGER_MANAGED ? POLICY_USE_MANAGED
	       : row->kind == LEDGER_SYSTEM  ? POLICY_USE_SYSTEM
					     : POLICY_USE_DRIVER;
}

/*
 * Says once what is in force, when the program gets the first memory of a device. Before the heap has any, its budget
 * is not set: then the line comes with the first memory of the heap, unless the policy never uses the heap.
 */
static void say_first(const struct device *device, enum policy_use use)
{
	const struct policy *policy = process_policy();
	const char *name = policy_name(policy), *built_in = policy_is_builtin(policy) ? " (built in)" : "";
	bool known = device && (atomic_load(&device->heap) || atomic_load(&device->budget_known));
	char budget[32], total[32];

	if ((!known && policy_uses(policy, POLICY_USE_HEAP)) || atomic_exchange(&said_first, true) ||
	    policy_settings(policy)->report == POLICY_REPORT_NONE)
		return;
	if (known)
		log_line("device budget %s of %s, spill %s, policy %s%s",
			 log_bytes(budget, sizeof(budget), atomic_load(&device->budget.limit)),
			 log_bytes(total, sizeof(total), device->total), policy_spill_name(process_spill_mode()), name,
			 built_in);
	else
		log_line("no device budget (memory is served by: %s), policy %s%s", policy_use_name(use), name,
			 built_in);
}

void account_commit(struct ledger_row *row, enum policy_api api, const struct call_site *site)
{
	/* Pinned memory is of no device. */
	row->counted = !(row->kind & (LEDGER_PINNED | LEDGER_REGISTERED | LEDGER_MAPPING)) &&
		       !(row->kind == LEDGER_HANDLE && row->handle.on_host);
	if (row->counted) {
		enum policy_use use = use_of(row);
		const struct device *device = device_get(row->device); /* makes the device appear on the page */

		if (!atomic_load_explicit(&said_first, memory_order_relaxed))
			say_first(device, use);
		row->site = stats_site(row->device, use, row->rule, site, row->bytes);
		if (row->kind == LEDGER_HEAP && row->heap.on_use)
			stats_reserved(row->site, row->bytes);
		else
			stats_made(row->site, row->bytes, row->on_host_bytes);
	}
	if (row->kind == LEDGER_HEAP && row->heap.on_use)
		heap_on_use_set_site(atomic_load(&device_get(row->device)->heap), row->key, row->site);
	else if (row->kind == LEDGER_HEAP)
		heap_set_site(atomic_load(&device_get(row->device)->heap), row->key, row->site);
	/* Memory whose faults are counted needs the periodic look of the control thread. */
	if (row->kind & (LEDGER_MANAGED | LEDGER_SYSTEM))
		control_start();
	stats_add(STAT_allocations, 1);
	if (row->kind == LEDGER_MANAGED && !row->home) {
		stats_add(STAT_managed_left, 1);
		/* Events name any address of it. What cannot be found by that is as if the CPU touched it. */
		if (atomic_load(&faults_queue_on) && !ledger_span(row))
			stats_managed_touched(row->site, 0);
	}
	if (trace_is_on())
		trace_made(row, api, site);
	ledger_commit(row);
}

bool account_grow(const struct ledger_row *row, size_t bytes)
{
	return !row->cap || budget_take(row->cap, bytes - row->bytes);
}

void account_grown(const struct ledger_row *row, size_t bytes, bool grown)
{
	size_t used = grown ? ledger_grow(row->key, row->id, bytes) : 0;

	if (row->cap)
		budget_give(row->cap, bytes - row->bytes - used);
	if (!used)
		return;
	pool_row_grown(row, used);
	trace_event(grown, row->id, bytes);
}

void account_drivers(const struct ledger_row *row)
{
	count_driver_memory(row, true);
}

void account_new(struct ledger_row *row, const struct call_site *site)
{
	count_driver_memory(row, true);
	account_commit(row, row->kind == LEDGER_MANAGED ? POLICY_API_MANAGED : POLICY_API_ASYNC, site);
}

void account_note(enum ledger_kind kind, uint64_t key, size_t bytes, int device)
{
	account_note_claimed(kind, key, bytes, device, &(struct account_claim){.rule = -1});
}

void account_note_claimed(enum ledger_kind kind, uint64_t key, size_t bytes, int device,
			  const struct account_claim *claim)
{
	struct ledger_row *row = ledger_row_new(kind);
	CUdevice current = 0;

	if (!row) {
		log_once("no memory to keep track of an allocation; it is left to the driver");
		account_claim_end(claim, bytes);
		return;
	}
	if (device < 0 && REAL(cuCtxGetDevice)(&current) == CUDA_SUCCESS)
		device = current;
	row->device = device < 0 ? 0 : device;
	row->key = key;
	row->bytes = bytes;
	row->rule = claim->rule;
	row->cap = claim->cap;
	if (kind == LEDGER_ASYNC)
		row->async.pool_id = claim->pool;
	row->context = context_of_memory();
	/* A device is known, to other processes and to the trace, from its first memory on. */
	struct device *its = kind & (LEDGER_ASYNC | LEDGER_MANAGED) ? device_get(row->device) : NULL;
	if (kind == LEDGER_ASYNC && its)
		pool_used(its);
	account_new(row, claim->site);
}

void account_drop(struct ledger_row *row)
{
	if (!row)
		return;
	if (row->kind == LEDGER_HANDLE && row->home) {
		row->home->release(row);
		return;
	}
	if (!ledger_is_borrowed(row) && !ledger_is_heap_handle(row))
		count_driver_memory(row, false);
	if (!ledger_is_borrowed(row))
		stats_add(STAT_frees, 1);
	if (row->kind == LEDGER_ASYNC)
		pool_unclaim(row->async.pool_id, row->bytes);
	ledger_row_free(row);
}

struct ledger_row *account_forget(unsigned kinds, uint64_t key)
{
	struct ledger_row *row = ledger_take(kinds, key);

	if (row)
		row->freeing = trace_freeing(row).time;
	return row;
}

void account_forgotten(struct ledger_row *row, bool freed)
{
	if (!row)
		return;
	if (!freed) {
		ledger_commit(row);
		return;
	}
	trace_freed((struct trace_freeing){row->id, row->freeing});
	account_drop(row);
}

/* Memory of other processes explains what the budgets of this process do not. */
static void say_shared(void)
{
	unsigned long long ranks = atomic_load(&stats.share_ranks);
	char used[32], total[32];

	if (ranks > 1)
		log_line("  host memory is shared by %llu processes of this user: %s of %s used by all", ranks,
			 log_bytes(used, sizeof(used), atomic_load(&stats.share_used)),
			 log_bytes(total, sizeof(total), atomic_load(&stats.share_total)));
}

/* Says what limits a higher host budget. What the driver pins does not count against RLIMIT_MEMLOCK. */
static void say_host_limits(void)
{
	struct hostmem memory = hostmem_read("");
	char available[32], left[32], cgroup[80] = "no cgroup limits it";

	if (!memory.total)
		return;
	if (memory.cgroup_headroom != UINT64_MAX)
		snprintf(cgroup, sizeof(cgroup), "the limit of its cgroup leaves %s",
			 log_bytes(left, sizeof(left), memory.cgroup_headroom));
	log_line(
	    "  what limits that: the machine has %s available, %s; `ulimit -l` does not limit what the driver pins",
	    log_bytes(available, sizeof(available), memory.available), cgroup);
}

/* Nothing can be raised beyond the limits of the machine. */
static void say_machine_limits(void)
{
	for (int limit = 0; limit < POLICY_LIMIT_COUNT; limit++) {
		if (!sizes_limited((enum policy_limit)limit))
			continue;
		log_line("  %s limits what a policy on this machine can have", policy_machine_path);
		return;
	}
}

/* Returns the size, as a policy has it, that serves `bytes` beside what is used; in whole units of the heap. */
static char *enough(uint64_t used, uint64_t bytes, char room[POLICY_SIZE_BYTES_TEXT])
{
	uint64_t sum = used > UINT64_MAX - bytes - HEAP_UNIT ? UINT64_MAX - HEAP_UNIT : used + bytes;

	return policy_size_format((sum + HEAP_UNIT - 1) / HEAP_UNIT * HEAP_UNIT, room);
}

/* Says which keys would have served the request, and how high they had to be; nothing if no budget was in the way. */
static void say_what_to_raise(const struct device *device, size_t bytes)
{
	const struct policy *policy = process_policy();
	bool own = policy_settings(policy)->host_budget.kind != POLICY_SIZE_AUTO || !atomic_load(&host_budget.shared) ||
		   sizes_limited(POLICY_LIMIT_HOST_BUDGET);
	uint64_t used = atomic_load(&host_budget.used), limit = atomic_load(&host_budget.limit);
	uint64_t all = quota_enough(bytes);
	bool own_full = used > limit || limit - used < bytes;
	bool all_full = all || (own_full && !own);
	char budget[POLICY_SIZE_BYTES_TEXT], total[POLICY_SIZE_BYTES_TEXT];

	if (policy_settings(policy)->spill == POLICY_SPILL_OFF) {
		log_line(
		    "  what to raise: device.budget to %s or more; or spill.mode: exact, which lets memory lie on the "
		    "host",
		    enough(atomic_load(&device->budget.used), bytes, budget));
		return;
	}
	own_full = own_full && own;
	if (!own_full && !all_full)
		return;
	log_line("  what to raise: %s%s%s%s%s%s", own_full ? "host.budget to " : "",
		 own_full ? enough(used, bytes, budget) : "", own_full && all_full ? " or more, and " : "",
		 all_full ? "host.total to " : "", all_full ? enough(all ? all - bytes : used, bytes, total) : "",
		 " or more");
	say_host_limits();
}

void account_refused(enum sw_status status, const struct device *device, size_t bytes, int rule,
		     const struct call_site *site)
{
	char want[32], used[32], limit[32], host_used[32], host_limit[32];
	bool by_limit = status == SW_LIMIT;

	stats_add(STAT_refused, 1);
	stats_add(STAT_limit_refused, by_limit);
	stats_add(STAT_limit_refused_bytes, by_limit ? bytes : 0);
	stats_refused(stats_site(device->ordinal, POLICY_USE_DENY, rule, site, bytes));
	if (atomic_exchange(&said_refused[by_limit], true))
		return;
	log_line("out of memory%s: %s asked for; device budget %s of %s used, host %s of %s, spill %s, %s%s",
		 by_limit ? " by spill.limit" : "", log_bytes(want, sizeof(want), bytes),
		 log_bytes(used, sizeof(used), atomic_load(&device->budget.used)),
		 log_bytes(limit, sizeof(limit), atomic_load(&device->budget.limit)),
		 log_bytes(host_used, sizeof(host_used), atomic_load(&host_budget.used)),
		 log_bytes(host_limit, sizeof(host_limit), atomic_load(&host_budget.limit)),
		 policy_spill_name(process_spill_mode()), rule < 0 ? "" : "rule ",
		 policy_rule_name(process_policy(), rule));
	if (by_limit)
		return;
	say_what_to_raise(device, bytes);
	say_machine_limits();
	say_shared();
}

/* ---- in the trace ---- */

#define TRACED (LEDGER_HEAP | LEDGER_DRIVER | LEDGER_MANAGED | LEDGER_ASYNC | LEDGER_SYSTEM)

/* Mappings of the program are traced only if they are the heap's (serve.h). */
static bool is_traced(const struct ledger_row *row)
{
	return row->kind & TRACED || ledger_is_heap_mapping(row);
}

void trace_ask(const struct device *device, const struct backend_request *request)
{
	trace_event(ask, request->bytes, request->api, (uint64_t)device->ordinal, trace_site(request->site));
}

void trace_refused(const struct device *device, const struct backend_request *request, int rule, int result)
{
	trace_event(refused, request->bytes, request->api, (uint64_t)device->ordinal, (uint64_t)(rule + 1),
		    trace_site(request->site), (uint64_t)result);
}

static uint64_t bytes_on_host(const struct ledger_row *row)
{
	struct device *device = row->kind & (LEDGER_HEAP | LEDGER_MAPPING) ? device_get(row->device) : NULL;
	struct heap *heap = device ? atomic_load(&device->heap) : NULL;
	uint64_t bytes[CHUNK_PLACES] = {0};
	bool stays;

	return heap && heap_where(heap, row->key, row->bytes, bytes, &stays) == SW_OK
		   ? bytes[CHUNK_HOST] + bytes[CHUNK_PEER]
		   : 0;
}

void trace_made(const struct ledger_row *row, uint32_t api, const struct call_site *site)
{
	if (!trace_is_on() || !is_traced(row))
		return;
	uint64_t on_host = bytes_on_host(row);
	trace_event(made, row->id, row->key, row->bytes, api, (uint64_t)row->device, use_of(row),
		    (uint64_t)(row->rule + 1), trace_site(site), on_host);
	/* Its heap is in use. */
	struct heap_loan loans[HEAP_LENDERS];
	unsigned n = on_host ? heap_loans(atomic_load(&device_get(row->device)->heap), row->key, row->bytes, loans) : 0;
	for (unsigned i = 0; i < n; i++)
		trace_event(lent, row->id, (uint64_t)loans[i].device, loans[i].bytes);
}

struct trace_freeing trace_freeing(const struct ledger_row *row)
{
	if (!trace_is_on() || !row || !is_traced(row))
		return (struct trace_freeing){0};
	return (struct trace_freeing){row->id, clock_now()};
}

void trace_freed(struct trace_freeing freeing)
{
	if (freeing.time)
		trace_event_at(freed, freeing.time, freeing.id);
}

/* ---- CUDA arrays ---- */

/* Bits of a texel, all channels; channels 0: as many as the descriptor says. */
struct format {
	unsigned first, last; /* CUarray_format, in ranges of the same size */
	unsigned bits, channels;
	bool blocks; /* blocks of 4 x 4 texels */
};

static const struct format formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT8, 8, 0, false},
    {CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT16, 16, 0, false},
    {CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8, 8, 0, false},
    {CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16, 16, 0, false},
    {CU_AD_FORMAT_HALF, CU_AD_FORMAT_HALF, 16, 0, false},
    {CU_AD_FORMAT_UNORM_INT_101010_2, CU_AD_FORMAT_UNORM_INT_101010_2, 32, 1, false},
    {CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 1, true},
    {CU_AD_FORMAT_BC2_UNORM, CU_AD_FORMAT_BC3_UNORM_SRGB, 8, 1, true},
    {CU_AD_FORMAT_BC4_UNORM, CU_AD_FORMAT_BC4_SNORM, 4, 1, true},
    {CU_AD_FORMAT_BC5_UNORM, CU_AD_FORMAT_BC7_UNORM_SRGB, 8, 1, true},
    {CU_AD_FORMAT_NV12, CU_AD_FORMAT_NV12, 12, 1, false}, /* 4:2:0, one and a half samples a texel */
    {CU_AD_FORMAT_P010, CU_AD_FORMAT_P016, 24, 1, false},
    {CU_AD_FORMAT_NV16, CU_AD_FORMAT_NV16, 16, 1, false}, /* 4:2:2, two */
    {CU_AD_FORMAT_P210, CU_AD_FORMAT_P216, 32, 1, false},
    {CU_AD_FORMAT_YUY2, CU_AD_FORMAT_YUY2, 16, 1, false},
    {CU_AD_FORMAT_Y210, CU_AD_FORMAT_Y216, 32, 1, false},
    {CU_AD_FORMAT_AYUV, CU_AD_FORMAT_Y410, 32, 1, false},
    {CU_AD_FORMAT_Y416, CU_AD_FORMAT_Y416, 64, 1, false},
    {CU_AD_FORMAT_Y444_PLANAR8, CU_AD_FORMAT_Y444_PLANAR8, 24, 1, false},
    {CU_AD_FORMAT_Y444_PLANAR10, CU_AD_FORMAT_Y444_PLANAR10, 48, 1, false},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 24, 1, false},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 48, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X1, CU_AD_FORMAT_UNORM_INT8X1, 8, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X2, CU_AD_FORMAT_UNORM_INT8X2, 16, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X4, CU_AD_FORMAT_UNORM_INT8X4, 32, 1, false},
    {CU_AD_FORMAT_UNORM_INT16X1, CU_AD_FORMAT_UNORM_INT16X1, 16, 1, false},
    {CU_AD_FORMAT_UNORM_INT16X2, CU_AD_FORMAT_UNORM_INT16X2, 32, 1, false},
    {CU_AD_FORMAT_UNORM_INT16X4, CU_AD_FORMAT_UNORM_INT16X4, 64, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X1, CU_AD_FORMAT_SNORM_INT8X1, 8, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X2, CU_AD_FORMAT_SNORM_INT8X2, 16, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X4, CU_AD_FORMAT_SNORM_INT8X4, 32, 1, false},
    {CU_AD_FORMAT_SNORM_INT16X1, CU_AD_FORMAT_SNORM_INT16X1, 16, 1, false},
    {CU_AD_FORMAT_SNORM_INT16X2, CU_AD_FORMAT_SNORM_INT16X2, 32, 1, false},
    {CU_AD_FORMAT_SNORM_INT16X4, CU_AD_FORMAT_SNORM_INT16X4, 64, 1, false},
};

/* What is not in the list counts as 32 bits a channel: formats of 32 bits, and those newer than it. */
static struct format format_of(CUarray_format which)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if ((unsigned)which >= formats[i].first && (unsigned)which <= formats[i].last)
			return formats[i];
	return (struct format){.bits = 32};
}

static size_t at_level(size_t size, unsigned level)
{
	return size >> level ? size >> level : 1;
}

static size_t array_up(size_t size, size_t unit)
{
	return (size + unit - 1) / unit * unit;
}

size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
	struct format format = format_of(array->Format);
	bool layered = array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP); /* depth: layers, faces */
	uint64_t bits = 0;

	if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (unsigned level = 0; level < levels && level < 32; level++) {
		size_t width = at_level(array->Width, level), height = at_level(array->Height, level);
		size_t depth = layered ? (array->Depth ? array->Depth : 1) : at_level(array->Depth, level);

		if (format.blocks) {
			width = array_up(width, 4);
			height = array_up(height, 4);
		}
		bits += (uint64_t)width * height * depth * format.bits *
			(format.channels ? format.channels : array->NumChannels);
	}
	return array_up(bits / 8, 512);
}
