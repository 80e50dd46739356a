// SPDX-License-Identifier: Apache-2.0
/*
 * faults_events_test.c: faults, migrations, evictions, thrashing and read duplicates one by one: where and why. In sum
 * they are what the model counts.
 */
#include "test/core/faults_help.h"

#include "shim/stats/stats.h"

#include <semaphore.h>

#define EVENTS "SPILLWAY_SET=faults=events,report.summary=no"
#define IN_CHILD(run, ...)                                                                                             \
	assert_int_equal(core_in_child((const char *const[]){EVENTS, ##__VA_ARGS__, NULL}, run, NULL), 0)

/* ---- what is told ---- */

enum { MOST = 4096 };
static struct fault_event told[MOST];
static unsigned n_told;
/* Of all that were told. */
static struct sum {
	uint64_t count[FAULT_KINDS];
	uint64_t bytes_in, bytes_out, bytes_evicted;
} sum;

static void add_up(const struct fault_event *event)
{
	sum.count[event->kind]++;
	if (event->kind == FAULT_EVICTION)
		sum.bytes_evicted += event->bytes;
	/* As in the counters, a migration between two devices is neither. */
	if (event->kind == FAULT_MIGRATION && event->from == FAULT_HOST)
		sum.bytes_in += event->bytes;
	if (event->kind == FAULT_MIGRATION && event->device == FAULT_HOST)
		sum.bytes_out += event->bytes;
}

/* Under the lock of whoever drains; read after faults_poll(), when nothing happens any more. */
static void remember(const struct fault_event *event)
{
	add_up(event);
	if (n_told < MOST)
		told[n_told] = *event;
	__atomic_store_n(&n_told, n_told < MOST ? n_told + 1 : MOST, __ATOMIC_RELEASE);
}

static void start_and_listen(void)
{
	faults_help_start();
	faults_listen(remember); /* the library listens itself until then */
}

static unsigned n_of(enum fault_kind kind, enum fault_cause cause, CUdeviceptr at, size_t bytes)
{
	unsigned n = 0;

	faults_poll();
	for (unsigned i = 0; i < n_told; i++)
		n += told[i].kind == kind && told[i].cause == cause && told[i].address - at < bytes;
	return n;
}

static const struct fault_event *first_of(enum fault_kind kind, CUdeviceptr at, size_t bytes)
{
	faults_poll();
	for (unsigned i = 0; i < n_told; i++)
		if (told[i].kind == kind && told[i].address - at < bytes)
			return &told[i];
	CHECK(!"such an event");
	return NULL;
}

static int tells_each(void *argument)
{
	start_and_listen();
	CUdeviceptr at = faults_help_managed(8 * PAGE), other = faults_help_managed(16 * PAGE);

	CHECK(
	    faults_help_source_has("the driver's counters (/dev/nvidia-uvm-tools, driver 580.159.03) and its events"));
	faults_help_write(at, 4 * PAGE);
	CHECK(n_of(FAULT_OF_GPU, FAULT_BY_WRITE, at, 8 * PAGE) == 4);
	CHECK(n_of(FAULT_MIGRATION, FAULT_FOR_ACCESS, at, 8 * PAGE) == 0);
	const struct fault_event *event = first_of(FAULT_OF_GPU, at, PAGE);
	CHECK(event->device == 0 && event->address == at && event->bytes == 0);

	faults_help_cpu(at, 2 * PAGE);
	CHECK(n_of(FAULT_OF_CPU, FAULT_BY_READ, at, 8 * PAGE) == 2);
	CHECK(n_of(FAULT_MIGRATION, FAULT_FOR_ACCESS, at, 8 * PAGE) == 2);
	CHECK(first_of(FAULT_OF_CPU, at, PAGE)->device == FAULT_HOST);
	event = first_of(FAULT_MIGRATION, at, PAGE);
	CHECK(event->device == FAULT_HOST && event->from == 0 && event->bytes == PAGE);

	n_told = 0;
	faults_help_read(at, PAGE);
	CHECK(n_of(FAULT_OF_GPU, FAULT_BY_READ, at, PAGE) == 1 && n_told == 2);
	event = first_of(FAULT_MIGRATION, at, PAGE);
	CHECK(event->device == 0 && event->from == FAULT_HOST && event->cause == FAULT_FOR_ACCESS);
	n_told = 0;
	faults_help_prefetch(at, PAGE, CU_DEVICE_CPU);
	CHECK(n_of(FAULT_MIGRATION, FAULT_FOR_PROGRAM, at, PAGE) == 1 && n_told == 1);

	/* 16 pages fit, 2 of them are the first block's: as many have to go for those of the second. */
	n_told = 0;
	faults_help_write(other, 16 * PAGE);
	CHECK(n_of(FAULT_EVICTION, FAULT_FOR_ROOM, at, 8 * PAGE) == 2);
	CHECK(n_of(FAULT_MIGRATION, FAULT_FOR_ROOM, at, 8 * PAGE) == 2);
	event = first_of(FAULT_EVICTION, at, 8 * PAGE);
	CHECK(event->from == 0 && event->device == FAULT_HOST && event->bytes == PAGE);
	CHECK(sim_broken_rules() == 0);
	return 0;
}

TEST(each_event_says_where_and_why)
{
	IN_CHILD(tells_each);
	IN_CHILD(tells_each, "SIM_UVM=strange-uuids"); /* the only device needs none */
}

PART_TEST(thrashing_and_read_duplicates_are_told, IN_CHILD(part))
{
	start_and_listen();
	CUdeviceptr at = faults_help_managed(4 * PAGE), all = faults_help_managed(16 * PAGE);

	for (int i = 0; i < 4; i++) {
		faults_help_write(at, PAGE);
		faults_help_cpu(at, PAGE);
	}
	const struct fault_event *event = first_of(FAULT_THRASHING, at, PAGE);
	CHECK(n_of(FAULT_THRASHING, FAULT_CAUSE_UNKNOWN, at, 4 * PAGE) == 1);
	CHECK(event->bytes == PAGE);
	CHECK(sim_managed().thrashing == 1);

	faults_help_advise(at + PAGE, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
	faults_help_cpu(at + PAGE, PAGE);
	faults_help_read(at + PAGE, PAGE);
	event = first_of(FAULT_READ_DUPLICATE, at + PAGE, PAGE);
	CHECK(event->bytes == PAGE);

	/* Two that take the device from each other. */
	for (int i = 0; i < 3; i++) {
		faults_help_write(all, 16 * PAGE);
		faults_help_write(at, 4 * PAGE);
	}
	struct sim_managed model = sim_managed();
	CHECK(model.evictions > 16 && model.thrashing > 1);
	faults_poll();
	CHECK(sum.count[FAULT_THRASHING] == model.thrashing);
	CHECK(sum.count[FAULT_READ_DUPLICATE] == model.duplicates);
	CHECK(sum.count[FAULT_EVICTION] == model.evictions);
	CHECK(sum.bytes_evicted == model.evictions * PAGE);
	return 0;
}

/* ---- in sum ---- */

static int adds_up(void *argument)
{
	struct seed seed = *(struct seed *)argument;

	start_and_listen();
	CUdeviceptr at = faults_help_managed(40 * PAGE), other = faults_help_managed(7 * PAGE);

	for (int i = 0; i < 10; i++) {
		faults_help_mix(at, 40 * PAGE, 20, &seed);
		faults_help_mix(other, 7 * PAGE, 10, &seed);
		struct sim_managed model = sim_managed();
		faults_poll();
		CHECK(sum.count[FAULT_OF_GPU] == model.gpu_faults && sum.count[FAULT_OF_CPU] == model.cpu_faults);
		CHECK(sum.count[FAULT_EVICTION] == model.evictions);
		CHECK(sum.count[FAULT_THRASHING] == model.thrashing);
		CHECK(sum.count[FAULT_READ_DUPLICATE] == model.duplicates);
		CHECK(sum.bytes_in == model.bytes_in && sum.bytes_out == model.bytes_out);
		faults_help_check_equal();
	}
	return 0;
}

TEST(events_add_up_to_what_is_counted)
{
	static const char *const drivers[] = {"SIM_DRIVER=515.105.01", "SIM_DRIVER=555.42.02", "SIM_DRIVER=560.35.03",
					      "SIM_DRIVER=565.57.01", "SIM_DRIVER=580.159.03"};
	struct seed seed = seed_start("faults_events_test");

	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
		const char *const settings[] = {EVENTS, drivers[i], NULL};

		if (core_in_child(settings, adds_up, &seed))
			fail_msg("%s", drivers[i]);
	}
}

/* ---- several devices ---- */

static int knows_devices(void *argument)
{
	const int known = argument ? FAULT_SOMEWHERE : 0;
	CUcontext context;

	start_and_listen();
	CUdeviceptr at = faults_help_managed(4 * PAGE);
	faults_help_write(at, PAGE);
	CHECK(first_of(FAULT_OF_GPU, at, PAGE)->device == (known ? known : 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 2) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
	faults_help_prefetch(at + PAGE, PAGE, CU_DEVICE_CPU);
	faults_help_prefetch(at + PAGE, PAGE, 2);
	faults_help_prefetch(at + PAGE, PAGE, 1);
	faults_poll();
	unsigned n = 0;
	for (unsigned i = 0; i < n_told; i++) {
		if (told[i].kind != FAULT_MIGRATION || told[i].address != at + PAGE)
			continue;
		CHECK(told[i].from == (n == 0 ? FAULT_HOST : known ? known : 2));
		CHECK(told[i].device == (known ? known : n == 0 ? 2 : 1));
		n++;
	}
	CHECK(n == 2);
	return 0;
}

TEST(devices_are_told_by_their_uuid)
{
	static const char *const drivers[] = {"SIM_DRIVER=515.105.01", "SIM_DRIVER=555.42.02", "SIM_DRIVER=560.35.03",
					      "SIM_DRIVER=580.159.03"};

	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
		const char *const settings[] = {EVENTS, "SIM_DEVICES=3", drivers[i], NULL};

		if (core_in_child(settings, knows_devices, NULL))
			fail_msg("%s", drivers[i]);
	}
	const char *const strange[] = {EVENTS, "SIM_DEVICES=3", "SIM_UVM=strange-uuids", NULL};
	assert_int_equal(core_in_child(strange, knows_devices, told), 0);
}

/* ---- more than fits ---- */

static sem_t let_go;
static atomic_bool held;

static void hold(const struct fault_event *event)
{
	add_up(event);
	if (!atomic_exchange(&held, true))
		while (sem_wait(&let_go))
			;
}

PART_TEST(what_the_queue_has_no_room_for_is_counted_as_lost, IN_CHILD(part))
{
	enum { TURNS = 400 };
	uint64_t n = 0;

	sem_init(&let_go, 0, 0);
	faults_help_start();
	faults_listen(hold);
	CUdeviceptr at = faults_help_managed(32 * PAGE);
	/* A fault, a migration in, an eviction and a migration out for each page, all of them while nobody reads. */
	for (int i = 0; i < TURNS; i++)
		faults_help_read(at, 32 * PAGE);
	sem_post(&let_go);
	struct sim_managed model = sim_managed();
	faults_poll();
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		n += sum.count[kind];
	uint64_t moves = (model.bytes_in + model.bytes_out) / PAGE, figures[FAULT_COUNT];
	CHECK(n < model.gpu_faults + model.evictions + model.thrashing + moves);
	faults_read(-1, figures);
	CHECK(n + figures[FAULT_LOST] == model.gpu_faults + model.evictions + model.thrashing + moves);
	/* The counters lose nothing. */
	return faults_help_check_equal();
}

static uint64_t lost_events(void)
{
	uint64_t figures[FAULT_COUNT];

	faults_read(-1, figures);
	return figures[FAULT_LOST];
}

PART_TEST(without_events_it_is_not_known_whether_some_were_lost, IN_CHILD(part, "EVENTS=1");
	  assert_int_equal(core_in_child((const char *const[]){"SPILLWAY_SET=report.summary=no", NULL}, part, NULL), 0))
{
	faults_help_start();
	CHECK(lost_events() == STATS_NA);
	faults_help_write(faults_help_managed(PAGE), PAGE);
	CHECK(lost_events() == (getenv("EVENTS") ? 0 : STATS_NA));
	/* The program closes the queue's descriptor, the one behind that of the counters: no event comes any more. */
	for (int fd = 3, n = 0; fd < 256; fd++) {
		char path[32], file[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, file, sizeof(file) - 1) > 0 && strstr(file, "uvm-tools") && n++)
			close(fd);
	}
	CHECK(lost_events() == STATS_NA);
	return faults_help_check_equal();
}

/* ---- by site: what the CPU touches after the GPU's first use ---- */

/*
 * The simulated GPU tells less than a driver: the CPU touches memory only in calls of the driver, and one page at a time;
 * nothing is brought because it is near, or because of access counters; the CPU does not fault on what was evicted; and
 * no event is late. What neither tells is what the CPU reads and writes where the GPU has taken no page from it.
 */

/* Allocations are told by their size, which is a power of two; returns what is counted for those of that size. */
static const _Atomic uint64_t *of_size(size_t bytes)
{
	faults_poll();
	for (unsigned i = 1; i < STATS_SMALL; i++)
		if (atomic_load(&stats.site[i].known) && stats.site[i].least_bytes == bytes)
			return stats.site[i].figures.figure;
	CHECK(!"such a site");
	return NULL;
}

static bool has_counted(size_t bytes, uint64_t used, uint64_t touches, uint64_t back)
{
	const _Atomic uint64_t *its = of_size(bytes);

	if (its[FIGURE_managed_used] != used || its[FIGURE_managed_touches] != touches ||
	    its[FIGURE_managed_back_bytes] != back)
		printf("of %zu bytes: %lu used, %lu touches, %lu bytes\n", bytes, (long)its[FIGURE_managed_used],
		       (long)its[FIGURE_managed_touches], (long)its[FIGURE_managed_back_bytes]);
	return its[FIGURE_managed_used] == used && its[FIGURE_managed_touches] == touches &&
	       its[FIGURE_managed_back_bytes] == back;
}

PART_TEST(what_the_cpu_brings_back_is_counted_by_site, IN_CHILD(part))
{
	faults_help_start();
	CUdeviceptr kept = faults_help_managed(2 * PAGE), back = faults_help_managed(4 * PAGE),
		    unused = faults_help_managed(8 * PAGE);

	/* The CPU's part before the GPU's first use counts for nothing. */
	faults_help_cpu(kept, 2 * PAGE);
	faults_help_cpu(back, 4 * PAGE);
	faults_help_cpu(unused, 8 * PAGE);
	faults_help_write(kept, PAGE);
	faults_help_write(back + PAGE, PAGE);
	CHECK(has_counted(2 * PAGE, 1, 0, 0) && has_counted(4 * PAGE, 1, 0, 0));
	faults_help_cpu(back + PAGE, PAGE); /* a fault and a migration */
	CHECK(has_counted(4 * PAGE, 1, 2, PAGE));
	faults_help_write(back, 4 * PAGE);
	faults_help_cpu(back, 2 * PAGE);
	CHECK(has_counted(2 * PAGE, 1, 0, 0) && has_counted(4 * PAGE, 1, 6, 3 * PAGE) &&
	      has_counted(8 * PAGE, 0, 0, 0));
	/* What comes to an address that was the GPU's begins anew. */
	CHECK(cuMemFree_v2(kept) == CUDA_SUCCESS);
	CUdeviceptr next = faults_help_managed(2 * PAGE);
	faults_help_cpu(next, 2 * PAGE);
	CHECK(has_counted(2 * PAGE, 1, 0, 0));
	faults_help_read(next, PAGE);
	CHECK(has_counted(2 * PAGE, 2, 0, 0));
	/* The sums are those of the backend and of the device. */
	CHECK(stats.device[0].figures.figure[FIGURE_managed_touches] == 6);
	return 0;
}

PART_TEST(what_the_cpu_may_read_without_a_fault_counts_as_touched_and_what_was_evicted_does_not, IN_CHILD(part))
{
	faults_help_start();
	CUdeviceptr at = faults_help_managed(4 * PAGE), copied = faults_help_managed(2 * PAGE),
		    all = faults_help_managed(16 * PAGE);

	faults_help_write(at, 4 * PAGE);
	faults_help_write(all, 16 * PAGE);
	CHECK(sim_managed().evictions >= 4 && has_counted(4 * PAGE, 1, 0, 0));
	/* The CPU faults on a page that was evicted: there is nothing to bring back. */
	uint64_t entry[8] = {1, at};
	sim_uvm_send(entry);
	CHECK(has_counted(4 * PAGE, 1, 1, 0));
	faults_help_read(at, 2 * PAGE);
	faults_help_prefetch(at + PAGE, PAGE, CU_DEVICE_CPU);
	CHECK(has_counted(4 * PAGE, 1, 2, 0));

	faults_help_advise(copied, 2 * PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
	faults_help_cpu(copied, PAGE);
	faults_help_read(copied, PAGE);
	CHECK(has_counted(2 * PAGE, 1, 1, 0));
	return 0;
}

/* ---- a driver that has gone mad ---- */

static int survives(void *argument)
{
	struct seed seed = *(struct seed *)argument;
	uint64_t words[8];

	start_and_listen();
	CUdeviceptr at = faults_help_managed(4 * PAGE);
	for (int i = 0; i < 20000; i++) {
		for (int j = 0; j < 8; j++)
			words[j] = seed_next(&seed);
		/* Types that exist, addresses that are somebody's: so that all of it is looked at. */
		if (i % 2)
			((unsigned char *)words)[0] = (unsigned char)seed_below(&seed, 16);
		if (i % 3)
			words[1] = at + seed_below(&seed, 8 * PAGE);
		sim_uvm_send(words);
		if (i % 500 == 0)
			sim_uvm_put((uint32_t)seed_next(&seed));
		if (i % 100 == 0)
			faults_poll();
	}
	/* And goes on as if nothing had been. */
	faults_poll();
	uint64_t before = sum.count[FAULT_OF_GPU];
	faults_help_write(at, PAGE);
	faults_poll();
	CHECK(sum.count[FAULT_OF_GPU] == before + 1);
	return faults_help_check_equal();
}

TEST(garbage_in_the_queue_does_no_harm)
{
	struct seed seed = seed_start("faults_events_test, garbage");

	assert_int_equal(core_in_child((const char *const[]){EVENTS, NULL}, survives, &seed), 0);
	assert_int_equal(core_in_child((const char *const[]){EVENTS, "SIM_DEVICES=2", NULL}, survives, &seed), 0);
}

/* ---- the thread ---- */

PART_TEST(a_thread_of_ours_empties_the_queue, IN_CHILD(part))
{
	start_and_listen();
	CUdeviceptr at = faults_help_managed(PAGE);
	faults_help_write(at, PAGE);
	/* Nobody polls: the thread does, in the end. The test's limit is what bounds it. */
	UNTIL(__atomic_load_n(&n_told, __ATOMIC_ACQUIRE));
	faults_end();
	faults_end();
	return faults_help_check_equal();
}
