// SPDX-License-Identifier: Apache-2.0
/*
 * spank_test.c: the process that the plugin for Slurm makes. Slurm's functions are this file's, its header is
 * slurm_stub/slurm/spank.h; the tool is this program itself. What needs another user is left out for who is not root.
 */
#include "test/test.h"

#include <sys/prctl.h>

#include <slurm/spank.h>

#define OTHER_USER 12345

static char logged[256];
static int (*take_policy)(int value, const char *text, int remote);

void slurm_error(const char *format, ...)
{
	fail_msg("%s", format);
}

void slurm_spank_log(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(logged, sizeof(logged), format, arguments);
	va_end(arguments);
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	if (!strcmp(option->name, "spillway"))
		take_policy = option->cb;
	return ESPANK_SUCCESS;
}

spank_context_t spank_context(void)
{
	return S_CTX_REMOTE;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int bytes)
{
	return ESPANK_ERROR;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	return ESPANK_ERROR;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	va_list arguments;

	va_start(arguments, item);
	if (item == S_TASK_EXIT_STATUS)
		*va_arg(arguments, int *) = SIGKILL;
	else if (item == S_TASK_PID)
		*va_arg(arguments, pid_t *) = 1;
	else if (item == S_JOB_UID)
		*va_arg(arguments, uid_t *) = OTHER_USER;
	else if (item == S_JOB_GID)
		*va_arg(arguments, gid_t *) = OTHER_USER;
	va_end(arguments);
	return ESPANK_SUCCESS;
}

/* Whoever cancels the job kills slurmstepd, too. */
TEST(the_tool_ends_with_slurmstepd_as_another_user_too)
{
	char expected[64], *arguments[] = {"tool=/proc/self/exe"};

	assert_int_equal(slurm_spank_init(NULL, 1, arguments), ESPANK_SUCCESS);
	assert_int_equal(take_policy(0, NULL, 1), ESPANK_SUCCESS);
	assert_int_equal(slurm_spank_task_exit(NULL, 0, NULL), ESPANK_SUCCESS);
	snprintf(expected, sizeof(expected), "user %d signal %d", geteuid() ? (int)geteuid() : OTHER_USER, SIGKILL);
	assert_string_equal(logged, expected);
}

/* As the tool: says whose process it is, and what it gets when its parent ends. */
static int tool(void)
{
	int signal = 0;

	prctl(PR_GET_PDEATHSIG, &signal);
	fprintf(stderr, "user %d signal %d\n", (int)getuid(), signal);
	return 0;
}

int main(int n, char **arguments)
{
	return !strcmp(arguments[0], "spillway") ? tool() : test_run();
}
