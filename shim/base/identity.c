/*
 * A random number for each process, drawn when it is first needed.
 */
#include "shim/base/identity.h"
#include "shim/base/base_state.h"
#include "shim/base/clock.h"
#include "shim/base/user_dir.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* The last step of splitmix64: a difference in any bit changes all bits. */
static uint64_t identity_mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* The inode of the first time namespace, as the kernel has defined it. */
#define FIRST_TIME 0xEFFFFFFAu

static uint64_t space_of(pid_t pid)
{
	struct stat pids, times;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	if (stat(path, &pids) != 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/time", (int)pid);
	uint64_t clock = stat(path, &times) == 0 && times.st_ino != FIRST_TIME ? (uint32_t)times.st_ino : 0;
	return clock << 32 | (uint32_t)pids.st_ino;
}

uint64_t identity_space(void)
{
	struct identity_state *const identity = &base_state.identity;
	int saved = errno;
	pid_t pid = getpid();

	if (atomic_load(&identity->space_owner) == pid)
		return atomic_load(&identity->space);
	uint64_t space = user_dir_process_started(pid) ? space_of(pid) : 0;
	if (space) {
		atomic_store(&identity->space, space);
		atomic_store(&identity->space_owner, pid);
	}
	errno = saved;
	return space;
}

static uint64_t identity_draw(void)
{
	uint64_t value;

	/*
	 * getrandom() has no data early at boot, and sandboxes refuse it: then mix values that differ between
	 * processes.
	 */
	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != (ssize_t)sizeof(value))
		value = identity_mix(
		    identity_space() ^
		    identity_mix((uint64_t)getpid() ^ identity_mix(clock_now() ^ identity_mix(clock_wall()))));
	return value ? value : 1;
}

/* The owner while a thread is about to write it, and how often another looks whether it has. */
enum { DRAWING = -1, PATIENCE = 1000 };

uint64_t identity_get(void)
{
	struct identity_state *const identity = &base_state.identity;
	int saved = errno;
	pid_t pid = getpid(), known = atomic_load(&identity->owner);

	/* If a fork came while another thread was drawing, no thread draws in the child: the wait is limited. */
	for (unsigned i = 0; known == DRAWING && i < PATIENCE; i++) {
		sched_yield();
		known = atomic_load(&identity->owner);
	}
	if (known != pid && atomic_compare_exchange_strong(&identity->owner, &known, DRAWING)) {
		atomic_store(&identity->number, identity_draw());
		atomic_store(&identity->owner, pid);
	}
	errno = saved;
	return known == pid || atomic_load(&identity->owner) == pid ? atomic_load(&identity->number) : identity_get();
}
