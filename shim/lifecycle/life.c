/*
 * Start, fork and exit, in one place.
 *
 * Start: nothing happens when the library is loaded. The first name a program asks for that begins "cu" decides whether
 * SPILLWAY=0; the first request that needs the policy reads it, under START. A process that never gets there stays
 * silent, leaves no file, and has paid for loading a library.
 *
 * Fork: CUDA does not survive it. The child of a process that was running passes everything through for good, so that
 * the driver itself gives its answer. The child of a process that had not used CUDA starts fresh; the locks that may
 * be in use by then are taken before the fork and dropped after it.
 *
 * Exit: take no more requests from outside (control.h), print the summary, set ENDING, make no CUDA call: the driver may
 * be gone already.
 */
#include "shim/context/capture.h"
#include "shim/serve/choice.h"
#include "shim/base/clock.h"
#include "shim/serve/control.h"
#include "shim/device/device.h"
#include "shim/driver/doors.h"
#include "shim/process/process.h"
#include "shim/faults/faults.h"
#include "shim/accounting/ledger.h"
#include "shim/serve/ipc.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/device/peer.h"
#include "shim/device/pool.h"
#include "shim/lifecycle/control_request.h"
#include "shim/lifecycle/life.h"
#include "shim/lifecycle/pulse.h"
#include "shim/lifecycle/trace_sources.h"
#include "shim/accounting/quota.h"
#include "shim/mover/spill.h"
#include "shim/stats/stats.h"
#include "shim/submit/pdl.h"
#include "shim/stats/summary.h"
#include "shim/trace/trace.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t owner; /* the process that is running */

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

/* `spillway run` has said them already, and the program that it started has the variable that says so. */
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

static void open_stats(const struct policy *read)
{
	const struct stats_about about = {
	    .policy = policy_name(read),
	    .policy_hash = policy_hash(read),
	    .mode = policy_spill_name(policy_spill_mode(read)),
	    .spillway = SPILLWAY_VERSION,
	};

	stats_open(&about, true);
	for (int rule = -1; rule < (int)policy_n_rules(read); rule++)
		stats_know_rule(rule, policy_rule_name(read, rule));
}

/* What belongs to the parent is let go of. */
static void let_go(void)
{
	stats_child();
	quota_child();
	spill_child();
	control_child();
	faults_child();
	ipc_child();
	trace_child();
}

static enum stage read_policy(void)
{
	struct policy_errors errors;
	struct policy *read;

	if (life_is_off())
		return STAGE_OFF;
	read = policy_read(secure_getenv("SPILLWAY_POLICY"), secure_getenv("SPILLWAY_SET"), &errors);
	enum stage stage = read ? STAGE_RUNNING : bad_policy(&errors);
	if (read)
		say_warnings(&errors);
	policy_errors_free(&errors);
	if (read) {
		owner = getpid();
		process_on_cloned(let_go);
		process_mark();
		choice_start(read);
		open_stats(read);
		trace_start(read, &trace_sources);
		pulse_start(read);
		control_give(control_request, pulse_tick);
		pdl_start(policy_pdl(read));
	}
	process_set_policy(read);
	return stage;
}

enum stage life_start(void)
{
	/* Not under START: binding may need the loader's lock, which a thread that waits for START may hold. */
	real_bind();
	choice_bind();
	doors_scan();
	lock_take(&start_lock);
	enum stage stage = life_stage();
	if (stage == STAGE_NEW) {
		stage = read_policy();
		atomic_store_explicit(&life_stage_now, stage, memory_order_release);
	}
	lock_drop(&start_lock);
	return stage;
}

/* ---- fork ---- */

static __thread bool fork_holds
    __attribute__((tls_model("initial-exec"))); /* this thread's before_fork() took the locks */

/*
 * The child of a running process touches none of our locks: every door passes through. So none is taken then, and none
 * may be: a thread of ours can hold HEAP inside a driver call that waits for a lock which the driver's own fork handler
 * has taken already. Before that START is never held over a driver call. Bare mutexes: ranks are not the fork's.
 */
static void before_fork(void)
{
	fork_holds = false;
	while (life_stage() == STAGE_NEW && !fork_holds) {
		if (pthread_mutex_trylock(&start_lock.mutex)) {
			sched_yield();
		} else if (life_stage() == STAGE_NEW) {
			pthread_mutex_lock(&capture_lock.mutex);
			pthread_mutex_lock(&pool_lock.mutex);
			pthread_mutex_lock(&peer_lock.mutex);
			fork_holds = true;
		} else {
			pthread_mutex_unlock(&start_lock.mutex);
		}
	}
}

static void after_fork_parent(void)
{
	if (!fork_holds)
		return;
	pthread_mutex_unlock(&peer_lock.mutex);
	pthread_mutex_unlock(&pool_lock.mutex);
	pthread_mutex_unlock(&capture_lock.mutex);
	pthread_mutex_unlock(&start_lock.mutex);
}

static void after_fork_child(void)
{
	after_fork_parent();
	if (life_stage() == STAGE_RUNNING)
		atomic_store(&life_stage_now, STAGE_FORKED);
	let_go();
}

__attribute__((constructor)) static void life_begin(void)
{
	libc_atfork(before_fork, after_fork_parent, after_fork_child);
	doors_begin();
}

/* ---- exit ---- */

/* The summary waits for a reader that is behind, but the program shall end. */
#define SUMMARY_MS 1000

void life_print_summary(void)
{
	static struct summary summary; /* large, and at exit the stack may be small */
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	char names[200];

	/* At exit nobody may be waited for: a thread that was in here may have ended with it. */
	if (pthread_mutex_trylock(&one))
		return;
	pulse();
	summary_make(&stats, clock_now(), *trace_path() ? trace_path() : NULL, &summary);
	for (unsigned i = 0; i < summary.n; i++)
		log_line("%s", summary.line[i].text);
	if (policy_observe(life_policy()))
		choice_print();
	if (stats_get(STAT_unknown_names))
		log_line("  %llu entry points asked for that we do not know: %s",
			 (unsigned long long)stats_get(STAT_unknown_names), stats_unknown_names(names, sizeof(names)));
	pthread_mutex_unlock(&one);
}

__attribute__((destructor)) static void life_end(void)
{
	enum stage stage = life_stage();

	/* A child that no handler of fork() was told of (_Fork(), clone()): page, file and folder are its parent's. */
	if (stage == STAGE_RUNNING && owner != getpid())
		return;
	doors_end();
	control_stop();
	if (stage == STAGE_RUNNING)
		pulse();
	faults_end();
	ipc_stop();
	if (stage == STAGE_RUNNING)
		stats_close();
	if (stage == STAGE_RUNNING && policy_summary(life_policy()) &&
	    stats_get(STAT_allocations) + stats_get(STAT_refused) > 0) {
		log_patience(SUMMARY_MS);
		life_print_summary();
	}
	quota_leave();
	atomic_store(&life_stage_now, STAGE_ENDING);
	if (stage == STAGE_RUNNING)
		spill_end();
	trace_end();
}
