// SPDX-License-Identifier: Apache-2.0
/*
 * mover.h: what the mover's files offer each other. In this list a file calls only those above it:
 *
 *   engine.c        submission log, orders from other threads, device budget, death of the engine
 *   piece.c         one piece: block state, what the plan knows, what stays on the device, end and figures of moves
 *   alive.c         what of a piece has to be copied: births and deaths; how far a pointer reaches
 *   link.c          the streams that pieces are copied on; which copies contend with changes of mappings
 *   migrate.c       migration of one piece, and recovery when the driver refuses; pieces that are not mapped
 *   intake.c        changes of the heap, and the log of submissions
 *   schedule.c      the hand of the scheduler (shim/plan/scheduler.h): what it must know, and what it orders
 *   quiesce.c       the exact mode: migrating while nothing runs
 *   orders.c        gaps by order: suspension, turns, room for others and for new blocks, fetching, changes of mode
 *   fault_report.c  the report when `fast` has stopped a job; before it check.c: checked launches
 *   mover.c         creation of the engine, and its thread; recall
 *   spill.c         what the rest of the library calls (spill.h)
 *
 * Only the mover's thread may call these functions, except those that say so or only read atomics, those of engine.c
 * that give orders or wait for room, and those of mover.c that create an engine. Locking: as each says, else none.
 */
#ifndef SPILLWAY_MOVER_H
#define SPILLWAY_MOVER_H

#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/heap/chunk.h"
#include "shim/mover/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

/* ---- engine.c: services that all files of the mover use ---- */

/*
 * Reads the oldest record of the submission log and removes it. Names beyond the first `most` are dropped. Returns
 * false if the log is empty, or if the pins that its oldest record stands for are not known yet (inflight_hear_oldest).
 */
bool engine_read_log(struct engine *engine, uint64_t *ret_function, struct named *ret_named, unsigned most,
		     unsigned *ret_n);
/*
 * Brings the mover's knowledge of which submission uses which block up to date. After it has returned true, the only
 * submissions that the mover does not know of are those that see every block that is `unmapped` now, and wait. Returns
 * false if a record is just being written.
 */
bool engine_hears_all(struct engine *engine);
/*
 * Counts the tries of a driver call that must succeed, because the driver may refuse it temporarily, for example for
 * lack of memory for page tables. *tries must be 0 at first. The first tries follow each other at once, later ones come
 * every 2 ms, for about a tenth of a second. Returns false if the caller should give up.
 */
bool engine_tries(unsigned *tries);
/*
 * Declares the engine dead: memory never moves again, and every wait ends. Called if the context died or memory is
 * lost. Writes `why` to the log.
 */
void engine_die(struct engine *engine, const char *why);
/* Does the same because a driver call returned `result`. In `fast`, an illegal address is first reported (on_lost). */
void engine_lost(struct engine *engine, CUresult result);
/*
 * Records that the query of an event failed. A single failure may be chance; repeated failures mean that the context
 * died, and then the engine is declared dead.
 */
void engine_doubt(struct engine *engine, CUresult result);
/*
 * Gives the mover an order and waits up to patience_ms for it. *ret_bytes (may be NULL) is its result. watch (may be
 * NULL) is called once a ms meanwhile. Returns SW_BUSY if the order was not carried out in time; it still will be,
 * unless another one held the slot until then. Returns SW_NOT_SUPPORTED if the engine is dead and the order was not
 * taken, else its status. Locking: takes SPILL; must not be called on the mover's thread.
 */
enum sw_status engine_ask(struct engine *engine, const struct order *order, unsigned patience_ms,
			  const struct order_watch *watch, uint64_t *ret_bytes);
/*
 * engine_ask() in two steps, for orders of several engines that are carried out at the same time. If
 * engine_give() returns SW_OK, the caller must call engine_take_answer() before it gives that engine another order.
 * That returns SW_BUSY, as engine_ask(), also if the engine has died meanwhile. Locking: take SPILL.
 */
enum sw_status engine_give(struct engine *engine, const struct order *order, const struct timespec *until,
			   const struct order_watch *watch);
enum sw_status engine_take_answer(struct engine *engine, const struct timespec *until, const struct order_watch *watch,
				  uint64_t *ret_bytes);
/*
 * In `fast`: waits until `bytes` of the device are free, while the mover evicts what is not needed soon. Gives up when
 * nothing can be evicted, or after 50 ms; then the block starts on the host. Any thread may call this. Locking: takes
 * HEAP and WAKE, not both at once.
 */
void engine_wait_for_room(struct engine *engine, uint64_t bytes);
/* Returns the device budget in bytes; if others fill the device, the part of it that this process uses now. */
uint64_t engine_budget(const struct engine *engine);
/*
 * To be called when the device budget has no room for a piece of `units` units. Takes back device memory that the heaps
 * of other devices have borrowed but keep free, and returns true if that made room. Otherwise requests the return of
 * what they use, up to the amount that this heap has away from the device, and returns false.
 */
bool engine_recall_lent(struct engine *engine, unsigned units);
/* Returns whether memory moves no more: the context died, memory is lost, or the mover has ended. */
static inline bool engine_is_dead(const struct engine *engine)
{
	return atomic_load(&engine->channel.dead);
}
/* For qsort() of uint64_t, ascending. */
int mover_by_number(const void *one, const void *two);
/* Returns whether to begin no other move: the engine has died, or the process ends, which waits for it. */
bool engine_is_over(const struct engine *engine);

/* ---- piece.c ---- */

static inline uint64_t piece_bytes(const struct engine *engine, uint32_t piece)
{
	return engine->arena->states[piece].units_of_piece * HEAP_UNIT;
}
/* Returns the place of a piece; CHUNK_PLACES if none starts there, or its block is free. Locking: takes HEAP. */
enum chunk_place piece_place(const struct engine *engine, uint32_t piece);
/* Adds a piece to a list. Returns false if there is no memory; the list is unchanged then. */
bool piece_list_add(struct piece_list *list, uint32_t piece);
/*
 * Returns a list of the pieces in use. but_moving: without those that are being moved. The caller must free() its `at`,
 * which is NULL if there is no memory. Locking: takes HEAP.
 */
struct piece_list piece_list_all(const struct engine *engine, bool but_moving);
/*
 * Returns the block state of the block, or of the slab, that the piece belongs to; NULL if it belongs to none any more.
 */
struct block_state *piece_block_state(struct engine *engine, uint32_t piece);
/* Returns whether a submission that waits keeps a piece of this block from leaving (enum waits_keep). */
bool piece_is_awaited(const struct engine *engine, const struct block_state *block, uint32_t piece);
/*
 * Returns whether a submission may use the piece's block, or keeps the piece because it waits. in: the piece is to be
 * fetched; a submission that waits for it does not prevent that.
 */
bool piece_is_busy(struct engine *engine, uint32_t piece, bool in);
/*
 * Finds the piece that has a unit, and the unit after its last one. argument: the engine (plan_set_pieces). Returns
 * false if there is none, or its block is being made or freed at this moment. Any thread may call this.
 */
bool piece_at_unit(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past);
/*
 * piece_raise() prevents submissions that name the piece's block, because the piece is about to be unmapped, or is
 * unmapped. It nests: piece_lower() must be called as often.
 */
void piece_raise(struct engine *engine, const struct migration *migration);
void piece_lower(struct engine *engine, const struct migration *migration);
/* Sets where submissions find the piece. */
void piece_set_where(struct engine *engine, const struct migration *migration, enum block_state_where where);
/* Updates the plan with the place where the piece is now. Locking: takes HEAP. */
void piece_tell_plan(struct engine *engine, uint32_t piece);
/* Returns whether the program wants this block on the host. */
bool piece_wants_host(const struct engine *engine, const struct block_state *block);
/*
 * Returns whether the whole piece is discarded, so that it need not be copied. To be called while no submission that
 * names it can enter the driver.
 */
bool piece_is_discarded(const struct engine *engine, uint32_t block_unit, uint32_t piece);
/*
 * Returns whether the piece, which is on the host, should be on the device because it stays there in `fast`, and its
 * share has room. planned: the units, by the reason, for which this was said before and which have not come yet; adds
 * those of this one. Locking: takes HEAP.
 */
bool piece_should_come(struct engine *engine, uint32_t piece, uint64_t planned[KEEP_REASONS]);
/* To be called regularly: stops keeping what exceeds the share of the present budget. Locking: takes HEAP. */
void piece_keep_follow(struct engine *engine);
/*
 * Maps the old memory of a move or the new one, if there is one. If the driver refuses, gives idle memory of the device
 * back to it, and tries again for 5 s. Returns false, with *ret_new false, if all is refused for so long: the contents
 * are safe, but the process cannot continue with them, and the engine is declared dead. What is to be mapped after that
 * is tried once. piece_map_soon() gives up after a tenth of a second, and declares nothing. Locking: take HEAP.
 */
bool piece_map(struct engine *engine, const struct migration *migration, enum piece_memory which, bool *ret_new);
bool piece_map_soon(struct engine *engine, const struct migration *migration, enum piece_memory which, bool *ret_new);
/*
 * Ends a move: the piece is now in the place `where`, and may move again. is_raised: piece_raise() was called for it.
 * Locking: takes HEAP.
 */
void piece_arrived(struct engine *engine, struct migration *migration, enum block_state_where where, bool is_raised);

/* ---- piece.c: figures and trace events of moves ---- */

/*
 * Record that a move begins and that it has ended; each must be called once for a move. stayed: the data are where they
 * were before the move.
 */
void move_stats_begin(struct engine *engine, struct move *move);
void move_stats_end(struct engine *engine, const struct move *move, bool stayed);
/*
 * Counts a move whose data have moved. Must be called before migration_exchange(), while the old memory is still the
 * piece's.
 */
void move_stats_moved(struct engine *engine, const struct move *move);
/* All three for a move in one go, which began at `begun` (ns) and copied so much. */
void move_stats_whole(struct engine *engine, const struct migration *migration, uint64_t begun, uint64_t copied);
/* Adds the time with moves in flight up to now to the figures. */
void move_stats_busy(struct engine *engine);

/* ---- alive.c: what births and deaths (lifetimes.h) mean for pieces ---- */

/*
 * Tells the plan what is reported and alive already. all_now: nobody has seen what submissions have named so far. To be
 * called once, before the first event is read.
 */
void alive_begin(struct engine *engine, bool all_now);
/*
 * Reads the events that come before the record at this position of the submission log, and updates the plan. Returns
 * false if one of them is still being written: the record must not be read yet.
 */
bool alive_read(struct engine *engine, size_t position);
/*
 * Finds out how far the threads that report have come, so that more deaths count. The caller must read events
 * afterwards, before anything moves.
 */
void alive_hear(struct engine *engine);
/* Updates the figures of what is alive. */
void alive_count(const struct engine *engine);
/*
 * Something that submissions named is not known: everything that is reported is alive until its next birth and death.
 */
void alive_restart(struct engine *engine);
/*
 * Finds the range that was born at an address, in bytes of the heap's address space, or else what is fresh around it.
 * Returns false if nothing is known about the address.
 */
bool alive_find(const struct engine *engine, CUdeviceptr address, struct live_range *ret);
/*
 * A submission was read that names this: what is dead there is alive from now on. no_kernel: it is a copy, a set, or
 * anything but kernels and graphs.
 */
void alive_name(struct engine *engine, const struct named *named, bool no_kernel);
/*
 * Stores the parts of a piece that have to be copied when it moves, in bytes from its beginning, and returns how many.
 * To be called while no submission that names the piece can enter the driver.
 */
unsigned alive_ranges(struct engine *engine, const struct migration *migration, struct live_range *ret);
/*
 * To be called instead where alive_is_none() was true and the piece is mapped nowhere; also when it comes back, if it
 * has been mapped nowhere since: whatever was born meanwhile, nobody can have written there, not even by an address
 * that no submission names, which would have ended the context. Counts the bytes that need not be copied, and returns
 * 0.
 */
unsigned alive_skip(const struct migration *migration, uint64_t bytes);
/* Returns whether alive_ranges() would find nothing. */
bool alive_is_none(struct engine *engine, uint32_t block_unit, uint32_t piece);

/* ---- link.c: the streams that pieces are copied on, and the copies queued on them ---- */

/*
 * Creates the streams and events in a context of the device, unless they exist. Returns false if that is not possible
 * now.
 */
bool link_open(struct engine *engine);
/* Destroys the streams and events and leaves their context. No copy may be in flight. */
void link_close(struct engine *engine);
/*
 * Queues the copy of a piece and records its event behind it; copies in one direction run in the order of the calls.
 * gap: the device is quiesced. If it returns an error, no part of the copy is in flight any more.
 */
CUresult link_copy(struct engine *engine, struct move *move, bool gap);
/* Queues the copy of all of a piece that comes, in a gap, without an event. */
CUresult link_fill(struct engine *engine, const struct migration *migration);
/* Waits until the stream is idle, or `until` (ns). Returns false if it is not then, or the driver fails. */
bool link_is_idle_by(CUstream stream, uint64_t until);
/* Waits until the stream is idle. Returns false if the driver keeps failing, usually because the context died. */
bool link_settle(CUstream stream);
/*
 * Lets copies that contend with changes of mappings proceed after their current part (go), or holds them there. They
 * must not be held for longer than a part takes. While the device is quiesced they always proceed.
 */
void link_let_go(struct engine *engine, bool go);
/*
 * Returns for how many ns the mover need not look at copies. tries: number of looks without effect since a copy ended.
 */
uint64_t link_nap_ns(const struct engine *engine, unsigned tries);
/* Updates the copy rate that link_nap_ns() uses. To be called when a copy has ended. */
void link_ended(struct queue *queue, const struct move *move);

/*
 * To be called when the copy of an evicted piece has ended and nothing uses the piece, or nothing runs. Measures the
 * place that the piece went to, if it is not known yet. That takes about 25 ms, once, and changes neither of the
 * piece's chunks. What cannot be measured keeps its value. Returns false if copies that the measurement made are still
 * in flight; the move's event is then recorded behind them.
 */
bool pte_contention_learn(struct engine *engine, struct move *move);

/* ---- migrate.c: deferred maps, that is pieces that lie on the host and are not mapped there yet ---- */

/* Locking: take HEAP. */

struct deferred_map *deferred_map_find(struct engine *engine, uint32_t piece); /* NULL if the piece is not deferred */
/* Maps the oldest one that is not about to be fetched. Returns false if there is none. */
bool deferred_map_map(struct engine *engine);
/* Maps all that are not about to be fetched. */
static inline void deferred_map_all(struct engine *engine)
{
	while (deferred_map_map(engine))
		;
}
/*
 * Maps what somebody waits for, while copies run: all of them if a submission waits that may touch anything, else those
 * that migration_first_awaited() finds. The others stay: to map all that is away takes a tenth of a second, in which
 * the mover begins nothing and sees no copy end. Returns whether it mapped any.
 *
 * Measured (H100, a GPT on cudaMallocAsync at 1.5 times the budget, `fast`): while all were mapped whenever a block was
 * freed of which a piece was away, up to three quarters of the steps had a pause of 60 to 95 ms; a step took 233 or
 * about 320 ms, and takes 231 since.
 */
bool deferred_map_serve(struct engine *engine);
/*
 * Maps those whose blocks were freed, and those that a thread waits for, to pin them or to open them to a peer. Returns
 * whether it mapped any.
 */
bool deferred_map_awaited(struct engine *engine);
/* Maps all deferred pieces of a block except those with the stamp `but`. */
void deferred_map_map_of(struct engine *engine, uint32_t block_unit, uint64_t but);
/*
 * While the device is quiesced: unmaps a piece on the host that is about to be fetched. Returns false if it cannot be
 * unmapped now.
 */
bool deferred_map_unmap_early(struct engine *engine, uint32_t piece);
/* Gives up early unmapping: what was unmapped and not fetched is an ordinary deferred map again. */
void deferred_map_give_up_early(struct engine *engine);

/* ---- migrate.c: migration of one piece ---- */

/* Locking: all but migrate_in_flight(), migrate_any() and migrate_is_stuck() take HEAP. */

/*
 * Begins to migrate a piece. gap: the device is quiesced, so use is not checked, and device memory is copied in place
 * (migration.h).
 */
enum migrate_answer migrate_begin(struct engine *engine, uint32_t piece, enum chunk_place to, bool gap);
/* Completes the moves whose copies have ended. Returns false if there were none. */
bool migrate_finish(struct engine *engine);
static inline bool migrate_in_flight(const struct engine *engine)
{
	return engine->moves.out.n || engine->moves.in.n;
}
/* Returns whether any copies are in flight or any maps deferred. */
static inline bool migrate_any(const struct engine *engine)
{
	return migrate_in_flight(engine) || engine->deferred.n;
}
/*
 * Copies make progress unless the driver has queued them behind work of the program that is held back, because streams
 * share hardware queues. migrate_is_stuck() returns whether no copy has ended for much longer than copies take.
 * migrate_take_back() then maps the pieces again where they were, for submissions that wait for them. Their copies have
 * no effect when they end, and no other move begins until then. A piece that is being measured with (link.c)
 * is mapped at its destination instead. Returns true if no piece is unmapped any more because of a copy.
 */
bool migrate_is_stuck(const struct engine *engine);
bool migrate_take_back(struct engine *engine);
/* Gives up the copies in flight: the memory that they were to replace is mapped again and stays in use. */
void migrate_abandon(struct engine *engine);

/* ---- migrate.c: pieces without memory while the process is suspended, because nothing in them need be kept ---- */

/*
 * In the gap of a suspension: takes the memory away from a piece, unless it is not on the device, or something in it is
 * alive, or the driver refuses. Copies may be in flight. Locking: takes HEAP.
 */
void unbacked_take(struct engine *engine, uint32_t piece);
/*
 * Gives all of them memory again, of the device if it has any, else of the host. Returns false if there is none of
 * either for some of them, which stay in the list. At the end of the process (spill_is_ending) makes no memory, and
 * returns true. The gate must be closed. Locking: takes HEAP.
 */
bool unbacked_give(struct engine *engine);
/* Gives one of them memory of the device if there is room. Returns false if it did nothing. Copies may be in flight. */
bool unbacked_give_one(struct engine *engine);
/*
 * To be called regularly: gives up those whose blocks were freed, and gives host memory to those that threads wait for,
 * to pin them. Locking: takes HEAP.
 */
void unbacked_serve(struct engine *engine);

/* ---- intake.c: changes of the heap, and the log of submissions ---- */

/*
 * Reads the log and the changes of the heap, and updates the plan. Returns false if there was nothing to read. Locking:
 * takes HEAP.
 */
bool intake_read(struct engine *engine);
/*
 * Finds the pieces that a submission needs which waits. If it is the only one and launches a graph that is known,
 * *ret_named also says how much it uses each piece. Good until the next call or intake_read(). Locking: the caller must
 * hold SPILL.
 */
void intake_waiter(struct engine *engine, const struct waiter *waiter, struct scheduler_named *ret_named);

/* ---- schedule.c: hands the scheduler what it must know, and carries out what it decides ---- */

/* Locking: those that begin moves take HEAP. */

/*
 * Begins the moves that waiting submissions need, and releases submissions that have nothing to wait for. Locking:
 * takes SPILL, then HEAP.
 */
void schedule_for_waiters(struct engine *engine);
/* Prefetches what the plan foresees. */
void schedule_ahead(struct engine *engine);
/* Moves what the program wants on the host there, as far as possible now. gap: the device is quiesced. */
void schedule_leave(struct engine *engine, bool gap);
/* Updates the progress of the GPU. */
void schedule_progress(struct engine *engine);
/* In `fast`: makes room for the new blocks that allocations wait for. */
void schedule_for_new(struct engine *engine);
/* Returns whether memory may move now: it can, and the governor allows it. */
bool schedule_may_move(const struct engine *engine);
/* Returns whether memory can move now, whether or not that pays. */
bool schedule_can_move(const struct engine *engine);
/* Returns whether another eviction may begin: there is a free slot, and little enough memory is in flight. */
bool schedule_may_evict(struct engine *engine);
/* Returns how many bytes of host memory should be pinned in reserve for evictions (heap_fill_host_reserve). */
uint64_t schedule_reserve_bytes(struct engine *engine);
/* Prepares the engine's scheduler. To be called once the engine has a plan. */
void schedule_init(struct engine *engine);

/* ---- quiesce.c, orders.c: gaps, on demand or by order ---- */

/* Locking: those that migrate take QUIESCE for the whole gap, then HEAP. */

/* Returns whether the engine's memory does not run (residence.h): everything has come to an end, and nothing begins. */
static inline bool quiesce_is_held(const struct engine *engine)
{
	return atomic_load(&engine->quiesce.residence) != RESIDENCE_RUNS;
}

/* Quiesces the device if submissions wait, and moves everything that they and the near future need. */
void quiesce_run(struct engine *engine);
/*
 * quiesce_close() begins a gap: it stops everything that may touch the heap, or the whole process. Returns false if it
 * gave up; the gate is open then. quiesce_open() ends the gap. Locking: takes QUIESCE, and holds it until
 * quiesce_open() or quiesce_keep_closed().
 */
bool quiesce_close(struct engine *engine, bool whole);
void quiesce_open(struct engine *engine);
/*
 * Ends the gap but keeps the gate closed until quiesce_resume(). The gate opens when no engine is held any more.
 * Locking: drops QUIESCE.
 */
void quiesce_keep_closed(struct engine *engine);
/*
 * Ends the hold on this engine, if there is one, whoever asked for it. Returns NO_MEMORY, and keeps the hold, if some
 * unbacked pieces get no memory. by_force: the hold ends in any case, and those pieces have no address any more.
 * Locking: takes and drops HEAP, then takes QUIESCE, and HEAP under it.
 */
enum sw_status quiesce_resume(struct engine *engine, bool by_force);
/*
 * quiesce_nap() sleeps until a copy is expected to have ended. quiesce_finish() completes all moves in flight and maps
 * every piece, also while it waits for copies.
 */
void quiesce_nap(const struct engine *engine);
void quiesce_finish(struct engine *engine);
/* In a gap: fetches what is wished for (scheduler_wish), as far as room can be made for it, and completes that. */
void quiesce_fetch_wishes(struct engine *engine);
/*
 * Carries out ORDER_RESIDE (plan/residence.h). *bytes: in: how many may stay on the device; out: those of the device
 * that were given back, or are to be fetched again.
 *
 * A leave that fails returns SW_BUSY if no safe point came, SW_NO_MEMORY or SW_NO_HOST_MEMORY if the host cannot hold
 * the memory, SW_DRIVER if the driver refused. For a turn it gives up after 0.2 s without progress of the device, and
 * holds the engine once nothing runs any more, even if it then fails: others may count on that. A fetch moves what
 * the device budget has room for, while the gate is closed: nothing runs that could use the link, and no submission
 * waits for its memory afterwards. It waits for room as long as the thread that gave the order says that room comes
 * (spill.h), and returns SW_BUSY if that thread has given the order up.
 */
enum sw_status quiesce_reside(struct engine *engine, const struct order *order, uint64_t *bytes);
/* Evicts `bytes`. Returns SW_BUSY if no safe point came, SW_NOT_SUPPORTED if nothing may move now. */
enum sw_status quiesce_make_room(struct engine *engine, uint64_t bytes);
/*
 * Makes room for a new block of `bytes`, and for more blocks to come. Returns SW_BUSY if that is not possible now or
 * nothing can be evicted for it.
 */
enum sw_status quiesce_room_for_new(struct engine *engine, uint64_t bytes);

/* ---- orders.c: changes of mode, and fetching by order; outside a gap and with nothing in flight (mover_drain) ---- */

/*
 * Begins a gap of the whole process in which no capture is open and nothing is in flight. Returns false if there is
 * none now. Locking: as quiesce_close().
 */
bool mode_close_all(struct engine *engine);
/* Returns how memory of the heap moves. */
enum plan_way mode_way(const struct heap *heap, bool exact);
/*
 * Memory moves in gaps alone from now on, or beside what runs. Stops the whole process for it, unless it is suspended;
 * does nothing if it is so already. The caller must have called heap_set_beside() before the latter, and must not undo
 * that as long as any engine is in `fast`. Returns
 *
 *   SW_OK              done
 *   SW_BUSY            a capture is open, or no safe point came in time
 *   SW_NO_MEMORY       to `fast`: the device has no room for what must stay there (piece.c)
 *   SW_NO_HOST_MEMORY  to `fast`: the system has no memory for what the library must remember
 *   SW_DRIVER          the driver failed; if it refuses to map memory, the engine has died
 *
 * If the result is not SW_OK the mode is as before. Locking: takes QUIESCE and HEAP.
 */
enum sw_status mode_change(struct engine *engine, bool exact);
/*
 * Fetches the pieces of these units in a gap of the whole process, whether or not that pays. Returns SW_OK if all are
 * on the device, or must stay where they are: then they are pinned (heap_pin). Returns SW_BUSY as above, or if the
 * process is suspended; SW_NO_MEMORY if something else must stay on the device. Locking: as above.
 */
enum sw_status mode_bring(struct engine *engine, uint32_t unit, uint32_t n);

/* ---- check.c: checked launches (submit/check.h) ---- */

/*
 * A thread asks to have its launch checked: lets it run alone, in a gap, if `drained` says that nothing is in flight.
 * Locking: takes QUIESCE and HEAP.
 */
void check_run(struct engine *engine, bool drained);

/* ---- fault_report.c: the report that is logged when `fast` has stopped a job ---- */

/* Notes what is in transit. To be called once in each pass of the mover, before it changes anything. */
void fault_report_note(struct engine *engine);
/*
 * To be called when the context died of an illegal address in `fast`. If anything was in transit within a second before
 * the last pass in which all was well, logs what was, what ran, and what avoids the failure. Makes no driver calls.
 */
void fault_report_tell(struct engine *engine);

/* ---- mover.c: creation and thread ---- */

/*
 * Creates the engine of a device, without its thread. exact: the policy's mode is `exact`, not `fast`. Returns NULL if
 * there is no memory for it.
 */
struct engine *mover_new(struct device *device, struct heap *heap, bool exact);
/*
 * Sets which contents the engine keeps, before its thread starts; all of them if this is not called. all_now: all that
 * an allocator has reported so far counts as alive at first, because submissions that were not seen may have named it.
 */
void mover_keep(struct engine *engine, enum policy_contents contents, bool all_now);
/* Starts the mover's thread. Returns false if the system has no resources for it. */
bool mover_start(struct engine *engine);
/*
 * Returns for how long, in ns, the mover naps while nothing is in flight and no submission waits. Beside kernels it
 * looks often while the program submits: what has been used may leave for what comes.
 */
uint64_t mover_idle_ns(const struct engine *engine);

#endif
