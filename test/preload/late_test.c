// SPDX-License-Identifier: Apache-2.0
/*
 * The last things a program does: it frees when the library has ended already, and it writes where nobody reads.
 */
#include "test/preload/child.h"
#include "test/test.h"

#include <sys/stat.h>

#define LOUD ((const char *const[]){"SIM_MEMORY=128MiB", "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB", NULL})

/* ---- frees ---- */

extern CUdeviceptr late_block[4]; /* late.c frees them */

PART_TEST(a_free_after_our_end_succeeds, assert_int_equal(child_run(LOUD, part), 7))
{
	driver_start(0);
	for (int i = 0; i < 4; i++)
		late_block[i] = child_alloc(i % 2 ? 12 * MIB : 4096);
	exit(7);
}

/* ---- a stderr that nobody reads ---- */

/* Run that part of main() as a program of its own, whose standard error nobody reads from the start. */
static void run_unread(const char *part)
{
	int ends[2];

	CHECK(!pipe(ends));
	close(ends[0]);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	execl("/proc/self/exe", "late_test", part, NULL);
	_exit(1);
}

/* Says that spilling begins, that memory is out, and the summary. */
static void talks_to_nobody(void)
{
	CUdeviceptr none;

	driver_start(0);
	child_alloc(40 * MIB);
	CHECK(cu.cuMemAlloc_v2(&none, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	exit(7);
}

PART_TEST(a_stderr_that_nobody_reads_does_not_end_the_program, assert_int_equal(child_run(LOUD, part), 7))
{
	run_unread("talks_to_nobody");
}

static bool is_pending(void)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGPIPE);
}

static void set_blocked(bool blocked)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

static bool is_blocked(void)
{
	sigset_t set;

	pthread_sigmask(SIG_BLOCK, NULL, &set);
	return sigismember(&set, SIGPIPE);
}

static volatile sig_atomic_t n_caught;

static void count(int number)
{
	n_caught++;
}

static void talks_with_a_signal_pending(void)
{
	struct sigaction action = {.sa_handler = count};
	CUdeviceptr none;

	sigaction(SIGPIPE, &action, NULL);
	driver_start(0);
	set_blocked(true);
	/* One that was there before is the program's, sent to the thread or to the process. */
	pthread_kill(pthread_self(), SIGPIPE);
	child_alloc(40 * MIB); /* says that spilling begins */
	CHECK(is_pending() && is_blocked() && !n_caught);
	set_blocked(false);
	CHECK(n_caught == 1 && !is_pending());
	set_blocked(true);
	kill(getpid(), SIGPIPE);
	CHECK(cu.cuMemAlloc_v2(&none, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* says so */
	CHECK(is_pending() && is_blocked());
	set_blocked(false);
	CHECK(n_caught >= 2); /* of the process and of the thread, they are two */
}

CHILD_TEST(a_broken_pipe_signal_of_the_program_stays_pending, LOUD)
{
	run_unread("talks_with_a_signal_pending");
}

static void talks_with_the_signal_blocked(void)
{
	struct sigaction action = {.sa_handler = count};
	CUdeviceptr none;

	sigaction(SIGPIPE, &action, NULL);
	driver_start(0);
	set_blocked(true);
	child_alloc(40 * MIB);
	CHECK(!is_pending() && is_blocked());
	set_blocked(false);
	CHECK(cu.cuMemAlloc_v2(&none, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!n_caught && !is_blocked());
}

CHILD_TEST(no_broken_pipe_signal_of_ours_stays_behind, LOUD)
{
	run_unread("talks_with_the_signal_blocked");
}

/* ---- a data file in the place of stderr ---- */

static char data[] = "/tmp/late_test.XXXXXX";

static void opens_a_data_file_as_descriptor_2(void)
{
	CUdeviceptr none;

	close(STDERR_FILENO);
	CHECK(open(data, O_WRONLY) == STDERR_FILENO);
	driver_start(0);
	child_alloc(40 * MIB); /* would say that spilling begins */
	CHECK(cu.cuMemAlloc_v2(&none, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	exit(7); /* and what it came to */
}

TEST(nothing_is_written_into_a_data_file)
{
	struct stat status;
	int fd = mkstemp(data);

	assert_true(fd > STDERR_FILENO);
	assert_int_equal(child_run(LOUD, opens_a_data_file_as_descriptor_2), 7);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_size, 0);
	close(fd);
	unlink(data);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
	    {"talks_to_nobody", talks_to_nobody},
	    {"talks_with_a_signal_pending", talks_with_a_signal_pending},
	    {"talks_with_the_signal_blocked", talks_with_the_signal_blocked},
	};
	if (argc == 1)
		return test_run();
	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (!strcmp(argv[1], parts[i].name))
			parts[i].run();
	return 0;
}
