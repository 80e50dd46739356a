// SPDX-License-Identifier: Apache-2.0
/*
 * trouble_mode.c: asks the library in this process for another spill.mode, through its socket, as `spillway set` does.
 * What it answers is no trouble, unless it is what it must not answer.
 */
#include "test/preload/trouble_mode.h"
#include "test/libc.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

#define HIGH 700 /* as in trouble.c: out of the way of what it closes */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool runs, over;
static unsigned n_wanted, after_us;

/* Of the thread alone, until it has ended. fast: asked for next. */
static bool fast = true;
static unsigned n_asked, n_done[2];
static char wrong[300];

/* ---- the socket ---- */

/* Returns a connection to the socket of this process in a folder, or -1. */
static int connect_in(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char begin[16];
	int found = -1;
	DIR *folder = opendir(path);

	snprintf(begin, sizeof(begin), "%d", (int)getpid());
	for (struct dirent *entry; folder && found < 0 && (entry = readdir(folder));) {
		size_t n = strlen(entry->d_name), m = strlen(begin);

		if (strncmp(entry->d_name, begin, m) != 0 || (entry->d_name[m] >= '0' && entry->d_name[m] <= '9') ||
		    n < 4 || strcmp(entry->d_name + n - 4, ".ctl") != 0)
			continue;
		snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%.60s", dirfd(folder),
			 entry->d_name);
		int low = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, HIGH);
		close(low);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
			found = fd;
		else if (fd >= 0)
			close(fd);
	}
	if (folder)
		closedir(folder);
	return found;
}

static int connect_to_us(void)
{
	const char *above = getenv("XDG_RUNTIME_DIR");
	char path[300];
	int fd = -1;

	if (above) {
		snprintf(path, sizeof(path), "%s/spillway", above);
		fd = connect_in(path);
	}
	snprintf(path, sizeof(path), "/tmp/spillway-%u", (unsigned)getuid());
	return fd >= 0 ? fd : connect_in(path);
}

/* ---- asking ---- */

/* What a process may answer that cannot change it now, or never. */
static bool is_good_reason(const char *reply)
{
	static const char *const reasons[] = {"no safe point came in time", "this process began in",
					      "the device has no room", "memory does not move any more",
					      "the process ends"};

	for (unsigned i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (strstr(reply, reasons[i]))
			return true;
	return false;
}

static void ask(void)
{
	char request[40], reply[300];
	int fd = connect_to_us();

	if (fd < 0)
		return; /* no library, or its folder is gone */
	n_asked++;
	int length = snprintf(request, sizeof(request), "set spill.mode=%s\n", fast ? "fast" : "exact");
	ssize_t n =
	    send(fd, request, (size_t)length, MSG_NOSIGNAL) == length ? recv(fd, reply, sizeof(reply) - 1, 0) : 0;
	close(fd);
	reply[n > 0 ? n : 0] = 0;
	if (!strncmp(reply, "ok ", 3)) {
		n_done[fast]++;
		fast = !fast;
	} else if (*reply && !is_good_reason(reply)) {
		snprintf(wrong, sizeof(wrong), "%.*s is answered: %.200s", length - 1, request, reply);
	}
}

static void *change(void *unused)
{
	pthread_mutex_lock(&lock);
	while (!over) {
		if (!n_wanted) {
			pthread_cond_wait(&wanted, &lock);
			continue;
		}
		struct timespec wait = {.tv_nsec = after_us * 1000l};

		n_wanted = 0;
		pthread_mutex_unlock(&lock);
		nanosleep(&wait, NULL);
		ask();
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

void trouble_mode_change(unsigned us)
{
	pthread_mutex_lock(&lock);
	if (!runs)
		runs = pthread_create(&thread, NULL, change, NULL) == 0;
	n_wanted++;
	after_us = us;
	pthread_cond_signal(&wanted);
	pthread_mutex_unlock(&lock);
}

const char *trouble_mode_end(void)
{
	const char *least = getenv("TROUBLE_MODES_LEAST");

	if (runs) {
		pthread_mutex_lock(&lock);
		over = true;
		pthread_cond_signal(&wanted);
		pthread_mutex_unlock(&lock);
		pthread_join(thread, NULL);
	}
	unsigned done = n_done[0] < n_done[1] ? n_done[0] : n_done[1];
	if (!*wrong && least && done < (unsigned)atoi(least))
		snprintf(wrong, sizeof(wrong), "of %u changes of the mode, %u to exact and %u to fast were made",
			 n_asked, n_done[0], n_done[1]);
	return *wrong ? wrong : NULL;
}
