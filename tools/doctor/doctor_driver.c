// SPDX-License-Identifier: Apache-2.0
/*
 * doctor_driver.c: checks the kernel module of the driver, its device nodes, and the library libcuda.so.1.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

/* Finds the version: the first word of the line that begins with digits and contains a dot. */
static bool find_version(const char *text, char *ret_version, size_t room)
{
	for (const char *c = text; *c && *c != '\n'; c++) {
		size_t n = strspn(c, "0123456789.");
		bool begins = c == text || isspace((unsigned char)c[-1]);

		if (begins && n > 2 && memchr(c, '.', n) && n < room) {
			snprintf(ret_version, room, "%.*s", (int)n, c);
			return true;
		}
	}
	return false;
}

static bool kernel_version(const struct doctor *doctor, char *ret_version, size_t room)
{
	char text[512];

	return doctor_read(doctor, "/proc/driver/nvidia/version", text, sizeof(text)) &&
	       find_version(text, ret_version, room);
}

static bool is_wsl(const struct doctor *doctor)
{
	return doctor_exists(doctor, "/dev/dxg");
}

static void doctor_driver_kernel(const struct doctor *doctor, struct doctor_finding *finding)
{
	bool works = doctor->cuda.stage >= DOCTOR_STARTED && doctor->cuda.init == 0;
	char text[512], version[64];

	if (is_wsl(doctor)) {
		doctor_is(finding, DOCTOR_NOTE, "that of Windows, through /dev/dxg (WSL)");
		doctor_so(finding, "Spillway has not been tried there");
	} else if (doctor_read(doctor, "/proc/driver/nvidia/version", text, sizeof(text))) {
		if (find_version(text, version, sizeof(version)))
			doctor_is(finding, DOCTOR_OK, "%s%s", version,
				  strstr(text, "Open Kernel Module") ? ", open kernel module" : "");
		else
			doctor_is(finding, DOCTOR_UNKNOWN, "loaded, but its version cannot be read");
	} else if (works) {
		doctor_is(finding, DOCTOR_UNKNOWN, "there is no /proc/driver/nvidia/version, and yet the driver works");
	} else {
		doctor_is(finding, DOCTOR_PROBLEM, "not loaded: there is no /proc/driver/nvidia/version");
		if (doctor_is_container(doctor))
			doctor_fix(finding, "install the driver on the host of this container, and load it there");
		else
			doctor_fix(finding, "modprobe nvidia   # after the driver has been installed");
	}
}

static void doctor_driver_library(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_cuda *cuda = &doctor->cuda;

	if (cuda->stage == DOCTOR_NOT_ASKED && cuda->end == DOCTOR_ENDED) {
		doctor_is(finding, DOCTOR_PROBLEM, "libcuda.so.1 cannot be opened: %s", cuda->load_error);
		if (doctor_is_container(doctor))
			doctor_fix(finding, "docker run --gpus all ...   # with the NVIDIA Container Toolkit on the "
					    "host");
		else
			doctor_fix(finding, "install the user-space part of the driver (Debian: apt-get install "
					    "libcuda1)");
	} else if (strstr(cuda->path, "/stubs/")) {
		doctor_is(finding, DOCTOR_PROBLEM, "%s, a stub to link with", cuda->path);
		doctor_advise(finding, "every CUDA call fails",
			      "take the Toolkit's folder \"stubs\" out of LD_LIBRARY_PATH");
	} else {
		doctor_is(finding, DOCTOR_OK, "%s", *cuda->path ? cuda->path : "it is there");
	}
}

static void same_version(const struct doctor *doctor, struct doctor_finding *finding)
{
	char version[64];
	const char *tail = strstr(doctor->cuda.path, "libcuda.so.");

	/* The library's real name ends with its version: libcuda.so.580.159. */
	if (!tail || !strchr(tail + 11, '.') || !kernel_version(doctor, version, sizeof(version)))
		return;
	/* The forward-compatible library of a Toolkit is newer on purpose. */
	if (strcmp(tail + 11, version) == 0 || strstr(doctor->cuda.path, "/compat/")) {
		doctor_is(finding, DOCTOR_OK, "%s", tail + 11);
	} else {
		doctor_is(finding, DOCTOR_PROBLEM, "libcuda is %s, the kernel has %s", tail + 11, version);
	}
}

/* Results of cuInit and their fixes. */
static const struct {
	int error;
	const char *so, *fix;
} init_errors[] = {
    {34, "libcuda.so.1 is a stub to link with", "take the Toolkit's folder \"stubs\" out of LD_LIBRARY_PATH"},
    {46, "another process has the GPU for itself", "nvidia-smi -c DEFAULT   # as root"},
    {100, "the driver shows this process no GPU",
     "look at CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES, then at `nvidia-smi -L`"},
    {101, "CUDA_VISIBLE_DEVICES or a MIG slice names what is not there", "nvidia-smi -L   # and name one of these"},
    {802, "on machines with NVSwitch the fabric manager must run",
     "systemctl start nvidia-fabricmanager   # of the driver's version"},
    {803, "libcuda and the kernel's driver are of different versions", "reboot   # after an update of the driver"},
    {804, "the forward-compatible libcuda does not work with this GPU",
     "take the Toolkit's folder \"compat\" out of LD_LIBRARY_PATH"},
    {805, "the MPS server does not answer", "nvidia-cuda-mps-control -d   # or unset CUDA_MPS_PIPE_DIRECTORY"},
    {999, "often the module nvidia-uvm is missing, or in a bad state after suspend",
     "modprobe -r nvidia_uvm; modprobe nvidia_uvm   # as root; then look at dmesg"},
};

static void doctor_driver_start(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_cuda *cuda = &doctor->cuda;

	if (cuda->end == DOCTOR_HUNG && cuda->stage < DOCTOR_LOOKED) {
		doctor_is(finding, DOCTOR_PROBLEM, "the driver does not answer (see --timeout)");
		doctor_advise(finding, "programs that use CUDA hang here",
			      "dmesg | grep -i -e nvrm -e xid   # a GPU that has failed needs a reset or a reboot");
	} else if (cuda->end == DOCTOR_CRASHED && cuda->stage < DOCTOR_LOOKED) {
		doctor_is(finding, DOCTOR_PROBLEM, "the driver crashed while it was asked");
		doctor_advise(finding, "programs that use CUDA crash here",
			      "dmesg | grep -i -e nvrm -e xid   # then install the driver again");
	} else if (cuda->stage < DOCTOR_STARTED) {
		return;
	} else if (cuda->init == 0) {
		doctor_is(finding, DOCTOR_OK, "cuInit succeeds");
	} else {
		doctor_is(finding, DOCTOR_PROBLEM, "cuInit answers %s (%d)", cuda->init_name, cuda->init);
		for (size_t i = 0; i < sizeof(init_errors) / sizeof(*init_errors); i++) {
			if (init_errors[i].error != cuda->init)
				continue;
			doctor_so(finding, "no program can use a GPU here: %s", init_errors[i].so);
			doctor_fix(finding, "%s", init_errors[i].fix);
		}
	}
}

static void driver_version(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_cuda *cuda = &doctor->cuda;

	if (cuda->stage < DOCTOR_LOADED)
		return;
	if (!cuda->version) {
		doctor_is(finding, DOCTOR_UNKNOWN, "the driver does not say");
		return;
	}
	doctor_is(finding, DOCTOR_OK, "%d.%d", cuda->version / 1000, cuda->version % 1000 / 10);
	if (!cuda->has_vmm) {
		finding->status = DOCTOR_PROBLEM;
		doctor_more(finding, ": no virtual memory management");
		doctor_so(finding, "there is no heap: everything is passed through, nothing can spill");
	} else if (!cuda->has_moves) {
		finding->status = DOCTOR_NOTE;
		doctor_more(finding, ": older than 12.5");
	}
}

static void driver_devices(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_cuda *cuda = &doctor->cuda;

	if (cuda->stage < DOCTOR_LOOKED)
		return;
	if (cuda->n_devices == 0) {
		doctor_is(finding, DOCTOR_PROBLEM, "none");
	} else if (cuda->n_devices > DOCTOR_DEVICES) {
		doctor_is(finding, DOCTOR_OK, "%d; the first %d were looked at", cuda->n_devices, DOCTOR_DEVICES);
	} else {
		doctor_is(finding, DOCTOR_OK, "%d", cuda->n_devices);
	}
}

static const struct doctor_check driver_checks[] = {
    {"driver.kernel", "kernel module", doctor_driver_kernel, "no program can use a GPU here", NULL},
    {"driver.library", "libcuda.so.1", doctor_driver_library, "no program can use a GPU here", NULL},
    {"driver.same", "one version", same_version, "no program can use a GPU here until both are of one version",
     "reboot   # after an update of the driver; in a container, start it again"},
    {"driver.start", "start", doctor_driver_start, "no program can use a GPU here", "dmesg | grep -i -e nvrm -e xid"},
    /* Migration needs 12.5; shim/mover/spill.c looks up two functions of it. */
    {"driver.cuda", "CUDA version", driver_version, "what is spilled does not move: exact and fast behave like static",
     "install a driver for CUDA 12.5 or newer (555 or newer)"},
    {"driver.devices", "devices", driver_devices, "no program can use a GPU here",
     "look at CUDA_VISIBLE_DEVICES, then at `nvidia-smi -L`"},
};
const struct doctor_subject doctor_driver = DOCTOR_SUBJECT("driver", false, driver_checks);

/* ---- device nodes ---- */

/* Returns 0, or the errno for which the node cannot be used. Below a root, only its existence is checked. */
static int node_error(const struct doctor *doctor, const char *path)
{
	char full[PATH_MAX];

	if (!doctor_path(doctor, path, full))
		return ENAMETOOLONG;
	return access(full, *doctor->root ? F_OK : R_OK | W_OK) == 0 ? 0 : errno;
}

/* status: what it is if the node cannot be used. make: the options of nvidia-modprobe that make it. */
static const struct {
	const char *id, *path, *make;
	enum doctor_status status;
} nodes[] = {
    {"nodes.control", "/dev/nvidiactl", "-c 0", DOCTOR_PROBLEM},
    {"nodes.uvm", "/dev/nvidia-uvm", "-u", DOCTOR_PROBLEM},
    {"nodes.uvm_tools", "/dev/nvidia-uvm-tools", "-u -c 0", DOCTOR_NOTE},
};

static void one_node(const struct doctor *doctor, struct doctor_finding *finding)
{
	size_t i = 0;
	char version[64];

	while (strcmp(nodes[i].id, finding->id) != 0)
		i++;
	int error = node_error(doctor, nodes[i].path);
	/* Without a driver no nodes are expected. */
	if (is_wsl(doctor) || (!kernel_version(doctor, version, sizeof(version)) && error))
		return;
	if (!error) {
		doctor_is(finding, DOCTOR_OK, "there");
		return;
	}
	doctor_is(finding, nodes[i].status, "%s: %s", nodes[i].path, strerror(error));
	if (error != ENOENT)
		doctor_fix(finding, "chmod a+rw %s   # as root; or join the group that owns it", nodes[i].path);
	else if (doctor_is_container(doctor))
		doctor_fix(finding, "docker run --gpus all --device %s ...", nodes[i].path);
	else
		doctor_fix(finding, "nvidia-modprobe %s   # as root", nodes[i].make);
}

static void gpu_nodes(const struct doctor *doctor, struct doctor_finding *finding)
{
	char version[64], cards[32] = "";
	size_t n_known = doctor_count_files(doctor, "/proc/driver/nvidia/gpus/*");
	size_t n_nodes = doctor_count_files(doctor, "/dev/nvidia[0-9]*");

	if (is_wsl(doctor) || !kernel_version(doctor, version, sizeof(version)))
		return;
	if (n_known)
		snprintf(cards, sizeof(cards), " of %zu", n_known);
	if (n_nodes || node_error(doctor, "/dev/nvidiactl") == ENOENT) {
		if (n_nodes)
			doctor_is(finding, DOCTOR_OK, "%zu%s", n_nodes, cards);
		return;
	}
	doctor_is(finding, DOCTOR_PROBLEM, "there is no /dev/nvidia0, or another");
	doctor_so(finding, "the driver is loaded, but no GPU was given to this %s",
		  doctor_is_container(doctor) ? "container" : "machine");
	if (doctor_is_container(doctor))
		doctor_fix(finding, "docker run --gpus all ...   # or --device /dev/nvidia0");
	else
		doctor_fix(finding, "nvidia-modprobe -c 0   # as root");
}

#define UNREACHED "the driver is loaded, but programs here cannot reach it: cuInit fails"
static const struct doctor_check node_checks[] = {
    {"nodes.control", "/dev/nvidiactl", one_node, UNREACHED, NULL},
    {"nodes.gpu", "/dev/nvidia*", gpu_nodes, NULL, NULL},
    {"nodes.uvm", "/dev/nvidia-uvm", one_node, UNREACHED, NULL},
    {"nodes.uvm_tools", "uvm-tools", one_node, "the driver's counts of page faults and migrations cannot be read",
     NULL},
};
const struct doctor_subject doctor_nodes = DOCTOR_SUBJECT("device nodes", false, node_checks);
