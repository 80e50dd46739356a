/*
 * What a trace has of changes of spill.mode, and what the tools say of it.
 */
#include "test/preload/set_mode_help.h"
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
	static char text[SAYS_ROOM];
	char setting[256], command[512];

	snprintf(trace_file, sizeof(trace_file), "%s/set_mode.%d.trace", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
		 (int)getpid());
	unlink(trace_file);
	snprintf(setting, sizeof(setting), "SPILLWAY_TRACE=%s", trace_file);
	const char *const settings[] = {
	    "SIM_MEMORY=128MiB", setting,
	    "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no,spill.mode=exact", NULL};
	assert_int_equal(child_run(settings, is_traced), 0);
	snprintf(command, sizeof(command), "env -u LD_PRELOAD '%s' report '%s' 2>&1", TOOL, trace_file);
	assert_int_equal(says(command, text), 0);
	unwrap(text);
	if (!strstr(text, "spill.mode exact (set 3 times while it ran, at last to fast)"))
		fail_msg("the report says: %s", text);
	snprintf(command, sizeof(command), "env -u LD_PRELOAD '%s' report --perfetto '%s' 2>&1", TOOL, trace_file);
	assert_int_equal(says(command, text), 0);
	assert_non_null(strstr(text, "spill.mode fast"));
	snprintf(command, sizeof(command), "env -u LD_PRELOAD '%s' replay '%s' 2>&1", TOOL, trace_file);
	says(command, text);
	unwrap(text);
	assert_non_null(strstr(text, "spill.mode was set 3 times while this was recorded"));
	unlink(trace_file);
}

int main(void)
{
	return suspend_run(test_run);
}
