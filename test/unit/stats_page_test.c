// SPDX-License-Identifier: Apache-2.0
/*
 * stats_page_test.c: the figures themselves: histograms, what grows with time, and the tables by device, rule and site.
 */
#include "shim/base/clock.h"
#include "shim/base/call_site.h"
#include "shim/stats/stats.h"
#include "test/test.h"
#include "test/unit/seed.h"

#include <sys/resource.h>

FIXTURE(begin_anew)
{
	memset((void *)&stats, 0, sizeof(stats));
	stats.start_clock = clock_now();
}

TEST(a_bucket_holds_what_is_within_a_sixteenth_of_its_middle)
{
	struct seed seed = seed_start("stats_page_test");

	for (unsigned i = 0; i < 200000; i++) {
		uint64_t value = seed_next(&seed) >> seed_next(&seed) % 64;
		unsigned bucket = stats_bucket(value);
		uint64_t least = stats_bucket_least(bucket), next = stats_bucket_least(bucket + 1);

		if (bucket == STATS_BUCKETS - 1)
			continue;
		assert_true(least <= value && value < next);
		double middle = (double)(least + next - 1) / 2, off = middle - (double)value;
		assert_true((off < 0 ? -off : off) <= (double)value / 16);
	}
}

TEST(every_value_has_a_bucket_and_they_are_in_order)
{
	for (unsigned bucket = 1; bucket < STATS_BUCKETS; bucket++)
		assert_int_equal(stats_bucket(stats_bucket_least(bucket)), bucket);
	assert_int_equal(stats_bucket(0), 0);
	assert_int_equal(stats_bucket(UINT64_MAX), STATS_BUCKETS - 1);
}

TEST_WITH(time_on_the_host_is_bytes_times_time, begin_anew, NULL)
{
	uint64_t start = stats.start_clock, second = 1000000000;

	assert_int_equal(stats_page_get(&stats, STAT_host_time, start + 5 * second), 0);
	stats_live_add(0, PLACE_HOST, 8 * MIB);
	stats_live_add(0, PLACE_HOST, 2 * MIB);
	/* What the clock says between these lines is less than a second on any machine that is not stopped. */
	uint64_t weight = stats_page_get(&stats, STAT_host_time, start + 100 * second);
	assert_in_range(weight, 99 * 1000 * 10 * 1024, 100 * 1000 * 10 * 1024);
	assert_in_range(stats_page_get(&stats, STAT_over_us, start + 100 * second), 99000000, 100000000);
	stats_live_sub(0, PLACE_HOST, 10 * MIB);
	uint64_t end = stats_page_get(&stats, STAT_host_time, clock_now());
	assert_int_equal(stats_page_get(&stats, STAT_host_time, start + 1000 * second), end);
	assert_true(stats_page_get(&stats, STAT_over_us, start + 1000 * second) < 1000000);
}

TEST_WITH(places_count_by_device_and_for_the_process, begin_anew, NULL)
{
	stats_live_add(0, PLACE_DEVICE, 5);
	stats_live_add(3, PLACE_DEVICE, 7);
	stats_live_sub(3, PLACE_DEVICE, 2);
	stats_live_add(STATS_DEVICES, PLACE_DEVICE, 100); /* has no figures of its own */
	stats_live_add(-1, PLACE_PINNED, 9);
	assert_int_equal(stats.live[PLACE_DEVICE], 110);
	assert_int_equal(stats.peak[PLACE_DEVICE], 110);
	assert_int_equal(stats.device[0].live[PLACE_DEVICE], 5);
	assert_int_equal(stats.device[3].live[PLACE_DEVICE], 5);
	assert_int_equal(stats.device[3].peak[PLACE_DEVICE], 7);
	assert_int_equal(stats.live[PLACE_PINNED], 9);
}

static uint64_t of(const struct stats_figures *figures, enum figure figure)
{
	return atomic_load(&figures->figure[figure]);
}

TEST_WITH(what_is_lent_counts_by_link_and_what_was_lent_most_is_kept, begin_anew, NULL)
{
	stats_know_link(2, 5, STATS_LINK_NVLINK);
	stats_know_link(STATS_DEVICES, 1, STATS_LINK_PCIE); /* no figures of its own */
	stats_know_link(1, -1, STATS_LINK_PCIE);
	stats_moved_lent(2, 5, true, 3);
	stats_moved_lent(2, 5, false, 4);
	stats_moved_lent(2, STATS_DEVICES, false, 10);
	stats_set_lent(5, 9);
	stats_set_lent(5, 6);
	stats_set_lent(STATS_DEVICES, 100);
	const struct stats_link *link = &stats.device[2].link[5];
	assert_true(link->kind == STATS_LINK_NVLINK && link->figure[LINK_IN] == 3 && link->figure[LINK_OUT] == 4);
	assert_true(stats.device[5].link[2].kind == STATS_LINK_UNASKED && !stats.device[5].link[2].figure[LINK_IN]);
	assert_true(stats_get(STAT_peer_in_bytes) == 3 && stats_get(STAT_peer_out_bytes) == 14);
	assert_true(stats.device[5].lent == 6 && stats.device[5].most_lent == 9);
}

/*
 * Callers that only their address tells from others. The text of each is the first byte of the next one: it is empty.
 */
static struct call_site callers[2 * STATS_SITES + 2];

static const struct call_site *caller_of(uintptr_t i)
{
	return &callers[i];
}

TEST_WITH(a_site_counts_for_its_device_backend_and_rule, begin_anew, NULL)
{
	unsigned one = stats_site(1, 0, 4, NULL, 3 * MIB), other = stats_site(1, 2, -1, NULL, 3 * MIB);

	assert_true(one && other && one != other);
	assert_int_equal(stats_site(1, 0, 4, NULL, 2 * MIB), one); /* 2 to 4 MiB are one size */
	assert_int_not_equal(stats_site(1, 0, 4, NULL, 4 * MIB), one);
	stats_made(one, 3 * MIB, MIB);
	stats_made(other, 5, 0);
	stats_gone(other, 5);
	stats_moved(one, true, 2 * MIB, true, NULL, 0);
	stats_moved(one, false, MIB, false, NULL, 0);
	stats_waited(one, 77);
	stats_grown(one, MIB);
	assert_int_equal(of(&stats.site[stats_site_place(one)].figures, FIGURE_live), 4 * MIB);
	assert_int_equal(of(&stats.device[1].figures, FIGURE_live), 4 * MIB);
	assert_int_equal(of(&stats.device[1].figures, FIGURE_allocations), 2);
	assert_int_equal(of(&stats.device[1].figures, FIGURE_frees), 1);
	assert_int_equal(of(&stats.backend[0], FIGURE_spilled_bytes), MIB);
	assert_int_equal(of(&stats.backend[2], FIGURE_allocations), 1);
	assert_int_equal(of(&stats.rule[5].figures, FIGURE_moved_in_bytes), 2 * MIB);
	assert_int_equal(of(&stats.rule[5].figures, FIGURE_refetches), 1);
	assert_int_equal(of(&stats.rule[5].figures, FIGURE_wait_us), 77);
	assert_int_equal(of(&stats.rule[0].figures, FIGURE_frees), 1);
	assert_int_equal(stats.counter[STAT_moves_in], 1);
	assert_int_equal(stats.counter[STAT_refetched_bytes], 2 * MIB);
	assert_int_equal(stats.counter[STAT_moved_out_bytes], MIB);
}

static struct call_site *named(const char *text)
{
	struct call_site *caller = calloc(1, sizeof(*caller) + strlen(text) + 1);

	assert_non_null(caller);
	caller->address = (void *)4096;
	strcpy(caller->text, text);
	return caller;
}

/* What moved and was waited for counts for the lines of tensors, and once for the device, the backend and the rule. */
TEST_WITH(lines_of_tensors_are_sites, begin_anew, NULL)
{
	struct call_site *first = named("train.py:3 in f"), *second = named("train.py:4 in f");

	first->address = second->address = NULL;
	unsigned segment = stats_site(2, 0, 6, NULL, 20 * MIB);
	unsigned one = stats_site_of_tensors(segment, first), two = stats_site_of_tensors(segment, second);
	const struct stats_site *of_one = &stats.site[stats_site_place(one)],
				*of_two = &stats.site[stats_site_place(two)];
	const struct stats_site *of_segment = &stats.site[stats_site_place(segment)];

	assert_true(one != two && one != segment && stats_site_of_tensors(segment, first) == one);
	assert_true(of_one->device == 2 && of_one->rule == 7 && !of_one->least_bytes && of_segment->least_bytes);
	assert_int_equal(stats_site_of_tensors(segment, NULL), segment);
	assert_int_equal(stats_site_of_tensors(0, first), 0);
	const struct stats_part parts[] = {{one, 5 * MIB}, {two, 12 * MIB}};
	stats_moved(segment, true, 20 * MIB, true, parts, 2);
	assert_int_equal(of(&of_one->figures, FIGURE_moved_in_bytes), 5 * MIB);
	assert_int_equal(of(&of_two->figures, FIGURE_moved_in_bytes), 12 * MIB);
	assert_int_equal(of(&of_segment->figures, FIGURE_moved_in_bytes), 3 * MIB);
	/* The piece is a piece of the one who has most of it. */
	assert_true(of(&of_two->figures, FIGURE_moves_in) == 1 && of(&of_two->figures, FIGURE_refetches) == 1);
	assert_true(!of(&of_one->figures, FIGURE_moves_in) && !of(&of_segment->figures, FIGURE_moves_in));
	assert_int_equal(of(&stats.device[2].figures, FIGURE_moved_in_bytes), 20 * MIB);
	assert_int_equal(of(&stats.device[2].figures, FIGURE_moves_in), 1);
	assert_int_equal(of(&stats.rule[7].figures, FIGURE_moved_in_bytes), 20 * MIB);
	assert_int_equal(of(&stats.rule[7].figures, FIGURE_refetches), 1);
	stats_moved(segment, false, 20 * MIB, false, parts, 1);
	assert_int_equal(of(&of_segment->figures, FIGURE_moved_out_bytes), 15 * MIB);
	assert_int_equal(of(&of_segment->figures, FIGURE_moves_out), 1);
	stats_waited(one, 7);
	assert_true(of(&of_one->figures, FIGURE_wait_us) == 7 && of(&stats.rule[7].figures, FIGURE_wait_us) == 7);
	free(first);
	free(second);
}

/* Lines of Python reach the driver by the same code. */
TEST_WITH(a_name_makes_another_site_of_one_address, begin_anew, NULL)
{
	const struct call_site *a = named("train.py:3 in f"), *b = named("train.py:4 in f");
	unsigned one = stats_site(0, 0, -1, a, 64), other = stats_site(0, 0, -1, b, 64);

	assert_int_not_equal(one, other);
	assert_int_equal(stats_site(0, 0, -1, a, 64), one);
	assert_string_equal(stats.site[stats_site_place(one)].text, "train.py:3 in f");
	assert_string_equal(stats.site[stats_site_place(other)].text, "train.py:4 in f");
	assert_int_equal(stats.site[stats_site_place(other)].caller, 4096);
	free((void *)(uintptr_t)a);
	free((void *)(uintptr_t)b);
}

/* The page has less room than names may have. */
TEST_WITH(a_long_name_is_cut_off, begin_anew, NULL)
{
	char text[2 * STATS_TEXT] = "";

	memset(text, 'x', sizeof(text) - 1);
	const struct call_site *caller = named(text);
	unsigned site = stats_site(0, 0, -1, caller, 64);
	assert_int_equal(stats_site(0, 0, -1, caller, 64), site);
	assert_int_equal(strlen(stats.site[stats_site_place(site)].text), STATS_TEXT - 1);
	free((void *)(uintptr_t)caller);
}

TEST_WITH(rules_beyond_the_table_count_as_one, begin_anew, NULL)
{
	unsigned a = stats_site(0, 0, STATS_RULES + 5, NULL, 1), b = stats_site(0, 0, 100000, NULL, 1);

	assert_int_equal(a, b);
	stats_made(a, 1, 0);
	assert_int_equal(of(&stats.rule[STATS_RULES - 1].figures, FIGURE_allocations), 1);
	stats_know_rule(STATS_RULES - 2, "some");
	assert_string_equal(stats.rule[STATS_RULES - 1].name, "all further rules");
	stats_know_rule(STATS_RULES - 1, "none"); /* changes nothing */
	stats_know_rule(-1, "(no rule)");
	assert_string_equal(stats.rule[0].name, "(no rule)");
}

TEST_WITH(a_full_table_counts_the_rest_together, begin_anew, NULL)
{
	uint64_t sum = 0;

	for (uintptr_t i = 1; i <= 2 * STATS_SITES; i++)
		stats_made(stats_site(0, 0, -1, caller_of(i), 64), 64, 0);
	assert_true(of(&stats.site[0].figures, FIGURE_allocations) >= STATS_SITES);
	for (unsigned i = 0; i < STATS_SITES; i++)
		sum += of(&stats.site[i].figures, FIGURE_allocations);
	assert_int_equal(sum, 2 * STATS_SITES);
	assert_int_equal(of(&stats.device[0].figures, FIGURE_allocations), 2 * STATS_SITES);
	assert_int_equal(of(&stats.backend[0], FIGURE_live), 2 * STATS_SITES * 64);
	assert_int_equal(of(&stats.rule[0].figures, FIGURE_peak), 2 * STATS_SITES * 64);
	stats_moved(0, true, 5, false, NULL, 0);
	assert_int_equal(of(&stats.rule[0].figures, FIGURE_moves_in), 0);
	/* What small allocations share has a place of its own, which no site takes. */
	assert_int_equal(of(&stats.site[STATS_SMALL].figures, FIGURE_moves_in), 1);
	assert_int_equal(of(&stats.site[STATS_SMALL].figures, FIGURE_allocations), 0);
	assert_int_equal(of(&stats.site[0].figures, FIGURE_moves_in), 0);
}

static void *make_sites(void *argument)
{
	for (uintptr_t i = 0; i < 20000; i++) {
		unsigned site = stats_site(0, 0, (int)(i % 3), caller_of(1 + i % 5), 1 << i % 4);

		stats_made(site, 10, 0);
		stats_gone(site, 10);
	}
	return NULL;
}

TEST_WITH(threads_agree_on_what_a_site_is, begin_anew, NULL)
{
	pthread_t threads[4];
	unsigned n = 0;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, make_sites, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < STATS_SITES; i++)
		n += stats.site[i].known != 0;
	assert_int_equal(n, 60);
	assert_int_equal(of(&stats.backend[0], FIGURE_allocations), 80000);
	assert_int_equal(of(&stats.backend[0], FIGURE_frees), 80000);
	assert_int_equal(of(&stats.backend[0], FIGURE_live), 0);
}

/* Writing beyond the limit of file sizes is a signal, which would end the program. */
static const char *const lines[] = {"none: nothing that the GPU could fault on has been allocated", "counters"};
static atomic_bool lines_enough;

static void *change_the_line(void *unused)
{
	for (unsigned i = 0; !atomic_load(&lines_enough); i++)
		stats_set_line(lines[i % 2]);
	return NULL;
}

/* The process may end, and say its summary, while that changes. What of it is a race the thread sanitizer says. */
TEST_WITH(the_line_about_faults_may_change_while_it_is_read, begin_anew, NULL)
{
	char line[STATS_LINE];

	for (unsigned i = 0; i < 2; i++) {
		stats_set_line(lines[i]);
		assert_string_equal(stats_page_line(&stats, line), lines[i]);
	}
	pthread_t thread = test_thread(change_the_line, NULL);
	for (unsigned i = 0; i < 2000; i++)
		assert_true(strlen(stats_page_line(&stats, line)) <= strlen(lines[0]));
	atomic_store(&lines_enough, true);
	pthread_join(thread, NULL);
}

TEST_WITH(where_files_may_not_be_large_there_is_none, begin_anew, NULL)
{
	const struct stats_about about = {.policy = "", .policy_hash = "", .mode = "", .spillway = ""};
	const struct rlimit limit = {4096, 4096};
	int status;

	fflush(NULL);
	pid_t child = fork();
	if (!child) {
		setrlimit(RLIMIT_FSIZE, &limit);
		stats_open(&about);
		stats_add(STAT_allocations, 1);
		_exit(stats_get(STAT_allocations) == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/*
 * Readers of another version must see that it is another one. When this fails: has the layout changed since the last
 * release? Then raise STATS_VERSION, and in any case write the new number here.
 */
#define LAYOUT 251396169u

TEST(the_layout_is_the_one_of_this_version)
{
	static const char names[] =
#define STAT(name, unit, text)         #name " " #unit "\n"
#define FIGURE(name, kind, unit, text) #name " " #kind " " #unit "\n"
#define HISTOGRAM(name, text)          #name "\n"
#define PLACE(NAME, name, text)        #name "\n"
#define LINK(NAME, name, unit, text)   #name " " #unit "\n"
#include "shim/stats/stats.def"
	    ;
	/*
	 * Without the padding behind the last member: pages of memory, which the size is made of, differ by processor.
	 */
	size_t bytes = offsetof(struct stats_page, site) + sizeof(((struct stats_page *)NULL)->site);
	uint32_t hash = 2166136261u ^ STATS_VERSION ^ (uint32_t)bytes; /* FNV-1a */

	for (const char *at = names; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 16777619u;
	if (hash != LAYOUT)
		fail_msg("the layout is %u", hash);
}

int main(void)
{
	for (uintptr_t i = 0; i < sizeof(callers) / sizeof(callers[0]); i++)
		callers[i] = (struct call_site){.address = (void *)(i * 4096), .hash = (uint32_t)i * 4096};
	return test_run();
}
