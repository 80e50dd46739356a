/*
 * pulse.h: what must be looked at now and then so that others see it: page faults are counted where the driver writes them,
 * and a process that is killed has no last word.
 */
#ifndef SPILLWAY_PULSE_H
#define SPILLWAY_PULSE_H

struct policy;

/* Bring the statistics page up to date, and the trace. About once a second, and at the end; any thread, under no lock. */
void pulse(void);

/* Single faults go into the trace, where both are asked for. Once, before the first managed memory. */
void pulse_start(const struct policy *policy);

/* pulse(), and every module that has something to do about once a second. By one thread, under no lock. */
void pulse_tick(void);

#endif
