/*
 * kernel.c: `spillway kernel install`. Writes a kernel spec for Jupyter that starts IPython's kernel under `spillway run`,
 * with the options given here. Jupyter finds it by its folder; nothing of Jupyter is needed to write it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/commands.h"
#include "tools/common/json.h"
#include "tools/common/new_file.h"
#include "tools/common/options.h"
#include "tools/common/target.h"
#include "tools/common/tool.h"

enum { MOST_SETS = 32, NAME_MOST = 64 };

/* The command line. */
struct kernel_request {
	const char *name, *display, *prefix, *python, *policy;
	const char *set[MOST_SETS];
	unsigned n_sets;
	bool user;
};

/* What the spec names. */
struct kernel {
	const struct kernel_request *request;
	char tool[PATH_MAX], python[PATH_MAX], policy[PATH_MAX]; /* policy: "": none */
	char folder[PATH_MAX];
	char file[PATH_MAX + 16];
};

static bool add_set(void *argument, int code, const char *item, char *why)
{
	struct kernel_request *request = argument;

	(void)code;
	if (request->n_sets == MOST_SETS) {
		snprintf(why, POLICY_EXPLAIN_BYTES, "these are too many; write a policy file");
		return false;
	}
	request->set[request->n_sets++] = item;
	return true;
}

static const struct option_row rows[] = {
    OPTION_TEXT("name", "NAME", kernel_request, name,
		"the folder of the spec, by which Jupyter knows the kernel (spillway)"),
    OPTION_TEXT("display-name", "TEXT", kernel_request, display, "what Jupyter shows (Python 3 with Spillway)"),
    OPTION_FLAG("user", kernel_request, user,
		"for this user: in $JUPYTER_DATA_DIR, else ~/.local/share/jupyter (default)"),
    OPTION_TEXT("prefix", "FOLDER", kernel_request, prefix,
		"in FOLDER/share/jupyter instead, as of a virtual environment"),
    OPTION_TEXT("python", "PROGRAM", kernel_request, python, "the Python that has ipykernel (python3)"),
    OPTION_TEXT("policy", "POLICY", kernel_request, policy, "as for `spillway run`; a file is named by its full path"),
    OPTION_READ("set", "KEY=VALUE", add_set, 0, "as for `spillway run`; may be given again"),
};

static const struct options options = {
    .command = "kernel",
    .rows = rows,
    .n = sizeof(rows) / sizeof(*rows),
    .column = 23,
    .head =
	"usage: spillway kernel install [option...]\n\n"
	"Writes a kernel spec for Jupyter: a kernel of Python that runs under Spillway, to be chosen in the menu of\n"
	"kernels. A spec that is there is not overwritten; `jupyter kernelspec remove NAME` removes it.\n",
    .tail = "Exit status: 0 it was written, 1 it could not be, 2 wrong usage or an error in the policy.\n\n"
	    "example:\n"
	    "  spillway kernel install --set device.budget=90%\n",
};

/* ---- what is asked for ---- */

/* Jupyter's own rule, but for capitals, which it takes to be small ones. */
static bool is_name(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-");

	return n && n <= NAME_MOST && !name[n] && *name != '.' && *name != '-';
}

static int kernel_read(int argc, char **argv, struct kernel_request *request)
{
	char quoted[POLICY_QUOTED_BYTES];
	int status = options_read(&options, argc, argv, request);

	if (status != OPTIONS_GO_ON)
		return status;
	if (optind + 1 != argc || strcmp(argv[optind], "install") != 0) {
		tool_say("write `spillway kernel install [option...]`");
		return TOOL_BAD;
	}
	if (!is_name(request->name)) {
		tool_say(
		    "--name: %s is no name of a kernel; it has small letters, digits, -, _ and ., and begins with a "
		    "letter, a digit or _",
		    policy_quote(request->name, quoted));
		return TOOL_BAD;
	}
	if (request->user && request->prefix) {
		tool_say("--user and --prefix are two places; name one");
		return TOOL_BAD;
	}
	return OPTIONS_GO_ON;
}

/* The value of --set as `run` joins it. The caller must free it. */
static char *join_sets(const struct kernel_request *request)
{
	char *all = strdup("");

	for (unsigned i = 0; all && i < request->n_sets; i++) {
		char *joined = NULL;

		if (asprintf(&joined, "%s%s%s", all, i ? "," : "", request->set[i]) < 0)
			joined = NULL;
		free(all);
		all = joined;
	}
	return all;
}

static bool policy_is_good(const struct kernel_request *request)
{
	struct policy_errors errors;
	char *set = join_sets(request);
	struct policy *policy = set ? policy_read(request->policy, *set ? set : NULL, &errors) : NULL;

	if (set) {
		tool_print_errors(&errors);
		policy_errors_free(&errors);
	}
	free(set);
	policy_free(policy);
	return policy != NULL;
}

static bool is_builtin(const char *name)
{
	for (const char *const *n = policy_builtin_names(); *n; n++)
		if (strcmp(*n, name) == 0)
			return true;
	return false;
}

/* The policy is good: its file is there. Jupyter starts kernels in the folders of their notebooks. */
static bool name_policy(struct kernel *kernel)
{
	const char *name = kernel->request->policy;

	if (!name || !*name)
		return true;
	if (is_builtin(name))
		return snprintf(kernel->policy, sizeof(kernel->policy), "%s", name) > 0;
	return realpath(name, kernel->policy) != NULL;
}

/*
 * A link is not followed: the python of a virtual environment is one, and knows its environment by that. But the path is
 * made absolute, since Jupyter may have another PATH.
 */
static bool name_python(struct kernel *kernel)
{
	const char *name = kernel->request->python;
	char found[PATH_MAX], here[PATH_MAX];
	int n;

	if (!target_find(name, found)) {
		tool_say("--python: %s: no such program", name);
		return false;
	}
	if (*found == '/')
		n = snprintf(kernel->python, PATH_MAX, "%s", found);
	else
		n = getcwd(here, sizeof(here)) ? snprintf(kernel->python, PATH_MAX, "%s/%s", here, found) : PATH_MAX;
	return n < PATH_MAX;
}

/* The kernel would fail at its start, where nobody sees why. */
static void warn_of_python(const struct kernel *kernel)
{
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		if (!freopen("/dev/null", "r+", stdin) || !freopen("/dev/null", "w", stdout) ||
		    !freopen("/dev/null", "w", stderr))
			_exit(1);
		execl(kernel->python, kernel->python, "-c", "import ipykernel", NULL);
		_exit(127);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (child > 0 && status)
		tool_say("%s has no ipykernel, which the kernel needs: %s -m pip install ipykernel", kernel->python,
			 kernel->python);
}

/* ---- where it goes ---- */

/* As Jupyter looks for it. */
static bool name_folder(struct kernel *kernel)
{
	const struct kernel_request *request = kernel->request;
	const char *data = getenv("JUPYTER_DATA_DIR"), *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
	const char *name = request->name;
	size_t room = sizeof(kernel->folder);
	int n = -1;

	if (request->prefix)
		n = snprintf(kernel->folder, room, "%s/share/jupyter/kernels/%s", request->prefix, name);
	else if (data && *data)
		n = snprintf(kernel->folder, room, "%s/kernels/%s", data, name);
	else if (xdg && *xdg)
		n = snprintf(kernel->folder, room, "%s/jupyter/kernels/%s", xdg, name);
	else if (home && *home)
		n = snprintf(kernel->folder, room, "%s/.local/share/jupyter/kernels/%s", home, name);
	if (n < 0 || (size_t)n >= room) {
		tool_say(n < 0 ? "HOME is not set: say --prefix" : "the path of the folder is too long");
		return false;
	}
	snprintf(kernel->file, sizeof(kernel->file), "%s/kernel.json", kernel->folder);
	return true;
}

static bool is_taken(const struct kernel *kernel)
{
	struct stat there;

	if (lstat(kernel->file, &there) != 0)
		return false;
	tool_say("%s is there already; say another --name, or remove it: jupyter kernelspec remove %s", kernel->file,
		 kernel->request->name);
	return true;
}

static bool make_folders(const struct kernel *kernel)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", kernel->folder);
	for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = 0;
		if (mkdir(path, 0777) != 0 && errno != EEXIST) {
			tool_say("%s cannot be made: %s", path, strerror(errno));
			return false;
		}
		if (!slash)
			return true;
		*slash = '/';
	}
}

/* ---- the spec ---- */

static void put_argument(struct json *json, const char *option, const char *value)
{
	if (!value || !*value)
		return;
	json_text(json, NULL, option);
	json_text(json, NULL, value);
}

/* Jupyter puts the name of a file in the place of {connection_file}. */
static void print_spec(const void *what)
{
	const struct kernel *kernel = what;
	static const char *const start[] = {"-m", "ipykernel_launcher", "-f", "{connection_file}"};
	const struct kernel_request *request = kernel->request;
	struct json json = JSON_WRITER;

	json_open(&json, NULL, '{');
	json_open(&json, "argv", '[');
	json_text(&json, NULL, kernel->tool);
	json_text(&json, NULL, "run");
	put_argument(&json, "--policy", kernel->policy);
	for (unsigned i = 0; i < request->n_sets; i++)
		put_argument(&json, "--set", request->set[i]);
	json_text(&json, NULL, "--");
	json_text(&json, NULL, kernel->python);
	for (size_t i = 0; i < sizeof(start) / sizeof(*start); i++)
		json_text(&json, NULL, start[i]);
	json_close(&json, ']');
	json_text(&json, "display_name", request->display);
	json_text(&json, "language", "python");
	json_open(&json, "metadata", '{');
	json_truth(&json, "debugger", true);
	json_close(&json, '}');
	json_close(&json, '}');
	putchar('\n');
}

static int kernel_install(struct kernel *kernel)
{
	if (!policy_is_good(kernel->request) || !name_policy(kernel) || !name_python(kernel))
		return TOOL_BAD;
	if (!realpath("/proc/self/exe", kernel->tool)) {
		tool_say("the path of this tool is not known: %s", strerror(errno));
		return TOOL_BROKEN;
	}
	if (!name_folder(kernel))
		return TOOL_BAD;
	/* A spec of --prefix is for others, too; it holds no secret. */
	if (is_taken(kernel) || !make_folders(kernel) || new_file_print(kernel->file, print_spec, kernel) != TOOL_OK)
		return TOOL_BROKEN;
	warn_of_python(kernel);
	printf("%s\n", kernel->file);
	return TOOL_OK;
}

int tool_kernel(int argc, char **argv)
{
	struct kernel_request request = {.name = "spillway", .display = "Python 3 with Spillway", .python = "python3"};
	struct kernel kernel = {.request = &request};
	int status = kernel_read(argc, argv, &request);

	return status == OPTIONS_GO_ON ? kernel_install(&kernel) : status;
}
