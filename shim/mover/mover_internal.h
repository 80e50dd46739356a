/*
 * mover_internal.h: the engine of one device, for the mover's files. Each file has a header of its own. In this list a
 * file calls only those above it:
 *
 *   engine.c          submission log, orders from other threads, device budget, death of the engine
 *   piece.c           one piece: block state, what the plan knows of it, what stays on the device, end of a move
 *   alive.c           births and deaths: what of a piece has to be copied, and how far a pointer reaches
 *   link.c            the streams that pieces are copied on
 *   pte_contention.c  which copies contend with changes of mappings
 *   move_stats.c      figures and trace events of moves
 *   deferred_map.c    pieces on the host that are not mapped
 *   migrate.c         migration of one piece, and recovery when the driver refuses
 *   unbacked.c        pieces without memory while the process is suspended
 *   intake.c          changes of the heap, and the log of submissions
 *   schedule.c        the hand of the scheduler (shim/plan/scheduler.h): what it must know, and what it orders
 *   quiesce.c         the exact mode: migrating while nothing runs
 *   quiesce_orders.c  quiescing by order: suspension, room for others and for new blocks
 *   mode.c            changes between `exact` and `fast`; fetching by order
 *   recall.c          memory that goes back to the peers that lent it
 *   fault_report.c    the report when `fast` has stopped a job
 *   discard.c         contents that need not be copied
 *   mover.c           creation of the engine, and its thread
 *
 * The state of each file is a struct in its header, which says who may touch it.
 */
#ifndef SPILLWAY_MOVER_INTERNAL_H
#define SPILLWAY_MOVER_INTERNAL_H

#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/context/context.h"
#include "shim/mover/alive.h"
#include "shim/mover/deferred_map.h"
#include "shim/mover/discard.h"
#include "shim/mover/engine.h"
#include "shim/mover/fault_report.h"
#include "shim/mover/intake.h"
#include "shim/mover/link.h"
#include "shim/mover/migrate.h"
#include "shim/mover/mode.h"
#include "shim/mover/move_stats.h"
#include "shim/mover/mover.h"
#include "shim/mover/piece.h"
#include "shim/mover/pte_contention.h"
#include "shim/mover/quiesce.h"
#include "shim/mover/recall.h"
#include "shim/mover/schedule.h"
#include "shim/mover/unbacked.h"
#include "shim/plan/governor.h"
#include "shim/plan/plan.h"
#include "shim/plan/tensors.h"
#include "shim/submit/channel.h"
#include "shim/submit/completion.h"
#include "shim/trace/trace.h"

struct engine {
	/* Set by mover_new(), constant afterwards. */
	struct device *device;
	struct heap *heap;
	struct arena *arena;

	/*
	 * Moves memory in gaps alone. Written by the mover's thread alone (mode.c), in a gap; any thread may read it.
	 */
	_Atomic bool exact;

	/* Shared with submissions. Its lock (SPILL) also protects `orders`. */
	struct channel channel;

	/* Requests of other threads. */
	struct orders orders;
	struct new_blocks new_blocks;

	/*
	 * State of the mover. Each struct says who may touch it; only the mover's thread may touch what the pointers
	 * here point to.
	 */
	/* pins of submissions in flight; NULL if memory has not moved beside what runs yet */
	struct inflight *claims;
	struct plan *plan;
	struct travels *travels; /* what was in transit recently (fault_report.c) */
	struct health health;
	struct piece_tables by_piece;
	struct lifetimes *lifetimes; /* births and deaths in the heap; NULL: everything is alive */
	struct unseen unseen;
	bool poisons; /* what is dead is overwritten when it moves */
	struct link link;
	struct pte_contention turns; /* which copies contend with changes of mappings */
	struct move_stats stats;
	struct deferred_maps rests; /* deferred maps, oldest first */
	struct migrations moves;
	struct intake intake;
	struct scheduler scheduler;
	struct progress progress;
	struct quiesce quiesce;
	/* What an order brings (mode_bring()), by units: of these no piece leaves for another. Empty otherwise. */
	uint32_t brings, brings_end;
	struct unbacked unbacked;
	struct recall recall;
	struct tracking tracking;
	struct move_governor governor;
	struct host_reserve stock;
	struct loop loop;
};

/* Returns whether the engine's memory does not run (residence.h): everything has come to an end, and nothing begins. */
static inline bool quiesce_is_held(const struct engine *engine)
{
	return atomic_load(&engine->quiesce.residence) != RESIDENCE_RUNS;
}

#endif
