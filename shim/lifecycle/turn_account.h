/*
 * turn_account.h: what turns (turn.h) read of the account of a device, and publish there. Processes of one job are one
 * member of turns: a *unit* is such a job, or a process that is none (plan/gpu_job.h). Functions are called on the
 * control thread.
 */
#ifndef SPILLWAY_TURN_ACCOUNT_H
#define SPILLWAY_TURN_ACCOUNT_H

#include "shim/accounting/gpu_account.h"

#include <stdbool.h>
#include <stdint.h>

struct device;

/* Returns whether this process is in the accounts of several devices: then it is a job by itself. */
bool turn_account_is_in_several(void);
/* Sets what this process publishes about its job, but for its phase and its state. */
void turn_account_claim(const struct device *device, struct gpu_account_member *member, uint64_t now);
/*
 * Makes the units of an account that was read. Reads those of the other devices, too, where there may be jobs. Returns
 * the number of the unit of this process.
 */
uint32_t turn_account_units(struct device *device, const struct gpu_account_view *view,
			    struct gpu_turn_view *ret_turns);
/* Returns the number of a member that stands for the unit, for gpu_account_pass(). */
uint32_t turn_account_member(uint32_t unit);
/* Returns the part of so many bytes of the unit of this process that is for this process, by what each needs. */
uint64_t turn_account_part(const struct gpu_account_view *view, uint64_t bytes);
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
/* The account was lost (turn.h, turn_lost()). */
void turn_account_lost(const struct device *device);

#endif
