/*
 * A progress line on stderr.
 */
#include "tools/common/progress.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Work that takes less than FIRST_MS shows no line; the line is printed at most every EVERY_MS. */
enum { FIRST_MS = 400, EVERY_MS = 100 };

static struct {
	const char *what; /* NULL: no line is shown */
	uint64_t total;
	int64_t next_ms;
	bool shown;
} now;

static int64_t clock_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

void progress_begin(const char *what, uint64_t total)
{
	const char *terminal = getenv("TERM");

	now.what = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0 ? what : NULL;
	now.total = total;
	now.next_ms = clock_ms() + FIRST_MS;
	now.shown = false;
}

void progress_at(uint64_t done)
{
	if (!now.what || clock_ms() < now.next_ms)
		return;
	now.next_ms = clock_ms() + EVERY_MS;
	now.shown = true;
	if (now.total)
		fprintf(stderr, "\r\033[K%s: %3.0f %%", now.what,
			100.0 * (double)(done < now.total ? done : now.total) / (double)now.total);
	else
		fprintf(stderr, "\r\033[K%s ...", now.what);
	fflush(stderr);
}

void progress_end(void)
{
	if (now.what && now.shown)
		fputs("\r\033[K", stderr);
	now.what = NULL;
}
