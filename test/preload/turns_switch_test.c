// SPDX-License-Identifier: Apache-2.0
/*
 * share: turns, in the middle of a switch: the memory of one process leaves, and that of the next comes. A rank is a
 * process of its own, with a simulated GPU of its own, that does what it is told (turns_test.c). A call of the driver
 * that stands still keeps a switch in its middle for as long as the test looks.
 */
#include "shim/spillway.h"
#include "test/preload/tool.h"
#include "test/preload/turns_help.h"

#include <stdatomic.h>

#define SET(host) TURNS_SET(",share=turns,host.budget=" host)
#define SETTINGS  TURNS("")

/* ---- a rank ---- */

static _Atomic bool told; /* by SIGUSR1 */

/* While the thread that obeys is in a step. */
static void *go_on_when_told(void *unused)
{
	sigset_t set;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigwait(&set, &signal);
	atomic_store(&told, true);
	sim_go_on();
	return NULL;
}

static void listen_for_signal(void)
{
	atomic_store(&told, false);
	pthread_detach(test_thread(go_on_when_told, NULL));
}

static uint64_t stall(const char *name, unsigned n)
{
	listen_for_signal();
	sim_stall_at(name, n);
	return 1;
}

static uint64_t step_until_told(void)
{
	listen_for_signal();
	while (!atomic_load(&told))
		turns_obey('s', 1);
	return 1;
}

static void one_step(void)
{
	turns_obey('s', 1);
}

/* Makes the second block dead, and those behind it until this one, or has them born and filled. */
static void set_alive(bool alive, unsigned end)
{
	for (unsigned i = 1; i < end; i++) {
		void *block = (void *)(uintptr_t)turns_blocks[i]; /* NOLINT(performance-no-int-to-ptr) */

		CHECK((alive ? spillway_born(block, 4 * MIB) : spillway_discard(block, 4 * MIB)) == 0);
	}
}

static void work_for(uint64_t ms, unsigned n)
{
	for (uint64_t end = test_now() / 1000000 + ms; test_now() / 1000000 < end;) {
		turns_fills++;
		for (unsigned i = 0; i < n; i++)
			turns_write(turns_blocks[i], turns_fills + i);
		turns_rest();
		MUST(cu.cuCtxSynchronize());
	}
}

/* Long steps: for a short time at their beginning little is alive, then everything. */
static uint64_t long_steps(unsigned n)
{
	for (; n; n--) {
		set_alive(false, turns_n_blocks);
		work_for(20, 1);
		set_alive(true, turns_n_blocks);
		turns_obey('a', 0);
		work_for(700, turns_n_blocks);
	}
	return 1;
}

/* The first block is written afterwards, so that the deaths of the others count. */
static uint64_t let_die(unsigned n)
{
	set_alive(false, n + 1);
	turns_write(turns_blocks[0], turns_fills);
	MUST(cu.cuCtxSynchronize());
	return 1;
}

static bool pin_one(unsigned i)
{
	return spillway_pin((const void *)(uintptr_t)turns_blocks[i]) == 0; /* NOLINT(performance-no-int-to-ptr) */
}

static bool pin_what_left(unsigned first)
{
	unsigned last = turns_n_blocks - 1;

	while (first < last && sim_where(turns_blocks[first]))
		first++;
	while (last > first && sim_where(turns_blocks[last]))
		last--;
	return pin_one(first) && pin_one(last);
}

/* Returns the MiB on the device when a call stands still, 0 if none does. */
static uint64_t device_mib_in_stall(void)
{
	for (unsigned i = 0; i < TURNS_TRIES && !sim_stalled(); i++)
		usleep(2000);
	return sim_stalled() ? sim_live().device_bytes / MIB : 0;
}

/* The control thread takes back what the process gave up, and looks every 100 ms. */
static bool resume_itself(unsigned most)
{
	int status = spillway_resume();

	for (unsigned tries = 1; status == -ENOMEM && tries < most; tries++) {
		usleep(2000);
		status = spillway_resume();
	}
	return status == 0;
}

/* Some of them are mapped on the host, at some moment of the next 100 ms. Makes no submission. */
static bool any_is_mapped_on_host(void)
{
	for (unsigned look = 0; look < 50; look++) {
		for (unsigned i = 0; i < turns_n_blocks; i++)
			if (sim_where(turns_blocks[i]) == 'H')
				return true;
		usleep(2000);
	}
	return false;
}

/*
 * turns_obey(), and 'A' N: allocate N blocks, and do not fill them; 'w' N: steps until N MiB are pinned; 'W' N: the same
 * where not all blocks fit on the device; 'l' N: N long ones, of which little is alive at times; 'o': steps until
 * SIGUSR1; 'r' N: the Nth release of memory from now stands still, until SIGUSR1; 'm' N: the same for one that is made;
 * 'k' N: for a copy; 'p': MiB on the device in a stall; 'z' N: N blocks die; 'n': whether nothing is mapped on the
 * host; 'i' N: 2 MiB of host memory take N ms to make from now; 'h': MiB of it there are; 'H' N: the system pins N MiB
 * at most; 'P' N: of what has left, and is mapped nowhere, the library pins the first and the last block from block N
 * on; 'R' N: go on after a suspension, in N tries at most.
 */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'A':
		for (; n; n--)
			turns_blocks[turns_n_blocks++] = child_alloc(4 * MIB);
		return 1;
	case 'w':
		return turns_until_pinned(one_step, turns_n_blocks, n);
	case 'W':
		return turns_until_pinned(one_step, TURNS_MIB / 4 - 1, n);
	case 'l':
		return long_steps(n);
	case 'o':
		return step_until_told();
	case 'r':
		return stall("cuMemRelease", n);
	case 'm':
		return stall("cuMemCreate", n);
	case 'k':
		return stall("cuMemcpyDtoDAsync_v2", n);
	case 'p':
		return device_mib_in_stall();
	case 'z':
		return let_die(n);
	case 'n':
		return !any_is_mapped_on_host();
	case 'i':
		sim_switch("PIN_US", n * (size_t)1000);
		return 1;
	case 'P':
		return pin_what_left(n);
	case 'R':
		return resume_itself(n);
	case 'h':
		return sim_live().host_bytes / MIB;
	case 'H':
		sim_switch("HOST_MEMORY", n * MIB);
		return 1;
	default:
		return turns_obey(what, n);
	}
}

static void begin(const void *settings)
{
	sigset_t set;

	/* In all threads. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	turns_begin(settings);
}

static const struct rank_part part = {.begin = begin, .obey = obey};

/* ---- what is published ---- */

/* Reads what a rank has published. Returns false if that cannot be read now; *ret_holder: whether it has the turn. */
static bool published(const struct rank *rank, struct gpu_account_member *ret, bool *ret_holder)
{
	struct account_page page;
	const struct gpu_account_member *member = account_read(&page) ? account_member(&page, rank) : NULL;

	if (!member)
		return false;
	*ret = *member;
	*ret_holder = false;
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++)
		*ret_holder |= &page.slot[i] == member && page.head.turn.holder == i + 1;
	return true;
}

/* The first has the turn and nothing to do, the other is away. */
static void give_first_the_turn(const struct rank ranks[2])
{
	struct gpu_account_member first;
	bool has_it;

	for (unsigned round = 0; round < TURNS_TRIES; round++) {
		assert_true(rank_ask(&ranks[0], 's', 1));
		if (published(&ranks[0], &first, &has_it) && has_it && !first.claim.moving && !first.claim.away)
			return;
	}
	fail_msg("it has no turn");
}

static void start_two(struct rank ranks[2], const char *first_settings)
{
	for (unsigned i = 0; i < 2; i++)
		ranks[i] = turns_start(&part, i ? SETTINGS : first_settings, TURNS_NEEDS);
	turns_run(ranks, 2, 1);
	give_first_the_turn(ranks);
}

static void let_go_on(const struct rank *rank)
{
	assert_int_equal(kill(rank->pid, SIGUSR1), 0);
}

/* The second makes steps while the memory of the first stands still in the middle of leaving. */
static void stop_in_the_middle(const struct rank ranks[2])
{
	struct gpu_account_member first, second;
	bool has_it;

	assert_true(published(&ranks[1], &second, &has_it));
	uint64_t before = second.holds;
	assert_true(rank_ask(&ranks[0], 'r', 3));
	rank_tell(&ranks[1], 's', 1);
	for (unsigned tries = 0; tries < TURNS_TRIES; tries++) {
		if (published(&ranks[0], &first, &has_it) && !has_it && first.claim.moving && !first.claim.away &&
		    published(&ranks[1], &second, &has_it) && has_it && second.holds >= before + 4 * MIB) {
			account_check();
			return;
		}
		usleep(2000);
	}
	fail_msg("nothing came while memory was leaving");
}

/* ---- the parts ---- */

/* The other has the turn, and memory of its own, while that of the first is still leaving. */
TEST(memory_comes_while_that_of_another_leaves)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_in_the_middle(ranks);
	let_go_on(&ranks[0]);
	assert_true(rank_hear(&ranks[1]));
	turns_run_and_end(ranks, 2, 2);
}

/* What it has not given up does not come; the other goes on with the rest, and with all of it once the slot is free. */
TEST(one_that_is_killed_while_its_memory_leaves_is_not_waited_for)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_in_the_middle(ranks);
	rank_kill(&ranks[0]);
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[1], 's', 5) && rank_ask(&ranks[1], 'c', 0));
	ranks[0] = turns_start(&part, SETTINGS, TURNS_NEEDS);
	turns_run_and_end(ranks, 2, 2);
}

/* A driver that does not take its memory back in time: the other begins with what there is. */
TEST(memory_that_does_not_leave_in_time_is_not_waited_for)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_in_the_middle(ranks);
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[1], 'c', 0));
	account_check();
	let_go_on(&ranks[0]);
	turns_run_and_end(ranks, 2, 2);
}

/* Returns whether what the first has published is of a later time than before. *ret: what it is. */
static bool shows_itself(const struct rank *rank, struct gpu_account_member *ret)
{
	uint64_t before = ret->claim.beat;
	bool has_it;

	return published(rank, ret, &has_it) && ret->claim.beat != before;
}

/* Suspends it on request. */
static void *suspend(void *rank)
{
	CHECK(tool_tells("", "suspend %d", (int)((const struct rank *)rank)->pid));
	return NULL;
}

static void resume(const struct rank *rank)
{
	assert_true(tool_tells("", "resume %d", (int)rank->pid));
}

/* Returns once the second has the turn, and its memory stands still in the middle of coming. */
static void stop_the_second(const struct rank ranks[2])
{
	struct gpu_account_member second;
	bool has_it = false;

	assert_true(rank_ask(&ranks[1], 'm', 2));
	rank_tell(&ranks[1], 's', 1);
	/* The first leaves at once, as it has nothing to do, and is to have work when the other is gone. */
	for (unsigned tries = 0; tries < TURNS_TRIES && !has_it; tries++) {
		bool known = published(&ranks[1], &second, &has_it);

		has_it = known && has_it && second.claim.moving && second.claim.away;
		usleep(2000);
	}
	assert_true(has_it);
	rank_tell(&ranks[0], 's', 1);
}

TEST(the_other_goes_on_when_one_is_killed_while_its_memory_comes)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_the_second(ranks);
	rank_kill(&ranks[1]);
	assert_true(rank_hear(&ranks[0]) && rank_ask(&ranks[0], 'c', 0));
	ranks[1] = turns_start(&part, SETTINGS, TURNS_NEEDS);
	turns_run_and_end(ranks, 2, 2);
}

/* Its turn is given to the other meanwhile; it waits for the next one. */
TEST(one_that_is_stopped_while_its_memory_comes_loses_its_turn)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_the_second(ranks);
	assert_int_equal(kill(ranks[1].pid, SIGSTOP), 0);
	assert_true(rank_hear(&ranks[0]) && rank_ask(&ranks[0], 'c', 0));
	account_check();
	assert_int_equal(kill(ranks[1].pid, SIGCONT), 0);
	let_go_on(&ranks[1]);
	assert_true(rank_hear(&ranks[1]));
	turns_run_and_end(ranks, 2, 2);
}

/* What the first has given up is what the second is about to take, which stands still before it does. */
TEST(one_that_waits_for_its_turn_takes_nothing_back_when_it_is_resumed)
{
	struct gpu_account_member before = {0}, after;
	struct rank ranks[2];
	bool has_it;

	start_two(ranks, SETTINGS);
	stop_in_the_middle(ranks);
	assert_int_equal(kill(ranks[1].pid, SIGSTOP), 0);
	let_go_on(&ranks[0]);
	for (unsigned tries = 0; tries < TURNS_TRIES && (!before.claim.away || before.claim.moving); tries++) {
		usleep(1000);
		published(&ranks[0], &before, &has_it);
	}
	resume(&ranks[0]);
	assert_true(published(&ranks[0], &after, &has_it) && after.claim.away && !after.claim.moving);
	assert_int_equal(after.may_have, before.may_have);
	assert_int_equal(kill(ranks[1].pid, SIGCONT), 0);
	assert_true(rank_hear(&ranks[1]));
	turns_run_and_end(ranks, 2, 2);
}

/* Copies begin at once: what is dead leaves while they run. More has to leave than what is dead. */
TEST(copies_do_not_wait_until_the_dead_have_left)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	assert_true(rank_ask(&ranks[0], 's', 1) && rank_ask(&ranks[0], 'z', 2) && rank_ask(&ranks[0], 'k', 1));
	rank_tell(&ranks[1], 's', 1);
	assert_int_equal(rank_ask(&ranks[0], 'p', 0), TURNS_NEEDS * 4);
	let_go_on(&ranks[0]);
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[0], 'a', 0));
	turns_run_and_end(ranks, 2, 2);
}

/* It comes back before it is used. */
TEST(what_has_left_for_another_is_mapped_nowhere)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	/* What began on the host is on the device now. */
	turns_run(ranks, 2, 2);
	give_first_the_turn(ranks);
	assert_true(rank_ask(&ranks[1], 'n', 0));
	turns_run_and_end(ranks, 2, 2);
}

/*
 * A suspension on request that stands still in its middle. The one that is suspended goes on to show itself, has given
 * its turn on, and takes no part, so that the other works.
 */
TEST(one_that_is_being_suspended_is_not_waited_for)
{
	struct gpu_account_member first = {0}, second;
	struct rank ranks[2];
	unsigned shown = 0;
	bool has_it;

	start_two(ranks, SETTINGS);
	assert_true(rank_ask(&ranks[0], 'r', 3));
	pthread_t suspends = test_thread(suspend, &ranks[0]);
	for (unsigned tries = 0; tries < TURNS_TRIES && shown < 20; tries++) {
		shown += shows_itself(&ranks[0], &first) && first.claim.moving && first.claim.kind == GPU_TURN_OFF;
		usleep(2000);
	}
	assert_int_equal(shown, 20);
	account_check();
	assert_true(published(&ranks[0], &first, &has_it) && !has_it);
	assert_true(rank_ask(&ranks[1], 's', 5) && rank_ask(&ranks[1], 'c', 0));
	assert_true(published(&ranks[1], &second, &has_it) && published(&ranks[0], &first, &has_it));
	assert_true(first.claim.moving && !second.claim.away);
	account_check();
	let_go_on(&ranks[0]);
	pthread_join(suspends, NULL);
	resume(&ranks[0]);
	turns_run_and_end(ranks, 2, 2);
}

/*
 * Who is suspended on request looks every 100 ms, whatever the others do. It says itself when it has looked, and a slow
 * machine makes that no sooner.
 */
TEST(one_that_is_suspended_looks_seldom)
{
	struct gpu_account_member first = {0};
	struct rank ranks[2];
	unsigned looks = 0;

	start_two(ranks, SETTINGS);
	suspend(&ranks[0]);
	rank_tell(&ranks[1], 's', 20);
	for (unsigned tries = 0; tries < TURNS_TRIES && looks < 8; tries++) {
		uint64_t before = first.claim.beat;

		if (shows_itself(&ranks[0], &first) && ++looks > 3)
			assert_true(first.claim.beat - before >= 90000000);
		usleep(1000);
	}
	assert_int_equal(looks, 8);
	assert_true(rank_hear(&ranks[1]));
	resume(&ranks[0]);
	turns_run_and_end(ranks, 2, 2);
}

struct first_turn {
	const char *settings;
	unsigned blocks; /* how many the first has without the last two */
	unsigned more;   /* what the other, which uses nothing, needs then beside its first three */
};

static const struct first_turn small = {SETTINGS, 4, 3};
/* With more memory: of the 120 MiB of the first, 100 are to leave. */
static const struct first_turn large = {
    "SPILLWAY_SET=device.total=128MiB,report.summary=no,share.quantum=20ms,share=turns,host.budget=256MiB", 28, 24};

/*
 * Starts two of which the first has its first turn: it has never left, and nothing is pinned for that. It begins with
 * turns because it needs more than there is, and has the first one, unless the other sees that before: then returns
 * false. ms: what 2 MiB of host memory take the first from now.
 */
static bool begin_first_turn(struct rank ranks[2], const struct first_turn *how, unsigned ms)
{
	struct gpu_account_member member = {0};
	bool has_it = false;

	for (unsigned i = 0; i < 2; i++)
		ranks[i] = rank_start(&part, how->settings);
	for (unsigned i = 0; i < 2; i++)
		assert_true(rank_ask(&ranks[i], 'd', 0));
	assert_true(rank_ask(&ranks[0], 'a', how->blocks) && rank_ask(&ranks[1], 'A', 3));
	for (unsigned looks = 0; looks < TURNS_TRIES && member.needs < 12 * MIB; looks++) {
		published(&ranks[1], &member, &has_it);
		usleep(1000);
	}
	assert_true(rank_ask(&ranks[0], 'a', 2) && rank_ask(&ranks[0], 'i', ms));
	for (unsigned looks = 0; looks < TURNS_TRIES && !member.claim.n; looks++) {
		assert_true(rank_ask(&ranks[0], 's', 1));
		published(&ranks[0], &member, &has_it);
	}
	assert_true(rank_ask(&ranks[1], 'A', how->more));
	/* What a switch costs is known to a process that has left. */
	return has_it && !member.claim.cost;
}

/*
 * Tries until the first has its first turn, and shows() has seen what it is to look at. Only what the first holds is
 * checked, in which nothing may be dead then: the memory of the second was never filled.
 */
static void in_first_turn(const struct first_turn *how, unsigned ms, bool (*shows)(const struct rank ranks[2]))
{
	bool is_shown = false;

	for (unsigned tries = 0; tries < 30 && !is_shown; tries++) {
		struct rank ranks[2];

		is_shown = begin_first_turn(ranks, how, ms) && shows(ranks);
		assert_true(rank_ask(&ranks[0], 'c', 0));
		for (unsigned i = 0; i < 2; i++)
			rank_end(&ranks[i]);
	}
	assert_true(is_shown);
}

/* Of its 24 MiB it may keep 6 or 7 beside the other. */
static bool pins_before(const struct rank ranks[2])
{
	assert_true(rank_ask(&ranks[0], 'w', 16));
	return true;
}

TEST(host_memory_is_pinned_before_it_is_needed)
{
	in_first_turn(&small, 0, pins_before);
}

/* Of 36 MiB it may keep 6 or 7. A reserve for what moves in its turn is a part of what is pinned, but much less. */
static bool pins_for_a_part(const struct rank ranks[2])
{
	assert_true(rank_ask(&ranks[0], 'a', 3) && rank_ask(&ranks[0], 'W', 28));
	return true;
}

TEST(host_memory_is_pinned_also_where_a_part_is_on_the_host)
{
	in_first_turn(&small, 0, pins_for_a_part);
}

/* ns of turns that it has had, as it has published last. */
static uint64_t got(const struct rank *rank)
{
	struct gpu_account_member member;
	bool has_it;

	for (unsigned looks = 0; looks < TURNS_TRIES; looks++) {
		if (published(rank, &member, &has_it))
			return member.claim.got;
		usleep(1000);
	}
	fail_msg("it publishes nothing");
	return 0;
}

/* The other waits, and the first works. When a half is pinned, or less, the rest takes more than a second. */
static bool goes_on(const struct rank ranks[2])
{
	if (!rank_ask(&ranks[0], 'w', 24) || rank_ask(&ranks[0], 'h', 0) > 50)
		return false;
	uint64_t before = got(&ranks[0]);

	rank_tell(&ranks[0], 'o', 0);
	assert_true(rank_ask(&ranks[1], 's', 1));
	uint64_t ns = got(&ranks[0]) - before;
	let_go_on(&ranks[0]);
	assert_true(rank_hear(&ranks[0]));
	assert_true(ns >= 400 * UINT64_C(1000000));
	return true;
}

TEST(a_turn_goes_on_while_host_memory_is_pinned)
{
	in_first_turn(&large, 50, goes_on);
}

/* It has nothing to do, so the other does not wait. A half is dead: 40 MiB are pinned to be copied, and a reserve. */
static bool ends_without_work(const struct rank ranks[2])
{
	assert_true(rank_ask(&ranks[0], 'z', 15) && rank_ask(&ranks[1], 's', 1));
	assert_in_range(rank_ask(&ranks[0], 'h', 0), 0, 56);
	assert_true(rank_ask(&ranks[0], 'a', 0));
	return true;
}

TEST(a_turn_without_work_ends_while_host_memory_is_pinned)
{
	in_first_turn(&large, 200, ends_without_work);
}

/* All of it is on the device then. For some seconds after a refusal none is pinned ahead. */
static void refuse_to_pin_ahead(const struct rank *rank)
{
	assert_true(rank_ask(rank, 'H', 1) && rank_ask(rank, 'w', 0) && rank_ask(rank, 'H', 256));
}

/*
 * 16 MiB are dead. When the fourth piece is pinned, they have been given back, and at least one piece that has left,
 * unless the machine was too slow for its copy.
 */
static bool gives_back_while_it_pins(const struct rank ranks[2])
{
	refuse_to_pin_ahead(&ranks[0]);
	assert_true(rank_ask(&ranks[0], 'z', 4) && rank_ask(&ranks[0], 'm', 4));
	rank_tell(&ranks[1], 's', 1);
	uint64_t mib = rank_ask(&ranks[0], 'p', 0);
	assert_in_range(mib, 1, 104);
	let_go_on(&ranks[0]);
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[0], 'a', 0));
	return mib <= 100;
}

TEST(what_has_left_is_given_back_while_memory_is_pinned_for_the_rest)
{
	in_first_turn(&large, 50, gives_back_while_it_pins);
}

/*
 * The memory of one leaves for five seconds. What is dead has none by then, and what has left is mapped nowhere: it is
 * pinned by a call all the same, whatever left before it.
 */
static bool pins_what_has_left(const struct rank ranks[2])
{
	struct gpu_account_member first = {.holds = UINT64_MAX};
	bool has_it;

	refuse_to_pin_ahead(&ranks[0]);
	assert_true(rank_ask(&ranks[0], 'z', 4));
	rank_tell(&ranks[1], 's', 1);
	for (unsigned looks = 0; looks < TURNS_TRIES && first.holds > 60 * MIB; looks++) {
		published(&ranks[0], &first, &has_it);
		usleep(1000);
	}
	if (first.claim.moving)
		assert_true(rank_ask(&ranks[0], 'P', 1) && rank_ask(&ranks[0], 'P', 5));
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[0], 'a', 0));
	return first.claim.moving;
}

TEST(what_has_left_can_be_pinned_while_the_rest_leaves)
{
	in_first_turn(&large, 100, pins_what_has_left);
}

/* Returns once the account says that it may have anything, or nothing. */
static void wait_for_share(const struct rank *rank, bool any)
{
	struct gpu_account_member member;
	bool has_it, known = false;

	for (unsigned looks = 0; looks < 2 * TURNS_TRIES && !(known && (member.may_have != 0) == any); looks++) {
		known = published(rank, &member, &has_it);
		usleep(1000);
	}
	assert_true(known && (member.may_have != 0) == any);
}

/* What is dead has no memory by then, and the host has none for all of it: it takes its share of the device back. */
static struct rank start_suspended(const char *settings, unsigned dead)
{
	struct rank rank = turns_start(&part, settings, TURNS_MIB / 4 + 1);

	assert_true(rank_ask(&rank, 's', 2) && rank_ask(&rank, 'z', dead));
	suspend(&rank);
	assert_true(rank_ask(&rank, 'H', 1));
	wait_for_share(&rank, false);
	return rank;
}

TEST(one_that_was_suspended_takes_its_share_back)
{
	for (unsigned by_itself = 0; by_itself < 2; by_itself++) {
		struct rank rank = start_suspended(SETTINGS, 7);

		if (by_itself)
			assert_true(rank_ask(&rank, 'R', TURNS_TRIES));
		else
			resume(&rank);
		assert_true(rank_ask(&rank, 'a', 0) && rank_ask(&rank, 's', 2) && rank_ask(&rank, 'c', 0));
		rank_end(&rank);
	}
}

/* Others may need it: one that does not try again keeps nothing. */
TEST(a_share_that_was_taken_back_in_vain_is_given_up_again)
{
	struct rank rank = start_suspended(SETTINGS, 7);

	assert_false(rank_ask(&rank, 'R', 1));
	wait_for_share(&rank, true);
	wait_for_share(&rank, false);
	resume(&rank);
	rank_end(&rank);
}

/* It has gone on at once, and its share has not come back. */
TEST(one_that_goes_on_waits_for_its_share_with_an_allocation)
{
	struct rank rank = start_suspended(TURNS_SET(",host.budget=256MiB"), 0);

	assert_true(rank_ask(&rank, 'R', 1) && rank_ask(&rank, 'A', 4));
	rank_end(&rank);
}

/*
 * Little is alive for a moment before the turn is to end, so it goes on for an eighth of its quantum to wait for that
 * again. That it lasts so long is shown by two of its turns, one after the other; others may end because the machine
 * does not let it work, or last because it does not let the other ask.
 */
TEST(a_turn_goes_on_until_little_is_alive)
{
	static const char *const settings = "SPILLWAY_SET=device.total=32MiB,report.summary=no,share=turns,"
					    "share.quantum=400ms,host.budget=256MiB";
	uint64_t began = 0, n = 0;
	unsigned in_a_row = 0;
	struct rank ranks[2];

	for (unsigned i = 0; i < 2; i++)
		ranks[i] = turns_start(&part, settings, TURNS_NEEDS);
	rank_tell(&ranks[1], 'o', 0);
	for (unsigned round = 0; round < 40 && in_a_row < 2; round++) {
		struct gpu_account_member first;
		bool has_it;

		rank_tell(&ranks[0], 'l', 2);
		for (unsigned looks = 0; looks < 500 && in_a_row < 2; looks++) {
			if (published(&ranks[0], &first, &has_it) && first.claim.n != n) {
				uint64_t ms = (first.claim.got - began) / 1000000;

				in_a_row = n && ms >= 440 ? in_a_row + 1 : 0;
				n = first.claim.n;
				began = first.claim.got;
			}
			usleep(3000);
		}
		assert_true(rank_hear(&ranks[0]));
	}
	let_go_on(&ranks[1]);
	assert_true(rank_hear(&ranks[1]));
	assert_true(in_a_row >= 2);
	turns_end(ranks, 2);
}

/* The host has no room for all of it: what stays is the part of the total that the other does not get. */
TEST(one_that_cannot_put_all_away_takes_turns_nevertheless)
{
	struct rank ranks[2];

	start_two(ranks, SET("12MiB"));
	turns_run(ranks, 2, 3);
	assert_true(log_says("some of the memory of this process cannot leave the GPU"));
	turns_end(ranks, 2);
}

EACH_TEST(begin_log, folder_remove)

int main(void)
{
	return turns_main(test_run);
}
