/*
 * demo.c: `spillway demo`. Trains a small network three times with one program: with enough device memory, with too
 * little, and with too little under Spillway; then compares what the first and the third run printed. The program and a
 * simulated GPU lie in a folder that no loader searches, so that nobody else finds that libcuda.so.1.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/common/library.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"

/* What the job may have in the limited runs; it asks for about twice that. */
#define LIMIT "64MiB"
/* What Spillway keeps for blocks on the simulated GPU, whose driver needs a little of the limit, too. */
#define BUDGET "56MiB"
/* Of the 300 steps of the job; on the simulated GPU the CPU also copies what moves. */
#define SIM_WIDTH "64"
#define SIM_STEPS "100"

struct demo {
	const char *own_job; /* NULL: the simulated GPU's */
	char tool[PATH_MAX], job[PATH_MAX], simulated[PATH_MAX];
	bool bold;
};

/* What a run of the job printed. */
struct outcome {
	int status; /* as in a shell */
	char *out, *err;
};

static const struct option_row rows[] = {
    OPTION_TEXT("job", "PROGRAM", demo, own_job,
		"the job, built for this machine's GPU (test/job/train.c), instead of the simulated GPU and its job"),
};

static const struct options options = {
    .command = "demo",
    .rows = rows,
    .n = sizeof(rows) / sizeof(*rows),
    .column = 17,
    .head =
	"usage: spillway demo [option...]\n\n"
	"Trains a small network with more device memory than there is, without and with Spillway, on a simulated GPU:\n"
	"the arithmetic and the data are real, done by the CPU. No GPU is needed.\n",
    .tail =
	"Exit status: 0 the job ran out of memory without Spillway and printed the same losses with it, 1 it did not,\n"
	"2 wrong usage, or the demo is not installed.\n\n"
	"example:\n"
	"  spillway demo\n",
};

/* ---- what is run ---- */

/* Relative to the folder of the tool: the build folder, then an installed tree. Of each: the job, the simulated GPU. */
static const char *const places[][2] = {
    {"job/train", "sim"},
    {"../lib/spillway/demo/train", "../lib/spillway/demo"},
    {"../lib64/spillway/demo/train", "../lib64/spillway/demo"},
    {"../lib/" SPILLWAY_MULTIARCH "/spillway/demo/train", "../lib/" SPILLWAY_MULTIARCH "/spillway/demo"},
};

static bool find_parts(struct demo *demo)
{
	char folder[PATH_MAX], path[2 * PATH_MAX];

	if (!library_tool_folder(folder) || !realpath("/proc/self/exe", demo->tool))
		return false;
	if (demo->own_job) {
		if (realpath(demo->own_job, demo->job))
			return true;
		tool_say("--job: %s: %s", demo->own_job, strerror(errno));
		return false;
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, places[i][0]);
		if (access(path, X_OK) != 0 || !realpath(path, demo->job))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, places[i][1]);
		if (realpath(path, demo->simulated))
			return true;
	}
	tool_say("the demo's job is not installed beside this tool; `make demo` builds it");
	return false;
}

/* Puts the simulated GPU before other libraries of the child. Returns false if memory runs out. */
static bool set_libraries(const struct demo *demo)
{
	const char *before = getenv("LD_LIBRARY_PATH");
	char *joined;

	if (asprintf(&joined, "%s%s%s", demo->simulated, before && *before ? ":" : "", before ? before : "") < 0)
		return false;
	bool done = setenv("LD_LIBRARY_PATH", joined, 1) == 0;
	free(joined);
	return done;
}

/* In the child. arguments: of `spillway run` in front of the job; NULL: the job alone. Returns only on an error. */
static void exec_job(const struct demo *demo, const char *memory, char *const *arguments)
{
	char *command[16], width[] = SIM_WIDTH, steps[] = SIM_STEPS;
	int n = 0;

	unsetenv("SPILLWAY");
	unsetenv("SPILLWAY_POLICY");
	unsetenv("SPILLWAY_SET");
	if (!demo->own_job && (setenv("SIM_MEMORY", memory, 1) != 0 || !set_libraries(demo)))
		_exit(TOOL_BROKEN);
	for (; arguments && *arguments; arguments++)
		command[n++] = *arguments;
	command[n++] = (char *)demo->job;
	if (!demo->own_job) {
		command[n++] = width;
		command[n++] = steps;
	}
	command[n] = NULL;
	execv(command[0], command);
	tool_say("%s: %s", command[0], strerror(errno));
	_exit(TOOL_NOT_EXECUTABLE);
}

static char *read_all(FILE *file)
{
	long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
	char *text = bytes >= 0 ? calloc(1, (size_t)bytes + 1) : NULL;

	rewind(file);
	if (text && fread(text, 1, (size_t)bytes, file) != (size_t)bytes)
		text[0] = '\0';
	return text;
}

static int wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return TOOL_BROKEN;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Returns false if the job could not be started; the reason was printed. */
static bool run_job(const struct demo *demo, const char *memory, char *const *arguments, struct outcome *ret)
{
	FILE *out = tmpfile(), *err = tmpfile();
	bool done = false;

	fflush(stdout);
	pid_t child = out && err ? fork() : -1;
	if (child == 0) {
		dup2(fileno(out), STDOUT_FILENO);
		dup2(fileno(err), STDERR_FILENO);
		exec_job(demo, memory, arguments);
		_exit(TOOL_BROKEN);
	}
	if (child > 0) {
		ret->status = wait_for(child);
		ret->out = read_all(out);
		ret->err = read_all(err);
		done = ret->out && ret->err;
	}
	if (!done)
		tool_say("the job cannot be run: %s", strerror(errno));
	if (out)
		fclose(out);
	if (err)
		fclose(err);
	return done;
}

static void outcome_free(struct outcome *outcome)
{
	free(outcome->out);
	free(outcome->err);
}

/* ---- what is shown ---- */

static void head_line(const struct demo *demo, const char *text)
{
	printf("\n%s%s%s\n", demo->bold ? "\033[1m" : "", text, demo->bold ? "\033[0m" : "");
}

/* Calls visit() for each line, without its end. */
static void each_line(const char *text, void (*visit)(void *argument, const char *line, size_t length), void *argument)
{
	while (*text) {
		size_t length = strcspn(text, "\n");

		visit(argument, text, length);
		text += length + (text[length] == '\n');
	}
}

static bool begins(const char *line, size_t length, const char *with)
{
	return length >= strlen(with) && memcmp(line, with, strlen(with)) == 0;
}

/* Prints a few of the lines; all are compared. */
static void print_loss(void *argument, const char *line, size_t length)
{
	(void)argument;
	unsigned long step = begins(line, length, "step ") ? strtoul(line + 5, NULL, 10) : 0;

	if (step == 1 || (step && step % 100 == 0) || begins(line, length, "final") ||
	    begins(line, length, "device memory asked"))
		printf("    %.*s\n", (int)length, line);
}

static void print_line(void *argument, const char *line, size_t length)
{
	(void)argument;
	printf("    %.*s\n", (int)length, line);
}

/* What is equal in two runs of which neither went wrong: the losses and the accuracies. */
struct comparison {
	const char *other;
	unsigned n;
	bool equal;
};

static void compare_line(void *argument, const char *line, size_t length)
{
	struct comparison *comparison = argument;

	if (!begins(line, length, "step") && !begins(line, length, "final"))
		return;
	/* The next such line of the other run. */
	while (*comparison->other && strncmp(comparison->other, "step", 4) != 0 &&
	       strncmp(comparison->other, "final", 5) != 0)
		comparison->other += strcspn(comparison->other, "\n") + 1;
	comparison->equal &= strcspn(comparison->other, "\n") == length && memcmp(comparison->other, line, length) == 0;
	comparison->other += strcspn(comparison->other, "\n");
	comparison->other += *comparison->other == '\n';
	comparison->n++;
}

/* ---- the three runs ---- */

/* Each returns NULL, or what went wrong. */

static const char *run_with_enough(const struct demo *demo, struct outcome *outcome)
{
	head_line(demo, "1. Enough memory");
	if (!run_job(demo, "1GiB", NULL, outcome))
		return "run 1 could not be started";
	each_line(outcome->out, print_loss, NULL);
	if (outcome->status == 0)
		return NULL;
	each_line(outcome->err, print_line, NULL);
	return "run 1 did not finish";
}

/* A real GPU cannot be made smaller, so there the limit is Spillway's budget with spilling off. */
static const char *run_with_too_little(const struct demo *demo)
{
	char *const under[] = {(char *)demo->tool,
			       "run",
			       "--policy",
			       "heap",
			       "--set",
			       "device.budget=" LIMIT ",spill.mode=off",
			       "--",
			       NULL};
	struct outcome outcome = {0};

	head_line(demo, demo->own_job ? "2. Only " LIMIT ", nothing may spill" : "2. Only " LIMIT ", without Spillway");
	if (demo->own_job)
		printf("  (A real GPU cannot be made smaller: Spillway sets the limit here, as a budget with spilling "
		       "off.)\n");
	if (!run_job(demo, LIMIT, demo->own_job ? under : NULL, &outcome)) {
		outcome_free(&outcome);
		return "run 2 could not be started";
	}
	const char *said = strstr(outcome.err, "train: out of memory");
	bool good = outcome.status == 1 && said;
	if (said)
		printf("    %.*s\n", (int)strcspn(said, "\n"), said);
	printf("    exit status %d\n", outcome.status);
	outcome_free(&outcome);
	return good ? NULL : "run 2 was to end with out of memory and did not";
}

static const char *run_with_spillway(const struct demo *demo, struct outcome *outcome)
{
	char *const under[] = {(char *)demo->tool,
			       "run",
			       "--policy",
			       "heap",
			       "--set",
			       demo->own_job ? "device.budget=" LIMIT : "device.budget=" BUDGET,
			       "--",
			       NULL};

	head_line(demo, "3. Only " LIMIT ", with Spillway: the very same binary, LD_PRELOAD of libspillway.so");
	if (!run_job(demo, LIMIT, under, outcome))
		return "run 3 could not be started";
	each_line(outcome->out, print_loss, NULL);
	printf("\n");
	each_line(outcome->err, print_line, NULL);
	if (outcome->status == 0)
		return NULL;
	printf("    exit status %d\n", outcome->status);
	return "run 3 did not finish";
}

static const char *compare(const struct demo *demo, const struct outcome *one, const struct outcome *three)
{
	struct comparison comparison = {.other = three->out, .equal = true};

	head_line(demo, "Comparison");
	each_line(one->out, compare_line, &comparison);
	if (comparison.n && comparison.equal) {
		printf("  The %u lines of losses and accuracies that runs 1 and 3 printed are equal bit for bit.\n",
		       comparison.n);
		return NULL;
	}
	printf("  The losses of runs 1 and 3 differ.\n");
	return "the losses differ";
}

static int demo_run(const struct demo *demo)
{
	struct outcome one = {0}, three = {0};

	printf("Spillway demo: training with more device memory than there is\n");
	if (!demo->own_job)
		printf("GPU: simulated. The arithmetic and the data are real, done by the CPU.\n");
	const char *wrong = run_with_enough(demo, &one);
	if (!wrong)
		wrong = run_with_too_little(demo);
	if (!wrong)
		wrong = run_with_spillway(demo, &three);
	if (!wrong)
		wrong = compare(demo, &one, &three);
	outcome_free(&one);
	outcome_free(&three);
	head_line(demo, wrong ? "Verdict: FAILED" : "Verdict: good");
	printf("  %s.\n",
	       wrong ? wrong : "Out of memory without Spillway; with it the job finished, with the same results");
	return wrong ? TOOL_BROKEN : TOOL_OK;
}

int tool_demo(int argc, char **argv)
{
	struct demo demo = {.bold = isatty(STDOUT_FILENO)};
	int status = options_read(&options, argc, argv, &demo);

	if (status != OPTIONS_GO_ON)
		return status;
	if (optind < argc) {
		tool_say("%s is one argument too many; `spillway demo --help` says what there is", argv[optind]);
		return TOOL_BAD;
	}
	return find_parts(&demo) ? demo_run(&demo) : TOOL_BAD;
}
