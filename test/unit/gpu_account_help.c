// SPDX-License-Identifier: Apache-2.0
#include "test/test.h"
#include "test/unit/gpu_account_help.h"

#include <sys/resource.h>

unsigned char account_uuid[16] = {0xab, 1};
static struct gpu_account account;
struct gpu_account_view view;
static struct gpu_account_member mine;
static struct gpu_job_view all;
static struct gpu_account_view scratch;
char account_path[160];
int child_waits[2];

static uint64_t obey(char order, unsigned n)
{
	uint64_t sum = 0;

	switch (order) {
	case 'j':
		return gpu_account_join(&account, account_uuid, n * MIB, &mine);
	case 'b':
		return gpu_account_begin(&account, account_uuid, TOTAL * MIB, 0, n * MIB) / MIB;
	case 'r':
		mine.may_have = gpu_account_raise(&account, mine.may_have, n * MIB);
		return mine.may_have / MIB;
	case 'd':
		mine.may_have = n * MIB;
		return gpu_account_look(&account, &mine, &view);
	case 'l':
		return gpu_account_look(&account, &mine, &view) ? view.n : 0;
	case 's':
		for (unsigned i = 0; i < view.n; i++)
			sum += view.members[i].may_have;
		return sum / MIB;
	case 't':
		return view.total / MIB;
	case 'm':
		return view.members[view.self].pid == (uint64_t)getpid();
	case 'v':
		gpu_account_leave(&account);
		return 1;
	case 'w':
		return view.turn.holder == GPU_TURN_NOBODY ? 0 : view.turn.holder == view.self ? 1 : 2;
	case 'n':
		return view.turn.on ? view.turn.number : 0;
	case 'p':
		n = n == 0 ? GPU_TURN_NOBODY : n == 1 ? view.self : (view.self + 1) % view.n;
		return gpu_account_pass(&account, &view, true, n, 1);
	case 'C':
		return close(account.file.fd) == 0;
	case 'S':
		stops_at_write = STOPS_BEFORE;
		return 1;
	case 'J':
		mine.job = (struct gpu_job_claim){.process = (uint64_t)getpid(), .name = n};
		return 1;
	case 'P':
		mine.pid = n ? (uint64_t)getpid() : 0;
		return 1;
	case 'I':
	case 'X':
		mine.pid = (uint64_t)(order == 'I' ? getppid() : getpid());
		mine.space = 1;
		return 1;
	case 'T':
		mine.space = identity_space_pids(mine.space) | (uint64_t)n << 32;
		mine.claim.kind = GPU_TURN_ON;
		return 1;
	case 'K':
		for (unsigned i = 0; i < view.n; i++)
			sum += i != view.self && view.members[i].claim.kind == GPU_TURN_ON;
		return sum + (view.other_clock ? 10 : 0);
	case 'u':
		account_uuid[0] = (unsigned char)n;
		return 1;
	case 'A':
		return gpu_account_all(&account, 1, &scratch, &all)
			   ? 100 * all.n + 10 * all.seats[all.self].device +
				 (all.turns[all.seats[all.self].device].holder == all.seats[all.self].slot)
			   : 0;
	case 'f':
		shared_forked(true);
		if (fork() == 0) {
			char word;

			alarm(60);
			if (!n)
				gpu_account_child(&account);
			_exit(read(child_waits[0], &word, 1) == 1 ? 0 : 1);
		}
		return 1;
	case 'L':
		return setrlimit(RLIMIT_FSIZE, &(struct rlimit){n, n}) == 0;
	case 'h':
		mine.holds = n * MIB;
		return 1;
	default:
		gpu_account_leave(&account);
		_exit(order == 'e' ? 0 : 2);
	}
}

static void begin(const void *how)
{
	mine.pid = (uint64_t)getpid();
	mine.started = user_dir_process_started(getpid());
	mine.space = identity_space();
}

struct rank account_start(void)
{
	static const struct rank_part part = {.begin = begin, .obey = obey};

	return rank_start(&part, NULL);
}

struct rank account_joined(void)
{
	struct rank rank = account_start();

	assert_true(rank_ask(&rank, 'j', TOTAL));
	return rank;
}

int make_account(void **state)
{
	int failed = make_folder(state);

	snprintf(account_path, sizeof(account_path), "%s/spillway/gpu-ab01%028d.account", folder, 0);
	return failed;
}

int drop_account(void **state)
{
	ranks_end_rest();
	unlink(account_path);
	return drop_folder(state);
}

uint64_t ask_until(const struct rank *rank, char order, unsigned n, uint64_t wanted)
{
	uint64_t answer = rank_ask(rank, order, n);

	/* A process that is stopped is waited for for a second. */
	for (unsigned tries = 0; tries < 1000 && answer != wanted; tries++) {
		usleep(10000);
		answer = rank_ask(rank, order, n);
	}
	return answer;
}
