/*
 * doctor_print.c: prints the findings for people and for programs.
 */
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor_links.h"
#include "tools/common/json.h"
#include "tools/common/wrap.h"

enum { TITLE = 18 };

static const char *const status_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_PROBLEM] = "problem", [DOCTOR_UNKNOWN] = "unknown"};

size_t doctor_count(const struct doctor *doctor, enum doctor_status status)
{
	size_t n = 0;

	for (size_t i = 0; i < doctor->n; i++)
		n += doctor->findings[i].status == status;
	return n;
}

/* ---- text ---- */

static void print_subject(const struct doctor_finding *finding)
{
	if (finding->device >= 0)
		printf("  %s %d\n", finding->subject, finding->device);
	else
		printf("  %s\n", finding->subject);
}

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

static bool same_subject(const struct doctor_finding *a, const struct doctor_finding *b)
{
	return a && strcmp(a->subject, b->subject) == 0 && a->device == b->device;
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
		if (!same_subject(last, finding))
			print_subject(finding);
		print_finding(finding);
		last = finding;
	}
	if (last)
		printf("\n");
}

static void print_verdict(const struct doctor *doctor)
{
	size_t problems = doctor_count(doctor, DOCTOR_PROBLEM), notes = doctor_count(doctor, DOCTOR_NOTE);

	if (problems)
		printf("verdict: %zu problem%s; Spillway does not work here as it should until %s mended\n", problems,
		       problems == 1 ? "" : "s", problems == 1 ? "it is" : "they are");
	else if (notes)
		printf("verdict: Spillway works here, with %zu restriction%s\n", notes, notes == 1 ? "" : "s");
	else
		printf("verdict: Spillway works here\n");
}

void doctor_print_text(const struct doctor *doctor)
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
	json_integer_or_null(json, "device", finding->device, finding->device >= 0);
	json_integer_or_null(json, "process", finding->process, finding->process != 0);
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
	json_integer_or_null(json, "performance_rank", link->performance_rank, link->performance_rank >= 0);
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

void doctor_print_json(const struct doctor *doctor)
{
	size_t problems = doctor_count(doctor, DOCTOR_PROBLEM), notes = doctor_count(doctor, DOCTOR_NOTE);
	int n_devices = doctor->cuda.n_devices < DOCTOR_DEVICES ? doctor->cuda.n_devices : DOCTOR_DEVICES;
	struct json writer = JSON_WRITER, *json = &writer;

	json_open(json, NULL, '{');
	json_number(json, "schema", 1);
	json_text(json, "spillway", SPILLWAY_VERSION);
	json_text(json, "verdict", problems ? "problems" : notes ? "notes" : "ok");
	json_number(json, "problems", problems);
	json_number(json, "notes", notes);
	json_break(json, "\n ");
	json_integer_or_null(json, "cuda_version", doctor->cuda.version, doctor->cuda.version != 0);
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
