/*
 * Suspended and resumed, by the `spillway` tool as from another terminal, and by the program itself through spillway.h.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

extern char **environ;

#define BUDGETS        "device.budget=32MiB,host.budget=128MiB,report.summary=no"
#define SETTINGS(more) ((const char *const[]){"SIM_MEMORY=128MiB", "SPILLWAY_SET=" BUDGETS more, NULL})

#define N_BLOCKS 12
#define BLOCK    (4 * MIB) /* 48 MiB in all: more than the budget */
#define N_WORDS  (BLOCK / 4)
#define STILL_MS 200   /* a submission that would pass has passed by then */
#define AFTER_MS 20000 /* what has not come back by then hangs */

static CUdeviceptr blocks[N_BLOCKS];

/* ---- the tool ---- */

static void read_all(int fd, char *text, size_t room)
{
	size_t at = 0;
	ssize_t n;

	while (at < room - 1 && (n = read(fd, text + at, room - 1 - at)) > 0)
		at += (size_t)n;
	text[at] = 0;
}

/* Both outputs of `spillway COMMAND [this process]`; its exit status. */
static int tool(const char *command, char ret_text[2048])
{
	char pid[16], *argv[] = {TOOL, (char *)command, strcmp(command, "list") ? pid : NULL, NULL}, *no_preload[256];
	posix_spawn_file_actions_t actions;
	int ends[2], status, n = 0;
	pid_t child;

	for (int i = 0; environ[i] && n < 255; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			no_preload[n++] = environ[i];
	no_preload[n] = NULL;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	CHECK(pipe(ends) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	CHECK(posix_spawn(&child, TOOL, &actions, NULL, argv, no_preload) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	read_all(ends[0], ret_text, 2048);
	close(ends[0]);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool tool_says(const char *command, int status, const char *words)
{
	char text[2048];
	int got = tool(command, text);

	if (got == status && strstr(text, words))
		return true;
	printf("%s: status %d, not %d, and \"%s\" is not in: %s\n", command, got, status, words, text);
	return false;
}

/* In what state does `spillway list` show this process? Others may be there too. */
static bool listed_as(const char *state)
{
	char text[2048], line[64];
	int got = tool("list", text);

	snprintf(line, sizeof(line), "%7d  %-9s  ", (int)getpid(), state);
	if (got == 0 && strstr(text, line))
		return true;
	printf("list: status %d, and \"%s\" is not in: %s\n", got, line, text);
	return false;
}

/* ---- the job ---- */

static void allocate_job(void)
{
	for (unsigned i = 0; i < N_BLOCKS; i++) {
		blocks[i] = child_alloc(BLOCK);
		MUST(driver_fill(NULL, blocks[i], 0x1000 + i, N_WORDS));
	}
	MUST(cu.cuCtxSynchronize());
}

static void start_job(void)
{
	driver_start(0);
	allocate_job();
}

static void check_job(unsigned base)
{
	MUST(cu.cuCtxSynchronize());
	for (unsigned i = 0; i < N_BLOCKS; i++)
		CHECK(driver_holds(blocks[i], base + i, N_WORDS));
	CHECK(sim_broken_rules() == 0);
}

/* A thread that goes round all blocks once; *done when every call has returned. */
struct worker {
	pthread_t thread;
	CUcontext context;
	unsigned base;
	_Atomic bool begun, done;
};

static void *work(void *argument)
{
	struct worker *worker = argument;

	MUST(cu.cuCtxSetCurrent(worker->context));
	worker->begun = true;
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(driver_fill(NULL, blocks[i], worker->base + i, N_WORDS));
	worker->done = true;
	return NULL;
}

static void begin(struct worker *worker, unsigned base)
{
	worker->base = base;
	worker->begun = worker->done = false;
	MUST(cu.cuCtxGetCurrent(&worker->context));
	CHECK(pthread_create(&worker->thread, NULL, work, worker) == 0);
	while (!worker->begun)
		usleep(1000);
}

static void end(struct worker *worker)
{
	for (int ms = 0; !worker->done && ms < AFTER_MS; ms++)
		usleep(1000);
	CHECK(worker->done);
	CHECK(pthread_join(worker->thread, NULL) == 0);
}

static int is_suspended_by_the_tool(void)
{
	struct worker worker;
	size_t without;

	driver_start(0);
	without = sim_live().device_bytes;
	start_job();
	CHECK(sim_live().device_bytes > without);
	for (unsigned round = 0; round < 3; round++) {
		CHECK(listed_as("running"));
		CHECK(tool_says("suspend", 0, "suspended"));
		CHECK(sim_live().device_bytes == without);
		CHECK(listed_as("suspended"));
		begin(&worker, 0x2000 + 0x100 * round);
		usleep(STILL_MS * 1000);
		CHECK(!worker.done && sim_live().device_bytes == without);
		CHECK(tool_says("suspend", 0, "suspended"));
		CHECK(tool_says("resume", 0, "resumed"));
		end(&worker);
		check_job(0x2000 + 0x100 * round);
	}
	CHECK(tool_says("resume", 0, "resumed"));
	return 0;
}

/* Submissions on their way when the request comes are either done before it or wait. */
static int is_suspended_in_the_middle(void)
{
	struct worker worker;

	start_job();
	for (unsigned round = 0; round < 20; round++) {
		begin(&worker, 0x3000 + 0x100 * round);
		CHECK(tool_says("suspend", 0, "suspended"));
		CHECK(tool_says("resume", 0, "resumed"));
		end(&worker);
		check_job(0x3000 + 0x100 * round);
	}
	return 0;
}

static int is_suspended_by_itself(void)
{
	__typeof__(&spillway_suspend) found = (__typeof__(found))dlsym(RTLD_DEFAULT, "spillway_suspend");
	struct worker worker;

	CHECK(found && found == spillway_suspend && spillway_resume && spillway_version && spillway_version()[0]);
	errno = 77;
	CHECK(spillway_suspend() == -ENOTSUP && spillway_resume() == -ENOTSUP && errno == 77);
	start_job();
	errno = 77; /* the driver may have changed it when it was started */
	CHECK(spillway_suspend() == 0 && spillway_suspend() == 0 && errno == 77);
	CHECK(listed_as("suspended"));
	begin(&worker, 0x4000);
	usleep(STILL_MS * 1000);
	CHECK(!worker.done && spillway_resume() == 0 && spillway_resume() == 0 && errno == 77);
	end(&worker);
	check_job(0x4000);
	CHECK(listed_as("running"));
	return 0;
}

static void a_suspended_job_gives_its_memory_back_and_goes_on_where_it_was(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_suspended_by_the_tool), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), is_suspended_by_the_tool), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_suspended_in_the_middle), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), is_suspended_in_the_middle), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_suspended_by_itself), 0);
}

/* Threads that do not submit go on, and may allocate: the GPU stays somebody else's. */
static int allocates_while_suspended(void)
{
	struct worker worker;
	CUdeviceptr more, small;

	start_job();
	CHECK(spillway_suspend() == 0 && sim_live().device_bytes == 0);
	more = child_alloc(16 * MIB);
	small = child_alloc(1000);
	CHECK(sim_where(more) == 'H' && sim_where(small) == 'H' && sim_live().device_bytes == 0);
	MUST(cu.cuMemFree_v2(more));
	more = child_alloc(16 * MIB);
	CHECK(sim_where(more) == 'H' && sim_live().device_bytes == 0);
	CHECK(spillway_resume() == 0);
	MUST(driver_fill(NULL, more, 0x77, 4 * MIB));
	begin(&worker, 0x6000);
	end(&worker);
	check_job(0x6000);
	CHECK(driver_holds(more, 0x77, 4 * MIB));
	MUST(cu.cuMemFree_v2(more));
	MUST(cu.cuMemFree_v2(small));
	more = child_alloc(4 * MIB);
	CHECK(sim_where(more) == 'D');
	return 0;
}

static void what_is_made_while_suspended_begins_on_the_host(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), allocates_while_suspended), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), allocates_while_suspended), 0);
}

/* ---- refused, and nothing changes ---- */

static int cannot_be_suspended(void)
{
	struct worker worker;
	size_t before;

	start_job();
	before = sim_live().device_bytes;
	CHECK(tool_says("suspend", 1, getenv("WHY")) && sim_live().device_bytes == before);
	CHECK(listed_as("running"));
	begin(&worker, 0x5000);
	end(&worker);
	check_job(0x5000);
	return 0;
}

static int is_in_a_capture(void)
{
	CUstream stream;
	CUgraph graph;

	start_job();
	MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(tool_says("suspend", 1, "no safe point"));
	MUST(driver_fill(stream, blocks[0], 1, 1));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cu.cuGraphDestroy(graph));
	check_job(0x1000);
	CHECK(tool_says("suspend", 0, "suspended") && tool_says("resume", 0, "resumed"));
	check_job(0x1000);
	return 0;
}

static int has_a_driver_that_does_not_copy(void)
{
	start_job();
	sim_fail_then("cuMemcpyDtoDAsync_v2", 1, CUDA_ERROR_UNKNOWN, "cuMemcpyDtoDAsync_v2", 1);
	CHECK(spillway_suspend() == -EIO);
	CHECK(!sim_fail_pending() && listed_as("running"));
	check_job(0x1000);
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	check_job(0x1000);
	return 0;
}

static int has_a_system_that_pins_no_more(void)
{
	start_job();
	sim_switch("HOST_MEMORY", sim_live().host_bytes);
	CHECK(tool_says("suspend", 1, "no more memory to pin"));
	CHECK(spillway_suspend() == -ENOMEM);
	sim_switch("HOST_MEMORY", 512 * MIB);
	check_job(0x1000);
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	check_job(0x1000);
	return 0;
}

/* All calls of that entry point from now on, so many times; 0: no more of them. */
static void refuse(const char *name, unsigned times)
{
	CUdevice device;

	sim_fail_then("cuDeviceGet", 1, CUDA_ERROR_UNKNOWN, name, times);
	CHECK(cu.cuDeviceGet(&device, 0) == CUDA_ERROR_UNKNOWN);
}

#define FOR_EVER 1000000

static int has_a_driver_that_lets_nothing_go(const char *call)
{
	start_job();
	/* What is measured with the first piece that moves is not meant. */
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(blocks[i]));
	allocate_job();
	refuse(call, FOR_EVER);
	CHECK(spillway_suspend() == -EIO && sim_live().device_bytes > 0);
	CHECK(tool_says("suspend", 1, "the driver failed"));
	refuse(call, 0);
	CHECK(listed_as("running"));
	check_job(0x1000);
	CHECK(spillway_suspend() == 0 && sim_live().device_bytes == 0 && spillway_resume() == 0);
	check_job(0x1000);
	return 0;
}

/* The copy is made, but the address goes on leading to the device. */
static int has_a_driver_that_does_not_unmap(void)
{
	return has_a_driver_that_lets_nothing_go("cuMemUnmap");
}

/* Everything is on the host, but what it leaves is not free for others. */
static int has_a_driver_that_does_not_release(void)
{
	return has_a_driver_that_lets_nothing_go("cuMemRelease");
}

/* What is free and still mapped. */
static int has_a_driver_that_keeps_what_is_free(void)
{
	CUdeviceptr block;

	driver_start(0);
	block = child_alloc(24 * MIB);
	MUST(cu.cuMemFree_v2(block));
	CHECK(sim_live().device_bytes == 24 * MIB);
	refuse("cuMemUnmap", FOR_EVER);
	CHECK(spillway_suspend() == -EIO && sim_live().device_bytes == 24 * MIB);
	refuse("cuMemUnmap", 0);
	CHECK(tool_says("suspend", 0, "24.0 MiB of device memory given back") && sim_live().device_bytes == 0);
	CHECK(spillway_resume() == 0);
	return 0;
}

static void what_cannot_be_suspended_says_why_and_goes_on(void **state)
{
	(void)state;
	setenv("WHY", "spill.mode", 1);
	assert_int_equal(child_run(SETTINGS(",spill.mode=static"), cannot_be_suspended), 0);
	setenv("WHY", "host.budget", 1);
	assert_int_equal(child_run(((const char *const[]){"SIM_MEMORY=128MiB",
							  "SPILLWAY_SET=device.budget=32MiB,host.budget=20MiB,"
							  "report.summary=no,spill.mode=exact",
							  NULL}),
				   cannot_be_suspended),
			 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), is_in_a_capture), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_driver_that_does_not_copy), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_driver_that_does_not_unmap), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), has_a_driver_that_does_not_unmap), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_driver_that_does_not_release), 0);
	assert_int_equal(
	    child_run(SETTINGS(",spill.mode=exact,heap.release_threshold=32MiB"), has_a_driver_that_keeps_what_is_free),
	    0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_a_system_that_pins_no_more), 0);
}

/* ---- other devices ---- */

/* 48 MiB: 32 on the device, 10 on the peer, the rest on the host. */
static int lies_on_a_peer(void)
{
	struct worker worker = {0};

	start_job();
	CHECK(sim_live().device_bytes >= 40 * MIB);
	CHECK(tool_says("suspend", 0, "suspended") && sim_live().device_bytes == 0);
	CHECK(tool_says("resume", 0, "resumed"));
	begin(&worker, 0x5000);
	end(&worker);
	check_job(0x5000);
	return 0;
}

/* What the program makes for itself has all of the device's budget: nothing comes in, on the way to the host either. */
static int lies_on_a_peer_alone(void)
{
	static const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle own;

	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(2 * MIB)));
	MUST(cu.cuMemCreate(&own, 32 * MIB, &here, 0));
	start_job();
	CHECK(tool_says("suspend", 0, "suspended") && sim_live().device_bytes == 32 * MIB);
	CHECK(tool_says("resume", 0, "resumed"));
	check_job(0x1000);
	return 0;
}

/* What is striped stays: that is what its rule says. */
static int is_striped(void)
{
	driver_start(0);
	CUdeviceptr striped = child_alloc(24 * MIB);
	MUST(driver_fill(NULL, striped, 7, 6 * MIB));
	start_job();
	CHECK(tool_says("suspend", 0, "suspended") && sim_live().device_bytes == 24 * MIB);
	CHECK(tool_says("resume", 0, "resumed"));
	check_job(0x1000);
	CHECK(driver_holds(striped, 7, 6 * MIB));
	return 0;
}

static void what_a_peer_lends_is_given_back_too(void **state)
{
	static const char *const sets[] = {
	    "SPILLWAY_SET=" BUDGETS ",spill.peers=1,spill.peer_budget=10MiB,spill.mode=exact",
	    "SPILLWAY_SET=" BUDGETS ",spill.peers=1,spill.peer_budget=10MiB,spill.mode=fast"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const char *const settings[] = {"SIM_MEMORY=128MiB", "SIM_DEVICES=2", sets[i], NULL};

		assert_int_equal(child_run(settings, lies_on_a_peer), 0);
		assert_int_equal(child_run(settings, lies_on_a_peer_alone), 0);
	}
	assert_int_equal(
	    child_run(((const char *const[]){"SIM_MEMORY=128MiB", "SIM_DEVICES=4", "SPILLWAY_POLICY=" LEND_POLICY,
					     "SPILLWAY_SET=" BUDGETS, NULL}),
		      is_striped),
	    0);
}

/* ---- who has a socket ---- */

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

static int has_not_used_memory(void)
{
	driver_start(0);
	CHECK(n_threads() == 0);
	CHECK(tool_says("suspend", 1, "has not used GPU memory"));
	CUdeviceptr block = child_alloc(BLOCK);
	CHECK(listed_as("running") && n_threads() == 1);
	MUST(cu.cuMemFree_v2(block));
	return 0;
}

static int may_not_be_reached(void)
{
	start_job();
	CHECK(n_threads() == 0);
	CHECK(tool_says("suspend", 1, "control: no"));
	return 0;
}

static int forks_while_suspended(void)
{
	char text[2048];

	start_job();
	CHECK(tool_says("suspend", 0, "suspended"));
	pid_t pid = fork();
	if (!pid) {
		int status = tool("suspend", text);

		_exit(status == 1 && n_threads() == 0 && spillway_suspend() == -ENOTSUP ? 0 : 1);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(tool_says("resume", 0, "resumed"));
	check_job(0x1000);
	return 0;
}

static int exits(void)
{
	start_job();
	CHECK(listed_as("running"));
	exit(0);
}

static void a_process_that_exits_leaves_nothing(void **state)
{
	char path[PATH_MAX];

	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), exits), 0);
	snprintf(path, sizeof(path), "%s/spillway", getenv("XDG_RUNTIME_DIR"));
	assert_int_not_equal(access(path, F_OK), 0);
}

static void a_process_is_reached_from_its_first_allocation_on_if_its_policy_says_so(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), has_not_used_memory), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact,control=no"), may_not_be_reached), 0);
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), forks_while_suspended), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_process_that_exits_leaves_nothing), /* first: other children end by _exit() */
	    cmocka_unit_test(a_suspended_job_gives_its_memory_back_and_goes_on_where_it_was),
	    cmocka_unit_test(what_is_made_while_suspended_begins_on_the_host),
	    cmocka_unit_test(what_cannot_be_suspended_says_why_and_goes_on),
	    cmocka_unit_test(what_a_peer_lends_is_given_back_too),
	    cmocka_unit_test(a_process_is_reached_from_its_first_allocation_on_if_its_policy_says_so),
	};
	/* Children end by _exit() and leave their sockets: in a folder of this test's own. */
	char folder[] = "/tmp/suspend_test.XXXXXX", command[64];

	if (!mkdtemp(folder))
		return 1;
	setenv("XDG_RUNTIME_DIR", folder, 1);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command) || failed;
}
