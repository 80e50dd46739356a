// SPDX-License-Identifier: Apache-2.0
/*
 * completion_poll_test.c: what is known to be done, and when not: streams beyond the table, threads that end, captures
 * that open at the wrong moment. completion.c is called as the entry points do, on the simulated driver's streams.
 */
#include "test/core/completion_help.h"

#include "shim/mover/mover.h"
#include "shim/submit/types.h"
#include "shim/submit/submit_body.h"

static CUcontext context;

/* ---- what the tests replace ---- */

static bool one_thread_id;

pid_t __real_gettid(void);
pid_t __wrap_gettid(void);
pid_t __wrap_gettid(void)
{
	return one_thread_id ? 77777 : __real_gettid();
}

/*
 * A thread that is preempted wherever it holds no lock: `meanwhile` runs there on another thread.
 */
static void (*meanwhile)(void);
static __thread bool may_be_preempted;
static __thread unsigned n_locks;

static void *run_meanwhile(void *argument)
{
	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	meanwhile();
	return argument;
}

void __real_lock_take(struct lock *lock);
void __wrap_lock_take(struct lock *lock);
void __wrap_lock_take(struct lock *lock)
{
	pthread_t other;

	if (may_be_preempted && !n_locks) {
		CHECK(!pthread_create(&other, NULL, run_meanwhile, NULL));
		pthread_join(other, NULL);
	}
	__real_lock_take(lock);
	n_locks++;
}

void __real_lock_drop(struct lock *lock);
void __wrap_lock_drop(struct lock *lock);
void __wrap_lock_drop(struct lock *lock)
{
	n_locks--;
	__real_lock_drop(lock);
}

static uint64_t submitted(CUstream stream, bool hurry)
{
	return completion_submitted(stream, false, &(struct completion_what){(uintptr_t)stream, HOOK_cuLaunchKernel}, 0,
				    hurry);
}

/* ---- tests ---- */

static void find_inside(void *argument, const struct completion_what *what)
{
	if (what->function == 4711 && what->id == HOOK_cuGraphLaunch)
		++*(unsigned *)argument;
}

TEST(what_is_inside_the_driver_is_told)
{
	unsigned n = 0;

	struct submission *use = submission_open(HOOK_cuGraphLaunch);
	submission_function(use, 4711);
	struct submission_stripe *stripe = admit(use);
	submission_each_inside(find_inside, &n);
	assert_int_equal(n, 1);
	submission_close(use, stripe);
	submission_each_inside(find_inside, &n);
	assert_int_equal(n, 1);
}

static void count(void *argument, unsigned row, const struct completion_what *what)
{
	unsigned *n = argument;

	CHECK(row < COMPLETION_STREAMS && what->id == HOOK_cuLaunchKernel);
	++*n;
}

static unsigned n_in_flight(void)
{
	unsigned n = 0;

	completion_each_in_flight(count, &n);
	return n;
}

TEST(what_is_in_flight_is_told)
{
	CUstream held = stream_new(), other = stream_new();
	unsigned *word = word_new();

	assert_int_equal(n_in_flight(), 0);
	stream_hold(held, word);
	submitted(held, true);
	submitted(held, false);
	stream_work(other, word);
	submitted(other, true);
	assert_ok(cuStreamSynchronize(other));
	done_ask();
	assert_int_equal(n_in_flight(), 2);
	word_release(word);
	assert_true(becomes(all_is_done));
	assert_int_equal(n_in_flight(), 0);
}

TEST(the_oldest_on_other_streams_is_told)
{
	CUstream held = stream_new(), own = stream_new();
	unsigned *word = word_new();

	assert_true(completion_oldest_elsewhere(own, false) == UINT64_MAX);
	stream_hold(held, word);
	uint64_t oldest = submitted(held, true);
	submitted(held, true);
	stream_work(own, word);
	submitted(own, true);
	assert_int_equal(completion_oldest_elsewhere(own, false), oldest);
	assert_ok(cuStreamSynchronize(own));
	done_ask();
	assert_int_equal(completion_oldest_elsewhere(own, false), oldest);
	assert_true(completion_oldest_elsewhere(held, false) == UINT64_MAX);
	word_release(word);
	assert_true(becomes(all_is_done));
	assert_true(completion_oldest_elsewhere(own, false) == UINT64_MAX);
}

struct thread_work {
	unsigned *word;
	uint64_t held, done;
};

static void own_submitted(struct thread_work *work, bool hurry)
{
	work->held = completion_submitted(NULL, true, &(struct completion_what){1, HOOK_cuLaunchKernel}, 0, hurry);
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
		work->done = done_ask();
	return NULL;
}

TEST(a_thread_proves_nothing_for_one_that_had_its_id_before)
{
	struct thread_work work = {.word = word_new()};

	one_thread_id = true;
	test_beside(leave_work, &work);
	done_ask();
	test_beside(prove_own_work, &work);
	one_thread_id = false;
	assert_true(work.done < work.held);
	word_release(work.word);
}

static void *work_and_end(void *argument)
{
	struct thread_work work = {.word = argument};

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CHECK(cuStreamWriteValue32_v2_ptsz(NULL, (CUdeviceptr)(work.word + 16), 1, 0) == CUDA_SUCCESS);
	own_submitted(&work, true);
	CHECK(cuStreamSynchronize_ptsz(NULL) == CUDA_SUCCESS);
	return NULL;
}

TEST(rows_of_ended_threads_are_used_again)
{
	unsigned *word = word_new();
	unsigned before = atomic_load(&submit_tables.rows.n);

	for (unsigned i = 0; i < 2 * COMPLETION_STREAMS; i++) {
		test_beside(work_and_end, word);
		assert_true(becomes(all_is_done));
	}
	assert_in_range(atomic_load(&submit_tables.rows.n), before, before + 1);
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

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	UNTIL(atomic_load(&capture.go));
	capture_opening();
	CHECK(cuStreamBeginCapture_v2(capture.stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	capture_opened(capture.stream, false, context_of_stream(capture.stream, false), true);
	atomic_store(&capture.begun, true);
	UNTIL(atomic_load(&capture.end));
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

TEST(a_capture_waits_for_an_event_that_is_being_recorded)
{
	unsigned *word = word_new();

	memset(&capture, 0, sizeof(capture));
	capture.stream = stream_new();
	stream_work(capture.stream, word);
	submitted(capture.stream, true);
	pthread_t thread = test_thread(open_a_capture, NULL);
	own_record = real.cuEventRecord;
	real.cuEventRecord = record_while_a_capture_opens;
	stream_work(capture.stream, word);
	submitted(capture.stream, false);
	completion_flush();
	real.cuEventRecord = own_record;
	atomic_store(&capture.go, true);
	atomic_store(&capture.end, true);
	pthread_join(thread, NULL);
	assert_false(capture.begun_before);
}

/* A record that takes longer than a capture waits. Some captures are over when it returns. */
static CUresult CUDAAPI record_into_a_capture(CUevent event, CUstream stream)
{
	CUgraph graph;

	capture_opening();
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	capture_opened(stream, false, context_of_stream(stream, false), true);
	CUresult result = own_record(event, stream);
	if (atomic_load(&capture.end)) {
		CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
		capture_closed(stream, false, false);
	}
	return result;
}

TEST(an_event_that_a_capture_took_proves_nothing_and_harms_nothing)
{
	CUstream stream = stream_new();
	unsigned *word = word_new();
	CUgraph graph;

	for (int open = 0; open < 2; open++) {
		atomic_store(&capture.end, !open);
		stream_hold(stream, word);
		own_record = real.cuEventRecord;
		real.cuEventRecord = record_into_a_capture;
		uint64_t number = submitted(stream, true);
		real.cuEventRecord = own_record;
		for (int i = 0; i < 3; i++) {
			CUresult error = CUDA_SUCCESS;

			assert_true(completion_poll(0, UINT64_MAX, false, &error) < number);
			assert_int_equal(error, CUDA_SUCCESS);
		}
		if (open) {
			/* Nobody has asked for its event, which would have ended it. */
			assert_ok(cuStreamEndCapture(stream, &graph));
			capture_closed(stream, false, false);
			assert_ok(cuGraphDestroy(graph));
		}
		word_release(word);
		assert_true(becomes(all_is_done));
	}
}

static __typeof__(&cuEventQuery) own_query;
static unsigned n_queries, one_in;

static CUresult CUDAAPI query_that_fails(CUevent event)
{
	return ++n_queries % one_in ? own_query(event) : CUDA_ERROR_UNKNOWN;
}

/* A dead context answers everything with an error: one good answer, be it "not yet", says that there is none. */
TEST(an_error_is_believed_when_no_event_answers_otherwise)
{
	CUstream stream[2] = {stream_new(), stream_new()};
	unsigned *word = word_new();

	for (unsigned i = 0; i < 2; i++) {
		stream_hold(stream[i], word);
		submitted(stream[i], true);
	}
	own_query = real.cuEventQuery;
	real.cuEventQuery = query_that_fails;
	for (one_in = 1; one_in < 3; one_in++) {
		CUresult error = CUDA_SUCCESS;

		n_queries = 0;
		completion_poll(0, UINT64_MAX, false, &error);
		assert_int_equal(n_queries, 2);
		assert_int_equal(error, one_in == 1 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
	}
	real.cuEventQuery = own_query;
	word_release(word);
}

/* The table is full afterwards. */
enum { MANY = 2 * COMPLETION_STREAMS };

TEST(streams_beyond_the_table_are_counted_and_become_done)
{
	unsigned *word = word_new();
	CUstream *stream = calloc(MANY, sizeof(CUstream));
	uint64_t first = completion_newest();

	for (unsigned i = 0; i < MANY; i++) {
		stream[i] = stream_new();
		stream_hold(stream[i], word);
		submitted(stream[i], false);
	}
	assert_true(done_ask() <= first);
	assert_int_equal(n_in_flight(), MANY);
	word_release(word);
	assert_true(becomes(all_is_done));
	assert_int_equal(n_in_flight(), 0);
	for (unsigned i = 0; i < MANY; i++)
		stream_end(stream[i]);
	free(stream);
}

enum { TAKERS = 8 };
static CUstream takers[TAKERS];
static unsigned n_takers;

/* A stream without a row. */
static void take_a_row(void)
{
	CHECK(n_takers < TAKERS);
	takers[n_takers] = stream_new();
	submitted(takers[n_takers++], true);
}

/* The table is full: a row that nothing is under way in goes to the next stream that has none. */
TEST(a_row_that_another_stream_took_is_not_used)
{
	CUstream held = stream_new();
	unsigned *word = word_new();

	stream_hold(held, word);
	meanwhile = take_a_row;
	may_be_preempted = true;
	uint64_t number = submitted(held, false);
	may_be_preempted = false;
	assert_in_range(n_takers, 1, TAKERS);
	/* What the other streams do proves nothing. */
	for (unsigned i = 0; i < n_takers; i++) {
		submitted(takers[i], true);
		assert_ok(cuStreamSynchronize(takers[i]));
	}
	for (int i = 0; i < 10; i++)
		assert_true(done_ask() < number);
	word_release(word);
}

EACH_TEST(NULL, completion_check)

BEFORE_ALL
{
	core_driver();
	context = core_context();
}
