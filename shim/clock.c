#include "shim/clock.h"

#define SECOND 1000000000ull

static uint64_t read_clock(clockid_t which)
{
	struct timespec now;

	clock_gettime(which, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

uint64_t clock_now(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_wall(void)
{
	return read_clock(CLOCK_REALTIME);
}

struct timespec clock_in(uint64_t ns)
{
	uint64_t then = clock_wall() + ns;

	return (struct timespec){.tv_sec = (time_t)(then / SECOND), .tv_nsec = (long)(then % SECOND)};
}

void clock_sleep(uint64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}
