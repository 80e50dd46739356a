/*
 * plan_sim.h: the planner in charge of a recorded job on a simulated GPU and link; for plan_jobs_test and plan_bench.
 *
 * A trace is text, gzipped: "A id bytes" an allocation, "F id" a free, "L function block:offset ..." a launch with the
 * pointers it passes; offsets, and functions, are hexadecimal. Blocks are cut into pieces as shim/heap/block_build.c
 * does.
 */
#ifndef SPILLWAY_TEST_PLAN_SIM_H
#define SPILLWAY_TEST_PLAN_SIM_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_UNIT ((uint64_t)2 << 20)

enum sim_kind {
	SIM_LAUNCH,
	SIM_NEW,  /* the pieces appear */
	SIM_GONE, /* the pieces are freed */
};

struct sim_event {
	enum sim_kind kind;
	uint64_t function;
	uint32_t from, n; /* its pieces: sim_trace.pieces[from ... from + n - 1] */
};

struct sim_trace {
	struct sim_event *events;
	uint32_t n_events, n_launches, event_room;
	uint32_t *pieces;
	uint32_t n_pieces, piece_room;
	uint32_t *units; /* by piece number (its first unit): its length */
	uint32_t n_units, unit_room;
	uint64_t need_units; /* the most that were live at once */
};

/* How the blocks are cut: pieces of at most cap_units; 0: each block is one piece, whatever its size. False: no file. */
bool sim_load(struct sim_trace *trace, const char *path, uint32_t cap_units);
void sim_unload(struct sim_trace *trace);
/* To make a trace by hand: a block of that many units, all its pieces of cap_units; returns its first piece. */
uint32_t sim_add_block(struct sim_trace *trace, uint32_t units, uint32_t cap_units);
void sim_add_event(struct sim_trace *trace, enum sim_kind kind, uint64_t function, const uint32_t *pieces, uint32_t n);

/* Belady's rule without any time: bytes brought in by the launches from number `from` on, counted from 0. */
uint64_t sim_belady(const struct sim_trace *trace, uint64_t budget_units, uint32_t from);

struct sim_setting {
	uint64_t budget_units;
	uint64_t ahead_units;
	unsigned in_flight; /* transfers each way that are under way or wait for their turn */
	double launch_us;   /* what the GPU needs for one launch */
	double submit_us;   /* what the CPU needs for one */
	double gb_per_s;    /* each way */
	double latency_us;  /* of a transfer beyond its bytes, beside others: unmapping and mapping */
	unsigned run_ahead; /* launches that the CPU may be ahead of the GPU */
	uint32_t from;      /* measure from this launch on */
	bool order;         /* ask for victims of the wanted size */
	bool time_plan;     /* measure plan_ns: costs time itself */
};

struct sim_result {
	uint64_t bytes_in, bytes_out, fetches, victims;
	double ms;      /* of simulated time, for all launches measured */
	double plan_ns; /* of CPU time in the planner, for all launches measured */
	uint64_t plan_calls;
	uint32_t foreseen; /* launches measured at which the future was known */
};

/* False: stuck, which is a bug of the planner (nothing moves and the launch cannot run). */
bool sim_run(const struct sim_trace *trace, const struct sim_setting *setting, struct sim_result *ret_result);

#endif
