// SPDX-License-Identifier: Apache-2.0
/*
 * rules_green_test.c: the rules about green contexts (rules.h): what their end means for their work, their streams and
 * captures, and what the end of the primary context means for them. Each line "rule: ..." is an answer of the driver
 * (rules_found()). A green context is current in one thread at a time.
 */
#include "rules_kernel.h"
#include <dlfcn.h>

/* Not in the table of rules.h: drivers older than 12.4 lack them. */
static struct {
	__typeof__(cuGreenCtxCreate) *create;
	__typeof__(cuGreenCtxDestroy) *destroy;
	__typeof__(cuCtxFromGreenCtx) *context_of;
} greens;

/* One is current while its work is submitted, then none is: it may be destroyed, or asked from another thread. */
static struct {
	CUgreenCtx green;
	CUcontext context;
	CUstream stream;
	CUevent event; /* of the green context */
} part;

static CUdevResourceDesc desc;  /* NULL: simulated */
static struct rules_hold *hold; /* of a context that outlives all */
static CUcontext keeper;
static CUdeviceptr at; /* mapped: no context ends it */

static void load(void *library, const char *name, void *ret)
{
	*(void **)ret = dlsym(library, name);
}

/* The smallest part that the device can be cut into. */
static bool make_desc(void *library)
{
	__typeof__(cuDeviceGetDevResource) *get;
	__typeof__(cuDevSmResourceSplitByCount) *split;
	__typeof__(cuDevResourceGenerateDesc) *generate;
	CUdevResource whole, some, rest;
	unsigned n = 1;

	load(library, "cuDeviceGetDevResource", &get);
	load(library, "cuDevSmResourceSplitByCount", &split);
	load(library, "cuDevResourceGenerateDesc", &generate);
	return get && split && generate && !get(0, &whole, CU_DEV_RESOURCE_TYPE_SM) &&
	       !split(&some, &n, &whole, &rest, 0, 1) && n && !generate(&desc, &some, 1);
}

static bool are_there(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	load(library, "cuGreenCtxCreate", &greens.create);
	load(library, "cuGreenCtxDestroy", &greens.destroy);
	load(library, "cuCtxFromGreenCtx", &greens.context_of);
	return greens.create && greens.destroy && greens.context_of && (rules_simulated || make_desc(library));
}

static int begin(void **state)
{
	CUcontext popped;

	ok(cu.cuCtxCreate(&keeper, NULL, 0, 0));
	hold = rules_hold_new();
	ok(cu.cuCtxPopCurrent(&popped));
	at = rules_reserve(CHUNK);
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	return 0;
}

static int end(void **state)
{
	ok(cu.cuCtxDestroy(keeper));
	return 0;
}

GROUP(begin, end)

static void new_part(void)
{
	ok(greens.create(&part.green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	ok(greens.context_of(&part.context, part.green));
	ok(cu.cuCtxPushCurrent(part.context));
	ok(cu.cuStreamCreate(&part.stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&part.event, CU_EVENT_DISABLE_TIMING));
}

static void leave_part(void)
{
	CUcontext popped;

	ok(cu.cuCtxPopCurrent(&popped));
	assert_ptr_equal(popped, part.context);
}

static void hold_in_part(uint32_t value)
{
	struct rules_kernels kernels;

	new_part();
	rules_kernels_load(&kernels);
	rules_hold_start(&kernels, hold, at, value, part.stream);
	ok(cu.cuEventRecord(part.event, part.stream));
	leave_part();
}

static CUresult destroy_part(void *unused)
{
	return greens.destroy(part.green);
}

/* Records an event of the primary context, before the green one is destroyed or after that. */
static void asked_of_the_primary(bool before)
{
	CUresult early;
	CUevent event = rules_event(CU_EVENT_DISABLE_TIMING);

	hold_in_part(1);
	if (before)
		ok(cu.cuCtxRecordEvent(rules_context, event));
	const char *how = rules_how(NULL, destroy_part, NULL, hold);
	rules_found("cuGreenCtxDestroy beside a kernel of the green context", how, RULES_RETURNS);
	rules_found("a kernel when cuGreenCtxDestroy has returned", rules_is_running(hold) ? "runs on" : "is over",
		    "runs on");
	if (rules_is_running(hold)) {
		if (!before)
			ok(cu.cuCtxRecordEvent(rules_context, event));
		early = cu.cuEventQuery(event);
		if (early == CUDA_ERROR_NOT_READY)
			rules_let_go(hold);
		ok(cu.cuEventSynchronize(event));
		rules_found(before ? "an event of the primary context from before the end, and work of the green one"
				   : "an event of the primary context from after the end, and work of the green one",
			    early == CUDA_ERROR_NOT_READY && rules_has_ended(hold) ? "is covered" : "is not covered",
			    "is covered");
	}
	rules_let_go(hold);
	ok(cu.cuCtxSynchronize());
	for (unsigned ms = 0; ms < 1000 && !rules_has_ended(hold); ms++)
		usleep(1000); /* nothing may cover it */
	rules_found("what a kernel of a destroyed green context wrote",
		    rules_count(at, 1) == RULES_WORDS ? "is there" : "IS LOST", "is there");
	ok(cu.cuEventDestroy(event));
}

/* What completion_streams.c and deferred_free.c build on: the primary context covers it. */
TEST(the_work_of_a_green_context_that_is_destroyed)
{
	asked_of_the_primary(true);
	asked_of_the_primary(false);
}

/* ---- the end of the primary context ---- */

static CUresult reset_primary(void *unused)
{
	return cu.cuDevicePrimaryCtxReset(0);
}

static bool is_active(void)
{
	unsigned flags;
	int active;

	ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	return active;
}

/* A green context has a reference of its own. */
TEST(the_release_of_the_primary_context_beside_a_green_one)
{
	hold_in_part(2);
	ok(cu.cuCtxSetCurrent(NULL));
	ok(cu.cuDevicePrimaryCtxRelease(0));
	rules_found("the primary context when all but a green one have released it",
		    is_active() ? "is active" : "has ended", "is active");
	rules_found("a kernel of a green context then", rules_is_running(hold) ? "runs on" : "is over", "runs on");
	rules_let_go(hold);
	ok(cu.cuDevicePrimaryCtxRetain(&rules_context, 0));
	ok(cu.cuCtxSetCurrent(rules_context));
	ok(cu.cuCtxSynchronize());
	ok(destroy_part(NULL));
}

/* What is of the primary context ends here. What had a green one is asked about, and nothing else is done. */
TEST(the_reset_of_the_primary_context_beside_a_green_one)
{
	CUcontext context;
	unsigned version;

	hold_in_part(3);
	ok(cu.cuCtxSetCurrent(NULL));
	const char *how = rules_how(NULL, reset_primary, NULL, hold);
	rules_found("cuDevicePrimaryCtxReset beside a kernel of a green context", how, RULES_WAITS);
	rules_found("a kernel of a green context when that has returned",
		    rules_is_running(hold) ? "RUNS ON" : "is over", "is over");
	rules_let_go(hold);
	rules_found("the primary context when that has returned", is_active() ? "is active" : "has ended", "has ended");
	bool lives = !cu.cuCtxGetApiVersion(part.context, &version);
	rules_found("the green context when that has returned", lives ? "lives" : "has ended", "has ended");
	rules_found("cuCtxFromGreenCtx then", greens.context_of(&context, part.green) ? "fails" : "succeeds", "fails");
	ok(cu.cuDevicePrimaryCtxRetain(&rules_context, 0));
	ok(cu.cuCtxSetCurrent(rules_context));
	rules_found("what its kernel wrote", rules_count(at, 3) == RULES_WORDS ? "is there" : "IS LOST", "is there");
	lives = !cu.cuCtxGetApiVersion(part.context, &version);
	rules_found("the green context when the primary one was retained anew", lives ? "lives" : "has ended",
		    "has ended");
	rules_unmap_and_free(at, CHUNK);
	rules_found("cuGreenCtxDestroy then", destroy_part(NULL) ? "fails" : "succeeds", "fails");
}

/* ---- captures ---- */

static CUresult ask_stream(void *stream)
{
	CUcontext before;

	ok(cu.cuCtxPushCurrent(rules_context));
	CUresult result = cu.cuStreamQuery(stream);
	ok(cu.cuCtxPopCurrent(&before));
	return result;
}

struct asked {
	CUstream stream;
	CUresult result;
};

static void *ask_elsewhere(void *argument)
{
	struct asked *asked = argument;

	asked->result = ask_stream(asked->stream);
	return NULL;
}

static const char *an_unsafe_call(CUstream stream)
{
	struct asked asked = {.stream = stream};

	test_beside(ask_elsewhere, &asked);
	return asked.result ? "fails" : "succeeds";
}

/* Another thread's call, which a capture in global mode forbids, tells whether it is still open. */
TEST(a_capture_of_a_green_context_that_is_destroyed)
{
	CUstream stream = rules_stream();

	new_part();
	ok(cu.cuStreamBeginCapture(part.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	leave_part();
	CUresult result = greens.destroy(part.green);
	rules_found("cuGreenCtxDestroy while a stream of it captures", result ? "fails" : "succeeds", "succeeds");
	/* A real capture stays open for good, and its stream cannot be destroyed: nothing more can be asked. */
	rules_found("an unsafe call of another thread after that", an_unsafe_call(stream),
		    rules_simulated ? "succeeds" : "fails");
	ok(cu.cuStreamDestroy(stream));
}

int main(void)
{
	int failed = rules_init();

	if (failed)
		return failed;
	if (!are_there()) {
		fprintf(stderr, "no green contexts: skipped\n");
		return 77;
	}
	failed = test_run();
	rules_fini();
	return failed;
}
