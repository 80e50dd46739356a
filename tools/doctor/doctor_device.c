/*
 * doctor_device.c: checks what each device can do for Spillway, and how fast its link is.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor_links.h"
#include "tools/common/units.h"

/* A link slower than this share of its nominal rate is reported. */
#define SLOW_SHARE 0.6

static const struct doctor_gpu *gpu_of(const struct doctor *doctor, int device)
{
	return &doctor->cuda.devices[device];
}

static void doctor_device_name(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, device);

	doctor_is(finding, DOCTOR_OK, "%s%s%s", gpu->name, *gpu->bus ? ", " : "", gpu->bus);
}

static void doctor_device_memory(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, device);
	char total[UNITS_TEXT], free[UNITS_TEXT];

	if (gpu->free)
		doctor_is(finding, DOCTOR_OK, "%s, %s free", units_bytes(gpu->total, total),
			  units_bytes(gpu->free, free));
	else
		doctor_is(finding, DOCTOR_OK, "%s, free n/a (not measured)", units_bytes(gpu->total, total));
	if (!gpu->free || gpu->free >= gpu->total / 2)
		return;
	finding->status = DOCTOR_NOTE;
	doctor_so(finding,
		  "other processes have the rest; the default budget is what is free when a program starts, less "
		  "1 GiB");
	doctor_fix(finding, "nvidia-smi   # shows who");
}

static void device_mode(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	/* CUcomputemode: 0 default, 2 prohibited, 3 one process. */
	switch (gpu_of(doctor, device)->compute_mode) {
	case 0:
		doctor_is(finding, DOCTOR_OK, "default");
		break;
	case 2:
		doctor_is(finding, DOCTOR_PROBLEM, "prohibited");
		doctor_so(finding, "no program gets a context on it");
		doctor_fix(finding, "nvidia-smi -i %d -c DEFAULT   # as root", device);
		break;
	case 3:
		doctor_is(finding, DOCTOR_NOTE, "one process at a time");
		doctor_so(finding, "a second program fails, also when the first is suspended");
		doctor_fix(finding, "nvidia-smi -i %d -c DEFAULT   # as root", device);
		break;
	default:
		doctor_is(finding, DOCTOR_UNKNOWN, "the driver does not say");
	}
}

static void device_vmm(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	if (gpu_of(doctor, device)->vmm > 0) {
		doctor_is(finding, DOCTOR_OK, "yes");
		return;
	}
	doctor_is(finding, DOCTOR_PROBLEM, "no virtual memory management");
	doctor_so(finding, "there is no heap on it: everything is passed through, nothing can spill");
	doctor_fix(finding, "SPILLWAY_POLICY=managed   # managed memory is what can exceed such a device");
}

static void host_vmm(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	if (gpu_of(doctor, device)->vmm <= 0)
		return;
	if (gpu_of(doctor, device)->host_vmm > 0) {
		doctor_is(finding, DOCTOR_OK, "yes");
		return;
	}
	doctor_is(finding, DOCTOR_PROBLEM, "no host memory at GPU addresses");
	doctor_so(finding, "nothing can spill from the heap: what is over the device budget gets out of memory");
	doctor_fix(finding, "install a newer driver (CUDA 12.5 or newer); until then SPILLWAY_POLICY=managed");
}

static void device_managed(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, device);

	if (gpu->managed > 0 && gpu->concurrent > 0) {
		doctor_is(finding, DOCTOR_OK, "yes, with access from both sides at any time");
	} else if (gpu->managed > 0) {
		doctor_is(finding, DOCTOR_NOTE, "without access from both sides at a time");
		doctor_so(finding,
			  "rules with `use: managed` cannot be served on it, and managed memory cannot exceed it");
	} else {
		doctor_is(finding, DOCTOR_NOTE, "no");
		doctor_so(finding, "rules with `use: managed` cannot be served on it");
	}
}

static void device_pageable(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, device);

	if (gpu->pageable < 0)
		doctor_is(finding, DOCTOR_UNKNOWN, "the driver does not say");
	else if (gpu->pageable && gpu->host_tables > 0)
		doctor_is(finding, DOCTOR_OK, "yes, by the CPU's page tables (ATS)");
	else if (gpu->pageable)
		doctor_is(finding, DOCTOR_OK, "yes, by page faults (HMM)");
	else
		doctor_is(finding, DOCTOR_OK, "no; `use: system` registers its memory instead");
}

static void device_rdma(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	if (gpu_of(doctor, device)->rdma > 0)
		doctor_is(finding, DOCTOR_OK, "yes, of memory that rules call `movable: no`");
	else
		doctor_is(finding, DOCTOR_OK, "no");
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

static void device_wire(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	struct wire is = wire_of(doctor, gpu_of(doctor, device));

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
	doctor_fix(finding, "put the card into a slot with all lanes, or look for a bad riser");
}

static void device_rate(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const struct doctor_gpu *gpu = gpu_of(doctor, device);
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
	doctor_fix(finding, "run it again when the machine is idle; then bind the program to the GPU's NUMA node: "
			    "numactl --cpunodebind=N --membind=N");
}

static void device_mig(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	if (!strstr(gpu_of(doctor, device)->name, "MIG "))
		return;
	doctor_is(finding, DOCTOR_NOTE, "this device is a MIG slice");
	doctor_so(finding, "its memory is the slice's; the link is shared with the other slices. Spillway has not been "
			   "tried on one");
}

static const struct doctor_check checks[] = {
    {"gpu.name", "name", doctor_device_name},
    {"gpu.memory", "memory", doctor_device_memory},
    {"gpu.mode", "compute mode", device_mode},
    {"gpu.mig", "MIG", device_mig},
    {"gpu.vmm", "VMM", device_vmm},
    {"gpu.host_vmm", "host VMM", host_vmm},
    {"gpu.managed", "managed memory", device_managed},
    {"gpu.pageable", "pageable access", device_pageable},
    {"gpu.rdma", "GPUDirect RDMA", device_rdma},
    {"gpu.link", "link", device_wire},
    {"gpu.rate", "measured rate", device_rate},
    {"gpu.peers", "other GPUs", doctor_peers},
    {"gpu.peer_link", "links to them", doctor_peer_links},
    {"gpu.peer_rate", "copies to them", doctor_peer_rates},
};
const struct doctor_subject doctor_device = {"GPU", true, checks, sizeof(checks) / sizeof(*checks)};
