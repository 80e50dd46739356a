// SPDX-License-Identifier: Apache-2.0
/*
 * What a trace has of changes of spill.mode, and what the tools say of it.
 */
#include "test/preload/suspend_help.h"
#include "test/test.h"

static char trace_file[200];

static void is_traced(void)
{
	job_start();
	CHECK(set_says("spill.mode=fast", 0, ""));
	CHECK(set_says("spill.mode=exact", 0, ""));
	CHECK(set_says("spill.mode=exact", 0, "")); /* nothing new */
	CHECK(set_says("spill.mode=fast", 0, ""));
	job_check(0x1000);
	exit(0);
}

/* Lines that the tool has wrapped, in one. */
static void unwrap(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++)
		if (*from != '\n' && !(*from == ' ' && to > text && to[-1] == ' '))
			*to++ = *from;
		else if (*from == '\n')
			*to++ = ' ';
	*to = 0;
}

TEST(the_trace_has_the_changes)
{
	char setting[256], *text;
	int status;

	snprintf(trace_file, sizeof(trace_file), "%s/set_mode.trace", folder);
	snprintf(setting, sizeof(setting), "SPILLWAY_TRACE=%s", trace_file);
	const char *const settings[] = {
	    "SIM_MEMORY=128MiB", setting,
	    "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no,spill.mode=exact", NULL};
	assert_int_equal(child_run(settings, is_traced), 0);
	text = tool(&status, "report '%s'", trace_file);
	assert_int_equal(status, 0);
	unwrap(text);
	if (!strstr(text, "spill.mode exact (set 3 times while it ran, at last to fast)"))
		fail_msg("the report says: %s", text);
	assert_true(tool_tells("spill.mode fast", "report --perfetto '%s'", trace_file));
	text = tool(NULL, "replay '%s'", trace_file);
	unwrap(text);
	assert_non_null(strstr(text, "spill.mode was set 3 times while this was recorded"));
	unlink(trace_file);
}

GROUP(folder_make_for_all, folder_remove)
