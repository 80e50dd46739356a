// SPDX-License-Identifier: Apache-2.0
/*
 * share: turns, where a process cannot do what its turn asks for. Nobody waits for ever, and every byte stays as it
 * was. A rank is a process of its own, with a simulated GPU of its own, that does what it is told (turns_test.c).
 */
#include "shim/spillway.h"
#include "test/preload/tool.h"
#include "test/preload/turns_help.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define SETTINGS TURNS("")
#define TIGHT    TURNS_SET(",host.budget=32MiB,share=turns,share.queue=no")

/* Nor can there be another socket of that name. For close(), see account_close(). */
static bool close_listener(int fd)
{
	struct sockaddr_un address;
	socklen_t bytes = sizeof(address);

	return getsockname(fd, (struct sockaddr *)&address, &bytes) == 0 && unlink(address.sun_path) == 0 &&
	       symlink("nothing", address.sun_path) == 0 && syscall(SYS_close, fd) == 0;
}

/* As a program does that becomes a daemon. Returns how many there were. */
static unsigned close_listeners(void)
{
	unsigned n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		int listens = 0;
		socklen_t bytes = sizeof(listens);

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens && close_listener(fd))
			n++;
	}
	return n;
}

static uint64_t turn_number(void)
{
	static struct account_page page;

	UNTIL(account_read(&page));
	return page.head.turn.number;
}

/* A suspension that fails. Then it does not work before the turn has changed. */
static uint64_t fail_to_suspend(void)
{
	uint64_t before = turn_number();

	child_refuse("cuMemRelease", 1000000);
	CHECK(spillway_suspend() != 0);
	turns_write(turns_blocks[0], turns_fills);
	MUST(cu.cuCtxSynchronize());
	CHECK(turn_number() != before);
	child_refuse("cuMemRelease", 0);
	return 1;
}

/* As much again as it has, for a moment. */
static uint64_t use_more(void)
{
	CUdeviceptr more = child_alloc(TURNS_NEEDS * 4 * MIB);

	MUST(driver_fill(NULL, more, 77, TURNS_NEEDS * MIB));
	MUST(cu.cuCtxSynchronize());
	CHECK(driver_holds(more, 77, TURNS_NEEDS * MIB));
	MUST(cu.cuMemFree_v2(more));
	return 1;
}

static CUcontext context;

static void *end_capture_later(void *stream)
{
	CUgraph graph;

	usleep(100000);
	MUST(cu.cuCtxSetCurrent(context));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cu.cuGraphDestroy(graph));
	return NULL;
}

/* As it begins, it needs more than the host holds. Its memory cannot leave while a capture is open. */
static uint64_t begin_with_much(bool captures)
{
	CUstream stream;
	pthread_t thread;

	if (captures) {
		MUST(cu.cuCtxGetCurrent(&context));
		MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		CHECK(pthread_create(&thread, NULL, end_capture_later, stream) == 0);
	}
	for (unsigned i = 0; i < TURNS_NEEDS; i++)
		turns_blocks[turns_n_blocks++] = child_alloc(4 * MIB);
	use_more();
	CHECK(!captures || pthread_join(thread, NULL) == 0);
	return turns_obey('a', 0);
}

/* What no turn can give: it is refused while it is another's. */
static uint64_t ask_too_much(void)
{
	uint64_t before = turn_number();
	CUdeviceptr more;

	CHECK(cu.cuMemAlloc_v2(&more, 65 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	return turn_number() == before;
}

static void check_end(void)
{
	if (sim_stalled())
		_exit(9);
}

static void *go_on_later(void *unused)
{
	/* Longer than the end of a process waits for a mover that has nothing to do. */
	usleep(1200000);
	sim_go_on();
	return NULL;
}

static _Noreturn void end_while_moving(void)
{
	UNTIL(sim_stalled());
	pthread_t thread = test_thread(go_on_later, NULL);
	CHECK(pthread_detach(thread) == 0);
	exit(0);
}

/*
 * turns_obey(), and 'u': a suspension that fails; 'm': use more for a moment; 'b' N: begin with more than the host
 * holds, and (1) with an open capture; 'h': ask for more than there is; 'y': close the account, and stop; 'z': close the account; 'x': close all
 * sockets that listen; 'q': the next copy stands still; 'w': end when it does.
 */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'd':
		/* Runs after the handler of the mover, as those of the driver. */
		CHECK(atexit(check_end) == 0);
		return turns_obey(what, n);
	case 'u':
		return fail_to_suspend();
	case 'm':
		return use_more();
	case 'b':
		return begin_with_much(n);
	case 'h':
		return ask_too_much();
	case 'y':
		/* Before the control thread looks. */
		return account_close() && raise(SIGSTOP) == 0;
	case 'z':
		return account_close();
	case 'q':
		sim_stall_at("cuMemcpyDtoDAsync_v2", 1);
		return 1;
	case 'w':
		end_while_moving();
	case 'x':
		return close_listeners();
	default:
		return turns_obey(what, n);
	}
}

static bool on_use; /* the blocks of ranks have memory where they are used */

static void begin(const void *settings)
{
	turns_begin(settings);
	if (on_use)
		child_set("SPILLWAY_POLICY=" ON_USE_POLICY);
}

static const struct rank_part part = {.begin = begin, .obey = obey};

/* The first has nothing to do, and the other makes steps until the first is away. */
static void wait_until_away(const struct rank ranks[2])
{
	for (unsigned round = 0; round < TURNS_TRIES; round++) {
		struct account_page page;
		const struct gpu_account_member *member = account_read(&page) ? account_member(&page, &ranks[0]) : NULL;

		if (member && member->claim.away && !member->claim.moving)
			return;
		assert_true(rank_ask(&ranks[1], 's', 1));
	}
	fail_msg("it does not leave");
}

static void start_two_with(struct rank ranks[2], const char *settings, unsigned other_needs)
{
	ranks[0] = turns_start(&part, settings, TURNS_NEEDS);
	ranks[1] = turns_start(&part, settings, other_needs);
	turns_run(ranks, 2, 1);
	wait_until_away(ranks);
}

static void start_two(struct rank ranks[2], unsigned other_needs)
{
	start_two_with(ranks, SETTINGS, other_needs);
}

/* ---- the parts ---- */

/* The host holds what is away, and no more. In its turn the process has what it has alone. */
static void find_no_memory(const char *settings)
{
	struct rank ranks[2];

	start_two_with(ranks, settings, TURNS_NEEDS);
	for (unsigned round = 0; round < 3; round++) {
		rank_tell(&ranks[1], 's', 20);
		assert_true(rank_ask(&ranks[0], 'm', 0));
		assert_true(rank_hear(&ranks[1]));
		wait_until_away(ranks);
	}
	turns_end(ranks, 2);
}

TEST(who_finds_no_memory_while_it_is_away_waits_for_its_turn)
{
	find_no_memory(TIGHT ",spill.mode=exact");
	find_no_memory(TIGHT ",spill.mode=fast");
}

/* It has nothing of the device, and is not away yet. how: 'b' */
static void come_later(const char *settings, unsigned how)
{
	struct rank ranks[2];

	ranks[0] = turns_start(&part, settings, TURNS_NEEDS);
	rank_tell(&ranks[0], 's', 60);
	ranks[1] = turns_start(&part, settings, 0);
	assert_true(rank_ask(&ranks[1], 'b', how));
	assert_true(rank_hear(&ranks[0]));
	turns_run_and_end(ranks, 2, 1);
}

TEST(who_comes_while_another_has_all_waits_for_its_turn)
{
	come_later(TIGHT ",spill.mode=exact", 0);
	come_later(TIGHT ",spill.mode=fast", 0);
}

/* The other holds the device, and is to publish what it needs only after it has entered the account again. */
TEST(who_comes_after_one_that_has_just_lost_the_account_waits_for_its_turn)
{
	struct rank ranks[2];

	ranks[0] = turns_start(&part, TIGHT, TURNS_NEEDS);
	assert_true(rank_ask(&ranks[0], 'z', 0));
	ranks[1] = turns_start(&part, TIGHT, TURNS_NEEDS);
	assert_true(rank_ask(&ranks[1], 'm', 0));
	turns_run_and_end(ranks, 2, 1);
	assert_false(log_has("there are no turns"));
}

TEST(who_cannot_leave_yet_when_it_finds_no_memory_waits_for_its_turn)
{
	come_later(TIGHT ",spill.mode=exact", 1);
	come_later(TIGHT ",spill.mode=fast", 1);
}

TEST(a_use_that_finds_no_memory_while_it_is_away_waits_for_its_turn)
{
	on_use = true;
	find_no_memory(TIGHT ",spill.mode=exact");
	find_no_memory(TIGHT ",spill.mode=fast");
	on_use = false;
	assert_false(log_has("the call that uses it is refused"));
}

TEST(what_no_turn_can_give_is_refused_at_once)
{
	struct rank ranks[2];

	start_two_with(ranks, TIGHT, TURNS_NEEDS);
	assert_true(rank_ask(&ranks[0], 'h', 0));
	turns_run_and_end(ranks, 2, 1);
}

/* What it keeps does not go back to the driver. It waits for its turn as before. */
TEST(who_cannot_be_suspended_while_it_is_away_takes_turns_as_before)
{
	struct rank ranks[2];

	start_two(ranks, 3);
	assert_true(rank_ask(&ranks[0], 'u', 0));
	turns_run_and_end(ranks, 2, 2);
}

/* The driver must not shut down before the mover has come out of it. */
TEST(who_ends_while_its_memory_leaves_waits_for_the_mover)
{
	struct rank ranks[2];

	start_two(ranks, TURNS_NEEDS);
	/* It has the turn, and nothing to do. */
	assert_true(rank_ask(&ranks[0], 's', 1) && rank_ask(&ranks[0], 'q', 0));
	rank_tell(&ranks[1], 's', 5);
	rank_tell(&ranks[0], 'w', 0);
	rank_gone(&ranks[0], 0);
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[1], 'c', 0));
	rank_end(&ranks[1]);
}

static bool is_listed(const struct rank *rank)
{
	char pid[32];
	int status;
	const char *shared = strstr(tool(&status, "list"), ", shared: ");

	snprintf(pid, sizeof(pid), "\n%7d ", (int)rank->pid);
	return status == 0 && shared && strstr(shared, pid);
}

/* Its lock went with the descriptor, but its memory is there: the others count it, and so does the tool. */
TEST(who_has_closed_the_account_is_listed_while_it_lives)
{
	struct rank ranks[2];
	struct account_page page;
	int status;

	start_two(ranks, TURNS_NEEDS);
	assert_true(is_listed(&ranks[0]));
	rank_tell(&ranks[0], 'y', 0);
	assert_int_equal(waitpid(ranks[0].pid, &status, WUNTRACED), ranks[0].pid);
	assert_true(WIFSTOPPED(status));
	assert_true(is_listed(&ranks[0]));
	assert_true(account_read(&page) && account_member(&page, &ranks[0]));
	assert_int_equal(kill(ranks[0].pid, SIGCONT), 0);
	assert_true(rank_hear(&ranks[0]));
	turns_run_and_end(ranks, 2, 2);
}

/* Also in its turn: what it may not use is not taken from the account. */
TEST(who_has_a_budget_of_its_own_takes_no_more_of_the_account)
{
	struct rank ranks[2];
	struct account_page page;

	for (unsigned i = 0; i < 2; i++)
		ranks[i] = turns_start(&part, SETTINGS ",device.budget=20MiB", TURNS_NEEDS);
	for (unsigned round = 0; round < 20; round++) {
		turns_run(ranks, 2, 1);
		for (unsigned i = 0; i < GPU_ACCOUNT_MOST && account_read(&page); i++)
			assert_true(!page.slot[i].pid || page.slot[i].may_have <= 20 * MIB);
	}
	turns_end(ranks, 2);
}

/* Its control thread has no socket any more, but must still see when it is its turn. */
TEST(who_closes_the_socket_of_its_control_thread_takes_turns_as_before)
{
	struct rank ranks[2];

	start_two(ranks, TURNS_NEEDS);
	assert_true(rank_ask(&ranks[0], 'x', 0));
	turns_run(ranks, 2, 2);
	assert_true(log_says("the program closed our socket, and no other can be made (Address already in use)"));
	turns_end(ranks, 2);
}

EACH_TEST(begin_log, folder_remove)

int main(void)
{
	return turns_main(test_run);
}
