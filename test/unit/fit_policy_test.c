// SPDX-License-Identifier: Apache-2.0
/*
 * fit_policy_test.c: the policy that a run speaks for, for runs of every kind; each is read back. And what is said once
 * a minute.
 */
#include "test/test.h"
#include "test/unit/temporary.h"
#include "tools/common/policy_file.h"
#include "tools/run/fit_policy.h"

#include "policy/policy.h"

#define END 100000000000 /* a run of 100 s */

static struct stats_page page;
static struct fit_facts facts;
static char *text;
static struct policy *policy; /* what a reader of policies makes of it */
static const struct policy_settings *settings;

/* A run that asked for 12 GiB on a device of 16 with a budget of 8, and has room for 32 on the host. */
FIXTURE(begin_anew)
{
	memset((void *)&page, 0, sizeof(page));
	page.pid = 42;
	strcpy(page.command, "python train.py --token abc");
	strcpy(page.mode, "exact");
	page.device[0].known = 1;
	page.device[0].total = 16 * GIB;
	page.device[0].budget = 8 * GIB;
	page.device[0].figures.figure[FIGURE_peak] = 20 * GIB;
	page.backend[0].figure[FIGURE_peak] = 20 * GIB;
	page.share_total = page.host_budget = 32 * GIB;
	page.counter[STAT_allocations] = 150;
	facts = (struct fit_facts){.page = &page, .now = END, .n_processes = 1, .host_memory = 128 * GIB};
}

FIXTURE(end)
{
	free(text);
	text = NULL;
	policy_free(policy);
	policy = NULL;
}

EACH_TEST(begin_anew, end)

static void spill(double lost_s)
{
	page.peak[PLACE_HOST] = 12 * GIB;
	page.share_most_used = 12 * GIB;
	page.counter[STAT_spilled_allocations] = 50;
	page.counter[STAT_moves_in] = page.counter[STAT_moves_out] = 6400;
	page.counter[STAT_moved_in_bytes] = 400 * GIB;
	page.counter[STAT_waiting_us] = (uint64_t)(lost_s * 1e6);
}

static void make(void)
{
	struct policy_errors errors;
	size_t bytes;

	end(NULL);
	FILE *file = open_memstream(&text, &bytes);
	assert_true(fit_policy_put(file, &facts));
	fclose(file);
	temporary_save(text, bytes);
	policy = policy_read(temporary, NULL, &errors);
	if (!policy || errors.n)
		fail_msg("%s: %s", errors.n ? errors.kept[0].text : "", text);
	policy_errors_free(&errors);
	settings = policy_settings(policy);
}

static void must_say(const char *words)
{
	if (!strstr(text, words))
		fail_msg("no \"%s\" in:\n%s", words, text);
}

static void must_not_say(const char *words)
{
	if (strstr(text, words))
		fail_msg("\"%s\" in:\n%s", words, text);
}

TEST(what_fits_leaves_all_of_the_device)
{
	make();
	assert_int_equal(settings->device_budget.kind, POLICY_SIZE_AUTO);
	assert_int_equal(settings->spill, POLICY_SPILL_EXACT);
	assert_int_equal(policy_vmm_spill(policy), POLICY_VMM_MOVES);
	must_say("# because it never stops a job, and costs nothing while everything fits\nspill.mode: exact\n");
	must_say("# because all of it fitted: the heap held 20.0 GiB at most, and 8.0 GiB were free\n");
	must_not_say("host.");
}

TEST(what_was_spilled_keeps_the_budget_of_the_run)
{
	spill(25);
	make();
	assert_int_equal(settings->device_budget.value, 8 * GIB);
	must_say("moving memory cost 25.0 % of this run\n");
	must_say("20.0 GiB were needed\ndevice.budget: 8GiB\n");
	must_not_say("Not chosen");
	must_not_say("host.");
	page.counter[STAT_governor_changes] = 1;
	make();
	must_say("cost 25.0 % of this run, without what kernels read over the link while it was off\n");
	/* A part of a MiB is left out. */
	page.device[0].budget = 8 * GIB + 5;
	make();
	assert_int_equal(settings->device_budget.value, 8 * GIB);
}

TEST(a_device_with_room_for_all_has_no_budget)
{
	spill(25);
	page.device[0].total = 80 * GIB;
	make();
	assert_int_equal(settings->device_budget.kind, POLICY_SIZE_AUTO);
	must_say("# because the device has 80.0 GiB and the heap needed 20.0 GiB");
}

TEST(nor_have_several)
{
	spill(25);
	page.device[0].total = 9 * GIB;
	page.device[3] = page.device[0];
	make();
	assert_int_equal(settings->device_budget.kind, POLICY_SIZE_AUTO);
	must_say("16.0 GiB were free on 2 of them");
}

TEST(a_gpu_that_stood_still_gets_a_word_about_fast_and_not_the_mode)
{
	spill(40);
	page.counter[STAT_gaps] = 1000;
	page.counter[STAT_gap_us] = 30000000;
	make();
	assert_int_equal(settings->spill, POLICY_SPILL_EXACT);
	must_say(
	    "# Not chosen: spill.mode: fast copies beside kernels, and the GPU stood still for 30.0 % of this run.");
}

static void refuse(uint64_t class)
{
	spill(25);
	page.counter[STAT_refused] = 3;
	page.site[5].known = 2;
	page.site[5].least_bytes = class;
	page.site[5].figures.figure[FIGURE_refused] = 3;
}

TEST(host_memory_that_was_full_is_raised_by_what_was_refused)
{
	refuse(2 * GIB);
	page.share_most_used = 31 * GIB;
	make();
	assert_int_equal(settings->host_total.value, 35 * GIB);
	must_say("# because 3 requests ended in out of memory, the largest below 4.0 GiB, when 31.0 GiB of 32.0 GiB "
		 "were taken\nhost.total: 35GiB\n");
}

TEST(but_not_beyond_the_machine)
{
	refuse(2 * GIB);
	page.share_most_used = 31 * GIB;
	facts.host_memory = 34 * GIB;
	make();
	assert_int_equal(settings->host_total.kind, POLICY_SIZE_AUTO);
	must_say("# host.total would have to be 35.0 GiB or more, and the machine has 34.0 GiB: it does not fit here.");
}

TEST(nor_where_it_was_not_full)
{
	refuse(2 * GIB);
	make();
	assert_int_equal(settings->host_total.kind, POLICY_SIZE_AUTO);
	must_not_say("host.");
}

TEST(a_budget_of_the_process_alone_is_raised_instead)
{
	refuse(2 * GIB);
	page.share_total = 0;
	page.host_budget = 12 * GIB;
	make();
	assert_int_equal(settings->host_budget.value, 16 * GIB);
	facts.set = "host.budget=12GiB";
	make();
	assert_int_equal(settings->host_budget.value, 12 * GIB);
	must_say("# host.budget is as --set has it; it would have to be 16.0 GiB or more.");
}

TEST(what_the_user_set_stays)
{
	spill(25);
	facts.set = " spill.mode = static ,device.budget=50%,vmm.spill=no,heap.chunk=8MiB";
	make();
	assert_int_equal(settings->spill, POLICY_SPILL_STATIC);
	assert_int_equal(settings->device_budget.kind, POLICY_SIZE_PERCENT);
	assert_int_equal(policy_vmm_spill(policy), POLICY_VMM_DRIVER);
	assert_int_equal(settings->heap_chunk.value, 8 * MIB);
	facts.set = "default=a\nb";
	size_t bytes;
	free(text);
	FILE *file = open_memstream(&text, &bytes);
	assert_false(fit_policy_put(file, &facts));
	fclose(file);
}

TEST(the_costliest_line_is_named_and_no_rule_made_of_it)
{
	spill(25);
	page.site[7].known = 2;
	page.site[7].least_bytes = 64 * MIB;
	strcpy(page.site[7].text, "train.py:57 in forward");
	page.site[7].figures.figure[FIGURE_allocations] = 150;
	page.site[7].figures.figure[FIGURE_moved_in_bytes] = 300 * GIB;
	page.site[7].figures.figure[FIGURE_wait_us] = 20000000;
	facts.n_processes = 3;
	make();
	assert_int_equal(policy_n_rules(policy), 0);
	must_say("# Costs most: 150 allocations of 64.0 MiB to 128.0 MiB, asked for at train.py:57 in forward: 300.0 "
		 "GiB brought in, waited for 20.00 s.");
	must_say("# No rule is about it: what one would save takes a trace");
	must_say("# Of 3 processes that used CUDA memory this is of 42, which lost most.");
	page.site[7].least_bytes = 0; /* tensors */
	make();
	assert_int_equal(policy_n_rules(policy), 0);
	must_say("# Costs most: tensors born at train.py:57 in forward: 300.0 GiB brought in, waited for 20.00 s.");
	must_say("# No rule is about it: rules place the blocks that these tensors share with others.");
}

/* Allocations that a GPU used, and what the CPU touched of them after that. */
static void use_managed(unsigned site, const char *caller, uint64_t used, uint64_t touches)
{
	page.site[site].known = 2;
	page.site[site].least_bytes = MIB << site;
	strcpy(page.site[site].text, caller);
	page.site[site].figures.figure[FIGURE_managed_used] = used;
	page.site[site].figures.figure[FIGURE_managed_touches] = touches;
	page.state = STATS_ENDED;
}

TEST(managed_memory_that_the_cpu_left_alone_gets_a_rule)
{
	use_managed(3, "train.py:5 in \"load\"", 2, 0);
	use_managed(4, "train.py:5 in \"load\"", 1, 0); /* of another size */
	use_managed(5, "train.py:9 in step", 7, 1);
	use_managed(6, "train.py:7 in init", 0, 0);
	make();
	assert_int_equal(policy_n_rules(policy), 1);
	must_say("# That is no proof for the next run: such an access of the CPU stops the job "
		 "(spillway-limits(7)).\nrules:\n"
		 "  # 3 allocations that a GPU used\n"
		 "  - match: {api: managed, caller: \"train.py:5 in \\\"load\\\"\"}\n    use: heap\n");
}

static void must_have_no_rule(void)
{
	make();
	assert_int_equal(policy_n_rules(policy), 0);
	must_not_say("rules:");
}

TEST(and_none_where_that_is_not_known)
{
	use_managed(3, "train.py:5 in load", 2, 0);
	page.fault[FAULT_LOST] = 1;
	must_have_no_rule();
	page.fault[FAULT_LOST] = STATS_NA;
	must_have_no_rule();
	page.fault[FAULT_LOST] = 0;
	page.state = STATS_RUNNING; /* it was killed */
	must_have_no_rule();
	/* Touched, in another size; or by somebody whose place is not known. */
	use_managed(4, "train.py:5 in load", 1, 1);
	must_have_no_rule();
	use_managed(4, "train.py:5 in load", 0, 0);
	use_managed(0, "", 1, 1);
	must_have_no_rule();
	use_managed(0, "", 1, 0);
	make();
	assert_int_equal(policy_n_rules(policy), 1);
}

TEST(nor_where_a_rule_could_match_others)
{
	char most[STATS_TEXT] = "";

	use_managed(3, "", 1, 0);
	must_have_no_rule();
	use_managed(3, "lib*.so+0x12", 1, 0);
	must_have_no_rule();
	use_managed(3, "lib\n.so+0x12", 1, 0);
	must_have_no_rule();
	memset(most, 'a', sizeof(most) - 1); /* cut off, perhaps */
	use_managed(3, most, 1, 0);
	must_have_no_rule();
}

TEST(a_name_cannot_become_a_key)
{
	facts.program = "python -c\ndefault: deny";
	make();
	must_not_say("\ndefault");
	/* Arguments may hold secrets, and policies are passed on. */
	must_not_say("abc");
}

TEST(fit_sets_what_the_user_does_not)
{
	static const char *const cases[][2] = {
	    {NULL, "spill.mode=exact,vmm.spill=move,faults=events"},
	    {"", "spill.mode=exact,vmm.spill=move,faults=events"},
	    {"device.budget=1GiB", "device.budget=1GiB,spill.mode=exact,vmm.spill=move,faults=events"},
	    {"spill.mode=static", "spill.mode=static,vmm.spill=move,faults=events"},
	    {"vmm.spill = no, spill.mode=fast", "vmm.spill = no, spill.mode=fast,faults=events"},
	    {"faults=off", "faults=off,spill.mode=exact,vmm.spill=move"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *set = policy_set_join(cases[i][0], FIT_SET);
		assert_string_equal(set, cases[i][1]);
		free(set);
	}
}

TEST(a_minute_is_told_by_what_it_added)
{
	struct fit_moment before = {0}, now = {0};
	char line[FIT_LINE];

	fit_line(&now, &before, 60, line);
	assert_string_equal(line, "no process of this run uses CUDA memory yet");
	page.backend[0].figure[FIGURE_live] = 3 * GIB;
	fit_moment_add(&now, &page, 50000000000);
	fit_line(&now, &before, 60, line);
	assert_string_equal(line, "nothing is spilled: 3.0 GiB of the device budget of 8.0 GiB are in use");
	spill(9);
	before = (struct fit_moment){0};
	fit_moment_add(&before, &page, 50000000000);
	spill(24);
	page.live[PLACE_HOST] = GIB;
	now = (struct fit_moment){0};
	fit_moment_add(&now, &page, END);
	fit_moment_add(&now, &page, END);
	fit_line(&now, &before, 60, line);
	assert_string_equal(
	    line,
	    "2.0 GiB of 6.0 GiB are spilled (the device budget is 16.0 GiB); moving memory cost 25 % of the last 60 s");
}

GROUP(temporary_make, temporary_remove)
