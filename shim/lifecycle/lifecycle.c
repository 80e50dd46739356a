/*
 * Start, fork and exit of the process. modules.c has the order in which modules take part.
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
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/accounting/shared_file.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/lifecycle/modules.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	shared_forked();
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
