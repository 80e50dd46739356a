// SPDX-License-Identifier: Apache-2.0
/*
 * completion_tail_test.c: events of whole contexts, which the movers of several devices have recorded at once: a
 * context_record() of the test's own lets another mover be faster (CMakeLists.txt).
 */
#include "test/core/completion_help.h"

#include "shim/submit/types.h"

CUevent __real_context_record(CUcontext context, bool *ret_gone);
CUevent __wrap_context_record(CUcontext context, bool *ret_gone);

static CUcontext faster; /* whose tail another mover looks after in the middle of ours */

CUevent __wrap_context_record(CUcontext context, bool *ret_gone)
{
	CUcontext other = faster;

	faster = NULL;
	if (other)
		completion_context_look_after(other, 1);
	return __real_context_record(context, ret_gone);
}

static unsigned long events(void)
{
	return sim_calls("cuEventCreate") - sim_calls("cuEventDestroy_v2");
}

static bool has_no_events(void)
{
	done_ask();
	return events() == 0;
}

TEST(no_event_is_lost_where_two_look_at_once)
{
	CUcontext other;
	CUcontext here = core_current();

	assert_ok(cuCtxCreate_v4(&other, NULL, 0, 0));
	assert_ok(cuCtxSetCurrent(here));
	faster = other;
	completion_context_look_after(here, 1);
	assert_int_equal(events(), 2);
	assert_true(becomes(has_no_events));
	faster = here;
	completion_context_look_after(here, 1);
	assert_int_equal(events(), 1);
	assert_true(becomes(has_no_events));
	assert_ok(cuCtxDestroy_v2(other));
}

START(core_start((const char *const[]){"SIM_MEMORY=64MiB", NULL}))
