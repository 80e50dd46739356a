/*
 * doctor_print.c: what was found, for people and for programs.
 */
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor_links.h"
#include "tools/common/json.h"

enum { WIDTH = 100, TITLE = 18 };

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

/* Words of text from this column on, line after line; further lines begin below the first. */
static void print_folded(const char *text, size_t column)
{
	size_t at = column;

	for (bool first = true; *text; first = false) {
		size_t length = strcspn(text, " ");

		if (!first && at + 1 + length > WIDTH) {
			printf("\n%*s", (int)column, "");
			at = column;
		} else if (!first) {
			putchar(' ');
			at++;
		}
		printf("%.*s", (int)length, text);
		at += length;
		text += length;
		text += *text == ' ';
	}
	putchar('\n');
}

static void print_finding(const struct doctor_finding *finding)
{
	const char *slash = strrchr(finding->object, '/');
	const char *title = *finding->object ? (slash ? slash + 1 : finding->object) : finding->title;

	/* The names of libraries may be long; then what is to be said begins below. */
	printf("    %-*s", TITLE, title);
	if (strlen(title) >= TITLE)
		printf("\n%*s", 4 + TITLE, "");
	print_folded(finding->fact, 4 + TITLE);
	if (*finding->so) {
		printf("%*s-> ", 4 + TITLE, "");
		print_folded(finding->so, 4 + TITLE + 3);
	}
	/* A command is not folded: it is to be copied. */
	if (*finding->fix)
		printf("%*sdo: %s\n", 4 + TITLE, "", finding->fix);
}

static bool same_subject(const struct doctor_finding *a, const struct doctor_finding *b)
{
	return a && strcmp(a->subject, b->subject) == 0 && a->device == b->device;
}

/* All of that status, by subject, under a heading. */
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

/* ---- JSON ---- */

static void print_member(const char *name, const char *text)
{
	printf(", ");
	json_name(name);
	json_text(*text ? text : NULL);
}

static void print_finding_json(const struct doctor_finding *finding)
{
	printf("{");
	json_name("id");
	json_text(finding->id);
	print_member("subject", finding->subject);
	print_member("title", finding->title);
	if (finding->device >= 0)
		printf(", \"device\": %d", finding->device);
	else
		printf(", \"device\": null");
	if (finding->process)
		printf(", \"process\": %d", finding->process);
	else
		printf(", \"process\": null");
	print_member("object", finding->object);
	print_member("status", status_names[finding->status]);
	print_member("fact", finding->fact);
	print_member("consequence", finding->so);
	print_member("fix", finding->fix);
	printf("}");
}

/* What was not measured is null. */
static void print_number(const char *name, double value)
{
	printf(", ");
	json_name(name);
	if (value > 0)
		printf("%.0f", value);
	else
		printf("null");
}

/* What is not known is null. */
static void print_link_json(const struct doctor *doctor, int from, int to)
{
	static const char *const kinds[] = {[DOCTOR_LINK_NONE] = "none",
					    [DOCTOR_LINK_PCIE] = "pcie",
					    [DOCTOR_LINK_NVLINK] = "nvlink",
					    [DOCTOR_LINK_UNKNOWN] = ""};
	const struct doctor_link *link = &doctor->cuda.devices[from].links[to];

	printf("{\"device\": %d", to);
	print_member("link", kinds[doctor_link_kind(doctor, from, to)]);
	printf(", \"performance_rank\": ");
	printf(link->performance_rank < 0 ? "null" : "%d", link->performance_rank);
	printf(", \"native_atomics\": %s", link->atomics < 0 ? "null" : link->atomics ? "true" : "false");
	print_number("bytes_per_second", link->rate);
	printf("}");
}

static void print_links_json(const struct doctor *doctor, int from, int n)
{
	const char *before = "";

	printf(", \"links\": [");
	for (int to = 0; to < n; to++) {
		if (to == from)
			continue;
		printf("%s", before);
		print_link_json(doctor, from, to);
		before = ", ";
	}
	printf("]}");
}

static void print_device_json(int ordinal, const struct doctor_gpu *gpu)
{
	printf("{\"device\": %d", ordinal);
	print_member("name", gpu->name);
	print_member("bus", gpu->bus);
	print_number("total_bytes", (double)gpu->total);
	print_number("free_bytes", (double)gpu->free);
	print_number("to_device_bytes_per_second", gpu->to_device);
	print_number("to_host_bytes_per_second", gpu->to_host);
	print_number("both_bytes_per_second", gpu->both);
}

void doctor_print_json(const struct doctor *doctor)
{
	size_t problems = doctor_count(doctor, DOCTOR_PROBLEM), notes = doctor_count(doctor, DOCTOR_NOTE);
	int n_devices = doctor->cuda.n_devices < DOCTOR_DEVICES ? doctor->cuda.n_devices : DOCTOR_DEVICES;
	bool first = true;

	printf("{\"schema\": 1, \"spillway\": \"%s\", \"verdict\": \"%s\", \"problems\": %zu, \"notes\": %zu,\n",
	       SPILLWAY_VERSION,
	       problems ? "problems"
	       : notes  ? "notes"
			: "ok",
	       problems, notes);
	printf(" \"cuda_version\": ");
	if (doctor->cuda.version)
		printf("%d", doctor->cuda.version);
	else
		printf("null");
	printf(",\n \"devices\": [");
	for (int i = 0; i < n_devices; i++) {
		printf(i ? ",\n  " : "\n  ");
		print_device_json(i, &doctor->cuda.devices[i]);
		print_links_json(doctor, i, n_devices);
	}
	printf("],\n \"checks\": [");
	for (size_t i = 0; i < doctor->n; i++) {
		if (doctor->findings[i].status == DOCTOR_NONE)
			continue;
		printf(first ? "\n  " : ",\n  ");
		print_finding_json(&doctor->findings[i]);
		first = false;
	}
	printf("]}\n");
}
