// SPDX-License-Identifier: Apache-2.0
/*
 * faults_test.c: programs with managed memory under the whole library: the pages that the driver's counters are in say
 * what the model has counted, whichever way the memory was asked for; and programs without leave the device alone.
 */
#include "test/preload/child.h"
#include "test/test.h"
#include "tools/trace/trace_read.h"

#include <dirent.h>

CHILD_FRAME(child_start, NULL)

#define SETTINGS(...) ((const char *const[]){"SIM_MEMORY=16MiB", ##__VA_ARGS__, NULL})
#define BYTES         (24 * MIB)

static void is_equal(void)
{
	struct sim_managed model = sim_managed();

	CHECK(model.gpu_faults && model.evictions && model.bytes_out);
	CHECK(sim_uvm_slot(0) == model.bytes_in && sim_uvm_slot(1) == model.bytes_out);
	CHECK(sim_uvm_slot(2) == model.cpu_faults && sim_uvm_slot(9) == model.gpu_faults);
}

static void use(CUdeviceptr at)
{
	void *pinned;

	MUST(cu.cuMemHostAlloc(&pinned, MIB, 0));
	for (int i = 0; i < 3; i++)
		MUST(driver_fill(NULL, at, 7, BYTES / 4));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemcpyHtoD_v2((CUdeviceptr)pinned, (void *)(at + BYTES - MIB), MIB));
	MUST(cu.cuMemFreeHost(pinned));
}

static unsigned n_threads_of_ours(void)
{
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned n = 0;

	while ((entry = readdir(folder))) {
		char path[300], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		int fd = open(path, O_RDONLY);
		n += fd >= 0 && read(fd, name, sizeof(name) - 1) > 0 && !strcmp(name, "spillway-faults\n");
		if (fd >= 0)
			close(fd);
	}
	closedir(folder);
	return n;
}

PART_TEST(managed_memory_of_the_program_is_counted, child_passes(SETTINGS(), part);
	  child_passes(SETTINGS("SIM_DRIVER=560.35.03"), part);
	  child_passes(SETTINGS("SPILLWAY_SET=faults=events", "EVENTS=1"), part);
	  child_passes(SETTINGS("SPILLWAY_POLICY=passthrough"), part))
{
	CHECK(sim_uvm_opened() == 0);
	CUdeviceptr at = driver_managed(BYTES);
	use(at);
	is_equal();
	CHECK(sim_managed().cpu_faults > 0);
	MUST(cu.cuMemFree_v2(at));
	CHECK(sim_uvm_trackers() == (getenv("EVENTS") ? 2 : 1));
	while (getenv("EVENTS") && n_threads_of_ours() != 1) /* it gives itself its name */
		usleep(1000);
	CHECK(n_threads_of_ours() == (getenv("EVENTS") ? 1 : 0));
}

PART_TEST(device_memory_that_the_policy_makes_managed_is_counted,
	  child_passes(SETTINGS("SPILLWAY_POLICY=managed"), part);
	  child_passes(SETTINGS("SPILLWAY_POLICY=managed", "SPILLWAY_SET=faults=events"), part))
{
	CUdeviceptr at = child_alloc(BYTES);
	use(at);
	is_equal();
}

/* ---- in a trace ---- */

struct seen {
	uint64_t gpu, cpu;          /* single faults */
	uint64_t last_gpu, last_in; /* the last figures of all */
	uint64_t n_elsewhere;       /* faults at addresses that no block has */
	uint64_t used, touched;     /* managed memory */
};

static struct seen look(CUdeviceptr at)
{
	struct seen seen = {0};
	struct trace trace;

	if (trace_read_file(getenv("SPILLWAY_TRACE"), &trace) == 0)
		for (size_t i = 0; i < trace.n_rows; i++) {
			const struct trace_event *event = &trace.rows[i].event;

			if (event->kind == TRACE_fault && event->fault.kind <= TRACE_FAULT_OF_CPU) {
				*(event->fault.kind ? &seen.cpu : &seen.gpu) += 1;
				seen.n_elsewhere += event->fault.address - at >= BYTES;
			}
			if (event->kind == TRACE_managed)
				*(event->managed.touched ? &seen.touched : &seen.used) += 1;
			if (event->kind == TRACE_faults) {
				seen.last_gpu = event->faults.gpu;
				seen.last_in = event->faults.bytes_in;
			}
		}
	trace_free(&trace);
	return seen;
}

/* What the model has counted is in the trace after a while, as single faults and as figures. */
static void is_traced(void)
{
	struct seen seen = {0};

	CUdeviceptr at = driver_managed(BYTES);
	use(at);
	struct sim_managed model = sim_managed();
	for (unsigned i = 0; i < 2000 && (seen.gpu < model.gpu_faults || seen.last_gpu < model.gpu_faults); i++) {
		usleep(10000);
		seen = look(at);
	}
	CHECK(seen.gpu == model.gpu_faults && seen.cpu == model.cpu_faults && !seen.n_elsewhere);
	CHECK(seen.last_gpu == model.gpu_faults && seen.last_in == model.bytes_in);
	/* The CPU's faults, each with a migration where the page was not evicted before. */
	CHECK(seen.used == 1 && seen.touched >= model.cpu_faults);
}

TEST(faults_are_in_a_trace)
{
	char folder[] = "/tmp/faults_test.XXXXXX", path[64], setting[96];

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t", folder);
	snprintf(setting, sizeof(setting), "SPILLWAY_TRACE=%s", path);
	int status = child_run(SETTINGS("SPILLWAY_SET=faults=events", setting), is_traced);
	unlink(path);
	rmdir(folder);
	assert_int_equal(status, 0);
}

PART_TEST(without_managed_memory_or_switched_off_nothing_is_opened, child_passes(SETTINGS(), part);
	  child_passes(SETTINGS("SPILLWAY_SET=faults=events"), part);
	  child_passes(SETTINGS("MANAGED=1", "SPILLWAY_SET=faults=off"), part);
	  child_passes(SETTINGS("MANAGED=1", "SPILLWAY=0"), part))
{
	CUdeviceptr at = getenv("MANAGED") ? driver_managed(BYTES) : child_alloc(MIB);
	MUST(driver_fill(NULL, at, 7, MIB / 4));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(at));
	CHECK(sim_uvm_opened() == 0 && n_threads_of_ours() == 0);
}

static void works_without(void)
{
	use(driver_managed(BYTES));
	CHECK(sim_uvm_opened() > 0 && sim_uvm_trackers() == 0);
}

TEST(a_program_does_not_notice_that_there_is_no_source)
{
	static const char *const wrong[] = {"SIM_UVM=missing", "SIM_UVM=denied", "SIM_UVM=refused",
					    "SIM_UVM=unknown", "SIM_UVM=silent", "SIM_UVM=overwrites",
					    "SIM_UVM=no-file"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		child_passes(SETTINGS(wrong[i]), works_without);
}

/* Descriptors of this process that another one would get. */
PART_TEST(neither_a_fork_nor_what_it_executes_has_our_descriptors, child_passes(SETTINGS(), part);
	  child_passes(SETTINGS("SPILLWAY_SET=faults=events"), part))
{
	int status;

	CUdeviceptr at = driver_managed(BYTES);
	use(at);
	int fd = sim_uvm_descriptor();
	CHECK(fd >= 0 && fcntl(fd, F_GETFD) & FD_CLOEXEC);
	pid_t child = fork();
	if (!child)
		_exit(fcntl(fd, F_GETFD) < 0 ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && !status);
	use(at);
	is_equal();
}
