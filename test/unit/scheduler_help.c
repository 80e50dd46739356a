// SPDX-License-Identifier: Apache-2.0

#include "test/test.h"
#include "test/unit/plan_check.h"
#include "test/unit/scheduler_help.h"

struct scheduler scheduler;
enum plan_place places[PIECES];
bool there[PIECES], running[PIECES];
static bool coming[PIECES];
uint32_t sizes[PIECES];
unsigned n_fetched, n_exchanged, n_evicted, first_fetched;
unsigned orders[LOG], n_orders, n_ahead, others_in, others_out;
bool busy[PIECES], aside[PIECES], refuses, forgets_aside;
unsigned n_aside;
uint64_t host_free, unit_ns, quiet_ns;
bool idle, names_all;
struct graph graph;
struct names names;
uint32_t refused;
enum migrate_answer refusal;

void put(uint32_t piece, enum plan_place place)
{
	places[piece] = place;
	plan_set(scheduler.plan, piece, sizes[piece], place);
}

static uint64_t bytes_moving(bool in)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < PIECES; i++)
		if (places[i] == PLAN_MOVING && coming[i] == in)
			bytes += sizes[i] * PLAN_UNIT;
	return bytes;
}

unsigned n_moving(bool in)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < PIECES; i++)
		n += places[i] == PLAN_MOVING && coming[i] == in;
	return n;
}

uint64_t device_free(void)
{
	uint64_t bytes = BUDGET;

	for (unsigned i = 0; i < PIECES; i++)
		bytes -= places[i] == PLAN_DEVICE || places[i] == PLAN_MOVING ? sizes[i] * PLAN_UNIT : 0;
	return bytes;
}

static void look(void *hand, struct scheduler_view *ret_view)
{
	*ret_view = (struct scheduler_view){
	    .budget = BUDGET,
	    .largest = UNITS * PLAN_UNIT,
	    .free = device_free(),
	    .in = {.n = n_moving(true) + others_in, .bytes = bytes_moving(true), .unit_ns = unit_ns},
	    .out = {.n = n_moving(false) + others_out, .bytes = bytes_moving(false), .unit_ns = unit_ns},
	    .quiet_ns = quiet_ns,
	};
}

static uint32_t units(void *hand, uint32_t piece)
{
	return sizes[piece];
}

static enum plan_place where(void *hand, uint32_t piece)
{
	return places[piece];
}

static enum migrate_answer begin(uint32_t piece, bool in)
{
	assert_int_equal(places[piece], in ? PLAN_HOST : PLAN_DEVICE);
	if (n_orders < LOG)
		orders[n_orders++] = piece + (in ? 0 : OUT);
	put(piece, PLAN_MOVING);
	coming[piece] = in;
	return MIGRATE_BEGUN;
}

static enum migrate_answer fetch(void *hand, uint32_t piece, bool ahead, bool gap)
{
	(void)hand, (void)ahead, (void)gap;
	if (device_free() < sizes[piece] * PLAN_UNIT)
		return MIGRATE_NO_ROOM;
	if (piece == refused)
		return refusal;
	n_ahead += ahead;
	if (!n_fetched++)
		first_fetched = piece;
	return begin(piece, true);
}

static enum migrate_answer evict(void *hand, uint32_t piece, bool gap)
{
	(void)hand, (void)gap;
	if (refuses)
		return MIGRATE_FAILED;
	if (host_free < sizes[piece] * PLAN_UNIT)
		return MIGRATE_NO_ROOM;
	host_free -= sizes[piece] * PLAN_UNIT;
	n_evicted++;
	return begin(piece, false);
}

static enum migrate_answer exchange(void *hand, uint32_t piece, bool gap)
{
	(void)hand, (void)gap;
	if (running[piece])
		return MIGRATE_BUSY;
	n_exchanged++;
	return begin(piece, false);
}

static bool is_idle(void *hand)
{
	return idle;
}

static void put_aside(void *hand, uint32_t piece)
{
	assert_true(refuses);
	n_aside++;
	if (forgets_aside)
		return;
	aside[piece] = true;
	plan_set(scheduler.plan, piece, sizes[piece], PLAN_PINNED);
}

static void use_there(void *hand, uint32_t piece)
{
	there[piece] = true;
}

static void tell_plan(void *hand, uint32_t piece)
{
	put(piece, places[piece]);
}

/* The submission that waits keeps what it names. */
static bool is_busy(void *hand, uint32_t piece)
{
	return names_all || busy[piece];
}

void finish(void)
{
	for (uint32_t i = 0; i < PIECES; i++)
		if (places[i] == PLAN_MOVING)
			put(i, coming[i] ? PLAN_DEVICE : PLAN_HOST);
}

int setup(void **state)
{
	static const struct scheduler_ops ops = {
	    .look = look,
	    .units = units,
	    .where = where,
	    .fetch = fetch,
	    .evict = evict,
	    .exchange = exchange,
	    .is_idle = is_idle,
	    .put_aside = put_aside,
	    .use_there = use_there,
	    .tell_plan = tell_plan,
	    .is_busy = is_busy,
	    .is_in_use = is_busy,
	};

	memset(&scheduler, 0, sizeof(scheduler));
	memset(places, 0, sizeof(places));
	memset(there, 0, sizeof(there));
	memset(running, 0, sizeof(running));
	memset(busy, 0, sizeof(busy));
	memset(aside, 0, sizeof(aside));
	n_fetched = n_exchanged = n_evicted = first_fetched = n_orders = n_ahead = others_in = others_out = 0;
	host_free = UINT64_C(1) << 40;
	unit_ns = 1;
	quiet_ns = 0;
	for (unsigned i = 0; i < PIECES; i++)
		sizes[i] = UNITS;
	idle = refuses = forgets_aside = false;
	n_aside = 0;
	graph = (struct graph){.who = 1};
	names_all = true;
	refused = PIECES;
	scheduler.ops = &ops;
	scheduler.plan = plan_new(PLAN_BESIDE_KERNELS);
	return scheduler.plan ? 0 : -1;
}

int teardown(void **state)
{
	assert_true(plan_is_valid(scheduler.plan));
	plan_free(scheduler.plan);
	return 0;
}

/* ---- graphs ---- */

void graph_uses(struct graph *of, uint32_t from, uint32_t to, uint32_t uses)
{
	for (uint32_t i = from; i < to; i++)
		of->uses[i] = uses * SCHEDULER_USE;
}

static const struct graph *sorting;
static int by_uses(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (sorting->uses[x] != sorting->uses[y])
		return sorting->uses[x] > sorting->uses[y] ? -1 : 1;
	return x < y ? -1 : x > y;
}

const struct scheduler_named *names_of(const struct graph *of, struct names *ret)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < PIECES; i++)
		if (of->uses[i])
			ret->pieces[n++] = i;
	sorting = of;
	qsort(ret->pieces, n, sizeof(ret->pieces[0]), by_uses);
	for (unsigned i = 0; i < n; i++)
		ret->uses[i] = of->uses[ret->pieces[i]];
	ret->named = (struct scheduler_named){ret->pieces, ret->uses, n, of->who, 0};
	return &ret->named;
}

void lay(uint32_t n, uint32_t more)
{
	for (uint32_t i = 0; i < n + more; i++)
		put(i, i < n ? PLAN_DEVICE : PLAN_HOST);
}

unsigned n_at(uint32_t from, uint32_t to, enum plan_place place)
{
	unsigned n = 0;

	for (uint32_t i = from; i < to; i++)
		n += places[i] == place;
	return n;
}

/* ---- what holds beside kernels and in gaps ---- */

void refused_once(unsigned (*run)(const struct graph *of), unsigned least)
{
	lay(FIT, 1);
	graph_uses(&graph, 0, FIT, 1);
	graph_uses(&graph, FIT, FIT + 1, 12);
	for (unsigned how = 0; how < 2; how++) {
		refused = FIT;
		refusal = how ? MIGRATE_FAILED : MIGRATE_NO_ROOM;
		unsigned before = n_exchanged;
		for (unsigned i = 0; i < 20; i++)
			run(&graph);
		assert_in_range(n_exchanged - before, least, 1);
		assert_int_equal(n_at(0, FIT, PLAN_DEVICE), FIT);
		/* It is tried again some time. */
		refused = PIECES;
		for (unsigned i = 0; i < 100; i++)
			run(&graph);
		assert_int_equal(places[FIT], PLAN_DEVICE);
		put(FIT, PLAN_HOST);
		for (uint32_t i = 0; i < FIT; i++)
			put(i, PLAN_DEVICE);
	}
}

void turns_undo_nothing(unsigned (*run)(const struct graph *of))
{
	struct graph one = {.who = 1}, other = {.who = 2};

	lay(FIT, 10);
	graph_uses(&one, 0, FIT, 1);
	graph_uses(&one, FIT, FIT + 10, 4);
	graph_uses(&other, 0, FIT + 10, 1);
	graph_uses(&other, 10, FIT, 4);
	assert_int_equal(run(&one), 20);
	/* What is away for the one is what the other uses most. */
	assert_int_equal(n_at(10, FIT, PLAN_HOST), 10);
	unsigned moved = 0;
	for (unsigned i = 0; i < 30; i++)
		moved += run(&other) + run(&one);
	assert_int_equal(moved, 0);
	/* The one comes no more. */
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(moved += run(&other), 0);
	assert_int_equal(run(&other), 20);
	assert_int_equal(n_at(10, FIT, PLAN_DEVICE), 10);
}
