/*
 * turn.h: takes turns with the other processes that share a device (`share`). plan/gpu_turn.h decides whose turn it is,
 * plan/gpu_job.h in what steps all of a job stop, leave, come back and go on; a process alone is a job of one seat. The
 * turn is in the account of the device (accounting/gpu_account.h). Where it is not its turn, a process is held
 * (plan/residence.h): its memory is on the host, but for what no other needs in its turn, and its submissions wait at
 * the gate.
 *
 * What is promised: a process resumes only when the account names it as the holder of the turn, or when there are no
 * turns any more, and uses no more device memory than the account lets it have; who gives its turn on has stopped
 * before, and publishes what it may have as its memory leaves. A process that cannot be stopped (its GPU makes no
 * progress for a fifth of a second) keeps its turn, and after some tries its memory, while the others go on in what is
 * left.
 *
 * All functions are called on the control thread, unless they say otherwise. Cost where a process does not take turns:
 * some comparisons, ten times a second.
 */
#ifndef SPILLWAY_TURN_H
#define SPILLWAY_TURN_H

#include "shim/accounting/gpu_account.h"
#include "shim/mover/spill.h"

#include <stdbool.h>
#include <stdint.h>

struct device;

/* From now on this is the weight of the process's turns, and not that of its policy. */
void turn_set_weight(int weight);
/* Sets what this process publishes about its turns. */
void turn_claim(struct device *device, struct gpu_account_member *member);
/*
 * After the account was read: decides whose turn it is, as far as that is for this process to say. Returns true if
 * turns set the budget of the device: *ret_limit, which is raised in the account first, up to `most`.
 */
bool turn_look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
	       uint64_t most, uint64_t *ret_limit);
/*
 * Returns whether the process is due more than its budget of the device says now: another has the turn, or what others
 * had is not there yet, or the account is not known. Of what was read last.
 */
bool turn_lacks(const struct device *device);
/*
 * The file of the account was lost. For some time nothing changes then, so that all processes are in the next one
 * first.
 */
void turn_lost(const struct device *device);
/* There is no account of the device that the process can enter: it goes on there without turns. */
void turn_alone(const struct device *device);
/*
 * For struct order_watch, while the process is being suspended on request: shows the others that it is alive, and, as
 * soon as it has stopped, that it takes no part any more, gives its turn on, and publishes its memory as that leaves.
 */
enum order_room turn_look_suspending(void *unused);
/* The process is suspended on request: it does nothing in turns until it is resumed. */
void turn_suspended(struct device *device);
/* Returns whether the process takes turns if nothing is in the way just now. */
bool turn_is_possible(void);
/* Returns after how many ms to look again because of turns; 0: they do not matter now. */
unsigned turn_look_ms(void);
/*
 * Returns whether the process's memory of the device, or of any if it is NULL, is held because it is not its turn.
 * Called on any thread.
 */
static inline bool turn_is_away(const struct device *device)
{
	return spill_held_by(device) & RESIDENCE_TURN;
}

/* ---- what is read of the account, and published there ---- */

/*
 * Processes of one job are one member of turns: a *unit* is such a job, or a process that is none (plan/gpu_job.h).
 */

/*
 * Makes the units of an account that was read. Reads those of the other devices, too, where there may be jobs. Returns
 * the number of the unit of this process.
 */
uint32_t turn_account_units(struct device *device, const struct gpu_account_view *view,
			    struct gpu_turn_view *ret_turns);
/* Returns the number of a member that stands for the unit, for gpu_account_pass(). */
uint32_t turn_account_member(uint32_t unit);
/* Returns what this process may have if it may have so much more, `wanted`, as far as there is room in the account. */
uint64_t turn_account_raise(struct device *device, const struct gpu_account_member *member, uint64_t wanted);
/*
 * Returns whether all others that take turns have given up what they can. They are waited for so long (ns) from the
 * beginning of a turn.
 */
bool turn_account_others_are_away(const struct gpu_turn_view *turns, uint32_t self);
#define TURN_BEGIN 2000000000u
/* Returns the bytes that this process may have in its turn. */
uint64_t turn_account_room(const struct device *device, const struct gpu_turn_view *turns, uint32_t self);
/* Publishes what this process has now. Returns false if it is not in the account, or that is lost, and left. */
bool turn_account_publish(struct device *device, bool moving);
/*
 * While memory moves, which keeps the control thread from looking: says that the process is alive, in the accounts of
 * all devices but that one (NULL: of all). Does it at most so often that it costs nothing.
 */
void turn_account_beat(const struct device *device);

/* ---- turn_act.c: what was decided is done ---- */

/*
 * The process stops, its memory leaves and comes back, and it goes on; each is published in the account while the mover
 * works. They wait for the device, for a bounded time, and for the copies. Locking: take SPILL and HEAP; the caller
 * must hold no lock.
 */

/* Of the total: a process that waits does not give up less than this. */
#define TURN_KEEP_PART 32

/*
 * After all devices were looked at: publishes phases that have changed, and moves the memory of those of which that was
 * decided, at the same time.
 */
void turn_move(void);
/* After that, and after the budget of the device was set: stops the process, or lets it go on. */
void turn_act(struct device *device);

#endif
