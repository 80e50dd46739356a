/*
 * doctor.c: `spillway doctor`: its options, the order of its steps, and the tables of checks. Nothing on the machine
 * is changed. Everything is printed at the end, because problems are listed first.
 */
#include "tools/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/library.h"
#include "tools/common/options.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

/* A machine with eight GPUs and no persistence daemon needs half of this time to start the driver. */
enum { PATIENCE_S = 60, PATIENCE_MOST_S = 3600 };

/* ---- the order of steps ---- */

static bool look_at(struct doctor *doctor, const struct doctor_subject *subject, int device)
{
	for (size_t i = 0; i < subject->n; i++) {
		const struct doctor_check *check = &subject->checks[i];
		struct doctor_finding *finding = doctor_add(doctor, subject->name, check->id, check->title, device);

		if (!finding)
			return false;
		check->look(doctor, device, finding);
	}
	return true;
}

static bool look_at_all(struct doctor *doctor)
{
	static const struct doctor_subject *const subjects[] = {&doctor_driver,   &doctor_nodes,  &doctor_device,
								&doctor_memory,   &doctor_system, &doctor_preload,
								&doctor_neighbour};
	int n_devices = doctor->cuda.n_devices < DOCTOR_DEVICES ? doctor->cuda.n_devices : DOCTOR_DEVICES;
	bool good = true;

	for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++) {
		if (!subjects[i]->each_device)
			good = good && look_at(doctor, subjects[i], -1);
		for (int d = 0; subjects[i]->each_device && d < n_devices; d++)
			good = good && look_at(doctor, subjects[i], d);
	}
	return good;
}

struct request {
	const char *root, *library;
	unsigned patience_s;
	bool json, no_measure, audit;
	char **program; /* NULL: no program */
};

static int doctor_examine(const struct request *request, struct doctor *doctor)
{
	int status = TOOL_OK;

	doctor->root = request->root;
	doctor->measure = !request->no_measure;
	doctor->audit = request->audit;
	if (!library_find(request->library, doctor->found_library)) {
		doctor->found_library[0] = '\0';
		if (request->library)
			return TOOL_BAD;
	}
	doctor_cuda_ask(request->root, !request->no_measure, request->patience_s, &doctor->cuda);
	if (!look_at_all(doctor)) {
		tool_say("out of memory");
		return TOOL_BROKEN;
	}
	if (request->program)
		status = doctor_program(doctor, request->program);
	if (status != TOOL_OK)
		return status;
	if (request->json)
		doctor_print_json(doctor);
	else
		doctor_print_text(doctor);
	return doctor_count(doctor, DOCTOR_PROBLEM) ? TOOL_PROBLEM : TOOL_OK;
}

/* ---- options ---- */

static bool read_patience(void *request, int code, const char *text, char *why)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	(void)code;
	(void)why;
	if (!policy_is_digit(*text) || *end || value < 1 || value > PATIENCE_MOST_S) {
		tool_say("--timeout takes a number of seconds from 1 to %d", PATIENCE_MOST_S);
		return false;
	}
	((struct request *)request)->patience_s = (unsigned)value;
	return true;
}

_Static_assert(PATIENCE_S == 60, "the help says so");
static const struct option_row rows[] = {
    OPTION_FLAG("json", request, json, "print JSON"),
    OPTION_FLAG("no-measure", request, no_measure,
		"leave the rates of the links out (else 2 seconds of copies; 4 with several GPUs)"),
    OPTION_READ("timeout", "N", read_patience, 0, "seconds that the driver may take to answer (60)"),
    OPTION_TEXT("library", "PATH", request, library,
		"the library to look at (else the libspillway.so that belongs to this tool)"),
    OPTION_FLAG("audit", request, audit, "run PROGRAM as `spillway run --audit` does"),
    OPTION_TEXT("root", "FOLDER", request, root, "look at the /proc, /sys, /dev and libraries that lie in FOLDER"),
};

static const struct options options = {
    .command = "doctor",
    .rows = rows,
    .n = sizeof(rows) / sizeof(*rows),
    .program = true,
    .column = 19,
    .head = "usage: spillway doctor [option...] [[--] PROGRAM [argument...]]\n\n"
	    "Says what of this machine matters to Spillway: what is so, how good that is, what follows from it and\n"
	    "what to do. Works without a GPU, too. With PROGRAM it is run under Spillway, and each library that came\n"
	    "to the driver's functions is named with its door; the output of PROGRAM goes to standard error.\n",
    .tail =
	"Exit status: 0 no problem was found, 3 one was, 1 it could not be done, 2 wrong usage; 126 PROGRAM cannot\n"
	"be run, 127 it is not found.\n\n"
	"examples:\n"
	"  spillway doctor\n"
	"  spillway doctor --json > for-the-bug-report.json\n"
	"  spillway doctor -- python -c 'import torch; torch.zeros(1).cuda()'\n",
};

/* Returns OPTIONS_GO_ON, or the exit status. */
static int request_read(int argc, char **argv, struct request *request)
{
	int status = options_read(&options, argc, argv, request);

	request->program = argv[optind] ? argv + optind : NULL;
	if (status != OPTIONS_GO_ON || request->program || !request->audit)
		return status;
	tool_say("--audit needs a program; write `spillway doctor --audit -- PROGRAM [argument...]`");
	return TOOL_BAD;
}

int tool_doctor(int argc, char **argv)
{
	struct request request = {.root = "", .patience_s = PATIENCE_S};
	static struct doctor doctor;
	int status = request_read(argc, argv, &request);

	status = status == OPTIONS_GO_ON ? doctor_examine(&request, &doctor) : status;
	free(doctor.findings);
	return status;
}
