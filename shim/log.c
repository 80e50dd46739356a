#include "shim/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
	/* A closed or full stderr is the user's choice; the job goes on. */
	ssize_t written = write(STDERR_FILENO, line, bytes);
	(void)written;
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
