// SPDX-License-Identifier: Apache-2.0
/*
 * A server of several threads, suspended and resumed by the tool while requests wait in its queue: nothing is served
 * meanwhile, more requests and a thread that is new then wait, and afterwards each request is answered as it should be.
 */
#include "test/preload/suspend_help.h"
#include "test/test.h"

#define N_THREADS 3
#define N_ROUNDS  3
#define N_MOST    (N_THREADS + N_ROUNDS) /* one more thread in each suspension */
#define WAITING   8                      /* requests, at least, while it is suspended */
#define FULL      (2 * WAITING)          /* so many are kept waiting until then */
#define REQUESTS  100000
#define WORDS     ((size_t)64 << 10) /* of an answer: the first half from the request, the second from the weights */
#define STILL_MS  200                /* what would pass has passed by then */
#define WAIT_MS   20000              /* what has not come by then hangs */
#define ANSWER    0x900000u

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned asked, taken, served; /* requests are numbers, taken in order */
	unsigned char right[REQUESTS]; /* by request: it was answered so */
	bool ended;
	CUcontext context;
	pthread_t threads[N_MOST], client;
	unsigned n_threads;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The weights are the blocks of the job: a request copies one into the memory of its thread, and adds its own part. */
static bool answer(CUstream stream, CUdeviceptr slot, unsigned *words, unsigned request)
{
	unsigned weights = request % N_BLOCKS;

	MUST(driver_copy(stream, slot, job_blocks[weights], WORDS));
	MUST(driver_fill(stream, slot, ANSWER + request, WORDS / 2));
	MUST(cu.cuMemcpyDtoHAsync_v2(words, slot, WORDS * sizeof(*words), stream));
	MUST(cu.cuStreamSynchronize(stream));
	for (size_t i = 0; i < WORDS; i++)
		if (words[i] != (i < WORDS / 2 ? ANSWER + request : 0x1000 + weights))
			return false;
	return true;
}

static void *serve(void *argument)
{
	unsigned *words = malloc(WORDS * sizeof(*words));

	MUST(cu.cuCtxSetCurrent(server.context));
	CUstream stream = child_stream();
	CUdeviceptr slot = child_alloc(BLOCK);
	CHECK(words);
	for (;;) {
		pthread_mutex_lock(&server.lock);
		while (server.taken == server.asked && !server.ended)
			pthread_cond_wait(&server.changed, &server.lock);
		unsigned request = server.taken;
		bool any = request < server.asked;
		server.taken += any;
		pthread_cond_broadcast(&server.changed);
		pthread_mutex_unlock(&server.lock);
		if (!any)
			break;
		bool right = answer(stream, slot, words, request);
		pthread_mutex_lock(&server.lock);
		server.right[request] = right;
		server.served++;
		pthread_cond_broadcast(&server.changed);
		pthread_mutex_unlock(&server.lock);
	}
	MUST(cu.cuMemFree_v2(slot));
	MUST(cu.cuStreamDestroy_v2(stream));
	free(words);
	return NULL;
}

static void add_thread(void)
{
	CHECK(pthread_create(&server.threads[server.n_threads++], NULL, serve, NULL) == 0);
}

/* Clients that ask as fast as they are answered. */
static void *ask(void *argument)
{
	pthread_mutex_lock(&server.lock);
	while (!server.ended) {
		while (server.asked - server.taken < FULL && server.asked < REQUESTS - WAITING)
			server.asked++;
		pthread_cond_broadcast(&server.changed);
		pthread_cond_wait(&server.changed, &server.lock);
	}
	pthread_mutex_unlock(&server.lock);
	return NULL;
}

/* ret_first: the first of the requests that come now. */
static void read_queue(unsigned more, unsigned *ret_first, unsigned *ret_waiting, unsigned *ret_served)
{
	pthread_mutex_lock(&server.lock);
	*ret_first = server.asked;
	*ret_waiting = server.asked - server.taken;
	*ret_served = server.served;
	server.asked += more;
	pthread_cond_broadcast(&server.changed);
	pthread_mutex_unlock(&server.lock);
}

static void wait_until_served(unsigned n)
{
	unsigned first, waiting, served = 0;

	for (int ms = 0; served < n && ms < WAIT_MS; ms++) {
		read_queue(0, &first, &waiting, &served);
		usleep(1000);
	}
	CHECK(served >= n);
}

static bool all_are_right(unsigned first, unsigned n)
{
	bool right = true;

	pthread_mutex_lock(&server.lock);
	for (unsigned i = first; i < first + n; i++)
		right &= server.right[i] != 0;
	pthread_mutex_unlock(&server.lock);
	return right;
}

static void suspend_while_requests_wait(size_t without)
{
	unsigned late, waiting, before, after;

	read_queue(0, &late, &waiting, &before);
	wait_until_served(before + WAITING);
	CHECK(tool_says("suspend", 0, "suspended"));
	unsigned n_threads = server.n_threads;
	read_queue(WAITING, &late, &waiting, &before);
	CHECK(waiting >= WAITING && sim_live().device_bytes == without);
	add_thread();
	usleep(STILL_MS * 1000);
	CHECK(tool_lists("suspended") && sim_live().device_bytes == without);
	/* Of each thread one request at most had been given to the device as a whole. */
	read_queue(0, &after, &waiting, &after);
	CHECK(after <= before + n_threads && waiting >= WAITING);
	CHECK(tool_says("resume", 0, "resumed"));
	for (int ms = 0; !all_are_right(late, WAITING) && ms < WAIT_MS; ms++)
		usleep(1000);
	CHECK(all_are_right(late, WAITING));
}

static void serves(void)
{
	driver_start(0);
	size_t without = sim_live().device_bytes;
	job_start();
	MUST(cu.cuCtxGetCurrent(&server.context));
	for (unsigned i = 0; i < N_THREADS; i++)
		add_thread();
	CHECK(pthread_create(&server.client, NULL, ask, NULL) == 0);
	for (unsigned round = 0; round < N_ROUNDS; round++)
		suspend_while_requests_wait(without);
	pthread_mutex_lock(&server.lock);
	server.ended = true;
	pthread_cond_broadcast(&server.changed);
	pthread_mutex_unlock(&server.lock);
	CHECK(pthread_join(server.client, NULL) == 0);
	for (unsigned i = 0; i < server.n_threads; i++)
		CHECK(pthread_join(server.threads[i], NULL) == 0);
	CHECK(server.served == server.asked && server.asked > N_ROUNDS * 2 * WAITING);
	CHECK(all_are_right(0, server.asked));
	job_check(0x1000);
}

#define ROOMY(more)                                                                                                    \
	((const char *const[]){"SIM_MEMORY=128MiB",                                                                    \
			       "SPILLWAY_SET=device.budget=96MiB,host.budget=128MiB,report.summary=no" more, NULL})

TEST(a_server_that_fits_goes_on_where_it_was)
{
	assert_int_equal(child_run(ROOMY(",spill.mode=exact"), serves), 0);
	assert_int_equal(child_run(ROOMY(",spill.mode=fast,host.pin_ahead=auto"), serves), 0);
}

TEST(a_server_that_spills_goes_on_where_it_was)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact,host.pin_ahead=auto"), serves), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), serves), 0);
}

GROUP(folder_make_for_all, folder_remove)
