// SPDX-License-Identifier: Apache-2.0
/*
 * summary_test.c: what is said at the end of a run, for runs of every kind. The first three lines of some are compared
 * to the letter.
 */
#include "shim/stats/summary.h"
#include "test/test.h"

static struct stats_page page;
static struct summary summary;
static const char *trace; /* where the run has written one, or NULL */

/* A run of 100 s that asked for 12 GiB in blocks of 64 to 128 MiB, on a device of 16 GiB with a budget of 8. */
BEFORE_EACH
{
	trace = NULL;
	memset((void *)&page, 0, sizeof(page));
	page.pid = 42;
	strcpy(page.policy, "heap");
	strcpy(page.policy_hash, "0123456789abcdef");
	strcpy(page.mode, "exact");
	strcpy(page.device[0].name, "Some GPU");
	strcpy(page.rule[1].name, "optim");
	page.device[0].known = 1;
	page.device[0].total = 16 * GIB;
	page.device[0].budget = 8 * GIB;
	page.host_budget = 32 * GIB;
	for (unsigned k = 0; k < FAULT_COUNT; k++)
		page.fault[k] = STATS_NA;
	page.site[7].known = 2;
	page.site[7].rule = 1;
	page.site[7].least_bytes = 64 * MIB;
	strcpy(page.site[7].text, "libc10_cuda.so+0x12");
	struct stats_figures *all[] = {&page.site[7].figures, &page.device[0].figures, &page.backend[0],
				       &page.rule[1].figures};
	for (unsigned i = 0; i < 4; i++) {
		all[i]->figure[FIGURE_allocations] = 150;
		all[i]->figure[FIGURE_peak] = 12 * GIB;
	}
	page.counter[STAT_allocations] = 150;
	page.live[PLACE_DEVICE] = page.peak[PLACE_DEVICE] = 8 * GIB;
}

static void spill(void)
{
	page.peak[PLACE_HOST] = page.live[PLACE_HOST] = 4 * GIB;
	page.counter[STAT_spilled_allocations] = page.counter[STAT_rescues] = 50;
	page.counter[STAT_spilled_bytes] = 4 * GIB;
	page.counter[STAT_over_us] = 90000000 - 100000000; /* and it still is */
}

static void share(unsigned ranks, unsigned refused)
{
	page.share_total = 64 * GIB;
	page.share_most_used = 48 * GIB;
	page.share_most_ranks = ranks;
	page.counter[STAT_share_refused] = refused;
}

static void move(uint64_t wait_s, uint64_t gap_s)
{
	struct stats_figures *all[] = {&page.site[7].figures, &page.device[0].figures, &page.backend[0]};

	for (unsigned i = 0; i < 3; i++) {
		all[i]->figure[FIGURE_moved_in_bytes] = 400 * GIB;
		all[i]->figure[FIGURE_wait_us] = wait_s * 1000000;
	}
	page.counter[STAT_moves_in] = page.counter[STAT_moves_out] = 6400;
	page.counter[STAT_moved_in_bytes] = page.counter[STAT_moved_out_bytes] = 400 * GIB;
	page.counter[STAT_link_us] = 10000000;
	page.counter[STAT_waits] = 300;
	/* Three threads that waited together. */
	page.counter[STAT_wait_us] = 3 * wait_s * 1000000;
	page.counter[STAT_waiting_us] = wait_s * 1000000;
	page.counter[STAT_gaps] = gap_s ? 1000 : 0;
	page.counter[STAT_gap_us] = gap_s * 1000000;
}

static void make(void)
{
	summary_make(&page, 100000000000, trace, &summary);
	assert_true(summary.n <= SUMMARY_LINES);
}

/* Does a line of what is said of the page as it is have these words? */
static bool says(const char *words)
{
	make();
	for (unsigned i = 0; i < summary.n; i++)
		if (strstr(summary.line[i].text, words))
			return true;
	return false;
}

static void must_say(const char *words)
{
	if (says(words))
		return;
	for (unsigned i = 0; i < summary.n; i++)
		printf("%s\n", summary.line[i].text);
	fail_msg("nobody says: %s", words);
}

/* To the letter, with the figures after them and without. */
static void must_be_short(const char *spilled, const char *cost, const char *change)
{
	const char *const lines[SUMMARY_SHORT] = {spilled, cost, change};

	make();
	for (unsigned i = 0; i < SUMMARY_SHORT; i++)
		assert_string_equal(summary.line[i].text, lines[i]);
	assert_true(summary.n > SUMMARY_SHORT);
	summary_make_short(&page, 100000000000, &summary);
	assert_int_equal(summary.n, SUMMARY_SHORT);
	for (unsigned i = 0; i < SUMMARY_SHORT; i++)
		assert_string_equal(summary.line[i].text, lines[i]);
}

TEST(a_run_that_fits_is_told_in_few_lines)
{
	must_say("  100.0 s, policy heap (0123456789abcdef), spill exact, Some GPU");
	must_say("the heap held 12.0 GiB at most, 1.50 of the device budget of 8.0 GiB (the device has 16.0 GiB); over "
		 "it for 0 % of the run");
	must_say("  device      8.0 GiB live at exit,     8.0 GiB at most, budget 8.0 GiB");
	must_say("150 allocations, 0 frees, 0 refused, 0 left to the driver");
	must_say("  nothing was spilled");
	assert_false(says("host  ") || says("page faults") || says("moved"));
	assert_int_equal(summary.n, SUMMARY_SHORT + 5);
	must_be_short(
	    "summary of process 42: nothing was spilled: the heap held 12.0 GiB at most; the device budget is 8.0 GiB",
	    "  cost: no submission waited for memory", "  change: nothing");
}

TEST(small_allocations_are_named_and_no_site_is_blamed_for_them)
{
	page.site[STATS_SMALL].figures.figure[FIGURE_moved_in_bytes] = GIB;
	page.site[STATS_SMALL].figures.figure[FIGURE_wait_us] = 5000000;
	must_say("costs most: small allocations: 1.0 GiB brought in");
}

TEST(what_moved_and_what_it_cost_is_told)
{
	spill();
	move(30, 20);
	must_say("over it for 90 % of the run");
	must_say("spilled 4.0 GiB in 50 allocations; 50 would have been out of memory");
	must_say(
	    "moved 400.0 GiB to the device and 400.0 GiB to the host, in 12800 pieces, link busy 10.00 s: 85.9 GB/s");
	must_say("300 submissions waited, 90.00 s in all, for 30 % of the run at least one; the GPU was stopped 1000 "
		 "times, 20.00 s (20 %)");
	must_say("costs most: 150 allocations of 64.0 MiB to 128.0 MiB under rule optim, asked for at "
		 "libc10_cuda.so+0x12: 400.0 GiB brought in (100 % of all), waited for 30.00 s");
}

TEST(what_went_to_other_gpus_is_not_said_to_have_gone_to_the_host)
{
	spill();
	move(30, 20);
	page.counter[STAT_peer_out_bytes] = 390 * GIB;
	must_say("moved 400.0 GiB to the device, 10.0 GiB to the host and 390.0 GiB to other GPUs, in 12800 pieces, "
		 "link busy 10.00 s: 85.9 GB/s");
}

TEST(room_on_the_device_is_the_first_advice)
{
	spill();
	move(30, 20);
	must_say("change: the device has 16.0 GiB and the heap needed 12.0 GiB: without device.budget");
}

static void need_more_than_there_is(void)
{
	page.backend[0].figure[FIGURE_peak] = page.device[0].figures.figure[FIGURE_peak] = 20 * GIB;
	spill();
}

TEST(where_nothing_moves_moving_is_advised)
{
	strcpy(page.mode, "static");
	need_more_than_there_is();
	must_say("GPU reads of it go over the link");
	must_be_short(
	    "summary of process 42: spilled: 4.0 GiB lay on the host at most, of 20.0 GiB in all; the device budget is "
	    "8.0 GiB",
	    "  cost: not known: nothing was moved to the device; kernels read it over the link, which nobody times",
	    "  change: spill.mode: exact moves memory to where it is used; with static kernels read 4.0 GiB over the "
	    "link, each time");
}

TEST(where_the_gpu_stands_still_fast_is_advised)
{
	need_more_than_there_is();
	move(30, 20);
	make();
	must_be_short("summary of process 42: spilled: 4.0 GiB lay on the host at most, of 20.0 GiB in all; the device "
		      "budget is 8.0 GiB",
		      "  cost: 30.0 % of the run: for 30.0 of 100.0 s at least one submission waited for memory, the "
		      "GPU was stopped for 20.0 %",
		      "  change: the GPU stood still for 20 % of the run; spill.mode: fast copies beside kernels (see "
		      "its limits in spillway-policy(5))");
}

/* As after `spillway set PID spill.mode=fast`. */
TEST(who_is_fast_by_now_is_not_advised_to_be)
{
	need_more_than_there_is();
	move(30, 20);
	strcpy(page.mode, "fast");
	assert_false(says("spill.mode: fast"));
	must_say("change: half of what moves is 150 allocations");
}

TEST(else_a_rule_for_what_moves_most_is_advised)
{
	need_more_than_there_is();
	move(30, 0);
	assert_false(says("the GPU was stopped"));
	page.counter[STAT_governor_changes] = 3;
	page.counter[STAT_unmoved_us] = 1500000; /* in the first step: next to nothing */
	assert_false(says("switched off"));
	page.counter[STAT_unmoved_us] = 12000000;
	page.peak[PLACE_PEER] = GIB;
	page.counter[STAT_refused] = 2;
	must_be_short(
	    "summary of process 42: spilled: 5.0 GiB lay on the host and on other devices at most, of 20.0 GiB in all; "
	    "the device budget is 8.0 GiB; 2 requests ended in out of memory",
	    "  cost: 30.0 % of the run: for 30.0 of 100.0 s at least one submission waited for memory; moving was "
	    "switched off for 12 % of the run, what kernels read over the link then is not counted",
	    "  change: half of what moves is 150 allocations of 64.0 MiB to 128.0 MiB under rule optim, asked for at "
	    "libc10_cuda.so+0x12: if a step uses them once, a rule for them with place: host, movable: no lets the "
	    "rest stay; `spillway replay` of a trace says what it saves");
	page.site[7].figures.figure[FIGURE_moved_in_bytes] = 100 * GIB;
	page.counter[STAT_refused] = 0;
	must_say("change: nothing that the figures show; `spillway run --trace job.trace ...`");
}

/* Rules are about allocations. */
TEST(of_tensors_no_rule_is_advised)
{
	need_more_than_there_is();
	move(30, 0);
	page.site[7].least_bytes = 0;
	strcpy(page.site[7].text, "train.py:57 in forward");
	must_say("costs most: tensors under rule optim born at train.py:57 in forward: 400.0 GiB brought in");
	/* They may be weights, or states of an optimizer: what is computed anew in each step is not known here. */
	must_say(
	    "change: half of what moves is tensors under rule optim born at train.py:57 in forward: make them smaller, "
	    "or free them earlier; `spillway report` of a trace says whether they last from step to step");
	assert_false(says("checkpoint"));
	strcpy(page.site[7].text, "train.py:57 in forward [backward]");
	must_say("born at train.py:57 in forward [backward], which the backward pass makes: make them smaller, or free "
		 "gradients earlier (zero_grad(set_to_none=True))");
	strcpy(page.site[7].text, "backward");
	must_say("born at backward, which the backward pass makes: make them smaller");
	page.site[7].text[0] = 0; /* none of a line */
	must_say("change: nothing that the figures show");
}

TEST(where_most_is_made_by_the_program_itself_that_is_the_first_advice)
{
	spill();
	move(30, 20);
	page.counter[STAT_vmm_bytes] = 11 * GIB;
	assert_false(says("cuMemCreate"));
	page.counter[STAT_vmm_bytes] = 13 * GIB;
	must_say("change: 13.0 GiB is of the program's own cuMemCreate, which does not move; with vmm.spill: move it "
		 "is memory of the heap");
	assert_false(says("without device.budget"));
}

/* Its allocator may know what to do then: whoever has room enough is told nothing. */
TEST(what_the_program_makes_itself_matters_where_there_is_no_room)
{
	page.counter[STAT_vmm_bytes] = 13 * GIB;
	must_say("  change: nothing");
	page.counter[STAT_refused] = 1;
	must_say("change: 13.0 GiB is of the program's own cuMemCreate");
	page.counter[STAT_vmm_bytes] = 0;
	must_be_short("summary of process 42: nothing was spilled: the heap held 12.0 GiB at most; the device budget "
		      "is 8.0 GiB; 1 request ended in out of memory",
		      "  cost: no submission waited for memory",
		      "  change: memory ran out: see what to raise, where \"out of memory\" was said");
}

TEST(what_costs_next_to_nothing_needs_no_advice)
{
	spill();
	move(1, 0);
	must_be_short("summary of process 42: spilled: 4.0 GiB lay on the host at most, of 12.0 GiB in all; the device "
		      "budget is 8.0 GiB",
		      "  cost: 1.0 % of the run: for 1.0 of 100.0 s at least one submission waited for memory",
		      "  change: nothing: it cost less than 2 % of the run");
}

TEST(what_processes_share_is_told_where_several_do_or_it_was_not_enough)
{
	spill();
	share(1, 0);
	assert_false(says("host.total"));
	share(8, 0);
	must_say("host.total, shared by 8 processes: 48.0 GiB of 64.0 GiB taken at most");
	assert_false(says("no room"));
	share(8, 3);
	must_say("48.0 GiB of 64.0 GiB taken at most; there was no room for more 3 times");
	share(1, 3);
	must_say("host.total: 48.0 GiB of 64.0 GiB taken at most; there was no room for more 3 times");
}

/* The program ended at the first request that was refused: what it would have wanted next, nobody knows. */
TEST(where_shared_host_memory_ran_out_a_run_that_shows_the_need_is_advised)
{
	need_more_than_there_is();
	share(1, 3);
	page.share_most_used = 64 * GIB;
	assert_false(says("memory ran out")); /* others gave some */
	page.counter[STAT_refused] = page.site[7].figures.figure[FIGURE_refused] = 1;
	must_be_short(
	    "summary of process 42: spilled: 4.0 GiB lay on the host at most, of 20.0 GiB in all; the device budget is "
	    "8.0 GiB; 1 request ended in out of memory",
	    "  cost: not known: nothing was moved to the device; kernels read it over the link, which nobody times",
	    "  change: memory ran out at host.total, which was 64.0 GiB: at least 64.1 GiB are needed. Run once with "
	    "host.total: 80%: what then lies on the host at most is enough");
	share(4, 3);
	must_say("Run once with host.total: 80%: what report: full then says was taken at most is enough");
	/* Of a budget of its own no more is known. */
	share(0, 0);
	must_say("change: memory ran out: see what to raise, where \"out of memory\" was said");
}

TEST(what_is_taken_on_use_is_told)
{
	spill();
	assert_false(says("on-use"));
	page.peak[PLACE_UNUSED] = 9 * GIB;
	page.counter[STAT_on_use_bytes] = 2 * GIB;
	must_say("place: on-use: 2.0 GiB taken, 9.0 GiB unused at most");
	assert_false(says("was missing"));
	page.counter[STAT_on_use_whole] = 3;
	page.counter[STAT_on_use_whole_bytes] = GIB;
	page.counter[STAT_on_use_refused] = 4;
	must_say("9.0 GiB unused at most; 3 times all that was missing (1.0 GiB), as the reach was not known; 4 "
		 "submissions found no memory");
}

TEST(managed_memory_says_where_the_cpu_touched_nothing)
{
	page.peak[PLACE_MANAGED] = GIB; /* the policy's */
	assert_false(says("managed memory"));
	page.counter[STAT_managed_left] = 6;
	must_say(
	    "managed memory: not known whether the CPU touches it after the GPU's first use; faults: events tells");
	page.state = STATS_ENDED;
	page.fault[FAULT_LOST] = 0;
	assert_false(says("managed memory"));
	for (unsigned i = 10; i < 13; i++)
		page.site[i].figures.figure[FIGURE_managed_used] = 2;
	page.site[11].figures.figure[FIGURE_managed_touches] = 5;
	page.site[11].figures.figure[FIGURE_managed_back_bytes] = 12 * MIB;
	must_say(
	    "managed memory: a GPU used that of 3 sites; of 2 the CPU touched nothing after that (use: heap may fit); "
	    "of 1 the CPU brought back 12.0 MiB");
	/* What was lost may be about any of them. */
	page.fault[FAULT_LOST] = 1;
	must_say(
	    "a GPU used that of 3 sites; of 1 the CPU brought back 12.0 MiB; of 2 that is not known: events were lost");
	page.fault[FAULT_LOST] = 0;
	page.state = STATS_RUNNING;
	must_say("of 2 that is not known: the process has not ended by itself");
}

TEST(faults_that_nobody_counts_are_not_zero)
{
	page.peak[PLACE_MANAGED] = GIB;
	must_say("page faults n/a: nothing counts them here");
	must_say("cost: no submission waited for memory; faulting pages cost time, which is not counted");
	strcpy(page.fault_source, "none: there is no such device here");
	must_say("page faults n/a: there is no such device here");
	strcpy(page.fault_source, "there is no such device here");
	page.fault[FAULT_GPU] = 1344;
	page.fault[FAULT_CPU] = 0;
	page.fault[FAULT_IN_BYTES] = 16 * MIB;
	page.fault[FAULT_OUT_BYTES] = MIB;
	must_say(
	    "1344 page faults of the GPU, 0 of the CPU, 16.0 MiB in and 1.0 MiB out (there is no such device here)");
}

TEST(fourteen_lines_are_enough)
{
	for (unsigned place = 0; place < PLACE_COUNT; place++)
		page.peak[place] = GIB;
	spill();
	move(30, 20);
	trace = "/some/where.trace";
	make();
	assert_int_equal(summary.n, SUMMARY_LINES);
	/* What is left out is what the user is least likely to ask for. */
	must_say("device  ");
	must_say("host  ");
	must_say("peer  ");
	must_say("change: ");
	assert_false(says("pinned  "));
}

TEST(the_trace_is_named)
{
	trace = "/some/where.trace";
	must_say("more: spillway report /some/where.trace");
	trace = NULL;
	spill();
	must_say("more: spillway run --trace job.trace ..., then spillway report job.trace");
}
