/*
 * mover_internal.h: the engine of one device, for the mover's files. Each file has a header of its own; from the ground up,
 * so that a file calls those above it in this list, never those below:
 *
 *   engine.c     what the mover reads of submissions; what other threads order; the device budget; how the engine dies
 *   piece.c      one piece: its marks, what the plan knows of it, small blocks that do not leave, the end of a move
 *   link.c       the streams that pieces are copied on
 *   pte_contention.c      which copies changes of mappings wait for
 *   move_stats.c       what figures and the trace hear of moves
 *   deferred_map.c       pieces on the host that are not mapped
 *   migrate.c       one piece from here to there, and what to do when the driver refuses
 *   intake.c     what the mover hears: of the heap, and of what was submitted
 *   schedule.c     which piece comes in, which goes out, and whether to wait
 *   quiesce.c        the exact mode: moving while nothing runs
 *   quiesce_orders.c  the same by order: suspending, making room for others and for new blocks
 *   recall.c     what goes back to peers that need their memory
 *   fault_report.c       what is said when `fast` has stopped a job
 *   discard.c    contents that need not be copied
 *   mover.c      the engine's beginning, and its thread: the order of business
 *
 * The state of each stands in a struct in its header, which says who may touch it.
 */
#ifndef SPILLWAY_MOVER_INTERNAL_H
#define SPILLWAY_MOVER_INTERNAL_H

#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/context/context.h"
#include "shim/submit/channel.h"
#include "shim/submit/inflight.h"
#include "shim/submit/completion.h"
#include "shim/mover/schedule.h"
#include "shim/mover/discard.h"
#include "shim/mover/engine.h"
#include "shim/mover/quiesce.h"
#include "shim/mover/link.h"
#include "shim/mover/intake.h"
#include "shim/mover/migrate.h"
#include "shim/mover/mover.h"
#include "shim/mover/piece.h"
#include "shim/mover/recall.h"
#include "shim/mover/deferred_map.h"
#include "shim/mover/fault_report.h"
#include "shim/mover/move_stats.h"
#include "shim/mover/pte_contention.h"
#include "shim/plan/tensor_extents.h"
#include "shim/plan/governor.h"
#include "shim/plan/plan.h"
#include "shim/plan/trial.h"
#include "shim/trace/trace.h"

struct engine {
	/* Set by mover_new(). */
	struct device *device;
	struct heap *heap;
	struct arena *arena;
	bool exact;

	/* What submissions tell the mover and wait for. Its lock is also that of `orders`. */
	struct channel channel;

	/* What other threads ask of it. */
	struct orders orders;
	struct new_blocks new_blocks;

	/* The mover's own. Each struct says who may touch it; what is pointed to here is the mover's thread's alone. */
	struct inflight *claims; /* NULL in `exact`: nothing is taken away from what runs there */
	struct plan *plan;
	struct travels *travels; /* what was in transit lately (fault_report.c) */
	struct health health;
	struct piece_tables by_piece;
	struct link link;
	struct pte_contention turns; /* which copies changes of mappings wait for */
	struct move_stats stats;
	struct deferred_maps rests; /* oldest first */
	struct migrations moves;
	struct intake intake;
	struct progress progress;
	struct quiesce quiesce;
	struct recall recall;
	struct tracking tracking;
	struct move_governor governor;
	struct host_reserve stock;
	struct loop loop;
};

#endif
