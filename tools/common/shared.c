// SPDX-License-Identifier: Apache-2.0
/* Reads and shows the accounts of shared GPUs. See shared.h. */
#include "tools/common/shared.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/accounting/gpu_account.h"
#include "shim/base/clock.h"
#include "shim/base/user_dir.h"
#include "shim/plan/gpu_job.h"
#include "tools/common/units.h"

static double seconds_since(uint64_t ns)
{
	uint64_t now = clock_now();

	return now > ns ? (double)(now - ns) / 1e9 : 0;
}

/* ---- reading ---- */

/* The seats of all accounts of a folder, in the order in which they are read, and the name of each account. Large. */
static struct gpu_job_view jobs;
static char names[GPU_JOB_DEVICES][64];
static unsigned n_names;

static bool read_page(const struct user_dir *folder, const char *name, struct account_page *ret_page,
		      bool ret_ended[GPU_ACCOUNT_MOST])
{
	int fd = openat(folder->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	bool good = fd >= 0 && gpu_account_read(fd, ret_page, ret_ended);

	if (fd >= 0)
		close(fd);
	return good;
}

static void add_seats(const struct user_dir *folder, const char *name, void *argument)
{
	struct account_page page;
	bool ended[GPU_ACCOUNT_MOST];

	(void)argument;
	if (n_names == GPU_JOB_DEVICES || !read_page(folder, name, &page, ended))
		return;
	unsigned before = jobs.n;
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++)
		if (page.slot[i].pid && !ended[i] && jobs.n < GPU_JOB_SEATS)
			jobs.seats[jobs.n++] = (struct gpu_job_seat){
			    .device = n_names, .slot = i, .takes_part = true, .claim = page.slot[i].job};
	if (jobs.n == before)
		return;
	snprintf(names[n_names], sizeof(names[0]), "%s", name);
	n_names++;
}

/* Returns the number of the member's job, from 1 on; 0: its process is alone. Jobs that have several are counted. */
static unsigned job_of(const char *name, unsigned slot)
{
	uint32_t job = UINT32_MAX;
	unsigned number = 0;

	for (uint32_t i = 0; i < jobs.n; i++)
		if (!strcmp(names[jobs.seats[i].device], name) && jobs.seats[i].slot == slot)
			job = jobs.seats[i].job;
	for (uint32_t i = 0; i < jobs.n && job != UINT32_MAX; i++) {
		bool others = false;

		for (uint32_t j = i + 1; j < jobs.n; j++)
			others |= jobs.seats[j].job == i && jobs.seats[j].claim.process != jobs.seats[i].claim.process;
		number += others;
		if (jobs.seats[i].job == job)
			return others ? number : 0;
	}
	return 0;
}

struct visit {
	void (*visit)(const struct shared_gpu *gpu, void *argument);
	void *argument;
};

static void read_account(const struct user_dir *folder, const char *name, void *argument)
{
	const struct visit *visit = argument;
	struct account_page page;
	struct shared_gpu gpu = {.holder = GPU_ACCOUNT_MOST};
	bool ended[GPU_ACCOUNT_MOST];

	if (!read_page(folder, name, &page, ended))
		return;
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		if (!page.slot[i].pid)
			continue;
		if (page.head.turn.holder == i + 1 && !ended[i])
			gpu.holder = gpu.n;
		gpu.ended[gpu.n] = ended[i];
		gpu.job[gpu.n] = job_of(name, i);
		gpu.member[gpu.n++] = page.slot[i];
	}
	if (!gpu.n)
		return;
	snprintf(gpu.uuid, sizeof(gpu.uuid), "%.32s", name + strlen("gpu-"));
	gpu.total = page.head.file.total;
	gpu.turns = page.head.turn.on;
	gpu.since = seconds_since(page.head.turn.since);
	if (gpu.holder == GPU_ACCOUNT_MOST)
		gpu.holder = gpu.n;
	uint64_t clock = gpu_account_clock(gpu.member, gpu.n);
	for (unsigned i = 0; i < gpu.n; i++)
		gpu.other_clock[i] = !gpu_account_has_clock(&gpu.member[i], clock);
	visit->visit(&gpu, visit->argument);
}

void shared_each(void (*visit)(const struct shared_gpu *gpu, void *argument), void *argument)
{
	struct visit all = {visit, argument};
	struct user_dir folder;

	for (unsigned place = 0; place < USER_DIR_PLACES; place++) {
		if (user_dir_open_place(place, &folder) != 0)
			continue;
		jobs.n = n_names = 0;
		user_dir_each_file(&folder, GPU_ACCOUNT_TAIL, GPU_ACCOUNT_FILES, add_seats, NULL);
		gpu_job_find(&jobs);
		user_dir_each_file(&folder, GPU_ACCOUNT_TAIL, GPU_ACCOUNT_FILES, read_account, &all);
		user_dir_close(&folder, false);
	}
}

/* ---- what it says ---- */

double shared_waits(const struct shared_gpu *gpu, unsigned member)
{
	uint64_t waits = gpu->member[member].claim.waits;

	return waits && member != gpu->holder ? seconds_since(waits) : 0;
}

double shared_part(const struct shared_gpu *gpu, unsigned member, bool due)
{
	double sum = 0, own = 0;

	for (unsigned i = 0; i < gpu->n; i++) {
		const struct gpu_turn_claim *claim = &gpu->member[i].claim;
		double value = claim->kind == GPU_TURN_OFF ? 0 : due ? (double)claim->weight : (double)claim->got;

		sum += value;
		own = i == member ? value : own;
	}
	return sum > 0 ? own / sum : 0;
}

/* ---- the table ---- */

/* Writes whether the member has its turn, waits (how long), moves, is stopped or idle, or takes no turns. */
static void write_turn(const struct shared_gpu *gpu, unsigned i, char text[32])
{
	const struct gpu_turn_claim *claim = &gpu->member[i].claim;
	uint64_t state = gpu->member[i].job.state;

	if (gpu->other_clock[i])
		snprintf(text, 32, "other clock");
	else if (!gpu->turns || claim->kind == GPU_TURN_OFF)
		snprintf(text, 32, "-");
	else if (claim->moving)
		snprintf(text, 32, "moves");
	else if (gpu->job[i] && (state == RESIDENCE_STOPPED || state == RESIDENCE_BACK))
		snprintf(text, 32, "stopped");
	else if (gpu->job[i] ? state == RESIDENCE_RUNS : i == gpu->holder)
		snprintf(text, 32, "has it");
	else if (claim->waits)
		snprintf(text, 32, "waits %.1f s", shared_waits(gpu, i));
	else
		snprintf(text, 32, "idle");
}

static void print_member(FILE *out, const struct shared_gpu *gpu, unsigned i)
{
	char idle[32] = "-", its[32];
	char job[16] = "-";
	const struct gpu_account_member *member = &gpu->member[i];

	if (gpu->ended[i])
		snprintf(idle, sizeof(idle), "ended");
	else if (member->worked && gpu_account_has_clock(member, identity_space_clock(identity_space())))
		snprintf(idle, sizeof(idle), "%.1f s", seconds_since(member->worked));
	write_turn(gpu, i, its);
	if (gpu->job[i])
		snprintf(job, sizeof(job), "%u", gpu->job[i]);
	fprintf(out, "%7llu  %10s  %10s  %10s  %11s  %8s", (unsigned long long)member->pid,
		text_bytes(member->may_have), text_bytes(member->holds), text_bytes(member->needs),
		text_bytes(member->stuck), idle);
	if (gpu->turns)
		fprintf(out, "  %3s  %-12s  %5llu  %8.1f s  %3.0f of %3.0f %%  %6llu  %6.2f s", job, its,
			(unsigned long long)member->claim.n, (double)member->claim.got / 1e9,
			100 * shared_part(gpu, i, false), 100 * shared_part(gpu, i, true),
			(unsigned long long)member->claim.weight, (double)member->claim.cost / 1e9);
	fprintf(out, "\n");
}

static void print_gpu(const struct shared_gpu *gpu, void *argument)
{
	FILE *out = argument;

	fprintf(out, "\nGPU %.8s, shared: %s in all\n%7s  %10s  %10s  %10s  %11s  %8s%s\n", gpu->uuid,
		text_bytes(gpu->total), "PID", "MAY HAVE", "HOLDS", "NEEDS", "CANNOT MOVE", "IDLE",
		gpu->turns ? "  JOB  TURN          TURNS         GOT         SHARE  WEIGHT    SWITCH" : "");
	for (unsigned i = 0; i < gpu->n; i++)
		print_member(out, gpu, i);
}

void shared_print(FILE *out)
{
	shared_each(print_gpu, out);
}

char *shared_text(void)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	shared_print(out);
	if (fclose(out) == 0 && bytes)
		return text;
	free(text);
	return NULL;
}
