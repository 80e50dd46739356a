// SPDX-License-Identifier: Apache-2.0
/*
 * main.c: the entry point of `spillway`: looks up the command and calls it. A new command needs a row in this file, a
 * prototype in commands.h and a file.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/commands.h"
#include "tools/common/library.h"
#include "tools/common/tool.h"

static int tool_help(int argc, char **argv);
static int tool_version(int argc, char **argv);
static int tool_demo(int argc, char **argv);
static int tool_kernel(int argc, char **argv);

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
    {"run", tool_run, "run a program with Spillway in front of its CUDA calls"},
    {"demo", tool_demo, "train a small network with too little memory, without and with Spillway"},
    {"check", tool_check, "check policy files"},
    {"explain", tool_explain, "say what a policy decides about an allocation, and why"},
    {"doctor", tool_doctor, "say what of this machine and of a program keeps Spillway from working"},
    {"list", tool_list, "show the processes that run under Spillway"},
    {"top", tool_top, "show where the memory of processes is and what moves, while they run"},
    {"report", tool_report, "show what a trace says: what memory cost, where it was, what to change"},
    {"replay", tool_replay, "predict from a trace what a job would cost under other budgets"},
    {"prom", tool_prom, "write the figures of processes to a file for Prometheus"},
    {"cdi", tool_cdi, "write a spec with which containers run under Spillway"},
    {"kernel", tool_kernel, "make a kernel for Jupyter that runs under Spillway"},
    {"suspend", tool_suspend, "take the GPU's memory from running processes for a while"},
    {"resume", tool_resume, "let suspended processes go on"},
    {"set", tool_set, "change the budgets, the mode, or the weight of a running process"},
    {"help", tool_help, "say what there is, or what a command does"},
    {"version", tool_version, "print the version"},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(*commands) };

static int print_help(void)
{
	printf("usage: spillway COMMAND [argument...]\n\n"
	       "Lets unmodified CUDA programs use more memory than the GPU has.\n\n"
	       "commands:\n");
	for (int i = 0; i < N_COMMANDS; i++)
		printf("  %-10s%s\n", commands[i].name, commands[i].help);
	printf("\noptions:\n"
	       "  --version  print the version (-V)\n"
	       "  --help     print this (-h)\n\n"
	       "`spillway COMMAND --help` says more, and so does `man spillway-COMMAND`. Where to begin: `spillway "
	       "doctor`.\n\n"
	       "examples:\n"
	       "  spillway run --set device.budget=8GiB -- python train.py\n"
	       "  spillway doctor -- python train.py\n");
	return TOOL_OK;
}

static int report_unknown(const char *name)
{
	struct policy_suggestion suggestion = {.typed = name};

	for (int i = 0; i < N_COMMANDS; i++)
		policy_suggest(&suggestion, commands[i].name);
	if (suggestion.best)
		return tool_bad("unknown command %s; did you mean \"%s\"?", policy_quoted(name), suggestion.best);
	return tool_bad("unknown command %s; `spillway --help` lists the commands", policy_quoted(name));
}

static const struct command *find_command(const char *name)
{
	for (int i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static bool is_help(const char *option)
{
	return strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0;
}

static int refuse_more(const char *command, const char *argument)
{
	return tool_bad(argument[0] == '-' ? "unknown option %s; `spillway %s --help` says what there is"
					   : "%s is one argument too many; `spillway %s --help` says what there is",
			policy_quoted(argument), command);
}

/* `spillway help run` is `spillway run --help`. */
static int tool_help(int argc, char **argv)
{
	const struct command *command;

	if (argc < 2)
		return print_help();
	if (is_help(argv[1])) {
		printf("usage: spillway help [COMMAND]\n\n"
		       "Prints what `spillway COMMAND --help` prints; without COMMAND, which commands there are.\n\n"
		       "Exit status: 0 it was printed, 2 there is no such command.\n\n"
		       "example:\n"
		       "  spillway help run\n");
		return TOOL_OK;
	}
	if (argc > 2 || argv[1][0] == '-')
		return refuse_more("help", argv[argc - 1]);
	command = find_command(argv[1]);
	if (!command)
		return report_unknown(argv[1]);
	return command->run(2, (char *[]){argv[1], (char[]){"--help"}, NULL});
}

static int tool_version(int argc, char **argv)
{
	if (argc > 1 && is_help(argv[1])) {
		printf("usage: spillway version\n\n"
		       "Prints the version, as `spillway --version` does.\n\n"
		       "Exit status: 0 it was printed, 2 wrong usage.\n\n"
		       "example:\n"
		       "  spillway version\n");
		return TOOL_OK;
	}
	if (argc > 1)
		return refuse_more("version", argv[1]);
	printf("spillway %s\n", SPILLWAY_VERSION);
	return TOOL_OK;
}

/*
 * Becomes a script that lies in the build folder or an installed tree, with the path of this tool before its arguments.
 */
static int become_script(const char *interpreter, const char *name, int argc, char **argv)
{
	static const char *const places[] = {".", "../share/spillway"};
	char folder[PATH_MAX], tool[PATH_MAX], script[PATH_MAX + 64];
	char **command = calloc((size_t)argc + 3, sizeof(*command));

	if (!command || !library_tool_folder(folder) || !realpath("/proc/self/exe", tool))
		return TOOL_BROKEN;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(script, sizeof(script), "%s/%s/%s", folder, places[i], name);
		if (access(script, R_OK) == 0)
			break;
	}
	command[0] = (char *)interpreter;
	command[1] = script;
	command[2] = tool;
	memcpy(command + 3, argv + 1, (size_t)(argc - 1) * sizeof(*command));
	execvp(interpreter, command);
	return tool_broken("`spillway %s` needs %s: %s", argv[0], interpreter, strerror(errno));
}

static int tool_demo(int argc, char **argv)
{
	return become_script("sh", "demo.sh", argc, argv);
}

static int tool_kernel(int argc, char **argv)
{
	return become_script("python3", "python/spillway_kernel.py", argc, argv);
}

static int main_dispatch(int argc, char **argv)
{
	const struct command *command;

	if (argc < 2)
		return tool_bad("no command given; `spillway --help` lists the commands");
	if (is_help(argv[1]))
		return print_help();
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return tool_version(1, argv + 1);
	command = find_command(argv[1]);
	return command ? command->run(argc - 1, argv + 1) : report_unknown(argv[1]);
}

static void on_signal(int number)
{
	(void)number;
}

/*
 * A write beyond the limit of `ulimit -f` must fail with an error instead of ending the tool (SIGXFSZ). A handler is
 * installed, because an ignored signal would stay ignored in the programs that the tool executes.
 */
static void outlive_large_files(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct sigaction before;

	if (sigaction(SIGXFSZ, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
		sigaction(SIGXFSZ, &action, NULL);
}

int main(int argc, char **argv)
{
	outlive_large_files();
	int status = main_dispatch(argc, argv);

	/* A full disk must not look like success. The reason of an earlier failure is no longer known. */
	errno = 0;
	if (fflush(stdout) != 0 || ferror(stdout)) {
		tool_say("the output could not be written: %s", errno ? strerror(errno) : "is there room for it?");
		return status == TOOL_OK || status == TOOL_PROBLEM ? TOOL_BROKEN : status;
	}
	return status;
}
