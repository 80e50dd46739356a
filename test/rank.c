// SPDX-License-Identifier: Apache-2.0
#include "test/rank.h"
#include "test/test.h"

#include "test/check.h"
#include "test/slow.h"

/* No rank lives a tenth of it; one that hangs is ended by a signal, which is a failure. */
#define WATCHDOG_SECONDS (240 * TEST_SLOWNESS)

struct order {
	char what;
	unsigned n;
};

enum { RANKS_MOST = 128 };

static struct rank started[RANKS_MOST]; /* pid 0: gone */
static unsigned n_started;

static void serve(const struct rank_part *part, int from, int to)
{
	struct order order;

	while (read(from, &order, sizeof(order)) == sizeof(order)) {
		uint64_t answer = part->obey(order.what, order.n);

		CHECK(write(to, &answer, sizeof(answer)) == sizeof(answer));
	}
	_exit(3);
}

struct rank rank_start(const struct rank_part *part, const void *how)
{
	int to[2], from[2];

	fflush(NULL);
	assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	struct rank rank = {.pid = fork(), .to = to[1], .from = from[0]};
	assert_true(rank.pid >= 0);
	if (!rank.pid) {
		alarm(WATCHDOG_SECONDS);
		close(to[1]);
		close(from[0]);
		part->begin(how);
		serve(part, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	for (unsigned i = n_started; i-- && !started[i].pid;)
		n_started = i;
	assert_true(n_started < RANKS_MOST);
	started[n_started++] = rank;
	return rank;
}

void rank_tell(const struct rank *rank, char what, unsigned n)
{
	assert_int_equal(write(rank->to, &(struct order){what, n}, sizeof(struct order)), sizeof(struct order));
}

uint64_t rank_hear(const struct rank *rank)
{
	uint64_t answer = UINT64_MAX;

	assert_int_equal(read(rank->from, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

uint64_t rank_ask(const struct rank *rank, char what, unsigned n)
{
	rank_tell(rank, what, n);
	return rank_hear(rank);
}

void rank_gone(const struct rank *rank, int expected)
{
	int status;

	for (unsigned i = 0; i < n_started; i++)
		if (started[i].pid == rank->pid)
			started[i].pid = 0;
	close(rank->to);
	close(rank->from);
	assert_int_equal(waitpid(rank->pid, &status, 0), rank->pid);
	assert_int_equal(status, expected);
}

void rank_end(const struct rank *rank)
{
	rank_tell(rank, 'e', 0);
	rank_gone(rank, 0);
}

void ranks_end_all(const struct rank *const *ranks)
{
	for (; *ranks; ranks++)
		rank_end(*ranks);
}

void ranks_end_rest(void)
{
	for (unsigned i = 0; i < n_started; i++)
		if (started[i].pid)
			rank_end(&(struct rank){started[i].pid, started[i].to, started[i].from});
}

void rank_kill(const struct rank *rank)
{
	kill(rank->pid, SIGKILL);
	rank_gone(rank, SIGKILL);
}
