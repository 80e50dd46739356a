// SPDX-License-Identifier: Apache-2.0
/*
 * doctor_host.c: checks how much host memory is available for spilled memory and which limits apply; then the system,
 * its C library, and containers.
 */
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include "shim/base/hostmem.h"
#include "tools/doctor/doctor.h"
#include "tools/common/elf_file.h"
#include "tools/common/units.h"

#define GIB ((uint64_t)1 << 30)
/* Most jobs that need Spillway lack more memory than this. */
#define HOST_LEAST GIB
/* PyTorch's data loaders and NCCL fill the default size in containers (64 MiB). */
#define SHM_LEAST GIB

static void memory_host(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct hostmem memory = hostmem_read(doctor->root);
	uint64_t budget = hostmem_default_budget(&memory);

	if (!memory.total) {
		doctor_is(finding, DOCTOR_UNKNOWN, "/proc/meminfo cannot be read");
		return;
	}
	doctor_is(finding, budget < HOST_LEAST ? DOCTOR_NOTE : DOCTOR_OK,
		  "%s, %s available; host.budget is %s unless set", text_bytes(memory.total),
		  text_bytes(memory.available), text_bytes(budget));
}

/*
 * Processes share a host budget through a file in a folder (shim/accounting/quota.h). Containers usually have a
 * /dev/shm of their own: each then takes half of the machine's memory, and nothing inside a container shows that
 * another exists. A limit makes that harmless.
 */
static void say_unlimited_container(const struct doctor *doctor, struct doctor_finding *finding)
{
	if (!doctor_is_container(doctor))
		return;
	finding->status = DOCTOR_NOTE;
	doctor_so(finding,
		  "a container without a limit of its own: host.total is handed out again in each container that does "
		  "not see the same /dev/shm");
	doctor_fix(finding,
		   "docker run --memory ...   # Kubernetes: resources.limits.memory; or share the folder: --ipc=host, "
		   "-v /dev/shm:/dev/shm, a hostPath volume; or set host.total in the policy");
}

static void memory_cgroup(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct hostmem memory = hostmem_read(doctor->root);

	if (memory.cgroup_headroom == UINT64_MAX) {
		doctor_is(finding, DOCTOR_OK, "no limit");
		say_unlimited_container(doctor, finding);
		return;
	}
	doctor_is(finding, DOCTOR_OK, "%s left below its limit", text_bytes(memory.cgroup_headroom));
	if (memory.total && memory.cgroup_headroom < memory.available)
		finding->status = DOCTOR_NOTE;
}

/* Reads a soft limit in /proc/self/limits; UINT64_MAX: unlimited. Returns false if it is not found. */
static bool limit_of(const struct doctor *doctor, const char *name, uint64_t *ret_limit)
{
	char text[4096], *line, *end;

	if (!doctor_read(doctor, "/proc/self/limits", text, sizeof(text)) || !(line = strstr(text, name)))
		return false;
	line += strlen(name);
	line += strspn(line, " ");
	if (strncmp(line, "unlimited", 9) == 0) {
		*ret_limit = UINT64_MAX;
		return true;
	}
	*ret_limit = strtoull(line, &end, 10);
	return end != line;
}

static void memory_locked(const struct doctor *doctor, struct doctor_finding *finding)
{
	uint64_t limit;

	if (!limit_of(doctor, "Max locked memory", &limit))
		doctor_is(finding, DOCTOR_UNKNOWN, "/proc/self/limits cannot be read");
	else
		doctor_is(finding, limit < GIB ? DOCTOR_NOTE : DOCTOR_OK, "%s",
			  limit == UINT64_MAX ? "unlimited" : text_bytes(limit));
}

static void address_space(const struct doctor *doctor, struct doctor_finding *finding)
{
	uint64_t limit;

	if (!limit_of(doctor, "Max address space", &limit))
		return;
	if (limit == UINT64_MAX)
		doctor_is(finding, DOCTOR_OK, "unlimited");
	else
		doctor_is(finding, DOCTOR_PROBLEM, "limited to %s", text_bytes(limit));
}

/* ---- /dev/shm ---- */

static uint64_t size_option(const char *options)
{
	const char *at = strstr(options, "size=");
	char *unit;

	if (!at)
		return 0;
	uint64_t size = strtoull(at + 5, &unit, 10);
	return *unit == 'k' ? size << 10 : *unit == 'm' ? size << 20 : *unit == 'g' ? size << 30 : size;
}

/* Each line is "device place type options ..."; the last mount at the place counts. */
static bool mount_options(const struct doctor *doctor, const char *place, char *ret_options, size_t room)
{
	static char text[1 << 16];
	bool found = false;

	if (!doctor_read(doctor, "/proc/self/mounts", text, sizeof(text)))
		return false;
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char where[256], options[512];

		if (sscanf(line, "%*s %255s %*s %511s", where, options) != 2 || strcmp(where, place) != 0)
			continue;
		snprintf(ret_options, room, "%s", options);
		found = true;
	}
	return found;
}

static bool has_option(const char *options, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = options; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, word, length) == 0 && (!at[length] || at[length] == ','))
			return true;
	}
	return false;
}

static void memory_shm(const struct doctor *doctor, struct doctor_finding *finding)
{
	char options[512], free_part[64] = "";
	struct statvfs volume;
	uint64_t size;

	if (!mount_options(doctor, "/dev/shm", options, sizeof(options))) {
		doctor_is(finding, DOCTOR_NOTE, "nothing is mounted at /dev/shm");
		doctor_advise(finding, "programs that share memory (loaders of PyTorch, NCCL) fail or are slow",
			      "mount -t tmpfs -o size=8g tmpfs /dev/shm   # docker run --shm-size=8g");
		return;
	}
	size = size_option(options);
	if (!*doctor->root && statvfs("/dev/shm", &volume) == 0) {
		size = (uint64_t)volume.f_blocks * volume.f_frsize;
		snprintf(free_part, sizeof(free_part), ", %s free",
			 text_bytes((uint64_t)volume.f_bavail * volume.f_frsize));
	}
	doctor_is(finding, DOCTOR_OK, "%s%s%s", size ? text_bytes(size) : "of the default size", free_part,
		  has_option(options, "noexec") ? ", noexec" : "");
	if (has_option(options, "ro")) {
		finding->status = DOCTOR_NOTE;
		doctor_advise(finding, "it is read-only: programs that share memory fail",
			      "mount -o remount,rw /dev/shm");
	} else if (size && size < SHM_LEAST) {
		finding->status = DOCTOR_NOTE;
		doctor_advise(finding,
			      "loaders of PyTorch and NCCL fail with a bus error or \"no space left\" when it is full",
			      "docker run --shm-size=8g ...   # or mount -o remount,size=8g /dev/shm");
	} else if (has_option(options, "noexec")) {
		finding->status = DOCTOR_NOTE;
		doctor_advise(finding, "programs that put code they compile there fail; Spillway does not",
			      "mount -o remount,exec /dev/shm   # as root, if a program asks for it");
	}
}

static const struct doctor_check memory_checks[] = {
    {"memory.host", "host memory", memory_host, "no more than that can be spilled; what is over is out of memory",
     "free host memory, or raise the limit of the cgroup"},
    {"memory.cgroup", "cgroup", memory_cgroup,
     "that is less than the machine has; host.budget keeps below it unless it is set, and a job that "
     "exceeds it is killed",
     "docker run --memory ..., systemd MemoryMax= or Slurm --mem: ask for what the job spills"},
    {"memory.locked", "locked memory", memory_locked,
     "memory registered for RDMA (NCCL over InfiniBand) or locked by mlock is limited to it; what "
     "the driver pins for Spillway is not, as far as is known",
     "ulimit -l unlimited   # docker run --ulimit memlock=-1"},
    {"memory.addresses", "address space", address_space,
     "CUDA reserves far more addresses than there is memory, and does not start under such a limit",
     "ulimit -v unlimited"},
    {"memory.shm", "/dev/shm", memory_shm, NULL, NULL},
};
const struct doctor_subject doctor_memory = DOCTOR_SUBJECT("memory", false, memory_checks);

/* ---- the system ---- */

enum { AUDIT_GLIBC = 2035 }; /* the first version with which --audit sees everything: shim/entry/audit.c */

static void system_name(const struct doctor *doctor, struct doctor_finding *finding)
{
	char kernel[256], release[4096], name[128] = "", *at;
	struct utsname here;

	if (uname(&here) != 0)
		return;
	if (doctor_read(doctor, "/etc/os-release", release, sizeof(release)) &&
	    (at = strstr(release, "PRETTY_NAME="))) {
		at += strlen("PRETTY_NAME=");
		at += *at == '"';
		snprintf(name, sizeof(name), "%.*s, ", (int)strcspn(at, "\"\n"), at);
	}
	if (!doctor_read(doctor, "/proc/sys/kernel/osrelease", kernel, sizeof(kernel)))
		snprintf(kernel, sizeof(kernel), "%s", here.release);
	doctor_is(finding, DOCTOR_OK, "%sLinux %s, %s", name, kernel, here.machine);
}

static void system_container(const struct doctor *doctor, struct doctor_finding *finding)
{
	const char *visible = getenv("NVIDIA_VISIBLE_DEVICES"), *able = getenv("NVIDIA_DRIVER_CAPABILITIES");

	if (!doctor_is_container(doctor)) {
		doctor_is(finding, DOCTOR_OK, "none is seen");
	} else if (visible && (strcmp(visible, "void") == 0 || strcmp(visible, "none") == 0)) {
		doctor_is(finding, DOCTOR_PROBLEM, "yes, with NVIDIA_VISIBLE_DEVICES=%s", visible);
		doctor_advise(finding, "the container was given no GPU",
			      "docker run --gpus all ...   # or -e NVIDIA_VISIBLE_DEVICES=all --runtime=nvidia");
	} else if (able && *able && !strstr(able, "compute") && !strstr(able, "all")) {
		doctor_is(finding, DOCTOR_PROBLEM, "yes, with NVIDIA_DRIVER_CAPABILITIES=%.200s", able);
		doctor_advise(finding, "libcuda.so.1 was not put into the container",
			      "docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...");
	} else {
		doctor_is(finding, DOCTOR_OK, "yes; Spillway must run in it, as it does now");
	}
}

/* ---- the C library ---- */

/* Finds "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36." in the file. */
static int version_in_file(const struct doctor *doctor)
{
	static const char *const places[] = {"/lib/x86_64-linux-gnu/libc.so.6",
					     "/lib/aarch64-linux-gnu/libc.so.6",
					     "/usr/lib/x86_64-linux-gnu/libc.so.6",
					     "/lib64/libc.so.6",
					     "/usr/lib64/libc.so.6",
					     "/usr/lib/libc.so.6"};
	static const char phrase[] = "release version ";
	static char bytes[4 << 20];
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		FILE *file = doctor_path(doctor, places[i], path) ? fopen(path, "re") : NULL;
		size_t n = file ? fread(bytes, 1, sizeof(bytes) - 1, file) : 0;

		if (file)
			fclose(file);
		bytes[n] = '\0';
		const char *at = memmem(bytes, n, phrase, sizeof(phrase) - 1);
		int major, minor;
		if (at && sscanf(at + sizeof(phrase) - 1, "%4d.%3d", &major, &minor) == 2)
			return major * 1000 + minor;
	}
	return 0;
}

/*
 * Returns the version of this process's C library, or that of the machine below the root; 0: not glibc, or not found.
 */
static int version_here(const struct doctor *doctor)
{
	int major, minor;

	if (*doctor->root)
		return version_in_file(doctor);
	return sscanf(gnu_get_libc_version(), "%4d.%3d", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

static void system_glibc(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct elf_file *library = *doctor->found_library ? elf_open(doctor->found_library) : NULL;
	int here = version_here(doctor), needs = library ? elf_needs_version(library, "GLIBC_") : 0;

	elf_close(library);
	if (!here)
		doctor_is(finding, DOCTOR_UNKNOWN, "no glibc is found");
	else if (here < needs)
		doctor_is(finding, DOCTOR_PROBLEM, "%d.%d; libspillway.so was built for %d.%d or newer", here / 1000,
			  here % 1000, needs / 1000, needs % 1000);
	else
		doctor_is(finding, DOCTOR_OK, "%d.%d%s", here / 1000, here % 1000,
			  here < AUDIT_GLIBC ? "; --audit needs 2.35" : "");
}

static const struct doctor_check system_checks[] = {
    {"system.name", "system", system_name, NULL, NULL},
    {"system.glibc", "glibc", system_glibc, "the loader refuses it, and programs run without Spillway or not at all",
     "make   # on this system, or on one as old"},
    {"system.container", "container", system_container, NULL, NULL},
};
const struct doctor_subject doctor_system = DOCTOR_SUBJECT("system", false, system_checks);
