/* Whose memory this process has opened. See job_links.h. */
#include "shim/accounting/job_links.h"
#include "shim/accounting/accounting_state.h"
#include "shim/accounting/gpu_account.h"
#include "shim/base/identity.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/base/user_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static void look_for(uint64_t number)
{
	struct links_state *const state = &accounting_state.links;

	/* If more are opened at once than can be looked for, others of the same process will be. */
	for (unsigned i = 0; i < LINKS_TOOK; i++) {
		uint64_t found = 0;

		if (atomic_compare_exchange_strong(&state->took[i], &found, number) || found == number)
			return;
	}
}

void job_links_took(const void *handle, size_t bytes)
{
	look_for(number_of(handle, bytes));
}

void job_links_exported(const void *handle, CUmemAllocationHandleType type)
{
	int saved = errno;

	if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
		job_links_gave(handle, sizeof(CUmemFabricHandle));
	} else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
		int file = *(const int *)handle;

		/* If it has one, it is an open file that was exported before, or the program needs its owner. */
		if (fcntl(file, F_GETOWN) == 0)
			fcntl(file, F_SETOWN, getpid());
	}
	errno = saved;
}

static void took_file_of(pid_t owner)
{
	struct links_state *const state = &accounting_state.links;

	for (unsigned i = 0; i < LINKS_TOOK; i++) {
		int found = 0;

		if (atomic_compare_exchange_strong(&state->owners[i], &found, owner) || found == owner)
			return;
	}
}

void job_links_imported(const void *handle, CUmemAllocationHandleType type)
{
	int saved = errno;

	if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
		job_links_took(handle, sizeof(CUmemFabricHandle));
	} else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
		pid_t owner = fcntl((int)(intptr_t)handle, F_GETOWN);

		/* Negative: a group of processes, which the program has set. */
		if (owner <= 0)
			atomic_store(&accounting_state.links.is_strange, true);
		else if (owner != getpid())
			took_file_of(owner);
	}
	errno = saved;
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

static void find_owners(void)
{
	struct links_state *const state = &accounting_state.links;

	for (unsigned i = 0; i < LINKS_TOOK; i++) {
		pid_t pid = atomic_load(&state->owners[i]);
		uint64_t started = pid ? user_dir_process_started(pid) : 0;

		if (!pid)
			continue;
		/* If it has ended, there is nobody to wait for. */
		if (started && identity_space_of(pid) == identity_space())
			look_for(gpu_account_number((uint64_t)pid, started, identity_space()));
		else if (started)
			atomic_store(&state->is_strange, true);
		atomic_store(&state->owners[i], 0);
	}
	if (atomic_load(&state->is_strange))
		log_once("share: this process has imported memory by a file descriptor of which it is not known who "
			 "exported it: if that process takes turns, too, set share.job to the same name for both");
}

void job_links_find(uint64_t own, uint64_t now)
{
	struct links_state *const state = &accounting_state.links;
	uint64_t took[LINKS_TOOK], process[LINKS_TOOK];
	bool any = false;

	find_owners();
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
