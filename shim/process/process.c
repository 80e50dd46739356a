// SPDX-License-Identifier: Apache-2.0
/*
 * The process's stage and policy, and the detection of children that no fork handler announces: a page that the kernel
 * wipes in the child (MADV_WIPEONFORK).
 */
#include "shim/process/process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Atomic int process_stage_now = STAGE_NEW;
struct lock start_lock = LOCK_INIT(LOCK_START);
struct process_state process_state;
__thread unsigned enter_depth __attribute__((tls_model("initial-exec")));

static const volatile unsigned always = 1;
const volatile unsigned *process_fork_page = &always;

void process_make_fork_page(void (*on_cloned)(void))
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	unsigned *mark = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	process_state.on_cloned = on_cloned;
	if (mark == MAP_FAILED)
		return;
	if (madvise(mark, bytes, MADV_WIPEONFORK) != 0) {
		munmap(mark, bytes);
		return;
	}
	*mark = 1;
	process_fork_page = mark;
}

/* Locks keep the state they had in the parent: no thread takes them in a process that passes everything through. */
void process_cloned(void)
{
	int running = STAGE_RUNNING;

	if (atomic_compare_exchange_strong(&process_stage_now, &running, STAGE_FORKED))
		process_state.on_cloned();
}

bool process_is_off(void)
{
	int now = atomic_load_explicit(&process_state.is_off, memory_order_relaxed);

	if (!now) {
		const char *value = secure_getenv("SPILLWAY");

		now = value && !strcmp(value, "0") ? 2 : 1;
		atomic_store_explicit(&process_state.is_off, now, memory_order_relaxed);
		/* Only if the library has not started: the launch path may have read the stage already. */
		if (now == 2)
			atomic_compare_exchange_strong(&process_stage_now, &(int){STAGE_NEW}, STAGE_OFF);
	}
	return now == 2;
}

void process_set_policy(const struct policy *read)
{
	process_state.policy = read;
	if (!read)
		return; /* it has errors, and everything is passed through */
	process_state.settings = policy_settings(read);
	atomic_store(&process_state.spill_mode, process_state.settings->spill);
}

void process_set_spill_mode(enum policy_spill mode)
{
	atomic_store(&process_state.spill_mode, mode);
}

bool process_counts(void)
{
	enum stage stage = process_stage();

	if (stage == STAGE_RUNNING && !*process_fork_page) {
		process_cloned();
		return false;
	}
	return stage == STAGE_RUNNING || (stage == STAGE_NEW && !process_is_off());
}
