// SPDX-License-Identifier: Apache-2.0
/*
 * The order in which a suspended job's memory comes back: what comes next by the job's own past comes first, and no
 * more of it than is needed to keep ahead. The blocks are used in another order than they lie in; where all of them are
 * is seen by each kernel when it runs.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"
#include "test/test.h"

/* 96 MiB, of which 64 have room on the device; ahead of use comes an eighth of those (governor.h). */
#define SETTINGS                                                                                                       \
	((const char *const[]){"SIM_MEMORY=256MiB", "SIM_FILL=0", "SIM_PIECE_US=60",                                   \
			       "SPILLWAY_SET=spill.mode=exact"                                                         \
			       ",device.budget=64MiB,host.budget=256MiB,report.summary=no",                            \
			       NULL})
enum { BLOCKS = 48, AHEAD = 4, STRIDE = 29, STOP = 17, ROUNDS = 20000, CHANGES = 4 };
#define BLOCK (2 * MIB)

static CUdeviceptr blocks[BLOCKS];
static CUfunction use;
static unsigned n_turns;
/* By the kernel that ran last: which blocks were on the device, a bit each, by their turns from the kernel's own on. */
static uint64_t seen;

static CUdeviceptr block_at(unsigned turn)
{
	return blocks[turn * STRIDE % BLOCKS];
}

static void use_body(const struct sim_launch *launch, void **args)
{
	unsigned turn = *(unsigned *)args[1];

	++**(unsigned **)args[0];
	seen = 0;
	for (unsigned i = 0; i < BLOCKS; i++)
		seen |= (uint64_t)(sim_where(block_at(turn + i)) == 'D') << i;
}

SIM_MODULE(image, SIM_KERNEL("use", use_body, 8, 4));

static void open_job(void)
{
	driver_start(0);
	use = driver_function(&image, "use");
	for (unsigned i = 0; i < BLOCKS; i++) {
		blocks[i] = child_alloc(BLOCK);
		MUST(cu.cuMemsetD32_v2(blocks[i], 0, BLOCK / 4));
	}
	MUST(cu.cuCtxSynchronize());
}

/* One kernel, to its end; what it saw. */
static uint64_t take_turn(unsigned turn)
{
	CUdeviceptr block = block_at(turn);
	void *args[] = {&block, &turn};

	MUST(cu.cuLaunchKernel(use, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	MUST(cu.cuStreamSynchronize(NULL));
	n_turns++;
	return seen;
}

/* Until memory has moved in some of them, in whole rounds: then the past is known. */
static void warm_up(void)
{
	uint64_t before = 0;
	unsigned changes = 0, round;

	for (round = 0; round < ROUNDS && changes < CHANGES; round++) {
		uint64_t last = 0;

		for (unsigned turn = 0; turn < BLOCKS; turn++)
			last = take_turn(turn);
		changes += round && last != before;
		before = last;
	}
	CHECK(changes == CHANGES);
}

static void check_job(void)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < BLOCKS; i++) {
		unsigned word;

		MUST(cu.cuMemcpyDtoH_v2(&word, blocks[i], 4));
		sum += word;
	}
	CHECK(sum == n_turns && sim_broken_rules() == 0);
}

/*
 * Since this turn memory has been coming back. Of what has not been used since then, which is on the device? As many of
 * the next as the answer; none of those behind them, or the test fails.
 */
static unsigned next_on_device(uint64_t now, unsigned since)
{
	uint64_t unused = now & (((uint64_t)1 << (BLOCKS - since)) - 1);
	unsigned n = (unsigned)__builtin_ctzll(~unused);

	if (unused >> n)
		printf("%u turns later the next %u are on the device, and others: %#llx\n", since, n,
		       (unsigned long long)unused);
	CHECK(!(unused >> n));
	return n;
}

CHILD_TEST(what_is_needed_next_comes_back_first, SETTINGS)
{
	unsigned turn = STOP, most = 0;

	open_job();
	warm_up();
	for (unsigned i = 0; i < STOP; i++)
		take_turn(i);
	CHECK(spillway_suspend() == 0 && sim_live().device_bytes == 0 && spillway_resume() == 0);
	uint64_t now = take_turn(turn);
	/* Moving may be put off, and nothing comes until then. */
	while (!now && turn < STOP + ROUNDS)
		now = take_turn(++turn);
	for (unsigned since = 0; since < BLOCKS / 2; now = take_turn(turn + ++since)) {
		unsigned n = next_on_device(now, since);

		CHECK(n <= AHEAD + 1);
		most = n > most ? n : most;
	}
	/* Not each when it was waited for. */
	CHECK(most > 1);
	check_job();
}
