#include "shim/serve/serve.h"
#include "shim/submit/ahead.h"
#include "shim/serve/choice.h"
#include "shim/context/context.h"
#include "shim/serve/control.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/faults/faults.h"
#include "shim/base/log.h"
#include "shim/serve/own.h"
#include "shim/serve/pending.h"
#include "shim/device/pool.h"
#include "shim/driver/real.h"
#include "shim/serve/room.h"
#include "shim/mover/spill.h"
#include "shim/serve/trace_alloc.h"
#include "shim/serve/virtual.h"

/* Where rows of a kind that the driver serves are counted. */
static enum place place_of(const struct ledger_row *row)
{
	switch (row->kind) {
	case LEDGER_MANAGED:
		return PLACE_MANAGED;
	case LEDGER_PINNED:
	case LEDGER_REGISTERED:
		return PLACE_PINNED;
	case LEDGER_HANDLE:
		return row->spilled ? PLACE_HOST : row->on_host ? PLACE_PINNED : PLACE_DRIVER;
	default:
		return PLACE_DRIVER;
	}
}

/* Device memory the driver gave to others is room the heap does not have. */
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
	/* A spilled handle was charged to the host before it was made. */
	if (row->spilled && !live)
		budget_give(&host_budget, row->bytes);
	if (device && live)
		budget_charge(&device->budget, row->bytes);
	else if (device)
		budget_give(&device->budget, row->bytes);
}

/* Of memory that a device has; what the program pins is not allocated on one. */
static bool backend_of(const struct ledger_row *row, enum policy_use *ret_use)
{
	*ret_use = row->kind == LEDGER_HEAP      ? POLICY_USE_HEAP
		   : row->kind == LEDGER_MANAGED ? POLICY_USE_MANAGED
		   : row->kind == LEDGER_SYSTEM  ? POLICY_USE_SYSTEM
						 : POLICY_USE_DRIVER;
	if (row->kind == LEDGER_HANDLE && row->block)
		*ret_use = POLICY_USE_HEAP;
	return !(row->kind & (LEDGER_PINNED | LEDGER_REGISTERED | LEDGER_MAPPING)) && !row->on_host;
}

void serve_commit(struct ledger_row *row, enum policy_api api, void *caller)
{
	enum policy_use use;

	row->counted = backend_of(row, &use);
	if (row->counted) {
		device_get(row->device); /* so that the page knows it */
		row->site = stats_site(row->device, use, row->rule, caller, row->bytes);
		stats_made(row->site, row->bytes, row->on_host_bytes);
	}
	if (row->kind == LEDGER_HEAP)
		heap_set_site(atomic_load(&device_get(row->device)->heap), row->key, row->site);
	/* Whose faults are counted must be looked at now and then. */
	if (row->kind & (LEDGER_MANAGED | LEDGER_SYSTEM))
		control_start();
	stats_add(STAT_allocations, 1);
	trace_made(row, api, caller);
	ledger_commit(row);
}

void serve_count_drivers(const struct ledger_row *row)
{
	count_driver_memory(row, true);
}

void serve_count_new(struct ledger_row *row)
{
	count_driver_memory(row, true);
	serve_commit(row, row->kind == LEDGER_MANAGED ? POLICY_API_MANAGED : POLICY_API_ASYNC, NULL);
}

void serve_note(enum ledger_kind kind, uint64_t key, size_t bytes, int device)
{
	serve_note_under(kind, key, bytes, device, &(struct own_claim){.rule = -1});
}

void serve_note_under(enum ledger_kind kind, uint64_t key, size_t bytes, int device, const struct own_claim *claim)
{
	struct ledger_row *row = ledger_row_new(kind);
	CUdevice current = 0;

	if (!row) {
		log_once("no memory to keep track of an allocation; it is left to the driver");
		own_claim_end(claim, bytes);
		return;
	}
	if (device < 0 && REAL(cuCtxGetDevice)(&current) == CUDA_SUCCESS)
		device = current;
	row->device = device < 0 ? 0 : device;
	row->key = key;
	row->bytes = bytes;
	row->refs = 1;
	row->rule = claim->rule;
	row->cap = claim->cap;
	row->pool_id = claim->pool;
	row->context = context_of_memory();
	if (kind == LEDGER_MANAGED && faults_attributes())
		row->quiet = ledger_span(row);
	/* A device is known, to others and to the trace, from the first memory on it. */
	struct device *its = kind & (LEDGER_ASYNC | LEDGER_MANAGED) ? device_get(row->device) : NULL;
	if (kind == LEDGER_ASYNC && its)
		pool_used(its);
	serve_count_new(row);
}

void serve_drop(struct ledger_row *row)
{
	if (!row)
		return;
	if (row->kind == LEDGER_HANDLE && virtual_is_handle(row->key))
		virtual_end(row);
	if (!row->borrowed && !(row->kind == LEDGER_HANDLE && row->block))
		count_driver_memory(row, false);
	if (!row->borrowed)
		stats_add(STAT_frees, 1);
	if (row->kind == LEDGER_ASYNC)
		pool_unclaim(row->pool_id, row->bytes);
	ledger_row_free(row);
}

struct ledger_row *serve_forget(unsigned kinds, uint64_t key)
{
	struct ledger_row *row = ledger_take(kinds, key);

	if (row)
		row->freeing = trace_freeing(row).time;
	return row;
}

void serve_forgotten(struct ledger_row *row, bool freed)
{
	if (!row)
		return;
	if (!freed) {
		ledger_commit(row);
		return;
	}
	trace_freed((struct trace_freeing){row->id, row->freeing});
	serve_drop(row);
}

/* Host memory that others have explains what the budgets of this process do not. */
static void say_shared(void)
{
	unsigned long long ranks = atomic_load(&stats.share_ranks);
	char used[32], total[32];

	if (ranks > 1)
		log_once("host memory is shared by %llu processes of this user: %s of %s used by all; host.total sets "
			 "how much there is",
			 ranks, log_bytes(used, sizeof(used), atomic_load(&stats.share_used)),
			 log_bytes(total, sizeof(total), atomic_load(&stats.share_total)));
}

void serve_say_refused(const struct device *device, size_t bytes, int rule, void *caller)
{
	char want[32], used[32], limit[32], host_used[32], host_limit[32];

	stats_add(STAT_refused, 1);
	stats_refused(stats_site(device->ordinal, POLICY_USE_DENY, rule, caller, bytes));
	log_once("out of memory: %s asked for; device budget %s of %s used, host %s of %s, spill %s, %s%s",
		 log_bytes(want, sizeof(want), bytes), log_bytes(used, sizeof(used), atomic_load(&device->budget.used)),
		 log_bytes(limit, sizeof(limit), atomic_load(&device->budget.limit)),
		 log_bytes(host_used, sizeof(host_used), atomic_load(&host_budget.used)),
		 log_bytes(host_limit, sizeof(host_limit), atomic_load(&host_budget.limit)),
		 policy_spill_name(policy_spill_mode(life_policy())), rule < 0 ? "" : "rule ",
		 policy_rule_name(life_policy(), rule));
	say_shared();
}

/* Where each use of a policy lives. NULL: nowhere, and that is out of memory. */
static const struct backend *const places[POLICY_USE_COUNT] = {
    [POLICY_USE_HEAP] = &backend_vmm,
    [POLICY_USE_MANAGED] = &backend_managed,
    [POLICY_USE_SYSTEM] = &backend_system,
    [POLICY_USE_DRIVER] = &backend_pass,
    [POLICY_USE_DENY] = NULL,
};

static enum sw_status ask_driver(struct device *device, const struct backend_request *request, struct ledger_row *row,
				 size_t *ret_pitch)
{
	enum sw_status status;
	struct room room = {0};

	do
		status = backend_pass.alloc(device, request, row, ret_pitch);
	while (status == SW_NO_MEMORY && room_make(&room, device->ordinal, request->bytes));
	room_end(&room, status_result(status));
	if (status == SW_OK) {
		stats_add(STAT_passed, 1);
		count_driver_memory(row, true);
	}
	return status;
}

static enum sw_status ask(enum policy_use use, struct device *device, const struct backend_request *request,
			  struct ledger_row *row, size_t *ret_pitch)
{
	if (!places[use])
		return SW_NO_MEMORY;
	if (use == POLICY_USE_DRIVER)
		return ask_driver(device, request, row, ret_pitch);
	return places[use]->alloc(device, request, row, ret_pitch);
}

/* The first choice counts against the cap of its rule; a full cap is like having no memory. */
static enum sw_status ask_first(const struct policy_decision *decision, struct device *device,
				const struct backend_request *request, struct ledger_row *row, size_t *ret_pitch)
{
	if (!choice_take(decision, request->bytes, &row->cap))
		return SW_NO_MEMORY;
	enum sw_status status = ask(decision->use, device, request, row, ret_pitch);
	if (status != SW_OK && row->cap) {
		budget_give(row->cap, request->bytes);
		row->cap = NULL;
	}
	return status;
}

/*
 * Down the list of uses until one serves it. No memory, and not being able to, go on to the next; what nobody on the list
 * is able to do goes to the driver, but what nobody has memory for is out of memory.
 */
static enum sw_status act(struct device *device, const struct backend_request *asked, struct ledger_row *row,
			  size_t *ret_pitch)
{
	struct policy_decision decision = choice_make(device, asked);
	struct backend_managed_settings managed = choice_managed(&decision, device);
	struct backend_system_settings system = choice_system(&decision, device);
	struct backend_request request = *asked;

	request.decision = &decision;
	request.managed = &managed;
	request.system = &system;
	row->rule = decision.rule;
	row->fixed = !decision.movable;
	enum sw_status status = ask_first(&decision, device, &request, row, ret_pitch);
	for (unsigned i = 1; i < decision.n_uses && (status == SW_NO_MEMORY || status == SW_NOT_SUPPORTED); i++)
		status = ask((enum policy_use)decision.uses[i], device, &request, row, ret_pitch);
	if (status == SW_NOT_SUPPORTED)
		status = ask(POLICY_USE_DRIVER, device, &request, row, ret_pitch);
	return status;
}

CUresult serve_alloc(const struct backend_request *request, CUdeviceptr *ret_address, size_t *ret_pitch)
{
	CUresult result;
	struct device *device = device_current(&result);
	size_t pitch = 0;

	if (!device && result == CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* No usable context: the driver has a code of its own for each way of that. */
	if (!device && request->height)
		return REAL(cuMemAllocPitch_v2)(ret_address, ret_pitch, request->width, request->height,
						(unsigned)request->element);
	if (!device)
		return REAL(cuMemAlloc_v2)(ret_address, request->bytes);
	/* Mapping memory does not need the context, and warm memory not even the driver: neither would tell. */
	result = context_died_of(NULL);
	if (result != CUDA_SUCCESS)
		return result;
	struct ledger_row *row = ledger_row_new(LEDGER_HEAP);
	if (!row)
		return CUDA_ERROR_OUT_OF_MEMORY;
	row->device = device->ordinal;
	row->bytes = request->bytes;
	row->context = context_of_memory();
	trace_ask(device, request);
	pending_reap(device->ordinal);
	enum sw_status status = act(device, request, row, &pitch);
	if (status != SW_OK) {
		if (status == SW_NO_MEMORY)
			serve_say_refused(device, request->bytes, row->rule, request->caller);
		else
			stats_add(STAT_failed, 1);
		trace_refused(device, request, row->rule, status_result(status));
		ledger_row_free(row);
		return status_result(status);
	}
	*ret_address = row->key;
	if (request->height)
		*ret_pitch = pitch;
	serve_commit(row, trace_api(request), request->caller);
	return CUDA_SUCCESS;
}

/* Its home frees it. What the driver refuses to free is in the ledger again, and counts as before. */
static CUresult free_at_home(struct ledger_row *row)
{
	struct trace_freeing freeing = trace_freeing(row);
	uint64_t key = row->key, id = row->id;
	struct ledger_row now;
	CUresult result = row->home->free(row);

	if (result != CUDA_SUCCESS && ledger_get(LEDGER_FREEABLE, key, &now) && now.id == id)
		return result;
	stats_add(STAT_frees, 1);
	trace_freed(freeing);
	return result;
}

CUresult serve_free(CUdeviceptr address)
{
	faults_before_free();
	/* Out of the ledger first: the driver may give the address to another thread before its call returns. */
	struct ledger_row *row = serve_forget(LEDGER_FREEABLE, address);

	if (!row) {
		stats_add(STAT_foreign_frees, 1);
		return serve_is_dead(address) ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemFree_v2)(address);
	}
	if (row->home)
		return free_at_home(row);
	CUresult result = backend_pass.free(row);
	serve_forgotten(row, result == CUDA_SUCCESS);
	return result;
}

bool serve_is_dead(CUdeviceptr address)
{
	return device_of(address) || pending_has(address);
}

bool serve_is_late_free(CUdeviceptr address)
{
	struct ledger_row row;

	return life_stage() == STAGE_ENDING && (device_of(address) || ledger_find(LEDGER_SYSTEM, address, &row));
}

struct ledger_row *serve_take_ours(CUdeviceptr address)
{
	/* Of the rows that are taken one is the program's own managed memory, which has no home. */
	return serve_is_ours(address) ? ledger_take(LEDGER_OURS, address) : NULL;
}

bool serve_find(CUdeviceptr address, struct ledger_row *ret_row)
{
	struct device *device = device_of(address);
	struct ledger_row row;
	CUdeviceptr base;

	if (!device || !heap_base_of(atomic_load_explicit(&device->heap, memory_order_acquire), address, &base) ||
	    !ledger_get(LEDGER_HEAP, base, &row) || address - base >= row.bytes)
		return false;
	*ret_row = row;
	return true;
}

bool serve_find_outside(CUdeviceptr address, struct ledger_row *ret_row)
{
	return ledger_find(LEDGER_OURS, address, ret_row);
}

bool serve_is_ours(CUdeviceptr address)
{
	struct ledger_row row;

	return device_of(address) || serve_find_outside(address, &row);
}

struct serve_ending serve_context_ending(CUcontext context)
{
	bool busy = !spill_context_ending(context);

	ahead_context_ending(context);
	return (struct serve_ending){.line = ledger_line(), .pending = pending_take_context(context), .busy = busy};
}

void serve_context_ended(CUcontext context, struct serve_ending ending, bool ended)
{
	const unsigned kinds = LEDGER_FREEABLE | LEDGER_PINNED | LEDGER_REGISTERED | LEDGER_ARRAY;
	struct ledger_row *row, *next;

	spill_context_ended(context, ended);
	if (!ended) {
		pending_put_back(ending.pending);
		return;
	}
	for (row = ledger_take_context(kinds, context, ending.line); row; row = next) {
		next = row->next;
		row->orphan = true;
		trace_freed(trace_freeing(row));
		if (row->home) {
			stats_add(STAT_frees, 1);
			row->home->release(row);
		} else {
			serve_drop(row);
		}
	}
	/* Some wait here only because their stream was of this context. */
	for (row = ending.pending; row; row = row->next)
		row->orphan = row->context == context;
	pending_release(ending.pending);
}

CUresult serve_refusal(void)
{
	return life_stage() == STAGE_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}
