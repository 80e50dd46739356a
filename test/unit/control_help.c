// SPDX-License-Identifier: Apache-2.0
#include "test/unit/control_help.h"

#include "shim/serve/control.h"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#ifdef __SANITIZE_THREAD__
/* A child ends by _exit(); the sanitizer would sleep a second in each. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "atexit_sleep_ms=0";
}
#endif

/* ---- processes ---- */

char runtime[64], fallback[64];

int ended(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void remove_all(const char *path)
{
	pid_t pid = fork();

	if (!pid) {
		execlp("rm", "rm", "-rf", path, (char *)NULL);
		_exit(127);
	}
	ended(pid);
}

int child_status(void (*run)(void))
{
	char folder[] = "/tmp/control_test.XXXXXX";

	if (!mkdtemp(folder) || chmod(folder, 0711) != 0)
		return -1;
	snprintf(runtime, sizeof(runtime), "%s/run", folder);
	snprintf(fallback, sizeof(fallback), "%s/tmp", folder);
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(WATCHDOG_S);
		CHECK(mkdir(runtime, 0700) == 0 && mkdir(fallback, 0700) == 0);
		setenv("XDG_RUNTIME_DIR", runtime, 1);
		user_dir_fallback = fallback;
		run();
		control_stop();
		fflush(NULL);
		_exit(0);
	}
	int status = ended(pid);
	remove_all(folder);
	return status;
}

long now_ms(void)
{
	return (long)(test_now() / 1000000);
}

/* ---- callers ---- */

struct search {
	char prefix[32], *name;
	bool found;
};

static void look(const struct user_dir *folder, const char *name, void *argument)
{
	struct search *search = argument;

	if (search->found || (search->prefix[0] && strncmp(name, search->prefix, strlen(search->prefix)) != 0))
		return;
	strcpy(search->name, name);
	search->found = true;
}

static bool find(const struct user_dir *folder, bool mine, char ret_name[NAME_MAX + 1])
{
	struct search search = {.name = ret_name};

	if (mine)
		snprintf(search.prefix, sizeof(search.prefix), "%d-", (int)getpid());
	user_dir_each_file(folder, USER_DIR_SOCKET, 1000, look, &search);
	return search.found;
}

bool socket_name(const struct user_dir *folder, char ret_name[NAME_MAX + 1])
{
	return find(folder, true, ret_name);
}

void open_runtime(struct user_dir *ret_folder, char ret_name[NAME_MAX + 1])
{
	CHECK(user_dir_open_xdg(runtime, ret_folder) == 0 && socket_name(ret_folder, ret_name));
}

void connect_with(int fd, const struct user_dir *folder, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder->fd, name);
	CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
}

static int caller_in(const struct user_dir *folder, bool mine)
{
	char name[NAME_MAX + 1];

	CHECK(find(folder, mine, name));
	int fd = user_dir_connect(folder, name, WAIT_MS);
	/* A socket has its name a moment before it listens. */
	for (int ms = 0; fd == -ECONNREFUSED && ms < WAIT_MS; ms++) {
		usleep(1000);
		fd = user_dir_connect(folder, name, WAIT_MS);
	}
	CHECK(fd >= 0);
	return fd;
}

int caller(void)
{
	struct user_dir folder;

	CHECK(user_dir_open_xdg(getenv("XDG_RUNTIME_DIR"), &folder) == 0);
	int fd = caller_in(&folder, true);
	user_dir_close(&folder, false);
	return fd;
}

bool receive(int fd, char ret_reply[256])
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	CHECK(poll(&wait, 1, WAIT_MS) == 1);
	ssize_t bytes = recv(fd, ret_reply, 255, 0);
	ret_reply[bytes > 0 ? bytes : 0] = 0;
	return bytes > 0;
}

static void talk(int fd, const char *request, size_t bytes, char ret_reply[256])
{
	CHECK(send(fd, request, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
	receive(fd, ret_reply);
	close(fd);
}

void ask(const char *request, size_t bytes, char ret_reply[256])
{
	talk(caller(), request, bytes, ret_reply);
}

void ask_in(const struct user_dir *folder, const char *request, size_t bytes, char ret_reply[256])
{
	talk(caller_in(folder, false), request, bytes, ret_reply);
}

bool says(const char *request, const char *reply)
{
	char got[256];

	ask(request, strlen(request), got);
	return !strcmp(got, reply);
}

bool asked_in(const struct user_dir *folder)
{
	char got[256];

	ask_in(folder, "status\n", 7, got);
	return !strncmp(got, "ok ", 3);
}

/* ---- what there is ---- */

/* Call visit() with each name in a folder; returns the sum of what it says. */
static int each(const char *path, int (*visit)(const char *path, const char *name))
{
	DIR *dir = opendir(path);
	int sum = 0;

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			sum += visit(path, entry->d_name);
	if (dir)
		closedir(dir);
	return sum;
}

static bool read_line(const char *folder, const char *name, const char *file, const char *start, char ret_line[256])
{
	char path[PATH_MAX];
	bool found = false;

	snprintf(path, sizeof(path), "%s/%s/%s", folder, name, file);
	FILE *text = fopen(path, "re");
	while (text && !found && fgets(ret_line, 256, text))
		found = !strncmp(ret_line, start, strlen(start));
	if (text)
		fclose(text);
	return found;
}

static int is_our_thread(const char *path, const char *name)
{
	char line[256];

	return read_line(path, name, "comm", "spillway-ctl", line);
}

int n_threads_of_ours(void)
{
	/* A thread that has just been made has not given itself its name yet, and the first one is the test. */
	for (int i = 0; i < 1000 && each("/proc/self/task", is_our_thread) == 0; i++) {
		if (n_entries("/proc/self/task") == 1)
			return 0;
		usleep(1000);
	}
	return each("/proc/self/task", is_our_thread);
}

static int blocks_all(const char *path, const char *name)
{
	/* SIGKILL and SIGSTOP cannot be blocked, 32 and 33 are the C library's. */
	const unsigned long long but_for = 1ULL << 8 | 1ULL << 18 | 3ULL << 31;
	char line[256];

	return is_our_thread(path, name) && read_line(path, name, "status", "SigBlk:", line) &&
	       (strtoull(line + 7, NULL, 16) | but_for) == ~0ULL;
}

bool signals_are_blocked(void)
{
	return each("/proc/self/task", blocks_all) == 1;
}

static int one(const char *path, const char *name)
{
	return 1;
}

int n_descriptors(void)
{
	return each("/proc/self/fd", one);
}

static int is_inherited(const char *path, const char *name)
{
	return !(fcntl(atoi(name), F_GETFD) & FD_CLOEXEC);
}

bool all_close_on_exec(int but_for)
{
	/* opendir()'s own is among the descriptors counted before, and closes on exec. */
	return each("/proc/self/fd", is_inherited) <= but_for - 1;
}

int n_entries(const char *path)
{
	return each(path, one);
}

static int count_sockets(const char *path, const char *name)
{
	char below[PATH_MAX];
	struct stat status;

	snprintf(below, sizeof(below), "%s/%s", path, name);
	if (lstat(below, &status) != 0)
		return 0;
	return S_ISSOCK(status.st_mode) || (S_ISDIR(status.st_mode) ? each(below, count_sockets) : 0);
}

int n_sockets(const char *path)
{
	return each(path, count_sockets);
}

void make_old(const struct user_dir *folder, const char *name)
{
	const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	CHECK(utimensat(folder->fd, name, times, AT_SYMLINK_NOFOLLOW) == 0);
}
