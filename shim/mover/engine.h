/*
 * engine.h: the spill engine of one device: the mover thread and what submissions tell it. Between use.h, which is on
 * the launch path, and inside.h, what the mover's files share.
 *
 * Lock: SPILL(device), for the list of submissions that wait and for what they are told. The log has none (tape.h).
 */
#ifndef SPILLWAY_ENGINE_H
#define SPILLWAY_ENGINE_H

#include "shim/device/device.h"
#include "shim/heap/transit.h"
#include "shim/submit/tape.h"

#include <pthread.h>

/* A submission that waits for memory. Owned by its thread, on the list until it is answered or gives up. */
struct waiter {
	const struct named *named;
	unsigned n;
	bool answered;
	bool unknown;   /* it may touch anything: it waits until everything is mapped */
	bool had_gap;   /* exact mode: what could be done for it in a gap has been done */
	uint64_t since; /* ns */
	struct waiter *next;
};

struct engine;

/*
 * A record for the mover: never waits for more than the copying. False: there was no room for it, and the mover has not
 * heard of the ticket. An engine that is dead takes nothing away, so it need not.
 */
bool engine_log(struct engine *engine, uint64_t function, const struct named *named, unsigned n, struct ticket ticket);

/*
 * Wait until the mover has done what it can for this submission. Its blocks' waits are raised. Returns for how long the
 * process was stopped meanwhile, ns, as far as it is known: that time is no wait.
 */
uint64_t engine_wait(struct engine *engine, const struct named *named, unsigned n, bool unknown);

/* Blocks of unknown submissions: the mark that stands for all memory of the device. */
struct mark *engine_everything(struct engine *engine);

/* Of which device it is, a bit. */
uint64_t engine_device(const struct engine *engine);

/* Is the mover short of proofs that submissions are done? Then events are recorded behind each. */
bool engine_is_hungry(const struct engine *engine);

#endif
