// SPDX-License-Identifier: Apache-2.0
/*
 * Checked launches (shim/submit/check.h): a kernel that uses what its launch does not name is refuted and listed, and the
 * run after that goes through; a kernel that names everything passes. What cannot be checked is counted, and nobody waits
 * for a check. Each run is a process of its own (child.h); the list is in a folder of the test's own.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"
#include "test/test.h"

#include <limits.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define BLOCK (20 * MIB) /* no small one, which would stay where it is (piece.c) */
#define LIST  "checked.list"
#define OTHER "checked.other"

/* Enough for everything: nothing is spilled, and nothing moves but for checks. */
#define SETTINGS(...)                                                                                                  \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=256MiB", "SIM_FILL=0", "SPILLWAY_CHECK=" LIST,                                                 \
	    "SPILLWAY_SET=device.budget=128MiB,host.budget=64MiB,spill.mode=fast,report.summary=no", ##__VA_ARGS__,    \
	    NULL})

/* ---- kernels ---- */

static void names_body(const struct sim_launch *launch, void **args)
{
	++**(uint32_t **)args[0];
}

/* The address has been hidden from the library, as if it were in a table of the kernel's. */
static void hides_body(const struct sim_launch *launch, void **args)
{
	++*(uint32_t *)sim_pointer(~*(CUdeviceptr *)args[0]);
}

static void spins_body(const struct sim_launch *launch, void **args)
{
	UNTIL(__atomic_load_n(*(uint32_t **)args[0], __ATOMIC_ACQUIRE));
}

SIM_MODULE(image, SIM_KERNEL("names", names_body, 8), SIM_KERNEL("hides", hides_body, 8),
	   SIM_KERNEL("spins", spins_body, 8));

static CUfunction function[3];
static CUdeviceptr one, two;

static CUresult launch(unsigned which, CUdeviceptr word, CUstream stream)
{
	void *args[] = {&word};

	return cu.cuLaunchKernel(function[which], 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* ---- the list ---- */

static char list[PATH_MAX]; /* the whole path: programs change their folder */

static void find_list(void)
{
	CHECK(getcwd(list, sizeof(list) - 32));
	strcat(list, "/" LIST);
}

/* Number of lines of this state about the function of this name; in last, unless NULL, the rest of the last one. */
static unsigned lines(char state, const char *name, char last[200])
{
	char line[400], is[64], rest[200], format;
	FILE *file = fopen(list, "r");
	unsigned long hash, mine = 0;
	unsigned n = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "n\t%lx\t%*s\t%63s", &hash, is) == 2 && !strcmp(is, name))
			mine = hash;
		strcpy(rest, "");
		if (sscanf(line, "%c\t%lx%199[^\n]", &format, &hash, rest) < 2 || format != state || hash != mine)
			continue;
		n++;
		if (last)
			strcpy(last, rest);
	}
	if (file)
		fclose(file);
	return n;
}

/* Launches that were not checked for this reason. */
static unsigned left(const char *reason)
{
	FILE *file = fopen(list, "r");
	char line[400];
	unsigned n = 0, one_n;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "+\t%*[^\t]\t%u", &one_n) == 1 && strstr(line, reason))
			n += one_n;
	if (file)
		fclose(file);
	return n;
}

/* Launches are followed when the mover runs. */
static void wait_for_mover(void)
{
	unsigned before = lines('-', "names", NULL); /* of another run */

	for (unsigned ms = 0; ms < 20000 && lines('-', "names", NULL) < before + 3; ms++) {
		MUST(launch(0, one, NULL));
		usleep(1000);
	}
	CHECK(lines('-', "names", NULL) >= before + 3);
	MUST(cu.cuMemsetD32_v2(one, 0, 1));
}

static void begin(void)
{
	driver_start(0);
	for (unsigned i = 0; i < 3; i++)
		function[i] = driver_function(&image, image.kernels[i].name);
	one = child_alloc(BLOCK);
	/* The library has started: what it has read is not read again. */
	CHECK(chdir("/") == 0);
	setenv("SPILLWAY_CHECK", "elsewhere", 1);
	two = child_alloc(BLOCK);
	MUST(cu.cuMemsetD32_v2(one, 0, BLOCK / 4));
	MUST(cu.cuMemsetD32_v2(two, 0, BLOCK / 4));
}

/* Ends the process as programs do: it adds its figures to the list. */
static void end(void)
{
	CHECK(sim_broken_rules() == 0);
	exit(0);
}

CHILD_FRAME(begin, end)

static unsigned run(void (*program)(void), const char *more)
{
	return (unsigned)child_run(SETTINGS(more), program);
}

static void clean(void)
{
	find_list();
	unlink(LIST);
	unlink(OTHER);
}

/* ---- what is refuted ---- */

static void names_all(void)
{
	wait_for_mover();
	for (unsigned i = 0; i < 10; i++)
		MUST(launch(0, two, NULL));
	CHECK(driver_holds(two, 10, 1));
}

TEST(a_kernel_that_names_what_it_uses_passes)
{
	unsigned launches, checked;
	char rest[200] = "";
	struct stat status;

	clean();
	assert_int_equal(run(names_all, NULL), 0);
	assert_int_equal(lines('?', "names", NULL), lines('-', "names", NULL));
	assert_int_equal(lines('!', "names", NULL), 0);
	assert_int_equal(lines('=', "names", rest), 1);
	assert_int_equal(sscanf(rest, "%u %u", &launches, &checked), 2);
	assert_true(launches >= 11);
	assert_int_equal(checked, 3);
	assert_int_equal(stat(LIST, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
}

static void hides(void)
{
	unsigned n = 0;

	wait_for_mover();
	for (; n < 30; n++) {
		CUresult result = launch(1, ~two, NULL);

		result = result ?: cu.cuCtxSynchronize();
		if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
			exit(3);
		MUST(result);
	}
	CHECK(driver_holds(two, n, 1));
}

TEST(a_kernel_that_uses_more_is_refuted_and_the_next_run_goes_through)
{
	clean();
	assert_int_equal(run(hides, NULL), 3);
	assert_int_equal(lines('?', "hides", NULL), 1);
	assert_int_equal(lines('!', "hides", NULL), 1);
	assert_int_equal(lines('-', "hides", NULL), 0);
	assert_int_equal(run(hides, NULL), 0);
	assert_int_equal(lines('?', "hides", NULL), 1);
	assert_int_equal(left("refuted before"), 30);
}

/* ---- what is not checked ---- */

static void plain(void)
{
	for (unsigned i = 0; i < 10; i++)
		MUST(launch(1, ~two, NULL));
	CHECK(driver_holds(two, 10, 1));
	CHECK(!sim_calls("cuMemUnmap"));
}

TEST(without_the_switch_nothing_is_checked)
{
	clean();
	assert_int_equal(run(plain, "SPILLWAY_CHECK="), 0);
	assert_int_equal(access(LIST, F_OK), -1);
}

TEST(a_link_is_not_followed)
{
	clean();
	assert_int_equal(symlink(OTHER, LIST), 0);
	assert_int_equal(run(plain, NULL), 0);
	assert_int_equal(access(OTHER, F_OK), -1);
}

static void captures(void)
{
	CUgraph graph;

	wait_for_mover();
	CUstream stream = child_stream();
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	MUST(launch(1, ~two, stream));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	CUgraphExec exec = driver_instance(graph);
	for (unsigned i = 0; i < 5; i++)
		MUST(cu.cuGraphLaunch(exec, stream));
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(driver_holds(two, 5, 1));
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuStreamDestroy_v2(stream));
}

TEST(captured_launches_and_graphs_are_counted)
{
	clean();
	assert_int_equal(run(captures, NULL), 0);
	assert_int_equal(left("captured"), 1);
	assert_int_equal(left("graphs"), 5);
	assert_int_equal(lines('?', "hides", NULL), 0);
}

static void alone(void)
{
	wait_for_mover();
	MUST(cu.cuMemFree_v2(two));
	MUST(cu.cuMemsetD32_v2(one, 1, 1));
	MUST(launch(2, one, NULL));
	MUST(cu.cuCtxSynchronize());
}

TEST(a_launch_that_names_all_there_is_is_not_checked)
{
	clean();
	assert_int_equal(run(alone, NULL), 0);
	assert_int_equal(lines('n', "spins", NULL), 1);
	assert_int_equal(lines('?', "spins", NULL), 0);
	assert_int_equal(left("does not move"), 1);
}

static _Atomic bool launched;

static void *spin(void *word)
{
	driver_start(0);
	MUST(launch(2, (CUdeviceptr)(uintptr_t)word, NULL));
	atomic_store(&launched, true);
	return NULL;
}

/* Calls `meanwhile` while a kernel is checked that spins until it has returned. */
static void spin_in_a_check(void (*meanwhile)(void))
{
	bool checked = false;
	pthread_t thread;
	uint32_t *word;

	MUST(cu.cuMemHostAlloc((void **)&word, 4, 0));
	/* Again if it is launched without a check, because the gap did not come in time. */
	while (!checked) {
		atomic_store(&launched, false);
		*word = 0;
		CHECK(pthread_create(&thread, NULL, spin, word) == 0);
		while (!checked && !atomic_load(&launched)) {
			usleep(1000);
			checked = lines('?', "spins", NULL);
		}
		if (checked)
			meanwhile();
		__atomic_store_n(word, 1, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		MUST(cu.cuCtxSynchronize());
	}
	MUST(cu.cuMemFreeHost(word));
}

/* The kernel ends only after the pin: who waits for that ends the check. */
static void pin_two(void)
{
	CHECK(spillway_pin((const void *)(uintptr_t)two) == 0);
}

static void pins(void)
{
	wait_for_mover();
	spin_in_a_check(pin_two);
	MUST(launch(0, two, NULL));
	CHECK(driver_holds(two, 1, 1));
}

TEST(nobody_waits_for_a_check_to_pin_memory)
{
	clean();
	assert_int_equal(run(pins, NULL), 0);
	assert_int_equal(left("did not end in time"), 1);
	assert_int_equal(lines('-', "spins", NULL), 1);
}

static CUstream waiting; /* waits for the default stream */

/* The check looks at the default stream, which would end the capture. */
static void capture(void)
{
	CUgraph graph;

	MUST(cu.cuStreamBeginCapture_v2(waiting, CU_STREAM_CAPTURE_MODE_RELAXED));
	usleep(50000);
	MUST(cu.cuStreamEndCapture(waiting, &graph));
	MUST(cu.cuGraphDestroy(graph));
}

static void captures_beside(void)
{
	wait_for_mover();
	MUST(cu.cuStreamCreate(&waiting, CU_STREAM_DEFAULT));
	spin_in_a_check(capture);
	MUST(cu.cuStreamDestroy_v2(waiting));
}

TEST(a_check_does_not_end_a_capture)
{
	clean();
	assert_int_equal(run(captures_beside, NULL), 0);
	assert_int_equal(lines('-', "spins", NULL), 1);
}

static void *hide(void *unused)
{
	driver_start(0);
	MUST(launch(1, ~two, NULL));
	return unused;
}

/* Another device's memory begins to move while the names of the launch are read. */
static void is_late(void)
{
	pthread_t thread;

	wait_for_mover();
	sim_stall_at("cuFuncGetParamInfo", 1);
	CHECK(pthread_create(&thread, NULL, hide, NULL) == 0);
	UNTIL(sim_stalled());
	driver_start(1);
	child_alloc(BLOCK);
	child_alloc(BLOCK);
	sim_go_on();
	pthread_join(thread, NULL);
	driver_start(0);
	CHECK(driver_holds(two, 1, 1));
}

TEST(a_launch_whose_names_may_lack_something_is_not_checked)
{
	/* Again if the gap did not come in time. */
	for (unsigned i = 0; i == 0 || (i < 20 && left("did not come to rest")); i++) {
		clean();
		assert_int_equal(run(is_late, "SIM_DEVICES=2"), 0);
	}
	assert_int_equal(left("may not have been complete"), 1);
	assert_int_equal(lines('-', "hides", NULL), 1);
	assert_int_equal(lines('!', "hides", NULL), 0);
}
