// SPDX-License-Identifier: Apache-2.0
/*
 * doctor_device.c: checks what each device can do for Spillway, and how fast its link is.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/common/units.h"

/* A link slower than this share of its nominal rate is reported. */
#define SLOW_SHARE 0.6

static const struct doctor_gpu *gpu_of(const struct doctor *doctor, const struct doctor_finding *finding)
{
	return &doctor->cuda.devices[finding->device];
}

static void device_name(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, finding);

	doctor_is(finding, DOCTOR_OK, "%s%s%s", gpu->name, *gpu->bus ? ", " : "", gpu->bus);
}

static void device_memory(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, finding);

	if (gpu->free)
		doctor_is(finding, DOCTOR_OK, "%s, %s free", text_bytes(gpu->total), text_bytes(gpu->free));
	else
		doctor_is(finding, DOCTOR_OK, "%s, free n/a (not measured)", text_bytes(gpu->total));
	if (gpu->free && gpu->free < gpu->total / 2)
		finding->status = DOCTOR_NOTE;
}

static void device_mode(const struct doctor *doctor, struct doctor_finding *finding)
{
	/* CUcomputemode: 0 default, 2 prohibited, 3 one process. */
	switch (gpu_of(doctor, finding)->compute_mode) {
	case 0:
		doctor_is(finding, DOCTOR_OK, "default");
		break;
	case 2:
		doctor_is(finding, DOCTOR_PROBLEM, "prohibited");
		doctor_so(finding, "no program gets a context on it");
		break;
	case 3:
		doctor_is(finding, DOCTOR_NOTE, "one process at a time");
		break;
	default:
		doctor_is(finding, DOCTOR_UNKNOWN, "the driver does not say");
	}
	if (finding->status == DOCTOR_PROBLEM || finding->status == DOCTOR_NOTE)
		doctor_fix(finding, "nvidia-smi -i %d -c DEFAULT   # as root", finding->device);
}

static void device_vmm(const struct doctor *doctor, struct doctor_finding *finding)
{
	bool has = gpu_of(doctor, finding)->vmm > 0;

	doctor_is(finding, has ? DOCTOR_OK : DOCTOR_PROBLEM, has ? "yes" : "no virtual memory management");
}

static void host_vmm(const struct doctor *doctor, struct doctor_finding *finding)
{
	bool has = gpu_of(doctor, finding)->host_vmm > 0;

	if (gpu_of(doctor, finding)->vmm > 0)
		doctor_is(finding, has ? DOCTOR_OK : DOCTOR_PROBLEM, has ? "yes" : "no host memory at GPU addresses");
}

static void device_managed(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, finding);

	if (gpu->managed > 0 && gpu->concurrent > 0) {
		doctor_is(finding, DOCTOR_OK, "yes, with access from both sides at any time");
	} else if (gpu->managed > 0) {
		doctor_is(finding, DOCTOR_NOTE, "without access from both sides at a time");
		doctor_so(finding,
			  "rules with `use: managed` cannot be served on it, and managed memory cannot exceed it");
	} else {
		doctor_is(finding, DOCTOR_NOTE, "no");
	}
}

static void device_pageable(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, finding);

	if (gpu->pageable < 0)
		doctor_is(finding, DOCTOR_UNKNOWN, "the driver does not say");
	else
		doctor_is(finding, DOCTOR_OK, "%s",
			  !gpu->pageable         ? "no; `use: system` registers its memory instead"
			  : gpu->host_tables > 0 ? "yes, by the CPU's page tables (ATS)"
						 : "yes, by page faults (HMM)");
}

static void device_rdma(const struct doctor *doctor, struct doctor_finding *finding)
{
	doctor_is(finding, DOCTOR_OK, "%s",
		  gpu_of(doctor, finding)->rdma > 0 ? "yes, of memory that rules call `movable: no`" : "no");
}

/* ---- the link ---- */

struct wire {
	double speed, width;           /* GT/s per lane, number of lanes; 0: not known */
	double most_speed, most_width; /* the limits of the card */
};

static double number_in(const struct doctor *doctor, const char *bus, const char *file)
{
	char path[128], text[64];

	if (snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", bus, file) >= (int)sizeof(path) ||
	    !doctor_read(doctor, path, text, sizeof(text)))
		return 0;
	double value = strtod(text, NULL);
	/* The kernel shows an unknown value as "Unknown" or 255 lanes. */
	return value > 0 && value < 255 ? value : 0;
}

static struct wire wire_of(const struct doctor *doctor, const struct doctor_gpu *gpu)
{
	char bus[sizeof(gpu->bus)] = "";

	for (size_t i = 0; gpu->bus[i] && gpu->bus[i] != '/'; i++)
		bus[i] = (char)tolower((unsigned char)gpu->bus[i]);
	return (struct wire){
	    .speed = number_in(doctor, bus, "current_link_speed"),
	    .width = number_in(doctor, bus, "current_link_width"),
	    .most_speed = number_in(doctor, bus, "max_link_speed"),
	    .most_width = number_in(doctor, bus, "max_link_width"),
	};
}

/* Generations 1 and 2 send 10 bits for 8, generations 3 to 5 130 bits for 128; from 6 on, about 2 % is overhead. */
static double wire_rate(double speed, double width)
{
	return speed * width * 1e9 / 8 * (speed < 8 ? 0.8 : speed < 64 ? 128.0 / 130 : 0.98);
}

static int device_generation(double speed)
{
	static const double speeds[] = {2.5, 5, 8, 16, 32, 64, 128};

	for (unsigned i = 0; i < sizeof(speeds) / sizeof(*speeds); i++)
		if (speed <= speeds[i] + 0.1)
			return (int)i + 1;
	return 0;
}

static void device_wire(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct wire is = wire_of(doctor, gpu_of(doctor, finding));

	if (!is.most_width || !is.most_speed) {
		doctor_is(finding, DOCTOR_UNKNOWN,
			  "the kernel does not say (no entry in /sys/bus/pci, as in many "
			  "virtual machines)");
		return;
	}
	/* The current speed may be lower than under load, to save power. The width does not change. */
	doctor_is(finding, DOCTOR_OK, "PCIe %d x%.0f, up to %.1f GB/s each way", device_generation(is.most_speed),
		  is.width ? is.width : is.most_width,
		  wire_rate(is.most_speed, is.width ? is.width : is.most_width) / 1e9);
	if (!is.width || is.width >= is.most_width)
		return;
	finding->status = DOCTOR_NOTE;
	doctor_so(finding, "the card can do x%.0f: all that moves takes %.0f times as long as it need", is.most_width,
		  is.most_width / is.width);
}

static void device_rate(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, finding);
	struct wire is = wire_of(doctor, gpu);
	double most = wire_rate(is.most_speed, is.width);

	if (!doctor->measure) {
		doctor_is(finding, DOCTOR_UNKNOWN, "n/a (--no-measure)");
		return;
	}
	if (!gpu->to_device || !gpu->to_host || !gpu->both) {
		doctor_is(finding, DOCTOR_UNKNOWN, "n/a (%s)",
			  *gpu->measure_error ? gpu->measure_error : "the driver did not get so far");
		return;
	}
	doctor_is(finding, DOCTOR_OK, "%.1f GB/s to the device, %.1f GB/s to the host, %.1f GB/s both ways together",
		  gpu->to_device / 1e9, gpu->to_host / 1e9, gpu->both / 1e9);
	if (!most || (gpu->to_device > SLOW_SHARE * most && gpu->to_host > SLOW_SHARE * most))
		return;
	finding->status = DOCTOR_NOTE;
	doctor_so(finding, "less than %.0f %% of what the link is wired for; moving takes that much longer",
		  SLOW_SHARE * 100);
}

/* ---- other devices ----
 *
 * The driver does not name the kind of a link: one with native atomics is taken for NVLink, any other for PCIe. The
 * rate is measured, so nothing else depends on this guess.
 */

static const struct doctor_link *link_of(const struct doctor *doctor, int from, int to)
{
	return &doctor->cuda.devices[from].links[to];
}

static bool links_reaches(const struct doctor *doctor, int from, int to)
{
	return doctor->cuda.devices[from].peers >> to & 1;
}

static void device_peers(const struct doctor *doctor, struct doctor_finding *finding)
{
	const char *comma = "reaches the memory of ";

	if (doctor_n_devices(doctor) < 2)
		return;
	if (!gpu_of(doctor, finding)->peers) {
		doctor_is(finding, DOCTOR_NOTE, "reaches no other GPU");
		return;
	}
	for (int i = 0; i < doctor_n_devices(doctor); i++, comma = *finding->fact ? ", " : comma)
		if (links_reaches(doctor, finding->device, i))
			doctor_more(finding, "%s%d", comma, i);
	doctor_more(finding, ": with spill.peers it may spill there");
	finding->status = DOCTOR_OK;
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

static void device_peer_links(const struct doctor *doctor, struct doctor_finding *finding)
{
	static const char *const what[] = {
	    [DOCTOR_LINK_NONE] = "none",
	    [DOCTOR_LINK_PCIE] = "PCIe (no native atomics)",
	    [DOCTOR_LINK_NVLINK] = "NVLink (native atomics)",
	    [DOCTOR_LINK_UNKNOWN] = "unknown (the driver does not tell)",
	};
	int device = finding->device;
	uint32_t told = UINT32_C(1) << device;

	if (doctor_n_devices(doctor) < 2)
		return;
	for (int i = 0; i < doctor_n_devices(doctor); i++) {
		enum doctor_link_kind kind = doctor_link_kind(doctor, device, i);
		int rank = link_of(doctor, device, i)->performance_rank;

		if (told >> i & 1)
			continue;
		doctor_more(finding, "%s%s to %d", *finding->fact ? "; " : "", what[kind], i);
		for (int other = i + 1; other < doctor_n_devices(doctor); other++)
			if (other != device && links_alike(doctor, device, i, other)) {
				doctor_more(finding, ", %d", other);
				told |= UINT32_C(1) << other;
			}
		if (kind != DOCTOR_LINK_NONE && rank >= 0)
			doctor_more(finding, ", performance rank %d", rank);
	}
	finding->status = DOCTOR_OK;
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

static void device_peer_rates(const struct doctor *doctor, struct doctor_finding *finding)
{
	char reason[140], last[140] = "";
	int device = finding->device;

	if (doctor_n_devices(doctor) < 2)
		return;
	if (!doctor->measure) {
		doctor_is(finding, DOCTOR_UNKNOWN, "n/a (--no-measure)");
		return;
	}
	for (int i = 0; i < doctor_n_devices(doctor); i++) {
		double rate = link_of(doctor, device, i)->rate;

		/* Four decimals for a rate that one would round to zero. */
		if (rate > 0)
			doctor_more(finding, "%s%.*f GB/s to %d%s", *finding->fact ? ", " : "", rate < 0.05e9 ? 4 : 1,
				    rate / 1e9, i, links_reaches(doctor, device, i) ? "" : " (by way of the host)");
	}
	finding->status = *finding->fact ? DOCTOR_OK : DOCTOR_UNKNOWN;
	for (int i = 0; i < doctor_n_devices(doctor); i++) {
		if (i == device || link_of(doctor, device, i)->rate > 0)
			continue;
		reason_of(doctor, device, i, reason);
		if (strcmp(reason, last) == 0)
			doctor_more(finding, ", %d", i);
		else
			doctor_more(finding, "%sn/a (%s) to %d", *finding->fact ? "; " : "", reason, i);
		memcpy(last, reason, sizeof(last));
	}
	if (doctor->cuda.stage != DOCTOR_MEASURED || doctor->cuda.end == DOCTOR_ENDED)
		return;
	doctor_is(finding, DOCTOR_PROBLEM,
		  doctor->cuda.end == DOCTOR_HUNG ? "the driver does not come back from copies between GPUs"
						  : "the driver crashed in copies between GPUs");
}

static void device_mig(const struct doctor *doctor, struct doctor_finding *finding)
{
	if (strstr(gpu_of(doctor, finding)->name, "MIG "))
		doctor_is(finding, DOCTOR_NOTE, "this device is a MIG slice");
}

static const struct doctor_check checks[] = {
    {"gpu.name", "name", device_name, NULL, NULL},
    {"gpu.memory", "memory", device_memory,
     "other processes have the rest; the default budget is what is free when a program starts, less "
     "1 GiB",
     "nvidia-smi   # shows who"},
    {"gpu.mode", "compute mode", device_mode, "a second program fails, also when the first is suspended", NULL},
    {"gpu.mig", "MIG", device_mig,
     "its memory is the slice's; the link is shared with the other slices. Spillway has not been "
     "tried on one",
     NULL},
    {"gpu.vmm", "VMM", device_vmm, "there is no heap on it: everything is passed through, nothing can spill",
     "SPILLWAY_POLICY=managed   # managed memory is what can exceed such a device"},
    {"gpu.host_vmm", "host VMM", host_vmm,
     "nothing can spill from the heap: what is over the device budget gets out of memory",
     "install a newer driver (CUDA 12.5 or newer); until then SPILLWAY_POLICY=managed"},
    {"gpu.managed", "managed memory", device_managed, "rules with `use: managed` cannot be served on it", NULL},
    {"gpu.pageable", "pageable access", device_pageable, NULL, NULL},
    {"gpu.rdma", "GPUDirect RDMA", device_rdma, NULL, NULL},
    {"gpu.link", "link", device_wire, NULL, "put the card into a slot with all lanes, or look for a bad riser"},
    {"gpu.rate", "measured rate", device_rate, NULL,
     "run it again when the machine is idle; then bind the program to the GPU's NUMA node: "
     "numactl --cpunodebind=N --membind=N"},
    {"gpu.peers", "other GPUs", device_peers,
     "copies between them go by way of the host, and none of them can lend it memory "
     "(spill.peers)",
     NULL},
    {"gpu.peer_link", "links to them", device_peer_links, NULL, NULL},
    {"gpu.peer_rate", "copies to them", device_peer_rates,
     "so do programs that use several GPUs; those that use one may work",
     "NCCL_P2P_DISABLE=1   # for NCCL; to mend it, turn ACS or the IOMMU off in the firmware"},
};
const struct doctor_subject doctor_device = DOCTOR_SUBJECT("GPU", true, checks);
