// SPDX-License-Identifier: Apache-2.0
/*
 * top_show_test.c: the tables of `spillway top`: which rows there are, in which order, and what they say of given
 * figures.
 */
#include "test/test.h"
#include "test/unit/top_show_help.h"
#include "tools/common/shared.h"

static void has_line(const char *text, const char *line)
{
	size_t length = strlen(line);

	for (const char *at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, line, length) && at[length] == '\n')
			return;
		if (!*at)
			break;
	}
	fail_msg("no line \"%s\" in:\n%s", line, text);
}

TEST(the_table_is_as_documented)
{
	read_twice();
	/* The user's name differs between machines; it stands in 8 columns behind the id. */
	char *text = (char *)(uintptr_t)text_of(), *row = strstr(text, "    PID ");
	row = strstr(row + 1, "PID ");
	assert_non_null(row);
	assert_non_null(strstr(row + 4, "PID "));
	has_line(text, "GPU                                 TOTAL   HEAP DRIVER   LENT   FREE   HOST   PEER MANAGED "
		       "SYSTEM PINNED  PROCS");
	has_line(text, " 0 Test GPU                           16G     8G     1G      0     7G     5G      0       0    "
		       "  0      0      1");
	has_not(text, "LINK ");
	has_line(text, "    PID USER     STATE DEVICE   HOST   PEER MANAGED SYSTEM DRIVER PINNED   IN/s  OUT/s FAULT/s "
		       " WAIT   TIME ID               COMMAND");
	has(text, " run       8G     5G      0       0      0     1G      0   100M    50M     n/a   50%   ");
	has(text, " python3 /home/u/train.py --token secret\n");
	has_line(text, "     PID   LIVE   PEAK   IN/s  OUT/s  MOVED   WAIT  RULE");
	has_line(text, "     PID    20M    20M   100M      0   1.0G    20s  optimizer");
	has_line(text, "     PID    10M    10M      0      0    20M    10s  (no rule)");
	has_line(text, "     PID    20M    20M      0      0    40M    20s  libtest.so+0x14 >=20M heap");
}

#define GPU "abcdefabcdefabcdefabcdefabcdefab"

/* Every number is as it is there, also one with the digits of this process's id. */
static char *tables_of(unsigned lines)
{
	char *tables = shared_text();

	assert_non_null(tables);
	for (const char *at = tables; *at; at++)
		lines -= *at == '\n';
	assert_int_equal(lines, 0);
	return tables;
}

/* Whose turn it is, who waits for how long, what a switch costs, and what each has had for its weight. */
TEST(gpus_that_are_shared_have_a_table)
{
	has_not(text_of(), "shared");
	page_make_account();
	read_it();
	has_line(text_of(), "GPU abcdefab, shared: 32.0 GiB in all");
	char *text = tables_of(6);
	has_line(text, "    PID    MAY HAVE       HOLDS       NEEDS  CANNOT MOVE      IDLE  JOB  TURN          TURNS   "
		       "      GOT         SHARE  WEIGHT    SWITCH");
	has_line(text, "4000001    26.0 GiB    20.0 GiB    24.0 GiB          0 B         -    -  has it           11   "
		       "   30.0 s   60 of  75 %       3    1.50 s");
	has(text, "4000002     3.0 GiB     1.0 GiB    24.0 GiB          0 B         -    -  waits 5.");
	has(text, "  12      20.0 s   40 of  25 %       1    1.50 s\n");
	has_line(text, "4000003     3.0 GiB     1.0 GiB    24.0 GiB          0 B         -    -  -                13   "
		       "   20.0 s    0 of   0 %       1    1.50 s");
	has_not(text, "4000004");
	free(text);
	has(prom_of(), "\nspillway_shared_total_bytes{gpu=\"" GPU "\"} 34359738368\n");
	has(prom_of(), "\nspillway_shared_needs_bytes{gpu=\"" GPU "\",pid=\"4000003\"} 25769803776\n");
	has(prom_of(), "\nspillway_turn_holder{gpu=\"" GPU "\",pid=\"4000001\"} 1\n");
	has(prom_of(), "\nspillway_turn_holder{gpu=\"" GPU "\",pid=\"4000002\"} 0\n");
	has(prom_of(), "\nspillway_turn_waiting_seconds{gpu=\"" GPU "\",pid=\"4000002\"} 5");
	has(prom_of(), "\nspillway_turn_share_ratio{gpu=\"" GPU "\",pid=\"4000001\"} 0.6\n");
	has(prom_of(), "\nspillway_turn_weight_ratio{gpu=\"" GPU "\",pid=\"4000001\"} 0.75\n");
	has(prom_of(), "\nspillway_turn_switch_seconds{gpu=\"" GPU "\",pid=\"4000003\"} 1.5\n");
}

TEST(before_the_second_reading_rates_are_not_known)
{
	read_it();
	has(text_of(), " run       8G     5G      0       0      0     1G      0    n/a    n/a     n/a   n/a   ");
	has(json_of(), "\"interval\": null");
	has(json_of(), "\"rates\": {\"allocations\": null");
}

TEST(what_devices_lend_and_borrow_is_shown)
{
	page_make_lender(page);
	read_it();
	has_line(text_of(), " 0 borrows of 1                    NVLink     n/a    n/a     7G     9G");
	read_twice();
	has_line(text_of(), " 0 Test GPU                           16G     8G     1G      0     7G     5G     2G       "
			    "0      0      0      1");
	has_line(text_of(), " 1 Test GPU                           16G      0      0     3G    13G      0      0       "
			    "0      0      0      1");
	has_line(text_of(), "LINK                               KIND      IN/s  OUT/s     IN    OUT");
	has(text_of(), " run       8G     5G     2G ");
	view.details = true;
	has(text_of(), "    lent to other GPUs 3.0 GiB, at most 4.0 GiB\n");
	has(text_of(), "    borrows of GPU 1, link NVLink: in_bytes 7.6 GiB (60.0 MiB a second), out_bytes 9.3 GiB "
		       "(30.0 MiB a second)\n");
	has_not(text_of(), "borrows of GPU 0");
}

TEST(details_have_every_figure)
{
	view.details = true;
	read_twice();
	const char *text = text_of();
	for (unsigned i = 0; i < STAT_COUNT; i++)
		has(text, figures_counters[i].name);
	for (unsigned i = 0; i < FIGURE_COUNT; i++)
		has(text, figures_tables[i].name);
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
		has(text, figures_histograms[i].name);
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		has(text, figures_faults[i].name);
	has(text, "policy       job.yaml (0123456789abcdef), spill.mode exact, spillway 1.2.3");
	has(text, "page faults  n/a: nothing counts them");
	has(text, "gpu_faults 0, cpu_faults n/a");
	has(text, "GPU-30313233-3435-3637-3839-616263646566");
	has(text, "  gap_ns                              4     1.5 us     1.5 us     1.5 us     1.5 us\n");
}

TEST(digits_of_the_pid_in_another_word_stay)
{
	view.details = true;
	snprintf(page->policy_hash, sizeof(page->policy_hash), "a%d", (int)self[0]);
	char hash[STATS_TEXT + 2];
	snprintf(hash, sizeof(hash), "(%s)", page->policy_hash);
	read_twice();
	has(text_of(), hash);
}

TEST(a_process_that_cannot_be_read_is_a_row_that_says_why)
{
	page->version = STATS_VERSION + 1;
	page_make_write(page, sizeof(*page));
	assert_true(figures_read(&figures, &choice));
	char line[128];
	snprintf(line, sizeof(line),
		 "(its figures are of version %d; this tool knows version %d: use the newer spillway)\n",
		 STATS_VERSION + 1, STATS_VERSION);
	has(text_of(), line);
	has(json_of(), "\"state\": \"other version\"");
	has(prom_of(), "\nspillway_processes_unreadable 1\n");
	page_make_write(page, 100);
	assert_true(figures_read(&figures, &choice));
	has(text_of(), "(its file is broken: its size is 100 bytes");
	view.details = true;
	has(text_of(), "PID, broken\n");
}

TEST(killed_ones_are_shown_on_request)
{
	page->started--;
	read_it();
	has(text_of(), "0 processes, and 1 that left figures when killed (--gone)");
	has_not(text_of(), "train.py");
	has(json_of(), "\"gone\": 1");
	has(json_of(), "\"processes\": []");
	has_not(prom_of(), "train.py");
	has(prom_of(), "\nspillway_processes 0\n");
	view.gone = TOP_GONE;
	has(text_of(), " gone  ");
	has(json_of(), "\"state\": \"gone\"");
}

TEST(the_newest_of_many_killed_ones_are_shown)
{
	size_t n;

	for (unsigned i = 0; i < 2 * TOP_GONE; i++) {
		struct stats_page *one = page_make(self[0]);

		/* Of processes that had this number before; the one in the middle lived last. */
		one->started -= 1 + i;
		one->identity += (uint64_t)(1 + i) << 48;
		one->start_clock = page->start_clock;
		one->last_clock = one->start_clock + (i > TOP_GONE ? 2 * TOP_GONE - i : i) * 1000000;
		one->live[PLACE_DEVICE] = i * GIB;
		page_make_write(one, sizeof(*one));
		free(one);
	}
	page_make_write(page, sizeof(*page));
	assert_true(figures_read(&figures, &choice));
	assert_int_equal(figures.n_gone, 2 * TOP_GONE);
	has(text_of(), "1 process, and 20 that left figures when killed (--gone)");
	view.gone = TOP_GONE;
	const struct figures_process **list = top_order(&figures, &view, &n);
	assert_int_equal(n, 1 + TOP_GONE);
	assert_true(list[0]->page->alive);
	for (size_t i = 1; i < n; i++)
		assert_true(!list[i]->page->alive &&
			    (i == 1 || page_last(list[i]->page) <= page_last(list[i - 1]->page)));
	assert_int_equal(list[1]->page->copy->live[PLACE_DEVICE], TOP_GONE * GIB);
	free(list);
	has(text_of(), "11 processes, and 10 that were killed before (--gone=all)");
	view.gone = SIZE_MAX;
	has(text_of(), "21 processes\n");
}

TEST(rows_are_in_the_order_of_the_column)
{
	pid_t pids[3] = {self[0], page_make_process(), page_make_process()};
	const struct process_name names[3] = {{.pid = pids[0]}, {.pid = pids[1]}, {.pid = pids[2]}};
	const struct figures_choice three = {.only = (uid_t)-1, .name = names, .n = 3};
	size_t n;

	for (unsigned i = 0; i < 3; i++) {
		struct stats_page *one = page_make(pids[i]);

		one->live[PLACE_DEVICE] = (i == 1 ? 9 : 3 + i) * GIB;
		page_make_write(one, sizeof(*one));
		free(one);
	}
	assert_true(figures_read(&figures, &three));
	const struct figures_process **list = top_order(&figures, &view, &n);
	assert_int_equal(n, 3);
	assert_int_equal(list[0]->page->pid, pids[1]);
	assert_int_equal(list[1]->page->pid, pids[2]);
	free(list);
	view.reverse = true;
	list = top_order(&figures, &view, &n);
	assert_int_equal(list[0]->page->pid, pids[0]);
	free(list);
	/* Every column can decide, also where nothing is known. */
	for (view.sort = 0; view.sort < top_n_columns(); view.sort++) {
		list = top_order(&figures, &view, &n);
		assert_int_equal(n, 3);
		free(list);
	}
}

TEST(short_numbers_have_five_columns_at_most)
{
	char room[TOP_TEXT];
	double value = 1;

	for (unsigned i = 0; i < 600; i++, value *= 1.0737) {
		assert_true(strlen(top_bytes(value, room)) <= 5);
		assert_true(strlen(top_count(value, room)) <= 5);
	}
	assert_string_equal(top_bytes(0, room), "0");
	assert_string_equal(top_bytes(1023.9 * 1024, room), "1.0M");
	assert_string_equal(top_bytes(1536, room), "1.5K");
	assert_string_equal(top_count(999.6, room), "1.0k");
}

TEST(sixty_four_processes)
{
	enum { N = 64 };
	static struct process_name names[N];
	const struct figures_choice all = {.only = (uid_t)-1, .name = names, .n = N};

	for (unsigned i = 0; i < N; i++) {
		names[i].pid = page_make_process();
		struct stats_page *one = page_make(names[i].pid);

		page_make_write(one, sizeof(*one));
		free(one);
	}
	assert_true(figures_read(&figures, &all));
	text_of();
	assert_int_equal(figures.n, N);
}

EACH_TEST(begin, end)
