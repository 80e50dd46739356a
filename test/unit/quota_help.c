// SPDX-License-Identifier: Apache-2.0
#include "test/test.h"
#include "test/unit/quota_help.h"

#include "shim/stats/stats.h"

#include <dlfcn.h>
#include <sys/syscall.h>

#ifdef __SANITIZE_THREAD__
/* A child ends by _exit(); the sanitizer would sleep a second in each. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "atexit_sleep_ms=0";
}
#endif

char folder[64], file[128];

int make_folder(void **state)
{
	/* In memory, as where files of users lie. */
	snprintf(folder, sizeof(folder), "%s/quota-test-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(folder))
		return -1;
	snprintf(file, sizeof(file), "%s/spillway/host.quota", folder);
	return setenv("XDG_RUNTIME_DIR", folder, 1);
}

int drop_folder(void **state)
{
	char below[80];

	ranks_end_rest();
	unlink(file);
	snprintf(below, sizeof(below), "%s/spillway", folder);
	rmdir(below);
	return rmdir(folder);
}

/* ---- a process that is stopped in the midst of a change ---- */

enum stop stops_at_write;

/* The library's system calls: comes before the C library's. */
long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a[6];
	va_list list;

	va_start(list, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	enum stop stop = number == SYS_pwrite64 ? stops_at_write : RUNS_ON;
	if (stop)
		stops_at_write = RUNS_ON;
	if (stop == STOPS_BEFORE)
		raise(SIGSTOP);
	if (!next)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long result = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (stop == STOPS_AFTER)
		raise(SIGSTOP);
	return result;
}

/* ---- ranks ---- */

#define AN_HOUR (3600 * (uint64_t)1000000000)

void arrange(uint64_t total, bool given)
{
	quota_state.want_lasts = AN_HOUR;
	quota_state.patience = AN_HOUR;
	quota_state.sweep_every = 0;
	quota_arrange(&(struct quota_terms){.total = total, .given = given});
}

static uint64_t obey(char order, unsigned n)
{
	unsigned tries = 0;

	switch (order) {
	case 't':
		return quota_take(n * MIB);
	case 'g':
		quota_give(n * MIB);
		return 1;
	case 's':
		quota_spare(n * MIB, 0);
		return 1;
	case 'u':
		quota_spare(0, n * MIB);
		return 1;
	case 'w':
		return quota_wait(n * MIB, &tries);
	case 'o':
		return quota_owed() / MIB;
	case 'r':
		return stats_get(STAT_share_reclaimed);
	case 'f':
		return quota_left() / MIB;
	case 'h':
		return quota_enough(n * MIB) / MIB;
	case 'n':
		return atomic_load(&stats.share_ranks);
	case 'p':
		quota_state.patience = n * (uint64_t)1000000;
		return 1;
	case 'C':
		return close(quota_state.seat.fd) == 0;
	case 'S':
		stops_at_write = n ? STOPS_AFTER : STOPS_BEFORE;
		return 1;
	case 'k':
		quota_tick();
		return 1;
	case 'l':
		quota_leave();
		return 1;
	default:
		if (order == 'e')
			quota_leave();
		_exit(order == 'e' || order == 'x' ? 0 : 2);
	}
}

static void begin(const void *how)
{
	const struct quota_terms *terms = how;

	arrange(terms->total, terms->given);
}

struct rank share_start_with(uint64_t total, bool given)
{
	static const struct rank_part part = {.begin = begin, .obey = obey};

	return rank_start(&part, &(struct quota_terms){.total = total, .given = given});
}

struct rank share_start(void)
{
	return share_start_with(ROOM, false);
}

struct rank share_taking(unsigned mib)
{
	struct rank rank = share_start();

	assert_true(rank_ask(&rank, 't', mib));
	return rank;
}

void share_takes_the_rest(const struct rank *rank, unsigned mib)
{
	assert_false(rank_ask(rank, 't', mib + 1));
	assert_true(rank_ask(rank, 't', mib));
}

void share_overwrite(const char *path, size_t at, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
	close(fd);
}

uint32_t seed_of_test(void)
{
	const char *given = getenv("QUOTA_SEED");
	uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 0) : (uint32_t)time(NULL) ^ (uint32_t)getpid();

	printf("seed %u (QUOTA_SEED)\n", seed);
	return seed ? seed : 1;
}

uint32_t next_random(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}
