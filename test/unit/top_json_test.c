// SPDX-License-Identifier: Apache-2.0
/*
 * top_json_test.c: what other programs read of given figures: JSON of `spillway top`, and the text format of
 * Prometheus. Both are read again by small readers that are strict.
 */
#include "test/test.h"
#include "test/unit/json_check.h"
#include "test/unit/top_show_help.h"

#include <ctype.h>

/* ---- JSON ---- */

static void is_json_line(const char *text)
{
	assert_null(json_check(text));
	assert_int_equal(strchr(text, '\n') - text, strlen(text) - 1);
}

/* What names the process in every sample. */
static const char *labels(void)
{
	static char text[96];

	snprintf(text, sizeof(text), "id=\"%016" PRIx64 "\",uid=\"%u\",pid=\"%d\"", page->identity, (unsigned)geteuid(),
		 (int)self[0]);
	return text;
}

TEST(links_are_in_json_and_for_prometheus)
{
	page_make_lender(page);
	read_twice();
	is_json_line(json_of());
	has(json_of(), "\"used\": 9663676416, \"lent\": 0, \"most_lent\": 0, \"cache\": 0, \"cache_alive\": 0, "
		       "\"cache_most_alive\": 0, \"cache_dead\": 0, \"links\": [{\"lender\": 1, \"kind\": \"nvlink\", "
		       "\"figures\": {\"in_bytes\": 8145338368, \"out_bytes\": 9978249216}, \"rates\": {\"in_bytes\": "
		       "62914560, \"out_bytes\": 31457280}}], ");
	has(json_of(), "\"lent\": 3221225472, \"most_lent\": 4294967296, \"cache\": 0, \"cache_alive\": 0, "
		       "\"cache_most_alive\": 0, \"cache_dead\": 0, \"links\": [], ");
	has(json_of(), "\"processes\": 1, \"lent\": 3221225472, ");
	const char *text = prom_of();
	has(text, "# TYPE spillway_link_in_bytes_total counter\n");
	has(text, ",device=\"0\",uuid=\"GPU-30313233-3435-3637-3839-616263646566\",lender=\"1\",link=\"NVLink\"} "
		  "8145338368\n");
	has(text, ",lender=\"1\",link=\"NVLink\"} 9978249216\n");
	has(text, "\nspillway_device_lent_bytes{id=");
	has(text, "} 3221225472\n");
	has(text, "} 4294967296\n");
	page->device[0].link[1].kind = STATS_LINK_UNKNOWN;
	read_it();
	has(json_of(), "{\"lender\": 1, \"kind\": null, ");
	has(prom_of(), ",link=\"unknown\"} 9978249216\n");
}

TEST(json_is_one_object_on_a_line_with_every_figure)
{
	char part[128];

	read_twice();
	const char *text = json_of();
	is_json_line(text);
	assert_null(strchr(text, '\n')[1] ? text : NULL);
	has(text, "{\"schema\": 2, \"time_ns\": ");
	has(text, "\"interval\": 10.000");
	has(text,
	    "\"places\": {\"device\": 8589934592, \"host\": 5368709120, \"peer\": 0, \"managed\": 0, \"system\": 0, ");
	has(text, "\"state\": \"running\", \"version\": 7, \"problem\": null, \"command\": \"/usr/bin/python3 ");
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
		  "\"heap\", \"rule\": \"optimizer\", \"least_bytes\": 20971520, \"tensors\": false, ");
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

TEST(every_key_of_json_is_in_the_manual)
{
	read_twice();
	for (const char *c = json_of(); (c = strchr(c, '"')); c++) {
		const char *end = c + 1;

		while (*end != '"')
			end += 1 + (*end == '\\');
		end++;
		size_t n = (size_t)(end - c) - 2;

		if (*end == ':' && !is_in_page("spillway-top.1", ".Ss JSON", c + 1, n) &&
		    !is_in_page("spillway-stats.5", NULL, c + 1, n))
			fail_msg("%.*s is in no manual page", (int)n, c + 1);
		c = end - 1;
	}
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
	char family[128] = "", type[32] = "", sample[128], seen[256][128];
	unsigned n_seen = 0, n = 0;

	while (*text) {
		char *behind;

		if (!strncmp(text, "# HELP ", 7)) {
			prom_name(text + 7, sample);
		} else if (!strncmp(text, "# TYPE ", 7)) {
			assert_int_equal(sscanf(text, "# TYPE %127s %31s", family, type), 2);
			assert_string_equal(family, sample);
			assert_true(n_seen < sizeof(seen) / sizeof(*seen));
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

/* ---- both, and the tables ---- */

TEST(hostile_texts_are_quoted)
{
	strcpy(page->policy, "a\"b\\c\nd\033[2J\xff");
	strcpy(page->rule[1].name, "x\"} 1\nspillway_up{a=\"");
	read_it();
	is_json_line(json_of());
	has(json_of(), "\"policy\": \"a\\\"b\\\\c?d?[2J?\"");
	has(prom_of(), ",policy=\"a\\\"b\\\\c?d?[2J?\",");
	has(prom_of(), ",rule=\"x\\\"} 1?spillway_up{a=\\\"\"}");
	assert_null(strchr(text_of(), '\033'));
}

TEST(absurd_numbers_are_printed_all_the_same)
{
	uint64_t *words = (uint64_t *)(void *)page;

	for (size_t i = offsetof(struct stats_page, last_clock) / 8; i < sizeof(*page) / 8; i++)
		words[i] = UINT64_MAX - (i % 3 ? i : 0);
	read_it();
	is_json_line(json_of());
	assert_true(strlen(text_of()) > 0);
	assert_true(strlen(prom_of()) > 0);
	view.details = true;
	assert_true(strlen(text_of()) > 0);
}

TEST(the_text_format_is_kept_and_has_every_figure)
{
	char name[FIGURES_PROM], part[256];

	read_twice();
	const char *text = prom_of();
	assert_true(check_prom(text) > 300);
	for (unsigned i = 0; i < STAT_COUNT; i++) {
		snprintf(part, sizeof(part), "\n%s{%s,command=\"python3 train.py\"} ",
			 figures_prom_name(&figures_counters[i], "", name), labels());
		has(text, part);
	}
	has_not(text, "secret");
	has(text, "\nspillway_wait_seconds_total{");
	snprintf(part, sizeof(part),
		 "\nspillway_device_gpu_faults_total{%s,command=\"python3 "
		 "train.py\",device=\"0\",uuid=\"GPU-30313233-3435-3637-3839-616263646566\"} 0\n",
		 labels());
	has(text, part);
	snprintf(part, sizeof(part), "\nspillway_gpu_faults_total{%s,command=\"python3 train.py\"} 0\n", labels());
	has(text, part);
	/* Not measured: no sample, and no 0. */
	has(text, "# TYPE spillway_device_cpu_faults_total counter\n");
	has_not(text, "\nspillway_device_cpu_faults_total");
}

TEST(units_are_base_units)
{
	char part[256];

	page->counter[STAT_wait_us] = 1500000;
	read_it();
	snprintf(part, sizeof(part), "spillway_wait_seconds_total{%s,command=\"python3 train.py\"} 1.5\n", labels());
	const char *text = prom_of();
	has(text, part);
	/* 5 GiB for the 100 s since the start: in KiB x ms in the page, and some ms more by now. */
	const char *at = strstr(text, "\nspillway_host_time_byte_seconds_total{");
	double value = strtod(strstr(at, "} ") + 2, NULL);
	assert_true(value >= 5 * (double)GIB * 100 * 0.999 && value < 5 * (double)GIB * 160);
}

TEST(buckets_are_cumulative_and_end_with_all)
{
	char part[256];
	uint64_t before = 0;

	read_it();
	const char *text = prom_of();
	snprintf(part, sizeof(part), "spillway_gap_duration_seconds_bucket{%s,command=\"python3 train.py\",le=\"",
		 labels());
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
	snprintf(part, sizeof(part), "spillway_gap_duration_seconds_count{%s,command=\"python3 train.py\"} 4\n",
		 labels());
	has(text, part);
}

EACH_TEST(begin, end)
