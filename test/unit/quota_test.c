// SPDX-License-Identifier: Apache-2.0
/*
 * quota_test.c: processes that share pinned host memory: what is promised in quota.h of the sum, of each one's part,
 * and of the dead.
 */
#include "test/test.h"
#include "test/unit/quota_help.h"

#include "shim/base/log.h"

#include <sys/mman.h>

/* ---- one ---- */

TEST(nothing_is_made_before_the_first_take_and_nothing_is_left_after_the_last)
{
	struct stat status;
	struct rank a = share_start(), b = share_start();

	assert_int_equal(rank_ask(&a, 'f', 0), UINT64_MAX / MIB);
	assert_int_equal(rank_ask(&a, 'o', 0), 0);
	assert_int_equal(rank_ask(&a, 'k', 0), 1);
	assert_int_equal(access(file, F_OK), -1);
	assert_true(rank_ask(&a, 't', 4));
	assert_int_equal(stat(file, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_true(rank_ask(&b, 't', 4));
	rank_end(&a);
	assert_int_equal(access(file, F_OK), 0);
	rank_end(&b);
	assert_int_equal(access(file, F_OK), -1);
}

TEST(one_alone_has_all_of_it_and_no_more)
{
	struct rank a = share_taking(60);

	assert_int_equal(rank_ask(&a, 'f', 0), 4);
	share_takes_the_rest(&a, 4);
	assert_false(rank_ask(&a, 't', 1));
	assert_true(rank_ask(&a, 'g', 64));
	assert_true(rank_ask(&a, 't', 64));
}

/* What all ranks said until now. */
static void said_is(FILE *log, const char *words)
{
	char said[1024];

	ssize_t n = pread(fileno(log), said, sizeof(said) - 1, 0); /* the position is that of all who write */
	said[n > 0 ? n : 0] = 0;
	assert_string_equal(said, words);
}

#define BINDS                                                                                                          \
	"spillway: host.total: another process of this user has set it to 100.0 MiB, which holds for this one, too\n"
#define IGNORED                                                                                                        \
	"spillway: host.total: 4.0 MiB is not in effect: other processes of this user have begun with 100.0 MiB, "     \
	"which holds until they have ended\n"

/* In a process of its own, which a quota is arranged for once. */
static int keeps_a_limit(void)
{
	_Atomic uint64_t limit = 1;

	arrange(ROOM, true);
	quota_arrange(&(struct quota_terms){.total = ROOM, .given = true, .limit = &limit});
	CHECK(quota_take(MIB) && limit == ROOM);
	quota_keep_limit();
	limit = 5;
	quota_tick();
	CHECK(quota_take(MIB) && limit == 5);
	quota_leave();
	return 0;
}

TEST(a_limit_that_was_changed_is_left_alone)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(keeps_a_limit());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

TEST(the_total_is_the_firsts_unless_a_policy_says_another)
{
	struct rank a = share_start(), b = share_start_with(1000 * MIB, false), c = share_start_with(100 * MIB, true),
		    d = share_start_with(4 * MIB, true);

	assert_true(rank_ask(&a, 't', 1) && rank_ask(&b, 't', 1));
	assert_int_equal(rank_ask(&b, 'f', 0), 62);
	assert_true(rank_ask(&c, 't', 1));
	assert_int_equal(rank_ask(&a, 'f', 0), 97);
	assert_true(rank_ask(&d, 't', 1));
	assert_int_equal(rank_ask(&d, 'f', 0), 96);
	ranks_end(&a, &b, &c, &d);
	/* All are gone: the next is the first. */
	struct rank e = share_start_with(8 * MIB, false);
	assert_true(rank_ask(&e, 't', 1));
	assert_int_equal(rank_ask(&e, 'f', 0), 7);
}

TEST(a_total_that_is_not_ones_own_is_said_once)
{
	int saved = dup(STDERR_FILENO);
	FILE *log = tmpfile();

	assert_non_null(log);
	dup2(fileno(log), STDERR_FILENO);
	log_begin();
	struct rank a = share_start(), b = share_start_with(1000 * MIB, false), c = share_start_with(100 * MIB, true),
		    d = share_start_with(4 * MIB, true);
	dup2(saved, STDERR_FILENO);
	close(saved);
	log_begin();
	/* What two have computed differs by chance. */
	assert_true(rank_ask(&a, 't', 1) && rank_ask(&b, 't', 1) && rank_ask(&c, 't', 1) && rank_ask(&c, 'k', 0));
	said_is(log, "");
	assert_true(rank_ask(&a, 'k', 0) && rank_ask(&a, 't', 1) && rank_ask(&a, 'k', 0));
	said_is(log, BINDS);
	assert_true(rank_ask(&d, 't', 1) && rank_ask(&d, 'k', 0));
	said_is(log, BINDS IGNORED);
	for (unsigned i = 0; i < 4; i++)
		rank_end(((struct rank *[]){&a, &b, &c, &d})[i]);
	fclose(log);
}

/* ---- two ---- */

TEST(what_one_has_the_other_has_not)
{
	struct rank a = share_taking(40), b = share_taking(24);

	assert_false(rank_ask(&b, 't', 1));
	assert_false(rank_ask(&a, 't', 1));
	assert_int_equal(rank_ask(&a, 'n', 0), 2);
	assert_true(rank_ask(&a, 'g', 10));
	assert_true(rank_ask(&b, 't', 10));
}

/* The one that is below its half is owed what the other frees. */
TEST(who_has_less_than_his_part_comes_first)
{
	struct rank a = share_taking(60), b = share_taking(4);

	assert_false(rank_ask(&b, 't', 8));
	assert_true(rank_ask(&a, 'g', 12));
	assert_int_equal(rank_ask(&a, 'f', 0), 4);
	assert_false(rank_ask(&a, 't', 6));
	assert_true(rank_ask(&a, 't', 4));
	assert_int_equal(rank_ask(&b, 'f', 0), 8);
	assert_true(rank_ask(&b, 't', 8));
	/* Now nobody is short. */
	assert_true(rank_ask(&b, 'g', 8));
	assert_true(rank_ask(&a, 't', 8));
}

TEST(what_is_spare_is_owed_to_who_is_short_and_no_more_than_is_short)
{
	struct rank a = share_taking(60), b = share_taking(4);

	assert_true(rank_ask(&a, 's', 30));
	assert_int_equal(rank_ask(&a, 'o', 0), 0);
	assert_false(rank_ask(&b, 't', 8));
	assert_in_range(rank_ask(&a, 'o', 0), 8, 10);
	assert_true(rank_ask(&b, 'w', 16));
	assert_in_range(rank_ask(&a, 'o', 0), 16, 18);
	assert_true(rank_ask(&a, 'u', 28));
	assert_int_equal(rank_ask(&a, 'o', 0), 2);
	assert_true(rank_ask(&a, 'u', 2));
	/* Nobody has anything that b could wait for. */
	assert_int_equal(rank_ask(&a, 'o', 0), 0);
	assert_false(rank_ask(&b, 'w', 16));
}

/* Four, whose part is 16 each. */
TEST(what_no_part_serves_is_kept_from_nobody)
{
	struct rank a = share_taking(64), b = share_start(), c = share_start(), d = share_start();

	assert_false(rank_ask(&b, 't', 30) || rank_ask(&c, 't', 30));
	/* One asks for it in pieces, the first of which its part would serve. */
	assert_false(rank_ask(&d, 't', 8) || rank_ask(&d, 'w', 30));
	assert_true(rank_ask(&a, 'g', 64));
	assert_true(rank_ask(&b, 't', 30) && rank_ask(&c, 't', 30));
}

static void set_total(uint64_t mib)
{
	const uint64_t total = mib * MIB;

	share_overwrite(file, offsetof(struct quota_head, file.total), &total, sizeof(total));
}

TEST(what_is_said_to_be_enough_is_enough_and_no_less_is)
{
	static const struct {
		unsigned has, wanted, asked;
	} cases[] = {{60, 10, 10}, {60, 10, 30}, {64, 20, 8}, {64, 0, 1}, {1, 0, 70}, {64, 8, 40}};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct rank a = share_start(), b = share_start(), c = share_start();

		assert_true(rank_ask(&a, 't', cases[i].has) && rank_ask(&b, 't', 0) && rank_ask(&c, 't', 0));
		assert_false(cases[i].wanted && rank_ask(&b, 't', cases[i].wanted));
		assert_false(rank_ask(&c, 't', cases[i].asked));
		uint64_t enough = rank_ask(&c, 'h', cases[i].asked);
		assert_true(enough > 64);
		set_total(enough - 1);
		assert_false(rank_ask(&c, 't', cases[i].asked));
		set_total(enough);
		assert_true(rank_ask(&c, 't', cases[i].asked));
		assert_int_equal(rank_ask(&c, 'h', 0), 0);
		ranks_end(&a, &b, &c);
	}
}

/* ---- ends ---- */

TEST(a_killed_one_leaves_its_share_to_who_is_short)
{
	struct rank a = share_taking(60), b = share_taking(4);

	assert_false(rank_ask(&b, 't', 50));
	rank_kill(&a);
	assert_true(rank_ask(&b, 't', 60));
	assert_int_equal(rank_ask(&b, 'r', 0), 1);
	assert_int_equal(rank_ask(&b, 'k', 0), 1);
	assert_int_equal(rank_ask(&b, 'n', 0), 1);
}

TEST(a_killed_one_that_nobody_has_waited_for_is_gone_as_well)
{
	struct rank a = share_taking(64), b = share_start();
	siginfo_t info;

	assert_false(rank_ask(&b, 't', 1));
	kill(a.pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)a.pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(rank_ask(&b, 't', 64));
	rank_gone(&a, SIGKILL);
}

TEST(a_killed_one_is_found_without_anybody_being_short)
{
	struct rank a = share_taking(30), b = share_taking(4);

	rank_kill(&a);
	assert_int_equal(rank_ask(&b, 'f', 0), 30);
	assert_int_equal(rank_ask(&b, 'k', 0), 1);
	assert_int_equal(rank_ask(&b, 'f', 0), 60);
}

/* Its memory is pinned until it is gone, but it is no rank any more. */
TEST(one_that_ends_keeps_its_bytes_and_not_its_part)
{
	struct rank a = share_taking(40), b = share_taking(4);

	assert_true(rank_ask(&a, 'l', 0));
	assert_false(rank_ask(&a, 't', 1));
	assert_false(rank_ask(&b, 't', 30));
	assert_int_equal(rank_ask(&b, 'n', 0), 1);
	assert_true(rank_ask(&b, 'w', 30));
	rank_tell(&a, 'x', 0);
	rank_gone(&a, 0);
	assert_true(rank_ask(&b, 't', 60));
	rank_end(&b);
	assert_int_equal(access(file, F_OK), -1);
}

/* Its memory is pinned as long as the child, which has no share of its own. */
TEST(what_a_killed_rank_held_counts_until_its_forked_child_has_ended)
{
	struct rank b = share_start();
	int to[2], status;
	pid_t child = 0;

	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	pid_t parent = fork();
	if (!parent) {
		arrange(ROOM, false);
		CHECK(quota_take(60 * MIB));
		if (fork())
			pause();
		quota_child(); /* as lifecycle.c does */
		CHECK(quota_take(1000 * MIB));
		quota_give(2000 * MIB);
		quota_leave();
		child = getpid();
		CHECK(write(to[1], &child, sizeof(child)) == sizeof(child));
		pause();
	}
	assert_int_equal(read(to[0], &child, sizeof(child)), sizeof(child));
	close(to[1]);
	close(to[0]);
	assert_true(rank_ask(&b, 't', 4));
	assert_false(rank_ask(&b, 't', 1));
	kill(parent, SIGKILL);
	assert_int_equal(waitpid(parent, &status, 0), parent);
	assert_false(rank_ask(&b, 't', 1));
	/* Nobody waits for it as for a rank that takes its part, or has some to spare. */
	assert_true(rank_ask(&b, 'k', 0));
	assert_int_equal(rank_ask(&b, 'n', 0), 1);
	kill(child, SIGKILL);
	for (unsigned tries = 0; tries < 5000 && !rank_ask(&b, 't', 60); tries++)
		usleep(1000);
	assert_int_equal(rank_ask(&b, 'f', 0), 0);
}

/* ---- many ---- */

#define MANY   64
#define ROUNDS 300

/* What the processes know of each other beside the file: bytes each really has, as seen from outside. */
struct board {
	_Atomic uint64_t held;   /* by all: added after a take, subtracted before a give */
	_Atomic unsigned n_over; /* times the sum was too large */
	_Atomic unsigned n_starved;
	_Atomic unsigned ready, done;
	_Atomic bool go, low;
};

static struct board *board_make(void)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(board != MAP_FAILED);
	return board;
}

static bool take_counted(struct board *board, uint64_t bytes)
{
	if (!quota_take(bytes))
		return false;
	if (atomic_fetch_add(&board->held, bytes) + bytes > ROOM)
		atomic_fetch_add(&board->n_over, 1);
	return true;
}

static void give_counted(struct board *board, uint64_t bytes)
{
	atomic_fetch_sub(&board->held, bytes);
	quota_give(bytes);
}

static void take_and_give(struct board *board, uint32_t seed)
{
	uint64_t mine = 0;

	arrange(ROOM, false);
	/* Nobody dies here, and each one that is refused would look at 63 others in /proc, which takes it 1 ms. */
	quota_state.sweep_every = 500 * (uint64_t)1000000;
	CHECK(quota_take(0));
	atomic_fetch_add(&board->ready, 1);
	while (!atomic_load(&board->go))
		sched_yield();
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t bytes = (next_random(&seed) % 16 + 1) * MIB / 4;

		if (next_random(&seed) % 2 && take_counted(board, bytes)) {
			mine += bytes;
		} else if (mine) {
			bytes = next_random(&seed) % (mine / (MIB / 4) + 1) * (MIB / 4);
			give_counted(board, bytes);
			mine -= bytes;
		}
	}
	/* Everybody goes below his part, and stays there: then it must be there for everybody. */
	give_counted(board, mine);
	atomic_fetch_add(&board->done, 1);
	while (!atomic_load(&board->low))
		sched_yield();
	for (mine = 0; mine < ROOM / MANY; mine += MIB / 4)
		if (!take_counted(board, MIB / 4))
			atomic_fetch_add(&board->n_starved, 1);
	_exit(0);
}

static void await_number(const _Atomic unsigned *number, unsigned n)
{
	while (atomic_load(number) < n)
		usleep(1000);
}

TEST(sixty_four_at_once_never_have_more_than_there_is_and_none_starves)
{
	struct board *board = board_make();
	uint32_t seed = seed_of_test();
	pid_t pids[MANY];

	for (unsigned i = 0; i < MANY; i++) {
		pids[i] = fork();
		if (!pids[i])
			take_and_give(board, seed + i * 2654435761u);
	}
	await_number(&board->ready, MANY);
	atomic_store(&board->go, true);
	await_number(&board->done, MANY);
	assert_int_equal(board->held, 0);
	atomic_store(&board->low, true);
	for (unsigned i = 0; i < MANY; i++) {
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(board->n_over, 0);
	assert_int_equal(board->n_starved, 0);
	assert_int_equal(board->held, ROOM);
	munmap(board, sizeof(*board));
}

/* Some are killed wherever they are, and what they held is nobody's to count: the file must know it by itself. */
TEST(killed_in_the_middle_of_it_they_take_nothing_with_them)
{
	uint32_t seed = seed_of_test();
	pid_t pids[8];

	for (unsigned i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		arrange(ROOM, false);
		for (uint32_t mine = 0, own = seed + i;;) {
			uint32_t n = next_random(&own) % 16;

			if (quota_take(n * MIB))
				mine += n;
			quota_give(next_random(&own) % 2 ? mine * MIB : 0);
			mine = 0;
		}
	}
	for (unsigned i = 0; i < 8; i++) {
		int status;

		usleep(next_random(&seed) % 20000);
		kill(pids[i], SIGKILL);
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
	}
	struct rank a = share_taking(64);

	rank_end(&a);
	assert_int_equal(access(file, F_OK), -1);
}

EACH_TEST(make_folder, drop_folder)
