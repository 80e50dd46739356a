// SPDX-License-Identifier: Apache-2.0
/*
 * faults_none_test.c: in every way in which page faults cannot be counted there is a reason instead of a number, and
 * the program does not notice.
 */
#include "test/core/faults_help.h"

#define IN_CHILD(run, ...)                                                                                             \
	assert_int_equal(                                                                                              \
	    core_in_child((const char *const[]){"SPILLWAY_SET=report.summary=no", ##__VA_ARGS__, NULL}, run, NULL), 0)

static int counts_all_the_same(void *argument)
{
	faults_help_start();
	CUdeviceptr at = faults_help_managed(16 * PAGE);
	faults_help_write(at, 16 * PAGE);
	CHECK(sim_managed().gpu_faults == 16);
	return faults_help_check_equal();
}

/* ---- a reason instead of a number ---- */

static int has_none(void *argument)
{
	const char *reason = argument;

	faults_help_start();
	errno = 4711;
	CUdeviceptr at = faults_help_managed(32 * PAGE);
	CHECK(errno == 4711);
	faults_help_write(at, 32 * PAGE);
	CHECK(sim_managed().gpu_faults == 32);
	CHECK(faults_help_source_has("none: "));
	CHECK(faults_help_source_has(reason));
	CHECK(faults_help_source_has("major faults"));
	faults_help_check_none();
	CHECK(sim_uvm_trackers() == 0);
	/* Tried once. */
	unsigned opened = sim_uvm_opened();
	faults_help_managed(PAGE);
	CHECK(sim_uvm_opened() == opened);
	return 0;
}

TEST(without_a_source_there_is_a_reason)
{
	static const struct {
		const char *settings[3], *reason;
	} rows[] = {
	    {{"SIM_UVM=missing"}, "/dev/nvidia-uvm-tools is not there; a container has to be given it"},
	    {{"SIM_UVM=denied"}, "/dev/nvidia-uvm-tools: Permission denied"},
	    {{"SIM_UVM=no-file"}, "the process has not opened /dev/nvidia-uvm"},
	    {{"SIM_UVM=refused"}, "driver 580.159.03 refuses ioctl 56 with status 0x1b"},
	    {{"SIM_UVM=unknown"}, "driver 580.159.03 does not take ioctl 56: Invalid argument"},
	    {{"SIM_UVM=silent"}, "driver 580.159.03 answers ioctl 56 in a form that is not known"},
	    {{"SIM_UVM=overwrites"}, "driver 580.159.03 writes what was not asked for"},
	    /* The version is not true: the parameters of one layout, read by another. */
	    {{"SIM_DRIVER=560.35.03", "SIM_UVM_DRIVER=580"}, "driver 560.35.03 answers ioctl 56 in a form"},
	    {{"SIM_DRIVER=580.10", "SIM_UVM_DRIVER=560"}, "driver 580.10 answers ioctl 56 in a form"},
	    {{"SIM_DRIVER=580.10", "SIM_UVM_DRIVER=555"}, "driver 580.10 refuses ioctl 56 with status 0x1f"},
	    {{"SIM_DRIVER=555.58", "SIM_UVM_DRIVER=560"}, "driver 555.58 answers ioctl 56 in a form"},
	    {{"SIM_UVM=no-version", "SIM_UVM_DRIVER=560"}, "driver unknown answers ioctl 56 in a form"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *const settings[] = {"SPILLWAY_SET=report.summary=no", rows[i].settings[0],
						rows[i].settings[1], NULL};

		if (core_in_child(settings, has_none, (void *)rows[i].reason))
			fail_msg("%s", rows[i].reason);
		/* A queue on top changes nothing about it. */
		const char *const events[] = {"SPILLWAY_SET=report.summary=no,faults=events", rows[i].settings[0],
					      rows[i].settings[1], NULL};
		if (core_in_child(events, has_none, (void *)rows[i].reason))
			fail_msg("events: %s", rows[i].reason);
	}
}

TEST(a_read_only_device_or_a_hidden_version_is_no_obstacle)
{
	IN_CHILD(counts_all_the_same, "SIM_UVM=readonly");
	IN_CHILD(counts_all_the_same, "SIM_UVM=no-version");
	IN_CHILD(counts_all_the_same, "SIM_DRIVER=not.a.version");
}

static int opens_nothing(void *argument)
{
	faults_help_start();
	CHECK(faults_help_source_has("none: nothing that the GPU could fault on has been allocated"));
	CHECK(faults_major() == STATS_NA);
	CUdeviceptr at = core_alloc(4 * PAGE);
	faults_help_write(at, 4 * PAGE);
	CHECK(cuMemFree_v2(at) == CUDA_SUCCESS);
	/* The driver refuses: no memory, no counting. */
	CHECK(cuMemAllocManaged(&at, 0, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS);
	faults_poll();
	CHECK(sim_uvm_opened() == 0);
	faults_help_check_none();
	return 0;
}

TEST(a_process_without_managed_memory_opens_nothing)
{
	IN_CHILD(opens_nothing);
	IN_CHILD(opens_nothing, "SPILLWAY_SET=report.summary=no,faults=events");
}

PART_TEST(off_is_off, IN_CHILD(part, "SPILLWAY_SET=faults=off,report.summary=no"))
{
	faults_help_start();
	faults_help_write(faults_help_managed(4 * PAGE), 4 * PAGE);
	CHECK(sim_uvm_opened() == 0);
	CHECK(faults_help_source_has("none: the policy says faults: off"));
	faults_help_check_none();
	return 0;
}

PART_TEST(cupti_gives_way_to_the_counters_and_says_so, IN_CHILD(part, "SPILLWAY_SET=faults=cupti,report.summary=no"))
{
	faults_help_start();
	faults_help_write(faults_help_managed(4 * PAGE), 4 * PAGE);
	CHECK(faults_help_source_has("the driver's counters"));
	CHECK(faults_help_source_has("; CUPTI is not available in this version"));
	return faults_help_check_equal();
}

/* ---- what was good and is not any more ---- */

static int is_written_over(void *argument)
{
	faults_help_start();
	faults_help_write(faults_help_managed(4 * PAGE), 4 * PAGE);
	faults_help_check_equal();
	sim_uvm_scribble();
	faults_help_check_none();
	CHECK(faults_help_source_has("none any more: the driver's counters have been written over"));
	sim_uvm_scribble(); /* as it was: once lost is lost */
	faults_help_check_none();
	return 0;
}

TEST(counters_that_were_written_over_are_not_believed)
{
	IN_CHILD(is_written_over);
	IN_CHILD(is_written_over, "SIM_DEVICES=2");
}

PART_TEST(a_descriptor_that_the_program_closed_is_missed_and_left_alone, IN_CHILD(part))
{
	faults_help_start();
	faults_help_write(faults_help_managed(4 * PAGE), 4 * PAGE);
	int fd = sim_uvm_descriptor(), other;

	/* As a program does that becomes a daemon; the number is soon another file's. */
	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	close(fd);
	other = open("/dev/null", O_RDONLY);
	CHECK(dup2(other, fd) == fd);
	faults_help_check_none();
	CHECK(faults_help_source_has("none any more: the program closed our descriptor of /dev/nvidia-uvm-tools"));
	faults_end();
	faults_child();
	CHECK(fcntl(fd, F_GETFD) >= 0);
	return 0;
}
