// SPDX-License-Identifier: Apache-2.0
#include "test/core/completion_help.h"

#include "shim/submit/completion.h"

enum { DEADLINE_S = 20 };

CUstream stream_new(void)
{
	return core_stream();
}

void stream_end(CUstream stream)
{
	CHECK(completion_stream_ending(stream) || cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
}

static void *words[16];
static unsigned n_words;

unsigned *word_new(void)
{
	void **word = &words[n_words++];

	CHECK(n_words <= sizeof(words) / sizeof(*words));
	CHECK(cuMemHostAlloc(word, 4096, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
	return memset(*word, 0, 4096);
}

int completion_check(void **state)
{
	assert_true(becomes(all_is_done));
	core_streams_end(stream_end);
	while (n_words)
		cuMemFreeHost(words[--n_words]); /* gone if its context has ended */
	assert_int_equal(sim_broken_rules(), 0);
	return 0;
}

void stream_hold(CUstream stream, unsigned *word)
{
	CHECK(cuStreamWaitValue32_v2(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
}

void stream_work(CUstream stream, unsigned *word)
{
	CHECK(cuStreamWriteValue32_v2(stream, (CUdeviceptr)(word + 16), 1, 0) == CUDA_SUCCESS);
}

void word_release(unsigned *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

uint64_t done_ask(void)
{
	CUresult error = CUDA_SUCCESS;
	uint64_t done = completion_poll(0, UINT64_MAX, true, &error);

	CHECK(error == CUDA_SUCCESS);
	return done;
}

enum context_idleness idleness(void)
{
	struct context_idle idle;

	assert_true(context_idle_ask(CONTEXT_ALL_DEVICES, &idle));
	enum context_idleness answer = context_idle_look(&idle);
	context_idle_forget(&idle);
	return answer;
}

bool all_is_idle(void)
{
	return idleness() == CONTEXT_IDLE;
}

bool becomes(bool (*is_so)(void))
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		if (is_so())
			return true;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec < DEADLINE_S);
	return false;
}

bool all_is_done(void)
{
	return done_ask() == completion_newest();
}
