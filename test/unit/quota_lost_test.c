// SPDX-License-Identifier: Apache-2.0
/*
 * quota_lost_test.c: processes that share pinned host memory, where the file by which they do is removed under them, as
 * the folder is when its user logs out, or truncated, or kept by a process that is stopped. The budget is not handed
 * out a second time, but for a second after a loss, as quota.h says.
 */
#include "test/test.h"
#include "test/unit/quota_help.h"

#include <sys/mman.h>

static char below[80], memory[80], memory_file[160];

/* With a folder of the test's own for /dev/shm, too. */
static int make_both(void **state)
{
	if (make_folder(state))
		return -1;
	snprintf(below, sizeof(below), "%s/spillway", folder);
	snprintf(memory, sizeof(memory), "%s-memory", folder);
	snprintf(memory_file, sizeof(memory_file), "%s/spillway-%u/host.quota", memory, (unsigned)geteuid());
	user_dir_memory = user_dir_fallback = memory;
	return mkdir(memory, 0700);
}

static int drop_both(void **state)
{
	char path[128];

	ranks_end_rest();
	unlink(memory_file);
	snprintf(path, sizeof(path), "%s/spillway-%u", memory, (unsigned)geteuid());
	rmdir(path);
	rmdir(memory);
	mkdir(folder, 0700);
	return drop_folder(state);
}

EACH_TEST(make_both, drop_both)

static void log_out(bool parent, int remove_file)
{
	assert_int_equal(unlink(file), remove_file);
	assert_int_equal(rmdir(below), 0);
	if (parent)
		assert_int_equal(rmdir(folder), 0);
}

static void rank_stop(const struct rank *rank)
{
	int status;

	assert_int_equal(kill(rank->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(rank->pid, &status, WUNTRACED), rank->pid);
}

/* ---- removed ---- */

TEST(a_new_process_finds_what_others_hold_in_a_file_that_was_removed)
{
	struct rank a = share_taking(30), b = share_taking(20), c = share_start();

	log_out(false, 0);
	/* Neither of the others has noticed anything. */
	share_takes_the_rest(&c, 14);
	assert_int_equal(rank_ask(&c, 'n', 0), 3);
	/* Now they do, whatever they do first. */
	assert_false(rank_ask(&a, 't', 1));
	assert_int_equal(rank_ask(&b, 'k', 0), 1);
	assert_true(rank_ask(&a, 'g', 30));
	assert_true(rank_ask(&b, 't', 30));
	assert_false(rank_ask(&c, 't', 1));
	ranks_end(&a, &b);
	assert_true(rank_ask(&c, 't', 50));
	rank_end(&c);
	assert_int_equal(access(file, F_OK), -1);
}

TEST(who_notices_first_brings_what_all_others_hold)
{
	struct rank a = share_taking(30), b = share_taking(20), c = share_start();

	log_out(false, 0);
	assert_int_equal(rank_ask(&a, 'k', 0), 1);
	assert_int_equal(access(file, F_OK), 0);
	assert_int_equal(rank_ask(&a, 'f', 0), 14);
	share_takes_the_rest(&b, 14);
	assert_false(rank_ask(&c, 't', 1));
	rank_kill(&b);
	assert_true(rank_ask(&c, 't', 34));
}

/* The stopped one cannot come; what it has still counts, and it is not forgotten where it goes on. */
TEST(a_stopped_process_keeps_what_it_has_when_the_file_is_lost)
{
	struct rank a = share_taking(50), b = share_start();

	rank_stop(&a);
	log_out(false, 0);
	share_takes_the_rest(&b, 14);
	log_out(false, 0);
	assert_int_equal(rank_ask(&b, 'k', 0), 1);
	assert_int_equal(rank_ask(&b, 'f', 0), 0);
	assert_int_equal(kill(a.pid, SIGCONT), 0);
	assert_false(rank_ask(&a, 't', 1));
	assert_true(rank_ask(&a, 'g', 50));
	assert_true(rank_ask(&b, 't', 50));
}

/* The folder above is gone as well, so the next place is taken; when the user comes back that is where all go. */
TEST(after_a_log_out_and_when_the_user_comes_back_there_is_one_budget)
{
	struct rank a = share_taking(30), b = share_taking(20), c = share_start(), d = share_start();

	log_out(true, 0);
	assert_false(rank_ask(&c, 't', 15));
	assert_int_equal(access(memory_file, F_OK), 0);
	assert_int_equal(rank_ask(&a, 'k', 0), 1);
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_false(rank_ask(&d, 't', 15));
	assert_int_equal(access(file, F_OK), -1);
	assert_int_equal(rank_ask(&b, 'k', 0), 1);
	assert_true(rank_ask(&d, 't', 14));
	assert_int_equal(rank_ask(&a, 'f', 0), 0);
	ranks_end(&a, &b, &c, &d);
	assert_int_equal(access(memory_file, F_OK), -1);
}

TEST(a_total_that_was_given_holds_on)
{
	struct rank a = share_start_with(100 * MIB, true), b = share_start();

	assert_true(rank_ask(&a, 't', 30));
	log_out(false, 0);
	assert_true(rank_ask(&b, 't', 65));
	assert_int_equal(rank_ask(&b, 'f', 0), 5);
}

/* ---- truncated ---- */

/*
 * Each looks, as within a second. The last of them makes the file anew, so the others come to it when they look next.
 * Which of them comes first is no matter.
 */
static void all_come_back(const struct rank *a, const struct rank *b, bool swapped)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(rank_ask(swapped ? b : a, 'k', 0), 1);
		assert_int_equal(rank_ask(swapped ? a : b, 'k', 0), 1);
	}
}

TEST(a_truncated_file_ends_nobody_and_gives_nothing_away)
{
	static const off_t lengths[] = {0,
					1,
					8,
					sizeof(struct quota_head),
					sizeof(struct quota_head) + sizeof(struct quota_slot),
					sizeof(struct quota_page) - 1};

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct rank a = share_taking(30), b = share_taking(20), c = share_start();

		assert_int_equal(truncate(file, lengths[i]), 0);
		if (i % 2)
			rank_ask(&a, 'k', 0);
		/* One is there still, and has not looked. */
		assert_false(rank_ask(&c, 't', 15));
		assert_true(rank_ask(&b, 'g', 1));
		all_come_back(&a, &b, i % 3);
		share_takes_the_rest(&c, 15);
		assert_false(rank_ask(&a, 't', 1));
		rank_end(&a);
		rank_kill(&b);
		assert_true(rank_ask(&c, 't', 49));
		rank_end(&c);
	}
}

/* Its head is whole, and slots are missing. What was taken meanwhile is not taken away, but nothing more is given. */
TEST(a_file_that_is_truncated_and_then_removed_gives_nothing_away_once_all_are_back)
{
	struct rank a = share_taking(30), b = share_taking(20), c = share_start();

	assert_int_equal(truncate(file, sizeof(struct quota_head) + sizeof(struct quota_slot)), 0);
	log_out(false, 0);
	uint64_t early = rank_ask(&c, 't', 15) ? 15 : 0;
	all_come_back(&a, &b, false);
	for (unsigned i = 0; i < 2; i++)
		assert_false(rank_ask(&c, 't', 15) || rank_ask(&a, 't', 15) || rank_ask(&b, 't', 15));
	assert_true(rank_ask(&a, 'g', 30));
	assert_false(rank_ask(&b, 't', 45));
	assert_true(rank_ask(&b, 't', 44 - (unsigned)early));
}

TEST(a_file_whose_head_is_overwritten_is_made_again_when_all_have_left_it)
{
	const uint64_t words[] = {UINT64_MAX, 7, 7, 1000 * MIB};
	struct rank a = share_taking(30), b = share_taking(20), c = share_start();

	share_overwrite(file, 0, words, sizeof(words));
	assert_false(rank_ask(&c, 't', 1));
	all_come_back(&a, &b, false);
	share_takes_the_rest(&c, 14);
	ranks_end(&a, &b, &c);
	assert_int_equal(access(file, F_OK), -1);
}

/* As by close_range(). */
TEST(what_a_process_has_counts_once_when_its_descriptor_is_closed)
{
	struct rank a = share_taking(40), b = share_taking(4);

	assert_true(rank_ask(&a, 'C', 0));
	assert_false(rank_ask(&b, 't', 30));
	assert_true(rank_ask(&a, 'g', 1) && rank_ask(&a, 't', 3));
	assert_int_equal(rank_ask(&b, 'f', 0), 18);
	assert_int_equal(rank_ask(&b, 'n', 0), 2);
	/* It is found by its tick, too, and when it has ended it has nothing. */
	assert_true(rank_ask(&a, 'C', 0) && rank_ask(&a, 'k', 0));
	assert_int_equal(rank_ask(&b, 'f', 0), 18);
	assert_true(rank_ask(&a, 'C', 0));
	rank_kill(&a);
	assert_true(rank_ask(&b, 't', 60));
}

/* What it has is not known to the others, so none of them has anything. */
TEST(a_stopped_process_keeps_a_truncated_file_from_being_used)
{
	struct rank a = share_taking(50), b = share_taking(4);

	rank_stop(&a);
	assert_int_equal(truncate(file, 0), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_false(rank_ask(&b, 't', 1));
	assert_int_equal(kill(a.pid, SIGCONT), 0);
	assert_false(rank_ask(&a, 't', 15));
	assert_int_equal(rank_ask(&b, 'k', 0), 1);
	share_takes_the_rest(&a, 10);
}

TEST(who_is_gone_before_it_came_back_holds_nothing)
{
	struct rank a = share_taking(30), b = share_taking(20);

	assert_int_equal(truncate(file, 0), 0);
	assert_false(rank_ask(&b, 't', 1));
	rank_kill(&a);
	assert_true(rank_ask(&b, 't', 44));
}

/* ---- kept ---- */

/* A process that was stopped while it joined or left. */
static pid_t stop_with_the_lock(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	int status;
	pid_t child = fork();

	if (!child) {
		int fd = open(file, O_RDWR);

		CHECK(fd >= 0 && fcntl(fd, F_OFD_SETLKW, &lock) == 0);
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	return child;
}

TEST(while_the_file_is_kept_by_a_stopped_process_nobody_has_a_budget_of_its_own)
{
	struct rank a = share_taking(30), b = share_start(), c = share_start();
	int status;

	pid_t keeper = stop_with_the_lock();
	assert_true(rank_ask(&b, 'p', 10) && rank_ask(&c, 'p', 10));
	for (unsigned i = 0; i < 3; i++)
		assert_false(rank_ask(&b, 't', 10) || rank_ask(&c, 't', 10));
	assert_int_equal(rank_ask(&b, 'o', 0), 0);
	assert_int_equal(rank_ask(&b, 'k', 0), 1);
	/* Who waits for a second takes the lock over. From then on nobody waits. */
	assert_true(rank_ask(&a, 't', 4));
	assert_true(rank_ask(&b, 't', 10));
	assert_int_equal(kill(keeper, SIGCONT), 0);
	assert_int_equal(waitpid(keeper, &status, 0), keeper);
	assert_int_equal(rank_ask(&c, 'k', 0), 1);
	assert_int_equal(rank_ask(&c, 'n', 0), 3);
	share_takes_the_rest(&c, 20);
}

/* It has the lock, has read what is left, and has written what it takes. */
TEST(who_is_stopped_while_it_takes_takes_nothing_that_another_has_by_then)
{
	struct rank a = share_taking(4), b = share_taking(4);

	for (unsigned i = 0; i < 2; i++) {
		siginfo_t info;

		assert_true(rank_ask(&a, 'S', i));
		rank_tell(&a, 't', 50);
		assert_int_equal(waitid(P_PID, (id_t)a.pid, &info, WSTOPPED), 0);
		/* What it has written counts, until it goes on; then it tries again. */
		assert_int_equal(rank_ask(&b, 't', 40), i == 0);
		assert_int_equal(kill(a.pid, SIGCONT), 0);
		assert_int_equal(rank_hear(&a), i);
		assert_int_equal(rank_ask(&b, 'f', 0), i ? 6 : 16);
		assert_true(rank_ask(&a, 'g', i ? 50 : 0) && rank_ask(&b, 'g', i ? 0 : 40));
	}
}

TEST(who_ends_without_having_got_in_leaves_nothing)
{
	struct rank a = share_taking(30), b = share_start();

	pid_t keeper = stop_with_the_lock();
	assert_true(rank_ask(&b, 'p', 10));
	assert_false(rank_ask(&b, 't', 10));
	rank_end(&b);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	assert_int_equal(rank_ask(&a, 'f', 0), 34);
}

/* ---- all of it at once ---- */

enum { MANY = 8, LOSSES = 20, ROUNDS = 100 };

struct board {
	_Atomic uint64_t held; /* by all: added after a take, subtracted before a give */
	_Atomic unsigned n_over, n_taken;
	/* Nothing is lost any more from 1 on; each looks once when it becomes 1, and 2; at 3 all have. */
	_Atomic unsigned calm, n_calm;
	bool truncates;
};

static void take(struct board *board, uint64_t bytes, uint64_t *mine)
{
	unsigned calm = atomic_load(&board->calm);

	if (!quota_take(bytes))
		return;
	/* In a removed file nothing is ever taken twice. */
	if (atomic_fetch_add(&board->held, bytes) + bytes > ROOM && (calm == 3 || !board->truncates))
		atomic_fetch_add(&board->n_over, 1);
	atomic_fetch_add(&board->n_taken, calm == 3);
	*mine += bytes;
}

static void give(struct board *board, uint64_t bytes, uint64_t *mine)
{
	atomic_fetch_sub(&board->held, bytes);
	quota_give(bytes);
	*mine -= bytes;
}

static void take_and_give(struct board *board, uint32_t seed)
{
	uint64_t mine = 0;

	arrange(ROOM, false);
	for (unsigned i = 0, looked = 0; i < ROUNDS;) {
		unsigned calm = atomic_load(&board->calm);
		uint64_t bytes = (next_random(&seed) % 16 + 1) * MIB;

		if (next_random(&seed) % 8 == 0 || calm > looked)
			quota_tick();
		if (calm > looked)
			atomic_fetch_add(&board->n_calm, 1);
		looked = calm;
		i += calm == 3;
		if (next_random(&seed) % 2)
			take(board, bytes, &mine);
		else
			give(board, next_random(&seed) % (mine / MIB + 1) * MIB, &mine);
	}
	give(board, mine, &mine);
	quota_leave();
	_exit(0);
}

static void all_share_while_it_is_lost(bool truncates)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned n_lost = 0;
	uint32_t seed = seed_of_test();

	assert_true(board != MAP_FAILED);
	board->truncates = truncates;
	for (unsigned i = 0; i < MANY; i++)
		if (!fork())
			take_and_give(board, seed + i * 2654435761u);
	while (n_lost < LOSSES) {
		if (truncates && next_random(&seed) % 2)
			n_lost += truncate(file, next_random(&seed) % 3 ? 0 : next_random(&seed) % 1000) == 0;
		else
			n_lost += unlink(file) == 0;
		rmdir(below);
		usleep(next_random(&seed) % 20000);
	}
	for (unsigned calm = 1; calm <= 3; calm++) {
		atomic_store(&board->calm, calm);
		UNTIL(atomic_load(&board->n_calm) >= calm * MANY);
	}
	for (unsigned i = 0; i < MANY; i++) {
		int status;

		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(board->n_over, 0);
	assert_true(board->n_taken > 0);
	assert_int_equal(board->held, 0);
	munmap(board, sizeof(*board));
}

TEST(whenever_it_is_removed_all_together_never_have_more_than_there_is)
{
	all_share_while_it_is_lost(false);
}

TEST(whenever_it_is_truncated_nothing_is_taken_beyond_it_once_all_are_back)
{
	all_share_while_it_is_lost(true);
}
