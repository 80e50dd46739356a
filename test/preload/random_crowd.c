// SPDX-License-Identifier: Apache-2.0
/*
 * random_crowd.c: many streams and many threads of spill_random (random.h). Each writes a part of one block and then
 * ends: a stream is destroyed, a thread returns with work in its own default stream. They begin behind what a slot has
 * done, and its next operation comes behind them all.
 */
#include "test/preload/random.h"

struct member {
	struct worker nobody; /* who submits */
	struct op op;
	CUstream stream;
	CUevent begin, end;
	pthread_t thread;
};

static void submit(struct member *member)
{
	GO(cuStreamWaitEvent(member->stream, member->begin, 0));
	op_submit(&member->nobody, &member->op, member->stream, SLOT_FREE);
	GO(cuEventRecord(member->end, member->stream));
}

static void *in_thread(void *argument)
{
	struct member *member = argument;

	GO(cuCtxSetCurrent(random_context));
	submit(member);
	return NULL;
}

static void begin(struct member *member, bool threads)
{
	GO(cuEventCreate(&member->end, CU_EVENT_DISABLE_TIMING));
	if (!threads) {
		GO(cuStreamCreate(&member->stream, CU_STREAM_NON_BLOCKING));
		submit(member);
		return;
	}
	member->stream = CU_STREAM_PER_THREAD;
	if (pthread_create(&member->thread, NULL, in_thread, member))
		made_up_fail("no thread");
}

static void end(struct member *member, bool threads, CUstream stream)
{
	if (threads)
		pthread_join(member->thread, NULL);
	else
		GO(cuStreamDestroy_v2(member->stream));
	GO(cuStreamWaitEvent(stream, member->end, 0));
	GO(cuEventDestroy_v2(member->end));
}

void crowd_play(struct worker *worker)
{
	unsigned slot = random_below(worker, SLOTS), n = 2 + random_below(worker, 30), at_once;
	struct slot *in = &worker->slot[slot];
	struct block *block = op_pick(worker);
	bool threads = random_one_in(worker, 2);

	if (!threads && random_one_in(worker, 8))
		n = 256 + random_below(worker, 64);
	uint32_t part = (uint32_t)(block->bytes / 4 / n);
	if (!part)
		return;
	at_once = random_one_in(worker, 2) ? n : 1 + random_below(worker, n);
	struct member *members = calloc(n, sizeof(*members));
	block_use(worker, slot, block, true, "a crowd");
	GO(cuEventRecord(in->event, in->handle));
	in->recorded = in->n;
	for (unsigned i = 0; i < n + at_once; i++) {
		if (i >= at_once)
			end(&members[i - at_once], threads, in->handle);
		if (i >= n)
			continue;
		members[i].begin = in->event;
		members[i].op = (struct op){.kind = random_one_in(worker, 4) ? OP_LAUNCH : OP_SET32,
					    .to = block,
					    .to_at = 4 * (size_t)part * i,
					    .words = 1 + random_below(worker, part < 512 ? part : 512),
					    .rows = 1,
					    .pitch = 1,
					    .salt = random_next(worker)};
		op_apply(worker, &members[i].op);
		begin(&members[i], threads);
	}
	free(members);
	in->n++;
	op_submitted(worker);
}
