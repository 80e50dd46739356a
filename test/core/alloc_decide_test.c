// SPDX-License-Identifier: Apache-2.0
/*
 * alloc_decide_test.c: what a policy's decisions come to: the list of uses, caps, denials, observing, and what rules
 * look at. Each in a process of its own.
 */
#include "shim/stats/stats.h"
#include "test/core/child_alloc.h"
#include "test/ledger_check.h"

#include <semaphore.h>

#include "shim/serve/serve.h"

static char path[] = "/tmp/alloc_decide_test.XXXXXX.yaml";

/* Run with a policy of this text. */
static int with_policy(const char *text, int (*run)(void *argument))
{
	char setting[64];

	memcpy(strstr(path, "_test.") + 6, "XXXXXX", 6);
	int fd = mkstemps(path, 5);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	snprintf(setting, sizeof(setting), "SPILLWAY_POLICY=%s", path);
	int status = core_in_child((const char *const[]){"SIM_MEMORY=256MiB", setting, NULL}, run, NULL);
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

static CUmemoryPool async_pool(void)
{
	CUmemoryPool pool;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
	return pool;
}

PART_TEST(deny_is_out_of_memory, assert_ok(with_policy("rules:\n- {match: {size: '>= 2MiB'}, use: deny}\n", part)))
{
	start();
	CHECK(is_refused(2 * MIB) && stats_get(STAT_refused) == 1);
	drop(alloc(1 * MIB));
	CHECK(sim_calls("cuMemAlloc_v2") == 0 && ledger_n_rows() == 0);
	return 0;
}

PART_TEST(no_memory_goes_on_to_the_next_use,
	  assert_ok(with_policy("device.budget: 32MiB\nspill.mode: off\nrules:\n"
				"- {match: {size: == 24MiB}, use: heap, fallback: driver}\n"
				"- {use: heap, fallback: deny}\n",
				part)))
{
	uint64_t bytes;

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
	CHECK(alloc_decide_count(0, &bytes) == 2 && bytes == 48 * MIB);
	CHECK(alloc_decide_count(1, &bytes) == 2 && alloc_decide_count(-1, &bytes) == 0);
	return 0;
}

PART_TEST(a_use_that_cannot_serve_is_passed_over,
	  assert_ok(with_policy("rules:\n"
				"- {match: {size: == 1MiB}, use: system, system: {register: no}}\n"
				"- {match: {size: == 2MiB}, use: system, system: {register: no}, fallback: heap}\n"
				"- {use: system, system: {register: no}, fallback: deny}\n",
				part)))
{
	start();
	/* Nobody on the list is there: the driver. Somebody is: he. */
	CUdeviceptr driver = alloc(MIB), heap = alloc(2 * MIB);
	CHECK(!is_heap(driver) && is_heap(heap));
	CHECK(is_refused(3 * MIB));
	drop(driver);
	drop(heap);
	return 0;
}

PART_TEST(managed_and_system_memory_serve_and_count_under_caps,
	  assert_ok(with_policy("rules:\n"
				"- {match: {size: == 1MiB}, use: managed, cap: 1MiB, fallback: heap}\n"
				"- {match: {size: == 2MiB}, use: system}\n",
				part)))
{
	start();
	CUdeviceptr first = alloc(MIB), second = alloc(2 * MIB), third = alloc(3 * MIB);
	uint64_t managed = stats_live(PLACE_MANAGED);
	uint64_t system = stats_live(PLACE_SYSTEM);
	CHECK(managed == MIB && system == 2 * MIB && is_heap(third));
	/* A full cap is passed over, whoever the first choice is. */
	CUdeviceptr fourth = alloc(MIB);
	CHECK(stats_live(PLACE_MANAGED) == managed && is_heap(fourth));
	drop(first);
	first = alloc(MIB);
	CHECK(stats_live(PLACE_MANAGED) == managed && !is_heap(first));
	drop(first);
	drop(second);
	drop(third);
	drop(fourth);
	CHECK(stats_live(PLACE_MANAGED) + stats_live(PLACE_SYSTEM) == 0 && ledger_n_rows() == 0);
	CHECK(stats_get(STAT_passed) == 0 && stats_get(STAT_allocations) == stats_get(STAT_frees));
	return 0;
}

PART_TEST(settings_reach_the_backends,
	  assert_ok(with_policy("managed: {advise: preferred-device, prefetch: on-alloc}\nrules:\n"
				"- match: {size: == 1MiB}\n"
				"  use: managed\n"
				"  managed: {advise: [preferred-host, accessed-by, read-mostly],\n"
				"            prefetch: none}\n"
				"  system: {register: no, huge_pages: no, numa_node: 3}\n",
				part)))
{
	struct backend_request request = {.bytes = MIB};

	start();
	struct device *device = device_get(0);
	struct policy_decision decision = alloc_decide(device, &request);
	const struct policy_managed *managed = decision.managed;
	const struct policy_system *system = decision.system;
	CHECK(managed->advise ==
	      (1 << POLICY_ADVISE_PREFERRED_HOST | 1 << POLICY_ADVISE_ACCESSED_BY | 1 << POLICY_ADVISE_READ_MOSTLY));
	CHECK(managed->prefetch == POLICY_PREFETCH_NONE);
	CHECK(!system->register_pages && !system->huge_pages && system->numa_node == 3);
	/* What the policy leaves open: the nearest node. */
	request.bytes = 2 * MIB;
	decision = alloc_decide(device, &request);
	managed = decision.managed;
	system = decision.system;
	CHECK(managed->advise == 1 << POLICY_ADVISE_PREFERRED_DEVICE && managed->prefetch == POLICY_PREFETCH_ON_ALLOC);
	CHECK(system->register_pages && system->huge_pages && system->numa_node == POLICY_NODE_AUTO);
	return 0;
}

PART_TEST(a_cap_bounds_what_is_live_under_its_rule,
	  assert_ok(with_policy("rules:\n- {match: {size: '>= 1MiB'}, use: heap, fallback: driver, cap: 10MiB}\n",
				part)))
{
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

PART_TEST(a_cap_without_fallback_is_out_of_memory, assert_ok(with_policy("rules:\n- {use: heap, cap: 10MiB}\n", part)))
{
	CUdeviceptr own[8];
	unsigned n = 0;

	start();
	while (n < 8 && cuMemAlloc_v2(&own[n], 2 * MIB) == CUDA_SUCCESS)
		n++;
	CHECK(n == 5); /* 10 MiB, and no fallback */
	while (n)
		drop(own[--n]);
	return 0;
}

PART_TEST(observing_leaves_all_to_the_driver_and_counts,
	  assert_ok(with_policy("observe: yes\nrules:\n- {match: {size: < 1MiB}, use: heap, cap: 10B}\n"
				"- {match: {size: == 5MiB}, use: deny}\n",
				part)))
{
	uint64_t bytes;

	start();
	CUdeviceptr small = alloc(1000), large = alloc(64 * MIB);
	CHECK(!is_heap(small) && !is_heap(large));
	CHECK(cuMemAlloc_v2(&(CUdeviceptr){0}, 5 * MIB) == CUDA_SUCCESS); /* the rule would have denied it */
	CHECK(sim_calls("cuMemCreate") == 0);
	CHECK(alloc_decide_count(0, &bytes) == 1 && bytes == 1000);
	CHECK(alloc_decide_count(1, &bytes) == 1 && bytes == 5 * MIB);
	CHECK(alloc_decide_count(-1, &bytes) == 1 && bytes == 64 * MIB);
	exit_summary_print();
	drop(small);
	drop(large);
	return 0;
}

/* The first two are the driver's; then live bytes, what is free, the thread, the program's own path. */
PART_TEST(rules_see_order_live_bytes_free_memory_thread_and_api,
	  assert_ok(with_policy("device.budget: 128MiB\nrules:\n"
				"- {match: {order: first 2}, use: driver}\n"
				"- {match: {live: '>= 100MiB', size: == 5MiB}, use: driver}\n"
				"- {match: {pressure: 'device.free < 20MiB', size: == 6MiB}, use: driver}\n"
				"- {match: {thread: 'load*', size: == 7MiB}, use: driver}\n"
				"- {match: {api: pitch}, use: driver}\n"
				"- {use: heap}\n",
				part)))
{
	CUdeviceptr row[3];
	size_t pitch;

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

static int is_left_alone(void *argument)
{
	start();
	CUdeviceptr address = alloc(MIB);
	CHECK(!is_heap(address));
	drop(address);
	return 0;
}

static int is_served(void *argument)
{
	start();
	CUdeviceptr address = alloc(MIB);
	CHECK(is_heap(address));
	drop(address);
	return 0;
}

static const char *library; /* from which the next allocation comes; NULL: the one it does come from */

const char *__real_call_site_path(const void *caller);
const char *__wrap_call_site_path(const void *caller);

const char *__wrap_call_site_path(const void *caller)
{
	return library ? library : __real_call_site_path(caller);
}

/* Many callers from one place: what is known of the first is of no use to the others. */
PART_TEST(libraries_are_told_apart_however_many_call,
	  assert_ok(with_policy("rules:\n- {match: {library: [/lib7, /lib299]}, use: driver}\n", part)))
{
	start();
	char caller[32];

	library = caller;
	for (int i = 0; i < 600; i++) {
		snprintf(caller, sizeof(caller), "/lib%d", i % 300);
		CUdeviceptr address = alloc(MIB);
		CHECK(is_heap(address) == (i % 300 != 7 && i % 300 != 299));
		drop(address);
	}
	library = NULL;
	return 0;
}

TEST(rules_see_who_calls_and_which_process_it_is)
{
	assert_ok(with_policy("rules:\n- {match: {library: '*alloc_decide_test'}, use: driver}\n", is_left_alone));
	assert_ok(with_policy("rules:\n- {match: {library: '*libcudart*'}, use: driver}\n", is_served));
	assert_ok(with_policy("rules:\n- {match: {process: 'alloc_decide_test'}, use: driver}\n", is_left_alone));
	assert_ok(with_policy("rules:\n- {match: {process: 'python*'}, use: driver}\n", is_served));
	/* Started without arguments. */
	assert_ok(with_policy("rules:\n- {match: {arguments: '?*'}, use: driver}\n", is_served));
	assert_ok(with_policy("rules:\n- {match: {arguments: '*'}, use: driver}\n", is_left_alone));
}

PART_TEST(place_device_never_spills,
	  assert_ok(with_policy("device.budget: 32MiB\nhost.budget: 64MiB\nspill.mode: static\nrules:\n"
				"- {match: {size: == 24MiB}, use: heap, place: device}\n",
				part)))
{
	start();
	CUdeviceptr device = alloc(24 * MIB), any = alloc(12 * MIB);
	CHECK(is_heap(device) && is_heap(any) && stats_get(STAT_spilled_bytes) > 0);
	CHECK(is_refused(24 * MIB));
	drop(device);
	drop(any);
	return 0;
}

static char place_of(CUdeviceptr address)
{
	return sim_where(address);
}

static int begins_on_the_host(void *argument)
{
	start();
	uint64_t spilled = stats_get(STAT_spilled_bytes);
	CUdeviceptr large = alloc(24 * MIB), small = alloc(2000), other = alloc(1000);
	CHECK(place_of(large) == 'H' && core_pages_at(large, 24 * MIB, 'H') == 12);
	CHECK(place_of(small) == 'H' && place_of(other) == 'D');
	/* By rule, not for want of room: nothing was spilled. */
	CHECK(stats_get(STAT_spilled_bytes) == spilled);
	core_fill(large, 24 * MIB, 3);
	CHECK(core_is_filled(large, 24 * MIB, 3));
	/*
	 * The host budget is 64 MiB: what does not fit goes on to the rule's next use, and without one there is none.
	 */
	CUdeviceptr more = alloc(24 * MIB), driver = alloc(24 * MIB);
	CHECK(place_of(more) == 'H' && !is_heap(driver));
	CHECK(is_refused(30 * MIB));
	/* Warm memory of the other place is not taken. */
	drop(large);
	drop(small);
	drop(other);
	other = alloc(14 * MIB);
	CHECK(place_of(other) == 'D');
	drop(other);
	large = alloc(24 * MIB);
	small = alloc(2000);
	CHECK(place_of(large) == 'H' && place_of(small) == 'H');
	drop(large);
	drop(small);
	drop(more);
	drop(driver);
	CHECK(ledger_n_rows() == 0 && heap_is_valid(atomic_load(&device_get(0)->heap)));
	return 0;
}

TEST(place_host_begins_on_the_host)
{
	static const char *const modes[] = {"off", "static", "exact"};
	char text[512];

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		snprintf(text, sizeof(text),
			 "device.budget: 64MiB\nhost.budget: 64MiB\nspill.mode: %s\nrules:\n"
			 "- {match: {size: == 24MiB}, use: heap, place: host, fallback: driver, movable: no}\n"
			 "- {match: {size: == 30MiB}, use: heap, place: host}\n"
			 "- {match: {size: == 2000B}, use: heap, place: host, movable: no}\n",
			 modes[i]);
		assert_ok(with_policy(text, begins_on_the_host));
	}
}

static int has_no_host(void *argument)
{
	start();
	CUdeviceptr driver = alloc(MIB), heap = alloc(2 * MIB);
	CHECK(!is_heap(driver) && is_heap(heap) && place_of(heap) == 'D');
	drop(driver);
	drop(heap);
	return 0;
}

TEST(place_host_cannot_serve_where_there_is_no_such_memory)
{
	setenv("SIM_HOST_VMM", "0", 1);
	assert_ok(with_policy("rules:\n- {match: {size: == 1MiB}, use: heap, place: host}\n", has_no_host));
	unsetenv("SIM_HOST_VMM");
}

static void wait_for(void *open)
{
	sem_wait(open);
}

PART_TEST(places_hold_in_stream_order, assert_ok(with_policy("async.use: heap\nspill.mode: static\nrules:\n"
							     "- {match: {api: async}, use: heap, place: host}\n"
							     "- {match: {api: pool}, use: heap, place: device}\n",
							     part)))
{
	CUdeviceptr host, device;
	sem_t open;

	start();
	sem_init(&open, 0, 0);
	CHECK(cuLaunchHostFunc(NULL, wait_for, &open) == CUDA_SUCCESS);
	/* Freed on the stream and asked for again on it: only by who may lie there. */
	for (int i = 0; i < 3; i++) {
		CHECK(cuMemAllocAsync(&host, 4 * MIB, NULL) == CUDA_SUCCESS && place_of(host) == 'H');
		CHECK(cuMemFreeAsync(host, NULL) == CUDA_SUCCESS);
		CHECK(cuMemAllocFromPoolAsync(&device, 4 * MIB, async_pool(), NULL) == CUDA_SUCCESS);
		CHECK(place_of(device) == 'D');
		CHECK(cuMemFreeAsync(device, NULL) == CUDA_SUCCESS);
	}
	CHECK(stats_get(STAT_stream_reuses) == 4);
	sem_post(&open);
	core_drain();
	return 0;
}
