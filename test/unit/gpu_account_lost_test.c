// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_account.h by several processes, where the file is lost, damaged or foreign, or lies in one of several places.
 * What they may have together is never more than the total.
 */
#include "test/test.h"
#include "test/unit/gpu_account_help.h"

TEST(a_file_that_is_lost_is_made_again)
{
	struct rank a = account_joined(), b = account_joined();

	assert_int_equal(rank_ask(&a, 'r', 40), 40);
	assert_int_equal(unlink(account_path), 0);
	assert_int_equal(rank_ask(&b, 'r', 20), 0);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'l', 0), 0);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_int_equal(ask_until(&b, 'r', 64, 24), 24);
	/* And one that is cut off. */
	assert_int_equal(truncate(account_path, 100), 0);
	assert_false(rank_ask(&a, 'l', 0) || rank_ask(&b, 'l', 0));
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'l', 0), 2);
	assert_int_equal(rank_ask(&b, 's', 0), 64);
	/* And one without a total. */
	uint64_t none = 0;
	share_overwrite(account_path, offsetof(struct account_head, file.total), &none, sizeof(none));
	assert_false(rank_ask(&a, 'l', 0) || rank_ask(&b, 'l', 0));
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'l', 0), 2);
	assert_int_equal(rank_ask(&b, 't', 0), TOTAL);
}

/* Until all have entered the next file; who comes after the loss finds what they hold. */
TEST(nobody_has_more_for_a_second_after_a_loss)
{
	struct rank a = account_joined(), b = account_joined(), c = account_start();

	assert_true(rank_ask(&a, 'r', 20) == 20 && rank_ask(&b, 'r', 40) == 40);
	assert_true(rank_ask(&a, 'l', 0) && rank_ask(&b, 'l', 0));
	assert_int_equal(unlink(account_path), 0);
	assert_true(rank_ask(&c, 'j', TOTAL));
	assert_int_equal(rank_ask(&c, 'r', 64), 0);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'r', 64), 20);
	/* The other was stopped for longer: what it has counts all the same. */
	assert_int_equal(ask_until(&a, 'r', 64, 24), 24);
	assert_int_equal(rank_ask(&b, 'l', 0), 0);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'l', 0), 3);
	assert_int_equal(rank_ask(&b, 's', 0), TOTAL);
	ranks_end(&c, &a);
	assert_int_equal(ask_until(&b, 'r', 64, 64), 64);
}

/* As by close_range(). */
TEST(what_a_process_has_counts_when_its_descriptor_is_closed)
{
	struct rank z = account_joined(), a = account_joined(), b = account_joined(), c = account_start();

	assert_int_equal(rank_ask(&a, 'r', 40), 40);
	assert_true(rank_ask(&a, 'C', 0));
	rank_kill(&z);
	assert_int_equal(rank_ask(&b, 'r', 64), 24);
	assert_true(rank_ask(&c, 'j', TOTAL));
	assert_int_equal(rank_ask(&c, 'r', 64), 0);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'l', 0), 3);
	assert_int_equal(rank_ask(&a, 's', 0), 64);
	/* It is there once. */
	assert_true(rank_ask(&b, 'd', 0));
	assert_int_equal(ask_until(&c, 'r', 64, 24), 24);
	/* Another takes neither its slot nor its file, and when it has ended it has nothing. */
	assert_true(rank_ask(&a, 'C', 0));
	ranks_end(&c, &b);
	assert_int_equal(access(account_path, F_OK), 0);
	struct rank d = account_joined();

	assert_int_equal(ask_until(&d, 'r', 64, 24), 24);
	rank_kill(&a);
	assert_int_equal(rank_ask(&d, 'r', 64), 64);
}

/* Of ssh sessions beside jobs of cron, whoever comes first. */
TEST(with_and_without_a_run_folder_there_is_one_account)
{
	char run[100], memory[100], own[140], name[200];

	snprintf(run, sizeof(run), "%s/%u", folder, (unsigned)geteuid());
	snprintf(memory, sizeof(memory), "%s/memory", folder);
	assert_true(mkdir(run, 0700) == 0 && mkdir(memory, 0700) == 0);
	user_dir_run = folder;
	user_dir_memory = memory;
	for (unsigned i = 0; i < 2; i++) {
		struct rank ranks[2];

		for (unsigned j = 0; j < 2; j++) {
			assert_int_equal(i == j ? setenv("XDG_RUNTIME_DIR", run, 1) : unsetenv("XDG_RUNTIME_DIR"), 0);
			ranks[j] = account_joined();
			assert_int_equal(rank_ask(&ranks[j], 'r', 50), j ? 14 : 50);
		}
		for (unsigned j = 0; j < 2; j++) {
			assert_int_equal(rank_ask(&ranks[j], 'l', 0), 2);
			assert_int_equal(rank_ask(&ranks[j], 'A', 0), 200);
		}
		for (unsigned j = 0; j < 2; j++)
			rank_end(&ranks[j]);
	}
	snprintf(name, sizeof(name), "%s/spillway", run);
	snprintf(own, sizeof(own), "%s/spillway-%u", memory, (unsigned)geteuid());
	rmdir(name);
	rmdir(own);
	assert_true(rmdir(run) == 0 && rmdir(memory) == 0);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	user_dir_run = "/run/user";
	user_dir_memory = "/dev/shm";
}

TEST(a_file_of_another_version_is_left_alone_while_it_is_used)
{
	struct rank a = account_joined(), b = account_start();
	uint64_t version = 99;

	share_overwrite(account_path, 8, &version, sizeof(version));
	assert_false(rank_ask(&b, 'j', TOTAL));
	/* It is alone at once. */
	assert_int_equal(rank_ask(&b, 'b', TOTAL / 2), TOTAL / 2);
	assert_int_equal(rank_ask(&b, 'b', 2 * TOTAL), TOTAL);
	rank_kill(&a);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'r', 64), 64);
}

/* Nothing may divide by the number of members, or take another one for itself. */
TEST(who_is_not_in_the_file_any_more_leaves_it)
{
	struct rank a = account_start(), b = account_start();

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
}

/* A damaged file is made again, although a child has it open. */
TEST(a_child_of_a_fork_does_not_keep_a_damaged_file)
{
	struct rank a = account_start();

	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&a, 'l', 0) && rank_ask(&a, 'f', 0));
	assert_int_equal(truncate(account_path, 100), 0);
	assert_int_equal(rank_ask(&a, 'l', 0), 0);
	assert_true(rank_ask(&a, 'j', TOTAL));
	assert_int_equal(rank_ask(&a, 'l', 0), 1);
	assert_int_equal(write(child_waits[1], "", 1), 1);
}

EACH_TEST(make_account, drop_account)

int main(void)
{
	return pipe(child_waits) ? 1 : test_run();
}
