/*
 * lock.h: every lock of the library, its rank, what it protects, and whether the driver may be called under it.
 *
 *   rank           protects                                             driver call under it?
 *   START          reading the policy, finding devices and heaps (once) queries; reserving address space
 *   CAPTURE        the list of streams that capture                     no
 *   GRAPH          what the instances of graphs name                    no
 *   MEND           scratch memory for copies in graphs (graph_mend.c)   VMM calls, changes of graphs
 *   PENDING        frees that wait for work or for captures to end      queries and ends of events
 *   POOL           the driver's pools we know of                        queries of their attributes; trimming them
 *   PEER           what peer access was enabled (peer.c)                VMM calls; never a wait for the GPU
 *   VIRTUAL        what becomes of memory that programs map themselves  VMM calls; never a wait for the GPU
 *   SPILL(device)  submissions that wait for memory, orders             VMM calls, copies; never a wait for the GPU
 *   HEAP(device)   blocks, slabs, chunks, address ranges of one heap    VMM calls; never a wait for the GPU
 *   SPACE          address space that programs have reserved (space.c)  no
 *   LEDGER         what is live and whose                               no
 *
 * A thread takes locks in rising rank only. Debug builds (SPILLWAY_DEBUG) keep a mask of held ranks per thread and stop
 * at the first wrong order. stats and log take no lock. Beside the ranks stand small locks of the spill engine, each the
 * last to be taken: of its log, of one stream's row (done.c), of the gate (gate.c), of the numbers of discards
 * (discard.c), of arrays of pointers (tables.c). And two of the trace: of the start of its thread (trace.c), and over its
 * file (trace_drain.c), which only its thread takes, and who ends the process. One over taking host memory that is shared
 * with other processes (quota.c). And one over the queue of page faults (faults_queue.c), under which LEDGER is taken.
 */
#ifndef SPILLWAY_LOCK_H
#define SPILLWAY_LOCK_H

#include "shim/base/clock.h"

#include <pthread.h>

enum lock_rank {
	LOCK_START,
	LOCK_CAPTURE,
	LOCK_GRAPH,
	LOCK_MEND,
	LOCK_PENDING,
	LOCK_POOL,
	LOCK_PEER,
	LOCK_VIRTUAL,
	LOCK_SPILL,
	LOCK_HEAP,
	LOCK_SPACE,
	LOCK_LEDGER,
	LOCK_RANK_COUNT, /* must be last */
};

/*
 * A thread that holds any of them but LEDGER is not cancelled meanwhile: files are read, lines written and the driver
 * called under them, and all of that may be a cancellation point.
 */
struct lock {
	pthread_mutex_t mutex;
	enum lock_rank rank;
	int cancel; /* the holder's cancel state from before; LEDGER: unused */
};

#define LOCK_INIT(r)                                                                                                   \
	{                                                                                                              \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (r)                                                        \
	}

void lock_init(struct lock *lock, enum lock_rank rank);
void lock_take(struct lock *lock);
void lock_drop(struct lock *lock);
/*
 * Waits as clock_wait() does; returns 0 or ETIMEDOUT. Others take the lock meanwhile, so the holder's cancel state is kept
 * here over the wait. Locking: the caller holds the lock, and no lock of a higher rank.
 */
int lock_wait(struct lock *lock, struct clock_cond *cond, const struct timespec *until);
/* Debug builds: stop unless this thread holds a lock of that rank. Else nothing. */
void lock_assert_held(enum lock_rank rank);

#endif
