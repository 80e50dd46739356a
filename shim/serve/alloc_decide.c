/*
 * alloc_decide.c: asks the policy about one request. Collects only what the rules look at: the process, the caller and
 * its library, the thread, order, live and free bytes; counts the decisions by rule.
 */
#include "shim/serve/alloc_decide.h"
#include "shim/base/call_site.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/driver/real.h"
#include "shim/heap/heap.h"
#include "shim/process/process.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Counts of one rule; the last row is the default's. */
struct rule_count {
	_Atomic uint64_t decisions, bytes;
	struct budget cap;
};

/* Reads the command line from the kernel, without argv[0], with blanks for the NULs between the other arguments. */
static const char *read_arguments(char *text, size_t room)
{
	FILE *file = fopen("/proc/self/cmdline", "re");
	size_t n = file ? fread(text, 1, room - 1, file) : 0;

	if (file)
		fclose(file);
	if (!n)
		return NULL;
	text[n] = 0;
	size_t from = strlen(text) + 1;
	for (size_t i = from; i + 1 < n; i++)
		if (!text[i])
			text[i] = ' ';
	return from < n ? text + from : "";
}

void alloc_decide_bind(void)
{
	call_site_bind();
}

static void bind_process(struct policy *policy)
{
	char arguments[4096]; /* longer ones are cut; patterns look at the beginning */

	if (policy_needs(policy) & POLICY_NEED_PROCESS)
		policy_bind(policy, program_invocation_short_name, read_arguments(arguments, sizeof(arguments)),
			    rank_number());
}

void alloc_decide_start(struct policy *policy)
{
	struct alloc_decide_state *const state = &serve_state.alloc_decide;

	bind_process(policy);
	if (policy_needs(policy) & POLICY_NEED_CALLER)
		call_site_always();
	state->n_rules = policy_n_rules(policy);
	state->counts = calloc(state->n_rules + 1, sizeof(*state->counts));
	if (!state->counts)
		log_once("no memory to count by rule; no cap holds");
	for (size_t i = 0; state->counts && i < state->n_rules; i++)
		state->counts[i].cap.limit = policy_rule_cap(policy, (int)i);
}

static unsigned slot_of(const char *path)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 16777619u;
	return hash % LIBRARIES;
}

static const struct policy_library *library_known(const struct policy *policy, const char *path)
{
	struct policy_library *made = NULL, *there = NULL;
	unsigned at = path ? slot_of(path) : 0;

	for (unsigned i = 0; path && i < LIBRARIES; i++, at = (at + 1) % LIBRARIES) {
		there = atomic_load_explicit(&serve_state.alloc_decide.libraries[at], memory_order_acquire);
		if (!there && !made && !(made = policy_library_new(policy, path)))
			return NULL;
		if (!there && atomic_compare_exchange_strong(&serve_state.alloc_decide.libraries[at], &there, made))
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
		*ret_bytes += heap_idle_device(heap);
	return true;
}

static uint64_t live_bytes(void)
{
	return stats_live(PLACE_DEVICE) + stats_live(PLACE_HOST) + stats_live(PLACE_PEER) + stats_live(PLACE_MANAGED) +
	       stats_live(PLACE_SYSTEM) + stats_live(PLACE_DRIVER);
}

struct policy_decision alloc_decide(struct device *device, const struct backend_request *request)
{
	const struct alloc_decide_state *const state = &serve_state.alloc_decide;
	const struct policy *policy = process_policy();
	unsigned needs = policy_needs(policy);
	char thread[16] = ""; /* the kernel's limit for a name */
	struct policy_request question = {
	    .bytes = request->bytes,
	    .api = request->height ? POLICY_API_PITCH : request->api,
	    .device = device->ordinal,
	    .known = POLICY_NEED_ORDER | POLICY_NEED_LIVE,
	};

	if (needs & POLICY_NEED_ORDER)
		question.order =
		    atomic_fetch_add_explicit(&serve_state.alloc_decide.order, 1, memory_order_relaxed) + 1;
	if (needs & POLICY_NEED_LIVE)
		question.live = live_bytes();
	if (needs & POLICY_NEED_FREE && device_free(device, &question.device_free))
		question.known |= POLICY_NEED_FREE;
	if (needs & POLICY_NEED_LIBRARY) {
		question.library = caller_name_library(request->caller);
		question.library_known = library_known(policy, question.library);
	}
	if (needs & POLICY_NEED_CALLER && request->site && *request->site->text)
		question.caller = request->site->text;
	if (needs & POLICY_NEED_THREAD && prctl(PR_GET_NAME, thread) == 0)
		question.thread = thread;
	struct policy_decision decision = policy_decide(policy, &question);

	/* The default is counted only for requests that rules without an api decide about. */
	if (state->counts && (decision.rule >= 0 || POLICY_APIS_ANY & 1 << question.api)) {
		struct rule_count *row = state->counts + (decision.rule < 0 ? state->n_rules : (size_t)decision.rule);

		atomic_fetch_add_explicit(&row->decisions, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&row->bytes, request->bytes, memory_order_relaxed);
	}
	if (policy_settings(policy)->observe) {
		decision.vmm_spill = POLICY_VMM_DRIVER;
		decision.use = POLICY_USE_DRIVER;
		decision.uses[0] = POLICY_USE_DRIVER;
		decision.n_uses = 1;
		decision.cap = POLICY_NO_CAP;
	}
	return decision;
}

/* The policy knows nothing of the shim, so its advice has names of its own. */
static unsigned advice_of(int advise)
{
	static const unsigned bits[] = {
	    [POLICY_ADVISE_PREFERRED_DEVICE] = BACKEND_PREFER_DEVICE,
	    [POLICY_ADVISE_PREFERRED_HOST] = BACKEND_PREFER_HOST,
	    [POLICY_ADVISE_ACCESSED_BY] = BACKEND_ACCESSED_BY_DEVICE,
	    [POLICY_ADVISE_READ_MOSTLY] = BACKEND_READ_MOSTLY,
	};
	unsigned advice = 0;

	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		advice |= advise & 1 << i ? bits[i] : 0;
	return advice;
}

struct backend_managed_settings alloc_decide_managed(const struct policy_decision *decision)
{
	const struct policy_managed *managed = decision->managed;

	return (struct backend_managed_settings){
	    .advice = advice_of(managed->advise),
	    .device = -1,
	    .prefetch = managed->prefetch == POLICY_PREFETCH_ON_ALLOC,
	};
}

struct backend_system_settings alloc_decide_system(const struct policy_decision *decision, const struct device *device)
{
	const struct policy_system *system = decision->system;

	return (struct backend_system_settings){
	    .register_pages = system->register_pages != 0,
	    .huge = system->huge_pages != 0,
	    .numa_node = system->numa_node == POLICY_NODE_AUTO ? device->node : system->numa_node,
	};
}

bool alloc_decide_take(const struct policy_decision *decision, size_t bytes, struct budget **ret_cap)
{
	const struct alloc_decide_state *const state = &serve_state.alloc_decide;
	*ret_cap = NULL;
	if (!state->counts || decision->cap == POLICY_NO_CAP)
		return true;
	if (!budget_take(&state->counts[decision->rule].cap, bytes))
		return false;
	*ret_cap = &state->counts[decision->rule].cap;
	return true;
}

uint64_t alloc_decide_count(int rule, uint64_t *ret_bytes)
{
	const struct alloc_decide_state *const state = &serve_state.alloc_decide;
	const struct rule_count *row = state->counts + (rule < 0 ? state->n_rules : (size_t)rule);

	*ret_bytes = state->counts ? atomic_load(&row->bytes) : 0;
	return state->counts ? atomic_load(&row->decisions) : 0;
}

void alloc_decide_print(void)
{
	for (int rule = 0; rule <= (int)serve_state.alloc_decide.n_rules; rule++) {
		int index = rule < (int)serve_state.alloc_decide.n_rules ? rule : -1;
		uint64_t bytes, n = alloc_decide_count(index, &bytes);
		char text[32];

		if (n)
			log_line("  %s%s: %llu allocations, %s", index < 0 ? "" : "rule ",
				 policy_rule_name(process_policy(), index), (unsigned long long)n,
				 log_bytes(text, sizeof(text), bytes));
	}
}
