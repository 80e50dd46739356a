/*
 * account.c: the account of what is live: a row is made known and counted, and leaves. All code that makes memory,
 * for the program or for the library, calls this; nothing here allocates program memory.
 */
#include "shim/serve/account.h"
#include "shim/accounting/quota.h"
#include "shim/base/hostmem.h"
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/device/pool.h"
#include "shim/device/sizes.h"
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/heap/on_use.h"
#include "shim/process/process.h"
#include "shim/serve/control.h"
#include "shim/serve/serve_state.h"
#include "shim/stats/stats.h"
#include "shim/serve/trace_alloc.h"
#include "shim/trace/trace.h"

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
	/* Pools are charged as a whole, with what they have reserved (pool.h). */
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

/*
 * Finds the use that a row is counted for. Returns false if it is not memory of a device: pinned memory is not
 * allocated on one.
 */
static bool backend_of(const struct ledger_row *row, enum policy_use *ret_use)
{
	bool is_host_handle = row->kind == LEDGER_HANDLE && row->handle.on_host;

	*ret_use = row->kind == LEDGER_HEAP      ? POLICY_USE_HEAP
		   : row->kind == LEDGER_MANAGED ? POLICY_USE_MANAGED
		   : row->kind == LEDGER_SYSTEM  ? POLICY_USE_SYSTEM
						 : POLICY_USE_DRIVER;
	if (ledger_is_heap_handle(row))
		*ret_use = POLICY_USE_HEAP;
	return !(row->kind & (LEDGER_PINNED | LEDGER_REGISTERED | LEDGER_MAPPING)) && !is_host_handle;
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

	if ((!known && policy_uses(policy, POLICY_USE_HEAP)) ||
	    atomic_exchange(&serve_state.account.said_first, true) ||
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
	enum policy_use use;

	row->counted = backend_of(row, &use);
	if (row->counted) {
		const struct device *device = device_get(row->device); /* makes the device appear on the page */

		if (!atomic_load_explicit(&serve_state.account.said_first, memory_order_relaxed))
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
	if (kind == LEDGER_MANAGED && faults_attributes())
		row->managed.quiet = ledger_span(row);
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

void account_refused(const struct device *device, size_t bytes, int rule, const struct call_site *site)
{
	char want[32], used[32], limit[32], host_used[32], host_limit[32];

	stats_add(STAT_refused, 1);
	stats_refused(stats_site(device->ordinal, POLICY_USE_DENY, rule, site, bytes));
	if (atomic_exchange(&serve_state.account.said_refused, true))
		return;
	log_line("out of memory: %s asked for; device budget %s of %s used, host %s of %s, spill %s, %s%s",
		 log_bytes(want, sizeof(want), bytes), log_bytes(used, sizeof(used), atomic_load(&device->budget.used)),
		 log_bytes(limit, sizeof(limit), atomic_load(&device->budget.limit)),
		 log_bytes(host_used, sizeof(host_used), atomic_load(&host_budget.used)),
		 log_bytes(host_limit, sizeof(host_limit), atomic_load(&host_budget.limit)),
		 policy_spill_name(process_spill_mode()), rule < 0 ? "" : "rule ",
		 policy_rule_name(process_policy(), rule));
	say_what_to_raise(device, bytes);
	say_machine_limits();
	say_shared();
}
