// SPDX-License-Identifier: Apache-2.0
/*
 * Several processes of one user, a rank for each GPU as a rule: together they pin what one of them could have alone, a
 * killed one leaves its share to the others, and what one does not use another gets. A rank is a process of its own
 * that does what it is told through a pipe; this process never uses the driver.
 */
#include "shim/accounting/quota.h"
#include "shim/base/user_dir.h"
#include "shim/stats/stats_page.h"
#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "test/rank.h"
#include "test/test.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define DEVICE 16 /* MiB of each rank's device; what is more goes to the host */
#define TOTAL  64 /* MiB of the host for all */
#define SET    "SPILLWAY_SET=device.budget=16MiB,spill.mode=static,report.summary=no"
#define MOST   64

/* ---- in a rank ---- */

static CUdeviceptr blocks[MOST];
static unsigned n_blocks;

static const struct stats_page *my_page(void)
{
	char path[160];
	const struct stats_page *page = MAP_FAILED;

	snprintf(path, sizeof(path), "%s/spillway/%d-%llu" STATS_TAIL, folder, getpid(),
		 (unsigned long long)user_dir_process_started(getpid()));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
	}
	CHECK(page != MAP_FAILED);
	return page;
}

static uint64_t take(unsigned mib)
{
	CHECK(n_blocks < MOST);
	CUresult result = cu.cuMemAlloc_v2(&blocks[n_blocks], mib * MIB);

	if (result == CUDA_SUCCESS)
		MUST(driver_fill(NULL, blocks[n_blocks++], mib, mib * MIB / 4));
	else
		CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
	return result == CUDA_SUCCESS;
}

/* The child of a fork ends as a program does, with all its handlers. */
static uint64_t fork_one(void)
{
	int status;
	pid_t child = fork();

	if (!child)
		exit(0);
	return waitpid(child, &status, 0) == child && !status;
}

/* 'd': fill the device; 'a' N: allocate N MiB; 'f': free the last; 'e': end; the rest are questions. */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'd':
		driver_start(0);
		return take(DEVICE);
	case 'a':
		return take(n);
	case 'f':
		return cu.cuMemFree_v2(blocks[--n_blocks]) == CUDA_SUCCESS;
	case 'k':
		return fork_one();
	case 'n':
		return my_page()->share_most_ranks;
	case 'w':
		return my_page()->counter[STAT_share_waits];
	case 'r':
		return my_page()->counter[STAT_share_returned_bytes] / MIB;
	case 'h':
		return my_page()->host_budget / MIB;
	case 'c': /* does everything still hold what it held? */
		for (unsigned i = 1; i < n_blocks; i++)
			MUST(cu.cuMemcpyDtoH_v2(&n, blocks[i], sizeof(n)));
		return 1;
	default:
		exit(0);
	}
}

static void begin(const void *settings)
{
	child_set("SIM_MEMORY=64MiB");
	child_set("SIM_FILL=0");
	child_set(runtime);
	child_set(settings);
}

static struct rank start(const char *settings)
{
	static const struct rank_part part = {.begin = begin, .obey = obey};

	return rank_start(&part, settings);
}

/* ---- and from outside ---- */

#define SHARED SET ",host.total=64MiB"

TEST(no_file_is_made_before_something_is_on_the_host_and_none_is_left)
{
	struct rank a = start(SHARED);

	assert_true(rank_ask(&a, 'd', 0));
	assert_int_equal(folder_files(QUOTA_TAIL, NULL), 0);
	assert_true(rank_ask(&a, 'a', 2));
	assert_int_equal(folder_files(QUOTA_TAIL, NULL), 1);
	rank_end(&a);
	assert_int_equal(folder_files("", NULL), 0);
}

TEST(a_budget_for_each_process_means_what_it_meant)
{
	static const char *const settings[] = {SET ",host.budget=48MiB",
					       SET ",host.total=48MiB,host.share=off,host.budget=48MiB"};

	for (unsigned i = 0; i < 2; i++) {
		struct rank a = start(settings[i]), b = start(settings[i]);

		assert_true(rank_ask(&a, 'd', 0) && rank_ask(&b, 'd', 0));
		assert_true(rank_ask(&a, 'a', 48) && rank_ask(&b, 'a', 48));
		assert_false(rank_ask(&a, 'a', 2));
		assert_int_equal(folder_files(QUOTA_TAIL, NULL), 0);
		ranks_end(&a, &b);
	}
}

TEST(both_bounds_hold_where_both_are_given)
{
	struct rank a = start(SHARED ",host.budget=48MiB"), b = start(SHARED ",host.budget=48MiB");

	assert_true(rank_ask(&a, 'd', 0) && rank_ask(&b, 'd', 0));
	assert_false(rank_ask(&a, 'a', 50));
	assert_true(rank_ask(&a, 'a', 48));
	assert_false(rank_ask(&b, 'a', 18));
	assert_true(rank_ask(&b, 'a', 16));
	ranks_end(&a, &b);
}

TEST(one_is_killed_and_the_other_gets_its_room)
{
	struct rank a = start(SHARED), b = start(SHARED);

	assert_true(rank_ask(&a, 'd', 0) && rank_ask(&b, 'd', 0));
	assert_true(rank_ask(&a, 'a', 60));
	assert_true(rank_ask(&b, 'a', 4));
	assert_false(rank_ask(&b, 'a', 40));
	assert_int_equal(rank_ask(&b, 'n', 0), 2);
	rank_kill(&a);
	/* Who has just looked for the dead does not look again within some milliseconds. */
	while (!rank_ask(&b, 'a', 40))
		;
	assert_true(rank_ask(&b, 'c', 0));
	rank_end(&b);
	assert_int_equal(folder_files(QUOTA_TAIL, NULL), 0);
}

/* The child of a rank ends: the rank is one as before. */
TEST(a_fork_takes_no_share_with_it)
{
	struct rank a = start(SHARED), b = start(SHARED);

	assert_true(rank_ask(&a, 'd', 0) && rank_ask(&b, 'd', 0));
	assert_true(rank_ask(&a, 'a', 32));
	assert_true(rank_ask(&a, 'k', 0));
	assert_true(rank_ask(&b, 'a', 30));
	assert_int_equal(rank_ask(&b, 'n', 0), 2);
	assert_true(rank_ask(&a, 'f', 0) && rank_ask(&a, 'a', 32) && rank_ask(&a, 'a', 2));
	ranks_end(&a, &b);
}

/* a keeps a quarter of the total for its next use; b is short of it and below its half. */
TEST(what_one_does_not_use_goes_to_the_other)
{
	struct rank a = start(SHARED), b = start(SHARED);

	assert_true(rank_ask(&a, 'd', 0) && rank_ask(&b, 'd', 0));
	assert_true(rank_ask(&a, 'a', 36) && rank_ask(&a, 'a', 12));
	assert_true(rank_ask(&a, 'f', 0));
	assert_true(rank_ask(&b, 'a', 16));
	/* As often as it takes, on a machine so busy that it waits in vain. */
	while (!rank_ask(&b, 'a', 8))
		;
	assert_true(rank_ask(&b, 'w', 0) >= 1);
	/* It is counted when it has gone, which b sees first. */
	UNTIL(rank_ask(&a, 'r', 0));
	assert_in_range(rank_ask(&a, 'r', 0), 2, 16);
	assert_true(rank_ask(&a, 'c', 0) && rank_ask(&b, 'c', 0));
	ranks_end(&a, &b);
}

#define MANY 8

TEST(eight_at_once_stay_within_one_total_and_each_gets_its_part)
{
	struct rank ranks[MANY];
	unsigned served = 0;

	for (unsigned i = 0; i < MANY; i++)
		ranks[i] = start(SHARED);
	for (unsigned i = 0; i < MANY; i++)
		rank_tell(&ranks[i], 'd', 0);
	for (unsigned i = 0; i < MANY; i++)
		assert_true(rank_hear(&ranks[i]));
	/* All at the same time, an eighth for each in four steps, the first of which make the file. */
	for (unsigned step = 0; step < 4; step++)
		for (unsigned i = 0; i < MANY; i++)
			rank_tell(&ranks[i], 'a', TOTAL / MANY / 4);
	for (unsigned i = 0; i < 4 * MANY; i++)
		assert_true(rank_hear(&ranks[i % MANY]));
	for (unsigned i = 0; i < MANY; i++)
		rank_tell(&ranks[i], 'a', 2);
	for (unsigned i = 0; i < MANY; i++)
		served += rank_hear(&ranks[i]) != 0;
	assert_int_equal(served, 0);
	assert_int_equal(rank_ask(&ranks[0], 'n', 0), MANY);
	for (unsigned i = 0; i < MANY; i++) {
		assert_true(rank_ask(&ranks[i], 'c', 0));
		rank_end(&ranks[i]);
	}
	assert_int_equal(folder_files("", NULL), 0);
}

/* What nobody has set: the first one's half of the machine is everybody's. */
TEST(without_any_setting_the_first_says_how_much_there_is)
{
	struct rank a = start(SET), b = start(SET);

	assert_true(rank_ask(&a, 'd', 0) && rank_ask(&a, 'a', 2));
	assert_true(rank_ask(&b, 'd', 0) && rank_ask(&b, 'a', 2) && rank_ask(&b, 'a', 2));
	assert_int_equal(rank_ask(&a, 'h', 0), rank_ask(&b, 'h', 0));
	assert_int_equal(rank_ask(&b, 'n', 0), 2);
	assert_int_equal(folder_files(QUOTA_TAIL, NULL), 1);
	ranks_end(&a, &b);
}

EACH_TEST(folder_make, folder_remove)
