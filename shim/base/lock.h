// SPDX-License-Identifier: Apache-2.0
/*
 * lock.h: all locks of the library, with their ranks, what they protect, and whether the driver may be called under
 * them. No file of the library has any other mutex (symbols_test).
 *
 * A thread takes locks only in rising rank, and never two of one rank. Debug builds (SPILLWAY_DEBUG) keep a mask of
 * held ranks per thread and stop at the first wrong order. lock_try() never waits and may be called in any order;
 * locks taken after it must have higher ranks. The log and counters take no lock.
 */
#ifndef SPILLWAY_LOCK_H
#define SPILLWAY_LOCK_H

#include "shim/base/clock.h"

#include <pthread.h>
#include <stdbool.h>

/*
 * X(rank, cancel, protects, driver), in the order in which they are taken. The process has one lock of each rank,
 * except where (device) or (stream) marks one per device or stream.
 *
 * cancel: HOLDS if the holder must not be cancelled, because it reads files, writes lines or calls the driver, all of
 * which may be cancellation points. BRIEF if it does none of that, or if submissions take the lock, as for ROW.
 */
/* clang-format off */
#define LOCK_RANKS(X)                                                                                                  \
	X(SUMMARY,          HOLDS, "the text of the summary (lifecycle.c)",                     "no")                        \
	X(SAMPLER,          HOLDS, "what is looked at once a second (lifecycle.c)",               "no")                        \
	X(TRACE_FILE,       HOLDS, "the file of the trace (trace_drain.c)",                   "no")                        \
	X(START,            HOLDS, "reading the policy, finding devices and heaps (once)",    "queries; reserving address space") \
	X(ENGINE_START,     HOLDS, "starting the mover of a device (spill.c)",                "VMM calls, making streams") \
	X(IPC_SERVER,       HOLDS, "starting the server of IPC handles (ipc.c)",         "no")                        \
	X(IPC_OPENED,       HOLDS, "memory of other processes that is mapped here (ipc.c)", "VMM calls")                 \
	X(QUIESCE,          HOLDS, "the one gap in the process; held from its beginning to its end (quiesce.c)", "VMM calls, copies, waits for the GPU") \
	X(CAPTURE,          HOLDS, "the list of streams that capture",                        "no")                        \
	X(GRAPH,            HOLDS, "what the instances of graphs name",                       "no")                        \
	X(DEFERRED_FREE,    HOLDS, "frees that wait for work or for captures to end",         "queries and ends of events") \
	X(POOL,             HOLDS, "the driver's pools that are known",                       "queries of their attributes; trimming them") \
	X(PEER,             HOLDS, "what peer access was enabled (peer.c)",                   "VMM calls; never a wait for the GPU") \
	X(VMM,              HOLDS, "what becomes of memory that programs map themselves",     "VMM calls; never a wait for the GPU") \
	X(LIMIT,            HOLDS, "asking whether spill.limit leaves room, and taking it (make_room.c)", "VMM calls; never a wait for the GPU") \
	X(MANAGED,          HOLDS, "whether allocations lack memory that is taken on use; the turn to bring managed memory", "no") \
	X(SPILL,            HOLDS, "(device) submissions that wait for memory, orders",       "VMM calls, copies; never a wait for the GPU") \
	X(HEAP,             HOLDS, "(device) blocks, slabs, chunks, address ranges of one heap", "VMM calls; never a wait for the GPU") \
	X(VA_RANGES,        HOLDS, "address space that programs have reserved (ledger.c)",     "no")                           \
	X(QUOTA_TAKE,       HOLDS, "joining the shared host budget, and one take at a time (quota.c)", "no")               \
	X(QUOTA_SEAT,       HOLDS, "the place in its file, and what this process writes there (quota.c)", "no")            \
	X(FAULTS,           HOLDS, "the queue of page faults (faults.c)",                     "no")                        \
	X(LEDGER,           BRIEF, "what is live and whose",                                  "no")                        \
	X(ROWS,             HOLDS, "opening and closing rows of streams; events of whole contexts (completion.c)", "queries and ends of events") \
	X(ROW,              BRIEF, "(stream) its submissions and the events behind them (types.h)", "queries of events") \
	X(CONTEXTS,         HOLDS, "the contexts of the process and who is in them (context.c)", "queries and ends of events") \
	X(EVENTS,           HOLDS, "events that are kept to be used again (context.c)",       "ends of events")            \
	X(POINTER_ARRAYS,   BRIEF, "arrays of pointers in device memory (pointer_arrays.c)",          "no")                        \
	X(DISCARD,          BRIEF, "the numbers of discards (spill.c)",                       "no")                        \
	X(MOVERS,           BRIEF, "how many movers run (mover.c)",                           "no")                        \
	X(GATE,             BRIEF, "sleeping at the gate, and opening it (admit.c)",           "no")                        \
	X(WAKE,             BRIEF, "(device) the mover's nap (channel.h)",                    "no")                        \
	X(WAITING,          BRIEF, "how many submissions wait, and since when (stats.c)",     "no")                        \
	X(PAGER,            BRIEF, "page faults of the CPU that wait (pager.c)",              "no")                        \
	X(TRACE_START,      HOLDS, "starting the thread of the trace (trace.c)",              "no")
/* clang-format on */

#define LOCK_RANK_NAMED(rank, cancel, protects, driver) LOCK_##rank,
enum lock_rank {
	LOCK_RANKS(LOCK_RANK_NAMED) LOCK_RANK_COUNT, /* must be last; at most 64 */
};
#undef LOCK_RANK_NAMED

struct lock {
	pthread_mutex_t mutex;
	enum lock_rank rank;
	int cancel; /* the holder's previous cancel state; unused if BRIEF. Guarded by the lock itself */
};

#define LOCK_INIT(r)                                                                                                   \
	{                                                                                                              \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (r)                                                        \
	}

void lock_init(struct lock *lock, enum lock_rank rank);
void lock_take(struct lock *lock);
/* Returns false if another thread holds the lock; never waits. */
bool lock_try(struct lock *lock);
void lock_drop(struct lock *lock);
/*
 * Waits as clock_wait() does; returns 0 or ETIMEDOUT. Other threads may take the lock meanwhile, so the holder's
 * cancel state is saved over the wait. A cancellation point if the lock is BRIEF.
 * Locking: the caller must hold the lock, and no lock of a higher rank; drops it during the wait.
 */
int lock_wait(struct lock *lock, struct clock_cond *cond, const struct timespec *until);
/* Debug builds stop here unless this thread holds a lock of that rank. Other builds do nothing. */
#ifdef SPILLWAY_DEBUG
void lock_assert_held(enum lock_rank rank);
#else
#define lock_assert_held(rank) ((void)(rank))
#endif

#endif
