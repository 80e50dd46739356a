// SPDX-License-Identifier: Apache-2.0
/*
 * Reads times of the command line, and waits between rounds.
 */
#include "tools/common/seconds.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "policy/text.h"
#include "shim/base/clock.h"

bool seconds_read(const char *text, double *ret_seconds)
{
	char *end;

	/* Hexadecimal numbers and "inf" are refused. The locale is "C", because main() sets none. */
	for (const char *c = text; *c; c++)
		if (!policy_is_digit(*c) && *c != '.')
			return false;
	*ret_seconds = strtod(text, &end);
	return end != text && !*end && *ret_seconds >= 0.1 && *ret_seconds <= 3600;
}

static volatile sig_atomic_t enough;

static void on_signal(int number)
{
	(void)number;
	enough = 1;
}

void seconds_end_by(int signal)
{
	sigaction(signal, &(struct sigaction){.sa_handler = on_signal}, NULL);
}

bool seconds_enough(void)
{
	return enough;
}

double seconds_now(void)
{
	return (double)clock_now() / 1e9;
}

void seconds_sleep(double seconds)
{
	static double last;
	double now = seconds_now();

	/* At the first call, and after a long stop, the pace restarts from now. */
	if (last + seconds < now || last > now)
		last = now;
	last += seconds;
	const struct timespec until = {.tv_sec = (time_t)last, .tv_nsec = (long)((last - floor(last)) * 1e9)};
	while (!enough && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}
