/*
 * Start, fork and exit, in one place.
 *
 * Start: nothing happens when the library is loaded. The first name a program asks for that begins "cu" decides whether
 * SPILLWAY=0; the first request that needs the policy reads it, under START. A process that never gets there stays
 * silent, leaves no file, and has paid for loading a library.
 *
 * Fork: all locks are taken in rank order before, and dropped after, in both. CUDA does not survive a fork; the child
 * of a process that was running passes everything through for good, so that the driver itself gives its answer. The
 * child of a process that had not used CUDA starts fresh.
 *
 * Exit: print the summary, set ENDING, make no CUDA call: the driver may be gone already.
 */
#include "shim/capture.h"
#include "shim/device.h"
#include "shim/enter.h"
#include "shim/ledger.h"
#include "shim/log.h"
#include "shim/pending.h"
#include "shim/pool.h"
#include "shim/stats.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic int life_stage_now = STAGE_NEW;
struct lock start_lock = LOCK_INIT(LOCK_START);
__thread unsigned enter_depth __attribute__((tls_model("initial-exec")));

static const struct policy *policy;

bool life_is_off(void)
{
	static _Atomic int known; /* 0 not yet, 1 on, 2 off */
	int now = atomic_load_explicit(&known, memory_order_relaxed);

	if (!now) {
		const char *value = secure_getenv("SPILLWAY");

		now = value && !strcmp(value, "0") ? 2 : 1;
		atomic_store_explicit(&known, now, memory_order_relaxed);
	}
	return now == 2;
}

const struct policy *life_policy(void)
{
	return policy;
}

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

static enum stage read_policy(void)
{
	struct policy_errors errors;
	struct policy *read;

	if (life_is_off())
		return STAGE_OFF;
	read = policy_read(secure_getenv("SPILLWAY_POLICY"), secure_getenv("SPILLWAY_SET"), &errors);
	enum stage stage = read ? STAGE_RUNNING : bad_policy(&errors);
	policy_errors_free(&errors);
	policy = read;
	return stage;
}

enum stage life_start(void)
{
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

static void each_heap(struct device *device, void *argument)
{
	void (*act)(struct lock *) = *(void (**)(struct lock *))argument;
	struct heap *heap = atomic_load(&device->heap);

	if (heap)
		act(heap_lock(heap));
}

/*
 * Ranks are kept by thread; the thread that forks is the one that takes and drops, so the mutexes are used bare: several
 * heaps share one rank, and here alone are all of them held at once.
 */
static void take_bare(struct lock *lock)
{
	pthread_mutex_lock(&lock->mutex);
}

static void drop_bare(struct lock *lock)
{
	pthread_mutex_unlock(&lock->mutex);
}

static void for_all_locks(void (*act)(struct lock *))
{
	act(&start_lock);
	act(&capture_lock);
	act(&pending_lock);
	act(&pool_lock);
	device_each(each_heap, &act);
	act(&ledger_lock);
}

static void before_fork(void)
{
	for_all_locks(take_bare);
}

static void after_fork_parent(void)
{
	for_all_locks(drop_bare);
}

static void after_fork_child(void)
{
	for_all_locks(drop_bare);
	if (life_stage() == STAGE_RUNNING)
		atomic_store(&life_stage_now, STAGE_FORKED);
}

__attribute__((constructor)) static void life_begin(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* ---- exit ---- */

static void line_of_place(enum place place, uint64_t limit)
{
	char live[32], peak[32], most[32];

	if (!stats_peak(place))
		return;
	log_line("  %-7s %11s live at exit, %11s at most%s%s", stats_place_name(place),
		 log_bytes(live, sizeof(live), stats_live(place)), log_bytes(peak, sizeof(peak), stats_peak(place)),
		 limit ? ", budget " : "", limit ? log_bytes(most, sizeof(most), limit) : "");
}

static void add_budget(struct device *device, void *argument)
{
	if (atomic_load(&device->heap))
		*(uint64_t *)argument += atomic_load(&device->budget.limit);
}

void life_print_summary(void)
{
	uint64_t budget = 0;
	char spilled[32], names[200];

	device_each(add_budget, &budget);
	log_line("summary of process %d, policy %s, spill %s", getpid(), policy_name(policy),
		 policy_spill_name(policy_spill_mode(policy)));
	line_of_place(PLACE_DEVICE, budget);
	line_of_place(PLACE_HOST, atomic_load(&host_budget.limit));
	line_of_place(PLACE_MANAGED, 0);
	line_of_place(PLACE_SYSTEM, 0);
	line_of_place(PLACE_DRIVER, 0);
	line_of_place(PLACE_PINNED, 0);
	log_line("  %llu allocations, %llu frees, %llu refused, %llu left to the driver",
		 (unsigned long long)stats_get(STAT_allocations), (unsigned long long)stats_get(STAT_frees),
		 (unsigned long long)stats_get(STAT_refused), (unsigned long long)stats_get(STAT_passed));
	if (stats_get(STAT_spilled_allocations))
		log_line("  spilled %s in %llu allocations: GPU reads of it go over the link",
			 log_bytes(spilled, sizeof(spilled), stats_get(STAT_spilled_bytes)),
			 (unsigned long long)stats_get(STAT_spilled_allocations));
	else
		log_line("  nothing was spilled");
	if (stats_get(STAT_unknown_names))
		log_line("  %llu entry points asked for that we do not know: %s",
			 (unsigned long long)stats_get(STAT_unknown_names), stats_unknown_names(names, sizeof(names)));
}

__attribute__((destructor)) static void life_end(void)
{
	enum stage stage = life_stage();

	if (stage == STAGE_RUNNING && policy_summary(policy) &&
	    stats_get(STAT_allocations) + stats_get(STAT_refused) > 0)
		life_print_summary();
	atomic_store(&life_stage_now, STAGE_ENDING);
}
