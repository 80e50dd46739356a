// SPDX-License-Identifier: Apache-2.0
/*
 * quick_poll.c: a second that a process waits in poll() is a millisecond for it: what it does once a minute comes in
 * time for a test. To be preloaded.
 */
#include <poll.h>
#include <time.h>

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	const struct timespec quick = {.tv_sec = ms / 1000000, .tv_nsec = (long)(ms % 1000000) * 1000};

	return ppoll(fds, n, ms < 0 ? NULL : &quick, NULL);
}
