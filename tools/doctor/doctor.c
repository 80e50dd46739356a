// SPDX-License-Identifier: Apache-2.0
/*
 * doctor.c: `spillway doctor`: its options, the order of its steps, and what it prints. Nothing on the machine is
 * changed. Everything is printed at the end, because problems are listed first.
 */
#include "tools/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/json.h"
#include "tools/common/library.h"
#include "tools/common/options.h"
#include "tools/common/wrap.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

/* A machine with eight GPUs and no persistence daemon needs half of this time to start the driver. */
enum { PATIENCE_S = 60, PATIENCE_MOST_S = 3600 };

/* ---- what is printed ---- */

enum { TITLE = 18 };

static const char *const status_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_PROBLEM] = "problem", [DOCTOR_UNKNOWN] = "unknown"};

static size_t count(const struct doctor *doctor, enum doctor_status status)
{
	size_t n = 0;

	for (size_t i = 0; i < doctor->n; i++)
		n += doctor->findings[i].status == status;
	return n;
}

/* ---- text ---- */

static void print_finding(const struct doctor_finding *finding)
{
	const char *slash = strrchr(finding->object, '/');
	const char *title = *finding->object ? (slash ? slash + 1 : finding->object) : finding->title;

	/* If a library's name is too long, the text begins on the next line. */
	printf("    %-*s", TITLE, title);
	if (strlen(title) >= TITLE)
		printf("\n%*s", 4 + TITLE, "");
	wrap_print(finding->fact, 4 + TITLE, 4 + TITLE);
	if (*finding->so) {
		printf("%*s-> ", 4 + TITLE, "");
		wrap_print(finding->so, 4 + TITLE + 3, 4 + TITLE + 3);
	}
	/* A command is not wrapped, so that it can be copied. */
	if (*finding->fix)
		printf("%*sdo: %s\n", 4 + TITLE, "", finding->fix);
}

/* Prints all findings of that status, by subject, under a heading. */
static void print_all(const struct doctor *doctor, enum doctor_status status, const char *heading)
{
	const struct doctor_finding *last = NULL;

	for (size_t i = 0; i < doctor->n; i++) {
		const struct doctor_finding *finding = &doctor->findings[i];

		if (finding->status != status)
			continue;
		if (!last)
			printf("%s\n", heading);
		if (!last || strcmp(last->subject, finding->subject) != 0 || last->device != finding->device) {
			printf("  %s", finding->subject);
			if (finding->device >= 0)
				printf(" %d", finding->device);
			printf("\n");
		}
		print_finding(finding);
		last = finding;
	}
	if (last)
		printf("\n");
}

static void print_verdict(const struct doctor *doctor)
{
	size_t problems = count(doctor, DOCTOR_PROBLEM), notes = count(doctor, DOCTOR_NOTE);

	if (problems)
		printf("verdict: %zu problem%s; Spillway does not work here as it should until %s mended\n", problems,
		       problems == 1 ? "" : "s", problems == 1 ? "it is" : "they are");
	else if (notes)
		printf("verdict: Spillway works here, with %zu restriction%s\n", notes, notes == 1 ? "" : "s");
	else
		printf("verdict: Spillway works here\n");
}

static void print_text(const struct doctor *doctor)
{
	printf("spillway %s doctor\n\n", SPILLWAY_VERSION);
	print_all(doctor, DOCTOR_PROBLEM, "PROBLEMS");
	print_all(doctor, DOCTOR_NOTE, "NOTES");
	print_all(doctor, DOCTOR_UNKNOWN, "NOT KNOWN");
	print_all(doctor, DOCTOR_OK, "AS IT SHOULD BE");
	print_verdict(doctor);
}

/* ---- JSON: a value that is not known or was not measured is null ---- */

static void put_text(struct json *json, const char *name, const char *text)
{
	json_text(json, name, *text ? text : NULL);
}

static void put_rate(struct json *json, const char *name, double value)
{
	json_real_or_null(json, name, value, 0, value > 0);
}

static void put_finding(struct json *json, const struct doctor_finding *finding)
{
	json_open(json, NULL, '{');
	json_text(json, "id", finding->id);
	put_text(json, "subject", finding->subject);
	put_text(json, "title", finding->title);
	json_real_or_null(json, "device", finding->device, 0, finding->device >= 0);
	json_real_or_null(json, "process", finding->process, 0, finding->process != 0);
	put_text(json, "object", finding->object);
	put_text(json, "status", status_names[finding->status]);
	put_text(json, "fact", finding->fact);
	put_text(json, "consequence", finding->so);
	put_text(json, "fix", finding->fix);
	json_close(json, '}');
}

static void put_link(struct json *json, const struct doctor *doctor, int from, int to)
{
	static const char *const kinds[] = {[DOCTOR_LINK_NONE] = "none",
					    [DOCTOR_LINK_PCIE] = "pcie",
					    [DOCTOR_LINK_NVLINK] = "nvlink",
					    [DOCTOR_LINK_UNKNOWN] = ""};
	const struct doctor_link *link = &doctor->cuda.devices[from].links[to];

	json_open(json, NULL, '{');
	json_number(json, "device", (uint64_t)to);
	put_text(json, "link", kinds[doctor_link_kind(doctor, from, to)]);
	json_real_or_null(json, "performance_rank", link->performance_rank, 0, link->performance_rank >= 0);
	if (link->atomics < 0)
		json_text(json, "native_atomics", NULL);
	else
		json_truth(json, "native_atomics", link->atomics);
	put_rate(json, "bytes_per_second", link->rate);
	json_close(json, '}');
}

static void put_device(struct json *json, const struct doctor *doctor, int device, int n_devices)
{
	const struct doctor_gpu *gpu = &doctor->cuda.devices[device];

	json_open(json, NULL, '{');
	json_number(json, "device", (uint64_t)device);
	put_text(json, "name", gpu->name);
	put_text(json, "bus", gpu->bus);
	put_rate(json, "total_bytes", (double)gpu->total);
	put_rate(json, "free_bytes", (double)gpu->free);
	put_rate(json, "to_device_bytes_per_second", gpu->to_device);
	put_rate(json, "to_host_bytes_per_second", gpu->to_host);
	put_rate(json, "both_bytes_per_second", gpu->both);
	json_open(json, "links", '[');
	for (int to = 0; to < n_devices; to++)
		if (to != device)
			put_link(json, doctor, device, to);
	json_close(json, ']');
	json_close(json, '}');
}

static void print_json(const struct doctor *doctor)
{
	size_t problems = count(doctor, DOCTOR_PROBLEM), notes = count(doctor, DOCTOR_NOTE);
	int n_devices = doctor_n_devices(doctor);
	struct json writer = JSON_WRITER, *json = &writer;

	json_open(json, NULL, '{');
	json_number(json, "schema", 1);
	json_text(json, "spillway", SPILLWAY_VERSION);
	json_text(json, "verdict", problems ? "problems" : notes ? "notes" : "ok");
	json_number(json, "problems", problems);
	json_number(json, "notes", notes);
	json_break(json, "\n ");
	json_real_or_null(json, "cuda_version", doctor->cuda.version, 0, doctor->cuda.version != 0);
	json_break(json, "\n ");
	json_open(json, "devices", '[');
	for (int i = 0; i < n_devices; i++) {
		json_break(json, "\n  ");
		put_device(json, doctor, i, n_devices);
	}
	json_close(json, ']');
	json_break(json, "\n ");
	json_open(json, "checks", '[');
	for (size_t i = 0; i < doctor->n; i++) {
		if (doctor->findings[i].status == DOCTOR_NONE)
			continue;
		json_break(json, "\n  ");
		put_finding(json, &doctor->findings[i]);
	}
	json_close(json, ']');
	json_close(json, '}');
	putchar('\n');
}

/* ---- the order of steps ---- */

static bool look_at(struct doctor *doctor, const struct doctor_subject *subject, int device)
{
	for (size_t i = 0; i < subject->n; i++) {
		const struct doctor_check *check = &subject->checks[i];
		struct doctor_finding *finding = doctor_add(doctor, subject->name, check->id, check->title, device);

		if (!finding)
			return false;
		check->look(doctor, finding);
		if (finding->status != DOCTOR_NOTE && finding->status != DOCTOR_PROBLEM)
			continue;
		if (check->so && !*finding->so)
			doctor_so(finding, "%s", check->so);
		if (check->fix && !*finding->fix)
			doctor_fix(finding, "%s", check->fix);
	}
	return true;
}

static bool look_at_all(struct doctor *doctor)
{
	static const struct doctor_subject *const subjects[] = {&doctor_driver,   &doctor_nodes,  &doctor_device,
								&doctor_memory,   &doctor_system, &doctor_preload,
								&doctor_neighbour};
	int n_devices = doctor_n_devices(doctor);
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
	if (!look_at_all(doctor))
		return tool_broken("out of memory");
	if (request->program)
		status = doctor_program(doctor, request->program);
	if (status != TOOL_OK)
		return status;
	if (request->json)
		print_json(doctor);
	else
		print_text(doctor);
	return count(doctor, DOCTOR_PROBLEM) ? TOOL_PROBLEM : TOOL_OK;
}

/* ---- options ---- */

static bool read_patience(void *request, int code, const char *text, char *why)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	(void)code;
	(void)why;
	if (!policy_is_digit(*text) || *end || value < 1 || value > PATIENCE_MOST_S)
		return tool_fails("--timeout takes a number of seconds from 1 to %d", PATIENCE_MOST_S);
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
    OPTION_ROWS(rows),
    .program = true,
    .column = 19,
    .head = "usage: spillway doctor [option...] [[--] PROGRAM [argument...]]\n\n"
	    "Checks this machine for Spillway: each finding with its verdict, what follows from it and what to do.\n"
	    "It works without a GPU, too. With PROGRAM, doctor runs it under Spillway and names each library that\n"
	    "reached the driver's functions, and by which way; the output of PROGRAM goes to standard error.\n",
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
	return tool_bad("--audit needs a program; write `spillway doctor --audit -- PROGRAM [argument...]`");
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
