/*
 * pulse.h: what must be looked at now and then so that others see it: page faults are counted where the driver writes them,
 * and a process that is killed has no last word.
 */
#ifndef SPILLWAY_PULSE_H
#define SPILLWAY_PULSE_H

/* Bring the statistics page up to date, and the trace. About once a second, and at the end; any thread, under no lock. */
void pulse(void);

#endif
