// SPDX-License-Identifier: Apache-2.0
/*
 * sim_fail.c: calls that fail though nothing is wrong with them: those that were ordered (sim.h), and those of one
 * thread now and then. And calls that by order hold all work, or stand still.
 *
 * The rows of all entry points lie in the linker section sim_entries (SIM_SPELL), so an order for a name needs no
 * registration; a name may have two rows, a weak stub and the strong body, and orders go to both.
 */
#include "sim_internal.h"
#include <sys/prctl.h>

static unsigned fail_any_at;
static CUresult fail_any_with;

/* SIM_FAIL_THREAD=name:n, name:n:ms */
static struct {
	char name[16];
	unsigned n, ms;
	uint64_t random, until; /* the driver maps nothing until then */
} often;

/* SIM_FAIL=name:n:code,name:n:code */
static void read_orders(const char *text)
{
	char name[128];
	unsigned n;
	int code, used;

	while (text && sscanf(text, "%127[^:]:%u:%d%n", name, &n, &code, &used) == 3) {
		sim_fail(name, n, (CUresult)code);
		text += used;
		text = *text == ',' ? text + 1 : NULL;
	}
}

void sim_fail_read(void)
{
	const char *text = getenv("SIM_FAIL_THREAD");

	read_orders(getenv("SIM_FAIL"));
	if (text && sscanf(text, "%15[^:]:%u:%u", often.name, &often.n, &often.ms) < 2)
		fprintf(stderr, "sim: cannot read SIM_FAIL_THREAD=%s\n", text);
	often.random = sim.set.seed;
}

/* Threads are named before their first call. */
static bool is_the_one(void)
{
	static __thread enum { UNKNOWN, NO, YES } known;
	char name[16];

	if (known == UNKNOWN)
		known = prctl(PR_GET_NAME, name) == 0 && !strcmp(name, often.name) ? YES : NO;
	return known == YES;
}

static bool fails_by_chance(const char *name, CUresult *ret_error)
{
	if (!often.n || !is_the_one())
		return false;
	if (often.until && (!strcmp(name, "cuMemMap") || !strcmp(name, "cuMemSetAccess"))) {
		*ret_error = CUDA_ERROR_OUT_OF_MEMORY;
		if (test_now() / 1000000 < often.until)
			return true;
		often.until = 0;
	}
	often.random = often.random * 6364136223846793005u + 1442695040888963407u;
	if ((often.random >> 33) % often.n)
		return false;
	if (often.ms)
		often.until = test_now() / 1000000 + (often.random >> 40) % often.ms;
	*ret_error = often.random >> 32 & 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
	return true;
}

/* Does sim_fail_any mean this entry point? Those that allocate, map, free or unmap. */
static bool is_memory_call(const char *name)
{
	static const char *const prefixes[] = {"cuMemAlloc",     "cuMemFree",   "cuMemAddress",   "cuMemHostAlloc",
					       "cuMemHostReg",   "cuMemHostUn", "cuMemCreate",    "cuMemRelease",
					       "cuMemMap",       "cuMemUnmap",  "cuMemSetAccess", "cuMemRetain",
					       "cuMemPoolCreate"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static bool fails_by_order(struct sim_entry *entry, CUresult *ret_error)
{
	if (entry->fail_at && --entry->fail_at == 0) {
		*ret_error = entry->fail_with;
		entry->fail_with = entry->next_with;
		entry->fail_at = entry->next_with != CUDA_SUCCESS;
		entry->next_with = CUDA_SUCCESS;
		for (struct sim_entry *const *row = __start_sim_entries; entry->then && row < __stop_sim_entries; row++)
			if (!strcmp((*row)->name, entry->then))
				(*row)->refused = entry->then_times;
		return true;
	}
	if (entry->refused) {
		entry->refused--;
		*ret_error = CUDA_ERROR_UNKNOWN;
		return true;
	}
	if (fail_any_at && is_memory_call(entry->name) && --fail_any_at == 0) {
		*ret_error = fail_any_with;
		return true;
	}
	return false;
}

static unsigned n_stalled, n_let_go;

/* Until sim_go_on(), which is for all who stand still by then. */
static void stand_still(void)
{
	unsigned before = n_let_go;

	n_stalled++;
	while (n_let_go == before)
		sim_wait();
	n_stalled--;
}

bool sim_fails(struct sim_entry *entry, CUresult *ret_error)
{
	if (entry->stall_at && --entry->stall_at == 0)
		stand_still();
	if (entry->hold_at && --entry->hold_at == 0)
		sim.held = true;
	return fails_by_order(entry, ret_error) || fails_by_chance(entry->name, ret_error);
}

/* ---- the controls ---- */

static void order(const char *name, struct sim_entry what)
{
	bool known = false;

	sim_start();
	sim_lock();
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries; row++) {
		if (strcmp((*row)->name, name))
			continue;
		(*row)->fail_at = what.fail_at;
		(*row)->fail_with = what.fail_with;
		(*row)->next_with = what.next_with;
		(*row)->then = what.then;
		(*row)->then_times = what.then_times;
		known = true;
	}
	sim_unlock();
	if (!known)
		fprintf(stderr, "sim_fail: no entry point is called \"%s\"\n", name);
}

SIM_EXPORT void sim_fail(const char *name, unsigned n, CUresult error)
{
	order(name, (struct sim_entry){.fail_at = n, .fail_with = error});
}

SIM_EXPORT void sim_fail_next(const char *name, unsigned n, CUresult error, CUresult next)
{
	order(name, (struct sim_entry){.fail_at = n, .fail_with = error, .next_with = next});
}

SIM_EXPORT void sim_fail_then(const char *name, unsigned n, CUresult error, const char *then, unsigned times)
{
	order(name, (struct sim_entry){.fail_at = n, .fail_with = error, .then = then, .then_times = times});
}

SIM_EXPORT void sim_hold_at(const char *name, unsigned n)
{
	sim_start();
	sim_lock();
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries; row++)
		if (!strcmp((*row)->name, name))
			(*row)->hold_at = n;
	sim_unlock();
}

SIM_EXPORT void sim_stall_at(const char *name, unsigned n)
{
	sim_start();
	sim_lock();
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries; row++)
		if (!strcmp((*row)->name, name))
			(*row)->stall_at = n;
	sim_unlock();
}

SIM_EXPORT unsigned sim_stalled(void)
{
	sim_lock();
	unsigned n = n_stalled;
	sim_unlock();
	return n;
}

SIM_EXPORT void sim_go_on(void)
{
	sim_start();
	sim_lock();
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries; row++)
		(*row)->stall_at = 0;
	n_let_go++;
	pthread_cond_broadcast(&sim.progress);
	sim_unlock();
}

SIM_EXPORT void sim_fail_any(unsigned n, CUresult error)
{
	sim_start();
	sim_lock();
	fail_any_at = n;
	fail_any_with = error;
	sim_unlock();
}

/* Of the two rows of a name only the strong one is ever called: a pending order on the weak one says nothing. */
static bool is_live_row(const struct sim_entry *entry)
{
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries; row++)
		if (*row != entry && !strcmp((*row)->name, entry->name) && !(*row)->fail_at)
			return false;
	return true;
}

SIM_EXPORT bool sim_fail_pending(void)
{
	sim_lock();
	bool pending = fail_any_at;
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries && !pending; row++)
		pending = (*row)->fail_at && is_live_row(*row);
	sim_unlock();
	return pending;
}
