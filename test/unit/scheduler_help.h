// SPDX-License-Identifier: Apache-2.0
/*
 * scheduler_help.h: what the tests of the scheduler share: one with copies that end when the test says so, and graphs
 * that use each piece so and so often.
 */
#ifndef UNIT_SCHEDULER_HELP_H
#define UNIT_SCHEDULER_HELP_H

#include "shim/plan/scheduler.h"

#define UNITS  8 /* of most pieces */
#define PIECES 80
#define FIT    20
#define BUDGET (UNITS * PLAN_UNIT * FIT)

extern struct scheduler scheduler;
extern enum plan_place places[PIECES];
extern uint32_t sizes[PIECES]; /* in units */
/* running: in use; there: the scheduler has said that it is used where it is. */
extern bool there[PIECES], running[PIECES];
extern unsigned n_fetched, n_exchanged, n_evicted, first_fetched;
/* What was ordered, in order: fetches as the piece, evictions as the piece + OUT. n_ahead: fetches ahead. */
enum { OUT = 1000, LOG = 256 };
extern unsigned orders[LOG], n_orders, n_ahead;
extern bool busy[PIECES], aside[PIECES]; /* aside: the driver refused to evict it */
extern bool forgets_aside;               /* there is no memory for that */
extern unsigned n_aside;                 /* pieces that were to be put aside */
/* Evictions are refused; so much host memory is free; copies that nobody ordered, and what the link takes. */
extern bool refuses;
extern uint64_t host_free, unit_ns, quiet_ns;
extern unsigned others_in, others_out;
/* names_all: all that is on the device is named by the submission that waits, so it is busy; true at first. */
extern bool idle, names_all;
/* Fetches of this piece are answered so. */
extern uint32_t refused;
extern enum migrate_answer refusal;

int setup(void **state);
int teardown(void **state);
void put(uint32_t piece, enum plan_place place);
/* Ends all copies. */
void finish(void);
unsigned n_moving(bool in);
uint64_t device_free(void);
/* The first `n` pieces are on the device, the next `more` on the host. */
void lay(uint32_t n, uint32_t more);
unsigned n_at(uint32_t from, uint32_t to, enum plan_place place);

/* How often it uses each piece; 0: it does not name it. */
struct graph {
	uint64_t who;
	uint32_t uses[PIECES];
};
extern struct graph graph; /* number 1, and empty before each test */
void graph_uses(struct graph *graph, uint32_t from, uint32_t to, uint32_t uses);

struct names {
	uint32_t pieces[PIECES], uses[PIECES];
	struct scheduler_named named;
};
extern struct names names;
const struct scheduler_named *names_of(const struct graph *graph, struct names *ret);

/*
 * run: runs the submission and returns how many pieces it has moved. A piece that does not come is exchanged at least
 * `least` times in 20 launches and at most once, and comes later; and graphs in turn do not undo each other's
 * exchanges.
 */
void refused_once(unsigned (*run)(const struct graph *graph), unsigned least);
void turns_undo_nothing(unsigned (*run)(const struct graph *graph));

#endif
