/* Whose memory this process has opened. See job_links.h. */
#include "shim/accounting/job_links.h"
#include "shim/accounting/accounting_state.h"
#include "shim/accounting/gpu_account.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"

#include <string.h>

/*
 * ns: who has given a handle out publishes it within 0.1 s, unless it is stopped; one that does not share a GPU never
 * does.
 */
#define FIND_NS 10000000000u

uint64_t job_links_name(const char *name)
{
	return *name ? rank_hash(rank_hash(0, "share.job"), name) : rank_together();
}

/* ---- on the threads of the program ---- */

static uint64_t number_of(const void *handle, size_t bytes)
{
	const unsigned char *at = handle;
	char text[2 * 64 + 1];
	size_t n = bytes < 64 ? bytes : 64;

	for (size_t i = 0; i < n; i++) {
		text[2 * i] = (char)('a' + (at[i] & 15));
		text[2 * i + 1] = (char)('a' + (at[i] >> 4));
	}
	text[2 * n] = 0;
	return rank_hash(0, text);
}

void job_links_gave(const void *handle, size_t bytes)
{
	struct links_state *const state = &accounting_state.links;
	uint64_t number = number_of(handle, bytes);

	for (unsigned i = 0; i < GPU_JOB_GIVEN; i++)
		if (atomic_load(&state->gave[i]) == number)
			return;
	atomic_store(&state->gave[atomic_fetch_add(&state->n_gave, 1) % GPU_JOB_GIVEN], number);
}

void job_links_took(const void *handle, size_t bytes)
{
	struct links_state *const state = &accounting_state.links;
	uint64_t number = number_of(handle, bytes);

	/* If more are opened at once than can be looked for, others of the same process will be. */
	for (unsigned i = 0; i < LINKS_TOOK; i++) {
		uint64_t found = 0;

		if (atomic_compare_exchange_strong(&state->took[i], &found, number) || found == number)
			return;
	}
}

/* ---- on the control thread ---- */

static void add(uint64_t process)
{
	struct links_state *const state = &accounting_state.links;

	for (unsigned i = 0; i < GPU_JOB_LINKS; i++) {
		if (state->found[i] && state->found[i] != process)
			continue;
		state->found[i] = process;
		return;
	}
	log_once(
	    "share: this process has opened memory of more than %d others: further ones are not taken to be of its "
	    "job (share.job names it)",
	    GPU_JOB_LINKS);
}

void job_links_find(uint64_t own, uint64_t now)
{
	struct links_state *const state = &accounting_state.links;
	uint64_t took[LINKS_TOOK], process[LINKS_TOOK];
	bool any = false;

	for (unsigned i = 0; i < LINKS_TOOK; i++) {
		took[i] = atomic_load(&state->took[i]);
		any |= took[i] != 0;
		if (state->looks_for[i] != took[i])
			state->since[i] = now;
		state->looks_for[i] = took[i];
	}
	if (!any)
		return;
	gpu_account_givers(took, LINKS_TOOK, process);
	for (unsigned i = 0; i < LINKS_TOOK; i++) {
		if (process[i] && process[i] != own)
			add(process[i]);
		if (process[i] || now - state->since[i] >= FIND_NS)
			atomic_compare_exchange_strong(&state->took[i], &took[i], 0);
	}
}

void job_links_put(struct gpu_job_claim *claim)
{
	for (unsigned i = 0; i < GPU_JOB_LINKS; i++)
		gpu_job_link(claim, accounting_state.links.found[i]);
}

void job_links_given(uint64_t ret_given[GPU_JOB_GIVEN])
{
	for (unsigned i = 0; i < GPU_JOB_GIVEN; i++)
		ret_given[i] = atomic_load(&accounting_state.links.gave[i]);
}

void job_links_child(void)
{
	memset(&accounting_state.links, 0, sizeof(accounting_state.links));
}
