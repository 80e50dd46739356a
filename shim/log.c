#include "shim/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * write() without SIGPIPE: a stderr that nobody reads any more (| head) is the user's choice, and must not end the job.
 * The signal goes to the thread that writes; blocked, it stays pending, and is taken away again if it was not before.
 */
static void write_quietly(const char *text, size_t bytes)
{
	const struct timespec now = {0};
	sigset_t pipe_signal, before, pending;
	int cancel;

	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	sigpending(&pending);
	/* write() is a cancellation point; a thread must not end here with our locks held. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if (pthread_sigmask(SIG_BLOCK, &pipe_signal, &before))
		goto out;
	ssize_t written = write(STDERR_FILENO, text, bytes);
	if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe_signal, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
out:
	pthread_setcancelstate(cancel, NULL);
}

void log_line(const char *format, ...)
{
	static const char head[] = "spillway: ";
	const size_t n_head = sizeof(head) - 1;
	char line[1024];
	int saved = errno;
	va_list list;

	memcpy(line, head, n_head);
	va_start(list, format);
	int n = vsnprintf(line + n_head, sizeof(line) - n_head - 1, format, list);
	va_end(list);
	if (n < 0)
		n = 0;
	size_t bytes = n_head + (size_t)n;
	if (bytes > sizeof(line) - 2)
		bytes = sizeof(line) - 2;
	line[bytes++] = '\n';
	write_quietly(line, bytes);
	errno = saved;
}

char *log_bytes(char *buffer, size_t room, unsigned long long bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(buffer, room, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return buffer;
}
