// SPDX-License-Identifier: Apache-2.0
/*
 * The figures of a process as others see them: what the program did, in numbers that agree with each other and with
 * what its trace says.
 */
#include "shim/spillway.h"
#include "test/preload/figures_help.h"
#include "test/test.h"
#include "tools/digest/digest.h"

#include <sys/mman.h>

/* Fills it once more, and waits. */
static void use(CUdeviceptr block)
{
	MUST(driver_fill(NULL, block, 1, N_WORDS));
	MUST(cu.cuCtxSynchronize());
}

static uint64_t sum_of(const struct stats_page *page, enum figure figure)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_SITES; i++)
		sum += page->site[i].figures.figure[figure];
	return sum;
}

static uint64_t measured(const struct stats_page *page, enum histogram histogram)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		sum += page->histogram[histogram][i];
	return sum;
}

/* What every table must agree on, whatever has moved. */
static void check_sums(const struct stats_page *page)
{
	static const struct {
		enum figure figure;
		enum stats_counter counter;
	} same[] = {
	    {FIGURE_moves_in, STAT_moves_in},
	    {FIGURE_moves_out, STAT_moves_out},
	    {FIGURE_moved_in_bytes, STAT_moved_in_bytes},
	    {FIGURE_moved_out_bytes, STAT_moved_out_bytes},
	    {FIGURE_refetches, STAT_refetches},
	    {FIGURE_allocations, STAT_allocations},
	    {FIGURE_frees, STAT_frees},
	};

	for (unsigned i = 0; i < sizeof(same) / sizeof(*same); i++) {
		uint64_t counter = page->counter[same[i].counter];

		CHECK(sum_of(page, same[i].figure) == counter);
		CHECK(page->device[0].figures.figure[same[i].figure] == counter);
		CHECK(page->backend[0].figure[same[i].figure] == counter);
	}
	CHECK(measured(page, HISTOGRAM_move_in_ns) == page->counter[STAT_moves_in]);
	CHECK(measured(page, HISTOGRAM_move_out_ns) == page->counter[STAT_moves_out]);
	CHECK(measured(page, HISTOGRAM_wait_ns) == page->counter[STAT_waits]);
	CHECK(measured(page, HISTOGRAM_gap_ns) == page->counter[STAT_gaps]);
	CHECK(measured(page, HISTOGRAM_map_ns) + measured(page, HISTOGRAM_unmap_ns) == page->counter[STAT_maps]);
	CHECK(page->counter[STAT_foreseen] + page->counter[STAT_unforeseen] <= page->counter[STAT_moves_in]);
}

CHILD_TEST(placed_once_nothing_moves, SETTINGS(",spill.mode=static"))
{
	work();
	const struct stats_page *page = page_there();

	CHECK(page->pid == (uint64_t)getpid() && page->state == STATS_RUNNING && !page->end_clock);
	CHECK(!strcmp(page->policy, "heap") && strlen(page->policy_hash) == 16 &&
	      strstr(page->command, "figures_test"));
	CHECK(page->device[0].known && page->device[0].total == 128 * MIB && *page->device[0].name);
	CHECK(page->device[0].budget == 32 * MIB && page->device[0].used <= 32 * MIB && page->device[0].used > 0);
	CHECK(page->host_budget == 128 * MIB && page->host_used >= page->live[PLACE_HOST]);
	CHECK(page->live[PLACE_DEVICE] + page->live[PLACE_HOST] >= N_BLOCKS * BLOCK);
	CHECK(page->device[0].live[PLACE_HOST] == page->live[PLACE_HOST] && page->live[PLACE_HOST] > 0);
	CHECK(page->counter[STAT_allocations] == N_BLOCKS);
	CHECK(page->device[0].figures.figure[FIGURE_live] == N_BLOCKS * BLOCK);
	CHECK(page->rule[0].figures.figure[FIGURE_peak] == N_BLOCKS * BLOCK &&
	      !strcmp(page->rule[0].name, "(no rule)"));
	CHECK(page->device[0].fault[FAULT_GPU] == STATS_NA); /* nothing managed, so nothing was counted */
	CHECK(sum_of(page, FIGURE_spilled_bytes) == page->counter[STAT_spilled_bytes]);
	CHECK(page->counter[STAT_rescues] >= page->counter[STAT_spilled_allocations]);
	check_sums(page);
	uint64_t clock = test_now();
	uint64_t over = stats_page_get(page, STAT_over_us, clock);
	CHECK(over > 0 && over <= (clock - page->start_clock) / 1000);
	free_blocks();
	CHECK(page->device[0].figures.figure[FIGURE_live] == 0);
	CHECK(sum_of(page, FIGURE_frees) == N_BLOCKS && page->counter[STAT_frees] == N_BLOCKS);
}

/* Whether memory moves at once depends on how soon the mover gets its turn. */
static void work_until_it_moves(const struct stats_page *page)
{
	time_t end = time(NULL) + 30;

	work();
	while ((!page->counter[STAT_refetches] || !page->counter[STAT_unforeseen]) && time(NULL) < end) {
		for (unsigned i = 0; i < N_BLOCKS; i++)
			MUST(driver_fill(NULL, blocks[i], i, N_WORDS));
		MUST(cu.cuCtxSynchronize());
	}
}

static void counts_moves(void)
{
	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(BLOCK)));
	const struct stats_page *page = page_there();

	work_until_it_moves(page);
	CHECK(page->counter[STAT_moves_in] > 0 && page->counter[STAT_moves_out] > 0);
	CHECK(page->counter[STAT_submissions] > 0 && page->counter[STAT_waits] > 0 && page->counter[STAT_maps] > 0);
	CHECK(page->counter[STAT_unforeseen] > 0 && page->counter[STAT_refetches] > 0);
	free_blocks();
	CHECK(sum_of(page, FIGURE_live) == 0);
}

/* All of the first blocks leave, and are freed; others are made where they were. None of these comes back. */
CHILD_TEST(what_is_made_where_something_had_left_is_no_refetch, SETTINGS(",spill.mode=fast"))
{
	time_t end = time(NULL) + 30;

	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(BLOCK)));
	const struct stats_page *page = page_there();
	work_until_it_moves(page);
	CHECK(spillway_suspend() == 0);
	free_blocks();
	/* The mover obeys, so it has heard. */
	for (unsigned i = 0; i < 2; i++)
		CHECK(spillway_resume() == 0 && spillway_suspend() == 0);
	/* While nothing moves no room is made for them: the last ones begin on the host. */
	for (unsigned i = 0; i < N_BLOCKS; i++)
		blocks[i] = child_alloc(BLOCK);
	CHECK(!child_on_device(blocks[N_BLOCKS - 1], BLOCK) && spillway_resume() == 0);
	uint64_t refetches = page->counter[STAT_refetches], moves = page->counter[STAT_moves_in];
	while (!child_on_device(blocks[N_BLOCKS - 1], BLOCK) && time(NULL) < end)
		use(blocks[N_BLOCKS - 1]);
	CHECK(page->counter[STAT_moves_in] > moves && page->counter[STAT_refetches] == refetches);
}

/*
 * Two threads, each with a captured step that takes the whole device: while both wait neither gets what the other has.
 */
enum { EACH = 2, WHOLE = 16 * MIB, STEPS = 120 };
static CUcontext shared_context;

static CUgraphExec capture_a_step(CUstream stream)
{
	CUdeviceptr whole[EACH];

	for (unsigned i = 0; i < EACH; i++)
		whole[i] = child_alloc(WHOLE);
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (unsigned i = 0; i < EACH; i++)
		MUST(driver_fill(stream, whole[i], i, WHOLE / 4));
	return driver_captured(stream);
}

static void *run_steps(void *argument)
{
	CUgraphExec exec = argument;

	MUST(cu.cuCtxSetCurrent(shared_context));
	CUstream stream = child_stream();
	for (unsigned step = 0; step < STEPS; step++) {
		MUST(cu.cuGraphLaunch(exec, stream));
		MUST(cu.cuStreamSynchronize(stream));
	}
	return NULL;
}

static void runs_two_that_do_not_fit(void)
{
	CUgraphExec exec[2];

	driver_start(0);
	MUST(cu.cuCtxGetCurrent(&shared_context));
	MUST(cu.cuMemFree_v2(child_alloc(BLOCK)));
	const struct stats_page *page = page_there();
	work_until_it_moves(page);
	free_blocks();
	for (unsigned i = 0; i < 2; i++)
		exec[i] = capture_a_step(child_stream());
	pthread_t other = test_thread(run_steps, exec[1]);
	run_steps(exec[0]);
	CHECK(pthread_join(other, NULL) == 0);
	/* A busy machine may hold one up; half of them did. */
	CHECK(page->counter[STAT_waits_given_up] * 8 < page->counter[STAT_waits]);
}

CHILD_TEST(exact_counts_moves_and_gaps, SETTINGS(",spill.mode=exact"))
{
	counts_moves();
	const struct stats_page *page = page_there();

	CHECK(page->counter[STAT_gaps] > 0 && page->counter[STAT_gap_us] > 0 && !strcmp(page->mode, "exact"));
}

TEST(fast_counts_moves)
{
	child_passes(SETTINGS(",spill.mode=fast"), counts_moves);
}

TEST(steps_do_not_wait_for_each_other_in_vain)
{
	for (int i = 0; i < 4; i++) { /* for what happens is chance */
		child_passes(SETTINGS(",spill.mode=fast"), runs_two_that_do_not_fit);
		assert_int_equal(folder_remove(state) || folder_make(state), 0);
	}
}

CHILD_TEST(a_suspended_process_is_seen_to_be_so, SETTINGS())
{
	work();
	const struct stats_page *page = page_there();

	CHECK(spillway_suspend() == 0 && page->state == STATS_SUSPENDED);
	CHECK(page->live[PLACE_DEVICE] == 0 && page->counter[STAT_moved_out_bytes] > 0);
	CHECK(spillway_resume() == 0 && page->state == STATS_RUNNING);
}

/* All of it is on the device again; whether moving would pay is tried all the same. */
CHILD_TEST(moving_is_not_switched_off_where_nothing_is_to_move, SETTINGS(",spill.mode=exact"))
{
	time_t end = time(NULL) + 30;

	driver_start(0);
	CUdeviceptr block = child_alloc(BLOCK);
	const struct stats_page *page = page_there();
	CHECK(spillway_suspend() == 0 && spillway_resume() == 0);
	while (!child_on_device(block, BLOCK) && time(NULL) < end)
		use(block);
	uint64_t changes = page->counter[STAT_governor_changes] + 2, unmoved = page->counter[STAT_unmoved_us];
	while (page->counter[STAT_governor_changes] < changes && time(NULL) < end)
		use(block);
	CHECK(page->counter[STAT_governor_changes] >= changes && page->counter[STAT_unmoved_us] == unmoved);
}

/* Where nothing spills, too, each once. */
static void traces(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(BLOCK);
	for (unsigned i = 0; i < 10; i++)
		MUST(driver_fill(NULL, block, i, N_WORDS));
	MUST(cu.cuCtxSynchronize());
	CHECK(page_there()->counter[STAT_submissions] == 10);
	exit(7); /* not _exit(): then there is a file, however busy the machine is */
}

static uint64_t *shared;

static void moves_and_says_how_busy_it_was(void)
{
	work();
	CHECK(spillway_suspend() == 0);
	*shared = page_there()->counter[STAT_link_us];
	exit(7);
}

static uint64_t link_busy_us(const char *path)
{
	struct trace trace;
	struct digest digest;

	assert_int_equal(trace_read_file(path, &trace), 0);
	assert_int_equal(trace.n_lost, 0);
	assert_int_equal(digest_make(&trace, NULL, &digest), 0);
	uint64_t ns = digest.link_ns;
	assert_int_equal(digest.moves_open, 0);
	digest_free(&digest);
	trace_free(&trace);
	return ns / 1000;
}

/* The summary has it from the counter, the report from the trace. */
TEST(counter_and_trace_agree_on_how_busy_the_link_was)
{
	char trace[128];

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	snprintf(trace, sizeof(trace), "SPILLWAY_TRACE=%s/trace", folder);
	for (unsigned fast = 0; fast < 2; fast++) {
		const char *const settings[] = {
		    "SIM_MEMORY=128MiB", runtime, trace,
		    fast ? "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no,spill.mode=fast"
			 : "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no,spill.mode=exact",
		    NULL};

		assert_int_equal(child_run(settings, moves_and_says_how_busy_it_was), 7);
		uint64_t us = link_busy_us(strchr(trace, '/'));
		assert_true(us > 0);
		/* But for what is rounded off at the end. */
		assert_in_range(*shared, us > 0 ? us - 1 : 0, us + 1);
		assert_int_equal(unlink(strchr(trace, '/')), 0);
	}
	munmap(shared, 4096);
}

TEST(submissions_of_a_traced_program_are_counted)
{
	char trace[128];

	snprintf(trace, sizeof(trace), "SPILLWAY_TRACE=%s/trace", folder);
	assert_int_equal(child_run((const char *const[]){"SIM_MEMORY=128MiB", runtime, trace,
							 "SPILLWAY_SET=report.summary=no", NULL},
				   traces),
			 7);
	assert_int_equal(unlink(strchr(trace, '/')), 0);
}

#define RULES                                                                                                          \
	"version: 1\n"                                                                                                 \
	"rules:\n"                                                                                                     \
	"  - {name: big ones, match: {size: \">= 4MiB\"}, use: heap, movable: no, place: host}\n"                      \
	"  - {name: never, match: {size: \"== 3MiB\"}, use: heap}\n"

static void counts_by_rule(void)
{
	work();
	child_alloc(MIB);
	const struct stats_page *page = page_there();

	CHECK(!strcmp(page->rule[1].name, "big ones") && !strcmp(page->rule[2].name, "never"));
	CHECK(page->rule[1].figures.figure[FIGURE_allocations] == N_BLOCKS);
	CHECK(page->rule[1].figures.figure[FIGURE_spilled_bytes] == N_BLOCKS * BLOCK);
	CHECK(page->rule[2].figures.figure[FIGURE_allocations] == 0);
	CHECK(page->rule[0].figures.figure[FIGURE_live] == MIB);
}

TEST(rules_have_figures_of_their_own)
{
	char path[256], setting[320];

	snprintf(path, sizeof(path), "%s/rules.yaml", folder);
	FILE *file = fopen(path, "w");
	fputs(RULES, file);
	fclose(file);
	snprintf(setting, sizeof(setting), "SPILLWAY_POLICY=%s", path);
	const char *const settings[] = {"SIM_MEMORY=128MiB", runtime, setting,
					"SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no", NULL};
	int status = child_run(settings, counts_by_rule);
	unlink(path);
	assert_int_equal(status, 0);
}

EACH_TEST(folder_make, folder_remove)
