/*
 * Start, fork and exit. modules.c says in which order modules take part in them.
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
#include "shim/lifecycle/lifecycle.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/lifecycle/modules.h"

#include <pthread.h>
#include <sched.h>
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

static enum stage read_policy(void)
{
	struct policy_errors errors;
	struct policy *read;

	if (process_is_off())
		return STAGE_OFF;
	read = policy_read(secure_getenv("SPILLWAY_POLICY"), secure_getenv("SPILLWAY_SET"), &errors);
	enum stage stage = read ? STAGE_RUNNING : bad_policy(&errors);
	if (read)
		say_warnings(&errors);
	policy_errors_free(&errors);
	if (read) {
		owner = getpid();
		process_on_cloned(modules_child);
		process_make_fork_page();
		modules_start(read);
	}
	process_set_policy(read);
	return stage;
}

enum stage lifecycle_start(void)
{
	/* Not under START: binding may need the loader's lock, which a thread that waits for START may hold. */
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
 * The child of a running process touches none of our locks: every door passes through. So none is taken then, and none
 * may be: a thread of ours can hold HEAP inside a driver call that waits for a lock which the driver's own fork handler
 * has taken already. Before that START is never held over a driver call. Bare mutexes: ranks are not the fork's.
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

static void after_fork_parent(void)
{
	if (!fork_holds)
		return;
	modules_unlock();
	pthread_mutex_unlock(&start_lock.mutex);
}

static void after_fork_child(void)
{
	after_fork_parent();
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

	/* A child that no handler of fork() was told of (_Fork(), clone()): page, file and folder are its parent's. */
	if (stage == STAGE_RUNNING && owner != getpid())
		return;
	modules_end(stage == STAGE_RUNNING);
	atomic_store(&process_stage_now, STAGE_ENDING);
	modules_end_late(stage == STAGE_RUNNING);
}
