/*
 * gpu_account.h by several processes: the sum of what they may have, their deaths, and files that are lost or foreign.
 */
#include "shim/accounting/gpu_account_page.h"
#include "shim/base/identity.h"
#include "shim/base/user_dir.h"
#include "test/check.h"
#include "test/rank.h"
#include "test/unit/quota_help.h"
#include "test/unit/seed.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TOTAL 64 /* MiB */

static unsigned char uuid[16] = {0xab, 1};
static struct gpu_account account;
static struct gpu_account_view view;
static struct gpu_account_member mine;
static struct gpu_job_view all;
static char path[160];
static bool stops_at_write;
static int child_waits[2]; /* a pipe: each child ends when it has read a byte */

/*
 * A process; 'j' N: join with a total of N MiB, 'r' N: raise to N MiB, 'd' N: down to N MiB, 'l': look, 'e': leave and
 * end. Answers: MiB that it may have; of 'l' how many members there are; 's': the sum of all, 't': the total, 'h' N:
 * holds N MiB from its next look on; 'f' N: fork a child that stays, and is told of the fork (0), or not. 'w': whose
 * turn it was at the last look (0: none, 1: its own, 2: of another); 'n': its number; 'p' N: gives it to itself (1),
 * another (2) or none (0), if it is as it was then. 'J' N: is of the job N from its next look on; 'u' N: joins the
 * account of GPU N; 'A': all accounts: 100 times the seats, 10 times the number of its own account, and 1 if it has the
 * turn there. 'S': the next write stops it. 'P' N: its slot is empty (0), or not, from its next look on. 'I': its pid
 * is that of its parent from its next look on, as in a container; 'X': it is in another PID namespace.
 */
static uint64_t obey(char order, unsigned n)
{
	uint64_t sum = 0;

	switch (order) {
	case 'j':
		return gpu_account_join(&account, uuid, n * MIB, &mine);
	case 'r':
		mine.may_have = gpu_account_raise(&account, mine.may_have, n * MIB);
		return mine.may_have / MIB;
	case 'd':
		mine.may_have = n * MIB;
		return gpu_account_look(&account, &mine, &view);
	case 'l':
		return gpu_account_look(&account, &mine, &view) ? view.n : 0;
	case 's':
		for (unsigned i = 0; i < view.n; i++)
			sum += view.members[i].may_have;
		return sum / MIB;
	case 't':
		return view.total / MIB;
	case 'm':
		return view.members[view.self].pid == (uint64_t)getpid();
	case 'w':
		return view.turn.holder == GPU_TURN_NOBODY ? 0 : view.turn.holder == view.self ? 1 : 2;
	case 'n':
		return view.turn.on ? view.turn.number : 0;
	case 'p':
		n = n == 0 ? GPU_TURN_NOBODY : n == 1 ? view.self : (view.self + 1) % view.n;
		return gpu_account_pass(&account, &view, true, n, 1);
	case 'S':
		stops_at_write = true;
		return 1;
	case 'J':
		mine.job = (struct gpu_job_claim){.process = (uint64_t)getpid(), .name = n};
		return 1;
	case 'P':
		mine.pid = n ? (uint64_t)getpid() : 0;
		return 1;
	case 'I':
	case 'X':
		mine.pid = (uint64_t)(order == 'I' ? getppid() : getpid());
		mine.space = 1;
		return 1;
	case 'u':
		uuid[0] = (unsigned char)n;
		return 1;
	case 'A':
		return gpu_account_all(&account, 1, &all)
			   ? 100 * all.n + 10 * all.seats[all.self].device +
				 (all.turns[all.seats[all.self].device].holder == all.seats[all.self].slot)
			   : 0;
	case 'f':
		gpu_account_forked();
		if (fork() == 0) {
			char word;

			alarm(60);
			if (!n)
				gpu_account_child(&account);
			_exit(read(child_waits[0], &word, 1) == 1 ? 0 : 1);
		}
		return 1;
	case 'h':
		mine.holds = n * MIB;
		return 1;
	default:
		gpu_account_leave(&account);
		_exit(order == 'e' ? 0 : 2);
	}
}

static void begin(const void *how)
{
	(void)how;
	mine.pid = (uint64_t)getpid();
	mine.started = user_dir_process_started(getpid());
	mine.space = identity_space();
}

static struct rank process(void)
{
	static const struct rank_part part = {.begin = begin, .obey = obey};

	return rank_start(&part, NULL);
}

static int make(void **state)
{
	int failed = make_folder(state);

	snprintf(path, sizeof(path), "%s/spillway/gpu-ab01%028d.account", folder, 0);
	return failed;
}

static int drop(void **state)
{
	unlink(path);
	return drop_folder(state);
}

/* ---- a process that is stopped in the midst of a change ---- */

/* The library's system calls: comes before the C library's. */
long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a[6];
	va_list list;

	va_start(list, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_pwrite64 && stops_at_write) {
		stops_at_write = false;
		raise(SIGSTOP);
	}
	if (!next)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void wait_until_stopped(const struct rank *rank)
{
	siginfo_t info;

	assert_int_equal(waitid(P_PID, (id_t)rank->pid, &info, WSTOPPED), 0);
	assert_int_equal(info.si_code, CLD_STOPPED);
}

static uint64_t ask_until(const struct rank *rank, char order, unsigned n, uint64_t wanted)
{
	uint64_t answer = rank_ask(rank, order, n);

	/* A process that is stopped is waited for for a second. */
	for (unsigned tries = 0; tries < 1000 && answer != wanted; tries++) {
		usleep(10000);
		answer = rank_ask(rank, order, n);
	}
	return answer;
}

/* It holds the lock of the file, and has read what is left. It must not take that when it goes on. */
static void who_is_stopped_while_it_changes_the_file_keeps_nobody_waiting(void **state)
{
	struct rank a = process(), b = process(), c = process();

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'r', 4), 4);
	for (unsigned round = 0; round < 2; round++) {
		rank_ask(&a, 'S', 0);
		rank_tell(&a, 'r', 40);
		wait_until_stopped(&a);
		assert_int_equal(ask_until(&b, 'r', 50, 50), 50);
		/* The lock is another one now: the next change waits for nobody. */
		assert_int_equal(rank_ask(&b, 'r', 60), 60);
		assert_int_equal(rank_ask(&b, 'l', 0), 2);
		assert_true(rank_ask(&b, 'p', 1));
		assert_int_equal(kill(a.pid, SIGCONT), 0);
		assert_int_equal(rank_hear(&a), 4);
		assert_int_equal(rank_ask(&a, 'l', 0), 2);
		assert_int_equal(rank_ask(&a, 's', 0), TOTAL);
		assert_int_equal(rank_ask(&a, 'w', 0), 2);
		assert_int_equal(rank_ask(&b, 'd', 10), 1);
		assert_int_equal(rank_ask(&a, 'r', 4), 4);
	}
	/* So does one that enters, and one that passes the turn. */
	rank_ask(&c, 'S', 0);
	rank_tell(&c, 'j', TOTAL);
	wait_until_stopped(&c);
	assert_int_equal(ask_until(&b, 'r', 60, 60), 60);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	rank_hear(&c);
	assert_int_equal(ask_until(&c, 'j', TOTAL, 1), 1);
	assert_int_equal(rank_ask(&c, 'l', 0), 3);
	rank_ask(&c, 'S', 0);
	rank_tell(&c, 'p', 1);
	wait_until_stopped(&c);
	assert_int_equal(rank_ask(&b, 'l', 0), 3);
	assert_int_equal(ask_until(&b, 'p', 1, 1), 1);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	assert_int_equal(rank_hear(&c), 0);
	rank_end(&a);
	rank_end(&b);
	rank_end(&c);
}

static void the_sum_is_never_more_than_the_total(void **state)
{
	struct rank a = process(), b = process();
	struct stat status;

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_int_equal(rank_ask(&a, 'r', 100), TOTAL);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'r', 10), 0);
	assert_int_equal(rank_ask(&b, 'l', 0), 2);
	assert_true(rank_ask(&b, 'm', 0));
	assert_true(rank_ask(&a, 'd', 40));
	assert_int_equal(rank_ask(&b, 'r', 30), 24);
	assert_int_equal(rank_ask(&a, 'r', 41), 40);
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&a, 's', 0) == TOTAL);
	rank_end(&b);
	assert_int_equal(rank_ask(&a, 'r', 60), 60);
	assert_int_equal(access(path, F_OK), 0);
	rank_end(&a);
	assert_int_equal(access(path, F_OK), -1);
}

static void the_dead_have_nothing(void **state)
{
	struct rank a = process(), b = process();

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'r', 50), 50);
	assert_int_equal(rank_ask(&b, 'r', 50), 14);
	rank_kill(&a);
	assert_int_equal(rank_ask(&b, 'r', 50), 50);
	assert_int_equal(rank_ask(&b, 'l', 0), 1);
	/* Its slot is free, too. */
	struct rank c = process();
	assert_true(rank_ask(&c, 'j', TOTAL));
	assert_int_equal(rank_ask(&c, 'r', 64), 14);
	rank_end(&c);
	rank_end(&b);
}

/*
 * What a process held on the device stays there as long as a child of it that did not exec: so it counts. But it is
 * dead: it has no turn, and what it might have had beside that is for the others. In another PID namespace nobody
 * knows. One that exits as the last does not remove the file.
 */
static void a_child_of_a_fork_keeps_what_its_parent_held(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 4; how++) {
		bool known = how != 2, exits = how == 3;
		struct rank a = process(), b = process();

		assert_true(known || rank_ask(&a, 'X', 0));
		assert_true(rank_ask(&a, 'j', TOTAL) && (exits || rank_ask(&b, 'j', TOTAL)));
		assert_int_equal(rank_ask(&a, 'r', 50), 50);
		assert_true(rank_ask(&a, 'h', 30) && rank_ask(&a, 'l', 0) && rank_ask(&a, 'p', 1));
		assert_true(rank_ask(&a, 'f', how % 3));
		(exits ? rank_end : rank_kill)(&a);
		assert_true(!exits || rank_ask(&b, 'j', TOTAL));
		assert_int_equal(rank_ask(&b, 'r', 64), known ? 34 : 14);
		assert_int_equal(rank_ask(&b, 'l', 0), 2);
		assert_int_equal(rank_ask(&b, 'w', 0), known ? 0 : 2);
		assert_int_equal(rank_ask(&b, 's', 0), 64);
		assert_int_equal(rank_ask(&b, 'A', 0), known ? 100 : 200);
		assert_int_equal(write(child_waits[1], "", 1), 1);
		for (unsigned tries = 0; tries < 5000 && rank_ask(&b, 'l', 0) != 1; tries++)
			usleep(1000);
		assert_int_equal(rank_ask(&b, 'l', 0), 1);
		assert_int_equal(rank_ask(&b, 'r', 64), 64);
		rank_end(&b);
	}
}

/* A damaged file is made again, although a child has it open. */
static void a_child_of_a_fork_does_not_keep_a_damaged_file(void **state)
{
	struct rank a = process();

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&a, 'l', 0) && rank_ask(&a, 'f', 0));
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'l', 0), 1);
	assert_int_equal(write(child_waits[1], "", 1), 1);
	rank_end(&a);
}

/* As process 1 of two containers. Who waits to enter must not take the other's memory for its own. */
static void another_process_of_the_same_pid_is_another(void **state)
{
	struct gpu_account_queue line = {0};
	struct gpu_account own = {0};
	struct rank a = process();

	(void)state;
	assert_true(rank_ask(&a, 'J', 7) && rank_ask(&a, 'I', 0) && rank_ask(&a, 'j', TOTAL));
	assert_int_equal(gpu_account_queue(&line, uuid, &view), GPU_ACCOUNT_FIRST);
	assert_int_equal(view.n, 1);
	assert_int_equal(view.members[0].pid, getpid());
	assert_int_equal(view.self, GPU_ACCOUNT_MOST);
	assert_int_equal(gpu_account_begin(&own, uuid, TOTAL * MIB, 0, MIB), MIB);
	assert_int_equal(gpu_account_queue(&line, uuid, &view), GPU_ACCOUNT_FIRST);
	assert_true(view.n == 2 && view.self == 1);
	gpu_account_queue_end(&line);
	close(own.fd);
	rank_end(&a);
}

static void the_last_to_join_sets_the_total(void **state)
{
	struct rank a = process(), b = process();

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'r', 64), 64);
	assert_true(rank_ask(&b, 'j', 32));
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&a, 't', 0) == 32);
	assert_int_equal(rank_ask(&b, 'r', 8), 0);
	assert_true(rank_ask(&a, 'd', 16));
	assert_int_equal(rank_ask(&b, 'r', 20), 16);
	rank_end(&a);
	rank_end(&b);
}

static void the_turn_of_a_dead_process_is_that_of_its_job(void **state)
{
	struct rank a = process(), b = process(), c = process();

	(void)state;
	assert_true(rank_ask(&a, 'J', 7) && rank_ask(&b, 'J', 8) && rank_ask(&c, 'J', 7));
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL) && rank_ask(&c, 'j', TOTAL));
	assert_true(rank_ask(&a, 'l', 0) && rank_ask(&a, 'p', 1));
	rank_kill(&a);
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&c, 'l', 0) == 2);
	assert_int_equal(rank_ask(&b, 'w', 0), 2);
	assert_int_equal(rank_ask(&c, 'w', 0), 1);
	assert_int_equal(rank_ask(&b, 'A', 0), 200);
	assert_int_equal(rank_ask(&c, 'A', 0), 201);
	/* Of a job without another process it is nobody's. */
	assert_true(rank_ask(&c, 'p', 2));
	rank_kill(&b);
	assert_true(rank_ask(&c, 'l', 0) == 1);
	assert_int_equal(rank_ask(&c, 'w', 0), 0);
	assert_int_equal(rank_ask(&c, 'A', 0), 100);
	rank_end(&c);
}

static void all_accounts_are_in_one_order(void **state)
{
	struct rank a = process(), b = process(), c = process();

	(void)state;
	/* c is of the second GPU, and has the turn there. */
	assert_true(rank_ask(&a, 'u', 0x11) && rank_ask(&b, 'u', 0x11));
	assert_true(rank_ask(&c, 'j', TOTAL) && rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_true(rank_ask(&c, 'l', 0) && rank_ask(&c, 'p', 1));
	assert_int_equal(rank_ask(&a, 'A', 0), 300);
	assert_int_equal(rank_ask(&b, 'A', 0), 300);
	assert_int_equal(rank_ask(&c, 'A', 0), 311);
	/* An account that is lost is not there, and neither is one that is damaged. */
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(rank_ask(&a, 'A', 0), 200);
	assert_int_equal(rank_ask(&c, 'A', 0), 0);
	rank_end(&a);
	assert_int_equal(rank_ask(&b, 'A', 0), 100);
	rank_end(&b);
	rank_end(&c);
}

static void a_file_that_is_lost_is_made_again(void **state)
{
	struct rank a = process(), b = process();

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'r', 40), 40);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rank_ask(&b, 'r', 20), 0);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'l', 0), 0);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'r', 64), 24);
	/* And one that is cut off. */
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_int_equal(rank_ask(&b, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'l', 0), 2);
	assert_int_equal(rank_ask(&b, 's', 0), 64);
	/* And one without a total. */
	uint64_t none = 0;
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &none, sizeof(none), offsetof(struct account_head, total)), sizeof(none));
	close(fd);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_int_equal(rank_ask(&b, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'l', 0), 2);
	assert_int_equal(rank_ask(&b, 't', 0), TOTAL);
	rank_end(&a);
	rank_end(&b);
}

static void a_file_of_another_version_is_left_alone_while_it_is_used(void **state)
{
	struct rank a = process(), b = process();
	uint64_t version = 99;

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL));
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
	close(fd);
	assert_false(rank_ask(&b, 'j', TOTAL));
	rank_kill(&a);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'r', 64), 64);
	rank_end(&b);
}

/* Nothing may divide by the number of members, or take another one for itself. */
static void who_is_not_in_the_file_any_more_leaves_it(void **state)
{
	struct rank a = process(), b = process();

	(void)state;
	for (unsigned alone = 0; alone < 2; alone++) {
		assert_true(rank_ask(&a, 'P', 1) && rank_ask(&a, 'j', TOTAL) && rank_ask(&a, 'l', 0));
		if (alone)
			rank_end(&b);
		else
			assert_true(rank_ask(&b, 'j', TOTAL));
		assert_true(rank_ask(&a, 'P', 0));
		assert_int_equal(rank_ask(&a, 'l', 0), 0);
		assert_true(rank_ask(&a, 'P', 1) && rank_ask(&a, 'j', TOTAL));
		assert_int_equal(rank_ask(&a, 'l', 0), alone ? 1 : 2);
	}
	rank_end(&a);
}

static void a_turn_is_given_once(void **state)
{
	struct rank a = process(), b = process();

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&b, 'l', 0) == 2);
	assert_true(rank_ask(&a, 'w', 0) == 0 && rank_ask(&a, 'n', 0) == 0);
	/* Both have seen that it is nobody's, and take it. */
	assert_true(rank_ask(&a, 'p', 1));
	assert_false(rank_ask(&b, 'p', 1));
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&b, 'l', 0) == 2);
	assert_true(rank_ask(&a, 'w', 0) == 1 && rank_ask(&b, 'w', 0) == 2 && rank_ask(&b, 'n', 0) == 1);
	/* It goes on to the other, while a third one joins. */
	struct rank c = process();
	assert_true(rank_ask(&c, 'j', TOTAL));
	assert_true(rank_ask(&a, 'p', 2));
	assert_false(rank_ask(&a, 'p', 1));
	assert_true(rank_ask(&b, 'l', 0) == 3 && rank_ask(&b, 'w', 0) == 1 && rank_ask(&b, 'n', 0) == 2);
	rank_end(&c);
	rank_end(&b);
	rank_end(&a);
}

static void the_dead_have_no_turn(void **state)
{
	struct rank a = process(), b = process();

	(void)state;
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&a, 'p', 1));
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&b, 'w', 0) == 2);
	rank_kill(&a);
	assert_true(rank_ask(&b, 'l', 0) == 1 && rank_ask(&b, 'w', 0) == 0);
	/* Not that of the process that comes into its slot either. */
	struct rank c = process();
	assert_true(rank_ask(&c, 'j', TOTAL));
	assert_true(rank_ask(&c, 'l', 0) == 2 && rank_ask(&c, 'w', 0) == 0);
	/* What the other saw before is out of date. */
	assert_false(rank_ask(&b, 'p', 1));
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&b, 'p', 1));
	/* A file that is made again has no turn. */
	assert_int_equal(truncate(path, 100), 0);
	assert_false(rank_ask(&b, 'p', 1));
	assert_int_equal(rank_ask(&b, 'l', 0), 0);
	assert_int_equal(rank_ask(&c, 'l', 0), 0);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_true(rank_ask(&b, 'l', 0) == 1 && rank_ask(&b, 'w', 0) == 0 && rank_ask(&b, 'n', 0) == 0);
	rank_end(&c);
	rank_end(&b);
}

/* Processes that take, give, die and come, all at once. */
static void many_at_once_never_have_more_than_the_total(void **state)
{
	enum { RANKS = 6, ROUNDS = 300 };
	struct seed dice = seed_start("gpu_account_test");
	struct rank ranks[RANKS];

	(void)state;
	for (unsigned i = 0; i < RANKS; i++) {
		ranks[i] = process();
		while (!rank_ask(&ranks[i], 'j', TOTAL))
			;
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		char order[RANKS];

		for (unsigned i = 0; i < RANKS; i++) {
			unsigned most = (unsigned)seed_below(&dice, TOTAL);

			order[i] = seed_below(&dice, 3) ? 'r' : 'd';
			/* Down, never up: half of nothing is nothing. */
			rank_tell(&ranks[i], order[i], order[i] == 'd' ? 0 : most);
		}
		for (unsigned i = 0; i < RANKS; i++)
			rank_hear(&ranks[i]);
		unsigned victim = (unsigned)seed_below(&dice, RANKS);
		if (round % 20 == 0) {
			rank_kill(&ranks[victim]);
			ranks[victim] = process();
			assert_true(rank_ask(&ranks[victim], 'j', TOTAL));
		}
		assert_int_equal(rank_ask(&ranks[victim], 'l', 0), RANKS);
		assert_true(rank_ask(&ranks[victim], 's', 0) <= TOTAL);
	}
	for (unsigned i = 0; i < RANKS; i++)
		rank_end(&ranks[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
	const struct CMUnitTest tests[] = {
	    TEST(the_sum_is_never_more_than_the_total),
	    TEST(the_dead_have_nothing),
	    TEST(a_child_of_a_fork_keeps_what_its_parent_held),
	    TEST(a_child_of_a_fork_does_not_keep_a_damaged_file),
	    TEST(another_process_of_the_same_pid_is_another),
	    TEST(the_last_to_join_sets_the_total),
	    TEST(a_file_that_is_lost_is_made_again),
	    TEST(a_file_of_another_version_is_left_alone_while_it_is_used),
	    TEST(who_is_stopped_while_it_changes_the_file_keeps_nobody_waiting),
	    TEST(who_is_not_in_the_file_any_more_leaves_it),
	    TEST(a_turn_is_given_once),
	    TEST(the_dead_have_no_turn),
	    TEST(the_turn_of_a_dead_process_is_that_of_its_job),
	    TEST(all_accounts_are_in_one_order),
	    TEST(many_at_once_never_have_more_than_the_total),
	};

	return pipe(child_waits) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
