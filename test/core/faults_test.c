/*
 * faults_test.c: page faults as the driver counts them: equal to what the model counts, for every layout of the driver's
 * parameters; and in every way in which it cannot be, a reason instead of a number.
 */
#include "test/core/faults_help.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/faults_uvm.h"

#define IN_CHILD(run, ...)                                                                                             \
	assert_int_equal(                                                                                              \
	    core_in_child((const char *const[]){"SPILLWAY_SET=report.summary=no", ##__VA_ARGS__, NULL}, run, NULL), 0)

/* ---- equal ---- */

static int counts_every_way_to_move(void *argument)
{
	(void)argument;
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

static void what_is_read_is_what_the_model_counts(void **state)
{
	(void)state;
	IN_CHILD(counts_every_way_to_move);
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

static void a_random_mix_is_counted(void **state)
{
	static const char *const drivers[] = {"SIM_DRIVER=515.105.01", "SIM_DRIVER=550.127.05", "SIM_DRIVER=555.42.02",
					      "SIM_DRIVER=560.35.03",  "SIM_DRIVER=565.57.01",  "SIM_DRIVER=580.159.03",
					      "SIM_DRIVER=610.10"};
	struct seed seed = seed_start("faults_test");

	(void)state;
	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
		const char *const settings[] = {"SPILLWAY_SET=report.summary=no", drivers[i], NULL};

		if (core_in_child(settings, counts_a_mix, &seed))
			fail_msg("%s", drivers[i]);
	}
}

static int counts_in_our_home(void *argument)
{
	CUdeviceptr at;

	(void)argument;
	faults_help_start();
	CHECK(sim_uvm_opened() == 0);
	CHECK(cuMemAlloc_v2(&at, 32 * PAGE) == CUDA_SUCCESS);
	CHECK(sim_uvm_trackers() == 1);
	faults_help_write(at, 32 * PAGE);
	CHECK(sim_managed().gpu_faults > 0);
	faults_help_check_equal();
	return 0;
}

static void memory_that_the_policy_makes_managed_is_counted(void **state)
{
	(void)state;
	IN_CHILD(counts_in_our_home, "SPILLWAY_SET=default=managed,report.summary=no");
}

static int starts_with_pages(void *argument)
{
	CUdeviceptr at;

	(void)argument;
	faults_help_start();
	CHECK(cuMemAlloc_v2(&at, 4 * PAGE) == CUDA_SUCCESS);
	CHECK(sim_uvm_trackers() == (sim_uvm_opened() ? 1 : 0));
	return sim_uvm_opened() ? 0 : 3;
}

static void system_memory_is_counted_where_the_device_faults_on_it(void **state)
{
	static const char *const reaches[] = {"SPILLWAY_SET=default=system,report.summary=no", "SIM_PAGEABLE=1", NULL};
	static const char *const registers[] = {"SPILLWAY_SET=default=system,report.summary=no,host.budget=64MiB",
						NULL};

	(void)state;
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

static int counts_by_device(void *argument)
{
	uint64_t seen[FAULTS_NUMBERS];

	(void)argument;
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
		CHECK(seen[FAULTS_GPU] == model.gpu_faults);
		CHECK(seen[FAULTS_BYTES_IN] == model.bytes_in && seen[FAULTS_BYTES_OUT] == model.bytes_out);
		CHECK(seen[FAULTS_CPU] == FAULTS_NA);
	}
	faults_read(2, seen);
	CHECK(seen[FAULTS_GPU] == FAULTS_NA && seen[FAULTS_BYTES_IN] == FAULTS_NA);
	CHECK(sim_uvm_trackers() == 3);
	return 0;
}

static void several_devices_are_counted_each(void **state)
{
	(void)state;
	IN_CHILD(counts_by_device, "SIM_DEVICES=2");
}

static int does_not_know_devices(void *argument)
{
	uint64_t seen[FAULTS_NUMBERS];

	(void)argument;
	faults_help_start();
	CUdeviceptr at = faults_help_managed(16 * PAGE);
	faults_help_write(at, 16 * PAGE);
	CHECK(sim_managed().gpu_faults == 16);
	faults_help_check_equal();
	for (int device = 0; device < 2; device++) {
		faults_read(device, seen);
		CHECK(seen[FAULTS_GPU] == FAULTS_NA && seen[FAULTS_BYTES_OUT] == FAULTS_NA);
	}
	return 0;
}

static void devices_that_the_driver_calls_otherwise_are_not_measured(void **state)
{
	(void)state;
	IN_CHILD(does_not_know_devices, "SIM_DEVICES=2", "SIM_UVM=strange-uuids");
}

static int counts_the_only_one(void *argument)
{
	(void)argument;
	faults_help_start();
	CUdeviceptr at = faults_help_managed(16 * PAGE);
	faults_help_write(at, 16 * PAGE);
	CHECK(sim_managed().gpu_faults == 16);
	faults_help_check_equal();
	return 0;
}

static void the_only_device_needs_no_uuid(void **state)
{
	(void)state;
	IN_CHILD(counts_the_only_one, "SIM_UVM=strange-uuids");
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
	struct faults_tally tally;
	CHECK(!faults_of_rule(-1, &tally) && faults_dropped() == FAULTS_NA);
	/* Tried once. */
	unsigned opened = sim_uvm_opened();
	faults_help_managed(PAGE);
	CHECK(sim_uvm_opened() == opened);
	return 0;
}

static void without_a_source_there_is_a_reason(void **state)
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

	(void)state;
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

static void a_read_only_device_or_a_hidden_version_is_no_obstacle(void **state)
{
	(void)state;
	IN_CHILD(counts_the_only_one, "SIM_UVM=readonly");
	IN_CHILD(counts_the_only_one, "SIM_UVM=no-version");
	IN_CHILD(counts_the_only_one, "SIM_DRIVER=not.a.version");
}

static int opens_nothing(void *argument)
{
	CUdeviceptr at;

	(void)argument;
	faults_help_start();
	CHECK(faults_help_source_has("none: no managed or system memory has been allocated"));
	CHECK(faults_major() == FAULTS_NA);
	CHECK(cuMemAlloc_v2(&at, 4 * PAGE) == CUDA_SUCCESS);
	faults_help_write(at, 4 * PAGE);
	CHECK(cuMemFree_v2(at) == CUDA_SUCCESS);
	/* The driver refuses: no memory, no counting. */
	CHECK(cuMemAllocManaged(&at, 0, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS);
	faults_poll();
	CHECK(sim_uvm_opened() == 0);
	faults_help_check_none();
	return 0;
}

static void a_process_without_managed_memory_opens_nothing(void **state)
{
	(void)state;
	IN_CHILD(opens_nothing);
	IN_CHILD(opens_nothing, "SPILLWAY_SET=report.summary=no,faults=events");
}

static int is_off(void *argument)
{
	(void)argument;
	faults_help_start();
	faults_help_write(faults_help_managed(4 * PAGE), 4 * PAGE);
	CHECK(sim_uvm_opened() == 0);
	CHECK(faults_help_source_has("none: the policy says faults: off"));
	faults_help_check_none();
	return 0;
}

static void off_is_off(void **state)
{
	(void)state;
	IN_CHILD(is_off, "SPILLWAY_SET=faults=off,report.summary=no");
}

static int has_no_cupti(void *argument)
{
	(void)argument;
	faults_help_start();
	faults_help_write(faults_help_managed(4 * PAGE), 4 * PAGE);
	CHECK(faults_help_source_has("the driver's counters"));
	CHECK(faults_help_source_has("; CUPTI is not available: it is not loaded in this process"));
	faults_help_check_equal();
	return 0;
}

static int leaves_cupti_alone(void *argument)
{
	(void)argument;
	CHECK(dlopen(FAKE_CUPTI, RTLD_LAZY));
	faults_help_start();
	faults_help_write(faults_help_managed(4 * PAGE), 4 * PAGE);
	CHECK(faults_help_source_has(
	    "; CUPTI is not available: it is loaded, and its one subscription is left to profilers"));
	faults_help_check_equal();
	return 0;
}

static void cupti_gives_way_to_the_counters_and_says_so(void **state)
{
	(void)state;
	IN_CHILD(leaves_cupti_alone, "SPILLWAY_SET=faults=cupti,report.summary=no");
	IN_CHILD(has_no_cupti, "SPILLWAY_SET=faults=cupti,report.summary=no");
}

/* ---- what was good and is not any more ---- */

static int is_written_over(void *argument)
{
	(void)argument;
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

static void counters_that_were_written_over_are_not_believed(void **state)
{
	(void)state;
	IN_CHILD(is_written_over);
	IN_CHILD(is_written_over, "SIM_DEVICES=2");
}

static int loses_its_descriptor(void *argument)
{
	(void)argument;
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

static void a_descriptor_that_the_program_closed_is_missed_and_left_alone(void **state)
{
	(void)state;
	IN_CHILD(loses_its_descriptor);
}

/* ---- processes and threads ---- */

static int is_the_parents(void *argument)
{
	int status;

	(void)argument;
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
	faults_help_check_equal();
	return 0;
}

static void the_child_of_a_fork_lets_go_and_the_parent_goes_on(void **state)
{
	(void)state;
	IN_CHILD(is_the_parents);
	IN_CHILD(is_the_parents, "SPILLWAY_SET=faults=events,report.summary=no");
}

/* A child that no handler of fork() was told of. */
static int is_cloned(void *argument)
{
	struct faults_tally tally;
	int status;

	(void)argument;
	faults_help_start();
	faults_help_write(faults_help_managed(8 * PAGE), 4 * PAGE);
	pid_t child = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(child >= 0);
	if (!child) {
		faults_help_check_none();
		faults_poll();
		CHECK(!faults_of_rule(-1, &tally) && faults_dropped() == FAULTS_NA);
		faults_end();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	faults_help_check_equal();
	return 0;
}

static void a_cloned_child_does_not_touch_pages_it_has_not(void **state)
{
	(void)state;
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

static int starts_on_many_threads(void *argument)
{
	pthread_t threads[16];
	CUcontext context;

	(void)argument;
	faults_help_start();
	CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
	for (int i = 0; i < 16; i++)
		CHECK(!pthread_create(&threads[i], NULL, starts_too, context));
	for (int i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	CHECK(sim_uvm_trackers() == 1);
	faults_help_write(faults_help_managed(8 * PAGE), 8 * PAGE);
	faults_help_check_equal();
	return 0;
}

static void many_threads_start_it_once(void **state)
{
	(void)state;
	IN_CHILD(starts_on_many_threads);
}

/* ---- the version ---- */

static void versions_are_found_in_what_the_driver_tells(void **state)
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

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char version[24] = "";
		unsigned major = 0;

		assert_int_equal(uvm_parse_version(rows[i].text, version, &major), rows[i].version != NULL);
		assert_string_equal(version, rows[i].version ? rows[i].version : "");
		assert_int_equal(major, rows[i].major);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_read_is_what_the_model_counts),
	    cmocka_unit_test(a_random_mix_is_counted),
	    cmocka_unit_test(memory_that_the_policy_makes_managed_is_counted),
	    cmocka_unit_test(system_memory_is_counted_where_the_device_faults_on_it),
	    cmocka_unit_test(several_devices_are_counted_each),
	    cmocka_unit_test(devices_that_the_driver_calls_otherwise_are_not_measured),
	    cmocka_unit_test(the_only_device_needs_no_uuid),
	    cmocka_unit_test(without_a_source_there_is_a_reason),
	    cmocka_unit_test(a_read_only_device_or_a_hidden_version_is_no_obstacle),
	    cmocka_unit_test(a_process_without_managed_memory_opens_nothing),
	    cmocka_unit_test(off_is_off),
	    cmocka_unit_test(cupti_gives_way_to_the_counters_and_says_so),
	    cmocka_unit_test(counters_that_were_written_over_are_not_believed),
	    cmocka_unit_test(a_descriptor_that_the_program_closed_is_missed_and_left_alone),
	    cmocka_unit_test(the_child_of_a_fork_lets_go_and_the_parent_goes_on),
	    cmocka_unit_test(a_cloned_child_does_not_touch_pages_it_has_not),
	    cmocka_unit_test(many_threads_start_it_once),
	    cmocka_unit_test(versions_are_found_in_what_the_driver_tells),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
