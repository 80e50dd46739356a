/*
 * sampler.h: what must be looked at now and then so that others see it: page faults are counted where the driver writes them,
 * and a process that is killed has no last word.
 */
#ifndef SPILLWAY_SAMPLER_H
#define SPILLWAY_SAMPLER_H

struct policy;

/* Bring the statistics page up to date, and the trace. About once a second, and at the end; any thread, under no lock. */
void sampler_sample(void);

/* Single faults go into the trace, where both are asked for. Once, before the first managed memory. */
void sampler_start(const struct policy *policy);

/* sampler_sample(), and every module that has something to do about once a second. By one thread, under no lock. */
void sampler_tick(void);

#endif
