// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_turn.h: how processes share a GPU: by turns, by shares of it that they agree on, or each by what the driver has
 * free.
 */
#ifndef SPILLWAY_GPU_TURN_H
#define SPILLWAY_GPU_TURN_H

#include <stdbool.h>
#include <stdint.h>

/* ---- turns ---- */

/*
 * Turns: if the processes that share a GPU need much more of it than there is, one of them submits work at a time, with
 * all the memory that the others can spare, and the others wait. These functions decide whether there are turns, whose
 * turn it is, and how long it lasts. Pure: no clock, no CUDA. Every process computes the same from the same figures,
 * which the processes publish in the account of the GPU (accounting/gpu_account.h).
 *
 * Rules:
 *  - There are turns if what all need does not fit, and either a process asks for turns (share: turns) or those that
 *    spill lose much of their time by it (share: auto, GPU_TURN_LOSS).
 *  - There are none if what cannot leave the device takes so much that a process would have less than half of what it
 *    needs in its own turn (gpu_turn_in_the_way).
 *  - A turn ends when its process has nothing to do while another waits, or after its quantum, if another has been
 *    served less for its weight. So time is divided by weight, and who comes back after a pause has at most one quantum
 *    in advance (gpu_turn_enter).
 *  - Who needs short turns goes first, as long as it was served less than the holder; and who has waited for longer
 *    than its patience, as soon as the holder has had the shortest turn. Neither happens before the holder has run for
 *    some times the cost of a switch, so switches never take more than a part of the time. Who has not had a turn yet
 *    counts as one that needs a short one, but for a holder that is in its own first one: of many that start together,
 *    each has a whole one.
 *  - Who has published nothing for GPU_TURN_SILENT (stopped by a signal) takes no part: it keeps its memory, and the
 *    others go on in what is left.
 */

#define GPU_TURN_NOBODY UINT32_MAX
/* Per mille of their time that processes lose by spilling, on average, from which on turns are worth their cost. */
#define GPU_TURN_LOSS 150
/*
 * ns without a sign of life, after which a process takes no part; while it moves its memory, longer by so much for each
 * MiB that it needs. Measured: pinning takes 160 to 230 ms for each GiB, copying 20; this is twice as much.
 */
#define GPU_TURN_SILENT     UINT64_C(2000000000)
#define GPU_TURN_SILENT_MIB UINT64_C(500000)
/* ns: a turn whose length the policy does not set (share.quantum: auto) is at least and at most so long. */
#define GPU_TURN_QUANTUM_LEAST UINT64_C(500000000)
#define GPU_TURN_QUANTUM_MOST  UINT64_C(30000000000)
/* ns: the holder yields when it has had nothing to do for so long. */
#define GPU_TURN_IDLE UINT64_C(20000000)

enum gpu_turn_kind {
	GPU_TURN_OFF, /* takes no part: it runs at any time, with what it may have */
	GPU_TURN_AUTO,
	GPU_TURN_ON,
};

/* What a process publishes about its turns. Times are ns of CLOCK_MONOTONIC, 0: none, unless they say otherwise. */
struct gpu_turn_claim {
	uint64_t kind;   /* enum gpu_turn_kind */
	uint64_t weight; /* 1 to 100 */
	uint64_t beat;   /* when it last published this */
	uint64_t moving; /* 1: it moves its memory out or in, and may not publish anything for some time */
	uint64_t away;   /* 1: its memory has left: what it may have now is what it keeps */
	uint64_t waits;  /* since when a submission waits for its turn */
	uint64_t idle;   /* of the holder: since when it has nothing to do; 0: it works */
	uint64_t served; /* ns of turns that it has had, times 100 / weight, and more: see gpu_turn_enter() */
	uint64_t got;    /* ns of turns that it has had */
	uint64_t burst;  /* ns: how long its turns are that end because it has nothing to do; 0: not known, or longer */
	uint64_t cost; /* ns: how long a switch to it takes, from the stop of another until it goes on; 0: not known */
	uint64_t loss; /* per mille of its time that it loses by spilling */
	uint64_t quantum;  /* ns: by its policy; 0: auto */
	uint64_t patience; /* ns: how long a submission should wait at most (share.wait.max) */
	uint64_t n;        /* turns that it has had */
};

struct gpu_turn_member {
	uint64_t needs;    /* bytes that its heap has, on the device and elsewhere, and what else is charged to it */
	uint64_t may_have; /* bytes, as in the account */
	uint64_t stuck;    /* bytes that cannot leave the device */
	struct gpu_turn_claim claim;
};

struct gpu_turn_view {
	uint64_t now, total;
	const struct gpu_turn_member *members;
	uint32_t n;
	bool on; /* there are turns */
	uint32_t
	    holder; /* number of the member whose turn it is, or GPU_TURN_NOBODY: none has it, or its process died */
	uint64_t since; /* when the turn began */
};

/* Returns whether the member can take turns: it wants to, and has shown lately that it is alive. */
bool gpu_turn_takes_part(const struct gpu_turn_view *view, uint32_t member);
/* Returns whether there should be turns from now on. */
bool gpu_turn_wanted(const struct gpu_turn_view *view);
/*
 * Returns the member whose memory leaves others too little room to take turns, or GPU_TURN_NOBODY if turns are
 * possible, or if fewer than two could take part.
 */
uint32_t gpu_turn_in_the_way(const struct gpu_turn_view *view);
/* Returns the bytes that the member may have while it is its turn and all others have given up what they can. */
uint64_t gpu_turn_room(const struct gpu_turn_view *view, uint32_t member);
/*
 * Returns the bytes that the member may keep while another has the turn, with those that cannot leave: what is left
 * beside the one that needs most, divided among those that wait, less a part for what nobody has counted. 0: too little
 * to be of use.
 */
uint64_t gpu_turn_keep(const struct gpu_turn_view *view, uint32_t member);
/* Returns how long the member's turns are if others wait, in ns. */
uint64_t gpu_turn_quantum(const struct gpu_turn_view *view, uint32_t member);
/*
 * Returns whose turn it should be now: the holder's, that of another, or GPU_TURN_NOBODY if no process has anything to
 * do.
 */
uint32_t gpu_turn_next(const struct gpu_turn_view *view);
/*
 * Returns how long the holder may go on, in ns, when gpu_turn_next() says that another is to have the turn, until
 * little of its memory is alive (struct leave_moment): not at all if it has nothing to do; about a step if the other
 * should not wait; else some steps, which cost nobody more than a part of a quantum.
 */
uint64_t gpu_turn_may_wait(const struct gpu_turn_view *view);
/*
 * To be called by a member that had nothing to do and begins to wait: returns what it counts as served from now on, so
 * that it does not get all the time at once that it did not ask for; nor waits until others, who came while it took no
 * part, have had as much as it has had before.
 */
uint64_t gpu_turn_enter(const struct gpu_turn_view *view, uint32_t member);
/* Adds the time of a turn, in ns, to what a member of that weight was served. */
uint64_t gpu_turn_serve(uint64_t served, uint64_t weight, uint64_t ns);
/*
 * Returns the new `burst` after a turn of that length, at whose end there was nothing to do for `idle` ns. Only a turn
 * that has ended for that counts (GPU_TURN_IDLE): any program has nothing to do for a moment between two steps. The
 * last turn alone counts: a program that loads its data first needs one long turn, and should not wait for long
 * afterwards. A wrong guess costs one turn that comes early.
 */
uint64_t gpu_turn_burst(uint64_t ns, uint64_t idle);
/*
 * Returns the new `cost` after a switch that took `ns`. The first switch counts at most as much as a usual one, because
 * host memory is pinned then, which takes ten times as long as the copies; later ones are averaged.
 */
uint64_t gpu_turn_cost(uint64_t cost, uint64_t ns);

/* ---- shares ---- */

/*
 * how the processes that share one GPU divide what they may have together. Pure: every process computes
 * the same from the same figures.
 */

/*
 * Returns the share of member number `self`. Who needs less than an equal part gets what it needs, the others divide
 * the rest equally; nobody gets less than what cannot leave. What nobody needs is divided equally, too, so that a
 * process can grow at once. A newcomer counts as if it needed an eighth of an equal part. The sum of all shares is at
 * most `total`, unless what cannot leave is more.
 */
uint64_t gpu_share_of(uint64_t total, const struct gpu_turn_member *members, unsigned n, unsigned self);
/*
 * Returns whether one more process can take turns with the members: all fit, or `host` bytes of host memory hold what
 * is away while the turn changes, when one has left and the next has not come back. That is all but what fits beside
 * the member that needs most. The new process counts as if it needed as much as that member, because nobody knows what
 * it will need.
 */
bool gpu_share_admits(uint64_t total, const struct gpu_turn_member *members, unsigned n, uint64_t host);

/* ---- by what is free ---- */

/*
 * a device budget that follows what the driver has free (`device.budget: auto`): it shrinks at once when
 * others need the memory, and grows back slowly. Pure: no clock, no driver; the caller passes the time and the figures.
 *
 * Rules, with F the free bytes of the device, R the reserve:
 *  - F below R: the limit falls at once to what the process uses less the missing bytes.
 *  - The limit never promises more than what is used and F - R.
 *  - Growth: by an eighth of what is free beyond 2 R at most, below that in small steps (a piece at least, if two fit),
 *    and only to what is used plus the step; not within GROW_AFTER of a shrink, then about once a second. Both times
 *    have jitter, so that processes that do not know of each other do not act at the same moment. Each of up to 8 of
 *    them takes a part of what is free that leaves enough for the others, so together they never go below R by growing.
 *  - Growth ends an eighth of R above R, but for who has less than that eighth: it takes it from there, or it could be
 *    left with nothing for good. Simulated: without this rule one of four processes had less than 30 MiB, of 80 GiB, in
 *    8 of 5,000 runs.
 *  - A new process on the GPU shows as memory that others suddenly hold. R is doubled for a while, because a process
 *    that starts takes more than its context.
 */

struct live_budget_figures {
	uint64_t now;         /* ns, of any monotonic clock */
	uint64_t total, free; /* bytes of the device, as the driver reports */
	uint64_t used;        /* bytes that this process has under its budget */
	uint64_t reserve;     /* bytes that are to stay free */
	uint64_t piece;       /* bytes of the largest piece that the heap moves */
};

struct live_budget {
	uint64_t limit;
	uint64_t others[2];  /* bytes that others held at the last two looks */
	uint64_t grow_from;  /* ns: no growth before this time */
	uint64_t wary_until; /* ns: until then the reserve is doubled */
	uint64_t random;
};

enum live_budget_change { LIVE_BUDGET_KEEPS, LIVE_BUDGET_SHRINKS, LIVE_BUDGET_GROWS };

/* The first limit: what is used, and what is free beyond the reserve. seed: differs between processes. */
void live_budget_begin(struct live_budget *budget, const struct live_budget_figures *figures, uint64_t seed);
/*
 * Sets the limit anew. To be called some ten times a second. Returns LIVE_BUDGET_SHRINKS if the limit fell because too
 * little is free; what is above it should then leave the device.
 */
enum live_budget_change live_budget_look(struct live_budget *budget, const struct live_budget_figures *figures);

#endif
