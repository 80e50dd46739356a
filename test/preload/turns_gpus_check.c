// SPDX-License-Identifier: Apache-2.0
#include "test/preload/turns_gpus_check.h"

#include <poll.h>

#define CHECK_MS 2 /* between two checks */

struct account_page turns_gpus_pages[TURNS_GPUS];

/* What the account of one GPU says about a process, at one moment. */
struct seen {
	bool counts; /* it takes part, and is not silent */
	bool on, holds;
	bool runs, back, away;
	uint64_t number; /* of the turn */
	uint64_t beat;
	uint64_t had; /* number of the turn in which it was last seen to run as the holder */
};

/* Of one process. */
static struct known {
	pid_t pid;
	uint64_t after; /* CLOCK_MONOTONIC, ns: what it has published before does not count */
	struct seen seen[TURNS_GPUS];
} known[16];

void turns_gpus_read(void)
{
	memset(turns_gpus_pages, 0, sizeof(turns_gpus_pages));
	/* The simulated GPU's UUID ends in "-0" or "-1". */
	account_read_device(0, &turns_gpus_pages[0]);
	account_read_device(1, &turns_gpus_pages[1]);
}

/* Returns what is known of it. One that is not known yet takes the place of one that was known long ago. */
static struct known *known_of(const struct rank *rank)
{
	static unsigned next;

	for (unsigned i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].pid == rank->pid)
			return &known[i];
	struct known *new = &known[next++ % (sizeof(known) / sizeof(*known))];
	*new = (struct known){.pid = rank->pid};
	return new;
}

void turns_gpus_resumed(const struct rank *rank)
{
	*known_of(rank) = (struct known){.pid = rank->pid, .after = test_now()};
}

/* Who has been silent for long takes no part, and is not waited for: on a loaded machine it may run beside others. */
static struct seen see(const struct known *process, const struct rank *rank, unsigned device)
{
	const struct account_page *page = &turns_gpus_pages[device];
	const struct gpu_account_member *member = account_member(page, rank);
	const struct account_turn *turn = &page->head.turn;

	if (!member)
		return (struct seen){0};
	struct seen seen = {
	    .counts = member->claim.kind != GPU_TURN_OFF && test_now() - member->claim.beat < GPU_TURN_SILENT &&
		      member->claim.beat > process->after,
	    .on = turn->on,
	    .holds = turn->holder && page->slot[turn->holder - 1].pid == member->pid,
	    .runs = member->job.state == RESIDENCE_RUNS && !member->claim.away && !member->claim.moving,
	    .back = member->job.state == RESIDENCE_BACK,
	    .away = member->job.state == RESIDENCE_AWAY,
	    .number = turn->number,
	    .beat = member->claim.beat,
	    .had = process->seen[device].had,
	};
	if (seen.runs && seen.on && seen.holds)
		seen.had = seen.number;
	return seen;
}

/*
 * Returns whether the process took part all the time, and turns neither began nor ended: the number of the turn grows
 * with each change, so by 2 at least where they ended and began again.
 */
static bool is_steady(const struct seen *before, const struct seen *now)
{
	return before->counts && now->counts && before->on == now->on && now->number - before->number <= 1 &&
	       test_now() - before->beat < GPU_TURN_SILENT;
}

static bool is_divided(const struct seen *seen)
{
	return (seen[0].runs && seen[1].away) || (seen[1].runs && seen[0].away);
}

/* Returns what a process does that it must not do, or NULL. */
static const char *what_it_does_wrong(const struct seen *before, const struct seen *now)
{
	bool has_both = now[0].counts && now[1].counts;

	for (unsigned i = 0; i < TURNS_GPUS; i++) {
		const struct seen *a = &before[i], *b = &now[i];

		if (!b->on || !is_steady(a, b))
			continue;
		if (b->runs && !b->holds && (a->holds || a->away))
			return "goes on without the turn";
		/* Its memory has left, and the next one waits. */
		if (has_both && a->away && a->holds && (b->back || b->runs) && b->number == a->number &&
		    b->number == a->had)
			return "has a turn twice";
	}
	if ((now[0].on || now[1].on) && is_steady(&before[0], &now[0]) && is_steady(&before[1], &now[1]) &&
	    is_divided(now) && !is_divided(before))
		return "runs on one of its GPUs, and is away from the other";
	return NULL;
}

/* Returns what is as it must not be, or NULL: then `known` is as it is now. */
static const char *what_is_wrong(const struct rank *ranks, unsigned n, const struct rank **ret_who)
{
	const char *what = NULL;

	turns_gpus_read();
	*ret_who = NULL;
	for (unsigned device = 0; device < TURNS_GPUS; device++)
		if (account_sum(&turns_gpus_pages[device]) > turns_gpus_pages[device].head.file.total)
			return "more is had than there is";
	for (unsigned i = 0; i < n && !what; i++) {
		struct known *process = known_of(&ranks[i]);
		struct seen now[TURNS_GPUS];

		for (unsigned device = 0; device < TURNS_GPUS; device++)
			now[device] = see(process, &ranks[i], device);
		what = what_it_does_wrong(process->seen, now);
		if (what)
			*ret_who = &ranks[i];
		else
			memcpy(process->seen, now, sizeof(now));
	}
	return what;
}

/* What is read while it changes may be of two moments; what is wrong stays wrong. */
void turns_gpus_check(const struct rank *ranks, unsigned n)
{
	const struct rank *who;
	const char *what = NULL;

	for (unsigned tries = 0; tries < 5; tries++)
		if (!(what = what_is_wrong(ranks, n, &who)))
			return;
	for (unsigned device = 0; who && device < TURNS_GPUS; device++) {
		const struct seen *before = &known_of(who)->seen[device], now = see(known_of(who), who, device);

		print_error("GPU %u, turn %llu: runs %d, away %d, holds %d; before, turn %llu: %d, %d, %d\n", device,
			    (unsigned long long)now.number, now.runs, now.away, now.holds,
			    (unsigned long long)before->number, before->runs, before->away, before->holds);
	}
	fail_msg("process %d %s", who ? (int)who->pid : 0, what);
}

uint64_t turns_gpus_hear(const struct rank *rank, const struct rank *ranks, unsigned n)
{
	struct pollfd answer = {.fd = rank->from, .events = POLLIN};

	do
		turns_gpus_check(ranks, n);
	while (poll(&answer, 1, CHECK_MS) == 0);
	return rank_hear(rank);
}
