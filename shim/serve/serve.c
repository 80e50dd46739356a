/*
 * serve.c: one allocation or free, from decision to account. See serve.h.
 */
#include "shim/serve/serve.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/spill.h"
#include "shim/plan/piece_sizes.h"
#include "shim/process/process.h"
#include "shim/serve/account.h"
#include "shim/serve/alloc_decide.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/make_room.h"
#include "shim/serve/named.h"
#include "shim/serve/segments.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

/* The backend of each use of a policy. NULL: none, which is out of memory. */
static const struct backend *const places[POLICY_USE_COUNT] = {
    [POLICY_USE_HEAP] = &backend_heap,
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
	while (status == SW_NO_MEMORY && make_room_for_driver(&room, device->ordinal, request->bytes));
	make_room_end(&room, status_result(status));
	if (status == SW_OK) {
		stats_add(STAT_passed, 1);
		account_drivers(row);
	}
	return status;
}

/*
 * Tries the uses in their order until one serves the request. After NO_MEMORY and NOT_SUPPORTED the next one is
 * tried; if the last was not able to, the driver serves it, but if it had no memory, that is out of memory. The first
 * use counts against the cap of its rule; a full cap counts as out of memory.
 */
static enum sw_status serve_act(struct device *device, const struct backend_request *asked, struct ledger_row *row,
				size_t *ret_pitch)
{
	struct policy_decision decision = alloc_decide(device, asked);
	struct backend_managed_settings managed;
	struct backend_system_settings system;
	struct backend_request request = *asked;
	enum sw_status status = SW_NO_MEMORY;

	request.decision = &decision;
	request.managed = &managed;
	request.system = &system;
	request.on_use = decision.place == POLICY_PLACE_ON_USE && asked->bytes >= ON_USE_LEAST;
	row->rule = decision.rule;
	row->fixed = !decision.movable;
	bool fits = decision.cap == POLICY_NO_CAP || alloc_decide_take(&decision, asked->bytes, &row->cap);
	for (unsigned i = fits ? 0 : 1; i < decision.n_uses && (status == SW_NO_MEMORY || status == SW_NOT_SUPPORTED);
	     i++) {
		const struct backend *place = places[decision.uses[i]];

		if (place == &backend_managed)
			managed = alloc_decide_managed(&decision);
		if (place == &backend_system)
			system = alloc_decide_system(&decision, device);
		if (place == &backend_pass)
			status = ask_driver(device, &request, row, ret_pitch);
		else
			status = place ? place->alloc(device, &request, row, ret_pitch) : SW_NO_MEMORY;
		if (status != SW_OK && row->cap) {
			budget_give(row->cap, asked->bytes);
			row->cap = NULL;
		}
	}
	return status == SW_NOT_SUPPORTED ? ask_driver(device, &request, row, ret_pitch) : status;
}

CUresult serve_alloc(struct backend_request *request, CUdeviceptr *ret_address, size_t *ret_pitch)
{
	CUresult result;
	struct device *device = device_current(&result);
	size_t pitch = 0;

	if (!device && result == CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* No usable context: the driver has an error of its own for each case. */
	if (!device && request->height)
		return REAL(cuMemAllocPitch_v2)(ret_address, ret_pitch, request->width, request->height,
						(unsigned)request->element);
	if (!device)
		return REAL(cuMemAlloc_v2)(ret_address, request->bytes);
	/*
	 * Mapping memory does not need the context, and warm memory not even the driver: neither would report that
	 * the context died.
	 */
	result = context_died_of(NULL);
	if (result != CUDA_SUCCESS)
		return result;
	struct ledger_row *row = ledger_row_new(LEDGER_HEAP);
	if (!row)
		return CUDA_ERROR_OUT_OF_MEMORY;
	row->device = device->ordinal;
	row->bytes = request->bytes;
	row->context = context_of_memory();
	request->site = call_site_find(request->caller);
	if (trace_is_on())
		trace_ask(device, request);
	if (atomic_load_explicit(&serve_state.deferred_free.n_pending, memory_order_relaxed) ||
	    atomic_load_explicit(&serve_state.segments.n_waiting, memory_order_relaxed))
		deferred_free_reap(device->ordinal);
	/* Nobody reports of smaller ones: they share slabs. */
	if (request->bytes > SMALL_MOST)
		lifetimes_asked(call_site_asker(request->caller));
	enum sw_status status = serve_act(device, request, row, &pitch);
	lifetimes_asked(NULL);
	if (status != SW_OK) {
		if (status == SW_NO_MEMORY)
			account_refused(device, request->bytes, row->rule, request->site);
		else
			stats_add(STAT_failed, 1);
		trace_refused(device, request, row->rule, status_result(status));
		ledger_row_free(row);
		return status_result(status);
	}
	*ret_address = row->key;
	if (request->height)
		*ret_pitch = pitch;
	account_commit(row, trace_api(request), request->site);
	return CUDA_SUCCESS;
}

/* Its backend frees it. If the driver refuses, the row is in the ledger again, and counts as before. */
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
	struct ledger_row *row = account_forget(LEDGER_FREEABLE, address);

	if (!row) {
		stats_add(STAT_foreign_frees, 1);
		return serve_is_dead(address) ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemFree_v2)(address);
	}
	if (row->home)
		return free_at_home(row);
	CUresult result = backend_pass.free(row);
	account_forgotten(row, result == CUDA_SUCCESS);
	return result;
}

bool serve_is_dead(CUdeviceptr address)
{
	return device_of(address) || deferred_free_has(address);
}

bool serve_is_late_free(CUdeviceptr address)
{
	struct ledger_row row;

	return process_stage() == STAGE_ENDING && (device_of(address) || ledger_find(LEDGER_SYSTEM, address, &row));
}

struct ledger_row *serve_take_ours(CUdeviceptr address)
{
	/* LEDGER_OURS also matches the program's own managed memory, which has no home. */
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
	CUdevice device;
	bool known = context_device(context, &device), busy = !spill_context_ending(context);

	segments_context_ending(context);
	return (struct serve_ending){
	    .line = ledger_line(),
	    .pending = deferred_free_take_context(context),
	    .busy = busy,
	    .device = known ? device : -1,
	};
}

void serve_context_ended(CUcontext context, struct serve_ending ending, bool ended)
{
	struct ledger_ending rows = {.kinds = LEDGER_FREEABLE | LEDGER_PINNED | LEDGER_REGISTERED | LEDGER_ARRAY,
				     .context = context,
				     .line = ending.line};
	struct ledger_row *row, *next;

	spill_context_ended(context, ended);
	segments_context_ended(context, ended);
	if (!ended) {
		deferred_free_put_back(ending.pending);
		return;
	}
	rows.heir = context_any(ending.device);
	for (row = ledger_take_context(&rows); row; row = next) {
		next = row->next;
		row->orphan = true;
		trace_freed(trace_freeing(row));
		if (row->home) {
			stats_add(STAT_frees, 1);
			row->home->release(row);
		} else {
			account_drop(row);
		}
	}
	/* Some wait here only because their stream was of this context. */
	for (row = ending.pending; row; row = row->next)
		row->orphan = row->context == context;
	deferred_free_release(ending.pending);
}

CUresult serve_refusal(void)
{
	return process_stage() == STAGE_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

/* ---- memory whose kind the program has chosen ---- */

static struct policy_decision typed_alloc_decide(enum policy_api api, struct device *device, size_t bytes, void *caller,
						 const struct call_site *site)
{
	struct backend_request question = {.api = api, .bytes = bytes, .caller = caller, .site = site};

	return alloc_decide(device, &question);
}

bool typed_alloc_claim(enum policy_api api, struct device *device, size_t bytes, void *caller,
		       struct account_claim *ret_claim)
{
	bool decides = policy_decides(process_policy(), api);

	*ret_claim = (struct account_claim){.rule = -1, .spill = policy_vmm_spill(process_policy())};
	/* Pinned memory counts for no site. */
	if (decides || api != POLICY_API_HOST)
		ret_claim->site = call_site_find(caller);
	if (!decides)
		return true;
	if (!device)
		device = device_current(NULL);
	if (!device)
		return true; /* the driver has an error of its own for that */
	struct policy_decision decision = typed_alloc_decide(api, device, bytes, caller, ret_claim->site);
	ret_claim->rule = decision.rule;
	ret_claim->spill = decision.vmm_spill;
	/* Only the driver can make it (parse.c ensures that): behind a full cap only deny is left. */
	if (decision.use == POLICY_USE_DRIVER && alloc_decide_take(&decision, bytes, &ret_claim->cap))
		return true;
	account_refused(device, bytes, decision.rule, ret_claim->site);
	return false;
}

/* ---- managed memory ---- */

static CUresult ask_driver_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags, int rule, struct budget *cap,
				   const struct call_site *site)
{
	CUresult result;
	struct room room = {0};

	/* It is not known where the memory will lie, and so how much of the device it needs. */
	do
		result = REAL(cuMemAllocManaged)(ret_address, bytes, flags);
	while (result == CUDA_ERROR_OUT_OF_MEMORY && make_room_for_driver(&room, -1, 0));
	make_room_end(&room, result);
	if (result == CUDA_SUCCESS)
		faults_start();
	if (result == CUDA_SUCCESS)
		account_note_claimed(LEDGER_MANAGED, *ret_address, bytes, -1,
				     &(struct account_claim){.rule = rule, .cap = cap, .site = site});
	else if (cap)
		budget_give(cap, bytes);
	return result;
}

/* Tries pages of the system, which both sides reach at one address, as they do managed memory. */
static enum sw_status ask_system_managed(struct device *device, size_t bytes, const struct policy_decision *decision,
					 struct budget *cap, const struct call_site *site, CUdeviceptr *ret_address)
{
	struct backend_system_settings system = alloc_decide_system(decision, device);
	struct backend_request request = {
	    .bytes = bytes, .api = POLICY_API_MANAGED, .decision = decision, .system = &system};
	struct ledger_row *row = ledger_row_new(LEDGER_SYSTEM);
	enum sw_status status = SW_NO_HOST_MEMORY;

	if (row) {
		row->device = device->ordinal;
		row->bytes = bytes;
		row->context = context_of_memory();
		row->rule = decision->rule;
		row->system.asked_managed = true;
		status = backend_system.alloc(device, &request, row, NULL);
	}
	if (status != SW_OK) {
		if (cap)
			budget_give(cap, bytes);
		ledger_row_free(row);
		return status;
	}
	row->cap = cap;
	*ret_address = row->key;
	account_commit(row, POLICY_API_MANAGED, site);
	return SW_OK;
}

/* Tries the uses in their order, as in serve.c. */
static CUresult ask_in_turn(struct device *device, const struct policy_decision *decision, size_t bytes, unsigned flags,
			    const struct call_site *site, CUdeviceptr *ret_address)
{
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;

	for (unsigned i = 0; i < decision->n_uses; i++) {
		struct budget *cap = NULL;

		if (decision->uses[i] == POLICY_USE_DENY || (i == 0 && !alloc_decide_take(decision, bytes, &cap)))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else if (decision->uses[i] == POLICY_USE_SYSTEM)
			result = status_result(ask_system_managed(device, bytes, decision, cap, site, ret_address));
		else
			result = ask_driver_managed(ret_address, bytes, flags, decision->rule, cap, site);
		if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_NOT_SUPPORTED)
			return result;
	}
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		account_refused(device, bytes, decision->rule, site);
	return result == CUDA_ERROR_NOT_SUPPORTED
		   ? ask_driver_managed(ret_address, bytes, flags, decision->rule, NULL, site)
		   : result;
}

CUresult typed_alloc_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags, void *caller)
{
	bool is_right = ret_address && bytes && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
	bool decides = policy_decides(process_policy(), POLICY_API_MANAGED);
	struct backend_request question = {.api = POLICY_API_MANAGED, .bytes = bytes, .caller = caller};
	/* Invalid arguments are left to the driver to refuse. */
	struct device *device = is_right && (decides || trace_is_on()) ? device_current(NULL) : NULL;
	struct policy_decision decision = {.rule = -1};
	CUresult result;

	if (is_right)
		question.site = call_site_find(caller);
	if (device)
		trace_ask(device, &question);
	if (device && decides) {
		decision = alloc_decide(device, &question);
		result = ask_in_turn(device, &decision, bytes, flags, question.site, ret_address);
	} else {
		result = ask_driver_managed(ret_address, bytes, flags, -1, NULL, question.site);
	}
	if (device && result != CUDA_SUCCESS)
		trace_refused(device, &question, decision.rule, result);
	return result;
}
