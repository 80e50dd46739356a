// SPDX-License-Identifier: Apache-2.0
/*
 * Jobs in containers: each has a PID namespace and a view of the file system of its own, so that every one of them is
 * process 1. The tool, outside or in one of them, tells them apart, agrees with itself on which process is which, and
 * reaches each one. Skipped where namespaces cannot be made; without root they are made in a user namespace.
 */
#include "shim/base/user_dir.h"
#include "shim/stats/stats_page.h"
#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "test/rank.h"
#include "test/test.h"

#include <dirent.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define SET  "device.budget=16MiB,host.total=64MiB,report.summary=no"
#define MOST 64

extern char **environ;

/* ---- in a container ---- */

static CUdeviceptr blocks[MOST];
static unsigned n_blocks;
static char place[64]; /* where its files are */

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(77);
	close(fd);
}

/* In new namespaces, as process 1: the caller goes on there, and who was before waits for it. */
static void enter_container(bool with_folders)
{
	char map[64];
	uid_t user = geteuid();
	gid_t group = getegid();
	int status;

	if (unshare((user ? CLONE_NEWUSER : 0) | CLONE_NEWPID | CLONE_NEWNS) != 0)
		_exit(77);
	if (user) {
		write_text("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "0 %u 1", (unsigned)user);
		write_text("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "0 %u 1", (unsigned)group);
		write_text("/proc/self/gid_map", map);
	}
	pid_t inside = fork();
	if (inside) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(waitpid(inside, &status, 0) == inside && WIFEXITED(status) ? WEXITSTATUS(status) : 76);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", "/proc", "proc", 0, NULL) != 0)
		_exit(77);
	if (with_folders && (mount("none", "/tmp", "tmpfs", 0, "mode=1777") != 0 ||
			     mount("none", "/dev/shm", "tmpfs", 0, "mode=1777") != 0))
		_exit(77);
}

/* What the tool prints; it is no program to be preloaded. *ret_status: its exit status. */
static char *tool(int *ret_status, const char *const *arguments)
{
	static char text[1 << 20];
	posix_spawn_file_actions_t actions;
	char *no_preload[256], *argv[8] = {"spillway"};
	int ends[2], n = 0;
	size_t at = 0;
	ssize_t got;
	pid_t child;

	for (int i = 0; environ[i] && n < 255; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			no_preload[n++] = environ[i];
	no_preload[n] = NULL;
	for (n = 0; arguments[n]; n++)
		argv[n + 1] = strdup(arguments[n]);
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	CHECK(posix_spawn(&child, TOOL, &actions, NULL, argv, no_preload) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	while ((got = read(ends[0], text + at, sizeof(text) - 1 - at)) > 0)
		at += (size_t)got;
	text[at] = 0;
	close(ends[0]);
	CHECK(waitpid(child, ret_status, 0) == child);
	for (; n > 0; n--)
		free(argv[n]);
	return text;
}
#define TOOL_OF(status, ...) tool(status, (const char *const[]){__VA_ARGS__, NULL})

/* Of `spillway list`: which process id, here, the one with that id has: -1 none is shown; 0 "-". */
static long listed(uint64_t identity, const char *state)
{
	char id[IDENTITY_TEXT], *line, *save;
	int status;

	identity_text(identity, id);
	char *text = TOOL_OF(&status, "list");
	CHECK(status == 0);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char pid[16], is[16], of[32];

		if (sscanf(line, "%15s %15s %31s", pid, is, of) == 3 && !strcmp(of, id) &&
		    (!state || !strcmp(is, state)))
			return !strcmp(pid, "-") ? 0 : strtol(pid, NULL, 10);
	}
	return -1;
}

static bool asks(const char *verb, uint64_t identity)
{
	char id[IDENTITY_TEXT];
	int status;

	TOOL_OF(&status, verb, identity_text(identity, id));
	return status == 0;
}

static uint64_t other; /* id of the other container's process */

/* Is a file with that inode mapped? The library has its own figures' file mapped, and no other. */
static bool is_mapped(ino_t inode)
{
	char line[512], *path;
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "r");

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long of;

		path = strchr(line, '/');
		found |=
		    path && strstr(path, STATS_TAIL) && sscanf(line, "%*s %*s %*s %*s %lu", &of) == 1 && of == inode;
	}
	fclose(maps);
	return found;
}

static uint64_t my_identity(void)
{
	struct stats_page *page = aligned_alloc(_Alignof(struct stats_page), sizeof(*page));
	char prefix[64], path[320];
	uint64_t identity = 0;
	DIR *dir = opendir(place);

	/*
	 * "PID-START.stats", or "PID-START-ID.stats": the file of its own is the one it has mapped, and says who it is.
	 */
	snprintf(prefix, sizeof(prefix), "%d-%llu", getpid(), (unsigned long long)user_dir_process_started(getpid()));
	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		struct stat status;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || !strstr(entry->d_name, STATS_TAIL))
			continue;
		snprintf(path, sizeof(path), "%s/%s", place, entry->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0 && fstat(fd, &status) == 0);
		if (is_mapped(status.st_ino) && read(fd, (void *)page, sizeof(*page)) == (ssize_t)sizeof(*page))
			identity = page->identity;
		close(fd);
	}
	if (dir)
		closedir(dir);
	free(page);
	return identity;
}

static uint64_t take(unsigned mib)
{
	CHECK(n_blocks < MOST);
	CUresult result = cu.cuMemAlloc_v2(&blocks[n_blocks], mib * MIB);

	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	n_blocks += result == CUDA_SUCCESS;
	return result == CUDA_SUCCESS;
}

/*
 * 'd': use the device; 'a' N: N MiB; 'i': who am I; 'h', 'l': the halves of the other's id; and what the tool says
 * here.
 */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'p':
		return (uint64_t)getpid();
	case 'd':
		driver_start(0);
		return take(16);
	case 'a':
		return take(n);
	case 'i':
		return my_identity();
	case 'h':
		return other = (uint64_t)n << 32;
	case 'l':
		return other |= n;
	case 'o':
		return (uint64_t)listed(other, NULL);
	case 'm':
		return (uint64_t)listed(my_identity(), NULL);
	case 's':
		return asks("suspend", other) && listed(other, "suspended") == 0 && asks("resume", other);
	default:
		exit(0);
	}
}

static void begin(const void *argument)
{
	bool apart = !argument;

	setenv("SIM_MEMORY", "64MiB", 1);
	setenv("SIM_FILL", "0", 1);
	setenv("SPILLWAY_SET", SET, 1);
	if (apart)
		unsetenv("XDG_RUNTIME_DIR");
	else
		setenv("XDG_RUNTIME_DIR", folder, 1);
	enter_container(apart);
	/* Outside root the only user there is is called 0. */
	snprintf(place, sizeof(place), apart ? "/dev/shm/spillway-0" : "%.48s/spillway", folder);
}

static struct rank start(bool shared)
{
	static const struct rank_part part = {.begin = begin, .obey = obey};

	return rank_start(&part, shared ? folder : NULL);
}

/* ---- from outside ---- */

static void must_have_namespaces(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		enter_container(true);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 77) {
		print_message("skipped: this system lets us make no PID and mount namespaces\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static struct rank job[2];
static uint64_t identity[2];

static void start_both(bool shared)
{
	must_have_namespaces();
	for (unsigned i = 0; i < 2; i++)
		job[i] = start(shared);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(rank_ask(&job[i], 'p', 0), 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(rank_ask(&job[i], 'd', 0), 1);
	for (unsigned i = 0; i < 2; i++) {
		identity[i] = rank_ask(&job[i], 'i', 0);
		assert_int_not_equal(identity[i], 0);
	}
	assert_int_not_equal(identity[0], identity[1]);
	setenv("XDG_RUNTIME_DIR", folder, 1);
}

/* Which process id `spillway top` shows of it. */
static long shown_by_top(uint64_t of)
{
	char part[64], id[IDENTITY_TEXT];
	int status;
	char *text = TOOL_OF(&status, "top", "--once", "--json");

	assert_int_equal(status, 0);
	snprintf(part, sizeof(part), ", \"id\": \"%s\", \"own_pid\": 1, ", identity_text(of, id));
	char *at = strstr(text, part);
	assert_non_null(at);
	assert_null(strstr(at + 1, part));
	*at = 0;
	at = strrchr(text, '{');
	assert_int_equal(strncmp(at, "{\"pid\": ", 8), 0);
	return strtol(at + 8, NULL, 10);
}

/* It is process 1 of its own namespace, and not of ours. */
static void is_the_one(long pid)
{
	char path[64], line[256];
	bool found = false;

	assert_true(pid > 1);
	snprintf(path, sizeof(path), "/proc/%ld/status", pid);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		found |= !strncmp(line, "NSpid:", 6) && strstr(line, "\t1\n");
	fclose(file);
	assert_true(found);
}

TEST(list_and_top_agree_on_who_is_who)
{
	long pid[2];

	start_both(false);
	for (unsigned i = 0; i < 2; i++) {
		pid[i] = shown_by_top(identity[i]);
		is_the_one(pid[i]);
		assert_int_equal(listed(identity[i], "running"), pid[i]);
	}
	assert_int_not_equal(pid[0], pid[1]);
	for (unsigned i = 0; i < 2; i++)
		rank_end(&job[i]);
}

TEST(each_is_suspended_by_what_list_shows)
{
	char pid[16];
	int status;

	start_both(false);
	assert_true(asks("suspend", identity[1]));
	assert_true(listed(identity[1], "suspended") > 1 && listed(identity[0], "running") > 1);
	snprintf(pid, sizeof(pid), "%ld", listed(identity[1], NULL));
	TOOL_OF(&status, "resume", pid);
	assert_int_equal(status, 0);
	assert_true(listed(identity[1], "running") > 1);
	for (unsigned i = 0; i < 2; i++)
		rank_end(&job[i]);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

TEST(no_series_comes_twice_for_prometheus)
{
	static char *series[20000];
	char *line, *save, id[IDENTITY_TEXT];
	size_t n = 0;
	unsigned seen[2] = {0};
	int status;

	start_both(false);
	char *text = TOOL_OF(&status, "prom", "-");
	assert_int_equal(status, 0);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (*line == '#')
			continue;
		for (unsigned i = 0; i < 2; i++)
			seen[i] += strstr(line, identity_text(identity[i], id)) != NULL;
		*strrchr(line, ' ') = 0; /* the value */
		assert_true(n < sizeof(series) / sizeof(*series));
		series[n++] = line;
	}
	assert_true(seen[0] > 100 && seen[0] == seen[1]);
	qsort(series, n, sizeof(*series), by_text);
	for (size_t i = 1; i < n; i++)
		assert_string_not_equal(series[i - 1], series[i]);
	for (unsigned i = 0; i < 2; i++)
		rank_end(&job[i]);
}

/* Each sees the other one's socket in the folder they share, and no process that it could belong to. */
TEST(from_inside_another_container_is_known_by_its_id)
{
	start_both(true);
	for (unsigned i = 0; i < 2; i++) {
		rank_ask(&job[i], 'h', (unsigned)(identity[!i] >> 32));
		rank_ask(&job[i], 'l', (unsigned)identity[!i]);
		assert_int_equal(rank_ask(&job[i], 'm', 0), 1);
		assert_int_equal(rank_ask(&job[i], 'o', 0), 0);
	}
	assert_int_equal(rank_ask(&job[0], 's', 0), 1);
	for (unsigned i = 0; i < 2; i++)
		rank_end(&job[i]);
}

/* host.total is 64 MiB: of one folder, whichever PID namespaces; a killed one gives its share back. */
TEST(containers_that_share_a_folder_share_the_host)
{
	time_t end = time(NULL) + 20;
	bool back = false;

	start_both(true);
	assert_int_equal(rank_ask(&job[0], 'a', 48), 1);
	assert_int_equal(rank_ask(&job[1], 'a', 32), 0);
	assert_int_equal(rank_ask(&job[1], 'a', 12), 1);
	rank_kill(&job[0]);
	while (!back && time(NULL) < end)
		back = rank_ask(&job[1], 'a', 32);
	assert_true(back);
	rank_end(&job[1]);
}

EACH_TEST(folder_make, folder_remove)
