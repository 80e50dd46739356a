/*
 * Start, fork and exit of the process: what each module does then, and in which order. Two tables give the order.
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
#include "shim/accounting/quota.h"
#include "shim/accounting/shared_file.h"
#include "shim/base/clock.h"
#include "shim/base/libc.h"
#include "shim/base/lock.h"
#include "shim/base/log.h"
#include "shim/context/capture.h"
#include "shim/device/device.h"
#include "shim/device/peer.h"
#include "shim/device/pool.h"
#include "shim/driver/door_log.h"
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/lifecycle/control_request.h"
#include "shim/lifecycle/follow.h"
#include "shim/lifecycle/types.h"
#include "shim/lifecycle/sampler.h"
#include "shim/mover/spill.h"
#include "shim/serve/alloc_decide.h"
#include "shim/serve/ipc.h"
#include "shim/serve/named.h"
#include "shim/stats/stats.h"
#include "shim/submit/arguments.h"
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

struct visit {
	void (*visit)(const struct trace_source_device *device, void *argument);
	void *argument;
};

static void visit_one(struct device *device, void *argument)
{
	const struct visit *visit = argument;
	struct trace_source_device source = {
	    .ordinal = device->ordinal, .total = device->total, .sample = {.kind = TRACE_bytes}};

	if ((unsigned)device->ordinal < STATS_DEVICES)
		trace_sources_sample(device, &source);
	visit->visit(&source, visit->argument);
}

static void each_device(void (*visit)(const struct trace_source_device *device, void *argument), void *argument)
{
	device_each(visit_one, &(struct visit){visit, argument});
}

static const struct trace_sources sources = {
    .each_device = each_device,
    .function_name = kernel_params_name,
    .function_generation = kernel_params_generation,
    .submissions = submission_set_trace,
};

/* ---- adapters for functions of modules ---- */

static void bind_driver(void)
{
	real_bind();
}

static void start_stats(struct policy *read)
{
	const struct stats_about about = {
	    .policy = policy_name(read),
	    .policy_hash = policy_hash(read),
	    .mode = policy_spill_name(policy_settings(read)->spill),
	    .spillway = SPILLWAY_VERSION,
	};

	stats_open(&about, true);
	for (int rule = -1; rule < (int)policy_n_rules(read); rule++)
		stats_know_rule(rule, policy_rule_name(read, rule));
}

#define MS_NS   1000000u
#define LOOK_MS 1000 /* between two looks where nothing asks for another time */

/*
 * What the control thread looks at. follow_look() is called when it is due only: what it measures and tries counts its
 * own looks.
 */
static unsigned look(void)
{
	struct looks_state *const state = &lifecycle_state.looks;

	if (clock_now() + MS_NS > state->follow_due) {
		unsigned ms = follow_look();

		state->follow_due = clock_now() + (uint64_t)(ms ? ms : LOOK_MS) * MS_NS;
	}
	unsigned pin_ms = pin_ahead_look();
	uint64_t now = clock_now();
	unsigned follow_ms = now < state->follow_due ? (unsigned)((state->follow_due - now) / MS_NS) + 1 : 1;

	return pin_ms && pin_ms < follow_ms ? pin_ms : follow_ms;
}

static void start_control(struct policy *policy)
{
	(void)policy;
	control_give(control_request, sampler_tick, look, control_cut_off);
}

static void start_trace(struct policy *policy)
{
	trace_start(policy, &sources);
}

static void start_sampler(struct policy *policy)
{
	sampler_start(policy);
}

static void start_pdl(struct policy *policy)
{
	pdl_start(policy_pdl(policy));
}

static void end_stats(void)
{
	stats_close();
}

static void start_on_use(struct policy *policy)
{
	(void)policy;
	submission_on_take(&on_use_takes);
}

/* ---- the tables ---- */

/*
 * Each column is called from the first row to the last; the locks are dropped from the last to the first. A module that
 * does nothing at load, bind, start or fork has no row.
 */
static const struct {
	void (*load)(void);
	void (*bind)(void);
	void (*start)(struct policy *policy);
	struct lock *lock;
	void (*child)(void);
} modules[] = {
    /* real    */ {.bind = bind_driver},
    /* capture */ {.lock = &capture_lock},
    /* pool    */ {.lock = &pool_lock},
    /* peer    */ {.lock = &peer_lock},
    /* choice  */ {.bind = alloc_decide_bind, .start = alloc_decide_start},
    /* doors   */ {.load = door_log_begin, .bind = door_log_scan},
    /* stats   */ {.start = start_stats, .child = stats_child}, /* before every module that counts */
    /* quota   */ {.child = quota_child},
    /* follow  */ {.child = follow_child},
    /* spill   */ {.child = spill_child},
    /* control */ {.start = start_control, .child = control_child},
    /* faults  */ {.child = faults_child},
    /* ipc     */ {.child = ipc_child},
    /* trace   */ {.start = start_trace, .child = trace_child},
    /* sampler */ {.start = start_sampler}, /* after the trace, which receives the faults */
    /* pdl     */ {.start = start_pdl},
    /* on use  */ {.start = start_on_use},
};

/*
 * The exit has a separate order: first requests from outside stop, then the figures become final, then the summary
 * prints them. The trace, which records all of that, ends last.
 */
static const struct {
	void (*end)(void);
	bool if_running; /* called only if the stage was STAGE_RUNNING */
	bool late;       /* called after the stage is ENDING */
} ends[] = {
    {.end = door_log_end},
    {.end = control_stop},
    {.end = sampler_sample, .if_running = true},
    {.end = faults_end},
    {.end = ipc_stop},
    {.end = end_stats, .if_running = true},
    {.end = exit_summary_end, .if_running = true},
    {.end = quota_leave},
    {.end = follow_end},
    {.end = spill_end, .if_running = true, .late = true},
    {.end = trace_end, .late = true},
};

#define N_MODULES (sizeof(modules) / sizeof(modules[0]))
#define N_ENDS    (sizeof(ends) / sizeof(ends[0]))

/* ---- calling the modules ---- */

static void modules_load(void)
{
	for (size_t i = 0; i < N_MODULES; i++)
		if (modules[i].load)
			modules[i].load();
}

/* May run several times. Locking: the caller must hold no lock: the loader's may be needed. */
static void modules_bind(void)
{
	for (size_t i = 0; i < N_MODULES; i++)
		if (modules[i].bind)
			modules[i].bind();
}

static void modules_start(struct policy *policy)
{
	for (size_t i = 0; i < N_MODULES; i++)
		if (modules[i].start)
			modules[i].start(policy);
}

/*
 * Take and drop, around a fork of a process that has not started, the locks that a thread may hold by then, in the
 * order of their ranks. They use the mutexes directly: the fork does not follow the ranks. Locking: the caller must
 * hold START.
 */
static void modules_lock(void)
{
	for (size_t i = 0; i < N_MODULES; i++)
		if (modules[i].lock)
			pthread_mutex_lock(&modules[i].lock->mutex);
}

static void modules_unlock(void)
{
	for (size_t i = N_MODULES; i-- > 0;)
		if (modules[i].lock)
			pthread_mutex_unlock(&modules[i].lock->mutex);
}

/* In the child of a fork: gives up what belongs to the parent. Async-signal-safe. Locking: takes no lock. */
static void modules_child(void)
{
	for (size_t i = 0; i < N_MODULES; i++)
		if (modules[i].child)
			modules[i].child();
}

/* At exit. Makes no driver call: the driver may have ended already. */
static void end_those(bool late, bool is_running)
{
	for (size_t i = 0; i < N_ENDS; i++)
		if (ends[i].late == late && (is_running || !ends[i].if_running))
			ends[i].end();
}

static void modules_end(bool is_running)
{
	end_those(false, is_running);
}

static void modules_end_late(bool is_running)
{
	end_those(true, is_running);
}

/* ---- start ---- */

static bool is_strict(void)
{
	const char *value = secure_getenv("SPILLWAY_STRICT");

	return value && !strcmp(value, "1");
}

static enum stage bad_policy(const struct policy_errors *errors)
{
	bool strict = is_strict();
	char text[640];

	for (size_t i = 0; i < errors->n_kept && i < 5; i++)
		log_line("%s", policy_error_format(&errors->kept[i], text, sizeof(text)));
	log_line("the policy has %zu error%s: %s (spillway check shows all)", errors->n_errors,
		 errors->n_errors == 1 ? "" : "s",
		 strict ? "SPILLWAY_STRICT=1, allocations will fail"
			: "everything is passed through to the driver, nothing can spill");
	return strict ? STAGE_REFUSE : STAGE_OFF;
}

/* `spillway run` has printed the warnings already if it set SPILLWAY_WARNED for the program. */
static void say_warnings(const struct policy_errors *errors)
{
	char text[640];

	if (secure_getenv("SPILLWAY_WARNED"))
		return;
	for (size_t i = 0; i < errors->n_kept && i < 5; i++)
		log_line("%s", policy_error_format(&errors->kept[i], text, sizeof(text)));
	if (errors->n > 5)
		log_line("the policy has %zu warnings (spillway check shows all)", errors->n);
}

static enum stage read_policy(void)
{
	struct policy_errors errors;
	struct policy *read;

	if (process_is_off())
		return STAGE_OFF;
	read = policy_read(secure_getenv("SPILLWAY_POLICY"), secure_getenv("SPILLWAY_SET"), &errors);
	policy_warn_environment(environ, &errors);
	enum stage stage = read ? STAGE_RUNNING : bad_policy(&errors);
	if (read)
		say_warnings(&errors);
	policy_errors_free(&errors);
	if (read) {
		lifecycle_state.owner = getpid();
		process_on_cloned(modules_child);
		process_make_fork_page();
		modules_start(read);
	}
	process_set_policy(read);
	return stage;
}

enum stage lifecycle_start(void)
{
	/* Before START is taken: binding may need the loader's lock, which a thread that waits for START may hold. */
	modules_bind();
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
			modules_lock();
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
	modules_unlock();
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
	modules_load();
}

/* ---- exit ---- */

__attribute__((destructor)) static void lifecycle_end(void)
{
	enum stage stage = process_stage();

	/* In a child for which no fork handler ran (_Fork(), clone()), page, file and folder belong to the parent. */
	if (stage == STAGE_RUNNING && lifecycle_state.owner != getpid())
		return;
	modules_end(stage == STAGE_RUNNING);
	atomic_store(&process_stage_now, STAGE_ENDING);
	modules_end_late(stage == STAGE_RUNNING);
}
