/*
 * segments_order_test.c: who may use a part of a segment after it was freed, while threads and streams free at once.
 */
#include "test/core/async_help.h"

#include "shim/device/device.h"
#include "shim/device/pool.h"
#include "shim/serve/segments.h"

#include <pthread.h>

#define PART_BYTES (4 * MIB)

/* Something is spilled, and freed again: from now on memory moves, and the device has room. */
static void make_it_move(void)
{
	CUdeviceptr block[10];

	for (unsigned i = 0; i < 10; i++)
		CHECK(cuMemAlloc_v2(&block[i], 8 * MIB) == CUDA_SUCCESS);
	for (unsigned i = 0; i < 10; i++)
		CHECK(cuMemFree_v2(block[i]) == CUDA_SUCCESS);
	CHECK(segments_are_for(device_get(0), PART_BYTES));
}

/* Of a new segment and a part. */
static bool overlap(CUdeviceptr segment, CUdeviceptr part)
{
	return segment < part + PART_BYTES && part < segment + 3 * PART_BYTES;
}

/* ---- two threads free behind one stream ---- */

static __typeof__(&cuEventRecord) record;
static pthread_t slow;
static sem_t recorded, go_on;

/* One thread is put aside between its event and what it does next. */
static CUresult record_and_stop(CUevent event, CUstream stream)
{
	CUresult result = record(event, stream);

	if (pthread_equal(pthread_self(), slow)) {
		real.cuEventRecord = record;
		sem_post(&recorded);
		sem_wait(&go_on);
	}
	return result;
}

struct free_of {
	CUdeviceptr address;
	CUstream stream;
	CUcontext context;
};

static void *free_slowly(void *argument)
{
	const struct free_of *its = argument;

	slow = pthread_self();
	CHECK(cuCtxSetCurrent(its->context) == CUDA_SUCCESS);
	real.cuEventRecord = record_and_stop;
	CHECK(cuMemFreeAsync(its->address, its->stream) == CUDA_SUCCESS);
	return NULL;
}

static void the_event_of_a_segment_is_that_of_the_latest_free(void **state)
{
	CUstream stream = async_stream(), other = async_stream();
	struct free_of its = {.stream = stream};
	CUdeviceptr late, new;
	struct gate gate;
	pthread_t thread;

	(void)state;
	make_it_move();
	assert_ok(cuCtxGetCurrent(&its.context));
	/* A segment that is large enough for both. */
	its.address = async_get(3 * PART_BYTES, stream);
	assert_ok(cuMemFreeAsync(its.address, stream));
	assert_int_equal(async_get(PART_BYTES, stream), its.address);
	late = async_get(PART_BYTES, stream);
	assert_int_equal(late, its.address + PART_BYTES);
	record = REAL(cuEventRecord);
	sem_init(&recorded, 0, 0);
	sem_init(&go_on, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, free_slowly, &its), 0);
	sem_wait(&recorded);
	async_hold(&gate, stream);
	assert_ok(cuMemFreeAsync(late, stream));
	sem_post(&go_on);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* The stream has not reached the second free. */
	segments_reap();
	new = async_get(3 * PART_BYTES, other);
	assert_false(overlap(new, late));
	async_let_go(&gate);
	assert_ok(cuMemFreeAsync(new, other));
	assert_ok(cuStreamSynchronize(other));
	assert_ok(cuStreamDestroy_v2(stream));
	assert_ok(cuStreamDestroy_v2(other));
}

static int check(void **state)
{
	core_drain();
	segments_give_up(device_get(0));
	return async_check(state);
}

int main(void)
{
	static const char *const settings[] = {
	    "SIM_MEMORY=256MiB", "SPILLWAY_POLICY=" STREAMS_POLICY,
	    "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,spill.mode=exact,report.summary=no", NULL};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(the_event_of_a_segment_is_that_of_the_latest_free, check),
	};
	core_start(settings);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
