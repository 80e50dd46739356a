// SPDX-License-Identifier: Apache-2.0
/*
 * share: turns, by jobs of several processes. All of a job run, or none; they meet after each step, as distributed
 * programs do, and each adds what the others have found to its loss: whoever ran without the others would stand still.
 * Each rank has a simulated GPU of its own; what they share is the account of a GPU with that number.
 */
#include "test/preload/tool.h"
#include "test/preload/turns_help.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define SET TURNS(",spill.mode=fast")
enum { MOST = 8, JOBS = 4, DEVICES = 2, BLOCKS = 6, ROUNDS = 600 };

/* What a rank is, and where the ranks of a job meet. */
struct part {
	unsigned number, job, device, size; /* size: ranks of its job */
	unsigned n;                         /* blocks of 4 MiB */
	const char *setting;                /* by which it is of its job; NULL: by its name */
};

static struct meeting {
	_Atomic unsigned came[JOBS];
	_Atomic uint64_t found[JOBS][3]; /* by all ranks of the job, in this step and those beside it */
	unsigned words[MOST];            /* steps that the GPU of each rank has got to */
	_Atomic bool exits, let_go, gave_up;
} * meeting;

static const struct part *own;
static const char *also;          /* a variable of all ranks that are started */
static unsigned ends_late = MOST; /* number of a rank of which a handler at its exit waits until the test lets it go */
static CUdeviceptr blocks[BLOCKS];
static CUmemGenericAllocationHandle made;
static unsigned fills;
static uint64_t loss;

/* What a rank finds in a step: the first words of its blocks. */
static uint64_t finds(const struct part *part, unsigned step)
{
	return part->n * (uint64_t)(step * 16 + part->number) + part->n * (part->n - 1) / 2;
}

/* Waits until all ranks of the job have come, without work on the GPU. Returns false if one does not come. */
static bool meet(unsigned step)
{
	atomic_fetch_add(&meeting->came[own->job], 1);
	for (unsigned ms = 0; atomic_load(&meeting->came[own->job]) < step * own->size; ms++) {
		if (ms > 60000)
			return false;
		usleep(1000);
	}
	return true;
}

static void submit_step(void)
{
	for (unsigned i = 0; i < own->n && !fills; i++)
		turns_new(blocks[i], i);
	fills++;
	for (unsigned i = 0; i < own->n; i++)
		turns_write(blocks[i], fills * 16 + own->number + i);
	turns_rest();
}

static bool step(void)
{
	uint64_t found = 0;

	submit_step();
	for (unsigned i = 0; i < own->n; i++) {
		unsigned word;

		MUST(cu.cuMemcpyDtoH_v2(&word, blocks[i], sizeof(word)));
		found += word;
	}
	if (!meet(2 * fills - 1))
		return false;
	atomic_store(&meeting->found[own->job][(fills + 1) % 3], 0);
	atomic_fetch_add(&meeting->found[own->job][fills % 3], found);
	if (!meet(2 * fills))
		return false;
	loss += atomic_load(&meeting->found[own->job][fills % 3]);
	return true;
}

/*
 * As with NCCL: the GPU of each rank waits until those of all others have got to the same step, and the program submits
 * that without waiting, in some steps.
 */
static bool step_by_gpu(void)
{
	static CUdeviceptr words;

	if (!words) {
		MUST(cuMemHostRegister(meeting, sizeof(*meeting), CU_MEMHOSTREGISTER_DEVICEMAP));
		words = (CUdeviceptr)meeting->words;
	}
	submit_step();
	MUST(cuStreamWriteValue32_v2(NULL, words + 4 * own->number, fills, 0));
	/* Ranks of a job have consecutive numbers. */
	unsigned first = own->number / own->size * own->size;
	for (unsigned i = first; i < first + own->size; i++)
		MUST(cuStreamWaitValue32_v2(NULL, words + 4 * i, fills, CU_STREAM_WAIT_VALUE_GEQ));
	if (fills % 4 == 0)
		MUST(cu.cuCtxSynchronize());
	return true;
}

static void step_alone(void)
{
	submit_step();
	MUST(cu.cuCtxSynchronize());
}

/*
 * 's' N: N steps; 'x' N: by what their GPUs wait for; 'w' N: steps without the others until N MiB of host memory are
 * pinned; 'c': check all; 'l': the loss; 'g' N: N copies to the host, a millisecond apart; 'a' N: allocate N blocks more;
 * 'b' N: memory of N MiB beside the heap; 'e': end.
 */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'a':
		for (; n; n--)
			child_alloc(4 * MIB);
		return 1;
	case 'x':
		for (; n; n--)
			step_by_gpu();
		return 1;
	case 's':
		for (; n; n--)
			if (!step())
				return 0;
		return 1;
	case 'w':
		return turns_until_pinned(step_alone, own->n, n);
	case 'c':
		for (unsigned i = 0; i < own->n; i++)
			CHECK(turns_holds(blocks[i], i, fills * 16 + own->number + i));
		return sim_broken_rules() == 0;
	case 'l':
		return loss;
	case 'g':
		for (unsigned word; n; n--) {
			MUST(cu.cuMemcpyDtoH_v2(&word, blocks[0], sizeof(word)));
			usleep(1000);
		}
		return 1;
	case 'b':
		MUST(driver_create(&made, (int)own->device, n * MIB));
		return 1;
	default:
		exit(0);
	}
}

/* The library's end has begun by then; what is registered before it runs behind it. */
static void wait_in_the_exit(void)
{
	atomic_store(&meeting->exits, true);
	for (unsigned ms = 0; !atomic_load(&meeting->let_go) && ms < 120000; ms++)
		usleep(1000);
	atomic_store(&meeting->gave_up, !atomic_load(&meeting->let_go));
}

static void begin(const void *how)
{
	char name[300], rank[32];

	own = how;
	turns_begin(SET);
	child_set("SIM_DEVICES=2");
	if (also)
		child_set(also);
	if (own->setting) {
		child_set(own->setting);
		child_set("WORLD_SIZE=2");
		child_set("MASTER_ADDR=localhost");
		snprintf(rank, sizeof(rank), "RANK=%u", own->number);
		child_set(rank);
	} else {
		snprintf(name, sizeof(name), SET ",share.job=job-%u", own->job);
		child_set(name);
	}
	driver_start((int)own->device);
	for (unsigned i = 0; i < own->n; i++) {
		blocks[i] = child_alloc(4 * MIB);
		if (!i && own->number == ends_late)
			CHECK(!atexit(wait_in_the_exit));
	}
}

/* ---- what the accounts say ---- */

static const struct gpu_account_member *find(const struct account_page pages[DEVICES], const struct rank *rank)
{
	for (unsigned i = 0; i < DEVICES; i++) {
		const struct gpu_account_member *member = account_member(&pages[i], rank);

		if (member)
			return member;
	}
	return NULL;
}

static void read_all(struct account_page pages[DEVICES])
{
	memset(pages, 0, DEVICES * sizeof(*pages));
	for (unsigned i = 0; i < DEVICES; i++)
		account_read_device(i, &pages[i]);
}

/* Returns whether two of one job are where they must not be, or two jobs run on one device that has turns. */
static bool is_wrong(const struct part *parts, const struct rank *ranks, unsigned n)
{
	static struct account_page pages[DEVICES];
	bool wrong = false;

	read_all(pages);
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < n; j++) {
			const struct gpu_account_member *a = find(pages, &ranks[i]), *b = find(pages, &ranks[j]);

			if (!a || !b || a->claim.n < 2 || b->claim.n < 2 || a->job.state != RESIDENCE_RUNS ||
			    a->claim.kind == GPU_TURN_OFF || b->claim.kind == GPU_TURN_OFF)
				continue;
			wrong |= parts[i].job == parts[j].job && b->job.state == RESIDENCE_AWAY;
			wrong |= parts[i].job != parts[j].job && parts[i].device == parts[j].device &&
				 b->job.state == RESIDENCE_RUNS && pages[parts[i].device].head.turn.on;
		}
	return wrong;
}

/* What is read while it changes may be of two moments; what is wrong stays wrong. */
static void check_together(const struct part *parts, const struct rank *ranks, unsigned n)
{
	for (unsigned tries = 0; tries < 5; tries++)
		if (!is_wrong(parts, ranks, n))
			return;
	fail_msg("a job does not run together, or two run on one GPU");
}

/* Returns what the account says of it now, or NULL. It is valid until the next call. */
static const struct gpu_account_member *look_at(const struct rank *rank)
{
	static struct account_page pages[DEVICES];

	read_all(pages);
	return find(pages, rank);
}

static bool is_in(const struct rank *rank, enum residence state)
{
	const struct gpu_account_member *member = look_at(rank);

	return member && member->job.state == state;
}

/* Returns the bytes that it has on the device; 0: not known. */
static uint64_t bytes_of(const struct rank *rank)
{
	const struct gpu_account_member *member = look_at(rank);

	return member ? member->holds : 0;
}

static bool has_what_it_needs(const struct rank *rank)
{
	const struct gpu_account_member *member = look_at(rank);

	return member && member->holds >= member->needs;
}

/* Returns how often its job was told to stop, or to come back. */
static uint64_t attempts_of(const struct rank *rank)
{
	const struct gpu_account_member *member = look_at(rank);

	return member ? member->job.attempt : 0;
}

static uint64_t turns_of(const struct rank *rank)
{
	const struct gpu_account_member *member = look_at(rank);

	return member ? member->claim.n : 0;
}

/* ---- the parts ---- */

static void start_all(const struct part *parts, struct rank *ranks, unsigned n)
{
	static const struct rank_part what = {.begin = begin, .obey = obey};

	memset(meeting, 0, sizeof(*meeting));
	for (unsigned i = 0; i < n; i++)
		ranks[i] = rank_start(&what, &parts[i]);
}

/* All make steps at the same time, until each has had so many turns more. Returns the number of steps. */
static unsigned run_turns_of(const struct part *parts, const struct rank *ranks, unsigned n, uint64_t turns, char what)
{
	uint64_t from[MOST];
	unsigned steps = 0;

	for (unsigned i = 0; i < n; i++)
		from[i] = turns_of(&ranks[i]);
	for (unsigned round = 0; round < ROUNDS; round++) {
		bool all = true;

		for (unsigned i = 0; i < n; i++)
			rank_tell(&ranks[i], what, what == 'x' ? 40 : 4);
		for (unsigned i = 0; i < n; i++) {
			assert_true(rank_hear(&ranks[i]));
			check_together(parts, ranks, n);
		}
		steps += 4;
		for (unsigned i = 0; i < n; i++)
			all = all && turns_of(&ranks[i]) >= from[i] + turns;
		if (all)
			return steps;
	}
	fail_msg("they did not take turns");
	return 0;
}

static unsigned run_turns(const struct part *parts, const struct rank *ranks, unsigned n, uint64_t turns)
{
	return run_turns_of(parts, ranks, n, turns, 's');
}

/* The loss is what the ranks of the job have found together in all steps. */
static void check_all(const struct part *parts, const struct rank *ranks, unsigned n, unsigned steps)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t expected = 0;

		for (unsigned at = 1; at <= steps; at++)
			for (unsigned j = 0; j < n; j++)
				expected += parts[j].job == parts[i].job ? finds(&parts[j], at) : 0;
		assert_true(rank_ask(&ranks[i], 'c', 0));
		assert_int_equal(rank_ask(&ranks[i], 'l', 0), expected);
	}
}

/* How many processes `spillway list` shows as of the first job that has several. */
static unsigned listed(void)
{
	unsigned n = 0;

	for (const char *at = tool(NULL, "list"); (at = strstr(at, "s    1  ")); at++) /* behind IDLE */
		n++;
	return n;
}

static void take_turns(const struct part *parts, unsigned n, uint64_t turns)
{
	struct rank ranks[MOST];

	start_all(parts, ranks, n);
	unsigned steps = run_turns(parts, ranks, n, turns);
	check_all(parts, ranks, n, steps);
	assert_int_equal(listed(), 2);
	for (unsigned i = 0; i < n; i++)
		rank_end(&ranks[i]);
	assert_true(log_says("takes turns together with the others of its job"));
}

TEST(two_of_a_job_run_together_beside_another)
{
	static const struct part parts[] = {{0, 0, 0, 2, 3, NULL}, {1, 0, 0, 2, 4, NULL}, {2, 1, 0, 1, 6, NULL}};

	take_turns(parts, 3, 5);
}

/* Those of a launcher, by its variables; two that it did not start together are two jobs. */
TEST(ranks_of_a_launcher_are_a_job)
{
	static const struct part parts[] = {{0, 0, 0, 2, 3, "MASTER_PORT=29500"},
					    {1, 0, 0, 2, 4, "MASTER_PORT=29500"},
					    {2, 1, 0, 1, 6, "MASTER_PORT=29501"}};

	take_turns(parts, 3, 3);
}

/* The job of three loses the one that leads, or another, in the midst of its steps; what is left goes on as a job. */
TEST(a_job_goes_on_when_one_of_it_is_killed)
{
	static const struct part parts[] = {{0, 0, 0, 1, 3, NULL},
					    {1, 0, 0, 1, 3, NULL},
					    {2, 0, 1, 1, 5, NULL},
					    {3, 1, 0, 1, 6, NULL},
					    {4, 2, 1, 1, 5, NULL}};
	enum { N = 5 };

	for (unsigned victim = 0; victim < 2; victim++) {
		struct rank ranks[N];
		struct part left[N];

		start_all(parts, ranks, N);
		memcpy(left, parts, sizeof(left));
		run_turns(left, ranks, N, 2);
		turns_tell(ranks, N, 's', 8);
		usleep(victim * 20000);
		rank_kill(&ranks[victim]);
		turns_hear(ranks, N, victim);
		ranks[victim] = ranks[N - 1];
		left[victim] = left[N - 1];
		run_turns(left, ranks, N - 1, 2);
		turns_check_and_end(ranks, N - 1);
	}
}

TEST(jobs_whose_gpus_wait_for_each_other_take_turns)
{
	static const struct part parts[] = {
	    {0, 0, 0, 2, 5, NULL}, {1, 0, 1, 2, 5, NULL}, {2, 1, 1, 2, 5, NULL}, {3, 1, 0, 2, 5, NULL}};
	struct rank ranks[4];

	start_all(parts, ranks, 4);
	run_turns_of(parts, ranks, 4, 3, 'x');
	turns_check_and_end(ranks, 4);
}

/* Two jobs of two ranks, one of each on each GPU. */
static const struct part two_jobs[] = {
    {0, 0, 0, 2, 5, NULL}, {1, 0, 1, 2, 5, NULL}, {2, 1, 0, 2, 5, NULL}, {3, 1, 1, 2, 5, NULL}};

enum lacks { KILLED, STOPPED, LATE };

/*
 * A rank is killed, is stopped for a while, or is late, when the GPU of the other one waits for it. That one cannot be
 * stopped, and the other job goes on. It ends as when NCCL gives a collective up, or as the first one comes.
 */
static void one_does_not_come(enum lacks how)
{
	bool killed = how == KILLED;
	struct rank ranks[4];

	start_all(two_jobs, ranks, 4);
	rank_tell(&ranks[1], 'x', 40);
	assert_true(rank_ask(&ranks[0], 'x', 8));
	uint64_t attempts = attempts_of(&ranks[1]);
	if (killed)
		rank_kill(&ranks[0]);
	else if (how == STOPPED)
		assert_int_equal(kill(ranks[0].pid, SIGSTOP), 0);
	for (unsigned round = 0; round < 10 || (how != STOPPED && !log_has("keeps its memory")); round++) {
		assert_true(round < ROUNDS);
		rank_tell(&ranks[2], 'x', 40);
		assert_true(rank_ask(&ranks[3], 'x', 40));
		assert_true(rank_hear(&ranks[2]));
	}
	/* Ranks that wait for each other are asked more often than a process alone: another moment may be a better one. */
	assert_true(how != LATE || attempts_of(&ranks[1]) >= attempts + 8);
	if (killed)
		meeting->words[0] = 1 << 20; /* steps */
	else
		rank_tell(&ranks[0], 'x', 32);
	if (how == STOPPED)
		assert_int_equal(kill(ranks[0].pid, SIGCONT), 0);
	for (unsigned i = killed; i < 2; i++)
		assert_true(rank_hear(&ranks[i]));
	/* What is left of a job that kept its memory takes turns again, soon. */
	uint64_t turns = turns_of(&ranks[3]);
	for (unsigned round = 0; turns_of(&ranks[3]) < turns + 2; round++) {
		assert_true(round < ROUNDS / 2);
		turns_do(ranks + killed, 4 - killed, 'x', 40);
	}
	turns_check_and_end(ranks + killed, 4 - killed);
}

TEST(a_job_goes_on_while_another_waits_for_a_killed_rank_on_the_gpu)
{
	one_does_not_come(KILLED);
}

TEST(a_job_goes_on_while_another_waits_for_a_stopped_rank_on_the_gpu)
{
	one_does_not_come(STOPPED);
}

TEST(a_job_goes_on_while_another_waits_for_a_late_rank_on_the_gpu)
{
	one_does_not_come(LATE);
}

/*
 * A rank whose program ends takes its time for that, after the library's own end. Whether its job is away or runs then,
 * the other rank goes on, and so does the other job.
 */
static void one_ends_late(bool away)
{
	struct rank ranks[4];

	ends_late = 1;
	start_all(two_jobs, ranks, 4);
	ends_late = MOST;
	run_turns(two_jobs, ranks, 4, 2);
	while (!is_in(&ranks[0], away ? RESIDENCE_AWAY : RESIDENCE_RUNS) ||
	       !is_in(&ranks[1], away ? RESIDENCE_AWAY : RESIDENCE_RUNS))
		turns_do(ranks + (away ? 2 : 0), 2, 's', 4);
	rank_tell(&ranks[1], 'e', 0);
	/* Where its first allocation has spilled already, the handler comes before the library's end. */
	for (unsigned ms = 0; !atomic_load(&meeting->exits) || (ms < 1000 && !is_in(&ranks[1], RESIDENCE_RUNS)); ms++)
		usleep(1000);
	assert_true(rank_ask(&ranks[0], 'g', 1));
	for (unsigned round = 0; round < 6; round++) {
		rank_tell(&ranks[0], 'g', 150);
		turns_do(ranks + 2, 2, 's', 4);
		assert_true(rank_hear(&ranks[0]));
	}
	assert_false(log_has("keeps its memory"));
	atomic_store(&meeting->let_go, true);
	rank_gone(&ranks[1], 0);
	assert_false(atomic_load(&meeting->gave_up));
	turns_check_and_end(ranks, 1);
	turns_check_and_end(ranks + 2, 2);
}

TEST(a_job_goes_on_when_one_of_it_ends_late_while_it_is_away)
{
	one_ends_late(true);
}

TEST(a_job_goes_on_when_one_of_it_ends_late_while_it_runs)
{
	one_ends_late(false);
}

/* A job that waits kept what the other one did not need; when that needs more, within its turn, more leaves. */
TEST(a_job_that_waits_gives_up_more_when_the_other_needs_more)
{
	static const struct part parts[] = {
	    {0, 0, 0, 2, 5, NULL}, {1, 0, 1, 2, 5, NULL}, {2, 1, 0, 2, 4, NULL}, {3, 1, 1, 2, 4, NULL}};
	enum { BESIDE = 8 };
	struct rank ranks[4];

	start_all(parts, ranks, 4);
	run_turns(parts, ranks, 4, 2);
	while (!is_in(&ranks[0], RESIDENCE_AWAY) || !is_in(&ranks[1], RESIDENCE_AWAY))
		turns_do(ranks + 2, 2, 's', 4);
	for (unsigned i = 0; i < 2; i++)
		assert_true(bytes_of(&ranks[i]) > (TURNS_MIB - 4 * 4 - BESIDE) * MIB);
	turns_do(ranks + 2, 2, 'b', BESIDE);
	for (unsigned tries = 0; tries < ROUNDS; tries++) {
		bool all = true;

		turns_do(ranks + 2, 2, 's', 4);
		for (unsigned i = 0; i < 2; i++)
			all &= bytes_of(&ranks[i]) <= (TURNS_MIB - 4 * 4 - BESIDE) * MIB &&
			       has_what_it_needs(&ranks[2 + i]);
		if (all)
			break;
		assert_true(tries + 1 < ROUNDS);
	}
	turns_check(ranks, 4);
	run_turns(parts, ranks, 4, 2);
	turns_check_and_end(ranks, 4);
}

static bool is_leaving(const struct gpu_account_member *member)
{
	return member && member->claim.moving && member->job.state == RESIDENCE_STOPPED &&
	       member->job.phase == GPU_JOB_LEAVE;
}

static bool is_coming(const struct gpu_account_member *member)
{
	return member && member->claim.moving && member->job.state == RESIDENCE_AWAY &&
	       member->job.phase == GPU_JOB_RETURN;
}

TEST(memory_of_a_job_comes_while_that_of_another_leaves)
{
	struct rank ranks[4];
	bool seen = false;

	also = "SIM_PIECE_US=2000";
	start_all(two_jobs, ranks, 4);
	also = NULL;
	for (unsigned round = 0; round < ROUNDS && !seen; round++) {
		turns_tell(ranks, 4, 's', 4);
		for (unsigned looks = 0; looks < 100 && !seen; looks++) {
			static struct account_page pages[DEVICES];

			read_all(pages);
			account_check();
			for (unsigned i = 0; i < 4; i++)
				for (unsigned j = 0; j < 4; j++)
					seen |= two_jobs[i].job != two_jobs[j].job &&
						two_jobs[i].device == two_jobs[j].device &&
						is_leaving(find(pages, &ranks[i])) && is_coming(find(pages, &ranks[j]));
			usleep(500);
		}
		turns_hear(ranks, 4, 4);
	}
	assert_true(seen);
	turns_check_and_end(ranks, 4);
}

/* More must leave than ever has, because the other job needs more; nothing does while that submits nothing. */
TEST(host_memory_of_a_job_is_pinned_before_it_is_needed)
{
	static const struct part parts[] = {
	    {0, 0, 0, 2, 5, NULL}, {1, 0, 1, 2, 5, NULL}, {2, 1, 0, 2, 2, NULL}, {3, 1, 1, 2, 2, NULL}};
	struct rank ranks[4];

	start_all(parts, ranks, 4);
	turns_do(ranks, 4, 's', 1);
	turns_do(ranks + 2, 2, 'a', 2);
	while (!turns_of(&ranks[0]) || !turns_of(&ranks[1]))
		turns_do(ranks, 2, 's', 4);
	turns_do(ranks + 2, 2, 'a', 3);
	/* Of its 20 MiB, 3 at most may stay beside the 28 of the other. */
	turns_do(ranks, 2, 'w', 16);
	turns_check_and_end(ranks, 4);
}

TEST(two_jobs_that_cross_on_two_devices_both_end)
{
	static const struct part parts[] = {
	    {0, 0, 0, 2, 5, NULL}, {1, 0, 1, 2, 5, NULL}, {2, 1, 1, 2, 5, NULL}, {3, 1, 0, 2, 5, NULL}};
	static const struct part more[] = {{0, 0, 0, 2, 5, NULL}, {1, 0, 1, 2, 5, NULL}, {2, 1, 0, 2, 5, NULL},
					   {3, 1, 1, 2, 5, NULL}, {4, 2, 1, 1, 5, NULL}, {5, 3, 0, 1, 5, NULL}};

	take_turns(parts, 4, 5);
	take_turns(more, 6, 3);
}

static int run(void)
{
	meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return meeting == MAP_FAILED ? 1 : test_run();
}

EACH_TEST(begin_log, folder_remove)

int main(void)
{
	return turns_main(run);
}
