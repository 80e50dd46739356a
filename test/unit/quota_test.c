/*
 * quota_test.c: processes that share pinned host memory, real ones, with nothing faked: what is promised in quota.h of
 * the sum, of each one's part, of the dead, and of files that are not what they should be.
 *
 * A process is a fork of this one, driven by one byte at a time through a pipe, or left to itself.
 */
#include "shim/quota_inside.h"
#include "shim/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB  ((uint64_t)1 << 20)
#define ROOM (64 * MIB)

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                        \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

#ifdef __SANITIZE_THREAD__
/* A child ends by _exit(); the sanitizer would sleep a second in each. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "atexit_sleep_ms=0";
}
#endif

static char folder[64], file[128];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/quota-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(file, sizeof(file), "%s/spillway/host.quota", folder);
	return setenv("XDG_RUNTIME_DIR", folder, 1);
}

static int drop_folder(void **state)
{
	char below[80];

	(void)state;
	unlink(file);
	snprintf(below, sizeof(below), "%s/spillway", folder);
	rmdir(below);
	return rmdir(folder);
}

/* No time decides, but where one is to run out. */
#define AN_HOUR (3600 * (uint64_t)1000000000)

static void arrange(uint64_t total, bool given)
{
	quota_want_lasts = AN_HOUR;
	quota_patience = AN_HOUR;
	quota_sweep_every = 0;
	quota_arrange(&(struct quota_terms){.total = total, .given = given});
}

/* ---- ranks ---- */

struct rank {
	pid_t pid;
	int to, from;
};

/* 't' N: take N MiB, 'g' N: give; 's' N: of those, so much is spare; 'w' N: wait once; 'o': owed; 'l': leave and stay;
 * 'e': leave and end; 'x': end. */
static uint64_t obey(char order, unsigned n)
{
	unsigned tries = 0;

	switch (order) {
	case 't':
		return quota_take(n * MIB);
	case 'g':
		quota_give(n * MIB);
		return 1;
	case 's':
		quota_spare_add(n * MIB);
		return 1;
	case 'u':
		quota_spare_sub(n * MIB);
		return 1;
	case 'w':
		return quota_wait(n * MIB, &tries);
	case 'o':
		return quota_owed() / MIB;
	case 'r':
		return stats_get(STAT_share_reclaimed);
	case 'f':
		return quota_left() / MIB;
	case 'n':
		return atomic_load(&stats.share_ranks);
	case 'p':
		quota_patience = n * (uint64_t)1000000;
		return 1;
	case 'k':
		quota_tick();
		return 1;
	case 'l':
		quota_leave();
		return 1;
	default:
		if (order == 'e')
			quota_leave();
		_exit(order == 'e' || order == 'x' ? 0 : 2);
	}
}

struct order {
	char what;
	unsigned n;
};

static void serve_orders(int from, int to)
{
	struct order order;

	while (read(from, &order, sizeof(order)) == sizeof(order)) {
		uint64_t answer = obey(order.what, order.n);

		CHECK(write(to, &answer, sizeof(answer)) == sizeof(answer));
	}
	_exit(0);
}

static struct rank rank_start_with(uint64_t total, bool given)
{
	int to[2], from[2];

	assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	struct rank rank = {.pid = fork(), .to = to[1], .from = from[0]};
	assert_true(rank.pid >= 0);
	if (!rank.pid) {
		close(to[1]);
		close(from[0]);
		arrange(total, given);
		serve_orders(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	return rank;
}

static struct rank rank_start(void)
{
	return rank_start_with(ROOM, false);
}

static uint64_t tell(const struct rank *rank, char what, unsigned n)
{
	uint64_t answer = UINT64_MAX;

	assert_int_equal(write(rank->to, &(struct order){what, n}, sizeof(struct order)), sizeof(struct order));
	assert_int_equal(read(rank->from, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

static void rank_close(const struct rank *rank, int expected)
{
	int status;

	close(rank->to);
	close(rank->from);
	assert_int_equal(waitpid(rank->pid, &status, 0), rank->pid);
	assert_int_equal(status, expected);
}

static void rank_kill(const struct rank *rank)
{
	kill(rank->pid, SIGKILL);
	rank_close(rank, SIGKILL);
}

static void rank_end_by(const struct rank *rank, char how)
{
	struct order order = {how, 0};

	assert_int_equal(write(rank->to, &order, sizeof(order)), sizeof(order));
	rank_close(rank, 0);
}

static void rank_end(const struct rank *rank)
{
	rank_end_by(rank, 'e');
}

/* ---- one ---- */

static void nothing_is_made_before_the_first_take_and_nothing_is_left_after_the_last(void **state)
{
	struct stat status;
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_int_equal(tell(&a, 'f', 0), UINT64_MAX / MIB);
	assert_int_equal(tell(&a, 'o', 0), 0);
	assert_int_equal(tell(&a, 'k', 0), 1);
	assert_int_equal(access(file, F_OK), -1);
	assert_true(tell(&a, 't', 4));
	assert_int_equal(stat(file, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_true(tell(&b, 't', 4));
	rank_end(&a);
	assert_int_equal(access(file, F_OK), 0);
	rank_end(&b);
	assert_int_equal(access(file, F_OK), -1);
}

static void one_alone_has_all_of_it_and_no_more(void **state)
{
	struct rank a = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 60));
	assert_int_equal(tell(&a, 'f', 0), 4);
	assert_false(tell(&a, 't', 5));
	assert_true(tell(&a, 't', 4));
	assert_false(tell(&a, 't', 1));
	assert_true(tell(&a, 'g', 64));
	assert_true(tell(&a, 't', 64));
	rank_end(&a);
}

static void the_total_is_the_firsts_unless_a_policy_says_another(void **state)
{
	struct rank a = rank_start(), b = rank_start_with(1000 * MIB, false), c = rank_start_with(100 * MIB, true),
		    d = rank_start_with(4 * MIB, true);

	(void)state;
	assert_true(tell(&a, 't', 1) && tell(&b, 't', 1));
	assert_int_equal(tell(&b, 'f', 0), 62);
	assert_true(tell(&c, 't', 1));
	assert_int_equal(tell(&a, 'f', 0), 97);
	assert_true(tell(&d, 't', 1));
	assert_int_equal(tell(&d, 'f', 0), 96);
	rank_end(&a);
	rank_end(&b);
	rank_end(&c);
	rank_end(&d);
	/* All are gone: the next is the first. */
	struct rank e = rank_start_with(8 * MIB, false);
	assert_true(tell(&e, 't', 1));
	assert_int_equal(tell(&e, 'f', 0), 7);
	rank_end(&e);
}

/* ---- two ---- */

static void what_one_has_the_other_has_not(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 40) && tell(&b, 't', 24));
	assert_false(tell(&b, 't', 1));
	assert_false(tell(&a, 't', 1));
	assert_int_equal(tell(&a, 'n', 0), 2);
	assert_true(tell(&a, 'g', 10));
	assert_true(tell(&b, 't', 10));
	rank_end(&a);
	rank_end(&b);
}

/* The one that is below its half is owed what the other frees. */
static void who_has_less_than_his_part_comes_first(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 60) && tell(&b, 't', 4));
	assert_false(tell(&b, 't', 8));
	assert_true(tell(&a, 'g', 12));
	assert_int_equal(tell(&a, 'f', 0), 4);
	assert_false(tell(&a, 't', 6));
	assert_true(tell(&a, 't', 4));
	assert_int_equal(tell(&b, 'f', 0), 8);
	assert_true(tell(&b, 't', 8));
	/* Now nobody is short. */
	assert_true(tell(&b, 'g', 8));
	assert_true(tell(&a, 't', 8));
	rank_end(&a);
	rank_end(&b);
}

static void what_is_spare_is_owed_to_who_is_short_and_no_more_than_is_short(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 60) && tell(&b, 't', 4));
	assert_true(tell(&a, 's', 30));
	assert_int_equal(tell(&a, 'o', 0), 0);
	assert_false(tell(&b, 't', 8));
	assert_in_range(tell(&a, 'o', 0), 8, 10);
	assert_true(tell(&b, 'w', 16));
	assert_in_range(tell(&a, 'o', 0), 16, 18);
	assert_true(tell(&a, 'u', 28));
	assert_int_equal(tell(&a, 'o', 0), 2);
	assert_true(tell(&a, 'u', 2));
	/* Nobody has anything that b could wait for. */
	assert_int_equal(tell(&a, 'o', 0), 0);
	assert_false(tell(&b, 'w', 16));
	rank_end(&a);
	rank_end(&b);
}

/* ---- ends ---- */

static void a_killed_one_leaves_its_share_to_who_is_short(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 60) && tell(&b, 't', 4));
	assert_false(tell(&b, 't', 50));
	rank_kill(&a);
	assert_true(tell(&b, 't', 60));
	assert_int_equal(tell(&b, 'r', 0), 1);
	assert_int_equal(tell(&b, 'k', 0), 1);
	assert_int_equal(tell(&b, 'n', 0), 1);
	rank_end(&b);
}

static void a_killed_one_that_nobody_has_waited_for_is_gone_as_well(void **state)
{
	struct rank a = rank_start(), b = rank_start();
	siginfo_t info;

	(void)state;
	assert_true(tell(&a, 't', 64));
	assert_false(tell(&b, 't', 1));
	kill(a.pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)a.pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(tell(&b, 't', 64));
	rank_close(&a, SIGKILL);
	rank_end(&b);
}

static void a_killed_one_is_found_without_anybody_being_short(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 30) && tell(&b, 't', 4));
	rank_kill(&a);
	assert_int_equal(tell(&b, 'f', 0), 30);
	assert_int_equal(tell(&b, 'k', 0), 1);
	assert_int_equal(tell(&b, 'f', 0), 60);
	rank_end(&b);
}

/* Its memory is pinned until it is gone, but it is no rank any more. */
static void one_that_ends_keeps_its_bytes_and_not_its_part(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 40) && tell(&b, 't', 4));
	assert_true(tell(&a, 'l', 0));
	assert_false(tell(&a, 't', 1));
	assert_false(tell(&b, 't', 30));
	assert_int_equal(tell(&b, 'n', 0), 1);
	assert_true(tell(&b, 'w', 30));
	rank_end_by(&a, 'x');
	assert_true(tell(&b, 't', 60));
	rank_end(&b);
	assert_int_equal(access(file, F_OK), -1);
}

static void the_child_of_a_rank_has_no_share_and_takes_none_with_it(void **state)
{
	struct rank b = rank_start();
	int to[2], status;
	pid_t child = 0;

	(void)state;
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	pid_t parent = fork();
	if (!parent) {
		arrange(ROOM, false);
		CHECK(quota_take(60 * MIB));
		if (fork())
			pause();
		quota_child(); /* as life.c does */
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
	assert_true(tell(&b, 't', 4));
	assert_false(tell(&b, 't', 1));
	kill(parent, SIGKILL);
	assert_int_equal(waitpid(parent, &status, 0), parent);
	/* The child lives on, and holds nothing. */
	assert_true(tell(&b, 't', 60));
	kill(child, SIGKILL);
	rank_end(&b);
}

/* ---- many ---- */

#define MANY   64
#define ROUNDS 300

static uint32_t next_random(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

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

static uint32_t seed_of_test(void)
{
	const char *given = getenv("QUOTA_SEED");
	uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 0) : (uint32_t)time(NULL) ^ (uint32_t)getpid();

	printf("seed %u (QUOTA_SEED)\n", seed);
	return seed ? seed : 1;
}

static void await_number(const _Atomic unsigned *number, unsigned n)
{
	while (atomic_load(number) < n)
		usleep(1000);
}

static void sixty_four_at_once_never_have_more_than_there_is_and_none_starves(void **state)
{
	struct board *board = board_make();
	uint32_t seed = seed_of_test();
	pid_t pids[MANY];

	(void)state;
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
static void killed_in_the_middle_of_it_they_take_nothing_with_them(void **state)
{
	uint32_t seed = seed_of_test();
	pid_t pids[8];

	(void)state;
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
	struct rank a = rank_start();
	assert_true(tell(&a, 't', 64));
	rank_end(&a);
	assert_int_equal(access(file, F_OK), -1);
}

/* ---- files that are not what they should be ---- */

static void put_file(const void *bytes, size_t n, mode_t mode)
{
	char below[80];

	snprintf(below, sizeof(below), "%s/spillway", folder);
	mkdir(below, 0700);
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	fchmod(fd, mode);
	close(fd);
}

static void garbage_that_nobody_uses_is_replaced(void **state)
{
	static char bytes[2 * sizeof(struct quota_page)];
	static const size_t sizes[] = {1,
				       100,
				       sizeof(struct quota_page) - 1,
				       sizeof(struct quota_page),
				       sizeof(struct quota_page) + 1,
				       sizeof(bytes)};
	uint32_t seed = seed_of_test();

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
		for (size_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = i % 2 ? (char)next_random(&seed) : 0;
		put_file(bytes, sizes[i / 2], 0600);
		struct rank a = rank_start(), b = rank_start();
		assert_true(tell(&a, 't', 40));
		assert_false(tell(&b, 't', 40));
		rank_end(&a);
		rank_end(&b);
	}
}

/* Contents behind a head that is as it should be. */
static void nonsense_in_the_slots_leaves_each_its_own_budget(void **state)
{
	static struct quota_page page;
	uint32_t seed = seed_of_test();

	(void)state;
	for (unsigned round = 0; round < 50; round++) {
		for (size_t j = 0; j < sizeof(page); j++)
			((unsigned char *)&page)[j] = (unsigned char)next_random(&seed);
		page.bytes = sizeof(page);
		page.version = QUOTA_VERSION;
		page.magic = QUOTA_MAGIC;
		page.total = ROOM;
		page.slot[0].stamp = 77;
		page.slot[0].space = round % 2 ? 0 : page.slot[0].space;
		put_file(&page, sizeof(page), 0600);
		struct rank a = rank_start();
		/* Whatever it makes of it, it answers, and it can have what it could have alone. */
		assert_true(tell(&a, 't', 64));
		tell(&a, 'o', 0);
		tell(&a, 'f', 0);
		tell(&a, 'k', 0);
		tell(&a, 'g', 64);
		rank_kill(&a);
		unlink(file);
	}
}

static struct quota_page *map_file(void)
{
	int fd = open(file, O_RDWR);

	assert_true(fd >= 0);
	struct quota_page *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(page != MAP_FAILED);
	close(fd);
	return page;
}

static void another_version_in_use_is_left_alone(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 60));
	struct quota_page *page = map_file();
	page->version++;
	assert_true(tell(&b, 't', 1000)); /* its own budget holds */
	assert_int_equal(tell(&b, 'f', 0), UINT64_MAX / MIB);
	assert_int_equal(page->version, QUOTA_VERSION + 1);
	rank_end(&b);
	assert_int_equal(access(file, F_OK), 0);
	rank_end(&a);
	munmap(page, sizeof(*page));
}

static void nonsense_that_comes_later_leaves_each_its_own_budget(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 60) && tell(&b, 't', 4));
	struct quota_page *page = map_file();
	uint64_t was = page->slot[0].used;
	page->slot[0].used = UINT64_MAX;
	assert_true(tell(&b, 't', 100));
	assert_true(tell(&b, 'g', 104));
	page->slot[0].used = was;
	page->slot[0].stamp = 4711; /* somebody else's now */
	assert_true(tell(&a, 't', 100));
	assert_true(tell(&a, 'g', 160));
	assert_int_equal(page->slot[0].used, was);
	page->slot[0].stamp = 0;
	munmap(page, sizeof(*page));
	rank_end(&a);
	rank_end(&b);
}

static void a_file_open_to_others_a_link_and_a_pipe_are_not_used(void **state)
{
	char target[128];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		snprintf(target, sizeof(target), "%s/target", folder);
		put_file("", 0, 0600);
		if (i == 0)
			assert_int_equal(chmod(file, 0644), 0);
		else
			assert_int_equal(unlink(file), 0);
		if (i == 1)
			assert_int_equal(symlink(target, file), 0);
		else if (i == 2)
			assert_int_equal(mkfifo(file, 0600), 0);
		else if (i == 3)
			assert_int_equal(mkdir(file, 0700), 0);
		struct rank a = rank_start();
		assert_true(tell(&a, 't', 1000));
		rank_end(&a);
		assert_int_equal(access(target, F_OK), -1);
		assert_int_equal(i == 3 ? rmdir(file) : unlink(file), 0);
	}
}

static void where_files_may_not_be_large_there_is_none(void **state)
{
	int status;

	(void)state;
	pid_t child = fork();
	if (!child) {
		struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};

		CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
		arrange(ROOM, false);
		CHECK(quota_take(1000 * MIB));
		_exit(0);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	unlink(file);
}

static void a_full_table_leaves_the_next_its_own_budget(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 1));
	struct quota_page *page = map_file();
	for (unsigned i = 1; i < QUOTA_SLOTS; i++) {
		page->slot[i].pid = (uint64_t)getpid();
		page->slot[i].started = page->slot[0].started;
		page->slot[i].space = page->slot[0].space;
		page->slot[i].stamp = 1000 + i;
	}
	/* They are all this process, which was not started when a was. */
	assert_true(tell(&b, 't', 64 - 1));
	rank_end(&b);
	struct rank c = rank_start();
	uint64_t started = 0;
	struct rank d = rank_start();
	assert_true(tell(&d, 't', 1));
	for (unsigned i = 0; i < QUOTA_SLOTS; i++)
		if (page->slot[i].pid == (uint64_t)d.pid)
			started = page->slot[i].started;
	assert_true(started != 0);
	for (unsigned i = 0; i < QUOTA_SLOTS; i++) {
		if (page->slot[i].stamp)
			continue;
		page->slot[i].used = 0;
		page->slot[i].claim = 0;
		page->slot[i].pid = (uint64_t)d.pid;
		page->slot[i].started = started;
		page->slot[i].space = page->slot[0].space;
		page->slot[i].stamp = 2000 + i;
	}
	assert_true(tell(&c, 't', 1000));
	rank_kill(&d);
	rank_end(&a);
	rank_end(&c);
	munmap(page, sizeof(*page));
}

/* A pid of another namespace says nothing: the lock does. */
static void of_another_namespace_the_lock_decides(void **state)
{
	struct rank a = rank_start(), b = rank_start(), c = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 30) && tell(&b, 't', 30));
	struct quota_page *page = map_file();
	page->slot[0].space++;
	page->slot[0].pid = 1 << 30; /* nobody's here */
	page->slot[1].space = 0;
	assert_false(tell(&c, 't', 10));
	rank_kill(&a);
	assert_true(tell(&c, 't', 10));
	assert_int_equal(tell(&c, 'r', 0), 1);
	assert_false(tell(&c, 't', 30));
	rank_kill(&b);
	assert_true(tell(&c, 't', 50));
	munmap(page, sizeof(*page));
	rank_end(&c);
}

/* A claim of a process that has died on the way is found, one of a living one is not overlooked. */
static void a_claim_that_never_ends_counts_as_taken(void **state)
{
	struct rank a = rank_start(), b = rank_start();

	(void)state;
	assert_true(tell(&a, 't', 1) && tell(&b, 't', 1));
	struct quota_page *page = map_file();
	page->slot[0].claim = 60 * MIB;
	assert_true(tell(&b, 't', 2));
	assert_true(tell(&b, 'p', 20));
	assert_false(tell(&b, 't', 2));
	rank_kill(&a);
	assert_true(tell(&b, 't', 61));
	munmap(page, sizeof(*page));
	rank_end(&b);
}

/* Both want the last of it; the one that asks later is not refused for what the other then does not take. */
static void a_claim_of_another_is_waited_for(void **state)
{
	struct rank a = rank_start(), b = rank_start();
	uint64_t answer = 0;

	(void)state;
	assert_true(tell(&a, 't', 1) && tell(&b, 't', 1));
	struct quota_page *page = map_file();
	page->slot[1].claim = 60 * MIB;
	assert_int_equal(write(a.to, &(struct order){'t', 10}, sizeof(struct order)), sizeof(struct order));
	struct pollfd answered = {.fd = a.from, .events = POLLIN};
	while (!page->slot[0].claim && !poll(&answered, 1, 0))
		sched_yield();
	page->slot[1].claim = 0;
	assert_int_equal(read(a.from, &answer, sizeof(answer)), sizeof(answer));
	assert_true(answer);
	munmap(page, sizeof(*page));
	rank_end(&a);
	rank_end(&b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)
	const struct CMUnitTest tests[] = {
	    TEST(nothing_is_made_before_the_first_take_and_nothing_is_left_after_the_last),
	    TEST(one_alone_has_all_of_it_and_no_more),
	    TEST(the_total_is_the_firsts_unless_a_policy_says_another),
	    TEST(what_one_has_the_other_has_not),
	    TEST(who_has_less_than_his_part_comes_first),
	    TEST(what_is_spare_is_owed_to_who_is_short_and_no_more_than_is_short),
	    TEST(a_killed_one_leaves_its_share_to_who_is_short),
	    TEST(a_killed_one_that_nobody_has_waited_for_is_gone_as_well),
	    TEST(a_killed_one_is_found_without_anybody_being_short),
	    TEST(one_that_ends_keeps_its_bytes_and_not_its_part),
	    TEST(the_child_of_a_rank_has_no_share_and_takes_none_with_it),
	    TEST(sixty_four_at_once_never_have_more_than_there_is_and_none_starves),
	    TEST(killed_in_the_middle_of_it_they_take_nothing_with_them),
	    TEST(garbage_that_nobody_uses_is_replaced),
	    TEST(nonsense_in_the_slots_leaves_each_its_own_budget),
	    TEST(another_version_in_use_is_left_alone),
	    TEST(nonsense_that_comes_later_leaves_each_its_own_budget),
	    TEST(a_file_open_to_others_a_link_and_a_pipe_are_not_used),
	    TEST(where_files_may_not_be_large_there_is_none),
	    TEST(a_full_table_leaves_the_next_its_own_budget),
	    TEST(of_another_namespace_the_lock_decides),
	    TEST(a_claim_that_never_ends_counts_as_taken),
	    TEST(a_claim_of_another_is_waited_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
