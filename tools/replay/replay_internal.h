/*
 * replay_internal.h: the state of a run, for the files that make it up:
 *
 *   replay_program.c  the program, the GPU, allocations; what is counted
 *   replay_move.c     the mover's order of business in `fast`, as schedule.c and migrate.c have it
 *   replay_gap.c      the same in `exact`, as quiesce.c has it
 *   replay_run.c      all of it
 *
 * Time is in microseconds since the beginning. What only the mover changes (where pieces are) stays as it is between two
 * moments of the mover's, so the program and the GPU are brought up to the mover's time when that moves on.
 */
#ifndef TOOLS_REPLAY_INTERNAL_H
#define TOOLS_REPLAY_INTERNAL_H

#include "tools/replay/replay_run.h"

#include "shim/plan/plan.h"

/* As in shim/spill/inside.h. */
#define MOVES         24
#define MOVES_AT_ONCE 8
#define WISHES        1024
#define SIZES         129 /* lengths of pieces are below it, but for one that was cut otherwise */

struct moving {
	uint32_t piece;
	double end;
};

struct lane {
	struct moving at[MOVES];
	unsigned head, n;
	uint64_t units;
	double free; /* when the link can take the next */
};

/* A piece; where: enum plan_place. */
struct spot {
	uint8_t where;
	bool rests;  /* on the host, and not mapped yet */
	bool stays;  /* not movable */
	bool doomed; /* freed while it was on its way */
};

struct run {
	const struct job *job;
	const struct run_setting *setting;
	const struct run_costs *costs;
	struct run_result *result;
	struct plan *plan;
	double now; /* the mover's */

	struct spot *spots;            /* by piece */
	uint64_t *last;                /* by block: the latest submission that named a piece of it, from 1 */
	uint64_t device_units, in_use; /* budget without what is outside the heap; what of it is taken */
	uint64_t host_units, on_host;
	uint64_t outside;     /* bytes */
	uint32_t warm[SIZES]; /* device memory by length that is made and free */
	uint64_t unmade;      /* units that are free and not made */
	struct lane in, out;

	/* The program. */
	size_t next;    /* the event that comes next */
	double cpu;     /* when it is ready for that */
	double *finish; /* by submission, from 1: when the GPU is past it */
	uint64_t submitted, done;
	bool asked;     /* the next event is a submission that waits for the mover */
	bool answered;  /* the mover has had its say: it runs with what is where it is */
	uint32_t room;  /* units of a new block that waits for room to be made; 0: none does */
	bool room_made; /* as far as it can be: that block is placed now */
	size_t heard;   /* events before this one are known to the plan */
	size_t tried;   /* events before this one were tried: the mover may hear of them */
	bool failed;
	bool starving;     /* somebody waits for memory that is not free yet */
	bool stalled;      /* nobody waits until the GPU makes progress */
	uint64_t begun_at; /* submissions when counting began */
	double begin_us;
	bool counts;

	/* In gaps. */
	uint32_t *maps; /* pieces that came out, in a ring: to be mapped */
	unsigned n_maps, map_head;
	uint32_t wishes[WISHES];
	uint64_t wish_when[WISHES];
	unsigned n_wishes, next_wish, early;
	uint64_t wish_units;
	uint32_t refused[64];
	unsigned n_refused;
};

static inline bool run_moves(const struct run *run)
{
	return run->setting->mode == POLICY_SPILL_FAST || run->setting->mode == POLICY_SPILL_EXACT;
}

static inline double run_map_us(const struct run *run, struct run_map_cost cost, uint32_t piece)
{
	return cost.call + cost.mib * 2 * run->job->units[piece];
}

/* ---- replay_program.c ---- */
/* The program and the GPU up to the mover's time. */
void run_catch_up(struct run *run);
/* When something next happens by itself; 1e300: never. */
double run_next(const struct run *run);
void run_place(struct run *run, uint32_t piece, enum plan_place where);
bool run_is_busy(void *run, uint32_t piece);
const struct job_event *run_waiter(const struct run *run);
void run_answer(struct run *run);
void run_note_peaks(struct run *run);
/*
 * Device memory of that length is in use from now on: what is made and free (true), else it is made anew, and something
 * else is taken down for it where there is no room.
 */
bool run_take_device(struct run *run, uint32_t units);

/* ---- replay_move.c ---- */
void move_begin_in(struct run *run, uint32_t piece, bool gap);
void move_begin_out(struct run *run, uint32_t piece, bool gap);
/* Could one begin? Out: is there room for it on the host; in: on the device. */
bool move_has_room(const struct run *run, uint32_t piece, bool in);
/* In a gap: a piece on the host is not mapped from now on, if it was. */
void move_unmap_host(struct run *run, uint32_t piece);
/* Copies that have ended. True: there were some. */
bool move_see(struct run *run, bool gap);
void move_arrive(struct run *run, uint32_t piece, enum plan_place where);
/* Everything the mover does at one moment. True: there was something. */
bool move_round(struct run *run);
/* The GPU has made no progress and nothing is under way: who waits goes on. */
void move_give_up(struct run *run);
uint64_t move_free(const struct run *run); /* units */
uint64_t move_ahead_units(const struct run *run);
/* The plan hears what was submitted. */
void move_listen(struct run *run);

/* ---- replay_gap.c ---- */
bool gap_round(struct run *run);

#endif
