// SPDX-License-Identifier: Apache-2.0
/*
 * residence.h: whether the work of a process runs on a device, and where its movable memory is. Each device that it
 * uses has one. The mover carries it out (mover/orders.c), the user and turns ask for it (mover/spill.h), and a
 * process publishes it to the others of its job (gpu_job.h).
 *
 *           stop            leave            fetch            release
 *   RUNS ---------> STOPPED ---------> AWAY ---------> BACK -----------> RUNS
 *
 *   asked for       in RUNS                                    in STOPPED, AWAY or BACK
 *   stop            STOPPED; RUNS if no safe point came        stays as it is
 *   leave, TURN     AWAY, also with what could not leave;      AWAY: what is above `keep` leaves
 *                   RUNS if no safe point came
 *   leave, USER     AWAY; RUNS if not all could leave; STOPPED AWAY: everything leaves; if that fails it stays as it
 *                   if what is dead has no memory any more     is, and USER holds it only if TURN does not
 *   fetch           RUNS                                       BACK; stays as it is if USER holds it, or it fails
 *   release, TURN   RUNS                                       fetches, RUNS; stays as it is if USER holds it, or it
 *                                                              fails
 *   release, USER   RUNS                                       RUNS; stays as it is if TURN holds it, or if what is
 *                                                              dead gets no memory
 *   end, death      RUNS                                       RUNS, whoever holds it
 *
 * An order is still done if nobody waits for it any more; but if it leaves RUNS after that, or for USER, it is undone.
 */
#ifndef SPILLWAY_PLAN_RESIDENCE_H
#define SPILLWAY_PLAN_RESIDENCE_H

enum residence {
	RESIDENCE_RUNS,
	RESIDENCE_STOPPED, /* nothing runs, and no submission passes; its memory is where it was */
	RESIDENCE_AWAY,    /* its memory has left, but for what it keeps */
	RESIDENCE_BACK,    /* its memory is back; no submission passes */
};

/* Who wants it not to run. It runs again when nobody does. */
enum residence_reason {
	RESIDENCE_USER = 1, /* asked for it (spillway suspend, spillway.h) */
	RESIDENCE_TURN = 2, /* it is not its turn */
};

#endif
