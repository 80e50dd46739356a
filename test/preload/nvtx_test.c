/*
 * nvtx_test.c: rules that look at NVTX ranges, which a library of the program marks; and a profiler, which comes first.
 */
#include "test/preload/child.h"
#include "test/preload/nvtx_user.h"
#include "tools/trace/trace_read.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SETTINGS(...) ((const char *const[]){"SIM_MEMORY=128MiB", "SPILLWAY_SET=report.summary=no", __VA_ARGS__, NULL})
#define POLICY        "SPILLWAY_POLICY=" NVTX_POLICY
#define US            "NVTX_INJECTION64_PATH=" LIBRARY
#define NONE          (-2) /* NVTX_NO_PUSH_POP_TRACKING */

/* Does the rule about ranges named "driver*" match? */
static bool matches(void)
{
	CUdeviceptr block = child_alloc(MIB);
	bool heap = driver_is_heap(block);

	MUST(cu.cuMemFree_v2(block));
	return !heap;
}

static void *looks_from_another_thread(void *context)
{
	MUST(cu.cuCtxSetCurrent(context));
	CHECK(!matches());
	CHECK(user_push("driver's") == 0 && matches());
	return NULL; /* its stack goes with it */
}

static int pushes_and_pops(void)
{
	char name[16];
	pthread_t thread;
	/* Ranges before the first allocation count too. */
	CHECK(user_push("driver: outer") == 0);
	CUcontext context = driver_start(0);

	CHECK(matches());
	CHECK(user_push("inner") == 1 && !matches());
	CHECK(user_push_wide(L"driver: wid\x20ac") == 2 && matches());
	CHECK(user_pop() == 2 && !matches());
	CHECK(!pthread_create(&thread, NULL, looks_from_another_thread, context) && !pthread_join(thread, NULL));
	CHECK(user_pop() == 1 && matches());
	CHECK(user_pop() == 0 && !matches());
	CHECK(user_pop() == NONE);
	CHECK(user_push_in(NULL, "driver", 0) == 0 && matches() && user_pop() == 0);
	/* Domains have levels of their own; the innermost range is that which came last. */
	void *one = user_domain("one"), *other = user_domain("other");
	CHECK(one && other && one != other);
	CHECK(user_push_in(one, "driver 1", 1) == 0 && user_push_in(other, "none", 0) == 0 && !matches());
	CHECK(user_pop_in(one) == 0 && !matches());
	CHECK(user_push_in(one, "driver 2", 1) == 0 && matches());
	CHECK(user_pop_in(other) == 0 && matches() && user_pop_in(one) == 0 && !matches());
	/* Deeper than anybody nests them: no name is known there, and all are right again further out. */
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "driver %d", i);
		user_push(name);
		CHECK(matches() == (i < 64));
	}
	for (int i = 0; i < 99; i++)
		user_pop();
	CHECK(matches() && user_pop() == 0 && !matches());
	return 0;
}

static void rules_see_the_innermost_range(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(POLICY, US), pushes_and_pops), 0);
}

static int is_not_listened_to(void)
{
	driver_start(0);
	CHECK(user_push("driver") == NONE && !matches() && user_pop() == NONE);
	return 0;
}

static int is_off(void)
{
	CHECK(user_push("driver") == NONE && user_pop() == NONE);
	return 0;
}

static void who_asks_for_no_range_does_not_pay_for_any(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS("SPILLWAY_POLICY=heap", US), is_not_listened_to), 0);
	assert_int_equal(child_run(SETTINGS(POLICY, US, "SPILLWAY=0"), is_off), 0);
}

static int has_a_profiler(void)
{
	driver_start(0);
	user_push("driver");
	CHECK(getenv("PROFILER_WAS_HERE") && !matches());
	return 0;
}

static void no_range_is_known_where_nvtx_is_not_told_of_the_library(void **state)
{
	(void)state;
	unsetenv("NVTX_INJECTION64_PATH");
	assert_int_equal(child_run(SETTINGS(POLICY), is_not_listened_to), 0);
}

static void a_profiler_comes_first(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(POLICY, "NVTX_INJECTION64_PATH=" NVTX_TOOL), has_a_profiler), 0);
}

/* ---- in a trace ---- */

/* Names of the ranges that begin, and '.' where one ends. Some time later what was done is in the file. */
static void ranges_in_file(char text[256])
{
	struct trace trace;
	size_t n = 0;

	text[0] = 0;
	if (trace_read_file(getenv("SPILLWAY_TRACE"), &trace) == 0)
		for (size_t i = 0; i < trace.n_rows; i++) {
			const struct trace_event *event = &trace.rows[i].event;

			if (event->kind == TRACE_push)
				n += (size_t)snprintf(text + n, 256 - n, "%s,",
						      trace_text(&trace, TRACE_RANGES, event->push.range));
			if (event->kind == TRACE_pop)
				n += (size_t)snprintf(text + n, 256 - n, ".");
		}
	trace_free(&trace);
}

static int is_traced(void)
{
	static const char want[] = "step,loss?,.step,..";
	char text[256] = "";

	/* What begins before the first allocation is not in it, and neither is its end. */
	CHECK(user_push("early") == 0);
	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(MIB)));
	CHECK(user_push("step") == 1 && user_push_wide(L"loss\x20ac") == 2 && user_pop() == 2);
	CHECK(user_push("step") == 2 && user_pop() == 2 && user_pop() == 1 && user_pop() == 0);
	for (unsigned i = 0; i < 6000 && strlen(text) < strlen(want); i++) {
		usleep(10000);
		ranges_in_file(text);
	}
	if (strcmp(text, want))
		printf("%s\n", text);
	return strcmp(text, want) != 0;
}

static void ranges_are_in_a_trace(void **state)
{
	char folder[] = "/tmp/nvtx_test.XXXXXX", path[64], setting[96];
	(void)state;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t", folder);
	snprintf(setting, sizeof(setting), "SPILLWAY_TRACE=%s", path);
	assert_int_equal(child_run(SETTINGS("SPILLWAY_POLICY=heap", US, setting), is_traced), 0);
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rules_see_the_innermost_range),
	    cmocka_unit_test(who_asks_for_no_range_does_not_pay_for_any),
	    cmocka_unit_test(no_range_is_known_where_nvtx_is_not_told_of_the_library),
	    cmocka_unit_test(a_profiler_comes_first),
	    cmocka_unit_test(ranges_are_in_a_trace),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
