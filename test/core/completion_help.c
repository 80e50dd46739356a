#include "test/core/completion_help.h"

#include "shim/submit/completion.h"

enum { DEADLINE_S = 20 };

CUstream stream_new(void)
{
	CUstream stream = core_stream();

	return stream;
}

void stream_end(CUstream stream)
{
	CHECK(completion_stream_ending(stream) || cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
}

unsigned *word_new(void)
{
	void *word;

	CHECK(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
	memset(word, 0, 4096);
	return word;
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
