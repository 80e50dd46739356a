// SPDX-License-Identifier: Apache-2.0
/*
 * recorded.c: what the end of a run says, for the figures of a run that was recorded.
 *
 *   recorded write PAGE   prints a page of figures (stats_page.h) as text: a line "name value" for each that is not 0
 *   recorded say TEXT     reads such a text and prints the first three lines of the summary, the line that costs most, and
 *                         the policy that the run speaks for
 *
 * The text names figures as stats.def does, so that it stays good when the page gets others.
 */
#include "shim/stats/summary.h"
#include "tools/run/fit_policy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct stats_page page;

static const char *const counters[] = {
#define STAT(name, ...) #name,
#include "shim/stats/stats.def"
};
static const char *const figures[] = {
#define FIGURE(name, ...) #name,
#include "shim/stats/stats.def"
};
static const char *const places[] = {
#define PLACE(NAME, name, ...) #name,
#include "shim/stats/stats.def"
};

/* Calls one of the two for each figure and each text of the page. */
static struct {
	void (*number)(const char *name, _Atomic uint64_t *at);
	void (*text)(const char *name, char *at, size_t bytes);
} each;

__attribute__((format(printf, 2, 3))) static void number(_Atomic uint64_t *at, const char *format, ...)
{
	char name[80];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(name, sizeof(name), format, arguments);
	va_end(arguments);
	each.number(name, at);
}

static void look_at_figures(const char *of, unsigned i, struct stats_figures *all)
{
	for (unsigned k = 0; k < FIGURE_COUNT; k++)
		number(&all->figure[k], "%s.%u.%s", of, i, figures[k]);
}

static void look_at_page(void)
{
	char name[32];

	each.text("mode", page.mode, sizeof(page.mode));
	each.text("policy", page.policy, sizeof(page.policy));
	number((_Atomic uint64_t *)&page.pid, "pid");
	number((_Atomic uint64_t *)&page.start_clock, "start_clock");
	number(&page.end_clock, "end_clock");
	number(&page.host_budget, "host_budget");
	for (unsigned i = 0; i < STAT_COUNT; i++)
		number(&page.counter[i], "%s", counters[i]);
	for (unsigned i = 0; i < PLACE_COUNT; i++) {
		number(&page.live[i], "live.%s", places[i]);
		number(&page.peak[i], "peak.%s", places[i]);
	}
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		struct stats_device *device = &page.device[i];

		number(&device->known, "device.%u.known", i);
		number(&device->total, "device.%u.total", i);
		number(&device->budget, "device.%u.budget", i);
		number(&device->cache, "device.%u.cache", i);
		number(&device->cache_most_alive, "device.%u.cache_most_alive", i);
		look_at_figures("device", i, &device->figures);
	}
	for (unsigned i = 0; i < STATS_BACKENDS; i++)
		look_at_figures("backend", i, &page.backend[i]);
	for (unsigned i = 0; i < STATS_SITES; i++) {
		struct stats_site *site = &page.site[i];

		number(&site->known, "site.%u.known", i);
		number((_Atomic uint64_t *)&site->rule, "site.%u.rule", i);
		number((_Atomic uint64_t *)&site->least_bytes, "site.%u.least_bytes", i);
		snprintf(name, sizeof(name), "site.%u.text", i);
		each.text(name, site->text, sizeof(site->text));
		look_at_figures("site", i, &site->figures);
	}
}

/* ---- write ---- */

static void write_number(const char *name, _Atomic uint64_t *at)
{
	if (*at)
		printf("%s %" PRIu64 "\n", name, *at);
}

static void write_text(const char *name, char *at, size_t bytes)
{
	if (*at)
		printf("%s %.*s\n", name, (int)bytes, at);
}

static int write_page(const char *path)
{
	FILE *file = fopen(path, "r");

	if (!file || fread((void *)&page, sizeof(page), 1, file) != 1 || page.magic != STATS_MAGIC ||
	    page.version != STATS_VERSION) {
		fprintf(stderr, "recorded: %s is no page of this version\n", path);
		return 1;
	}
	fclose(file);
	each.number = write_number;
	each.text = write_text;
	look_at_page();
	return 0;
}

/* ---- say ---- */

static const char *wanted, *value; /* the line being read */
static bool found;

static void read_number(const char *name, _Atomic uint64_t *at)
{
	if (strcmp(name, wanted) != 0)
		return;
	*at = strtoull(value, NULL, 10);
	found = true;
}

static void read_text(const char *name, char *at, size_t bytes)
{
	if (strcmp(name, wanted) != 0)
		return;
	snprintf(at, bytes, "%s", value);
	found = true;
}

static bool take_line(char *line)
{
	char *blank = strchr(line, ' ');

	line[strcspn(line, "\n")] = 0;
	if (!*line || *line == '#')
		return true;
	if (!blank)
		return false;
	*blank = 0;
	wanted = line;
	value = blank + 1;
	found = false;
	look_at_page();
	return found;
}

static int say(const char *path)
{
	static struct summary summary;
	char line[256];
	FILE *file = fopen(path, "r");

	each.number = read_number;
	each.text = read_text;
	while (file && fgets(line, sizeof(line), file))
		if (!take_line(line)) {
			fprintf(stderr, "recorded: %s: there is no figure %s\n", path, line);
			return 1;
		}
	if (!file || !page.end_clock) {
		fprintf(stderr, "recorded: %s has no figures of a run that has ended\n", path);
		return 1;
	}
	fclose(file);
	summary_make(&page, page.end_clock, NULL, &summary);
	for (unsigned i = 0; i < summary.n; i++)
		if (i < SUMMARY_SHORT || strstr(summary.line[i].text, "costs most: "))
			puts(summary.line[i].text);
	putchar('\n');
	return fit_policy_put(stdout, &(struct fit_facts){.page = &page, .now = page.end_clock, .n_processes = 1}) ? 0
														   : 1;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "write"))
		return write_page(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "say"))
		return say(argv[2]);
	fprintf(stderr, "usage: recorded write PAGE | say TEXT\n");
	return 2;
}
