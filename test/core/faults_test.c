// SPDX-License-Identifier: Apache-2.0
/*
 * faults_test.c: page faults as the driver counts them are what the model counts, for every layout of the driver's
 * parameters, for each device, and across threads and forks.
 */
#include "test/core/faults_help.h"

#include <sys/syscall.h>

#include "shim/faults/faults_uvm.h"

#define IN_CHILD(run, ...)                                                                                             \
	assert_int_equal(                                                                                              \
	    core_in_child((const char *const[]){"SPILLWAY_SET=report.summary=no", ##__VA_ARGS__, NULL}, run, NULL), 0)

/* ---- equal ---- */

PART_TEST(what_is_read_is_what_the_model_counts, IN_CHILD(part))
{
	faults_help_start();
	CUdeviceptr at = faults_help_managed(64 * PAGE);

	CHECK(faults_help_source_has("the driver's counters (/dev/nvidia-uvm-tools, driver 580.159.03)"));
	faults_help_check_equal();
	faults_help_write(at, 8 * PAGE); /* first touch: faults, nothing moves */
	faults_help_check_equal();
	faults_help_cpu(at, 4 * PAGE); /* back to the CPU */
	faults_help_check_equal();
	faults_help_read(at, 8 * PAGE); /* and to the device */
	faults_help_check_equal();
	faults_help_prefetch(at, 8 * PAGE, CU_DEVICE_CPU);
	faults_help_prefetch(at, 8 * PAGE, 0);
	faults_help_check_equal();
	faults_help_write(at, 64 * PAGE); /* 16 fit: the others are evicted */
	CHECK(sim_managed().evictions >= 48);
	faults_help_check_equal();
	for (int i = 0; i < 6; i++) /* and come back, and go again */
		faults_help_read(at, 32 * PAGE);
	CHECK(sim_managed().thrashing > 0);
	faults_help_check_equal();
	faults_help_advise(at, 8 * PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
	faults_help_cpu(at, 8 * PAGE);
	faults_help_read(at, 8 * PAGE);
	CHECK(sim_managed().duplicates > 0);
	/* A fault of the CPU on what prefers the device is told twice by the driver, and counted once. */
	faults_help_advise(at + 8 * PAGE, 8 * PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0);
	faults_help_write(at + 8 * PAGE, 8 * PAGE);
	unsigned long before = sim_managed().cpu_faults;
	faults_help_cpu(at + 8 * PAGE, 8 * PAGE);
	CHECK(sim_managed().cpu_faults > before);
	faults_help_check_equal();
	CHECK(cuMemFree_v2(at) == CUDA_SUCCESS);
	CHECK(sim_uvm_trackers() == 1);
	CHECK(sim_broken_rules() == 0);
	return 0;
}

static int counts_a_mix(void *argument)
{
	struct seed seed = *(struct seed *)argument;

	faults_help_start();
	CUdeviceptr at = faults_help_managed(40 * PAGE), other = faults_help_managed(7 * PAGE);

	for (int i = 0; i < 20; i++) {
		faults_help_mix(at, 40 * PAGE, 20, &seed);
		faults_help_mix(other, 7 * PAGE, 10, &seed);
		faults_help_check_equal();
	}
	return 0;
}

TEST(a_random_mix_is_counted)
{
	static const char *const drivers[] = {"SIM_DRIVER=515.105.01", "SIM_DRIVER=550.127.05", "SIM_DRIVER=555.42.02",
					      "SIM_DRIVER=560.35.03",  "SIM_DRIVER=565.57.01",  "SIM_DRIVER=580.159.03",
					      "SIM_DRIVER=610.10"};
	struct seed seed = seed_start("faults_test");

	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
		const char *const settings[] = {"SPILLWAY_SET=report.summary=no", drivers[i], NULL};

		if (core_in_child(settings, counts_a_mix, &seed))
			fail_msg("%s", drivers[i]);
	}
}

PART_TEST(memory_that_the_policy_makes_managed_is_counted,
	  IN_CHILD(part, "SPILLWAY_SET=default=managed,report.summary=no"))
{
	faults_help_start();
	CHECK(sim_uvm_opened() == 0);
	CUdeviceptr at = core_alloc(32 * PAGE);
	CHECK(sim_uvm_trackers() == 1);
	faults_help_write(at, 32 * PAGE);
	CHECK(sim_managed().gpu_faults > 0);
	return faults_help_check_equal();
}

static int starts_with_pages(void *argument)
{
	faults_help_start();
	core_alloc(4 * PAGE);
	CHECK(sim_uvm_trackers() == (sim_uvm_opened() ? 1 : 0));
	return sim_uvm_opened() ? 0 : 3;
}

TEST(system_memory_is_counted_where_the_device_faults_on_it)
{
	static const char *const reaches[] = {"SPILLWAY_SET=default=system,report.summary=no", "SIM_PAGEABLE=1", NULL};
	static const char *const registers[] = {"SPILLWAY_SET=default=system,report.summary=no,host.budget=64MiB",
						NULL};

	assert_int_equal(core_in_child(reaches, starts_with_pages, NULL), 0);
	assert_int_equal(core_in_child(registers, starts_with_pages, NULL), 3);
}

/* ---- several devices ---- */

static CUcontext context_on(CUdevice device)
{
	CUcontext context;

	CHECK(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	return context;
}

PART_TEST(several_devices_are_counted_each, IN_CHILD(part, "SIM_DEVICES=2"))
{
	uint64_t seen[FAULT_COUNT];

	faults_help_start();
	CUdeviceptr at = faults_help_managed(64 * PAGE);
	faults_help_write(at, 32 * PAGE);
	faults_help_prefetch(at + 32 * PAGE, 8 * PAGE, 1);
	faults_help_prefetch(at + 32 * PAGE, 8 * PAGE, CU_DEVICE_CPU);
	faults_help_prefetch(at + 32 * PAGE, 6 * PAGE, 1);
	faults_help_prefetch(at + 32 * PAGE, 2 * PAGE, 0); /* between devices: neither in nor out */
	context_on(1);
	faults_help_prefetch(at, 4 * PAGE, CU_DEVICE_CPU);
	faults_help_cpu(at + 16 * PAGE, 4 * PAGE);
	faults_help_check_equal();
	for (int device = 0; device < 2; device++) {
		struct sim_managed model = sim_managed_of(device);

		CHECK(model.bytes_out > 0);
		faults_read(device, seen);
		CHECK(seen[FAULT_GPU] == model.gpu_faults);
		CHECK(seen[FAULT_IN_BYTES] == model.bytes_in && seen[FAULT_OUT_BYTES] == model.bytes_out);
		CHECK(seen[FAULT_CPU] == STATS_NA);
	}
	faults_read(2, seen);
	CHECK(seen[FAULT_GPU] == STATS_NA && seen[FAULT_IN_BYTES] == STATS_NA);
	CHECK(sim_uvm_trackers() == 3);
	return 0;
}

PART_TEST(devices_that_the_driver_calls_otherwise_are_not_measured,
	  IN_CHILD(part, "SIM_DEVICES=2", "SIM_UVM=strange-uuids"))
{
	uint64_t seen[FAULT_COUNT];

	faults_help_start();
	CUdeviceptr at = faults_help_managed(16 * PAGE);
	faults_help_write(at, 16 * PAGE);
	CHECK(sim_managed().gpu_faults == 16);
	faults_help_check_equal();
	for (int device = 0; device < 2; device++) {
		faults_read(device, seen);
		CHECK(seen[FAULT_GPU] == STATS_NA && seen[FAULT_OUT_BYTES] == STATS_NA);
	}
	return 0;
}

PART_TEST(the_only_device_needs_no_uuid, IN_CHILD(part, "SIM_UVM=strange-uuids"))
{
	faults_help_start();
	CUdeviceptr at = faults_help_managed(16 * PAGE);
	faults_help_write(at, 16 * PAGE);
	CHECK(sim_managed().gpu_faults == 16);
	return faults_help_check_equal();
}

/* ---- processes and threads ---- */

static int is_the_parents(void *argument)
{
	int status;

	faults_help_start();
	CUdeviceptr at = faults_help_managed(8 * PAGE);
	faults_help_write(at, 4 * PAGE);
	int fd = sim_uvm_descriptor();
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(fcntl(fd, F_GETFD) < 0);
		CHECK(faults_help_source_has("none: the child of a process that used CUDA"));
		faults_help_check_none();
		faults_start();
		faults_poll();
		faults_help_check_none();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	faults_help_write(at, 8 * PAGE);
	CHECK(sim_managed().gpu_faults == 8);
	return faults_help_check_equal();
}

TEST(the_child_of_a_fork_lets_go_and_the_parent_goes_on)
{
	IN_CHILD(is_the_parents);
	IN_CHILD(is_the_parents, "SPILLWAY_SET=faults=events,report.summary=no");
}

/* A child that no handler of fork() was told of. */
static int is_cloned(void *argument)
{
	int status;

	faults_help_start();
	faults_help_write(faults_help_managed(8 * PAGE), 4 * PAGE);
	pid_t child = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(child >= 0);
	if (!child) {
		faults_help_check_none();
		faults_poll();
		faults_end();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	return faults_help_check_equal();
}

TEST(a_cloned_child_does_not_touch_pages_it_has_not)
{
	IN_CHILD(is_cloned);
	IN_CHILD(is_cloned, "SPILLWAY_SET=faults=events,report.summary=no");
}

static void *starts_too(void *argument)
{
	CUdeviceptr at;

	CHECK(cuCtxSetCurrent(argument) == CUDA_SUCCESS);
	CHECK(cuMemAllocManaged(&at, PAGE, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
	return NULL;
}

PART_TEST(many_threads_start_it_once, IN_CHILD(part))
{
	pthread_t threads[16];

	faults_help_start();
	CUcontext context = core_current();
	for (int i = 0; i < 16; i++)
		CHECK(!pthread_create(&threads[i], NULL, starts_too, context));
	for (int i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	CHECK(sim_uvm_trackers() == 1);
	faults_help_write(faults_help_managed(8 * PAGE), 8 * PAGE);
	return faults_help_check_equal();
}

/* ---- the version ---- */

TEST(versions_are_found_in_what_the_driver_tells)
{
	static const struct {
		const char *text, *version;
		unsigned major;
	} rows[] = {
	    {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue May 12", "580.159.03", 580},
	    {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release", "560.35.03", 560},
	    {"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  515.43\n", "515.43", 515},
	    {"90.1", "90.1", 90},
	    {"580.159.03.1.2.3.4.5.6.7.8.9.0.1 12.5", "12.5", 12},
	    {"", NULL, 0},
	    {" \n\t ", NULL, 0},
	    {"x580.159.03", NULL, 0},
	    {"580.", NULL, 0},
	    {"580", NULL, 0},
	    {"5.1 99999.1 .580.1", NULL, 0},
	    {"580.159x", NULL, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char version[24] = "";
		unsigned major = 0;

		assert_int_equal(uvm_parse_version(rows[i].text, version, &major), rows[i].version != NULL);
		assert_string_equal(version, rows[i].version ? rows[i].version : "");
		assert_int_equal(major, rows[i].major);
	}
}
