// SPDX-License-Identifier: Apache-2.0
/*
 * run.c: `spillway run`. Checks everything before it starts anything; then the program replaces the tool by exec, so
 * that it has the tool's process id, terminal and signals, and its exit status is passed on. With --fit the tool stays
 * its parent (fit.c).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/library.h"
#include "tools/common/new_file.h"
#include "tools/common/options.h"
#include "tools/common/policy_file.h"
#include "tools/commands.h"
#include "tools/common/tool.h"
#include "tools/run/fit_policy.h"
#include "tools/run/run.h"

/* The command line. policy and set: NULL = as in the environment. set and given must be freed. */
struct request {
	const char *policy, *library, *trace, *write, *ended, *known;
	char *set, *given; /* given: with --fit, what the user set, which is a part of set */
	bool audit, fit, share;
	char **program; /* the program and its arguments; ends with NULL */
};

static void print_builtin(void)
{
	for (const char *const *name = policy_builtin_names(); *name; name++)
		printf(" %s", *name);
	printf("\n                   (else that of SPILLWAY_POLICY, else heap)");
}

static bool add_set(void *argument, int code, const char *item, char *why)
{
	struct request *request = argument;
	char *joined = NULL;

	(void)code;
	if (request->set ? asprintf(&joined, "%s,%s", request->set, item) < 0 : !(joined = strdup(item))) {
		snprintf(why, POLICY_EXPLAIN_BYTES, "out of memory");
		return false;
	}
	free(request->set);
	request->set = joined;
	return true;
}

static const struct option_row rows[] = {
    {.name = "policy",
     .value = "POLICY",
     .at = offsetof(struct request, policy),
     .help = "a policy file, or a built-in one:",
     .more = print_builtin},
    OPTION_READ("set", "KEY=VALUE", add_set, 0,
		"set one key on top of the policy; may be given again (else that of SPILLWAY_SET)"),
    OPTION_TEXT("library", "PATH", request, library,
		"the library to preload (else the libspillway.so that belongs to this tool)"),
    OPTION_TEXT("trace", "FILE", request, trace,
		"record what happens to memory in FILE; %p in it becomes the process, %h the host, %e\n"
		"the program, %r the rank; a name that is taken gets the process behind it"),
    OPTION_FLAG("audit", request, audit,
		"also see libraries opened with RTLD_DEEPBIND, by dlmopen or with a driver of their own"),
    OPTION_FLAG("fit", request, fit,
		"choose what is safe, say once a minute on a terminal what is spilled and what it costs,\n"
		"and end with the policy that the run speaks for"),
    {.name = "for",
     .value = "NAME",
     .at = offsetof(struct request, known),
     .help = "the policy and the keys that a program needs, unless --set sets them:",
     .more = known_print},
    OPTION_FLAG("share", request, share,
		"share the GPU with the other programs that run so: they take turns where it is too small for all"),
    OPTION_TEXT("summary-of", "PID", request, ended,
		"print the summary of a process that was killed, and start nothing; for batch systems"),
    OPTION_TEXT("write-policy", "FILE", request, write,
		"with --fit: write that policy into FILE, which must not be there yet"),
};

static const struct options options = {
    .command = "run",
    OPTION_ROWS(rows),
    .program = true,
    .column = 19,
    .head = "usage: spillway run [option...] [--] PROGRAM [argument...]\n\n"
	    "Runs PROGRAM with libspillway.so in front of its CUDA calls. The policy is read first; if it has an\n"
	    "error, all are printed and nothing is started.\n",
    .tail = "Exit status: that of PROGRAM; 2 nothing was started, 126 PROGRAM cannot be run, 127 it is not found.\n\n"
	    "examples:\n"
	    "  spillway run --fit --write-policy job.yaml -- python train.py\n"
	    "  spillway run --policy job.yaml --set device.budget=8GiB -- python train.py\n"
	    "  spillway run --share -- python train.py\n",
};

/* Returns OPTIONS_GO_ON, or the exit status. */
static int request_read(int argc, char **argv, struct request *request)
{
	int status = options_read(&options, argc, argv, request);

	request->program = argv + optind;
	if (status != OPTIONS_GO_ON || request->ended || (request->program[0] && *request->program[0]))
		return status;
	return tool_bad("no program given; write `spillway run -- PROGRAM [argument...]`");
}

/* ---- the name of a trace ---- */

static bool knows_all(const char *pattern)
{
	for (const char *at = strchr(pattern, '%'); at; at = strchr(at + 2, '%')) {
		if (at[1] && strchr("pher%", at[1]))
			continue;
		return tool_fails(
		    "--trace: '%%%.1s' is not known; %%p is the process, %%h the host, %%e the program, %%r the rank, "
		    "%%%% a percent sign",
		    at + 1);
	}
	return true;
}

/*
 * Makes the pattern that the library gets in SPILLWAY_TRACE. Its folder is made absolute, because programs change
 * their current folder. Returns false after printing an error if the folder does not exist or a % conversion is not
 * known.
 */
static bool trace_name_make(const char *pattern, char ret_name[PATH_MAX])
{
	char quoted[POLICY_QUOTED_BYTES], folder[PATH_MAX], real[PATH_MAX];
	struct stat there;
	const char *slash = strrchr(pattern, '/'), *name = slash ? slash + 1 : pattern;
	size_t n = slash ? (size_t)(slash - pattern) : 0;

	policy_quote(pattern, quoted);
	if (!knows_all(pattern))
		return false;
	if (!*name || !strcmp(name, ".") || !strcmp(name, "..") || n >= sizeof(folder))
		return tool_fails("--trace: %s is no name of a file", quoted);
	snprintf(folder, sizeof(folder), "%.*s", (int)n, pattern);
	/*
	 * A folder with a process id or host in its name must be created by the one who starts the processes, so it is
	 * not checked.
	 */
	if (strchr(folder, '%'))
		snprintf(real, sizeof(real), "%s", folder);
	else if (!realpath(!slash ? "." : n ? folder : "/", real) || access(real, W_OK | X_OK))
		return tool_fails("--trace: no file can be made for %s: %s", quoted, strerror(errno));
	if (snprintf(ret_name, PATH_MAX, "%s/%s", strcmp(real, "/") ? real : "", name) >= PATH_MAX)
		return tool_fails("--trace: %s is too long", quoted);
	/* If the name is a folder, the library would write a file beside it, which the user does not want. */
	if (stat(ret_name, &there) || !S_ISDIR(there.st_mode))
		return true;
	return tool_fails("--trace: %s is a folder; name a file in it", quoted);
}

/* ---- preparations ---- */

/* What the tool has to know of the policy. */
struct asked {
	bool builtin;
	enum policy_report report;
};

/* Checks the policy that the program would get, and prints every problem; warnings do not stop a run. */
static bool policy_is_good(const char *name, const char *set, struct asked *ret_asked)
{
	struct policy_errors errors;
	struct policy *policy = policy_read(name, set, &errors);
	bool good = policy != NULL;

	policy_warn_environment(environ, &errors);
	tool_print_errors(&errors);
	if (policy)
		*ret_asked = (struct asked){policy_is_builtin(policy), policy_settings(policy)->report};
	/* The library prints the warnings of a policy only if they were not printed here. */
	good = good && (errors.n ? setenv("SPILLWAY_WARNED", "1", 1) : unsetenv("SPILLWAY_WARNED")) == 0;
	policy_free(policy);
	policy_errors_free(&errors);
	return good;
}

/*
 * The path is made absolute, because the program, or a child of it, may change its folder before the library reads the
 * policy.
 */
static bool set_policy(const char *name, bool builtin)
{
	char path[PATH_MAX];

	if (!name || !*name || builtin)
		return !name || setenv("SPILLWAY_POLICY", name, 1) == 0;
	if (realpath(name, path))
		return setenv("SPILLWAY_POLICY", path, 1) == 0;
	return tool_fails("%s: %s", name, strerror(errno));
}

/* Files are compared by device and inode, because one file may have several names. */
static bool same_file(const char *a, const char *b)
{
	struct stat status_a, status_b;

	if (strcmp(a, b) == 0)
		return true;
	return stat(a, &status_a) == 0 && stat(b, &status_b) == 0 && status_a.st_dev == status_b.st_dev &&
	       status_a.st_ino == status_b.st_ino;
}

/*
 * Joins with ':' the library and the entries of `existing` (may be NULL) that are not the same library. Returns NULL
 * if memory runs out; the caller must free the result.
 */
static char *preload_join(const char *library, const char *existing)
{
	size_t bytes = strlen(library) + (existing ? strlen(existing) : 0) + 2;
	char *joined = malloc(bytes), *copy = strdup(existing ? existing : ""), *rest = copy, *entry;

	if (!joined || !copy) {
		free(joined);
		free(copy);
		return NULL;
	}
	strcpy(joined, library);
	while ((entry = strsep(&rest, ": "))) {
		if (!*entry || same_file(library, entry))
			continue;
		strcat(joined, ":");
		strcat(joined, entry);
	}
	free(copy);
	return joined;
}

/* Puts the library before what the variable already names. */
static bool put_first(const char *variable, const char *library)
{
	char *joined = preload_join(library, getenv(variable));
	bool done = joined && setenv(variable, joined, 1) == 0;

	free(joined);
	return done;
}

static bool set_environment(const struct request *request, const char *policy, const char *library, const char *audit,
			    bool builtin)
{
	bool done = put_first("LD_PRELOAD", library);

	/*
	 * Under an audit library, the loader sets up thread-local memory before it knows what the program's libraries
	 * need, and leaves 512 bytes for libraries that need static thread-local memory.
	 */
	if (request->audit)
		done = done && put_first("LD_AUDIT", audit) &&
		       setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=16384", 0) == 0;
	if (request->set)
		done = done && setenv("SPILLWAY_SET", request->set, 1) == 0;
	/*
	 * A trace has the NVTX ranges of the program, unless they go to another tool, which sets the variable itself.
	 */
	if (request->trace)
		done = done && setenv("SPILLWAY_TRACE", request->trace, 1) == 0 &&
		       setenv("NVTX_INJECTION64_PATH", library, 0) == 0;
	return done && set_policy(policy, builtin);
}

static int run_start(char **program)
{
	char path[PATH_MAX];

	if (!target_warn_launcher(program) && target_find(program[0], path))
		target_warn(path);
	execvp(program[0], program);
	int error = errno;
	if (error == ENOENT && target_find(program[0], path))
		tool_say("%s: the interpreter or loader that it names is not found", program[0]);
	else if (error == ENOENT)
		tool_say("%s: no such program", program[0]);
	else
		tool_say("%s: %s", program[0], strerror(error));
	return error == ENOENT ? TOOL_NOT_FOUND : TOOL_NOT_EXECUTABLE;
}

/* Returns TOOL_OK if the options fit together. */
static int request_check(const struct request *request)
{
	const char *policy = getenv("SPILLWAY_POLICY"), *off = getenv("SPILLWAY");

	if (!request->fit && request->write)
		return tool_bad("--write-policy needs --fit: without it no policy is made");
	if ((request->fit || request->known) && (request->policy || (policy && *policy)))
		return tool_bad("%s a policy, and %s names one; leave one of them out",
				request->fit ? "--fit finds" : "--for has",
				request->policy ? "--policy" : "SPILLWAY_POLICY");
	if (request->fit && request->known)
		return tool_bad("--fit finds a policy, and --for has one; leave one of them out");
	if (request->fit && off && strcmp(off, "0") == 0)
		return tool_bad("--fit needs figures, and SPILLWAY=0 is set: nothing would be counted");
	if (request->fit && request->share)
		return tool_bad(
		    "--fit looks for what a program needs alone, and --share lets it wait for others; leave one "
		    "of them "
		    "out");
	return new_file_is_taken(request->write) ? TOOL_BAD : TOOL_OK;
}

/* Sets what --for sets, beside what the user set. Returns false if memory runs out. */
static bool add_known(struct request *request, const struct known_program *known)
{
	char *set = policy_set_join(request->set ? request->set : getenv("SPILLWAY_SET"), known->set);

	free(request->set);
	request->set = set;
	request->policy = known->policy;
	return set != NULL;
}

/* Names the option for a program that is known and that the user has given no policy and no keys. Applies nothing. */
static void propose(const struct request *request)
{
	static const char *const chosen[] = {"SPILLWAY_POLICY", "SPILLWAY_SET", "SPILLWAY"};
	const struct known_program *known = known_by_arguments(request->program);

	for (size_t i = 0; i < sizeof(chosen) / sizeof(*chosen); i++)
		if (getenv(chosen[i]))
			return;
	if (known && !request->known && !request->policy && !request->set && !request->fit)
		tool_say("this looks like %s; `spillway run --for %s` sets what suits it: %s%s%s, because %s",
			 known->name, known->name, known->policy, *known->set ? " with " : "", known->set,
			 known->because);
}

/* Sets what --fit sets, beside what the user set. Returns false if memory runs out. */
static bool add_fit(struct request *request)
{
	const char *set = request->set ? request->set : getenv("SPILLWAY_SET");

	request->given = strdup(set ? set : "");
	free(request->set);
	request->set = request->given ? policy_set_join(request->given, FIT_SET) : NULL;
	return request->set != NULL;
}

/*
 * Sets what --share sets, unless the policy or the user does. A tenth of the GPU is left for contexts and for what
 * programs take beside the heap. An error of the policy is reported later. Returns false if memory runs out.
 */
static bool add_share(struct request *request)
{
	const char *name = request->policy ? request->policy : getenv("SPILLWAY_POLICY");
	const char *given = request->set ? request->set : getenv("SPILLWAY_SET");
	struct policy_errors errors;
	struct policy *policy = policy_read(name, given, &errors);
	char why[POLICY_EXPLAIN_BYTES];
	bool done = true;

	policy_errors_free(&errors);
	if (!policy)
		return true;
	if (!request->set && given && *given)
		done = (request->set = strdup(given)) != NULL;
	given = given ? given : "";
	bool turns = policy_settings(policy)->turns.mode != POLICY_TURNS_OFF || policy_set_names(given, "share");
	bool total =
	    policy_settings(policy)->device_total.kind != POLICY_SIZE_AUTO || policy_set_names(given, "device.total");
	bool vmm = policy_vmm_spill(policy) != POLICY_VMM_DRIVER || policy_set_names(given, "vmm.spill");
	done = done && (turns || add_set(request, 0, "share=auto", why));
	done = done && (total || add_set(request, 0, "device.total=90%", why));
	done = done && (vmm || add_set(request, 0, "vmm.spill=move", why));
	policy_free(policy);
	return done;
}

/* Sets what --for, --fit and --share set. Returns TOOL_OK, or the exit status after printing an error. */
static int request_complete(struct request *request)
{
	const struct known_program *known = request->known ? known_find(request->known) : NULL;

	if (request->known && !known)
		return TOOL_BAD;
	propose(request);
	bool done = (!known || add_known(request, known)) && (!request->fit || add_fit(request)) &&
		    (!request->share || add_share(request));
	return done ? TOOL_OK : TOOL_BROKEN;
}

static int start(const struct request *request, enum policy_report report)
{
	const struct fit_request fit = {.set = request->given,
					.write = request->write,
					.report = report,
					.start = run_start,
					.program = request->program};
	const char *off = getenv("SPILLWAY");

	if (request->fit)
		return fit_run(&fit);
	if (off && strcmp(off, "0") == 0)
		tool_say("SPILLWAY=0 is set: this run passes through, nothing is changed or counted");
	else if (report != POLICY_REPORT_NONE)
		watcher_start(report == POLICY_REPORT_FULL);
	return run_start(request->program);
}

static int prepare_and_start(const struct request *request)
{
	const char *policy = request->policy ? request->policy : getenv("SPILLWAY_POLICY");
	const char *set = request->set ? request->set : getenv("SPILLWAY_SET");
	char library[PATH_MAX], audit[PATH_MAX] = "";
	struct asked asked = {0};

	if (!policy_is_good(policy, set, &asked) || !library_find(request->library, library))
		return TOOL_BAD;
	if (request->audit && !library_find_audit(library, audit))
		return TOOL_BAD;
	if (!set_environment(request, policy, library, audit, asked.builtin))
		return tool_broken("the environment could not be set");
	return start(request, asked.report);
}

static int summary_of(const char *text)
{
	char *end;
	long pid = strtol(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || pid <= 0 || pid > INT_MAX)
		return tool_bad("--summary-of: '%s' is no process id", text);
	watcher_print_left((pid_t)pid);
	return TOOL_OK;
}

int tool_run(int argc, char **argv)
{
	struct request request = {0};
	char trace[PATH_MAX];
	int status = request_read(argc, argv, &request);

	if (status == OPTIONS_GO_ON && request.ended) {
		free(request.set);
		return summary_of(request.ended);
	}
	if (status == OPTIONS_GO_ON && request.trace && !trace_name_make(request.trace, trace))
		status = TOOL_BAD;
	if (request.trace)
		request.trace = trace;
	if (status == OPTIONS_GO_ON && (status = request_check(&request)) == TOOL_OK &&
	    (status = request_complete(&request)) == TOOL_OK)
		status = prepare_and_start(&request);
	free(request.set);
	free(request.given);
	return status;
}
