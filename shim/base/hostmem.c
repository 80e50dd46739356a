// SPDX-License-Identifier: Apache-2.0
/*
 * Host memory limits, from /proc/meminfo and the memory files of cgroups version 1 and 2.
 */
#include "shim/base/hostmem.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#define LINE_MOST 400 /* bytes; a path of a cgroup is the longest that is needed */

#define NO_LIMIT (UINT64_C(1) << 60) /* version 1 writes a number near 2^63 for "no limit" */

static FILE *open_file(const char *root, const char *folder, const char *name)
{
	char full[512];
	size_t n = (size_t)snprintf(full, sizeof(full), "%s%s/%s", root, folder, name);

	return n < sizeof(full) ? fopen(full, "re") : NULL;
}

/*
 * Returns the next line without its newline, which the last one may lack; NULL at the end. Skips lines that are too
 * long.
 */
static char *next_line(FILE *file, char line[LINE_MOST + 2])
{
	bool begins = true;

	while (fgets(line, LINE_MOST + 2, file)) {
		size_t n = strcspn(line, "\n");
		bool ends = line[n] == '\n' || n <= LINE_MOST;

		if (begins && ends) {
			line[n] = 0;
			return line;
		}
		begins = ends;
	}
	return NULL;
}

/* A wanted line "NAME NUMBER" or "NAME: NUMBER kB". */
struct field {
	const char *name;
	uint64_t value;
};

/* Fields that the file does not have keep their value. */
static void read_fields(const char *root, const char *folder, const char *name, struct field *fields, unsigned n)
{
	FILE *file = open_file(root, folder, name);
	char line[LINE_MOST + 2];

	if (!file)
		return;
	while (next_line(file, line))
		for (unsigned i = 0; i < n; i++) {
			size_t length = strlen(fields[i].name);

			if (!strncmp(line, fields[i].name, length) && line[length] == ' ')
				fields[i].value = strtoull(line + length, NULL, 10);
		}
	fclose(file);
}

/* Reads a file that holds one number of bytes. Returns `missing` if it holds "max" or cannot be read. */
static uint64_t number_in(const char *root, const char *folder, const char *name, uint64_t missing)
{
	FILE *file = open_file(root, folder, name);
	char line[LINE_MOST + 2], *end = line;
	uint64_t value = missing;

	if (!file)
		return missing;
	if (next_line(file, line))
		value = strtoull(line, &end, 10);
	fclose(file);
	return end == line ? missing : value;
}

/* The kernel's number of a cgroup: its inode, which is the same in every mount and container. 0: not known. */
static uint64_t number_of(const char *root, const char *folder)
{
	char full[512];
	struct stat status;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", root, folder) >= sizeof(full) || stat(full, &status) != 0)
		return 0;
	return status.st_ino;
}

/* The files of a cgroup version, and the fields of memory.stat whose memory the kernel reclaims before it kills. */
struct version {
	const char *mount, *limit, *high, *usage; /* high: NULL if the version has none */
	const char *reclaimable[3];
};

/*
 * The kernel counts the same three fields as available (si_mem_available(), MemAvailable in /proc/meminfo), less a
 * margin of the whole machine, which a cgroup does not have. Neither list of file pages holds shared or locked memory.
 * Version 1 gives the sums that include child groups in separate fields (total_*), and does not say how much slab is
 * reclaimable.
 */
static const struct version version_1 = {
    "/sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    NULL,
    "memory.usage_in_bytes",
    {"total_inactive_file", "total_active_file", NULL},
};
static const struct version version_2 = {
    "/sys/fs/cgroup",
    "memory.max",
    "memory.high",
    "memory.current",
    {"inactive_file", "active_file", "slab_reclaimable"},
};

static uint64_t limit_of(const char *root, const char *folder, const struct version *version)
{
	uint64_t limit = number_in(root, folder, version->limit, UINT64_MAX), high = UINT64_MAX;

	/* Above memory.high a process is not killed, but throttled until it hardly makes progress. */
	if (version->high)
		high = number_in(root, folder, version->high, UINT64_MAX);
	return high < limit ? high : limit;
}

/* Returns how much of the usage the kernel would reclaim for a program that needs memory, bytes. */
static uint64_t hostmem_reclaimable(const char *root, const char *folder, const struct version *version, uint64_t usage)
{
	struct field fields[3] = {{0}};
	uint64_t sum = 0;
	unsigned n = 0;

	for (; n < 3 && version->reclaimable[n]; n++)
		fields[n].name = version->reclaimable[n];
	read_fields(root, folder, "memory.stat", fields, n);
	/* Each addend is clamped: a sum of garbage could overflow. */
	for (unsigned i = 0; i < n; i++)
		sum += fields[i].value < usage - sum ? fields[i].value : usage - sum;
	return sum;
}

/* Returns the smallest headroom from this cgroup up to the root. *domain: the nearest group with a limit. */
static uint64_t headroom_above(const char *root, char *group, const struct version *version, uint64_t *domain)
{
	uint64_t tightest = UINT64_MAX;

	for (;;) {
		char folder[350];

		if ((size_t)snprintf(folder, sizeof(folder), "%s%s", version->mount, group) < sizeof(folder)) {
			uint64_t limit = limit_of(root, folder, version);

			if (limit < NO_LIMIT) {
				uint64_t usage = number_in(root, folder, version->usage, 0);
				uint64_t held = usage - hostmem_reclaimable(root, folder, version, usage);
				uint64_t left = limit > held ? limit - held : 0;

				tightest = left < tightest ? left : tightest;
				*domain = *domain ? *domain : number_of(root, folder);
			}
		}
		char *slash = strrchr(group, '/');
		if (!slash)
			return tightest;
		*slash = 0;
	}
}

/* Returns true if the comma-separated list contains the word. */
static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, word, length) && (!at[length] || at[length] == ','))
			return true;
	}
	return false;
}

static uint64_t cgroup_headroom(const char *root, uint64_t *ret_domain)
{
	FILE *file = open_file(root, "/proc/self", "cgroup");
	char group[256], line[LINE_MOST + 2];
	uint64_t tightest = UINT64_MAX;

	*ret_domain = 0;
	if (!file) {
		uint64_t one = headroom_above(root, (char[]){""}, &version_1, ret_domain);
		uint64_t two = headroom_above(root, (char[]){""}, &version_2, ret_domain);

		return one < two ? one : two;
	}
	while (next_line(file, line)) {
		uint64_t left = UINT64_MAX;
		/* number:controllers:path; the path may contain colons, as containerd's do. */
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path || strlen(path + 1) >= sizeof(group))
			continue;
		*path = 0;
		strcpy(group, path + 1);
		if (!strcmp(group, "/"))
			group[0] = 0;
		if (!strcmp(line, "0:"))
			left = headroom_above(root, group, &version_2, ret_domain);
		else if (has_word(controllers + 1, "memory"))
			left = headroom_above(root, group, &version_1, ret_domain);
		if (left < tightest)
			tightest = left;
	}
	fclose(file);
	return tightest;
}

struct hostmem hostmem_read(const char *root)
{
	struct field fields[] = {{"MemTotal:", 0}, {"MemAvailable:", 0}};
	struct hostmem memory = {0};
	struct sysinfo info;

	memory.cgroup_headroom = cgroup_headroom(root, &memory.domain);
	read_fields(root, "/proc", "meminfo", fields, 2);
	memory.total = fields[0].value * 1024;
	memory.available = fields[1].value * 1024;
	if (!memory.total && sysinfo(&info) == 0) {
		memory.total = info.totalram * (uint64_t)info.mem_unit;
		memory.available = info.freeram * (uint64_t)info.mem_unit;
	}
	return memory;
}

uint64_t hostmem_default_budget(const struct hostmem *memory)
{
	uint64_t free = memory->available < memory->cgroup_headroom ? memory->available : memory->cgroup_headroom;

	return free / 2;
}
