// SPDX-License-Identifier: Apache-2.0
/*
 * Which processes `spillway suspend` can reach: from the first allocation on, if the policy lets it, not the child of a
 * fork, and nothing stays of one that has exited.
 */
#include "shim/spillway.h"
#include "test/preload/suspend_help.h"
#include "test/test.h"

#include <dirent.h>
#include <sys/syscall.h>

static int n_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int n = 0;

	for (struct dirent *entry; (entry = readdir(tasks));) {
		char path[300], name[32] = "";

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		FILE *comm = fopen(path, "r");
		if (comm && fgets(name, sizeof(name), comm))
			n += !strcmp(name, "spillway-ctl\n");
		if (comm)
			fclose(comm);
	}
	closedir(tasks);
	return n;
}

static void has_not_used_memory(void)
{
	driver_start(0);
	CHECK(n_threads() == 0);
	CHECK(tool_says("suspend", 1, "has not used GPU memory"));
	CUdeviceptr block = child_alloc(BLOCK);
	CHECK(tool_lists("running") && n_threads() == 1);
	MUST(cu.cuMemFree_v2(block));
}

static void may_not_be_reached(void)
{
	job_start();
	CHECK(n_threads() == 0);
	CHECK(tool_says("suspend", 1, "control: no"));
}

static void forks_while_suspended(void)
{
	job_start();
	CHECK(tool_says("suspend", 0, "suspended"));
	pid_t pid = fork();
	if (!pid) {
		int status;

		tool(&status, "suspend %d", (int)getpid());
		_exit(status == 1 && n_threads() == 0 && spillway_suspend() == -ENOTSUP ? 0 : 1);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(tool_says("resume", 0, "resumed"));
	job_check(0x1000);
}

/* As a program does that becomes a daemon. */
static void closes_its_descriptors_while_suspended(void)
{
	int failed = 1;

	job_start();
	CHECK(tool_says("suspend", 0, "suspended"));
	for (int fd = 3; fd < 1024; fd++)
		syscall(SYS_close, fd); /* behind the back of ThreadSanitizer: the library's threads use some */
	/* Who asks before the socket is made again hears the end. */
	for (int tries = 0; tries < 100 && failed; tries++) {
		CHECK(strstr(tool(&failed, "resume %d", (int)getpid()), "resumed") || failed);
		usleep(100000 * (failed != 0));
	}
	CHECK(!failed);
	job_check(0x1000);
	CHECK(tool_says("suspend", 0, "suspended") && tool_says("resume", 0, "resumed"));
	job_check(0x1000);
}

static void exits(void)
{
	job_start();
	CHECK(tool_lists("running"));
	exit(0);
}

TEST(a_process_that_exits_leaves_nothing)
{
	char path[80];

	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), exits), 0);
	snprintf(path, sizeof(path), "%s/spillway", folder);
	assert_int_not_equal(access(path, F_OK), 0);
}

TEST(a_process_is_reached_from_its_first_allocation_on_if_its_policy_says_so)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_not_used_memory), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact,control=no"), may_not_be_reached), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), forks_while_suspended), 0);
}

TEST(a_process_that_closes_its_descriptors_is_reached_again)
{
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), closes_its_descriptors_while_suspended), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), closes_its_descriptors_while_suspended), 0);
}

GROUP(folder_make_for_all, folder_remove)
