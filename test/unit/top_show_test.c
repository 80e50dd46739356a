/*
 * top_show_test.c: what `spillway top` and `spillway prom` print of given figures. Text is compared with what it should
 * be; JSON and the text format of Prometheus are read again by small readers that are strict.
 */
#include "test/unit/page_make.h"
#include "tools/prom.h"
#include "tools/top.h"

#include <ctype.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static struct stats_page *page;
static struct figures figures;
static pid_t self[1];
static struct figures_choice choice = {.only = (uid_t)-1, .pid = self, .n_pids = 1};
static struct top_view view;
static char *shown;

static int begin(void **state)
{
	(void)state;
	page_make_begin();
	self[0] = getpid();
	page = page_make(self[0]);
	view = (struct top_view){.sort = (unsigned)top_column_named("device")};
	return 0;
}

static int end(void **state)
{
	(void)state;
	free(shown);
	shown = NULL;
	figures_free(&figures);
	free(page);
	page_make_end();
	return 0;
}

static void read_it(void)
{
	page_make_write(page, sizeof(*page));
	assert_true(figures_read(&figures, &choice));
	assert_int_equal(figures.n, 1);
}

/* Ten seconds between two readings, whatever the clock of this machine says. */
static void read_twice(void)
{
	read_it();
	page_make_grow(page, 10);
	read_it();
	figures.process[0].seconds = figures.seconds = 10;
}

/* Every number that is this process's id becomes PID, in as many columns. */
static void hide_pid(char *text)
{
	char pid[16];
	size_t length = (size_t)snprintf(pid, sizeof(pid), "%d", (int)self[0]);

	for (char *at = text; (at = strstr(at, pid)); at++) {
		memset(at, ' ', length);
		if (length >= 3)
			memcpy(at + length - 3, "PID", 3);
	}
}

static const char *text_of(void)
{
	size_t bytes;
	free(shown);
	FILE *out = open_memstream(&shown, &bytes);

	top_print_text(out, &figures, &view);
	fclose(out);
	hide_pid(shown);
	return shown;
}

static const char *prom_of(void)
{
	size_t bytes;
	free(shown);
	FILE *out = open_memstream(&shown, &bytes);

	prom_print(out, &figures);
	fclose(out);
	return shown;
}

/* JSON goes to stdout. */
static const char *json_of(void)
{
	FILE *file = tmpfile();

	fflush(stdout);
	int saved = dup(STDOUT_FILENO);
	dup2(fileno(file), STDOUT_FILENO);
	top_print_json(&figures, &view);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	long bytes = lseek(fileno(file), 0, SEEK_END);
	free(shown);
	shown = calloc(1, (size_t)bytes + 1);
	assert_int_equal(pread(fileno(file), shown, (size_t)bytes, 0), bytes);
	fclose(file);
	return shown;
}

/* ---- text ---- */

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

static void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void has_not(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" is in:\n%s", part, text);
}

static void the_table_is_as_documented(void **state)
{
	(void)state;
	read_twice();
	/* The user's name differs between machines; it stands in 8 columns behind the id. */
	char *text = (char *)(uintptr_t)text_of(), *row = strstr(text, "    PID ");
	row = strstr(row + 1, "PID ");
	assert_non_null(row);
	assert_non_null(strstr(row + 4, "PID "));
	has_line(text, "GPU                                 TOTAL   HEAP DRIVER   FREE   HOST   PEER MANAGED SYSTEM "
		       "PINNED  PROCS");
	has_line(text, " 0 Test GPU                           16G     8G     1G     7G     5G      0       0      0    "
		       "  0      1");
	has_line(text,
		 "    PID USER     STATE DEVICE   HOST MANAGED SYSTEM DRIVER PINNED   IN/s  OUT/s FAULT/s  WAIT   TIME "
		 "COMMAND");
	has(text, " run       8G     5G       0      0     1G      0   100M    50M     n/a   25%   ");
	has(text, " python3 /home/u/train.py --token secret\n");
	has_line(text, "     PID   LIVE   PEAK   IN/s  OUT/s  MOVED   WAIT  RULE");
	has_line(text, "     PID    20M    20M   100M      0   1.0G    20s  optimizer");
	has_line(text, "     PID    10M    10M      0      0    20M    10s  (no rule)");
	has_line(text, "     PID    20M    20M      0      0    40M    20s  libtest.so+0x14 >=20M heap");
}

static void before_the_second_reading_rates_are_not_known(void **state)
{
	(void)state;
	read_it();
	has(text_of(), " run       8G     5G       0      0     1G      0    n/a    n/a     n/a   n/a   ");
	has(json_of(), "\"interval\": null");
	has(json_of(), "\"rates\": {\"allocations\": null");
}

static void details_have_every_figure(void **state)
{
	(void)state;
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

static void a_process_that_cannot_be_read_is_a_row_that_says_why(void **state)
{
	(void)state;
	page->version = STATS_VERSION + 1;
	page_make_write(page, sizeof(*page));
	assert_true(figures_read(&figures, &choice));
	char line[128];
	snprintf(line, sizeof(line), "(its figures are of version %d; this tool knows version %d)\n", STATS_VERSION + 1,
		 STATS_VERSION);
	has(text_of(), line);
	has(json_of(), "\"state\": \"other version\"");
	has(prom_of(), "\nspillway_processes_unreadable 1\n");
	page_make_write(page, 100);
	assert_true(figures_read(&figures, &choice));
	has(text_of(), "(its file is broken: its size is 100 bytes");
	view.details = true;
	has(text_of(), "PID, broken\n");
}

static void killed_ones_are_shown_on_request(void **state)
{
	(void)state;
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

static void the_newest_of_many_killed_ones_are_shown(void **state)
{
	size_t n;

	(void)state;
	for (unsigned i = 0; i < 2 * TOP_GONE; i++) {
		struct stats_page *one = page_make(self[0]);

		/* Of processes that had this number before; the one in the middle lived last. */
		one->started -= 1 + i;
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

static void rows_are_in_the_order_of_the_column(void **state)
{
	pid_t pids[3] = {self[0], page_make_process(), page_make_process()};
	const struct figures_choice three = {.only = (uid_t)-1, .pid = pids, .n_pids = 3};
	size_t n;

	(void)state;
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

static void short_numbers_have_five_columns_at_most(void **state)
{
	char room[TOP_TEXT];
	double value = 1;

	(void)state;
	for (unsigned i = 0; i < 600; i++, value *= 1.0737) {
		assert_true(strlen(top_bytes(value, room)) <= 5);
		assert_true(strlen(top_count(value, room)) <= 5);
	}
	assert_string_equal(top_bytes(0, room), "0");
	assert_string_equal(top_bytes(1023.9 * 1024, room), "1.0M");
	assert_string_equal(top_bytes(1536, room), "1.5K");
	assert_string_equal(top_count(999.6, room), "1.0k");
}

/* ---- JSON ---- */

static const char *json_value(const char *c);

static const char *json_string(const char *c)
{
	assert_int_equal(*c, '"');
	for (c++; *c != '"'; c++) {
		assert_true((unsigned char)*c >= 0x20);
		if (*c == '\\')
			assert_non_null(strchr("\"\\u", *++c));
	}
	return c + 1;
}

static const char *json_list(const char *c, char last, bool named)
{
	c++;
	if (*c == last)
		return c + 1;
	for (;;) {
		if (named) {
			c = json_string(c);
			assert_true(c[0] == ':' && c[1] == ' ');
			c += 2;
		}
		c = json_value(c);
		if (*c == last)
			return c + 1;
		assert_true(c[0] == ',' && c[1] == ' ');
		c += 2;
	}
}

static const char *json_value(const char *c)
{
	if (*c == '{')
		return json_list(c, '}', true);
	if (*c == '[')
		return json_list(c, ']', false);
	if (*c == '"')
		return json_string(c);
	if (!strncmp(c, "null", 4))
		return c + 4;
	char *last;
	strtod(c, &last);
	assert_true(isdigit((unsigned char)*c) && last > c);
	return last;
}

static void is_json_line(const char *text)
{
	const char *behind = json_value(text);

	assert_true(behind[0] == '\n' && behind[1] == 0);
}

static void json_is_one_object_on_a_line_with_every_figure(void **state)
{
	char part[128];

	(void)state;
	read_twice();
	const char *text = json_of();
	is_json_line(text);
	assert_null(strchr(text, '\n')[1] ? text : NULL);
	has(text, "{\"schema\": 1, \"time_ns\": ");
	has(text, "\"interval\": 10.000");
	has(text,
	    "\"places\": {\"device\": 8589934592, \"host\": 5368709120, \"peer\": 0, \"managed\": 0, \"system\": 0, ");
	has(text, "\"state\": \"running\", \"version\": 2, \"problem\": null, \"command\": \"/usr/bin/python3 ");
	for (unsigned i = 0; i < STAT_COUNT; i++) {
		if (i == STAT_over_us || i == STAT_host_time)
			continue;
		snprintf(part, sizeof(part), "\"%s\": %" PRIu64, figures_counters[i].name, (uint64_t)page->counter[i]);
		has(text, part);
	}
	has(text, "\"moved_in_bytes\": 104857600,"); /* a second */
	has(text, "\"faults\": {\"gpu_faults\": 0, \"cpu_faults\": null");
	has(text, "\"fault_rates\": {\"gpu_faults\": null");
	has(text, "\"gap_ns\": {\"count\": 4, \"p50\": 1472, \"p90\": 1472, \"p99\": 1472, \"max\": 1472, \"buckets\": "
		  "[[1408, 4]]}");
	has(text, "{\"number\": 1, \"name\": \"optimizer\", \"figures\": {\"live\": 20971520, ");
	has(text, "{\"number\": 9, \"caller\": \"0x1014\", \"text\": \"libtest.so+0x14\", \"device\": 0, \"backend\": "
		  "\"heap\", "
		  "\"rule\": \"optimizer\", \"least_bytes\": 20971520, ");
}

/* A name that is an item of a manual page, from this line on: a word of a line of Cm. */
static bool is_in_page(const char *page_name, const char *from, const char *name, size_t n)
{
	char path[512], line[512];
	bool on = false, found = false;

	snprintf(path, sizeof(path), PAGES "/%s", page_name);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (!found && fgets(line, sizeof(line), file)) {
		const char *at = !strncmp(line, ".It ", 4) ? line + 4 : line + 1;

		on |= !from || !strncmp(line, from, strlen(from));
		if (!on || line[0] != '.' || strncmp(at, "Cm ", 3) != 0)
			continue;
		for (at = strstr(at, "Cm ") + 3; *at; at += strcspn(at, " \n"), at += strspn(at, " \n"))
			found |= strcspn(at, " \n") == n && !strncmp(at, name, n);
	}
	fclose(file);
	return found;
}

static void every_key_of_json_is_in_the_manual(void **state)
{
	(void)state;
	read_twice();
	for (const char *c = json_of(); (c = strchr(c, '"')); c++) {
		const char *end = json_string(c);
		size_t n = (size_t)(end - c) - 2;

		if (*end == ':' && !is_in_page("spillway-top.1", ".Ss JSON", c + 1, n) &&
		    !is_in_page("spillway-stats.5", NULL, c + 1, n))
			fail_msg("%.*s is in no manual page", (int)n, c + 1);
		c = end - 1;
	}
}

static void hostile_texts_are_quoted(void **state)
{
	(void)state;
	strcpy(page->policy, "a\"b\\c\nd\033[2J\xff");
	strcpy(page->rule[1].name, "x\"} 1\nspillway_up{a=\"");
	read_it();
	is_json_line(json_of());
	has(json_of(), "\"policy\": \"a\\\"b\\\\c?d?[2J?\"");
	has(prom_of(), ",policy=\"a\\\"b\\\\c?d?[2J?\",");
	has(prom_of(), ",rule=\"x\\\"} 1?spillway_up{a=\\\"\"}");
	assert_null(strchr(text_of(), '\033'));
}

static void absurd_numbers_are_printed_all_the_same(void **state)
{
	uint64_t *words = (uint64_t *)(void *)page;

	(void)state;
	for (size_t i = offsetof(struct stats_page, last_clock) / 8; i < sizeof(*page) / 8; i++)
		words[i] = UINT64_MAX - (i % 3 ? i : 0);
	read_it();
	is_json_line(json_of());
	assert_true(strlen(text_of()) > 0);
	assert_true(strlen(prom_of()) > 0);
	view.details = true;
	assert_true(strlen(text_of()) > 0);
}

/* ---- Prometheus ---- */

static const char *prom_name(const char *c, char *room)
{
	size_t n = 0;

	assert_true(isalpha((unsigned char)*c));
	while (isalnum((unsigned char)*c) || *c == '_')
		room[n++] = *c++;
	room[n] = 0;
	return c;
}

static const char *prom_labels(const char *c)
{
	char name[64];

	do {
		c = prom_name(c + 1, name);
		assert_true(c[0] == '=' && c[1] == '"');
		for (c += 2; *c != '"'; c++) {
			assert_true(*c && *c != '\n');
			if (*c == '\\')
				assert_non_null(strchr("\"\\n", *++c));
		}
		c++;
	} while (*c == ',');
	assert_int_equal(*c, '}');
	return c + 1;
}

/* Does a sample belong to a family of that type? */
static bool is_of(const char *sample, const char *family, const char *type)
{
	size_t length = strlen(family);

	if (strncmp(sample, family, length) != 0)
		return false;
	if (strcmp(type, "histogram") != 0)
		return !sample[length];
	return !strcmp(sample + length, "_bucket") || !strcmp(sample + length, "_sum") ||
	       !strcmp(sample + length, "_count");
}

/* Every sample stands under its family's TYPE line, and no family comes twice. Returns how many samples there are. */
static unsigned check_prom(const char *text)
{
	char family[128] = "", type[32] = "", sample[128], seen[128][128];
	unsigned n_seen = 0, n = 0;

	while (*text) {
		char *behind;

		if (!strncmp(text, "# HELP ", 7)) {
			prom_name(text + 7, sample);
		} else if (!strncmp(text, "# TYPE ", 7)) {
			assert_int_equal(sscanf(text, "# TYPE %127s %31s", family, type), 2);
			assert_string_equal(family, sample);
			for (unsigned i = 0; i < n_seen; i++)
				assert_string_not_equal(seen[i], family);
			strcpy(seen[n_seen++], family);
			bool total = strlen(family) > 6 && !strcmp(family + strlen(family) - 6, "_total");
			assert_int_equal(total, !strcmp(type, "counter"));
		} else {
			const char *c = prom_name(text, sample);

			assert_true(is_of(sample, family, type));
			c = *c == '{' ? prom_labels(c) : c;
			assert_int_equal(*c, ' ');
			strtod(c + 1, &behind);
			assert_true(behind > c + 1 && *behind == '\n');
			n++;
		}
		text = strchr(text, '\n') + 1;
	}
	return n;
}

static void the_text_format_is_kept_and_has_every_figure(void **state)
{
	char name[FIGURES_PROM], part[256];

	(void)state;
	read_twice();
	const char *text = prom_of();
	assert_true(check_prom(text) > 300);
	for (unsigned i = 0; i < STAT_COUNT; i++) {
		snprintf(part, sizeof(part), "\n%s{pid=\"%d\",command=\"python3 train.py\"} ",
			 figures_prom_name(&figures_counters[i], "", name), (int)self[0]);
		has(text, part);
	}
	has_not(text, "secret");
	has(text, "\nspillway_wait_seconds_total{");
	snprintf(part, sizeof(part),
		 "\nspillway_device_gpu_faults_total{pid=\"%d\",command=\"python3 train.py\","
		 "device=\"0\",uuid=\"GPU-30313233-3435-3637-3839-616263646566\"} 0\n",
		 (int)self[0]);
	has(text, part);
	snprintf(part, sizeof(part), "\nspillway_gpu_faults_total{pid=\"%d\",command=\"python3 train.py\"} 0\n",
		 (int)self[0]);
	has(text, part);
	/* Not measured: no sample, and no 0. */
	has(text, "# TYPE spillway_device_cpu_faults_total counter\n");
	has_not(text, "\nspillway_device_cpu_faults_total");
}

static void units_are_base_units(void **state)
{
	char part[256];

	(void)state;
	page->counter[STAT_wait_us] = 1500000;
	read_it();
	snprintf(part, sizeof(part), "spillway_wait_seconds_total{pid=\"%d\",command=\"python3 train.py\"} 1.5\n",
		 (int)self[0]);
	has(prom_of(), part);
	/* 5 GiB for the 100 s since the start: in KiB x ms in the page, and some ms more by now. */
	const char *at = strstr(shown, "\nspillway_host_time_byte_seconds_total{");
	double value = strtod(strstr(at, "} ") + 2, NULL);
	assert_true(value >= 5 * (double)GIB * 100 * 0.999 && value < 5 * (double)GIB * 160);
}

static void buckets_are_cumulative_and_end_with_all(void **state)
{
	char part[256];
	uint64_t before = 0;

	(void)state;
	read_it();
	const char *text = prom_of();
	snprintf(part, sizeof(part),
		 "spillway_gap_duration_seconds_bucket{pid=\"%d\",command=\"python3 train.py\",le=\"", (int)self[0]);
	unsigned n = 0;
	for (const char *at = text; (at = strstr(at, part)); at++, n++) {
		uint64_t value = strtoull(strstr(at, "} ") + 2, NULL, 10);

		assert_true(value >= before);
		before = value;
		/* What took 1500 ns is not in the first (below 1024 ns), but in the second (below 2048 ns). */
		if (n < 2)
			assert_int_equal(value, n ? 4 : 0);
	}
	assert_int_equal(n, 28);
	assert_int_equal(before, 4);
	has(text, "spillway_gap_duration_seconds_bucket{");
	snprintf(part, sizeof(part), "spillway_gap_duration_seconds_count{pid=\"%d\",command=\"python3 train.py\"} 4\n",
		 (int)self[0]);
	has(text, part);
}

/* What one reading and one table cost with 64 processes; said, and judged by nobody. */
static void sixty_four_processes(void **state)
{
	enum { N = 64, ROUNDS = 20 };
	static pid_t pids[N];
	const struct figures_choice all = {.only = (uid_t)-1, .pid = pids, .n_pids = N};
	struct rusage before, after;

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		pids[i] = page_make_process();
		struct stats_page *one = page_make(pids[i]);

		page_make_write(one, sizeof(*one));
		free(one);
	}
	assert_true(figures_read(&figures, &all));
	getrusage(RUSAGE_SELF, &before);
	for (unsigned i = 0; i < ROUNDS; i++) {
		assert_true(figures_read(&figures, &all));
		text_of();
	}
	getrusage(RUSAGE_SELF, &after);
	assert_int_equal(figures.n, N);
	double us =
	    (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) *
		1e6 +
	    (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec -
		     before.ru_stime.tv_usec);
	printf("top: a reading of %d processes and its table: %.2f ms of a core, so %.2f %% at 1 Hz\n", N,
	       us / ROUNDS / 1e3, us / ROUNDS / 1e4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(the_table_is_as_documented),
	    TEST(before_the_second_reading_rates_are_not_known),
	    TEST(details_have_every_figure),
	    TEST(a_process_that_cannot_be_read_is_a_row_that_says_why),
	    TEST(killed_ones_are_shown_on_request),
	    TEST(the_newest_of_many_killed_ones_are_shown),
	    TEST(rows_are_in_the_order_of_the_column),
	    TEST(short_numbers_have_five_columns_at_most),
	    TEST(json_is_one_object_on_a_line_with_every_figure),
	    TEST(every_key_of_json_is_in_the_manual),
	    TEST(hostile_texts_are_quoted),
	    TEST(absurd_numbers_are_printed_all_the_same),
	    TEST(the_text_format_is_kept_and_has_every_figure),
	    TEST(units_are_base_units),
	    TEST(buckets_are_cumulative_and_end_with_all),
	    TEST(sixty_four_processes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
