// SPDX-License-Identifier: Apache-2.0
/*
 * The SPANK plugin: `srun --spillway[=POLICY] --spillway-set=KEY=VALUE` (also sbatch and salloc).
 *
 * It runs in programs of Slurm: in srun it takes the options; in slurmstepd, just before a task becomes the program, it
 * sets the task's environment, and when a task has ended it prints the summary that a killed program could not print.
 * It changes nothing for a step that does not ask for it.
 */
#include <slurm/spank.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/slurm/slurm_env.h"

/* Of srun's environment, and so of the job's: all items of --spillway-set. Slurm passes on the last one alone. */
#define ITEMS "SPILLWAY_SLURM_SET"
/* How long the end of a task may be held up for its summary. */
#define SUMMARY_MS 3000

SPANK_PLUGIN(spillway, 1)

/* Slurm calls a plugin from one thread of a process at a time. */
static struct {
	bool on;
	char policy[SLURM_ENV_BYTES], set[SLURM_ENV_BYTES];
	struct slurm_site site;
} state;

static int take_policy(int value, const char *text, int remote)
{
	(void)value;
	(void)remote;
	if (text && strlen(text) >= sizeof(state.policy)) {
		slurm_error("spillway: the name of the policy is too long");
		return ESPANK_BAD_ARG;
	}
	state.on = true;
	snprintf(state.policy, sizeof(state.policy), "%s", text && strcmp(text, "(null)") != 0 ? text : "");
	return ESPANK_SUCCESS;
}

static int take_set(int value, const char *text, int remote)
{
	(void)value;
	if (!text || !slurm_set_add(state.set, text)) {
		slurm_error("spillway: --spillway-set wants KEY=VALUE, and not too many of them");
		return ESPANK_BAD_ARG;
	}
	state.on = true;
	if (!remote && setenv(ITEMS, state.set, 1) != 0)
		return ESPANK_ERROR;
	return ESPANK_SUCCESS;
}

static struct spank_option options[] = {
    {"spillway", "[POLICY]", "let tasks use more memory than the GPU has; POLICY: a built-in policy or a file", 2, 0,
     take_policy},
    {"spillway-set", "KEY=VALUE", "set keys of the policy, separated by commas; may be given again", 1, 0, take_set},
    SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t spank, int n, char **arguments)
{
	slurm_site_default(&state.site, SPILLWAY_LIBRARY, SPILLWAY_TOOL);
	for (int i = 0; i < n; i++)
		if (!slurm_site_argument(&state.site, arguments[i]))
			slurm_error(
			    "spillway: plugstack.conf: %s is none of library=PATH, tool=PATH, shards=N, budgets=yes|no",
			    arguments[i]);
	for (struct spank_option *option = options; option->name; option++)
		if (spank_option_register(spank, option) != ESPANK_SUCCESS)
			slurm_error("spillway: the option --%s could not be registered", option->name);
	/* What an outer srun left for its own job does not count for this one. */
	if (spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR)
		unsetenv(ITEMS);
	return ESPANK_SUCCESS;
}

/* Returns the variable of the job, or NULL if there is none or it does not fit. */
static const char *variable(spank_t spank, const char *name, char *buffer, int bytes)
{
	return spank_getenv(spank, name, buffer, bytes) == ESPANK_SUCCESS ? buffer : NULL;
}

static unsigned number(spank_t spank, const char *name)
{
	char text[32];
	const char *value = variable(spank, name, text, sizeof(text));

	return value ? (unsigned)strtoul(value, NULL, 10) : 0;
}

static void read_task(spank_t spank, struct slurm_task *ret_task)
{
	uint64_t mib = 0;
	uint32_t tasks = 0;

	if (spank_get_item(spank, S_STEP_ALLOC_MEM, &mib) != ESPANK_SUCCESS || mib == 0)
		if (spank_get_item(spank, S_JOB_ALLOC_MEM, &mib) != ESPANK_SUCCESS)
			mib = 0;
	spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks);
	*ret_task = (struct slurm_task){.memory_mib = mib,
					.tasks = tasks,
					.gpus = number(spank, "SLURM_GPUS_ON_NODE"),
					.shards = number(spank, "SLURM_SHARDS_ON_NODE"),
					.mps_percent = number(spank, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")};
}

static bool set_all(spank_t spank, const struct slurm_environment *environment)
{
	return spank_setenv(spank, "LD_PRELOAD", environment->preload, 1) == ESPANK_SUCCESS &&
	       (!*environment->policy ||
		spank_setenv(spank, "SPILLWAY_POLICY", environment->policy, 1) == ESPANK_SUCCESS) &&
	       (!*environment->set || spank_setenv(spank, "SPILLWAY_SET", environment->set, 1) == ESPANK_SUCCESS);
}

/* In the process of the task, as its user, before it becomes the program. An error ends the task. */
int slurm_spank_task_init(spank_t spank, int n, char **arguments)
{
	static char inherited[SLURM_ENV_BYTES], preload[SLURM_ENV_BYTES], items[SLURM_ENV_BYTES];
	static struct slurm_environment environment;
	struct slurm_request request = {.policy = *state.policy ? state.policy : NULL};

	(void)n;
	(void)arguments;
	if (!state.on)
		return ESPANK_SUCCESS;
	if (access(state.site.library, R_OK) != 0) {
		slurm_error("spillway: %s: %s; plugstack.conf can name another: library=PATH", state.site.library,
			    strerror(errno));
		return ESPANK_ERROR;
	}
	request.set = variable(spank, ITEMS, items, sizeof(items));
	if (!request.set)
		request.set = *state.set ? state.set : NULL;
	request.inherited = variable(spank, "SPILLWAY_SET", inherited, sizeof(inherited));
	request.preload = variable(spank, "LD_PRELOAD", preload, sizeof(preload));
	read_task(spank, &request.task);
	if (!slurm_environment_make(&state.site, &request, &environment) || !set_all(spank, &environment)) {
		slurm_error("spillway: the environment of the task could not be set");
		return ESPANK_ERROR;
	}
	return ESPANK_SUCCESS;
}

/* ---- the summary of a task that was killed ---- */

struct owner {
	uid_t user;
	gid_t group;
	char runtime[SLURM_ENV_BYTES];
};

/* In a child of slurmstepd: becomes the tool, as the user of the job, with the pipe as output. */
__attribute__((noreturn)) static void become_tool(const struct owner *owner, pid_t task, int output)
{
	char pid[32], folder[SLURM_ENV_BYTES + 32];
	char *environment[] = {*owner->runtime ? folder : NULL, NULL};
	int nothing = open("/dev/null", O_RDWR);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(pid, sizeof(pid), "%d", (int)task);
	snprintf(folder, sizeof(folder), "XDG_RUNTIME_DIR=%s", owner->runtime);
	if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(output, 2) < 0)
		_exit(1);
	if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(owner->group) != 0 || setuid(owner->user) != 0))
		_exit(1);
	/* After setuid(): a change of the user clears this signal. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	char *arguments[] = {"spillway", "run", "--summary-of", pid, NULL};
	execve(state.site.tool, arguments, environment);
	_exit(1);
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Gives each line to Slurm, which sends it to where the standard error of srun's tasks goes. */
static void pass_lines(int input)
{
	char text[SLURM_ENV_BYTES];
	size_t n = 0;
	long long end = now_ms() + SUMMARY_MS, left;
	struct pollfd pipe_end = {.fd = input, .events = POLLIN};

	while (n < sizeof(text) - 1 && (left = end - now_ms()) > 0 && poll(&pipe_end, 1, (int)left) > 0) {
		ssize_t got = read(input, text + n, sizeof(text) - 1 - n);

		if (got <= 0)
			break;
		n += (size_t)got;
	}
	text[n] = 0;
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
		if (*line)
			slurm_spank_log("%s", line);
}

/* In slurmstepd, when a task has ended. */
int slurm_spank_task_exit(spank_t spank, int n, char **arguments)
{
	struct owner owner = {0};
	pid_t task = 0, child;
	int status = 0, ends[2];

	(void)n;
	(void)arguments;
	/* One that ended by itself has printed its summary. */
	if (!state.on || spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS || !WIFSIGNALED(status))
		return ESPANK_SUCCESS;
	if (spank_get_item(spank, S_TASK_PID, &task) != ESPANK_SUCCESS || task <= 0 ||
	    spank_get_item(spank, S_JOB_UID, &owner.user) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_GID, &owner.group) != ESPANK_SUCCESS || pipe2(ends, O_CLOEXEC) != 0)
		return ESPANK_SUCCESS;
	variable(spank, "XDG_RUNTIME_DIR", owner.runtime, sizeof(owner.runtime));
	child = fork();
	if (child == 0)
		become_tool(&owner, task, ends[1]);
	close(ends[1]);
	if (child > 0) {
		pass_lines(ends[0]);
		kill(child, SIGKILL);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close(ends[0]);
	return ESPANK_SUCCESS;
}
