/*
 * done_test.c: what is known to be done, and when not: streams beyond the table, threads that end, captures that open at
 * the wrong moment, launches on several streams at once, and submissions without memory. done.c and use.c are called as
 * the entry points do, on the simulated driver's streams; there is no mover, the test asks in its place.
 */
#include "test/core/core.h"

#include "shim/capture.h"
#include "shim/context.h"
#include "shim/spill/inside.h"
#include "shim/spill/operands.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEADLINE_S = 20 };

static CUcontext context;

/* ---- what the tests replace ---- */

static __thread bool no_memory;
static bool one_thread_id;

void *__real_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes)
{
	return no_memory ? NULL : __real_realloc(at, bytes);
}

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
	return no_memory ? NULL : __real_calloc(n, bytes);
}

pid_t __real_gettid(void);
pid_t __wrap_gettid(void);
pid_t __wrap_gettid(void)
{
	return one_thread_id ? 77777 : __real_gettid();
}

/* ---- streams, work, and questions ---- */

static CUstream stream_new(void)
{
	CUstream stream;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	return stream;
}

static void stream_end(CUstream stream)
{
	done_stream_ending(stream);
	CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
}

/* Two words: one to hold streams with, one for work that does not matter. */
static unsigned *word_new(void)
{
	void *word;

	CHECK(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
	memset(word, 0, 4096);
	return word;
}

static void hold(CUstream stream, unsigned *word)
{
	CHECK(cuStreamWaitValue32_v2(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
}

static void work(CUstream stream, unsigned *word)
{
	CHECK(cuStreamWriteValue32_v2(stream, (CUdeviceptr)(word + 16), 1, 0) == CUDA_SUCCESS);
}

static void release(unsigned *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

static uint64_t submitted(CUstream stream, bool hurry)
{
	return done_submitted(stream, false, &(struct done_what){(uintptr_t)stream, HOOK_cuLaunchKernel}, hurry);
}

static uint64_t poll(void)
{
	CUresult error = CUDA_SUCCESS;
	uint64_t done = done_poll(true, &error);

	CHECK(error == CUDA_SUCCESS);
	return done;
}

static bool becomes(bool (*is_so)(void))
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

static bool all_is_done(void)
{
	return poll() == done_newest();
}

/* ---- tests ---- */

static void find_inside(void *argument, const struct done_what *what)
{
	if (what->function == 4711 && what->id == HOOK_cuGraphLaunch)
		++*(unsigned *)argument;
}

static void what_is_inside_the_driver_is_told(void **state)
{
	unsigned n = 0;

	(void)state;
	struct use *use = use_open(HOOK_cuGraphLaunch);
	use_function(use, 4711);
	struct use_stripe *stripe = use_admit(use);
	use_each_inside(find_inside, &n);
	assert_int_equal(n, 1);
	use_close(use, stripe);
	use_each_inside(find_inside, &n);
	assert_int_equal(n, 1);
	assert_true(becomes(all_is_done));
}

static void count(void *argument, unsigned row, const struct done_what *what)
{
	unsigned *n = argument;

	CHECK(row < DONE_ROWS && what->id == HOOK_cuLaunchKernel);
	++*n;
}

static unsigned n_in_flight(void)
{
	unsigned n = 0;

	done_each_in_flight(count, &n);
	return n;
}

static void what_is_in_flight_is_told(void **state)
{
	CUstream held = stream_new(), other = stream_new();
	unsigned *word = word_new();

	(void)state;
	assert_int_equal(n_in_flight(), 0);
	hold(held, word);
	submitted(held, true);
	submitted(held, false);
	work(other, word);
	submitted(other, true);
	assert_ok(cuStreamSynchronize(other));
	poll();
	assert_int_equal(n_in_flight(), 2);
	release(word);
	assert_true(becomes(all_is_done));
	assert_int_equal(n_in_flight(), 0);
	stream_end(held);
	stream_end(other);
	cuMemFreeHost(word);
}

static void the_oldest_on_other_streams_is_told(void **state)
{
	CUstream held = stream_new(), own = stream_new();
	unsigned *word = word_new();

	(void)state;
	assert_true(done_oldest_elsewhere(own, false) == UINT64_MAX);
	hold(held, word);
	uint64_t oldest = submitted(held, true);
	submitted(held, true);
	work(own, word);
	submitted(own, true);
	assert_int_equal(done_oldest_elsewhere(own, false), oldest);
	assert_ok(cuStreamSynchronize(own));
	poll();
	assert_int_equal(done_oldest_elsewhere(own, false), oldest);
	assert_true(done_oldest_elsewhere(held, false) == UINT64_MAX);
	release(word);
	assert_true(becomes(all_is_done));
	assert_true(done_oldest_elsewhere(own, false) == UINT64_MAX);
	stream_end(held);
	stream_end(own);
	cuMemFreeHost(word);
}

struct thread_work {
	unsigned *word;
	uint64_t held, done;
};

static void own_submitted(struct thread_work *work, bool hurry)
{
	work->held = done_submitted(NULL, true, &(struct done_what){1, HOOK_cuLaunchKernel}, hurry);
}

/* Ends while work on its own default stream is held, without an event behind it. */
static void *leave_work(void *argument)
{
	struct thread_work *work = argument;

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CHECK(cuStreamWriteValue32_v2_ptsz(NULL, (CUdeviceptr)(work->word + 16), 1, 0) == CUDA_SUCCESS);
	own_submitted(work, true);
	CHECK(cuStreamWaitValue32_v2_ptsz(NULL, (CUdeviceptr)work->word, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
	own_submitted(work, false);
	return NULL;
}

/* Its own default stream is another one. */
static void *prove_own_work(void *argument)
{
	struct thread_work *work = argument;

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CHECK(cuStreamWriteValue32_v2_ptsz(NULL, (CUdeviceptr)(work->word + 16), 1, 0) == CUDA_SUCCESS);
	struct thread_work own = *work;
	own_submitted(&own, true);
	CHECK(cuStreamSynchronize_ptsz(NULL) == CUDA_SUCCESS);
	for (int i = 0; i < 10; i++)
		work->done = poll();
	return NULL;
}

static void a_thread_proves_nothing_for_one_that_had_its_id_before(void **state)
{
	struct thread_work work = {.word = word_new()};
	pthread_t thread;

	(void)state;
	one_thread_id = true;
	assert_int_equal(pthread_create(&thread, NULL, leave_work, &work), 0);
	pthread_join(thread, NULL);
	poll();
	assert_int_equal(pthread_create(&thread, NULL, prove_own_work, &work), 0);
	pthread_join(thread, NULL);
	one_thread_id = false;
	assert_true(work.done < work.held);
	release(work.word);
	assert_true(becomes(all_is_done));
	cuMemFreeHost(work.word);
}

/* ---- captures ---- */

static struct {
	CUstream stream;
	atomic_bool go, begun, end;
	bool begun_before; /* the record */
} capture;

static CUresult(CUDAAPI *own_record)(CUevent event, CUstream stream);

static void *open_a_capture(void *argument)
{
	CUgraph graph;

	(void)argument;
	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	while (!atomic_load(&capture.go))
		sched_yield();
	capture_opening();
	CHECK(cuStreamBeginCapture_v2(capture.stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	capture_opened(capture.stream, false, true);
	atomic_store(&capture.begun, true);
	while (!atomic_load(&capture.end))
		sched_yield();
	CHECK(cuStreamEndCapture(capture.stream, &graph) == CUDA_SUCCESS);
	capture_closed(capture.stream, false, false);
	CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
	return NULL;
}

/* The capture wants to open now; it has time to, and less than it would wait at most. */
static CUresult CUDAAPI record_while_a_capture_opens(CUevent event, CUstream stream)
{
	atomic_store(&capture.go, true);
	for (int i = 0; i < 30 && !atomic_load(&capture.begun); i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	capture.begun_before = atomic_load(&capture.begun);
	return own_record(event, stream);
}

static void a_capture_waits_for_an_event_that_is_being_recorded(void **state)
{
	unsigned *word = word_new();
	pthread_t thread;

	(void)state;
	memset(&capture, 0, sizeof(capture));
	capture.stream = stream_new();
	work(capture.stream, word);
	submitted(capture.stream, true);
	assert_int_equal(pthread_create(&thread, NULL, open_a_capture, NULL), 0);
	own_record = real.cuEventRecord;
	real.cuEventRecord = record_while_a_capture_opens;
	work(capture.stream, word);
	submitted(capture.stream, false);
	done_flush();
	real.cuEventRecord = own_record;
	atomic_store(&capture.go, true);
	atomic_store(&capture.end, true);
	pthread_join(thread, NULL);
	assert_false(capture.begun_before);
	assert_true(becomes(all_is_done));
	stream_end(capture.stream);
	cuMemFreeHost(word);
}

/* A record that took longer than a capture waits. */
static CUresult CUDAAPI record_into_a_capture(CUevent event, CUstream stream)
{
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	return own_record(event, stream);
}

static void an_event_that_a_capture_took_proves_nothing_and_harms_nothing(void **state)
{
	CUstream stream = stream_new();
	unsigned *word = word_new();
	CUgraph graph;

	(void)state;
	hold(stream, word);
	own_record = real.cuEventRecord;
	real.cuEventRecord = record_into_a_capture;
	uint64_t number = submitted(stream, true);
	real.cuEventRecord = own_record;
	for (int i = 0; i < 3; i++) {
		CUresult error = CUDA_SUCCESS;

		assert_true(done_poll(false, &error) < number);
		assert_int_equal(error, CUDA_SUCCESS);
	}
	assert_ok(cuStreamEndCapture(stream, &graph));
	assert_ok(cuGraphDestroy(graph));
	release(word);
	assert_true(becomes(all_is_done));
	stream_end(stream);
	cuMemFreeHost(word);
}

/* ---- submissions ---- */

static struct core_heap own_heap;
static struct engine *engine;
static CUdeviceptr block;

static void with_an_engine(void)
{
	core_heap_open(&own_heap, 64 * MIB, 64 * MIB, 0);
	engine = engine_new(NULL, own_heap.heap, false);
	assert_non_null(engine);
	assert_true(use_add_arena(heap_arena(own_heap.heap), engine));
	arena_mark_block(heap_arena(own_heap.heap), 0, 4);
	block = arena_address(heap_arena(own_heap.heap), 0);
	use_set_tracking(true);
}

static void each_launch_of_several_counts_on_its_own_stream(void **state)
{
	CUstream one = stream_new(), two = stream_new();
	unsigned *word = word_new();
	void *params[] = {NULL};
	CUDA_LAUNCH_PARAMS list[2] = {{.hStream = one, .kernelParams = params},
				      {.hStream = two, .kernelParams = params}};

	(void)state;
	struct use *use = use_open(HOOK_cuLaunchCooperativeKernelMultiDevice);
	assert_non_null(use);
	operands_cuLaunchCooperativeKernelMultiDevice(use, list, 2, 0);
	use_name(use, block, 0);
	struct use_stripe *stripe = use_admit(use);
	work(one, word);
	hold(two, word);
	use_close(use, stripe);
	assert_ok(cuStreamSynchronize(one));
	uint64_t last = mark_last(&heap_arena(own_heap.heap)->marks[0]);
	assert_int_equal(last, done_newest());
	for (int i = 0; i < 10; i++)
		assert_true(poll() < last);
	release(word);
	assert_true(becomes(all_is_done));
	stream_end(one);
	stream_end(two);
	cuMemFreeHost(word);
}

static atomic_bool admitted;

static void *submit_without_memory(void *argument)
{
	CUstream stream = argument;

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	no_memory = true;
	struct use *use = use_open(HOOK_cuMemsetD8Async);
	if (use)
		operands_cuMemsetD8Async(use, block, 1, 4096, stream);
	struct use_stripe *stripe = use_admit(use);
	atomic_store(&admitted, true);
	CHECK(mark_holds(&engine->everything) == 1);
	use_close(use, stripe);
	no_memory = false;
	return NULL;
}

static bool somebody_waits(void)
{
	return atomic_load(&engine->n_waiters) != 0 || atomic_load(&admitted);
}

/* Some piece of some block is in transit. */
static void a_submission_without_memory_waits_until_nothing_is_unmapped(void **state)
{
	CUstream stream = stream_new();
	pthread_t thread;

	(void)state;
	atomic_store(&engine->everything.unmapped, 1);
	assert_int_equal(pthread_create(&thread, NULL, submit_without_memory, stream), 0);
	assert_true(becomes(somebody_waits));
	assert_false(atomic_load(&admitted));
	assert_int_equal(atomic_load(&engine->everything.waits), 1);
	lock_take(&engine->lock);
	assert_true(engine->waiters && engine->waiters->unknown);
	atomic_store(&engine->everything.unmapped, 0);
	engine->waiters->answered = true;
	pthread_cond_broadcast(&engine->answered);
	lock_drop(&engine->lock);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&admitted));
	assert_int_equal(mark_holds(&engine->everything), 0);
	assert_int_equal(atomic_load(&engine->everything.waits), 0);
	assert_int_equal(mark_last(&engine->everything), done_newest());
	assert_true(becomes(all_is_done));
	stream_end(stream);
}

/*
 * A submission was read for another reason, with an engine that does not move yet, and enters the driver after tracking
 * was switched on: the mover has not seen it, and what it has named may be a part.
 */
static void what_was_read_before_tracking_began_may_touch_anything(void **state)
{
	(void)state;
	use_set_tracking(false);
	struct use *use = use_open(HOOK_cuMemsetD8Async);
	assert_non_null(use);
	use_set_tracking(true);
	struct use_stripe *stripe = use_admit(use);
	assert_int_equal(mark_holds(&engine->everything), 1);
	use_close(use, stripe);
	assert_int_equal(mark_holds(&engine->everything), 0);
	assert_int_equal(mark_last(&engine->everything), done_newest());
	/* From now on it is what it names that counts. */
	use = use_open(HOOK_cuMemsetD8Async);
	stripe = use_admit(use);
	assert_int_equal(mark_holds(&engine->everything), 0);
	use_close(use, stripe);
	assert_true(becomes(all_is_done));
}

/* Nobody asks when it is done, so no event is recorded for it. */
static void what_is_traced_and_no_more_has_no_number(void **state)
{
	uint64_t before = done_newest();

	(void)state;
	use_set_tracking(false);
	use_set_trace(true);
	struct use *use = use_open(HOOK_cuMemsetD8Async);
	use_close(use, use_admit(use));
	assert_true(done_newest() == before);
	use_set_trace(false);
	use_set_tracking(true);
}

/* What engine_lost() says. */
static void lost(char text[4096])
{
	FILE *file = tmpfile();
	int before = dup(STDERR_FILENO);

	dup2(fileno(file), STDERR_FILENO);
	engine_lost(engine, CUDA_ERROR_ILLEGAL_ADDRESS);
	dup2(before, STDERR_FILENO);
	close(before);
	rewind(file);
	text[fread(text, 1, 4095, file)] = 0;
	fclose(file);
}

/* The mover notices the death of a context a moment later. Nearly last: the engine is dead afterwards. */
static void a_stop_names_what_has_arrived_since_the_mover_looked(void **state)
{
	uint64_t function;
	struct named named;
	char text[4096];
	unsigned n;

	(void)state;
	while (engine_read_log(engine, &function, &named, 1, &n))
		;
	engine->n_rest = 1;
	engine->rest[0].transit = (struct transit){.block_unit = 0, .units = 4, .to = CHUNK_HOST};
	assert_false(engine_read_log(engine, &function, &named, 1, &n));
	engine->n_rest = 0;
	assert_false(engine_read_log(engine, &function, &named, 1, &n));
	lost(text);
	assert_non_null(strstr(text, "FAST MODE STOPPED THE JOB"));
	assert_non_null(strstr(text, "8.0 MiB just gone to the host"));
}

/* Last: the table is full afterwards. */
enum { MANY = 2 * DONE_ROWS };

static void streams_beyond_the_table_are_counted_and_become_done(void **state)
{
	unsigned *word = word_new();
	CUstream *stream = calloc(MANY, sizeof(CUstream));
	uint64_t first = done_newest();

	(void)state;
	for (unsigned i = 0; i < MANY; i++) {
		stream[i] = stream_new();
		hold(stream[i], word);
		submitted(stream[i], false);
	}
	assert_true(poll() <= first);
	assert_int_equal(n_in_flight(), MANY);
	release(word);
	assert_true(becomes(all_is_done));
	assert_int_equal(n_in_flight(), 0);
	for (unsigned i = 0; i < MANY; i++)
		stream_end(stream[i]);
	free(stream);
	cuMemFreeHost(word);
}

static int set_up(void **state)
{
	(void)state;
	core_driver();
	assert_ok(cuCtxGetCurrent(&context));
	context_known(context, 0);
	with_an_engine();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_inside_the_driver_is_told),
	    cmocka_unit_test(what_is_in_flight_is_told),
	    cmocka_unit_test(the_oldest_on_other_streams_is_told),
	    cmocka_unit_test(a_thread_proves_nothing_for_one_that_had_its_id_before),
	    cmocka_unit_test(a_capture_waits_for_an_event_that_is_being_recorded),
	    cmocka_unit_test(an_event_that_a_capture_took_proves_nothing_and_harms_nothing),
	    cmocka_unit_test(each_launch_of_several_counts_on_its_own_stream),
	    cmocka_unit_test(a_submission_without_memory_waits_until_nothing_is_unmapped),
	    cmocka_unit_test(what_was_read_before_tracking_began_may_touch_anything),
	    cmocka_unit_test(what_is_traced_and_no_more_has_no_number),
	    cmocka_unit_test(a_stop_names_what_has_arrived_since_the_mover_looked),
	    cmocka_unit_test(streams_beyond_the_table_are_counted_and_become_done),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
