/*
 * choice_test.c: what a policy's decisions come to: the list of uses, caps, denials, observing, and what rules look at.
 * Each in a process of its own.
 */
#include "test/core/child_alloc.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "shim/choice.h"
#include "shim/enter.h"
#include "shim/ledger.h"

static char path[] = "/tmp/choice_test.XXXXXX.yaml";

/* Run with a policy of this text. */
static int with_policy(const char *text, int (*run)(void *argument))
{
	char setting[64];
	int status, fd;

	memcpy(strstr(path, "_test.") + 6, "XXXXXX", 6);
	fd = mkstemps(path, 5);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	snprintf(setting, sizeof(setting), "SPILLWAY_POLICY=%s", path);
	status = core_in_child((const char *const[]){"SIM_MEMORY=256MiB", setting, NULL}, run, NULL);
	unlink(path);
	return status;
}

static bool is_heap(CUdeviceptr address)
{
	return device_of(address) != NULL;
}

static void drop(CUdeviceptr address)
{
	CHECK(cuMemFree_v2(address) == CUDA_SUCCESS);
}

static int denies(void *argument)
{
	(void)argument;
	start();
	CHECK(is_refused(2 * MIB) && stats_get(STAT_refused) == 1);
	drop(alloc(1 * MIB));
	CHECK(sim_calls("cuMemAlloc_v2") == 0 && ledger_n_rows() == 0);
	return 0;
}

static void deny_is_out_of_memory(void **state)
{
	(void)state;
	assert_ok(with_policy("rules:\n- {match: {size: '>= 2MiB'}, use: deny}\n", denies));
}

static int falls_back(void *argument)
{
	uint64_t bytes;

	(void)argument;
	start();
	/* The heap's 32 MiB are full: the driver; then the rule whose list ends in deny. */
	CUdeviceptr first = alloc(24 * MIB), second = alloc(24 * MIB);
	CHECK(is_heap(first) && !is_heap(second));
	CHECK(is_refused(25 * MIB));
	/* What the driver gave counts against the budget, so both go first. */
	drop(first);
	drop(second);
	first = alloc(25 * MIB);
	CHECK(is_heap(first));
	drop(first);
	CHECK(ledger_n_rows() == 0);
	CHECK(choice_count(0, &bytes) == 2 && bytes == 48 * MIB);
	CHECK(choice_count(1, &bytes) == 2 && choice_count(-1, &bytes) == 0);
	return 0;
}

static void no_memory_goes_on_to_the_next_use(void **state)
{
	(void)state;
	assert_ok(with_policy("device.budget: 32MiB\nspill.mode: off\nrules:\n"
			      "- {match: {size: == 24MiB}, use: heap, fallback: driver}\n"
			      "- {use: heap, fallback: deny}\n",
			      falls_back));
}

static int is_missing(void *argument)
{
	(void)argument;
	start();
	/* Nobody on the list is there: the driver. Somebody is: he. */
	CUdeviceptr driver = alloc(MIB), heap = alloc(2 * MIB);
	CHECK(!is_heap(driver) && is_heap(heap));
	CHECK(is_refused(3 * MIB));
	drop(driver);
	drop(heap);
	return 0;
}

static void a_use_that_is_not_there_is_passed_over(void **state)
{
	(void)state;
	assert_ok(with_policy("rules:\n"
			      "- {match: {size: == 1MiB}, use: system}\n"
			      "- {match: {size: == 2MiB}, use: system, fallback: heap}\n"
			      "- {use: system, fallback: deny}\n",
			      is_missing));
}

static int has_a_cap(void *argument)
{
	(void)argument;
	start();
	CUdeviceptr first = alloc(6 * MIB), second = alloc(4 * MIB), third = alloc(MIB), other = alloc(MIB / 2);
	CHECK(is_heap(first) && is_heap(second) && !is_heap(third) && is_heap(other));
	/* What the fallback serves does not count; what is freed counts no more. */
	drop(third);
	third = alloc(MIB);
	CHECK(!is_heap(third));
	drop(second);
	second = alloc(4 * MIB);
	CHECK(is_heap(second));
	/* A try that failed leaves nothing behind. */
	drop(first);
	drop(second);
	for (int i = 0; i < 3; i++)
		CHECK(is_refused(400 * MIB));
	first = alloc(10 * MIB);
	CHECK(is_heap(first));
	drop(first);
	drop(third);
	drop(other);
	CHECK(ledger_n_rows() == 0);
	return 0;
}

static void a_cap_bounds_what_is_live_under_its_rule(void **state)
{
	(void)state;
	assert_ok(
	    with_policy("rules:\n- {match: {size: '>= 1MiB'}, use: heap, fallback: driver, cap: 10MiB}\n", has_a_cap));
}

static int fills_a_cap(void *argument)
{
	CUdeviceptr own[8];
	unsigned n = 0;

	(void)argument;
	start();
	while (n < 8 && cuMemAlloc_v2(&own[n], 2 * MIB) == CUDA_SUCCESS)
		n++;
	CHECK(n == 5); /* 10 MiB, and no fallback */
	while (n)
		drop(own[--n]);
	return 0;
}

static void a_cap_without_fallback_is_out_of_memory(void **state)
{
	(void)state;
	assert_ok(with_policy("rules:\n- {use: heap, cap: 10MiB}\n", fills_a_cap));
}

static int observes(void *argument)
{
	uint64_t bytes;

	(void)argument;
	start();
	CUdeviceptr small = alloc(1000), large = alloc(64 * MIB);
	CHECK(!is_heap(small) && !is_heap(large));
	CHECK(cuMemAlloc_v2(&(CUdeviceptr){0}, 5 * MIB) == CUDA_SUCCESS); /* the rule would have denied it */
	CHECK(sim_calls("cuMemCreate") == 0);
	CHECK(choice_count(0, &bytes) == 1 && bytes == 1000);
	CHECK(choice_count(1, &bytes) == 1 && bytes == 5 * MIB);
	CHECK(choice_count(-1, &bytes) == 1 && bytes == 64 * MIB);
	life_print_summary();
	drop(small);
	drop(large);
	return 0;
}

static void observing_leaves_all_to_the_driver_and_counts(void **state)
{
	(void)state;
	assert_ok(with_policy("observe: yes\nrules:\n- {match: {size: < 1MiB}, use: heap, cap: 10B}\n"
			      "- {match: {size: == 5MiB}, use: deny}\n",
			      observes));
}

/* The first two are the driver's; then live bytes, what is free, the thread, the program's own path. */
static int looks(void *argument)
{
	CUdeviceptr row[3];
	size_t pitch;

	(void)argument;
	start();
	for (int i = 0; i < 3; i++)
		row[i] = alloc(MIB);
	CHECK(!is_heap(row[0]) && !is_heap(row[1]) && is_heap(row[2]));
	for (int i = 0; i < 3; i++)
		drop(row[i]);
	row[0] = alloc(100 * MIB);
	CHECK(is_heap(row[0]));
	row[1] = alloc(5 * MIB); /* 100 MiB are live */
	CHECK(!is_heap(row[1]));
	drop(row[0]);
	drop(row[1]);
	row[0] = alloc(110 * MIB);
	row[1] = alloc(6 * MIB); /* of 128 MiB 18 are free */
	CHECK(is_heap(row[0]) && !is_heap(row[1]));
	drop(row[0]);
	drop(row[1]);
	CHECK(pthread_setname_np(pthread_self(), "loader 1") == 0);
	row[0] = alloc(7 * MIB);
	CHECK(!is_heap(row[0]));
	CHECK(cuMemAllocPitch_v2(&row[1], &pitch, 1000, 100, 4) == CUDA_SUCCESS && !is_heap(row[1]));
	drop(row[0]);
	drop(row[1]);
	return 0;
}

static void rules_see_order_live_bytes_free_memory_thread_and_api(void **state)
{
	(void)state;
	assert_ok(with_policy("device.budget: 128MiB\nrules:\n"
			      "- {match: {order: first 2}, use: driver}\n"
			      "- {match: {live: '>= 100MiB', size: == 5MiB}, use: driver}\n"
			      "- {match: {pressure: 'device.free < 20MiB', size: == 6MiB}, use: driver}\n"
			      "- {match: {thread: 'load*', size: == 7MiB}, use: driver}\n"
			      "- {match: {api: pitch}, use: driver}\n"
			      "- {use: heap}\n",
			      looks));
}

static int is_left_alone(void *argument)
{
	(void)argument;
	start();
	CUdeviceptr address = alloc(MIB);
	CHECK(!is_heap(address));
	drop(address);
	return 0;
}

static int is_served(void *argument)
{
	(void)argument;
	start();
	CUdeviceptr address = alloc(MIB);
	CHECK(is_heap(address));
	drop(address);
	return 0;
}

static void rules_see_who_calls_and_which_process_it_is(void **state)
{
	(void)state;
	assert_ok(with_policy("rules:\n- {match: {library: '*choice_test'}, use: driver}\n", is_left_alone));
	assert_ok(with_policy("rules:\n- {match: {library: '*libcudart*'}, use: driver}\n", is_served));
	assert_ok(with_policy("rules:\n- {match: {process: 'choice_test'}, use: driver}\n", is_left_alone));
	assert_ok(with_policy("rules:\n- {match: {process: 'python*'}, use: driver}\n", is_served));
	/* Started without arguments. */
	assert_ok(with_policy("rules:\n- {match: {arguments: '?*'}, use: driver}\n", is_served));
	assert_ok(with_policy("rules:\n- {match: {arguments: '*'}, use: driver}\n", is_left_alone));
}

static int stays_on_the_device(void *argument)
{
	(void)argument;
	start();
	CUdeviceptr device = alloc(24 * MIB), any = alloc(12 * MIB);
	CHECK(is_heap(device) && is_heap(any) && stats_get(STAT_spilled_bytes) > 0);
	CHECK(is_refused(24 * MIB));
	drop(device);
	drop(any);
	return 0;
}

static void place_device_never_spills(void **state)
{
	(void)state;
	assert_ok(with_policy("device.budget: 32MiB\nhost.budget: 64MiB\nspill.mode: static\nrules:\n"
			      "- {match: {size: == 24MiB}, use: heap, place: device}\n",
			      stays_on_the_device));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(deny_is_out_of_memory),
	    cmocka_unit_test(no_memory_goes_on_to_the_next_use),
	    cmocka_unit_test(a_use_that_is_not_there_is_passed_over),
	    cmocka_unit_test(a_cap_bounds_what_is_live_under_its_rule),
	    cmocka_unit_test(a_cap_without_fallback_is_out_of_memory),
	    cmocka_unit_test(observing_leaves_all_to_the_driver_and_counts),
	    cmocka_unit_test(rules_see_order_live_bytes_free_memory_thread_and_api),
	    cmocka_unit_test(rules_see_who_calls_and_which_process_it_is),
	    cmocka_unit_test(place_device_never_spills),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
