/*
 * doctor_neighbour.c: checks for other users of the GPU and of its driver: MPS, MIG, profilers.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"

static void neighbour_mps(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY"), *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	char path[PATH_MAX];

	(void)device;
	if (!folder || !*folder)
		folder = "/tmp/nvidia-mps";
	if (snprintf(path, sizeof(path), "%s/control", folder) >= (int)sizeof(path) || !doctor_exists(doctor, path)) {
		doctor_is(finding, DOCTOR_OK, "no server is seen in %.200s", folder);
		return;
	}
	doctor_is(finding, DOCTOR_NOTE, "a server has its pipes in %.200s%s%.100s", folder,
		  limit ? ", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" : "", limit ? limit : "");
	doctor_so(finding,
		  "clients share one context: an error that stops one (an access in transit in spill.mode fast) stops "
		  "all. Spillway has not been tried under MPS");
	doctor_fix(finding,
		   "spillway run --set spill.mode=exact ...   # or end it: echo quit | nvidia-cuda-mps-control");
}

static void neighbour_mig(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	char pattern[PATH_MAX];
	size_t n = 0;
	glob_t found;

	(void)device;
	if (doctor_path(doctor, "/proc/driver/nvidia/capabilities/gpu*/mig/gi*", pattern) &&
	    glob(pattern, 0, NULL, &found) == 0) {
		n = found.gl_pathc;
		globfree(&found);
	}
	if (!n) {
		doctor_is(finding, DOCTOR_OK, "no instances");
		return;
	}
	doctor_is(finding, DOCTOR_NOTE, "%zu GPU instance%s", n, n == 1 ? "" : "s");
	doctor_so(finding, "a program sees one slice, with the slice's memory; Spillway has not been tried on one");
	doctor_fix(finding, "nvidia-smi -L   # names the slices for CUDA_VISIBLE_DEVICES");
}

/* The driver of a guest with a vGPU brings the settings of its licence. */
static void neighbour_vgpu(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	(void)device;
	if (!doctor_exists(doctor, "/etc/nvidia/gridd.conf"))
		return;
	doctor_is(finding, DOCTOR_NOTE, "the driver of a guest with a vGPU is seen (/etc/nvidia/gridd.conf)");
	doctor_so(
	    finding,
	    "a vGPU has a fixed part of the GPU's memory, and not each kind has virtual memory management, without "
	    "which nothing can spill; Spillway has not been tried on one");
	doctor_fix(finding, "spillway doctor   # says of each GPU whether it has virtual memory management");
}

/* HAMi and what is made of it: a library in front of the driver, with its limits in the environment. */
static void neighbour_limits(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	static const char *const variables[] = {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0",
						"CUDA_DEVICE_SM_LIMIT"};
	const char *found = NULL;

	(void)doctor;
	(void)device;
	for (size_t i = 0; !found && i < sizeof(variables) / sizeof(*variables); i++)
		found = getenv(variables[i]) ? variables[i] : NULL;
	if (!found)
		return;
	doctor_is(finding, DOCTOR_NOTE, "%s=%.100s limits the GPU for HAMi or its kin", found, getenv(found));
	doctor_so(
	    finding,
	    "its library stands in front of the driver as Spillway does, and counts what the driver is asked for; "
	    "the two have not been tried together");
	doctor_fix(finding, "spillway run --set device.budget=LIMIT ...   # with a LIMIT below that one");
}

/* Environment variables by which a tool injects its code into a program. */
static const struct {
	const char *variable, *who;
} injections[] = {
    {"CUDA_INJECTION64_PATH", "a profiler (CUPTI)"},
    {"NVTX_INJECTION64_PATH", "an NVTX tool"},
    {"NSYS_PROFILING_SESSION_ID", "Nsight Systems"},
};

static void neighbour_cupti(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	char text[300] = "";

	(void)doctor;
	(void)device;
	for (size_t i = 0; i < sizeof(injections) / sizeof(*injections); i++) {
		const char *value = getenv(injections[i].variable);
		size_t length = strlen(text);

		if (value && *value)
			snprintf(text + length, sizeof(text) - length, "%s%s (%s)", length ? ", " : "",
				 injections[i].who, injections[i].variable);
	}
	if (!*text) {
		doctor_is(finding, DOCTOR_OK, "none is set up here");
		return;
	}
	doctor_is(finding, DOCTOR_NOTE, "%s", text);
	doctor_so(
	    finding,
	    "before CUDA 13.3 only one subscriber of CUPTI gets in: Spillway leaves it to the profiler and counts "
	    "page faults by other means; figures of time include the profiler's");
	doctor_fix(finding, "leave the profiler out where it is not wanted");
}

static const struct doctor_check checks[] = {
    {"neighbour.mps", "MPS", neighbour_mps},
    {"neighbour.mig", "MIG", neighbour_mig},
    {"neighbour.vgpu", "vGPU", neighbour_vgpu},
    {"neighbour.limits", "limits of others", neighbour_limits},
    {"neighbour.profiler", "CUPTI subscribers", neighbour_cupti},
};
const struct doctor_subject doctor_neighbour = {"neighbours", false, checks, sizeof(checks) / sizeof(*checks)};
