// SPDX-License-Identifier: Apache-2.0
/*
 * The pure part of the plugin for Slurm: from options and what a task was given to the environment of the task.
 */
#include "test/test.h"
#include "tools/slurm/slurm_env.h"

static struct slurm_site site;
static struct slurm_environment made;

BEFORE_EACH
{
	slurm_site_default(&site, "/lib/libspillway.so", "/bin/spillway");
}

static void make(struct slurm_request request)
{
	assert_true(slurm_environment_make(&site, &request, &made));
}

TEST(the_library_comes_first_and_once)
{
	make((struct slurm_request){0});
	assert_string_equal(made.preload, "/lib/libspillway.so");
	assert_string_equal(made.policy, "");
	assert_string_equal(made.set, "");
	make((struct slurm_request){.preload = "/a.so:/lib/libspillway.so /lib/libspillway.so.1"});
	assert_string_equal(made.preload, "/lib/libspillway.so:/a.so:/lib/libspillway.so.1");
}

TEST(policy_and_settings_are_passed_on)
{
	make((struct slurm_request){.policy = "managed", .set = "spill.mode=fast,spill.peers=0, 1"});
	assert_string_equal(made.policy, "managed");
	assert_string_equal(made.set, "spill.mode=fast,spill.peers=0, 1");
}

TEST(the_command_line_replaces_keys_of_the_environment)
{
	make((struct slurm_request){.inherited = "spill.peers=0, 1,spill.mode=fast", .set = " spill.peers = 2"});
	assert_string_equal(made.set, "spill.mode=fast, spill.peers = 2");
	make((struct slurm_request){.inherited = "spill.mode=fast,spill.peers=0, 1", .set = "spill.mode=exact"});
	assert_string_equal(made.set, "spill.peers=0, 1,spill.mode=exact");
}

TEST(items_are_joined)
{
	char set[SLURM_ENV_BYTES] = "", large[SLURM_ENV_BYTES];

	assert_true(slurm_set_add(set, "a.b=1"));
	assert_true(slurm_set_add(set, "c=2,d=3"));
	assert_string_equal(set, "a.b=1,c=2,d=3");
	assert_false(slurm_set_add(set, "c"));
	assert_false(slurm_set_add(set, "=2"));
	assert_false(slurm_set_add(set, ""));
	memset(large, 'x', sizeof(large) - 1);
	large[1] = '=';
	large[sizeof(large) - 1] = 0;
	assert_false(slurm_set_add(set, large));
	assert_string_equal(set, "a.b=1,c=2,d=3");
}

TEST(half_of_the_memory_is_shared_by_the_tasks)
{
	struct slurm_task task = {.memory_mib = 4096, .tasks = 4};

	make((struct slurm_request){.task = task});
	assert_string_equal(made.set, "host.budget=512MiB");
	make((struct slurm_request){.task = task, .set = "host.budget=1GiB"});
	assert_string_equal(made.set, "host.budget=1GiB");
	make((struct slurm_request){.task = task, .inherited = "host.total=1GiB"});
	assert_string_equal(made.set, "host.total=1GiB");
	task.tasks = 0;
	make((struct slurm_request){.task = task});
	assert_string_equal(made.set, "host.budget=2048MiB");
	/* Slurm was not told how much memory the node has. */
	task.memory_mib = 1;
	make((struct slurm_request){.task = task});
	assert_string_equal(made.set, "");
	task.memory_mib = 4096;
	assert_true(slurm_site_argument(&site, "budgets=no"));
	make((struct slurm_request){.task = task});
	assert_string_equal(made.set, "");
}

TEST(a_gpu_is_shared_by_its_tasks)
{
	make((struct slurm_request){.task = {.tasks = 2, .gpus = 2}});
	assert_string_equal(made.set, "");
	make((struct slurm_request){.task = {.tasks = 1, .gpus = 4}});
	assert_string_equal(made.set, "");
	make((struct slurm_request){.task = {.tasks = 2, .gpus = 1}});
	assert_string_equal(made.set, "device.budget=45%");
	make((struct slurm_request){.task = {.tasks = 3, .gpus = 2}});
	assert_string_equal(made.set, "device.budget=59%");
	make((struct slurm_request){.task = {.tasks = 2, .gpus = 1}, .set = "device.total=80%"});
	assert_string_equal(made.set, "device.total=80%");
	/* Tasks that were given no GPU: nothing is known. */
	make((struct slurm_request){.task = {.tasks = 8}});
	assert_string_equal(made.set, "");
}

TEST(a_part_of_a_gpu_is_a_budget)
{
	struct slurm_task task = {.tasks = 1, .gpus = 1, .shards = 2};

	make((struct slurm_request){.task = task});
	assert_string_equal(made.set, "");
	assert_true(slurm_site_argument(&site, "shards=8"));
	make((struct slurm_request){.task = task});
	assert_string_equal(made.set, "device.budget=22%");
	make((struct slurm_request){.task = {.tasks = 2, .mps_percent = 50}});
	assert_string_equal(made.set, "device.budget=22%");
}

TEST(arguments_are_read_strictly)
{
	static const char *const wrong[] = {
	    "",        "library",   "library=",  "library=x.so", "tool=spillway", "shards=0",
	    "shards=", "shards=4x", "shards=-1", "budgets=",     "budgets=maybe", "libraryx=/a"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		if (slurm_site_argument(&site, wrong[i]))
			fail_msg("taken: %s", wrong[i]);
	assert_string_equal(site.library, "/lib/libspillway.so");
	assert_true(slurm_site_argument(&site, "library=/a/b.so"));
	assert_true(slurm_site_argument(&site, "tool=/a/spillway"));
	make((struct slurm_request){0});
	assert_string_equal(made.preload, "/a/b.so");
	assert_string_equal(site.tool, "/a/spillway");
}

TEST(what_is_too_long_is_refused)
{
	static char large[SLURM_ENV_BYTES + 1];

	memset(large, 'x', sizeof(large) - 1);
	assert_false(slurm_environment_make(&site, &(struct slurm_request){.preload = large}, &made));
	assert_false(slurm_environment_make(&site, &(struct slurm_request){.policy = large}, &made));
	large[1] = '=';
	assert_false(slurm_environment_make(&site, &(struct slurm_request){.set = large}, &made));
	assert_false(slurm_environment_make(&site, &(struct slurm_request){.inherited = large}, &made));
}
