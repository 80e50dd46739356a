// SPDX-License-Identifier: Apache-2.0
/*
 * `spillway report`: reads a trace, computes its digest (digest.h) and shows it in one of several formats, or compares
 * several traces.
 */
#include "tools/report/report.h"

#include "policy/text.h"
#include "tools/common/options.h"
#include "tools/common/progress.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REPORT_PROBLEM = 200 };

enum output {
	OUTPUT_TEXT,
	OUTPUT_JSON,
	OUTPUT_HTML,
	OUTPUT_PERFETTO,
};

struct wish {
	enum output output;
	const char *file; /* output file; NULL: stdout */
	bool chosen;
};

static bool take_output(void *argument, int code, const char *text, char *why)
{
	struct wish *wish = argument;

	(void)text;
	(void)why;
	if (wish->chosen)
		return tool_fails("only one of --html, --json and --perfetto can be had at a time");
	wish->chosen = true;
	wish->output = (enum output)code;
	return true;
}

static bool take_file(void *argument, int code, const char *text, char *why)
{
	struct wish *wish = argument;

	(void)code;
	(void)why;
	wish->file = strcmp(text, "-") ? text : NULL;
	return true;
}

static const struct option_row rows[] = {
    OPTION_READ("html", NULL, take_output, OUTPUT_HTML,
		"one page for a browser, without anything from elsewhere; of two traces side by side"),
    OPTION_READ("json", NULL, take_output, OUTPUT_JSON, "everything, for programs"),
    OPTION_READ("perfetto", NULL, take_output, OUTPUT_PERFETTO,
		"for ui.perfetto.dev: over time, beside a profile of PyTorch"),
    {.name = "output",
     .value = "FILE",
     .letter = 'o',
     .read = take_file,
     .help = "write there instead of to standard output"},
};

static const struct options options = {
    .command = "report",
    OPTION_ROWS(rows),
    .column = 19,
    .head = "usage: spillway report [option...] TRACE...\n\n"
	    "Shows what a trace says: what the run's memory cost, where it was, what moved, what to change. Several\n"
	    "traces are put beside each other; those of the ranks of one job are shown as one.\n",
    .tail =
	"Exit status: 0 it was shown, 1 no memory or the output could not be written, 2 wrong usage or not a trace.\n\n"
	"examples:\n"
	"  spillway report run.trace\n"
	"  spillway report --html --output run.html run.trace\n"
	"  spillway report before.trace after.trace\n"
	"  spillway report rank*.trace\n"
	"  spillway report --html --output both.html before.trace after.trace\n",
};

static bool report_fits(const struct wish *wish, int n)
{
	if (n < 1)
		tool_say("no trace given; write `spillway report TRACE`, and `spillway run --trace TRACE` to make one");
	else if (n > 2 && wish->output == OUTPUT_HTML)
		tool_say("%d traces are too many for a page, which shows one, or two side by side", n);
	else if (n > 1 && wish->output == OUTPUT_PERFETTO)
		tool_say(
		    "several traces can be compared as text, with --json and two with --html; --perfetto takes one");
	else if (!wish->file && isatty(STDOUT_FILENO) &&
		 (wish->output == OUTPUT_HTML || wish->output == OUTPUT_PERFETTO))
		tool_say("this is not for a terminal; add --output FILE");
	else
		return true;
	return false;
}

static void show_progress(const char *what, uint64_t part, uint64_t whole)
{
	static const char *now;

	if (now != what) {
		progress_end();
		progress_begin(what, whole);
		now = what;
	}
	progress_at(part);
}

/* Reads a trace and computes its digest. Prints what is wrong with it; problem gets why it cannot be read. */
static int run_read(const char *path, struct trace *trace, struct digest *digest, char problem[REPORT_PROBLEM])
{
	progress_begin("reading", 0);
	int error = trace_read_file(path, trace);
	progress_end();
	error = error ?: digest_make(trace, show_progress, digest);
	progress_end();
	if (error == -ENOMEM)
		tool_say("no memory for %s", policy_quoted(path));
	else if (error)
		tool_say("%s: %s", policy_quoted(path), policy_printable(trace->problem, problem, REPORT_PROBLEM));
	if (error) {
		trace_free(trace);
		return error == -ENOMEM ? TOOL_BROKEN : TOOL_BAD;
	}
	if (trace->damaged)
		tool_say("%s is damaged, and shown up to there: %s", policy_quoted(path),
			 policy_printable(trace->problem, problem, REPORT_PROBLEM));
	else if (trace->cut)
		tool_say("%s is cut off at its end; everything before it is shown", policy_quoted(path));
	return TOOL_OK;
}

/* Returns whether writing to path would overwrite one of the traces. */
static bool is_trace(const char *path, char **traces, int n)
{
	struct stat out, in;

	for (int i = 0; !stat(path, &out) && i < n; i++) {
		if (stat(traces[i], &in) || in.st_dev != out.st_dev || in.st_ino != out.st_ino)
			continue;
		tool_say("--output: %s is the trace, which would be lost; name another file", policy_quoted(path));
		return true;
	}
	return false;
}

/*
 * The output file. A regular file is written under a temporary name beside its place and renamed when it is complete,
 * so that a failed report does not destroy the previous file. Any other file, such as a pipe, is written directly, and
 * temporary is "".
 */
struct destination {
	const char *path;
	char temporary[PATH_MAX];
};

static bool cannot_write(const char *path)
{
	return tool_fails("%s cannot be written: %s", policy_quoted(path), strerror(errno));
}

/* Makes the temporary name "folder/.name.PID". */
static bool name_temporary(struct destination *output)
{
	const char *slash = strrchr(output->path, '/'), *name = slash ? slash + 1 : output->path;
	int n = snprintf(output->temporary, sizeof(output->temporary), "%.*s.%s.%d", (int)(name - output->path),
			 output->path, name, (int)getpid());

	if (n > 0 && (size_t)n < sizeof(output->temporary))
		return true;
	errno = ENAMETOOLONG;
	return false;
}

/* Redirects stdout to that file. */
static bool report_redirect(const char *path, struct destination *ret_output)
{
	static const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
	struct stat there;
	bool is_new = lstat(path, &there) != 0, replaces = is_new || S_ISREG(there.st_mode);

	*ret_output = (struct destination){.path = path};
	/*
	 * Without permission, no temporary file can be made beside it; and a file that is not writable must not be
	 * replaced.
	 */
	if (replaces && ((!is_new && access(path, W_OK)) || !name_temporary(ret_output)))
		return cannot_write(path);
	int fd = open(replaces ? ret_output->temporary : path, replaces ? flags | O_EXCL : flags, 0600);
	if (fd < 0)
		return cannot_write(path);
	if (replaces && !is_new)
		fchmod(fd, there.st_mode & 0777);
	if (dup2(fd, STDOUT_FILENO) >= 0) {
		close(fd);
		return true;
	}
	cannot_write(path);
	close(fd);
	if (replaces)
		unlink(ret_output->temporary);
	return false;
}

static void report_show(const struct wish *wish, const struct digest *digests, size_t n)
{
	if (wish->output == OUTPUT_HTML)
		report_html(digests, n);
	else if (wish->output == OUTPUT_PERFETTO)
		report_perfetto(digests);
	else if (wish->output == OUTPUT_JSON)
		n > 1 ? report_compare_json(digests, n) : report_json(digests);
	else
		n > 1 ? report_compare_text(digests, n) : report_text(digests);
}

/* Removes an incomplete report. */
static int report_lose(const struct destination *output, int error)
{
	tool_say("%s could not be written%s%s", policy_quoted(output->path), error ? ": " : "",
		 error ? strerror(error) : "");
	if (*output->temporary)
		unlink(output->temporary);
	/* The error was printed; the buffered output must not be written again at exit. */
	__fpurge(stdout);
	clearerr(stdout);
	return TOOL_BROKEN;
}

/* Writes to the requested file; main() checks standard output. job: what is shown instead of digests, or NULL. */
static int show_in(const struct wish *wish, const struct digest *digests, size_t n, const struct report_job *job)
{
	struct destination output;

	if (wish->file && !report_redirect(wish->file, &output))
		return TOOL_BROKEN;
	if (!job)
		report_show(wish, digests, n);
	else if (wish->output == OUTPUT_JSON)
		report_job_json(job);
	else
		report_job_text(job);
	if (!wish->file)
		return TOOL_OK;
	errno = 0;
	if (fflush(stdout) || ferror(stdout))
		return report_lose(&output, errno);
	if (*output.temporary && rename(output.temporary, output.path))
		return report_lose(&output, errno);
	return TOOL_OK;
}

/* The traces of the command line. Those beyond RUNS_MOST are kept as figures of ranks alone. */
struct runs {
	struct trace *traces;
	struct digest *digests;
	size_t n; /* that are kept */
	struct report_job job;
	int status; /* of the first that could not be read */
};

/* Returns TOOL_OK also if the trace cannot be read, because a killed rank of a job may leave none. */
static int read_one(struct runs *runs, const char *path)
{
	struct trace *trace = &runs->traces[runs->n];
	struct digest *digest = &runs->digests[runs->n];
	char problem[REPORT_PROBLEM] = "";
	int status = run_read(path, trace, digest, problem);

	if (status == TOOL_BAD && runs->status == TOOL_OK)
		runs->status = TOOL_BAD;
	if (status == TOOL_BAD)
		return report_job_add_unread(&runs->job, path, problem) ? TOOL_OK : TOOL_BROKEN;
	if (status != TOOL_OK)
		return status;
	bool added = report_job_add(&runs->job, digest);
	if (added && runs->n < RUNS_MOST) {
		runs->n++;
	} else {
		digest_free(digest);
		trace_free(trace);
	}
	return added ? TOOL_OK : TOOL_BROKEN;
}

static int show_runs(const struct wish *wish, struct runs *runs, int n)
{
	bool is_job = (wish->output == OUTPUT_TEXT || wish->output == OUTPUT_JSON) && report_job_is(&runs->job);

	if (is_job)
		return show_in(wish, runs->digests, runs->n, &runs->job);
	if (runs->status != TOOL_OK)
		return runs->status;
	if (n <= RUNS_MOST)
		return show_in(wish, runs->digests, runs->n, NULL);
	return tool_bad(
	    "%d traces are too many to be put beside each other, and are not those of the ranks of one job; the "
	    "most are %d",
	    n, RUNS_MOST);
}

/* `report --html job.html job.trace`: the page comes first, as --output is not there to say where it goes. */
static bool first_is_page(const struct wish *wish, char *const *operands, int n)
{
	size_t length = n > 0 ? strlen(operands[0]) : 0;

	return wish->output == OUTPUT_HTML && !wish->file && length > 5 &&
	       !strcasecmp(operands[0] + length - 5, ".html");
}

int tool_report(int argc, char **argv)
{
	struct wish wish = {0};
	int status = options_read(&options, argc, argv, &wish);
	struct runs runs = {.status = TOOL_OK};

	if (status != OPTIONS_GO_ON)
		return status;
	if (first_is_page(&wish, argv + optind, argc - optind))
		wish.file = argv[optind++];
	int n = argc - optind;
	if (!report_fits(&wish, n))
		return TOOL_BAD;
	if (wish.file && is_trace(wish.file, argv + optind, n))
		return TOOL_BAD;
	runs.traces = calloc(RUNS_MOST + 1, sizeof(*runs.traces));
	runs.digests = calloc(RUNS_MOST + 1, sizeof(*runs.digests));
	status = runs.traces && runs.digests ? TOOL_OK : tool_broken("no memory");
	for (int i = 0; status == TOOL_OK && i < n; i++)
		status = read_one(&runs, argv[optind + i]);
	if (status == TOOL_OK)
		status = show_runs(&wish, &runs, n);
	for (size_t i = 0; i < runs.n; i++) {
		digest_free(&runs.digests[i]);
		trace_free(&runs.traces[i]);
	}
	report_job_free(&runs.job);
	free(runs.digests);
	free(runs.traces);
	return status;
}
