/*
 * doctor_links.c: checks which other GPUs each GPU can access, over what kind of link, and how fast. The driver does
 * not name the kind: a link with native atomics is taken for NVLink, any other for PCIe. The rate is measured, so
 * nothing else depends on this guess.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor_links.h"

static int n_devices(const struct doctor *doctor)
{
	return doctor->cuda.n_devices < DOCTOR_DEVICES ? doctor->cuda.n_devices : DOCTOR_DEVICES;
}

static const struct doctor_link *link_of(const struct doctor *doctor, int from, int to)
{
	return &doctor->cuda.devices[from].links[to];
}

static bool links_reaches(const struct doctor *doctor, int from, int to)
{
	return doctor->cuda.devices[from].peers >> to & 1;
}

/* Appends to a text; what does not fit is cut off. */
__attribute__((format(printf, 3, 4))) static void add(char *text, size_t room, const char *format, ...)
{
	size_t length = strlen(text);
	va_list list;

	va_start(list, format);
	vsnprintf(text + length, room - length, format, list);
	va_end(list);
}

void doctor_peers(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	char list[4 * DOCTOR_DEVICES] = "";

	if (n_devices(doctor) < 2)
		return;
	for (int i = 0; i < n_devices(doctor); i++)
		if (links_reaches(doctor, device, i))
			add(list, sizeof(list), "%s%d", *list ? ", " : "", i);
	if (!*list) {
		doctor_is(finding, DOCTOR_NOTE, "reaches no other GPU");
		doctor_so(finding, "copies between them go by way of the host, and none of them can lend it memory "
				   "(spill.peers)");
		return;
	}
	doctor_is(finding, DOCTOR_OK, "reaches the memory of %s: with spill.peers it may spill there", list);
}

/* ---- kinds of links ---- */

enum doctor_link_kind doctor_link_kind(const struct doctor *doctor, int from, int to)
{
	int atomics = link_of(doctor, from, to)->atomics;

	if (!links_reaches(doctor, from, to))
		return DOCTOR_LINK_NONE;
	return atomics < 0 ? DOCTOR_LINK_UNKNOWN : atomics ? DOCTOR_LINK_NVLINK : DOCTOR_LINK_PCIE;
}

static bool links_alike(const struct doctor *doctor, int from, int one, int other)
{
	enum doctor_link_kind kind = doctor_link_kind(doctor, from, one);

	return kind == doctor_link_kind(doctor, from, other) &&
	       (kind == DOCTOR_LINK_NONE ||
		link_of(doctor, from, one)->performance_rank == link_of(doctor, from, other)->performance_rank);
}

void doctor_peer_links(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	static const char *const what[] = {
	    [DOCTOR_LINK_NONE] = "none",
	    [DOCTOR_LINK_PCIE] = "PCIe (no native atomics)",
	    [DOCTOR_LINK_NVLINK] = "NVLink (native atomics)",
	    [DOCTOR_LINK_UNKNOWN] = "unknown (the driver does not tell)",
	};
	char text[sizeof(finding->fact)] = "";
	uint32_t told = UINT32_C(1) << device;

	if (n_devices(doctor) < 2)
		return;
	for (int i = 0; i < n_devices(doctor); i++) {
		enum doctor_link_kind kind = doctor_link_kind(doctor, device, i);
		int rank = link_of(doctor, device, i)->performance_rank;

		if (told >> i & 1)
			continue;
		add(text, sizeof(text), "%s%s to %d", *text ? "; " : "", what[kind], i);
		for (int other = i + 1; other < n_devices(doctor); other++)
			if (other != device && links_alike(doctor, device, i, other)) {
				add(text, sizeof(text), ", %d", other);
				told |= UINT32_C(1) << other;
			}
		if (kind != DOCTOR_LINK_NONE && rank >= 0)
			add(text, sizeof(text), ", performance rank %d", rank);
	}
	doctor_is(finding, DOCTOR_OK, "%s", text);
}

/* ---- rates ---- */

/* Writes why the link was not measured. */
static void reason_of(const struct doctor *doctor, int from, int to, char text[140])
{
	const struct doctor_gpu *gpus = doctor->cuda.devices;
	int error = link_of(doctor, from, to)->error, without = *gpus[from].measure_error ? from : to;

	if (from >= DOCTOR_LINKED || to >= DOCTOR_LINKED)
		snprintf(text, 140, "only the first %d GPUs are measured", DOCTOR_LINKED);
	else if (error == DOCTOR_LINK_LATE)
		snprintf(text, 140, "the time for it was over");
	else if (error)
		snprintf(text, 140, "the driver answered error %d", error);
	else if (*gpus[without].measure_error)
		snprintf(text, 140, "GPU %d: %s", without, gpus[without].measure_error);
	else
		snprintf(text, 140, "the driver did not get so far");
}

/* Returns the number of decimals: four for a rate that one decimal would round to zero. */
static int links_decimals(double bytes_per_second)
{
	return bytes_per_second < 0.05e9 ? 4 : 1;
}

void doctor_peer_rates(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	char text[sizeof(finding->fact)] = "", reason[140], last[140] = "";
	bool any = false;

	if (n_devices(doctor) < 2)
		return;
	if (!doctor->measure) {
		doctor_is(finding, DOCTOR_UNKNOWN, "n/a (--no-measure)");
		return;
	}
	for (int i = 0; i < n_devices(doctor); i++) {
		double rate = link_of(doctor, device, i)->rate;

		if (rate > 0)
			add(text, sizeof(text), "%s%.*f GB/s to %d%s", *text ? ", " : "", links_decimals(rate),
			    rate / 1e9, i, links_reaches(doctor, device, i) ? "" : " (by way of the host)");
	}
	any = *text;
	for (int i = 0; i < n_devices(doctor); i++) {
		if (i == device || link_of(doctor, device, i)->rate > 0)
			continue;
		reason_of(doctor, device, i, reason);
		if (strcmp(reason, last) == 0)
			add(text, sizeof(text), ", %d", i);
		else
			add(text, sizeof(text), "%sn/a (%s) to %d", *text ? "; " : "", reason, i);
		memcpy(last, reason, sizeof(last));
	}
	doctor_is(finding, any ? DOCTOR_OK : DOCTOR_UNKNOWN, "%s", text);
	if (doctor->cuda.stage != DOCTOR_MEASURED || doctor->cuda.end == DOCTOR_ENDED)
		return;
	doctor_is(finding, DOCTOR_PROBLEM,
		  doctor->cuda.end == DOCTOR_HUNG ? "the driver does not come back from copies between GPUs"
						  : "the driver crashed in copies between GPUs");
	doctor_so(finding, "so do programs that use several GPUs; those that use one may work");
	doctor_fix(finding, "NCCL_P2P_DISABLE=1   # for NCCL; to mend it, turn ACS or the IOMMU off in the firmware");
}
