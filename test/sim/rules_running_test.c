// SPDX-License-Identifier: Apache-2.0
/*
 * rules_running_test.c: the rules about kernels that run (rules.h): what waits for them, what covers them, what may
 * change beside them. Each line "rule: ..." is an answer of the driver (rules_found()).
 */
#include "rules_kernel.h"

static struct rules_kernels kernels; /* of the primary context */
static struct rules_hold *hold;      /* of a context that outlives it */
static CUcontext keeper;

static CUcontext new_context(void)
{
	CUcontext context, popped;

	ok(cu.cuCtxCreate(&context, NULL, 0, 0));
	ok(cu.cuCtxPopCurrent(&popped));
	return context;
}

static int begin(void **state)
{
	keeper = new_context();
	ok(cu.cuCtxSetCurrent(keeper));
	hold = rules_hold_new();
	ok(cu.cuCtxSetCurrent(rules_context));
	rules_kernels_load(&kernels);
	return 0;
}

static int end(void **state)
{
	ok(cu.cuCtxDestroy(keeper));
	return 0;
}

GROUP(begin, end)

/* ---- what an event of a context covers ---- */

/* Records one while the held kernel runs. */
static const char *event_covers(void)
{
	if (!rules_is_running(hold))
		return "the kernel had ended before";
	CUevent event = rules_event(CU_EVENT_DISABLE_TIMING);
	ok(cu.cuCtxRecordEvent(rules_context, event));
	CUresult early = cu.cuEventQuery(event);
	rules_let_go(hold);
	ok(cu.cuEventSynchronize(event));
	bool covers = rules_has_ended(hold);
	ok(cu.cuCtxSynchronize());
	ok(cu.cuEventDestroy(event));
	return covers && early == CUDA_ERROR_NOT_READY ? "is covered" : "IS NOT COVERED";
}

static CUresult destroy_stream(void *stream)
{
	return cu.cuStreamDestroy(stream);
}

TEST(an_event_of_a_context_covers_destroyed_streams)
{
	CUstream stream;
	CUdeviceptr at = rules_alloc(CHUNK);

	for (unsigned flags = 0; flags <= CU_STREAM_NON_BLOCKING; flags++) {
		ok(cu.cuStreamCreate(&stream, flags));
		rules_hold_start(&kernels, hold, at, 1, stream);
		rules_found("cuStreamDestroy beside a kernel of the stream",
			    rules_how(rules_context, destroy_stream, stream, hold), RULES_RETURNS);
		rules_found(flags ? "an event of a context and work of a destroyed non-blocking stream"
				  : "an event of a context and work of a destroyed stream",
			    event_covers(), "is covered");
	}
	assert_int_equal(rules_count(at, 1), RULES_WORDS);
	ok(cu.cuMemFree(at));
}

/*
 * Destroyed, and as many new ones used as it needs that one takes its place. A first set may load code, and a new
 * stream may wait where there are many: both would wait for the kernel.
 */
TEST(an_event_of_a_context_covers_a_stream_whose_handle_is_given_out_again)
{
	CUstream more[8];
	unsigned n = 0;
	bool again = false;
	CUdeviceptr at = rules_alloc(2 * CHUNK);

	ok(cu.cuMemsetD8(at, 0, 4096));
	CUstream stream = rules_stream();
	ok(cu.cuMemsetD8Async(at + CHUNK, 0, 4096, stream));
	ok(cu.cuStreamSynchronize(stream));
	rules_hold_start(&kernels, hold, at, 1, stream);
	ok(cu.cuStreamDestroy(stream));
	while (n < 8 && !again && rules_is_running(hold)) {
		ok(cu.cuStreamCreate(&more[n], CU_STREAM_NON_BLOCKING));
		ok(cu.cuMemsetD8Async(at + CHUNK, 1, 4096, more[n]));
		again = more[n++] == stream;
	}
	print_message("%u new streams, the handle %s given out again\n", n, again ? "was" : "was not");
	rules_found("an event of a context and work of a destroyed stream, after new ones", event_covers(),
		    "is covered");
	while (n)
		ok(cu.cuStreamDestroy(more[--n]));
	ok(cu.cuMemFree(at));
}

/* Of a stream whose work was done: its handle is more likely to be given out again. That one is destroyed, too. */
TEST(an_event_of_a_context_covers_a_stream_that_has_the_handle_of_a_destroyed_one)
{
	CUstream again = NULL, more[8];
	unsigned n = 0;
	CUdeviceptr at = rules_alloc(CHUNK);
	CUstream stream = rules_stream();

	ok(cu.cuMemsetD8Async(at, 0, 4096, stream));
	ok(cu.cuStreamSynchronize(stream));
	ok(cu.cuStreamDestroy(stream));
	usleep(10000);
	while (n < 8 && again != stream) {
		ok(cu.cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
		more[n++] = again;
	}
	print_message("the handle %s given out again\n", again == stream ? "was" : "was not");
	for (int destroyed = 0; destroyed < 2; destroyed++) {
		rules_hold_start(&kernels, hold, at, 1, again);
		if (destroyed)
			ok(cu.cuStreamDestroy(again));
		rules_found(destroyed ? "an event of a context and work of a second stream of one handle, destroyed"
				      : "an event of a context and work of a second stream of one handle",
			    event_covers(), "is covered");
	}
	while (--n) /* the last one is gone */
		ok(cu.cuStreamDestroy(more[n - 1]));
	ok(cu.cuMemFree(at));
}

static void *launch_in_own_stream(void *at)
{
	if (!cu.cuCtxSetCurrent(rules_context))
		rules_hold_start(&kernels, hold, *(CUdeviceptr *)at, 2, CU_STREAM_PER_THREAD);
	return NULL;
}

TEST(an_event_of_a_context_covers_ended_threads)
{
	CUdeviceptr at = rules_alloc(CHUNK);

	test_beside(launch_in_own_stream, &at);
	rules_found("an event of a context and work of an ended thread's own default stream", event_covers(),
		    "is covered");
	assert_int_equal(rules_count(at, 2), RULES_WORDS);
	ok(cu.cuMemFree(at));
}

/* ---- what waits for kernels ---- */

static CUresult synchronize_default(void *unused)
{
	return cu.cuStreamSynchronize(NULL);
}

TEST(the_default_stream_stands_for_blocking_streams)
{
	CUstream stream;
	CUdeviceptr at = rules_alloc(CHUNK);

	for (unsigned flags = 0; flags <= CU_STREAM_NON_BLOCKING; flags++) {
		ok(cu.cuStreamCreate(&stream, flags));
		rules_hold_start(&kernels, hold, at, 3, stream);
		rules_found(flags ? "cuStreamQuery of the default stream beside a non-blocking stream"
				  : "cuStreamQuery of the default stream, nothing in it, beside a blocking stream",
			    cu.cuStreamQuery(NULL) ? "not ready" : "ready", flags ? "ready" : "not ready");
		rules_found(
		    flags ? "cuStreamSynchronize of the default stream beside a non-blocking stream"
			  : "cuStreamSynchronize of the default stream, nothing in it, beside a blocking stream",
		    rules_how(rules_context, synchronize_default, NULL, hold), flags ? RULES_RETURNS : RULES_WAITS);
		rules_let_go(hold);
		ok(cu.cuCtxSynchronize());
		ok(cu.cuStreamDestroy(stream));
	}
	ok(cu.cuMemFree(at));
}

/* ---- what may change beside them ---- */

struct room {
	CUdeviceptr at; /* three chunks: mapped, to be mapped, mapped */
	CUmemLocationType place;
	CUmemGenericAllocationHandle handle;
};

static CUresult map_beside(void *argument)
{
	struct room *room = argument;
	CUresult result = cu.cuMemMap(room->at + CHUNK, CHUNK, 0, room->handle, 0);

	return result ? result : rules_set_access(room->at + CHUNK, CHUNK);
}

static CUresult unmap_beside(void *argument)
{
	struct room *room = argument;

	return cu.cuMemUnmap(room->at + CHUNK, CHUNK);
}

static CUresult open_beside(void *argument)
{
	struct room *room = argument;
	CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
	CUresult result = cu.cuMemSetAccess(room->at + 2 * CHUNK, CHUNK, &desc, 1);

	return result ? result : rules_set_access(room->at + 2 * CHUNK, CHUNK);
}

static CUresult make_and_release(void *argument)
{
	struct room *room = argument;
	CUmemAllocationProp prop = rules_at_location(room->place);
	CUmemGenericAllocationHandle handle;
	CUresult result = cu.cuMemCreate(&handle, CHUNK, &prop, 0);

	return result ? result : cu.cuMemRelease(handle);
}

static void beside(struct room *room, CUstream stream)
{
	static const struct {
		const char *name;
		CUresult (*call)(void *argument);
	} calls[] = {{"mapping and opening other addresses", map_beside},
		     {"unmapping other addresses", unmap_beside},
		     {"mapping and opening them again", map_beside},
		     {"access to other addresses, read and then all", open_beside},
		     {"unmapping other addresses again", unmap_beside},
		     {"making and releasing memory", make_and_release}};
	const char *place = room->place == CU_MEM_LOCATION_TYPE_DEVICE ? "device" : "host";
	char rule[128];

	rules_hold_start(&kernels, hold, room->at, 4, stream);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		const char *how = rules_how(rules_context, calls[i].call, room, hold);

		snprintf(rule, sizeof(rule), "%s beside a kernel, %s memory", calls[i].name, place);
		rules_found(rule, how, RULES_RETURNS);
		if (!strcmp(how, RULES_RETURNS))
			continue;
		rules_let_go(hold);
		ok(cu.cuStreamSynchronize(stream));
		rules_hold_start(&kernels, hold, room->at, 4, stream);
	}
	rules_let_go(hold);
	snprintf(rule, sizeof(rule), "a kernel beside which other addresses changed, %s memory", place);
	rules_found(rule, cu.cuStreamSynchronize(stream) ? "fails" : "goes on", "goes on");
	assert_int_equal(rules_count(room->at, 4), RULES_WORDS);
}

TEST(other_addresses_change_beside_kernels)
{
	struct room room = {.at = rules_reserve(3 * CHUNK)};
	CUstream stream = rules_stream();

	for (int host = 0; host <= rules_host_vmm; host++) {
		room.place = host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
		room.handle = rules_new_handle(CHUNK, room.place);
		rules_map_new(room.at, CHUNK, room.place);
		rules_map_new(room.at + 2 * CHUNK, CHUNK, room.place);
		beside(&room, stream);
		ok(cu.cuMemUnmap(room.at, CHUNK));
		ok(cu.cuMemUnmap(room.at + 2 * CHUNK, CHUNK));
		ok(cu.cuMemRelease(room.handle));
	}
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuMemAddressFree(room.at, 3 * CHUNK));
}

/* ---- aliases ---- */

#define ALIAS_BYTES (16 * MIB)

struct alias {
	CUdeviceptr one, other;
	CUstream writer, reader; /* which nothing orders but the host, which asks the event */
	CUevent event;
	uint32_t *copied, *count; /* pinned */
};

static void write_and_ask(struct alias *alias, uint32_t value)
{
	size_t n = ALIAS_BYTES / 4;

	if (value % 3)
		rules_fill(&kernels, alias->one, value, n, alias->writer);
	else
		ok(cu.cuMemsetD8Async(alias->one, (unsigned char)value, ALIAS_BYTES, alias->writer));
	ok(cu.cuEventRecord(alias->event, alias->writer));
	while (cu.cuEventQuery(alias->event) == CUDA_ERROR_NOT_READY)
		;
}

/* By a kernel in turn with the copy engine: how many words are old? */
static unsigned long old_words(struct alias *alias, uint32_t round)
{
	uint32_t value = round % 3 ? round : (round & 255) * 0x01010101u;
	unsigned long old = 0;

	*alias->count = 0;
	write_and_ask(alias, round);
	if (round % 2) {
		rules_differ(&kernels, alias->other, value, ALIAS_BYTES / 4, alias->count, alias->reader);
		ok(cu.cuStreamSynchronize(alias->reader));
		return *alias->count;
	}
	ok(cu.cuMemcpyDtoHAsync(alias->copied, alias->other, ALIAS_BYTES, alias->reader));
	ok(cu.cuStreamSynchronize(alias->reader));
	for (size_t i = 0; i < ALIAS_BYTES / 4; i++)
		old += alias->copied[i] != value;
	return old;
}

TEST(after_an_event_an_alias_shows_all_writes)
{
	struct alias alias = {.one = rules_reserve(2 * ALIAS_BYTES)};
	uint32_t rounds = rules_simulated ? 6 : 200;

	alias.other = alias.one + ALIAS_BYTES;
	ok(cu.cuStreamCreate(&alias.writer, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamCreate(&alias.reader, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&alias.event, CU_EVENT_DISABLE_TIMING));
	ok(cu.cuMemHostAlloc((void **)&alias.copied, ALIAS_BYTES, 0));
	ok(cu.cuMemHostAlloc((void **)&alias.count, 4, 0));
	for (int host = 0; host <= rules_host_vmm; host++) {
		CUmemGenericAllocationHandle handle =
		    rules_new_handle(ALIAS_BYTES, host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE);
		unsigned long old = 0;

		ok(cu.cuMemMap(alias.one, ALIAS_BYTES, 0, handle, 0));
		ok(cu.cuMemMap(alias.other, ALIAS_BYTES, 0, handle, 0));
		ok(cu.cuMemRelease(handle));
		ok(rules_set_access(alias.one, 2 * ALIAS_BYTES));
		for (uint32_t round = 1; round <= rounds; round++)
			old += old_words(&alias, round);
		rules_found(host ? "an alias of host memory right after an event"
				 : "an alias of device memory right after an event",
			    old ? "HAS OLD WORDS" : "shows all writes", "shows all writes");
		ok(cu.cuMemUnmap(alias.one, 2 * ALIAS_BYTES));
	}
	ok(cu.cuMemAddressFree(alias.one, 2 * ALIAS_BYTES));
	ok(cu.cuMemFreeHost(alias.copied));
	ok(cu.cuMemFreeHost(alias.count));
	ok(cu.cuEventDestroy(alias.event));
	ok(cu.cuStreamDestroy(alias.writer));
	ok(cu.cuStreamDestroy(alias.reader));
}

/* ---- the end of a context ---- */

static CUresult destroy_context(void *context)
{
	return cu.cuCtxDestroy(context);
}

TEST(kernels_are_over_when_a_context_is_destroyed)
{
	CUcontext context = new_context();
	struct rules_kernels own;

	ok(cu.cuCtxSetCurrent(context));
	rules_kernels_load(&own);
	CUdeviceptr at = rules_alloc(CHUNK);
	CUstream stream = rules_stream();
	rules_hold_start(&own, hold, at, 5, stream);
	ok(cu.cuCtxSetCurrent(rules_context));
	const char *how = rules_how(NULL, destroy_context, context, hold);
	rules_found("cuCtxDestroy beside a kernel of the context", how, RULES_WAITS);
	rules_found("a kernel when cuCtxDestroy has returned", rules_is_running(hold) ? "RUNS ON" : "is over",
		    "is over");
	rules_let_go(hold);
	usleep(10000);
}

static CUresult reset_primary(void *unused)
{
	return cu.cuDevicePrimaryCtxReset(0);
}

static CUresult release_primary(void *unused)
{
	return cu.cuDevicePrimaryCtxRelease(0);
}

static bool is_active(void)
{
	unsigned flags;
	int active;

	ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	return active;
}

/* Where it ends, what is of the primary context ends here, its kernels' functions, too. */
static void beside_a_kernel_of_the_primary(CUresult (*call)(void *argument), const char *name, bool ends)
{
	CUdeviceptr at = rules_reserve(CHUNK);
	char rule[96];

	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUstream stream = rules_stream();
	rules_hold_start(&kernels, hold, at, 6, stream);
	ok(cu.cuCtxSetCurrent(NULL));
	snprintf(rule, sizeof(rule), "%s beside a kernel of the context", name);
	rules_found(rule, rules_how(NULL, call, NULL, hold), ends ? RULES_WAITS : RULES_RETURNS);
	snprintf(rule, sizeof(rule), "the primary context when %s has returned", name);
	rules_found(rule, is_active() ? "is active" : "has ended", ends ? "has ended" : "is active");
	snprintf(rule, sizeof(rule), "a kernel when %s has returned", name);
	rules_found(rule, rules_is_running(hold) ? "runs on" : "is over", ends ? "is over" : "runs on");
	rules_let_go(hold);
	if (ends)
		ok(cu.cuDevicePrimaryCtxRetain(&rules_context, 0));
	ok(cu.cuCtxSetCurrent(rules_context));
	ok(cu.cuCtxSynchronize());
	snprintf(rule, sizeof(rule), "what a kernel wrote before %s returned", name);
	rules_found(rule, rules_count(at, 6) == RULES_WORDS ? "is there" : "IS LOST", "is there");
	rules_unmap_and_free(at, CHUNK);
	if (ends)
		rules_kernels_load(&kernels);
	else
		ok(cu.cuStreamDestroy(stream));
}

/* In this order: rules_init() has taken the only reference, and a reset leaves it beside the one that is taken then. */
TEST(kernels_run_on_when_the_primary_context_is_released_not_for_the_last_time)
{
	CUcontext again;

	ok(cu.cuDevicePrimaryCtxRetain(&again, 0));
	beside_a_kernel_of_the_primary(release_primary, "cuDevicePrimaryCtxRelease, not the last", false);
}

TEST(kernels_are_over_when_the_primary_context_is_released_for_the_last_time)
{
	beside_a_kernel_of_the_primary(release_primary, "the last cuDevicePrimaryCtxRelease", true);
}

TEST(kernels_are_over_when_the_primary_context_is_reset)
{
	beside_a_kernel_of_the_primary(reset_primary, "cuDevicePrimaryCtxReset", true);
	ok(release_primary(NULL));
	rules_found("a reference from before cuDevicePrimaryCtxReset", is_active() ? "stays" : "has ended", "stays");
	if (!is_active())
		ok(cu.cuDevicePrimaryCtxRetain(&rules_context, 0));
}
