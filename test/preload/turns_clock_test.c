// SPDX-License-Identifier: Apache-2.0
/*
 * share: turns, where a process is in another time namespace: what it publishes says nothing to the others. Those with
 * the clock of most take turns; the others take none, say so, and go on in what they may have. Skipped where time
 * namespaces cannot be made; without root they are made in a user namespace.
 */
#include "shim/base/clock.h"
#include "test/preload/tool.h"
#include "test/preload/turns_help.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

#define FEW     1
#define MOST    5
#define ROUNDS  200
#define DIFFERS "share: this process takes no turns on device 0: its clock is not that of the others there"

/* ---- a rank ---- */

/* The clock of a rank: seconds before that of the test; or that of another process. */
struct clock {
	long ahead;
	pid_t as;
};

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return written;
}

static bool map_ids(uid_t user, gid_t group)
{
	char map[64];

	snprintf(map, sizeof(map), "%u %u 1", (unsigned)user, (unsigned)user);
	if (!write_text("/proc/self/setgroups", "deny") || !write_text("/proc/self/uid_map", map))
		return false;
	snprintf(map, sizeof(map), "%u %u 1", (unsigned)group, (unsigned)group);
	return write_text("/proc/self/gid_map", map);
}

/* Goes into a new time namespace, which for others would begin with their next child. */
static bool enter_new(long ahead)
{
	uid_t user = geteuid();
	gid_t group = getegid();
	char offsets[64];

	snprintf(offsets, sizeof(offsets), "monotonic %ld 0\nboottime %ld 0\n", ahead, ahead);
	return unshare((user ? CLONE_NEWUSER : 0) | CLONE_NEWTIME) == 0 && (!user || map_ids(user, group)) &&
	       write_text("/proc/self/timens_offsets", offsets);
}

/* Goes into a namespace of that process, or "self". */
static bool enter(const char *process, const char *what, int type)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/ns/%s", process, what);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool entered = fd >= 0 && setns(fd, type) == 0;
	if (fd >= 0)
		close(fd);
	return entered;
}

static bool enter_clock(const struct clock *clock)
{
	char process[16];

	if (!clock->as)
		return enter_new(clock->ahead) && enter("self", "time_for_children", CLONE_NEWTIME);
	snprintf(process, sizeof(process), "%d", (int)clock->as);
	return (geteuid() == 0 || enter(process, "user", CLONE_NEWUSER)) && enter(process, "time", CLONE_NEWTIME);
}

static void begin(const void *clock)
{
	const struct clock *its = clock;

	turns_begin(TURNS(""));
	CHECK((!its->ahead && !its->as) || enter_clock(its));
}

static struct rank start(struct clock clock, unsigned needs)
{
	static const struct rank_part part = {.begin = begin, .obey = turns_obey};

	return turns_start(&part, &clock, needs);
}

/* ---- the parts ---- */

static const struct clock own;

static struct clock ahead(void)
{
	return (struct clock){.ahead = 100000};
}

/* It cannot be before the machine started, which was some seconds ago at least. */
static struct clock behind(void)
{
	return (struct clock){.ahead = -(long)(clock_now() / 2000000000)};
}

static void step_all(const struct rank *ranks, unsigned n)
{
	turns_do(ranks, n, 's', 20);
	account_check();
}

/* It is said at the next look, soon. */
static void step_until_log_says(const struct rank *ranks, unsigned n, const char *words)
{
	for (unsigned round = 0; round < ROUNDS && !log_has(words); round++)
		step_all(ranks, n);
	assert_true(log_says(words));
}

static void leave_out(struct clock clock)
{
	struct rank ranks[3];

	ranks[0] = start(own, TURNS_NEEDS);
	ranks[1] = start(own, TURNS_NEEDS);
	turns_run(ranks, 2, 1);
	ranks[2] = start(clock, FEW);
	step_until_log_says(ranks, 3, DIFFERS);
	turns_run(ranks, 2, 2);
	assert_int_equal(account_turns(&ranks[2]), 0);
	assert_true(tool_tells("other clock", "list"));
	assert_true(log_says("share: 2 processes need 48.0 MiB"));
	turns_end(ranks, 3);
}

TEST(who_is_ahead_of_the_others_takes_no_turns_and_says_so)
{
	leave_out(ahead());
}

TEST(who_is_behind_the_others_takes_no_turns_and_says_so)
{
	leave_out(behind());
}

static void take_no_turns(struct clock clock)
{
	static struct account_page page;
	struct rank ranks[2];

	ranks[0] = start(own, TURNS_NEEDS);
	ranks[1] = start(clock, TURNS_NEEDS);
	step_until_log_says(ranks, 2, DIFFERS);
	for (unsigned round = 0; round < 5; round++)
		step_all(ranks, 2);
	assert_true(account_read(&page) && page.head.turn.number == 0);
	assert_false(log_has("take turns"));
	turns_end(ranks, 2);
}

TEST(two_with_different_clocks_take_no_turns_and_do_not_say_that_they_do)
{
	take_no_turns(ahead());
	take_no_turns(behind());
}

/* The account is that of another namespace, until more come from here, and when they have gone. */
TEST(the_clock_of_the_account_is_that_of_most)
{
	struct rank ranks[MOST];

	ranks[0] = start(ahead(), TURNS_NEEDS);
	ranks[1] = start((struct clock){.as = ranks[0].pid}, TURNS_NEEDS);
	ranks[2] = start(own, FEW);
	turns_run(ranks, 2, 2);
	assert_int_equal(account_turns(&ranks[2]), 0);
	for (unsigned i = 3; i < MOST; i++)
		ranks[i] = start(own, FEW);
	step_until_log_says(ranks, MOST,
			    "5 processes need 60.0 MiB of device 0, and have 32.0 MiB together "
			    "(device.total): 3 of them take turns");
	turns_check_and_end(ranks + 3, MOST - 3);
	turns_run(ranks, 2, 2);
	uint64_t had = account_turns(&ranks[2]);
	turns_run(ranks, 2, 2);
	assert_int_equal(account_turns(&ranks[2]), had);
	turns_end(ranks, 3);
}

static int may_not(void)
{
	struct clock clock = ahead();
	int status;
	pid_t child = fork();

	if (!child)
		_exit(!enter_clock(&clock));
	return waitpid(child, &status, 0) != child || status != 0;
}

EACH_TEST(begin_log, folder_remove)

int main(void)
{
	if (may_not()) {
		printf("skipped: this system lets us make no time namespaces\n");
		return 77;
	}
	return turns_main(test_run);
}
