#include "shim/base/hostmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	LINE_MOST = 400,       /* bytes of a line that is read; the path of a cgroup is the longest we want */
	FILE_MOST = 64 * 1024, /* bytes of a file that are read: memory.stat has about 2 KiB today, and grows */
};

#define NO_LIMIT (UINT64_C(1) << 60) /* version 1 writes a number near 2^63 for "no limit" */

/* A file of the kernel's, read line by line, so that its size does not matter and the stack stays small. */
struct lines {
	int fd;
	size_t at, end, total;
	char buffer[LINE_MOST + 1];
};

static bool lines_open(struct lines *lines, const char *root, const char *path)
{
	char full[512];

	*lines = (struct lines){.fd = -1};
	if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) < sizeof(full))
		lines->fd = open(full, O_RDONLY | O_CLOEXEC);
	return lines->fd >= 0;
}

/* Returns false at the end of the file, and where it cannot be read any further. */
static bool lines_fill(struct lines *lines)
{
	ssize_t n;

	memmove(lines->buffer, lines->buffer + lines->at, lines->end - lines->at);
	lines->end -= lines->at;
	lines->at = 0;
	if (lines->total >= FILE_MOST || lines->end == LINE_MOST)
		return false;
	do
		n = read(lines->fd, lines->buffer + lines->end, LINE_MOST - lines->end);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return false;
	lines->end += (size_t)n;
	lines->total += (size_t)n;
	return true;
}

/* The next line without its newline, good until the next call; NULL: there is none. A line too long is left out. */
static char *lines_next(struct lines *lines)
{
	for (bool cut = false;;) {
		char *line = lines->buffer + lines->at;
		char *end = memchr(line, '\n', lines->end - lines->at);

		if (end) {
			*end = 0;
			lines->at = (size_t)(end + 1 - lines->buffer);
			if (!cut)
				return line;
			cut = false;
			continue;
		}
		if (lines->end - lines->at == LINE_MOST) {
			cut = true;
			lines->at = lines->end;
		}
		if (lines_fill(lines))
			continue;
		/* The last one may lack its newline. */
		line = lines->buffer;
		line[lines->end] = 0;
		bool is_line = lines->end && !cut;
		lines->end = 0;
		return is_line ? line : NULL;
	}
}

static void lines_close(struct lines *lines)
{
	if (lines->fd >= 0)
		close(lines->fd);
}

/* A line "NAME NUMBER" or "NAME: NUMBER kB" that is wanted. */
struct field {
	const char *name;
	uint64_t value;
};

/* Fields that the file does not have keep their value. */
static void read_fields(const char *root, const char *path, struct field *fields, unsigned n)
{
	struct lines lines;

	if (!lines_open(&lines, root, path))
		return;
	for (const char *line; (line = lines_next(&lines));)
		for (unsigned i = 0; i < n; i++) {
			size_t length = strlen(fields[i].name);

			if (!strncmp(line, fields[i].name, length) && line[length] == ' ')
				fields[i].value = strtoull(line + length, NULL, 10);
		}
	lines_close(&lines);
}

/* A number of bytes in a file of its own; "max" or nothing readable is no limit. */
static uint64_t number_in(const char *root, const char *folder, const char *file, uint64_t missing)
{
	char path[LINE_MOST];
	struct lines lines;
	uint64_t value = missing;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, file) >= sizeof(path) ||
	    !lines_open(&lines, root, path))
		return missing;
	const char *line = lines_next(&lines);
	if (line) {
		char *end;
		uint64_t number = strtoull(line, &end, 10);

		value = end == line ? missing : number;
	}
	lines_close(&lines);
	return value;
}

/* The kernel numbers cgroups; as inodes the numbers are the same in every mount and container. */
static uint64_t number_of(const char *root, const char *folder)
{
	char full[512];
	struct stat status;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", root, folder) >= sizeof(full) || stat(full, &status) != 0)
		return 0;
	return status.st_ino;
}

/* The files of a version of cgroups, and the fields of memory.stat whose memory the kernel takes back before it kills. */
struct version {
	const char *mount, *limit, *high, *usage; /* high: NULL where there is none */
	const char *reclaimable[3];
};

/*
 * The kernel counts the same three as available (si_mem_available(), MemAvailable in /proc/meminfo), less a margin of the
 * whole machine, which a cgroup does not have. Neither list of files holds shared memory or what is locked. Version 1
 * sums up the groups below under names of their own, and does not tell what of its slabs is reclaimable.
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
	uint64_t limit = number_in(root, folder, version->limit, UINT64_MAX);

	/* Above memory.high a process is not killed, but held up until it hardly moves. */
	if (version->high) {
		uint64_t high = number_in(root, folder, version->high, UINT64_MAX);

		limit = high < limit ? high : limit;
	}
	return limit;
}

/* Bytes of the usage that the kernel would take back for a program that needs them; never more than the usage. */
static uint64_t hostmem_reclaimable(const char *root, const char *folder, const struct version *version, uint64_t usage)
{
	struct field fields[3] = {{0}};
	char path[LINE_MOST];
	uint64_t sum = 0;
	unsigned n = 0;

	if ((size_t)snprintf(path, sizeof(path), "%s/memory.stat", folder) >= sizeof(path))
		return 0;
	while (n < 3 && version->reclaimable[n]) {
		fields[n].name = version->reclaimable[n];
		n++;
	}
	read_fields(root, path, fields, n);
	/* Each is cut for itself: a sum of nonsense could overflow. */
	for (unsigned i = 0; i < n; i++)
		sum += fields[i].value < usage - sum ? fields[i].value : usage - sum;
	return sum;
}

/* Walk from our cgroup up to the root: the tightest headroom on the way counts. *domain: the nearest with a limit. */
static uint64_t headroom_above(const char *root, char *group, const struct version *version, uint64_t *domain)
{
	uint64_t tightest = UINT64_MAX;

	for (;;) {
		char folder[350];

		if ((size_t)snprintf(folder, sizeof(folder), "%s%s", version->mount, group) < sizeof(folder)) {
			uint64_t limit = limit_of(root, folder, version);
			bool limited = limit < NO_LIMIT;

			if (limited) {
				uint64_t usage = number_in(root, folder, version->usage, 0);
				uint64_t held = usage - hostmem_reclaimable(root, folder, version, usage);
				uint64_t left = limit > held ? limit - held : 0;

				tightest = left < tightest ? left : tightest;
			}
			if (limited && !*domain)
				*domain = number_of(root, folder);
		}
		char *slash = strrchr(group, '/');
		if (!slash)
			return tightest;
		*slash = 0;
	}
}

/* Is the word one of a list separated by commas? */
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
	char group[256];
	struct lines lines;
	uint64_t tightest = UINT64_MAX;

	*ret_domain = 0;
	if (!lines_open(&lines, root, "/proc/self/cgroup"))
		return UINT64_MAX;
	for (char *line; (line = lines_next(&lines));) {
		uint64_t left = UINT64_MAX;
		/* number:controllers:path; a colon may be part of the path, as containerd likes to have it. */
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
	lines_close(&lines);
	return tightest;
}

struct hostmem hostmem_read(const char *root)
{
	struct field fields[] = {{"MemTotal:", 0}, {"MemAvailable:", 0}};
	struct hostmem memory = {0};

	memory.cgroup_headroom = cgroup_headroom(root, &memory.domain);
	read_fields(root, "/proc/meminfo", fields, 2);
	memory.total = fields[0].value * 1024;
	memory.available = fields[1].value * 1024;
	return memory;
}

uint64_t hostmem_default_budget(const struct hostmem *memory)
{
	uint64_t free = memory->available < memory->cgroup_headroom ? memory->available : memory->cgroup_headroom;

	return free / 2;
}
