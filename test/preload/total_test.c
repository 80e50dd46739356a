// SPDX-License-Identifier: Apache-2.0
/*
 * device.total: processes of one user share one GPU. Together they never have more of it than the total, each gets its
 * share whichever came first, every byte stays as it was, and a killed process leaves its share to the others. A rank
 * is a process of its own that does what it is told; its simulated GPU is its own, so only the account limits them.
 */
#include "test/preload/tool.h"
#include "test/preload/turns_help.h"

#define TOTAL  64 /* MiB */
#define SET(m) "SPILLWAY_SET=device.total=64MiB,host.budget=256MiB,report.summary=no,spill.mode=" m
#define TRIES  2000 /* looks, 5 ms apart: what has not happened by then never does */

static size_t without; /* bytes of the device that are not the heap's */

/* MiB that the heap has on the device. */
static uint64_t held(void)
{
	return (sim_live().device_bytes - without) / MIB;
}

/*
 * turns_obey(), and 'h': MiB held; 'i': the total that cuMemGetInfo says, in MiB; 'j': what it says is free; 'n' N:
 * others leave N MiB of the device.
 */
static uint64_t obey(char what, unsigned n)
{
	size_t free_bytes, total;
	CUcontext context;

	switch (what) {
	case 'd':
		driver_start(0);
		without = sim_live().device_bytes;
		return 1;
	case 'h':
		return held();
	case 'i':
		MUST(cu.cuMemGetInfo_v2(&free_bytes, &total));
		return total / MIB;
	case 'n':
		/* The library asks for the size of the device once; without a context it does not see what is free. */
		MUST(cu.cuCtxGetCurrent(&context));
		MUST(cu.cuCtxSetCurrent(NULL));
		MUST(cu.cuDeviceTotalMem_v2(&total, 0));
		MUST(cu.cuCtxSetCurrent(context));
		sim_switch("MEMORY", n * MIB);
		return 1;
	case 'j':
		MUST(cu.cuMemGetInfo_v2(&free_bytes, &total));
		return free_bytes / MIB;
	default:
		return turns_obey(what, n);
	}
}

static void begin_large(const void *settings)
{
	turns_begin(settings);
	child_set("SIM_MEMORY=3GiB");
	child_set("SIM_FILL=0");
}

static const struct rank_part part = {.begin = turns_begin, .obey = obey}, large = {.begin = begin_large, .obey = obey};

/* Both step until they hold between least and most MiB each; they never hold more than the total together. */
static bool come_to_hold(const struct rank *ranks, unsigned n, uint64_t least, uint64_t most)
{
	for (unsigned tries = 0; tries < TRIES; tries++) {
		bool all = true;

		for (unsigned i = 0; i < n; i++) {
			assert_true(rank_ask(&ranks[i], 's', 1));
			uint64_t holds = rank_ask(&ranks[i], 'h', 0);
			all = all && holds >= least && holds <= most;
		}
		if (all)
			return true;
		usleep(5000);
	}
	return false;
}

/* `spillway list` names both, and the total. */
static void shows_the_account(const struct rank *one, const struct rank *other)
{
	bool total = false, has_one = false, has_other = false;
	long long pid;
	int status;

	for (char *line = strtok(tool(&status, "list"), "\n"); line; line = strtok(NULL, "\n")) {
		total |= strstr(line, "shared: 64.0 MiB in all") != NULL;
		if (!total || sscanf(line, "%lld", &pid) != 1)
			continue;
		/* What it needs, with a slab or without. */
		bool needs = strstr(line, " 56.0 MiB ") || strstr(line, " 60.0 MiB ");
		has_one |= pid == one->pid && needs;
		has_other |= pid == other->pid && needs;
	}
	assert_int_equal(status, 0);
	assert_true(total && has_one && has_other);
}

static void share_with(const char *settings)
{
	struct rank ranks[2] = {turns_start(&part, settings, 14)};

	/* Alone it has all of it. */
	assert_int_equal(rank_ask(&ranks[0], 'h', 0), 56);
	assert_int_equal(rank_ask(&ranks[0], 'i', 0), TOTAL);
	ranks[1] = turns_start(&part, settings, 14);
	assert_true(rank_ask(&ranks[0], 'h', 0) + rank_ask(&ranks[1], 'h', 0) <= TOTAL);
	/* In the end both have a half, but for pieces that do not fit. */
	assert_true(come_to_hold(ranks, 2, 20, 32));
	assert_true(rank_ask(&ranks[0], 'c', 0) && rank_ask(&ranks[1], 'c', 0));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(rank_ask(&ranks[i], 'i', 0), TOTAL);
		assert_true(rank_ask(&ranks[i], 'j', 0) <= TOTAL - 56 + 4);
	}
	shows_the_account(&ranks[0], &ranks[1]);
	/* What a killed one had comes back to the other. */
	rank_kill(&ranks[0]);
	assert_true(come_to_hold(&ranks[1], 1, 56, 56));
	assert_true(rank_ask(&ranks[1], 'c', 0));
	rank_end(&ranks[1]);
}

/* Of a place in the account. */
static int set_lock(int fd, short type)
{
	return fcntl(fd, F_OFD_SETLK, &(struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = 8, .l_len = 1});
}

/* The account as a process of the version before has it that still runs: its lock shows that. Returns a descriptor. */
static int make_older(char ret_path[256])
{
	const struct account_head older = {.file = {.bytes = sizeof(struct account_head),
						    .version = GPU_ACCOUNT_VERSION - 1,
						    .magic = GPU_ACCOUNT_MAGIC,
						    .total = TOTAL * MIB}};
	struct rank first = turns_start(&part, SET("exact"), 1);
	char below[96];

	assert_int_equal(folder_files(GPU_ACCOUNT_TAIL, ret_path), 1);
	rank_end(&first);
	snprintf(below, sizeof(below), "%s/spillway", folder);
	mkdir(below, 0700);
	int fd = open(ret_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, &older, sizeof(older)), sizeof(older));
	assert_int_equal(set_lock(fd, F_WRLCK), 0);
	return fd;
}

#define AUTO "SPILLWAY_SET=host.budget=256MiB,report.summary=no,share=turns"

/*
 * Who asks for turns shares the device without a total: what nobody else had of it when the first of them came, less a
 * tenth. That holds for those who come later, whatever is free then.
 */
TEST(who_takes_turns_shares_what_the_device_has)
{
	struct rank one = turns_start(&large, AUTO, 0), other = turns_start(&large, AUTO, 0), third;
	uint64_t all = 3072, total;

	/* Others have a GiB, which counts, less what they have by the time that the second one comes. */
	assert_true(rank_ask(&one, 'n', 2048) && rank_ask(&other, 'n', 512));
	assert_true(rank_ask(&one, 'a', 2) && rank_ask(&other, 'a', 2));
	total = rank_ask(&one, 'i', 0);
	assert_in_range(total, 2048 - all / 10 - 1, 2048 - all / 10 + 1);
	assert_int_equal(rank_ask(&other, 'i', 0), total);
	/* Free is what the process does not have itself; a slab may be there beside the blocks. */
	assert_in_range(rank_ask(&other, 'j', 0), total - 8 - 8, total - 8);
	/* One without turns has the whole device. */
	third = turns_start(&large, "SPILLWAY_SET=host.budget=256MiB,report.summary=no", 1);
	assert_int_equal(rank_ask(&third, 'i', 0), all);
	ranks_end(&third, &one, &other);
	/* The next one is the first again. */
	third = turns_start(&large, AUTO, 1);
	assert_in_range(rank_ask(&third, 'i', 0), all - all / 10 - 1, all - all / 10 + 1);
	rank_end(&third);
}

TEST(processes_share_a_gpu_and_its_memory_goes_where_it_is_needed)
{
	share_with(SET("exact"));
	share_with(SET("fast"));
}

/* As where the library is replaced while jobs run, and the old ones are on the GPU still. */
TEST(beside_another_version_it_has_its_own_budget_at_once_and_shares_when_that_has_ended)
{
	static const char *const settings[] = {SET("off"), SET("exact"), SET("exact") ",share=turns", SET("fast")};
	struct account_head head;
	char path[256];
	int fd = make_older(path);
	struct rank one, other;

	for (unsigned i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		one = turns_start(&part, settings[i], 14);
		assert_int_equal(rank_ask(&one, 'h', 0), 56);
		assert_true(rank_ask(&one, 'c', 0));
		if (i < 3)
			rank_end(&one);
	}
	assert_int_equal(pread(fd, &head, sizeof(head), 0), sizeof(head));
	assert_int_equal(head.file.version, GPU_ACCOUNT_VERSION - 1);
	assert_int_equal(set_lock(fd, F_UNLCK), 0); /* the processes that were started have it open, too */
	close(fd);
	other = turns_start(&part, SET("fast"), 14);
	const struct rank ranks[] = {one, other};
	assert_true(come_to_hold(ranks, 2, 20, 32));
	shows_the_account(&one, &other);
	ranks_end(&one, &other);
}

/* Without device.total nothing changes. */
TEST(who_does_not_share_has_what_it_had)
{
	static const char *const alone = "SPILLWAY_SET=device.budget=60MiB,host.budget=256MiB,report.summary=no";
	struct rank ranks[2] = {turns_start(&part, alone, 14), turns_start(&part, SET("exact"), 14)};

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(rank_ask(&ranks[i], 'h', 0), 56);
	assert_int_equal(rank_ask(&ranks[0], 'i', 0), 256);
	ranks_end(&ranks[0], &ranks[1]);
}

/* Others had most of the device when it started, and leave it to it then. */
TEST(who_starts_beside_others_gets_its_share_when_they_leave_it)
{
	struct rank rank = turns_start(&large, SET("exact"), 0);

	assert_true(rank_ask(&rank, 'n', 40));
	assert_true(rank_ask(&rank, 'a', 14));
	assert_true(rank_ask(&rank, 'h', 0) <= 40);
	assert_true(rank_ask(&rank, 'n', 3072));
	assert_true(come_to_hold(&rank, 1, 56, 56));
	assert_true(rank_ask(&rank, 'c', 0));
	rank_end(&rank);
}

EACH_TEST(folder_make, folder_remove)
