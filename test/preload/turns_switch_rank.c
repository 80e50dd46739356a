/* The rank of turns_switch_test.c. See turns_switch_rank.h. */
#include "test/preload/turns_switch_rank.h"
#include "shim/spillway.h"
#include "test/preload/child.h"
#include "test/preload/turns_help.h"
#include "test/rank.h"
#include "test/test.h"

#include <stdatomic.h>

static CUdeviceptr blocks[NEEDS];
static unsigned n_blocks, fills;
static _Atomic bool told; /* by SIGUSR1 */

static uint64_t step(unsigned n)
{
	for (; n; n--) {
		fills++;
		for (unsigned i = 0; i < n_blocks; i++)
			MUST(driver_fill(NULL, blocks[i], fills + i, 4 * MIB / 4));
		MUST(cu.cuCtxSynchronize());
	}
	return 1;
}

/* While the thread that obeys is in a step. */
static void *go_on_when_told(void *unused)
{
	sigset_t set;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigwait(&set, &signal);
	atomic_store(&told, true);
	sim_go_on();
	return NULL;
}

static void listen_for_signal(void)
{
	atomic_store(&told, false);
	pthread_detach(test_thread(go_on_when_told, NULL));
}

static uint64_t stall(const char *name, unsigned n)
{
	listen_for_signal();
	sim_stall_at(name, n);
	return 1;
}

static uint64_t step_until_told(void)
{
	listen_for_signal();
	while (!atomic_load(&told))
		step(1);
	return 1;
}

/* Steps until all blocks are on the device, and host memory for what leaves is there. Returns whether that comes. */
static uint64_t step_until_pinned(unsigned mib)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct sim_live live = sim_live();

		if (live.device_bytes >= n_blocks * 4 * MIB && live.host_bytes >= mib * MIB)
			return 1;
		step(1);
	}
	return 0;
}

/* Makes the second block dead, and those behind it until this one, or has them born and filled. */
static void set_alive(bool alive, unsigned end)
{
	for (unsigned i = 1; i < end; i++) {
		void *block = (void *)(uintptr_t)blocks[i]; /* NOLINT(performance-no-int-to-ptr) */

		CHECK((alive ? spillway_born(block, 4 * MIB) : spillway_discard(block, 4 * MIB)) == 0);
	}
}

static void work_for(uint64_t ms, unsigned n)
{
	for (uint64_t end = test_now() / 1000000 + ms; test_now() / 1000000 < end;) {
		fills++;
		for (unsigned i = 0; i < n; i++)
			MUST(driver_fill(NULL, blocks[i], fills + i, 4 * MIB / 4));
		MUST(cu.cuCtxSynchronize());
	}
}

/* Long steps: for a short time at their beginning little is alive, then everything. */
static uint64_t long_steps(unsigned n)
{
	for (; n; n--) {
		set_alive(false, n_blocks);
		work_for(20, 1);
		set_alive(true, n_blocks);
		work_for(700, n_blocks);
	}
	return 1;
}

/* The first block is written afterwards, so that the deaths of the others count. */
static uint64_t let_die(unsigned n)
{
	set_alive(false, n + 1);
	MUST(driver_fill(NULL, blocks[0], fills, 4 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	return 1;
}

/* Returns the MiB on the device when a call stands still, 0 if none does. */
static uint64_t device_mib_in_stall(void)
{
	for (unsigned i = 0; i < ROUNDS && !sim_stalled(); i++)
		usleep(2000);
	return sim_stalled() ? sim_live().device_bytes / MIB : 0;
}

/* Some of them are mapped on the host, at some moment of the next 100 ms. Makes no submission. */
static bool any_is_mapped_on_host(void)
{
	for (unsigned look = 0; look < 50; look++) {
		for (unsigned i = 0; i < n_blocks; i++)
			if (sim_where(blocks[i]) == 'H')
				return true;
		usleep(2000);
	}
	return false;
}

static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'd':
		driver_start(0);
		return 1;
	case 'a':
		for (; n; n--)
			blocks[n_blocks++] = child_alloc(4 * MIB);
		return step(1);
	case 's':
		return step(n);
	case 'A':
		for (; n; n--)
			blocks[n_blocks++] = child_alloc(4 * MIB);
		return 1;
	case 'w':
		return step_until_pinned(n);
	case 'l':
		return long_steps(n);
	case 'o':
		return step_until_told();
	case 'c':
		for (unsigned i = 0; i < n_blocks; i++)
			CHECK(driver_holds(blocks[i], fills + i, 4 * MIB / 4));
		return sim_broken_rules() == 0;
	case 'r':
		return stall("cuMemRelease", n);
	case 'm':
		return stall("cuMemCreate", n);
	case 'k':
		return stall("cuMemcpyDtoDAsync_v2", n);
	case 'p':
		return device_mib_in_stall();
	case 'z':
		return let_die(n);
	case 'n':
		return !any_is_mapped_on_host();
	default:
		exit(0);
	}
}

static void begin(const void *settings)
{
	sigset_t set;

	/* In all threads. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	turns_begin(settings);
}

const struct rank_part turns_switch_rank = {.begin = begin, .obey = obey};
