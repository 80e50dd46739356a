// SPDX-License-Identifier: Apache-2.0
/*
 * nvtx_test.c: NVTX ranges, which a library of the program marks, in a trace; and a profiler, which comes first.
 */
#include "test/preload/child.h"
#include "test/preload/nvtx_user.h"
#include "test/test.h"
#include "tools/trace/trace_read.h"

#define SETTINGS(...)                                                                                                  \
	((const char *const[]){"SIM_MEMORY=128MiB", "SPILLWAY_SET=report.summary=no", "SPILLWAY_POLICY=heap",          \
			       __VA_ARGS__, NULL})
#define US    "NVTX_INJECTION64_PATH=" LIBRARY
#define TRACE "SPILLWAY_TRACE=/tmp/nvtx_test.%p"
#define NONE  (-2) /* NVTX_NO_PUSH_POP_TRACKING */

static void remove_trace(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/tmp/nvtx_test.%d", (int)getpid());
	unlink(path);
}

/* ---- what the program is told ---- */

CHILD_TEST(a_push_and_a_pop_return_the_level_of_their_domain, SETTINGS(US, TRACE))
{
	/* Ranges before the first allocation count too. */
	CHECK(user_push("outer") == 0);
	driver_start(0);
	CHECK(user_push("inner") == 1 && user_push_wide(L"wid\x20ac") == 2);
	CHECK(user_pop() == 2 && user_pop() == 1 && user_pop() == 0 && user_pop() == NONE);
	CHECK(user_push_in(NULL, "with attributes", 0) == 0 && user_pop() == 0);
	void *one = user_domain("one"), *other = user_domain("other");
	CHECK(one && other && one != other);
	CHECK(user_push_in(one, "1", 1) == 0 && user_push_in(other, "none", 0) == 0 && user_push_in(one, "2", 1) == 1);
	CHECK(user_pop() == NONE && user_pop_in(other) == 0 && user_pop_in(one) == 1 && user_pop_in(one) == 0);
	/* Deeper than anybody nests them. */
	for (int i = 0; i < 100; i++)
		CHECK(user_push("deep") == i);
	for (int i = 100; i-- > 0;)
		CHECK(user_pop() == i);
	CHECK(user_pop() == NONE);
	remove_trace();
}

static void is_not_listened_to(void)
{
	CHECK(user_push("range") == NONE && user_pop() == NONE);
}

TEST(who_asks_for_no_trace_does_not_pay_for_ranges)
{
	child_passes(SETTINGS(US), is_not_listened_to);
	child_passes(SETTINGS(US, TRACE, "SPILLWAY=0"), is_not_listened_to);
}

TEST(no_range_is_known_where_nvtx_is_not_told_of_the_library)
{
	unsetenv("NVTX_INJECTION64_PATH");
	child_passes(SETTINGS(TRACE), is_not_listened_to);
}

/* ---- in a trace ---- */

/*
 * Names of the ranges that begin, and '.' where one ends, of the thread that began the first, and of all others. Some
 * time later what was done is in the file.
 */
static void ranges_in_file(char own[256], char others[256])
{
	struct trace trace;
	char path[64];
	size_t n[2] = {0};
	uint32_t first = 0;

	own[0] = others[0] = 0;
	snprintf(path, sizeof(path), "/tmp/nvtx_test.%d", (int)getpid());
	if (trace_read_file(path, &trace) == 0)
		for (size_t i = 0; i < trace.n_rows; i++) {
			const struct trace_event *event = &trace.rows[i].event;
			bool push = event->kind == TRACE_push;

			if (!push && event->kind != TRACE_pop)
				continue;
			first = first ? first : event->thread;
			bool other = event->thread != first;
			n[other] +=
			    (size_t)snprintf((other ? others : own) + n[other], 256 - n[other], push ? "%s," : ".",
					     push ? trace_text(&trace, TRACE_RANGES, event->push.range) : "");
		}
	trace_free(&trace);
}

static void expect_ranges(const char *own, const char *others)
{
	char seen[256] = "", seen_others[256] = "";

	for (unsigned i = 0; i < 6000 && (strlen(seen) < strlen(own) || strlen(seen_others) < strlen(others)); i++) {
		usleep(10000);
		ranges_in_file(seen, seen_others);
	}
	if (strcmp(seen, own) || strcmp(seen_others, others))
		printf("%s and %s\n", seen, seen_others);
	CHECK(!strcmp(seen, own) && !strcmp(seen_others, others));
}

static void *marks_its_own(void *argument)
{
	CHECK(user_push("copy") == 0 && user_push("step") == 1 && user_pop() == 1 && user_pop() == 0);
	return NULL;
}

CHILD_TEST(ranges_are_in_a_trace_by_thread, SETTINGS(US, TRACE))
{
	/* What begins before the first allocation is not in it, and neither is its end. */
	CHECK(user_push("early") == 0);
	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(MIB)));
	CHECK(user_push("step") == 1 && user_push_wide(L"loss\x20ac") == 2 && user_pop() == 2);
	test_beside(marks_its_own, NULL);
	CHECK(user_push("step") == 2 && user_pop() == 2 && user_pop() == 1 && user_pop() == 0);
	void *domain = user_domain("one");
	CHECK(user_push_in(domain, "registered", 1) == 0 && user_push_in(NULL, "other", 0) == 0);
	CHECK(user_pop_in(domain) == 0 && user_pop() == 0);
	expect_ranges("step,loss?,.step,..registered,other,..", "copy,step,..");
	remove_trace();
}

CHILD_TEST(a_profiler_comes_first, SETTINGS("NVTX_INJECTION64_PATH=" NVTX_TOOL, TRACE))
{
	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(MIB)));
	CHECK(user_push("range") == NONE && user_pop() == NONE && getenv("PROFILER_WAS_HERE"));
	remove_trace();
}
