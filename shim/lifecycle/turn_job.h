/*
 * turn_job.h: turns of a process whose job has other seats, of other processes or of its own on other devices: they
 * stop, leave, come back and run together, as plan/gpu_job.h says. Functions are called on the control thread, by
 * turn.c.
 */
#ifndef SPILLWAY_TURN_JOB_H
#define SPILLWAY_TURN_JOB_H

#include "shim/accounting/gpu_account.h"
#include "shim/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct device;

/* The job cannot be stopped, and takes no part for a minute. */
#define TURN_REST 60000000000u
/* Tries to stop it before that. */
#define TURN_TRIES 3

/* Returns whether there are turns on any device of the job. */
bool turn_job_is_on(void);
/*
 * After the account was read and its units were made, of which `self` is that of this process: decides what this
 * process does next (turn_act(), turn_job_move()). Returns false if its share of the device is for the caller to find; otherwise
 * *ret_limit is set.
 */
bool turn_job_look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
		   struct gpu_turn_view *turns, uint32_t self, uint64_t *ret_limit);
/*
 * After all devices were looked at: publishes phases that have changed, and moves the memory of those of which that was
 * decided, at the same time. Waits and locks as turn_act(), which is for each device after it.
 */
void turn_job_move(void);
/* While it is being suspended on request: what turn_look_suspending() does for one device. */
void turn_job_suspending(struct device *device);
/* The process has no part in a job that takes turns. */
void turn_job_alone(const struct device *device);

#endif
