/*
 * governor.h: the governor for programs without a period: decides whether memory may move on demand. For such a program
 * moving what is used can be worse than leaving it on the host. This state machine measures both and takes the better
 * one, such that trying costs a few percent at most. It is pure (the time is passed in), and only one thread, the
 * mover, may use it.
 *
 * The promise: if rates are steady for some seconds at a time, work takes at most 10 % longer than with moving switched
 * off, plus a quarter of a second.
 */
#ifndef SPILLWAY_GOVERNOR_H
#define SPILLWAY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

enum governor_state {
	GOVERNOR_STAY,  /* not moving; measures until the next try is due */
	GOVERNOR_TRY,   /* moving, to compare; ends early if it is clearly worse */
	GOVERNOR_MOVE,  /* moving, because it was better */
	GOVERNOR_CHECK, /* not moving for a moment, to see whether moving is still better */
};

#define GOVERNOR_RATES 5 /* number of epochs that a rate is the median of */

/* A rate of progress: the median of the latest epochs. */
struct governor_rate {
	double of[GOVERNOR_RATES]; /* submissions per ms in the latest epochs, the newest first */
	unsigned n;
};

struct governor {
	enum governor_state state;
	bool started, known;
	uint64_t now_ns, submissions, moved_bytes; /* arguments of the latest call */
	uint64_t since_ns;                         /* when the state began */
	uint64_t epoch_ns, epoch_work;             /* the present epoch so far; only time that counts */
	bool epoch_moved;                          /* memory moved in the present epoch */
	struct governor_rate still, moving;        /* rates without and with moving */
	double settled;                            /* the rate soon after moving was taken up; 0: not known yet */
	double lost_ns;            /* time lost in this state against the rate without moving; below 0: gained */
	double credit_ns;          /* time that trying may still lose */
	uint64_t wait_ns, next_ns; /* back-off: time from one try, or check, to the next, and when that is */
};

/* Initializes a governor, in the state GOVERNOR_STAY. */
void governor_init(struct governor *governor);

/*
 * Updates the governor; must be called every few milliseconds while the engine runs. All counts are cumulative.
 * submissions: those that the GPU has *completed*; the number submitted can be a thousand ahead of it and says nothing.
 * known: plan_knows(); moving is then taken unless it turns out to be worse. Returns whether pieces may move now.
 */
bool governor_moves(struct governor *governor, uint64_t now_ns, uint64_t submissions, uint64_t moved_bytes, bool known);

#endif
