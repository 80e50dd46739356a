// SPDX-License-Identifier: Apache-2.0
/*
 * serve.c: one allocation or free, from decision to account. See serve.h.
 */
#include "shim/serve/serve.h"
#include "shim/base/call_site.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/heap/arena.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/spill.h"
#include "shim/plan/piece_sizes.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/make_room.h"
#include "shim/serve/managed.h"
#include "shim/serve/named.h"
#include "shim/serve/segments.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- the policy's decision about one request ---- */

/*
 * Collects only what the rules look at: the process, the caller and its library, the thread, order, live and free
 * bytes; counts the decisions by rule.
 */

/* Counts of one rule; the last row is the default's. */
struct rule_count {
	_Atomic uint64_t decisions, bytes;
	struct budget cap;
};

/* Few programs have more callers than this; the others are looked up at each call. */
#define LIBRARIES 256

static struct {
	/*
	 * Written by alloc_decide_start(), constant afterwards. NULL if out of memory for them: then nothing is
	 * counted, and no cap holds.
	 */
	struct rule_count *counts;
	size_t n_rules;
	unsigned needs;         /* what the rules look at. Written by alloc_decide_start(), constant afterwards. */
	_Atomic uint64_t order; /* of the latest allocation; the first has 1 */
	/* What is known of each library that has called, by its path: found out at its first call, and kept. */
	_Atomic(struct policy_library *) libraries[LIBRARIES];
} decide;

/* Reads the command line without argv[0]; NULL if that fails. */
static const char *read_arguments(char *text, size_t room)
{
	size_t first = stats_read_words(text, room);

	return *text ? text + first + (text[first] != 0) : NULL;
}

void alloc_decide_start(struct policy *policy)
{
	char arguments[4096]; /* longer ones are cut; patterns look at the beginning */

	decide.needs = policy_needs(policy);
	if (decide.needs & POLICY_NEED_PROCESS)
		policy_bind(policy, program_invocation_short_name, read_arguments(arguments, sizeof(arguments)),
			    rank_number());
	if (decide.needs & POLICY_NEED_CALLER)
		call_site_always();
	decide.n_rules = policy_n_rules(policy);
	decide.counts = calloc(decide.n_rules + 1, sizeof(*decide.counts));
	if (!decide.counts)
		log_once("no memory to count by rule; no cap holds");
	for (size_t i = 0; decide.counts && i < decide.n_rules; i++)
		decide.counts[i].cap.limit = policy_rule_cap(policy, (int)i);
}

static const struct policy_library *library_known(const struct policy *policy, const char *path)
{
	struct policy_library *made = NULL, *there = NULL;
	unsigned first = path ? (unsigned)rank_hash(0, path) % LIBRARIES : 0;

	for (unsigned i = 0, at = first; path && i < LIBRARIES; i++, at = (at + 1) % LIBRARIES) {
		there = atomic_load_explicit(&decide.libraries[at], memory_order_acquire);
		if (!there && !made && !(made = policy_library_new(policy, path)))
			return NULL;
		if (!there && atomic_compare_exchange_strong(&decide.libraries[at], &there, made))
			return made;
		/* It is in the table, or another thread was faster, with this path or another one. */
		if (policy_library_is(there, path))
			break;
		there = NULL;
	}
	free(made);
	return there;
}

/* Finds what the heap could still put on the device, or, without a heap, what the driver has free. */
static bool device_free(struct device *device, uint64_t *ret_bytes)
{
	struct heap *heap = atomic_load_explicit(&device->heap, memory_order_acquire);
	size_t bytes, total;

	if (REAL(cuMemGetInfo_v2)(&bytes, &total) != CUDA_SUCCESS)
		return false;
	*ret_bytes = bytes;
	if (heap && budget_left(&device->budget) < *ret_bytes)
		*ret_bytes = budget_left(&device->budget);
	if (heap)
		*ret_bytes += heap_idle(heap, CHUNK_DEVICE);
	return true;
}

struct policy_decision alloc_decide(struct device *device, const struct backend_request *request)
{
	const struct policy *policy = process_policy();
	unsigned needs = decide.needs;
	char thread[16] = ""; /* the kernel's limit for a name */
	struct policy_request question = {
	    .bytes = request->bytes,
	    .api = request->api,
	    .device = device->ordinal,
	    .known = POLICY_NEED_ORDER | POLICY_NEED_LIVE,
	};

	if (needs & POLICY_NEED_ORDER)
		question.order = atomic_fetch_add_explicit(&decide.order, 1, memory_order_relaxed) + 1;
	if (needs & POLICY_NEED_LIVE)
		question.live = stats_live(PLACE_DEVICE) + stats_live(PLACE_HOST) + stats_live(PLACE_PEER) +
				stats_live(PLACE_MANAGED) + stats_live(PLACE_SYSTEM) + stats_live(PLACE_DRIVER);
	if (needs & POLICY_NEED_FREE && device_free(device, &question.device_free))
		question.known |= POLICY_NEED_FREE;
	if (needs & POLICY_NEED_LIBRARY) {
		question.library = call_site_path(request->caller);
		question.library_known = library_known(policy, question.library);
	}
	if (needs & POLICY_NEED_CALLER && request->site && *request->site->text)
		question.caller = request->site->text;
	if (needs & POLICY_NEED_THREAD && prctl(PR_GET_NAME, thread) == 0)
		question.thread = thread;
	struct policy_decision decision = policy_decide(policy, &question);

	/* The default is counted only for requests that rules without an api decide about. */
	if (decide.counts && (decision.rule >= 0 || POLICY_APIS_ANY & 1 << question.api)) {
		struct rule_count *row = decide.counts + (decision.rule < 0 ? decide.n_rules : (size_t)decision.rule);

		atomic_fetch_add_explicit(&row->decisions, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&row->bytes, request->bytes, memory_order_relaxed);
	}
	if (process_settings()->observe) {
		decision.vmm_spill = POLICY_VMM_DRIVER;
		decision.use = POLICY_USE_DRIVER;
		decision.uses[0] = POLICY_USE_DRIVER;
		decision.n_uses = 1;
		decision.cap = POLICY_NO_CAP;
	}
	return decision;
}

bool alloc_decide_take(const struct policy_decision *decision, size_t bytes, struct budget **ret_cap)
{
	*ret_cap = NULL;
	if (!decide.counts || decision->cap == POLICY_NO_CAP)
		return true;
	if (!budget_take(&decide.counts[decision->rule].cap, bytes))
		return false;
	*ret_cap = &decide.counts[decision->rule].cap;
	return true;
}

uint64_t alloc_decide_count(int rule, uint64_t *ret_bytes)
{
	const struct rule_count *row = decide.counts + (rule < 0 ? decide.n_rules : (size_t)rule);

	*ret_bytes = decide.counts ? atomic_load(&row->bytes) : 0;
	return decide.counts ? atomic_load(&row->decisions) : 0;
}

void alloc_decide_print(void)
{
	for (int rule = 0; rule <= (int)decide.n_rules; rule++) {
		int index = rule < (int)decide.n_rules ? rule : -1;
		uint64_t bytes, n = alloc_decide_count(index, &bytes);
		char text[32];

		if (n)
			log_line("  %s%s: %llu allocations, %s", index < 0 ? "" : "rule ",
				 policy_rule_name(process_policy(), index), (unsigned long long)n,
				 log_bytes(text, sizeof(text), bytes));
	}
}

/* ---- an allocation, a free ---- */

/* The backend of each use of a policy. NULL: none, which is out of memory. */
static const struct backend *const places[POLICY_USE_COUNT] = {
    [POLICY_USE_HEAP] = &backend_heap,
    [POLICY_USE_MANAGED] = &backend_managed,
    [POLICY_USE_SYSTEM] = &backend_system,
    [POLICY_USE_DRIVER] = &backend_pass,
    [POLICY_USE_DENY] = NULL,
};

/*
 * Tries the uses in their order until one serves the request. After NO_MEMORY and NOT_SUPPORTED the next one is
 * tried; if the last was not able to, the driver serves it, but if it had no memory, that is out of memory. The first
 * use counts against the cap of its rule; a full cap counts as out of memory.
 */
static enum sw_status serve_act(struct device *device, const struct backend_request *asked, struct ledger_row *row)
{
	struct policy_decision decision = alloc_decide(device, asked);
	struct backend_request request = *asked;
	enum sw_status status = SW_NO_MEMORY;

	request.decision = &decision;
	request.on_use = decision.place == POLICY_PLACE_ON_USE && asked->bytes >= ON_USE_LEAST;
	row->rule = decision.rule;
	row->fixed = !decision.movable;
	bool fits = decision.cap == POLICY_NO_CAP || alloc_decide_take(&decision, asked->bytes, &row->cap);
	for (unsigned i = fits ? 0 : 1; i < decision.n_uses; i++) {
		const struct backend *place = places[decision.uses[i]];

		if (place)
			status = place->alloc(device, &request, row);
		else if (status != SW_LIMIT)
			status = SW_NO_MEMORY;
		if (status == SW_OK)
			return SW_OK;
		if (row->cap)
			budget_give(row->cap, asked->bytes);
		row->cap = NULL;
		if (!status_is_short(status) && status != SW_NOT_SUPPORTED)
			return status;
	}
	return status == SW_NOT_SUPPORTED ? backend_pass.alloc(device, &request, row) : status;
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
	CUcontext context;
	result = context_for_memory(device->ordinal, &context);
	if (result != CUDA_SUCCESS)
		return result;
	struct ledger_row *row = ledger_row_new(LEDGER_HEAP);
	if (!row)
		return CUDA_ERROR_OUT_OF_MEMORY;
	row->device = device->ordinal;
	row->bytes = request->bytes;
	row->context = context;
	request->site = call_site_find(request->caller);
	request->ret_pitch = &pitch;
	if (trace_is_on())
		trace_ask(device, request);
	if (atomic_load_explicit(&serve_state.deferred_free.n_pending, memory_order_relaxed) ||
	    atomic_load_explicit(&serve_state.segments.n_waiting, memory_order_relaxed))
		deferred_free_reap(device->ordinal);
	enum sw_status status = serve_act(device, request, row);
	if (status != SW_OK) {
		if (status_is_short(status))
			account_refused(status, device, request->bytes, row->rule, request->site);
		else
			stats_add(STAT_failed, 1);
		trace_refused(device, request, row->rule, status_result(status));
		ledger_row_free(row);
		return status_result(status);
	}
	*ret_address = row->key;
	if (request->height)
		*ret_pitch = row->kind == LEDGER_DRIVER ? pitch : request->bytes / request->height;
	/* Nobody reports of smaller ones: they share slabs. */
	if (row->home == &backend_heap && request->bytes > SMALL_MOST)
		lifetimes_allocated(heap_arena(atomic_load(&device->heap))->lifetimes, row->key, request->bytes, 0,
				    call_site_asker(request->caller));
	account_commit(row, request->api, request->site);
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

bool typed_alloc_claim(enum policy_api api, struct device *device, size_t bytes, void *caller,
		       struct account_claim *ret_claim)
{
	bool decides = policy_decides(process_policy(), api);

	*ret_claim = (struct account_claim){
	    .rule = -1, .spill = policy_vmm_spill(process_policy()), .limit = process_settings()->spill_limit};
	/* Pinned memory counts for no site. */
	if (decides || api != POLICY_API_HOST)
		ret_claim->site = call_site_find(caller);
	if (!decides)
		return true;
	if (!device)
		device = device_current(NULL);
	if (!device)
		return true; /* the driver has an error of its own for that */
	struct policy_decision decision = alloc_decide(
	    device, &(struct backend_request){.api = api, .bytes = bytes, .caller = caller, .site = ret_claim->site});
	ret_claim->rule = decision.rule;
	ret_claim->spill = decision.vmm_spill;
	ret_claim->limit = decision.spill_limit;
	/* Only the driver can make it (parse.c ensures that): behind a full cap only deny is left. */
	if (decision.use == POLICY_USE_DRIVER && alloc_decide_take(&decision, bytes, &ret_claim->cap))
		return true;
	account_refused(SW_NO_MEMORY, device, bytes, decision.rule, ret_claim->site);
	return false;
}

/* ---- managed memory ---- */

static CUresult ask_driver_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags,
				   const struct account_claim *claim)
{
	CUresult result;

	/* It is not known where the memory will lie, and so how much of the device it needs. */
	OOM_RETRY_CALL_INSIDE(result, -1, 0, REAL(cuMemAllocManaged)(ret_address, bytes, flags));
	if (result != CUDA_SUCCESS) {
		account_claim_end(claim, bytes);
		return result;
	}
	faults_start();
	account_note_claimed(LEDGER_MANAGED, *ret_address, bytes, -1, claim);
	return result;
}

/* Tries pages of the system, which both sides reach at one address, as they do managed memory. */
static enum sw_status ask_system_managed(struct device *device, size_t bytes, const struct policy_decision *decision,
					 const struct account_claim *claim, CUdeviceptr *ret_address)
{
	struct backend_request request = {.bytes = bytes, .api = POLICY_API_MANAGED, .decision = decision};
	struct ledger_row *row = ledger_row_new(LEDGER_SYSTEM);

	if (!row) {
		account_claim_end(claim, bytes);
		return SW_NO_HOST_MEMORY;
	}
	row->device = device->ordinal;
	row->bytes = bytes;
	row->context = context_of_memory();
	row->rule = claim->rule;
	row->cap = claim->cap;
	row->system.asked_managed = true;
	enum sw_status status = backend_system.alloc(device, &request, row);
	if (status != SW_OK) {
		ledger_row_free(row);
		return status;
	}
	*ret_address = row->key;
	account_commit(row, POLICY_API_MANAGED, claim->site);
	return SW_OK;
}

/* Tries the heap (managed.h). */
static enum sw_status ask_heap_managed(struct device *device, struct backend_request *request,
				       const struct account_claim *claim, CUdeviceptr *ret_address)
{
	struct ledger_row *row = ledger_row_new(LEDGER_HEAP);
	CUcontext context;
	enum sw_status status = SW_NO_HOST_MEMORY;

	if (row && context_for_memory(device->ordinal, &context) == CUDA_SUCCESS) {
		row->device = device->ordinal;
		row->bytes = request->bytes;
		row->context = context;
		row->rule = claim->rule;
		row->cap = claim->cap;
		status = managed_alloc(device, request, row);
	} else if (row) {
		status = SW_NOT_SUPPORTED; /* the driver says what is wrong with the context */
	}
	if (status != SW_OK) {
		if (row)
			row->cap = NULL;
		ledger_row_free(row);
		account_claim_end(claim, request->bytes);
		return status;
	}
	*ret_address = row->key;
	account_commit(row, POLICY_API_MANAGED, claim->site);
	return SW_OK;
}

/* Tries the uses in their order, as serve_act() does. */
static CUresult ask_in_turn(struct device *device, const struct policy_decision *decision, size_t bytes, unsigned flags,
			    const struct call_site *site, CUdeviceptr *ret_address)
{
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;

	for (unsigned i = 0; i < decision->n_uses; i++) {
		struct account_claim claim = {.rule = decision->rule, .site = site};

		if (decision->uses[i] == POLICY_USE_DENY || (i == 0 && !alloc_decide_take(decision, bytes, &claim.cap)))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else if (decision->uses[i] == POLICY_USE_SYSTEM)
			result = status_result(ask_system_managed(device, bytes, decision, &claim, ret_address));
		else if (decision->uses[i] == POLICY_USE_HEAP)
			result = status_result(ask_heap_managed(
			    device,
			    &(struct backend_request){
				.bytes = bytes, .api = POLICY_API_MANAGED, .decision = decision, .site = site},
			    &claim, ret_address));
		else
			result = ask_driver_managed(ret_address, bytes, flags, &claim);
		if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_NOT_SUPPORTED)
			return result;
	}
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		account_refused(SW_NO_MEMORY, device, bytes, decision->rule, site);
	return result == CUDA_ERROR_NOT_SUPPORTED
		   ? ask_driver_managed(ret_address, bytes, flags,
					&(struct account_claim){.rule = decision->rule, .site = site})
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
		result = ask_driver_managed(ret_address, bytes, flags,
					    &(struct account_claim){.rule = -1, .site = question.site});
	}
	if (device && result != CUDA_SUCCESS)
		trace_refused(device, &question, decision.rule, result);
	return result;
}
