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

/* Before the start; may run several times. Locking: the caller must hold no lock: the loader's may be needed. */
static void bind_modules(void)
{
	real_bind();
	alloc_decide_bind();
	door_log_scan();
}

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
	stats_open(&about, true);
	for (int rule = -1; rule < (int)policy_n_rules(read); rule++)
		stats_know_rule(rule, policy_rule_name(read, rule));
	control_give(control_request, sampler_tick, look, control_cut_off);
	/* The trace before the sampler, which gives it the faults. */
	trace_start(read, &sources);
	sampler_start(read);
	pdl_start(policy_pdl(read));
	submission_on_take(&on_use_takes);
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
		stats_close();
		exit_summary_end();
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
	struct policy *read;

	if (process_is_off())
		return STAGE_OFF;
	read = policy_read(secure_getenv("SPILLWAY_POLICY"), secure_getenv("SPILLWAY_SET"), &errors);
	policy_warn_environment(environ, &errors);
	enum stage stage = STAGE_RUNNING;
	if (read) {
		say_warnings(&errors);
		lifecycle_state.owner = getpid();
		process_on_cloned(modules_child);
		process_make_fork_page();
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
	bind_modules();
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
	if (stage == STAGE_RUNNING)
		spill_end();
	trace_end(); /* last: it records all of that */
}
