// SPDX-License-Identifier: Apache-2.0
/*
 * A progress line on stderr.
 */
#include "tools/common/progress.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/clock.h"

/* Work that takes less than FIRST_MS shows no line; the line is printed at most every EVERY_MS. */
enum { FIRST_MS = 400, EVERY_MS = 100 };

static struct {
	const char *what; /* NULL: no line is shown */
	uint64_t total;
	uint64_t next; /* CLOCK_MONOTONIC, ns */
	bool shown;
} now;

void progress_begin(const char *what, uint64_t total)
{
	const char *terminal = getenv("TERM");

	now.what = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0 ? what : NULL;
	now.total = total;
	now.next = clock_now() + FIRST_MS * UINT64_C(1000000);
	now.shown = false;
}

void progress_at(uint64_t done)
{
	if (!now.what || clock_now() < now.next)
		return;
	now.next = clock_now() + EVERY_MS * UINT64_C(1000000);
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
