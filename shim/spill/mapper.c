/*
 * A second thread that maps, for gaps: mapping host memory takes the GPU's driver almost as long as copying it (0.4 to
 * 1.2 ms for 32 MiB on an H200), two threads of one process get through half as much again as one, and meanwhile the
 * mover sees to the copies. It has no say: it maps what it is given, and the mover sees to what comes of it.
 */
#include "shim/enter.h"
#include "shim/real.h"
#include "shim/spill/inside.h"
#include "shim/thread.h"

#include <stdlib.h>
#include <sys/prctl.h>

/* In the order they were given: done ... taken ... given. */
#define JOBS RESTS

struct mapper {
	pthread_mutex_t lock;
	pthread_cond_t given_one;
	struct transit at[JOBS];
	CUresult result[JOBS];
	unsigned n_given, n_taken, n_done, n_seen; /* ever */
	struct heap *heap;
};

static void *run(void *argument)
{
	struct mapper *mapper = argument;

	enter_depth = 1;
	prctl(PR_SET_NAME, "spillway-mapper");
	pthread_mutex_lock(&mapper->lock);
	for (;;) {
		if (mapper->n_taken == mapper->n_given) {
			pthread_cond_wait(&mapper->given_one, &mapper->lock);
			continue;
		}
		unsigned at = mapper->n_taken++ % JOBS;
		struct transit transit = mapper->at[at];
		pthread_mutex_unlock(&mapper->lock);
		CUresult result = transit_map(mapper->heap, &transit, false);
		pthread_mutex_lock(&mapper->lock);
		mapper->result[at] = result;
		mapper->n_done++;
	}
	return NULL;
}

struct mapper *mapper_new(struct heap *heap)
{
	struct mapper *mapper = calloc(1, sizeof(*mapper));

	if (!mapper)
		return NULL;
	mapper->heap = heap;
	pthread_mutex_init(&mapper->lock, NULL);
	pthread_cond_init(&mapper->given_one, NULL);
	if (thread_start(run, mapper, ENGINE_STACK, false, NULL) == 0)
		return mapper;
	free(mapper);
	return NULL;
}

bool mapper_give(struct mapper *mapper, const struct transit *transit)
{
	pthread_mutex_lock(&mapper->lock);
	bool room = mapper->n_given - mapper->n_seen < JOBS;
	if (room) {
		mapper->at[mapper->n_given++ % JOBS] = *transit;
		pthread_cond_signal(&mapper->given_one);
	}
	pthread_mutex_unlock(&mapper->lock);
	return room;
}

bool mapper_take_back(struct mapper *mapper, struct transit *ret_transit)
{
	pthread_mutex_lock(&mapper->lock);
	bool any = mapper->n_taken < mapper->n_given;
	if (any)
		*ret_transit = mapper->at[--mapper->n_given % JOBS];
	pthread_mutex_unlock(&mapper->lock);
	return any;
}

bool mapper_see(struct mapper *mapper, struct transit *ret_transit, CUresult *ret_result)
{
	pthread_mutex_lock(&mapper->lock);
	bool any = mapper->n_seen < mapper->n_done;
	if (any) {
		*ret_transit = mapper->at[mapper->n_seen % JOBS];
		*ret_result = mapper->result[mapper->n_seen % JOBS];
		mapper->n_seen++;
	}
	pthread_mutex_unlock(&mapper->lock);
	return any;
}

bool mapper_is_idle(struct mapper *mapper)
{
	pthread_mutex_lock(&mapper->lock);
	bool idle = mapper->n_seen == mapper->n_given;
	pthread_mutex_unlock(&mapper->lock);
	return idle;
}
