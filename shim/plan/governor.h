/*
 * governor.h: may memory move on demand now? For a program without a period, moving what is used can be worse than
 * leaving it on the host; this is a state machine that measures both and takes the better, such that trying costs at
 * most a few percent. Pure: the clock is passed in. One thread (the mover's) uses it.
 *
 * The promise: work takes at most 10 % longer than with moving switched off, a quarter of a second aside, where rates
 * are steady for some seconds at a time.
 */
#ifndef SPILLWAY_GOVERNOR_H
#define SPILLWAY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

enum governor_state {
	GOVERNOR_STAY,  /* not moving; measures, until it is time to try */
	GOVERNOR_TRY,   /* moving, to see whether it is better; ends early when it is clearly worse */
	GOVERNOR_MOVE,  /* moving, as it was better */
	GOVERNOR_CHECK, /* not moving for a moment, to see whether moving is still better */
};

#define GOVERNOR_RATES 5 /* epochs that a rate is the median of */

struct governor_rate {
	double of[GOVERNOR_RATES]; /* submissions a millisecond in the last epochs */
	unsigned n;
};

struct governor {
	enum governor_state state;
	bool started, known;
	uint64_t now_ns, submissions, moved_bytes; /* what was passed last */
	uint64_t since_ns;                         /* the state began */
	uint64_t epoch_ns, epoch_work;             /* the present epoch up to now, of time counted */
	bool epoch_moved;                          /* anything moved in it */
	struct governor_rate still, moving;        /* rates without moving, and with */
	double settled;                            /* the rate with moving soon after it was taken up; 0: not yet */
	double lost_ns;                            /* in this state, against the rate without moving; below 0: gained */
	double credit_ns;                          /* what trying may lose */
	uint64_t wait_ns, next_ns;                 /* back-off: from one try, or check, to the next */
};

void governor_init(struct governor *governor);

/*
 * To be called every few milliseconds while the engine runs. All counts are cumulative. submissions: those which the GPU
 * has *finished*; the ones submitted can be a thousand ahead of it and say nothing. known: plan_knows(); moving is then
 * taken unless it turns out worse. True: pieces may be moved now.
 */
bool governor_moves(struct governor *governor, uint64_t now_ns, uint64_t submissions, uint64_t moved_bytes, bool known);

#endif
