// SPDX-License-Identifier: Apache-2.0
/*
 * share: turns, by processes that use two GPUs each: such a process has the turn of both or of none. Each rank has
 * simulated GPUs of its own; what they share is the accounts of GPUs with those numbers.
 */
#include "shim/spillway.h"
#include "test/preload/turns_gpus_check.h"
#include "test/slow.h"

#include <sys/mman.h>

#define SETTINGS "device.total=32MiB,host.budget=256MiB,report.summary=no,share=turns,spill.mode=fast"
#define SET      "SPILLWAY_SET=" SETTINGS ",share.quantum=20ms"
enum { DEVICES = TURNS_GPUS, MOST = 4, BLOCKS = 6, ROUNDS = 600 };
/* More than fit into some looks of all: they work until turns have changed. */
enum { STEPS = 1 + 50 / TEST_SLOWNESS };

/* What a rank is: its devices in the order in which it uses them, and how many blocks of 4 MiB it has on each. */
struct part {
	const char *setting;
	unsigned n, device[DEVICES], blocks[DEVICES];
	const char *more; /* a setting of the simulated GPU */
};

static const struct part *own;
static CUcontext contexts[DEVICES];
static CUdeviceptr blocks[DEVICES][BLOCKS];
static unsigned filled[DEVICES]; /* so many of them */
static unsigned fills, more;     /* blocks on its first device, above those of `own` */

static void be(unsigned device)
{
	MUST(cu.cuCtxSetCurrent(contexts[device]));
}

/* What belongs in a block now. */
static unsigned value(unsigned device, unsigned block)
{
	return fills * 64 + device * 16 + block;
}

static unsigned blocks_on(unsigned i)
{
	return own->blocks[i] + (i == 0 ? more : 0);
}

static void allocate_on(unsigned i)
{
	contexts[own->device[i]] = driver_start((int)own->device[i]);
	for (unsigned j = 0; j < own->blocks[i]; j++)
		blocks[own->device[i]][j] = child_alloc(4 * MIB);
}

static void fill(unsigned i)
{
	unsigned device = own->device[i];

	be(device);
	for (; filled[device] < blocks_on(i); filled[device]++)
		turns_new(blocks[device][filled[device]], filled[device]);
	for (unsigned j = 0; j < blocks_on(i); j++)
		turns_write(blocks[device][j], value(device, j));
	turns_rest();
}

/* All its GPUs work at the same time; it waits for them in its own order. */
static void step(void)
{
	fills++;
	for (unsigned i = 0; i < own->n; i++)
		fill(i);
	for (unsigned i = 0; i < own->n; i++) {
		be(own->device[i]);
		MUST(cu.cuCtxSynchronize());
	}
}

static void allocate_more(unsigned n)
{
	be(own->device[0]);
	for (; n; n--)
		blocks[own->device[0]][own->blocks[0] + more++] = child_alloc(4 * MIB);
}

static bool are_right(void)
{
	for (unsigned i = 0; i < own->n; i++) {
		be(own->device[i]);
		for (unsigned j = 0; j < blocks_on(i); j++)
			CHECK(turns_holds(blocks[own->device[i]][j], j, value(own->device[i], j)));
	}
	return sim_broken_rules() == 0;
}

/*
 * One GPU waits for what the other one gets to only when the program has submitted that, as with NCCL: stopped between
 * the two, which is rare, it cannot come to an end, and goes on.
 */
static void step_by_gpu(void)
{
	static unsigned *word;

	if (!word) {
		word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		MUST(cuMemHostRegister(word, 4096, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
	}
	fills++;
	for (unsigned i = 0; i < DEVICES; i++)
		fill(i);
	be(own->device[0]);
	MUST(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)word, fills, CU_STREAM_WAIT_VALUE_GEQ));
	be(own->device[1]);
	MUST(cuStreamWriteValue32_v2(NULL, (CUdeviceptr)word, fills, 0));
	for (unsigned i = 0; i < DEVICES && fills % 4 == 0; i++) {
		be(own->device[i]);
		MUST(cu.cuCtxSynchronize());
	}
}

/*
 * 'd' N: begin with its N-th device; 'q' N: the same, and suspend it, without work; 's' N: N steps; 'x' N: by GPUs that
 * wait for each other; 'm' N: N blocks more, and STEPS steps; 'p': suspend it; 'r': resume it; 'c': check; 'e': end.
 */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'd':
		allocate_on(n);
		fill(n);
		MUST(cu.cuCtxSynchronize());
		return 1;
	case 'q':
		allocate_on(n);
		return spillway_suspend() == 0;
	case 's':
		for (; n; n--)
			step();
		return 1;
	case 'x':
		for (; n; n--)
			step_by_gpu();
		return 1;
	case 'm':
		allocate_more(n);
		return obey('s', STEPS);
	case 'p':
		return spillway_suspend() == 0;
	case 'r':
		return spillway_resume() == 0;
	case 'c':
		return are_right();
	default:
		exit(0);
	}
}

static void begin(const void *how)
{
	own = how;
	turns_begin(own->setting);
	child_set("SIM_DEVICES=2");
	if (own->more)
		child_set(own->more);
}

static struct rank start(const struct part *part)
{
	static const struct rank_part what = {.begin = begin, .obey = obey};

	return rank_start(&what, part);
}

static void start_all(const struct part *parts, struct rank *ranks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ranks[i] = start(&parts[i]);
	for (unsigned device = 0; device < DEVICES; device++) {
		for (unsigned i = 0; i < n; i++)
			if (device < parts[i].n)
				rank_tell(&ranks[i], 'd', device);
		for (unsigned i = 0; i < n; i++)
			assert_true(device >= parts[i].n || rank_hear(&ranks[i]));
	}
}

/* ---- what the accounts say ---- */

static struct account_page *const pages = turns_gpus_pages;

/* Returns the turns that it has had, on the GPU where it has had the fewest. */
static uint64_t turns_of(const struct rank *rank)
{
	uint64_t n = UINT64_MAX;

	turns_gpus_read();
	for (unsigned device = 0; device < DEVICES; device++) {
		const struct gpu_account_member *member = account_member(&pages[device], rank);

		if (member && pages[device].head.turn.on && member->claim.n < n)
			n = member->claim.n;
	}
	return n == UINT64_MAX ? 0 : n;
}

static void run_turns_of(const struct rank *ranks, unsigned n, uint64_t turns, char what)
{
	uint64_t from[MOST];

	for (unsigned i = 0; i < n; i++)
		from[i] = turns_of(&ranks[i]);
	for (unsigned round = 0; round < ROUNDS; round++) {
		bool all = true;

		turns_tell(ranks, n, what, 4);
		for (unsigned i = 0; i < n; i++)
			assert_true(turns_gpus_hear(&ranks[i], ranks, n));
		for (unsigned i = 0; i < n; i++)
			all = all && turns_of(&ranks[i]) >= from[i] + turns;
		if (all)
			return;
	}
	fail_msg("they did not take turns");
}

static void run_turns(const struct rank *ranks, unsigned n, uint64_t turns)
{
	run_turns_of(ranks, n, turns, 's');
}

static void resume(const struct rank *rank)
{
	assert_true(rank_ask(rank, 'r', 0));
	turns_gpus_resumed(rank);
}

/* ---- the parts ---- */

static const struct part forth = {SET, 2, {0, 1}, {5, 5}, NULL}, back = {SET, 2, {1, 0}, {5, 5}, NULL};

TEST(two_that_use_their_gpus_in_crossed_order_take_turns)
{
	const struct part parts[] = {forth, back};
	struct rank ranks[2];

	start_all(parts, ranks, 2);
	run_turns(ranks, 2, 5);
	turns_check_and_end(ranks, 2);
	assert_true(log_says("takes turns on all its GPUs together"));
}

TEST(they_take_turns_with_those_that_use_one_gpu)
{
	const struct part parts[] = {forth, {SET, 1, {1}, {5}, NULL}, back, {SET, 1, {0}, {4}, NULL}};
	struct rank ranks[4];

	start_all(parts, ranks, 4);
	run_turns(ranks, 4, 3);
	turns_check_and_end(ranks, 4);
}

/* One has the other GPU alone. */
TEST(turns_may_be_on_one_of_its_gpus_alone)
{
	const struct part parts[] = {forth, {SET, 1, {1}, {6}, NULL}};
	struct rank ranks[2];

	start_all(parts, ranks, 2);
	run_turns(ranks, 2, 4);
	assert_false(pages[0].head.turn.on);
	turns_check_and_end(ranks, 2);
}

static uint64_t served(const struct rank *rank)
{
	turns_gpus_read();
	const struct gpu_account_member *member = account_member(&pages[0], rank);

	return member ? member->claim.served : 0;
}

/*
 * It yields when it has nothing to do, though it needs no turn of its other GPU. Otherwise the other one, whose time
 * counts a hundred times as much, would wait for minutes.
 */
TEST(it_yields_when_it_has_nothing_to_do)
{
#define LONG "SPILLWAY_SET=" SETTINGS ",share.quantum=600s,share.wait.max=600s,share.weight="
	const struct part parts[] = {{LONG "100", 2, {0, 1}, {5, 2}, NULL}, {LONG "1", 1, {0}, {5}, NULL}};
	struct rank ranks[2];

	start_all(parts, ranks, 2);
	assert_true(rank_ask(&ranks[0], 's', 1));
	for (unsigned round = 0; round < ROUNDS && served(&ranks[1]) < 400000000000u; round++)
		assert_true(rank_ask(&ranks[1], 's', 8));
	assert_true(served(&ranks[1]) > 4 * served(&ranks[0]));
	for (unsigned times = 0; times < 3; times++)
		assert_true(rank_ask(&ranks[0], 's', 1) && rank_ask(&ranks[1], 's', 1));
	assert_false(pages[1].head.turn.on);
	turns_check_and_end(ranks, 2);
}

TEST(the_others_go_on_when_one_is_killed)
{
	const struct part parts[] = {forth, back, {SET, 1, {0}, {5}, NULL}};

	for (unsigned victim = 0; victim < 2; victim++) {
		struct rank ranks[3];

		start_all(parts, ranks, 3);
		run_turns(ranks, 3, 2);
		turns_tell(ranks, 3, 's', 8);
		usleep(victim * 30000);
		rank_kill(&ranks[victim]);
		turns_hear(ranks, 3, victim);
		ranks[victim] = ranks[2];
		run_turns(ranks, 2, 2);
		turns_check_and_end(ranks, 2);
	}
}

/* The memory of the second GPU is there for the first time when that of the first one may be away. */
TEST(a_gpu_may_be_used_later)
{
	const struct part first = {SET, 1, {0}, {5}, NULL};
	struct rank ranks[2] = {start(&forth), start(&first)};

	assert_true(rank_ask(&ranks[0], 'd', 0) && rank_ask(&ranks[1], 'd', 0));
	for (unsigned round = 0; round < ROUNDS; round++) {
		rank_tell(&ranks[1], 's', 4);
		if (round == 20)
			rank_tell(&ranks[0], 'd', 1);
		assert_true(rank_hear(&ranks[1]));
		if (round == 60)
			break;
	}
	assert_true(rank_hear(&ranks[0]));
	run_turns(ranks, 2, 3);
	turns_check_and_end(ranks, 2);
}

TEST(its_gpus_may_wait_for_each_other)
{
	const struct part parts[] = {forth, back};
	struct rank ranks[2];

	start_all(parts, ranks, 2);
	run_turns_of(ranks, 2, 3, 'x');
	turns_check_and_end(ranks, 2);
}

/* It has no turn meanwhile, and takes turns as before when it is resumed, whatever was away when it was suspended. */
TEST(one_may_be_suspended)
{
	const struct part parts[] = {forth, back, {SET, 1, {0}, {5}, NULL}};
	struct rank ranks[3];

	start_all(parts, ranks, 3);
	for (unsigned times = 0; times < 2; times++) {
		run_turns(ranks, 3, 1);
		for (unsigned i = 1; i < 3; i++)
			rank_tell(&ranks[i], 's', 4);
		assert_true(rank_ask(&ranks[0], 'p', 0));
		for (unsigned i = 1; i < 3; i++)
			assert_true(rank_hear(&ranks[i]));
		run_turns(ranks + 1, 2, 2);
		resume(&ranks[0]);
	}
	run_turns(ranks, 3, 2);
	turns_check_and_end(ranks, 3);
}

/* At that moment, one of its GPUs is away because it is not its turn, and the other one is not yet. */
TEST(one_may_be_suspended_when_a_gpu_joins)
{
	const struct part two = {SET, 2, {0, 1}, {5, 1}, NULL}, first = {SET, 1, {0}, {5}, NULL};
	struct rank ranks[2] = {start(&two), start(&first)};
	bool away = false;

	assert_true(rank_ask(&ranks[0], 'd', 0) && rank_ask(&ranks[1], 'd', 0));
	for (unsigned round = 0; round < ROUNDS && !away; round++) {
		assert_true(rank_ask(&ranks[1], 's', 4));
		turns_gpus_read();
		const struct gpu_account_member *member = account_member(&pages[0], &ranks[0]);
		away = member && member->claim.away;
	}
	assert_true(away);
	assert_true(rank_ask(&ranks[0], 'q', 1));
	assert_true(rank_ask(&ranks[1], 's', 4));
	resume(&ranks[0]);
	run_turns(ranks, 2, 3);
	turns_check_and_end(ranks, 2);
}

/* What it shows in the account of this GPU, now. */
static struct gpu_job_claim job_on(const struct rank *rank, unsigned device)
{
	turns_gpus_read();
	const struct gpu_account_member *member = account_member(&pages[device], rank);

	assert_non_null(member);
	return member->job;
}

/* It was not away when it was suspended; it is resumed in the midst of the turns of others. */
TEST(one_that_is_resumed_leaves_all_its_gpus_together)
{
	const struct part first = {SET, 1, {0}, {5}, NULL};
	struct rank ranks[3] = {start(&forth)};
	bool left = false;

	assert_true(rank_ask(&ranks[0], 'd', 0) && rank_ask(&ranks[0], 'd', 1) && rank_ask(&ranks[0], 'p', 0));
	for (unsigned i = 1; i < 3; i++)
		ranks[i] = start(&first);
	assert_true(rank_ask(&ranks[1], 'd', 0) && rank_ask(&ranks[2], 'd', 0));
	run_turns(ranks + 1, 2, 1);
	for (unsigned i = 1; i < 3; i++)
		rank_tell(&ranks[i], 's', STEPS);
	resume(&ranks[0]);
	while (!left) {
		struct gpu_job_claim first_gpu = job_on(&ranks[0], 0), second_gpu = job_on(&ranks[0], 1);
		/* Read one after the other: only if the first is still as it was, both were so at one moment. */
		struct gpu_job_claim again = job_on(&ranks[0], 0);
		bool steady = again.state == first_gpu.state && again.attempt == first_gpu.attempt;

		left = first_gpu.state == RESIDENCE_AWAY && second_gpu.state == RESIDENCE_AWAY;
		assert_false(steady && first_gpu.state == RESIDENCE_AWAY && second_gpu.state == RESIDENCE_RUNS);
		usleep(1000);
	}
	assert_true(rank_hear(&ranks[1]) && rank_hear(&ranks[2]));
	run_turns(ranks, 3, 2);
	turns_check_and_end(ranks, 3);
}

/* The one of two GPUs needs more while both test_run, and sees first that there have to be turns. */
TEST(who_begins_turns_gives_the_first_one_on)
{
	const struct part parts[] = {{SET, 2, {0, 1}, {3, 1}, NULL}, {SET, 1, {0}, {4}, NULL}};
	struct rank ranks[2];
	bool both = false;

	start_all(parts, ranks, 2);
	while (!both) {
		turns_gpus_read();
		const struct gpu_account_member *a = account_member(&pages[0], &ranks[0]),
						*b = account_member(&pages[0], &ranks[1]);

		both = a && b && a->claim.kind == GPU_TURN_ON && b->claim.kind == GPU_TURN_ON;
		usleep(1000);
	}
	assert_false(pages[0].head.turn.on);
	rank_tell(&ranks[1], 's', STEPS);
	rank_tell(&ranks[0], 'm', 2);
	for (unsigned i = 0; i < 2; i++)
		assert_true(turns_gpus_hear(&ranks[i], ranks, 2));
	run_turns(ranks, 2, 2);
	turns_check_and_end(ranks, 2);
}

/*
 * Its memory moves on both GPUs at the same time. Where it takes longer on one, the process is not silent meanwhile in
 * the account of the other.
 */
TEST(its_memory_moves_on_both_gpus_at_the_same_time)
{
	const struct part slow = {SET, 2, {0, 1}, {4, 6}, "SIM_PIECE_US=2000"};
	struct rank ranks[2];
	bool seen = false, both = false;

	ranks[0] = start(&slow);
	ranks[1] = start(&back);
	for (unsigned i = 0; i < DEVICES; i++)
		assert_true(rank_ask(&ranks[0], 'd', i) && rank_ask(&ranks[1], 'd', i));
	for (unsigned round = 0; round < ROUNDS && !(seen && both); round++) {
		uint64_t attempt = 0, state_then = 0, beat = 0;

		turns_tell(ranks, 2, 's', 1);
		for (unsigned looks = 0; looks < 400 && !(seen && both); looks++) {
			turns_gpus_read();
			const struct gpu_account_member *a = account_member(&pages[0], &ranks[0]),
							*b = account_member(&pages[1], &ranks[0]);

			both |= a && b && a->claim.moving && b->claim.moving;
			if (a && b && b->claim.moving && !a->claim.moving) {
				bool same = attempt == b->job.attempt && state_then == b->job.state;

				seen |= same && beat != a->claim.beat;
				beat = a->claim.beat;
				attempt = b->job.attempt;
				state_then = b->job.state;
			}
			usleep(1000);
		}
		assert_true(rank_hear(&ranks[0]) && rank_hear(&ranks[1]));
	}
	assert_true(seen && both);
	turns_check_and_end(ranks, 2);
}

EACH_TEST(begin_log, folder_remove)

int main(void)
{
	return turns_main(test_run);
}
