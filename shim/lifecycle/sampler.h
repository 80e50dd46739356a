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

/* ---- host.pin_ahead ---- */

/*
 * Host memory is pinned before memory has to leave a device, so that a first suspension takes no longer than a later
 * one. Pinning takes 0.2 s a GiB, copying 0.02 s (docs/facts.md, Pinning).
 * The control thread does it, not the mover's: as long as nothing has spilled there is no mover, and none should be
 * started for this, because submissions are tracked from then on.
 */

/*
 * Takes one step for the first device that needs one: pins at most one chunk (heap_pin_ahead()). Returns after how many
 * ms it is to be called again at the latest, which is as long as the step took, so that half of the thread's time is
 * left; 0: nothing to do at present. Called on the control thread. Locking: takes HEAP; the caller must hold no lock.
 */
unsigned pin_ahead_look(void);

/* ---- the summary at the end ---- */

/* Writes the summary; at any time in STAGE_RUNNING. Locking: tries SUMMARY; does nothing if another thread holds it. */
void exit_summary_print(void);
/* At exit: writes the summary if the policy asks for it and anything was allocated or refused. */
void exit_summary_end(void);

#endif
