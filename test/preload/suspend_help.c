// SPDX-License-Identifier: Apache-2.0
#include "test/preload/suspend_help.h"

#define AFTER_MS 20000 /* what has not come back by then hangs */

CUdeviceptr job_blocks[N_BLOCKS];

/* ---- the tool ---- */

static bool is_said(const char *what, int got, int status, const char *text, const char *words)
{
	if (got == status && strstr(text, words))
		return true;
	printf("%s: status %d, not %d, and \"%s\" is not in: %s\n", what, got, status, words, text);
	return false;
}

bool tool_says(const char *command, int status, const char *words)
{
	int got;
	const char *text = tool(&got, "%s %d", command, (int)getpid());

	return is_said(command, got, status, text, words);
}

bool set_says(const char *setting, int status, const char *words)
{
	const char *text;
	int got;

	/* Who does not ask within a second is not heard; the machine may have stalled. */
	for (unsigned tries = 0; tries < 30; tries++) {
		text = tool(&got, "set %d '%s'", (int)getpid(), setting);
		if (!got || !strstr(text, "before it answered"))
			break;
	}
	return is_said(setting, got, status, text, words);
}

bool tool_lists(const char *state)
{
	char line[64], busy[64];
	const char *text;
	int got;

	snprintf(line, sizeof(line), "%7d  %-9s  ", (int)getpid(), state);
	snprintf(busy, sizeof(busy), "%7d  %-9s  ", (int)getpid(), "busy");
	/* A process that does not answer within a second is listed as busy. The machine may have stalled: ask again. */
	for (int tries = 0; tries < 30; tries++) {
		text = tool(&got, "list");
		if (got || !strcmp(state, "busy") || !strstr(text, busy))
			break;
	}
	return is_said("list", got, 0, text, line);
}

static const char *shown(void)
{
	int status;
	const char *text = tool(&status, "top --once --json %d", (int)getpid());

	CHECK(status == 0);
	return text;
}

bool shows_mode(const char *mode)
{
	char word[32];

	snprintf(word, sizeof(word), "\"mode\": \"%s\"", mode);
	return strstr(shown(), word) != NULL;
}

unsigned long shown_number(const char *name)
{
	char word[64];

	snprintf(word, sizeof(word), "\"%s\": ", name);
	const char *at = strstr(shown(), word);
	CHECK(at);
	return strtoul(at + strlen(word), NULL, 10);
}

/* ---- the job ---- */

void job_allocate(void)
{
	for (unsigned i = 0; i < N_BLOCKS; i++) {
		job_blocks[i] = child_alloc(BLOCK);
		MUST(driver_fill(NULL, job_blocks[i], 0x1000 + i, N_WORDS));
	}
	MUST(cu.cuCtxSynchronize());
}

void job_start(void)
{
	driver_start(0);
	job_allocate();
}

void job_fill(unsigned base)
{
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(driver_fill(NULL, job_blocks[i], base + i, N_WORDS));
}

void job_check(unsigned base)
{
	MUST(cu.cuCtxSynchronize());
	for (unsigned i = 0; i < N_BLOCKS; i++)
		CHECK(driver_holds(job_blocks[i], base + i, N_WORDS));
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	MUST(cu.cuCtxSetCurrent(worker->context));
	worker->begun = true;
	job_fill(worker->base);
	worker->done = true;
	return NULL;
}

void worker_begin(struct worker *worker, unsigned base)
{
	worker->base = base;
	worker->begun = worker->done = false;
	MUST(cu.cuCtxGetCurrent(&worker->context));
	CHECK(pthread_create(&worker->thread, NULL, work, worker) == 0);
	UNTIL(worker->begun);
}

void worker_end(struct worker *worker)
{
	for (int ms = 0; !worker->done && ms < AFTER_MS; ms++)
		usleep(1000);
	CHECK(worker->done);
	CHECK(pthread_join(worker->thread, NULL) == 0);
}

/* ---- steps in a thread ---- */

static struct {
	pthread_t thread;
	CUcontext context;
	void (*step)(unsigned base);
	_Atomic bool over;
	_Atomic unsigned rounds;
} stepper;

static void *step_on(void *argument)
{
	MUST(cu.cuCtxSetCurrent(stepper.context));
	for (; !stepper.over; stepper.rounds++)
		stepper.step(0x2000 + stepper.rounds);
	return NULL;
}

void steps_begin(void (*step)(unsigned base))
{
	stepper.step = step;
	stepper.over = false;
	stepper.rounds = 0;
	MUST(cu.cuCtxGetCurrent(&stepper.context));
	CHECK(pthread_create(&stepper.thread, NULL, step_on, NULL) == 0);
}

void await_steps(unsigned more)
{
	for (unsigned until = stepper.rounds + more; stepper.rounds < until;)
		usleep(1000);
}

void steps_end(void)
{
	await_steps(1); /* one at least, after all that was done meanwhile */
	stepper.over = true;
	CHECK(pthread_join(stepper.thread, NULL) == 0);
	job_check(0x2000 + stepper.rounds - 1);
}
