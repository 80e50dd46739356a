#include "test/preload/suspend_help.h"

#include <spawn.h>

extern char **environ;

#define AFTER_MS 20000 /* what has not come back by then hangs */

CUdeviceptr job_blocks[N_BLOCKS];

/* ---- the tool ---- */

static void read_all(int fd, char *text, size_t room)
{
	size_t at = 0;
	ssize_t n;

	while (at < room - 1 && (n = read(fd, text + at, room - 1 - at)) > 0)
		at += (size_t)n;
	text[at] = 0;
}

int tool_run(const char *command, char ret_text[2048])
{
	char pid[16], *argv[] = {TOOL, (char *)command, strcmp(command, "list") ? pid : NULL, NULL}, *no_preload[256];
	posix_spawn_file_actions_t actions;
	int ends[2], status, n = 0;
	pid_t child;

	for (int i = 0; environ[i] && n < 255; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			no_preload[n++] = environ[i];
	no_preload[n] = NULL;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	CHECK(pipe(ends) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	CHECK(posix_spawn(&child, TOOL, &actions, NULL, argv, no_preload) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	read_all(ends[0], ret_text, 2048);
	close(ends[0]);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

bool tool_says(const char *command, int status, const char *words)
{
	char text[2048];
	int got = tool_run(command, text);

	if (got == status && strstr(text, words))
		return true;
	printf("%s: status %d, not %d, and \"%s\" is not in: %s\n", command, got, status, words, text);
	return false;
}

bool tool_lists(const char *state)
{
	char text[2048], line[64], busy[64];
	int got;

	snprintf(line, sizeof(line), "%7d  %-9s  ", (int)getpid(), state);
	snprintf(busy, sizeof(busy), "%7d  %-9s  ", (int)getpid(), "busy");
	/* A process that does not answer within a second is listed as busy. The machine may have stalled: ask again. */
	for (int tries = 0; tries < 30; tries++) {
		got = tool_run("list", text);
		if (got || !strcmp(state, "busy") || !strstr(text, busy))
			break;
	}
	if (got == 0 && strstr(text, line))
		return true;
	printf("list: status %d, and \"%s\" is not in: %s\n", got, line, text);
	return false;
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
	while (!worker->begun)
		usleep(1000);
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

int suspend_run(int (*run)(void))
{
	char folder[] = "/tmp/suspend_test.XXXXXX", command[64];

	if (!mkdtemp(folder))
		return 1;
	setenv("XDG_RUNTIME_DIR", folder, 1);
	int failed = run();
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command) || failed;
}
