/*
 * sampler.h: samples once a second what other processes read on the statistics page. Page faults are counted where the
 * driver writes them and must be polled; and a killed process cannot write its last figures.
 */
#ifndef SPILLWAY_SAMPLER_H
#define SPILLWAY_SAMPLER_H

struct policy;

/*
 * Brings the statistics page and the trace up to date; about once a second and at exit, by any thread.
 * Locking: tries SAMPLER; does nothing if another thread holds it. The caller must hold no lock.
 */
void sampler_sample(void);

/* Sends single faults to the trace if the policy asks for both. Called once, before the first managed allocation. */
void sampler_start(const struct policy *policy);

/*
 * The tick: sampler_sample() and the work of other modules that is due about once a second. Called by one thread.
 * Locking: the caller must hold no lock.
 */
void sampler_tick(void);

#endif
