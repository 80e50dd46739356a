// SPDX-License-Identifier: Apache-2.0
/*
 * doctor_program.c: `spillway doctor -- PROGRAM`: runs the program as `spillway run` would, while the library logs
 * which libraries obtained the driver's functions (shim/driver/real.h), and interprets the log.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_doors.h"
#include "tools/common/elf_file.h"
#include "tools/common/library.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

enum { PROCESSES_SHOWN = 16 };

static const char *base_name(const char *path)
{
	return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* ---- checks before the program runs ---- */

static struct doctor_finding *program_add(struct doctor *doctor, const char *id, const char *title)
{
	return doctor_add(doctor, "program", id, title, -1);
}

static void look_before(struct doctor *doctor, char **program)
{
	struct doctor_finding *finding = program_add(doctor, "program.target", "can be preloaded");
	char path[PATH_MAX], file[PATH_MAX], text[TARGET_REASON_BYTES];
	const char *reason;

	if (!finding || !target_find(program[0], path))
		return;
	if (target_launcher(program, text)) {
		doctor_is(finding, DOCTOR_PROBLEM, "%.100s: %s", program[0], text);
		doctor_so(finding, "Spillway does not take effect in what it starts");
	} else if ((reason = target_reason(path, file))) {
		doctor_is(finding, DOCTOR_PROBLEM, "%.300s: %s", file, reason);
		doctor_advise(finding, "the loader leaves the library out: it runs as without Spillway",
			      "build or install it as an ordinary program, linked dynamically with glibc");
	} else {
		doctor_is(finding, DOCTOR_OK, "%s", path);
	}
}

/* ---- running the program ---- */

/*
 * The child executes the program in the same way as `spillway run`. The program's output must not mix with the tool's.
 */
static int run_in_child(const struct doctor *doctor, char **program, const char *file)
{
	char *argv[8 + 1] = {"run", "--library", (char *)doctor->found_library};
	size_t n = 0, at = *doctor->found_library ? 3 : 1;
	char **all;

	while (program[n])
		n++;
	if (doctor->audit)
		argv[at++] = "--audit";
	argv[at++] = "--";
	all = calloc(at + n + 1, sizeof(*all));
	if (!all || setenv("SPILLWAY_DOORS", file, 1) != 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return TOOL_BROKEN;
	memcpy(all, argv, at * sizeof(*all));
	memcpy(all + at, program, n * sizeof(*all));
	optind = 0; /* restart getopt */
	return tool_run((int)(at + n), all);
}

/* Returns whether the program was started, and its wait status. ^C is for it; findings until then are reported. */
static bool program_run(const struct doctor *doctor, char **program, const char *file, int *ret_status)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;

	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		sigaction(SIGINT, &interrupt, NULL);
		sigaction(SIGQUIT, &quit, NULL);
		int status = run_in_child(doctor, program, file);
		fflush(stderr);
		_exit(status);
	}
	if (pid > 0)
		TEMP_FAILURE_RETRY(waitpid(pid, ret_status, 0));
	sigaction(SIGINT, &interrupt, NULL);
	sigaction(SIGQUIT, &quit, NULL);
	return pid > 0;
}

/* ---- interpreting the log ---- */

/* Returns whether the library contains a CUDA runtime or another way to load the driver. */
static bool names_driver(const struct door_object *object)
{
	struct elf_file *file = elf_open(object->path);
	bool ours = strncmp(base_name(object->path), "libspillway", 11) == 0;
	bool named = file && !ours && elf_has_text(file, "libcuda.so.1");

	elf_close(file);
	return named;
}

/* Says what a library has to do with the driver; the status stays DOCTOR_NONE if that is nothing. */
static void judge_object(const struct doctor *doctor, const struct door_object *object, struct doctor_finding *finding)
{
	unsigned through = object->looked.through + object->linked.through;
	unsigned past = object->looked.past + object->linked.past, unbound = object->linked.unbound;
	/* A library in another linker namespace matters only if it is a driver or loads one. */
	bool unseen = (object->apart && strncmp(base_name(object->path), "libcuda.so", 10) == 0) ||
		      ((object->apart || object->dlsym_past) && names_driver(object));

	if (through || past || unseen)
		doctor_is(finding, DOCTOR_OK, "through Spillway: %u, past it: %u, unbound: %u%s", through, past,
			  unbound,
			  !unseen         ? ""
			  : object->apart ? "; it is in a namespace of its own (dlmopen), where nothing is preloaded"
					  : "; its dlsym is not Spillway's: what it looks up is not seen");
	else if (!object->apart && (unbound || names_driver(object)))
		doctor_is(finding, DOCTOR_OK, "can use the driver, and asked for nothing in this run");
	finding->id = through ? "program.door" : "program.silent";
	if (!past && !unseen)
		return;
	finding->id = "program.past";
	finding->status = DOCTOR_PROBLEM;
	doctor_advise(finding, "what it allocates past Spillway is neither counted nor moved, and cannot spill",
		      doctor->audit
			  ? "--audit does not see it either: link it without -fno-plt, or open it without RTLD_DEEPBIND"
			  : "spillway run --audit ...   # `spillway doctor --audit -- PROGRAM` says whether it helps");
}

static void report_process(struct doctor *doctor, const struct door_process *process)
{
	struct doctor_finding *finding = program_add(doctor, "program.process", "process");

	if (!finding)
		return;
	finding->process = process->pid;
	doctor_is(finding, process->ended ? DOCTOR_OK : DOCTOR_NOTE, "%d, %.300s: Spillway is loaded", process->pid,
		  process->executable);
	if (!process->ended)
		doctor_so(finding,
			  "it ended by a signal, by _exit() or by becoming another program: libraries that were "
			  "linked to the driver are not known");
}

/*
 * Returns whether any part of the process uses CUDA. Children such as `ldconfig` do not; those are only counted.
 */
static bool report_libraries(struct doctor *doctor, const struct door_process *process)
{
	bool any = false;

	for (size_t i = 0; i < process->n_objects; i++) {
		struct doctor_finding found = {
		    .subject = "program", .title = "library", .device = -1, .process = process->pid};
		struct doctor_finding *finding;

		judge_object(doctor, &process->objects[i], &found);
		if (found.status == DOCTOR_NONE)
			continue;
		if (!any)
			report_process(doctor, process);
		any = true;
		snprintf(found.object, sizeof(found.object), "%s", process->objects[i].path);
		if ((finding = program_add(doctor, found.id, found.title)))
			*finding = found;
	}
	return any;
}

static void report_rest(struct doctor *doctor, const struct doors *doors, size_t shown)
{
	struct doctor_finding *finding;

	if (!doors->n && (finding = program_add(doctor, "program.effect", "takes effect"))) {
		doctor_is(finding, DOCTOR_PROBLEM, "no process had the library in it");
		doctor_advise(finding, "the program ran as without Spillway",
			      "look at \"can be preloaded\", and at who starts the program");
	} else if (!shown && (finding = program_add(doctor, "program.effect", "takes effect"))) {
		doctor_is(finding, DOCTOR_NOTE, "processes with the library in them: %zu; none had to do with CUDA",
			  doors->n);
		doctor_advise(finding,
			      "how the program gets at the driver is not known: none came so far as to use it, or it "
			      "ended before",
			      "let the program use the GPU: a call that allocates on it is enough");
	} else if (doors->n > shown && (finding = program_add(doctor, "program.more", "other processes"))) {
		doctor_is(finding, DOCTOR_OK, "%zu more with the library in them", doors->n - shown);
	}
	if (doors->cut && (finding = program_add(doctor, "program.cut", "cut off")))
		doctor_is(finding, DOCTOR_UNKNOWN,
			  "there was more than is kept; some processes or libraries are left out");
}

static void report_end(struct doctor *doctor, int status)
{
	struct doctor_finding *finding = program_add(doctor, "program.end", "ended");

	if (!finding)
		return;
	if (WIFSIGNALED(status))
		doctor_is(finding, DOCTOR_NOTE, "by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		doctor_is(finding, WEXITSTATUS(status) ? DOCTOR_NOTE : DOCTOR_OK, "with status %d",
			  WEXITSTATUS(status));
	if (finding->status == DOCTOR_OK)
		return;
	doctor_advise(finding, "what is said of it may not be all: it may have ended before it came to use CUDA",
		      "run it without Spillway, to see whether it ends like that by itself");
}

int doctor_program(struct doctor *doctor, char **program)
{
	struct doors doors = {0};
	const char *folder = getenv("TMPDIR");
	char path[PATH_MAX];
	size_t shown = 0;
	int status = 0, fd;

	look_before(doctor, program);
	snprintf(path, sizeof(path), "%s/spillway-doors-XXXXXX", folder && *folder == '/' ? folder : "/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return tool_broken("%s: %s; set TMPDIR to a folder that can be written", path, strerror(errno));
	bool good = program_run(doctor, program, path, &status) && doors_read(fd, &doors);
	close(fd);
	unlink(path);
	if (!good)
		return tool_broken("the program could not be started, or there is no memory");
	/* `spillway run` ends with these statuses if it starts nothing; it has then printed why. */
	if (!doors.n && WIFEXITED(status) &&
	    (WEXITSTATUS(status) == TOOL_NOT_FOUND || WEXITSTATUS(status) == TOOL_NOT_EXECUTABLE ||
	     (WEXITSTATUS(status) == TOOL_BAD && !target_find(program[0], path)))) {
		doors_free(&doors);
		return WEXITSTATUS(status);
	}
	report_end(doctor, status);
	for (size_t i = 0; i < doors.n && shown < PROCESSES_SHOWN; i++)
		shown += report_libraries(doctor, &doors.processes[i]);
	report_rest(doctor, &doors, shown);
	doors_free(&doors);
	return TOOL_OK;
}
