#include "shim/hostmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A small file of the kernel's, whole and terminated; false when it cannot be read. */
static bool read_file(const char *root, const char *path, char *buffer, size_t room)
{
	char full[512];
	size_t at = 0;
	ssize_t n;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) >= sizeof(full))
		return false;
	int fd = open(full, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (at < room - 1 && (n = read(fd, buffer + at, room - 1 - at)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		at += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	buffer[at] = 0;
	return at > 0;
}

static uint64_t meminfo_field(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	return line ? strtoull(line + strlen(name), NULL, 10) * 1024 : 0;
}

/* A number of bytes in a file of its own; "max" or nothing readable is no limit. */
static uint64_t number_in(const char *root, const char *folder, const char *file, uint64_t missing)
{
	char path[400], text[64], *end;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, file) >= sizeof(path) ||
	    !read_file(root, path, text, sizeof(text)))
		return missing;
	uint64_t value = strtoull(text, &end, 10);
	return end == text ? missing : value;
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

/* Walk from our cgroup up to the root: the tightest headroom on the way counts. *domain: the nearest with a limit. */
static uint64_t headroom_above(const char *root, const char *mount, char *group, const char *limit_file,
			       const char *usage_file, uint64_t *domain)
{
	uint64_t tightest = UINT64_MAX;

	for (;;) {
		char folder[350];

		if ((size_t)snprintf(folder, sizeof(folder), "%s%s", mount, group) < sizeof(folder)) {
			uint64_t limit = number_in(root, folder, limit_file, UINT64_MAX);
			uint64_t usage = number_in(root, folder, usage_file, 0);
			uint64_t left = limit > usage ? limit - usage : 0;

			/* Version 1 writes a number near 2^63 for "no limit". */
			bool limited = limit < (UINT64_C(1) << 60);
			if (limited && left < tightest)
				tightest = left;
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
	char text[4096], group[256];
	uint64_t tightest = UINT64_MAX;

	*ret_domain = 0;
	if (!read_file(root, "/proc/self/cgroup", text, sizeof(text)))
		return UINT64_MAX;
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
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
			left =
			    headroom_above(root, "/sys/fs/cgroup", group, "memory.max", "memory.current", ret_domain);
		else if (has_word(controllers + 1, "memory"))
			left = headroom_above(root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
					      "memory.usage_in_bytes", ret_domain);
		if (left < tightest)
			tightest = left;
	}
	return tightest;
}

struct hostmem hostmem_read(const char *root)
{
	struct hostmem memory = {0};
	char text[4096];

	memory.cgroup_headroom = cgroup_headroom(root, &memory.domain);
	if (read_file(root, "/proc/meminfo", text, sizeof(text))) {
		memory.total = meminfo_field(text, "MemTotal:");
		memory.available = meminfo_field(text, "MemAvailable:");
	}
	return memory;
}

uint64_t hostmem_default_budget(const struct hostmem *memory)
{
	uint64_t free = memory->available < memory->cgroup_headroom ? memory->available : memory->cgroup_headroom;

	return free / 2;
}
