// SPDX-License-Identifier: Apache-2.0
/*
 * Start, fork and exit of the process: what each module does then, and in which order.
 *
 * Start: nothing happens when the library is loaded. The first lookup of a name that begins "cu" checks for SPILLWAY=0;
 * the first request that needs the policy reads it, under START. A process that never gets there writes no line, leaves
 * no file, and pays only for loading a library.
 *
 * Fork: CUDA does not survive a fork. The child of a running process passes everything through for good, so that the
 * driver gives its own errors. The child of a process that had not used CUDA starts from STAGE_NEW; the locks that may
 * be in use by then are taken before the fork and dropped after it.
 *
 * Exit: the library stops taking requests from outside (control.h), prints the summary and sets ENDING. It makes no
 * CUDA call: the driver may have ended already.
 */
#include "shim/lifecycle/lifecycle.h"
#include "policy/policy.h"
#include "shim/accounting/quota.h"
#include "shim/accounting/shared_file.h"
#include "shim/base/call_site.h"
#include "shim/base/clock.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/base/signals.h"
#include "shim/base/number.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/heap/migration.h"
#include "shim/lifecycle/types.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/managed.h"
#include "shim/serve/named.h"
#include "shim/serve/segments.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"
#include "shim/submit/arguments.h"
#include "shim/submit/check.h"
#include "shim/submit/submission.h"
#include "shim/trace/trace.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lifecycle_state lifecycle_state = {
    .summary.lock = LOCK_INIT(LOCK_SUMMARY),
    .sampler_lock = LOCK_INIT(LOCK_SAMPLER),
};

/* ---- what the trace reads ---- */

_Static_assert(TRACE_FUNCTION_NAME == KERNEL_PARAMS_NAME, "a name fits");

static void trace_sources_sample(const struct device *device, struct trace_source_device *ret)
{
	const struct stats_device *figures = &stats.device[device->ordinal];
	const _Atomic uint64_t *live = figures->live;
	uint64_t on_peers = live[PLACE_PEER]; /* read once, since it is part of two figures */
	struct trace_event *event = &ret->sample;

	ret->any = atomic_load(&device->heap) || atomic_load(&figures->most_lent);
	for (unsigned i = 0; i < PLACE_COUNT; i++)
		ret->any |= i != PLACE_PINNED && atomic_load_explicit(&figures->peak[i], memory_order_relaxed) != 0;
	event->bytes.device = (uint64_t)device->ordinal;
	event->bytes.on_device = live[PLACE_DEVICE];
	event->bytes.on_host = live[PLACE_HOST] + on_peers;
	event->bytes.managed = live[PLACE_MANAGED];
	event->bytes.system = live[PLACE_SYSTEM];
	event->bytes.driver = live[PLACE_DRIVER];
	event->bytes.on_peers = on_peers;
	event->bytes.lent = atomic_load(&device->lender.lent.used);
	if (atomic_load(&device->heap))
		event->bytes.budget = atomic_load(&device->budget.limit);
}

static void each_device(void (*visit)(const struct trace_source_device *device, void *argument), void *argument)
{
	for (const struct device *device = device_next(NULL); device; device = device_next(device)) {
		struct trace_source_device source = {
		    .ordinal = device->ordinal, .total = device->total, .sample = {.kind = TRACE_bytes}};

		if ((unsigned)device->ordinal < STATS_DEVICES)
			trace_sources_sample(device, &source);
		visit(&source, argument);
	}
}

static const struct trace_sources sources = {
    .each_device = each_device,
    .function_name = kernel_params_name,
    .function_generation = kernel_params_generation,
    .submissions = submission_set_trace,
};

/* ---- once a second ---- */

/*
 * What other processes read on the statistics page is sampled: page faults are counted where the driver writes them and
 * must be polled; and a killed process cannot write its last figures.
 */

/* Returns true if a count has changed. */
static bool put_faults(int device, _Atomic uint64_t into[FAULT_COUNT])
{
	uint64_t now[FAULT_COUNT];
	bool changed = false;

	faults_read(device, now);
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		changed |= atomic_exchange_explicit(&into[i], now[i], memory_order_relaxed) != now[i];
	return changed;
}

static void put_all_faults(void)
{
	faults_poll();
	/* CPU faults belong to the process; the trace records them with the first device. */
	bool is_first = true, any = put_faults(-1, stats.fault);

	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const _Atomic uint64_t *its = stats.device[i].fault;
		uint64_t cpu = is_first ? stats.fault[FAULT_CPU] : 0;

		if (!atomic_load(&stats.device[i].known))
			continue;
		/* Faults that are not measured do not appear in the trace. */
		if ((put_faults((int)i, stats.device[i].fault) || (is_first && any)) && its[FAULT_GPU] != STATS_NA)
			trace_event(faults, i, its[FAULT_GPU], cpu == STATS_NA ? 0 : cpu, its[FAULT_IN_BYTES],
				    its[FAULT_OUT_BYTES], stats.fault[FAULT_LOST] + 1);
		is_first = false;
	}
}

_Static_assert(FAULT_OF_CPU == TRACE_FAULT_OF_CPU && FAULT_OF_GPU < FAULT_OF_CPU, "as the trace has them");

/*
 * Counts what the driver says of the program's own managed memory: that a GPU uses it, and what the CPU touches after
 * that. What the program prefetches to the host and what is copied for reading counts as touched: the CPU may read it
 * without a fault from then on. What was evicted does not: the CPU faults when it touches that.
 */
static void count_managed(const struct fault_event *event)
{
	const bool moves = event->kind == FAULT_MIGRATION, copies = event->kind == FAULT_READ_DUPLICATE;
	const bool back = moves && event->device == FAULT_HOST && event->from != FAULT_HOST;
	const bool by_gpu = event->kind == FAULT_OF_GPU || event->kind == FAULT_EVICTION || copies || back ||
			    (moves && event->device != FAULT_HOST);
	struct ledger_row row;

	if (!(by_gpu || event->kind == FAULT_OF_CPU) || !ledger_find_driven(event->address, by_gpu, &row))
		return;
	const uint64_t back_bytes =
	    back && event->cause != FAULT_FOR_PROGRAM ? smaller(event->bytes, row.key + row.bytes - event->address) : 0;
	if (by_gpu && !row.managed.gpu_has_used) {
		stats_managed_used(row.site);
		trace_event(managed, row.id, false, 0);
	}
	if (copies || (back && event->cause != FAULT_FOR_ROOM) ||
	    (event->kind == FAULT_OF_CPU && row.managed.gpu_has_used)) {
		stats_managed_touched(row.site, back_bytes);
		trace_event(managed, row.id, true, back_bytes);
	}
}

static void hear_one(const struct fault_event *event)
{
	trace_event(fault, trace_device(event->device), event->address, event->cause, event->bytes, event->kind,
		    trace_device(event->from));
	count_managed(event);
}

/*
 * Brings the statistics page and the trace up to date; about once a second and at exit, by any thread.
 * Locking: tries SAMPLER; does nothing if another thread holds it. The caller must hold no lock.
 */
static void sampler_sample(void)
{
	char line[STATS_LINE];

	/* A thread that holds the lock does the work; at exit no lock may be waited for. */
	if (!lock_try(&lifecycle_state.sampler_lock))
		return;
	stats_find_again();
	atomic_store_explicit(&stats.last_clock, clock_now(), memory_order_relaxed);
	if (stats_peak(PLACE_MANAGED) || stats_peak(PLACE_SYSTEM)) {
		put_all_faults();
		stats_set_line(faults_source(line, sizeof(line)));
	}
	lock_drop(&lifecycle_state.sampler_lock);
}

/*
 * The tick: sampler_sample() and the work of other modules that is due about once a second. Called by one thread.
 * Locking: the caller must hold no lock.
 */
static void sampler_tick(void)
{
	sampler_sample();
	quota_tick();
	device_tick();
	deferred_free_tick();
	segments_tick();
	peer_tick();
	pool_tick();
}

/* ---- host memory that is pinned ahead (host.pin_ahead) ---- */

/*
 * Host memory is pinned before memory has to leave a device, so that a first suspension takes no longer than a later
 * one. Pinning takes 0.2 s a GiB, copying 0.02 s (docs/facts.md, Pinning).
 * The control thread does it, not the mover's: as long as nothing has spilled there is no mover, and none should be
 * started for this, because submissions are tracked from then on.
 *
 * Which devices host memory is pinned ahead for, and when: while the process is not suspended, nothing has moved for a
 * second, and no other process of the user is short of host memory. After a refusal there is a rest. While a thread
 * pins, the driver changes no mapping for another: a fine-tune that moved 31 GB a step took 3.27 s a step beside this
 * thread, and 2.68 without it (H200).
 */

/* ns: after the driver had no host memory, or another process was short of it, none is pinned ahead for so long. */
#define REFUSED_NS 10000000000u
#define MOVED_NS   1000000000u /* the same after something was seen to have moved */

/* Returns how many bytes the policy wants pinned for each device. */
static uint64_t wanted(void)
{
	struct policy_size size = process_settings()->host_pin_ahead;

	if (process_settings()->spill < POLICY_SPILL_EXACT)
		return 0;
	return size.kind == POLICY_SIZE_AUTO ? UINT64_MAX : size.value;
}

/*
 * Takes one step for the first device that needs one: pins at most one chunk (heap_pin_ahead()). Returns after how many
 * ms it is to be called again at the latest, which is as long as the step took, so that half of the thread's time is
 * left; 0: nothing to do at present. Called on the control thread. Locking: takes HEAP; the caller must hold no lock.
 */
static unsigned pin_ahead_look(void)
{
	enum sw_status status = SW_INVALID; /* no step has been taken yet */
	uint64_t begin = clock_now(), most = wanted();

	if (!most)
		return 0;
	uint64_t moves = stats_get(STAT_moves_in) + stats_get(STAT_moves_out);
	if (moves != lifecycle_state.pin_moves)
		lifecycle_state.no_pin_before = larger(lifecycle_state.no_pin_before, begin + MOVED_NS);
	lifecycle_state.pin_moves = moves;
	if (begin < lifecycle_state.no_pin_before)
		return 0;
	for (const struct device *device = device_next(NULL); device && status == SW_INVALID;
	     device = device_next(device)) {
		struct heap *heap = atomic_load(&device->heap);

		if (heap && heap_has_host(heap) && spill_residence(device) == RESIDENCE_RUNS)
			status = heap_pin_ahead(heap, most);
	}
	uint64_t end = clock_now();
	if (status == SW_OK)
		return (unsigned)((end - begin) / 1000000) + 1;
	if (status != SW_INVALID || quota_is_asked())
		lifecycle_state.no_pin_before = end + REFUSED_NS;
	return 0;
}

/* ---- the summary at the end ---- */

/* How long the summary waits for a slow reader of standard error, so that the program still ends. */
#define SUMMARY_MS 1000

void exit_summary_print(void)
{
	struct summary *const summary = &lifecycle_state.summary.text;
	bool full = process_settings()->report == POLICY_REPORT_FULL;
	char names[200];

	/* At exit no lock may be waited for: the thread that held it may have ended. */
	if (!lock_try(&lifecycle_state.summary.lock))
		return;
	sampler_sample();
	if (full)
		summary_make(&stats, clock_now(), *trace_path() ? trace_path() : NULL, summary);
	else
		summary_make_short(&stats, clock_now(), summary);
	for (unsigned i = 0; i < summary->n; i++)
		log_line("%s", summary->line[i].text);
	if (process_settings()->observe)
		alloc_decide_print();
	if (full && stats_get(STAT_unknown_names))
		log_line("  %llu entry points asked for that we do not know: %s",
			 (unsigned long long)stats_get(STAT_unknown_names), stats_unknown_names(names, sizeof(names)));
	lock_drop(&lifecycle_state.summary.lock);
}

/* ---- when the control thread looks ---- */

#define MS_NS   1000000u
#define LOOK_MS 1000 /* between two looks where nothing asks for another time */

/*
 * What the control thread looks at. follow_look() is called when it is due only: what it measures and tries counts its
 * own looks.
 */
static unsigned look(void)
{
	uint64_t *due = &lifecycle_state.follow_due;

	if (clock_now() + MS_NS > *due) {
		unsigned ms = follow_look();

		*due = clock_now() + (uint64_t)(ms ? ms : LOOK_MS) * MS_NS;
	}
	unsigned pin_ms = pin_ahead_look();
	uint64_t now = clock_now();
	unsigned follow_ms = now < *due ? (unsigned)((*due - now) / MS_NS) + 1 : 1;

	return pin_ms && pin_ms < follow_ms ? pin_ms : follow_ms;
}

/* ---- what the modules do at start, fork and exit ---- */

static void start_modules(struct policy *read)
{
	const struct stats_about about = {
	    .policy = policy_name(read),
	    .policy_hash = policy_hash(read),
	    .mode = policy_spill_name(policy_settings(read)->spill),
	    .spillway = SPILLWAY_VERSION,
	};

	alloc_decide_start(read);
	/* The figures before every module that counts. */
	stats_open(&about);
	for (int rule = -1; rule < (int)policy_n_rules(read); rule++)
		stats_know_rule(rule, policy_rule_name(read, rule));
	control_give(control_request, sampler_tick, look, control_cut_off);
	trace_start(read, &sources);
	faults_listen(hear_one);
	pdl_start(policy_pdl(read));
	submission_on_take(&on_use_takes);
	check_start();
}

/*
 * The locks that a thread may hold in a process that has not started, in the order of their ranks. They are taken and
 * dropped around a fork, as mutexes: the fork does not follow the ranks. Locking: the caller must hold START.
 */
static struct lock *const fork_locks[] = {&capture_lock, &pool_lock, &peer_lock};
#define FORK_LOCKS (sizeof(fork_locks) / sizeof(*fork_locks))

/* In the child of a fork: gives up what belongs to the parent. Async-signal-safe. Locking: takes no lock. */
static void modules_child(void)
{
	signals_child();
	stats_child();
	quota_child();
	follow_child();
	spill_child();
	control_child();
	faults_child();
	ipc_child();
	trace_child();
}

/*
 * At exit: first requests from outside stop, then the figures become final, then the summary prints them. No driver
 * call is made: the driver may have ended already. is_running: the stage was RUNNING.
 */
static void end_modules(bool is_running)
{
	door_log_end();
	control_stop();
	if (is_running)
		sampler_sample();
	faults_end();
	ipc_stop();
	if (is_running) {
		check_end();
		stats_close();
		if (process_settings()->report != POLICY_REPORT_NONE &&
		    stats_get(STAT_allocations) + stats_get(STAT_refused)) {
			log_patience(SUMMARY_MS);
			exit_summary_print();
		}
	}
	quota_leave();
	follow_end();
}

/* ---- start ---- */

static void say_first(const struct policy_errors *errors)
{
	char text[640];

	for (size_t i = 0; i < errors->n_kept && i < 5; i++)
		log_line("%s", policy_error_format(&errors->kept[i], text, sizeof(text)));
}

static enum stage bad_policy(const struct policy_errors *errors)
{
	const char *value = secure_getenv("SPILLWAY_STRICT");
	bool strict = value && !strcmp(value, "1");

	say_first(errors);
	log_line("the policy has %zu error%s: %s (spillway check shows all)", errors->n_errors,
		 errors->n_errors == 1 ? "" : "s",
		 strict ? "SPILLWAY_STRICT=1, allocations will fail"
			: "everything is passed through to the driver, nothing can spill");
	return strict ? STAGE_REFUSE : STAGE_OFF;
}

/* `spillway run` has printed the warnings already if it set SPILLWAY_WARNED for the program. */
static void say_warnings(const struct policy_errors *errors)
{
	if (secure_getenv("SPILLWAY_WARNED"))
		return;
	say_first(errors);
	if (errors->n > 5)
		log_line("the policy has %zu warnings (spillway check shows all)", errors->n);
}

static enum stage read_policy(void)
{
	struct policy_errors errors;

	if (process_is_off())
		return STAGE_OFF;
	struct policy *read = policy_read(secure_getenv("SPILLWAY_POLICY"), secure_getenv("SPILLWAY_SET"), &errors);
	policy_warn_environment(environ, &errors);
	enum stage stage = STAGE_RUNNING;
	if (read) {
		say_warnings(&errors);
		lifecycle_state.owner = getpid();
		process_make_fork_page(modules_child);
		start_modules(read);
	} else {
		stage = bad_policy(&errors);
	}
	policy_errors_free(&errors);
	process_set_policy(read);
	return stage;
}

enum stage lifecycle_start(void)
{
	/* Before START is taken: binding may need the loader's lock, which a thread that waits for START may hold. */
	real_bind();
	call_site_bind();
	door_log_scan();
	lock_take(&start_lock);
	enum stage stage = process_stage();
	if (stage == STAGE_NEW) {
		stage = read_policy();
		atomic_store_explicit(&process_stage_now, stage, memory_order_release);
	}
	lock_drop(&start_lock);
	return stage;
}

/* ---- fork ---- */

static __thread bool fork_holds
    __attribute__((tls_model("initial-exec"))); /* this thread's before_fork() took the locks */

/*
 * Takes the locks only if the process has not started. The child of a running process takes none of them, since every
 * call passes through, and taking them here could deadlock: a thread of the library can hold HEAP inside a driver call
 * that waits for a lock which the driver's own fork handler has taken already. Before the start no driver call is made
 * under START. The mutexes are locked directly: the fork does not follow the ranks.
 */
static void before_fork(void)
{
	fork_holds = false;
	while (process_stage() == STAGE_NEW && !fork_holds) {
		if (pthread_mutex_trylock(&start_lock.mutex)) {
			sched_yield();
		} else if (process_stage() == STAGE_NEW) {
			for (size_t i = 0; i < FORK_LOCKS; i++)
				pthread_mutex_lock(&fork_locks[i]->mutex);
			fork_holds = true;
		} else {
			pthread_mutex_unlock(&start_lock.mutex);
		}
	}
}

static void let_go(void)
{
	if (!fork_holds)
		return;
	for (size_t i = FORK_LOCKS; i-- > 0;)
		pthread_mutex_unlock(&fork_locks[i]->mutex);
	pthread_mutex_unlock(&start_lock.mutex);
}

static void after_fork_parent(void)
{
	let_go();
	shared_forked(true);
}

static void after_fork_child(void)
{
	let_go();
	if (process_stage() == STAGE_RUNNING)
		atomic_store(&process_stage_now, STAGE_FORKED);
	modules_child();
}

__attribute__((constructor)) static void lifecycle_begin(void)
{
	libc_atfork(before_fork, after_fork_parent, after_fork_child);
	door_log_begin();
}

/* ---- exit ---- */

__attribute__((destructor)) static void lifecycle_end(void)
{
	enum stage stage = process_stage();

	/* In a child for which no fork handler ran (_Fork(), clone()), page, file and folder belong to the parent. */
	if (stage == STAGE_RUNNING && lifecycle_state.owner != getpid())
		return;
	end_modules(stage == STAGE_RUNNING);
	atomic_store(&process_stage_now, STAGE_ENDING);
	if (stage == STAGE_RUNNING) {
		managed_end();
		spill_end();
	}
	trace_end(); /* last: it records all of that */
}
