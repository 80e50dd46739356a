/*
 * doctor_system.c: checks the machine, its C library, and containers.
 */
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_container.h"
#include "tools/common/elf_file.h"

enum { AUDIT_GLIBC = 2035 }; /* the first version with which --audit sees everything: shim/entry/audit.c */

static void system_name(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	char kernel[256], release[4096], name[128] = "", *at;
	struct utsname here;

	(void)device;
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

bool doctor_is_container(const struct doctor *doctor)
{
	static const char *const words[] = {"docker", "kubepods", "libpod", "lxc", "containerd"};
	char text[4096];
	struct stat status;

	/*
	 * With cgroups of version 2 there is no other sign inside a container. The first PID namespace has this number
	 * in every kernel.
	 */
	if (!*doctor->root && stat("/proc/self/ns/pid", &status) == 0 && status.st_ino != 0xeffffffc)
		return true;
	if (doctor_exists(doctor, "/.dockerenv") || doctor_exists(doctor, "/run/.containerenv"))
		return true;
	if (!doctor_read(doctor, "/proc/1/cgroup", text, sizeof(text)))
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strstr(text, words[i]))
			return true;
	return false;
}

static void system_container(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const char *visible = getenv("NVIDIA_VISIBLE_DEVICES"), *able = getenv("NVIDIA_DRIVER_CAPABILITIES");

	(void)device;
	if (!doctor_is_container(doctor)) {
		doctor_is(finding, DOCTOR_OK, "none is seen");
	} else if (visible && (strcmp(visible, "void") == 0 || strcmp(visible, "none") == 0)) {
		doctor_is(finding, DOCTOR_PROBLEM, "yes, with NVIDIA_VISIBLE_DEVICES=%s", visible);
		doctor_so(finding, "the container was given no GPU");
		doctor_fix(finding, "docker run --gpus all ...   # or -e NVIDIA_VISIBLE_DEVICES=all --runtime=nvidia");
	} else if (able && *able && !strstr(able, "compute") && !strstr(able, "all")) {
		doctor_is(finding, DOCTOR_PROBLEM, "yes, with NVIDIA_DRIVER_CAPABILITIES=%.200s", able);
		doctor_so(finding, "libcuda.so.1 was not put into the container");
		doctor_fix(finding, "docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...");
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

static void system_glibc(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	struct elf_file *library = *doctor->found_library ? elf_open(doctor->found_library, NULL) : NULL;
	int here = version_here(doctor), needs = library ? elf_needs_version(library, "GLIBC_") : 0;

	(void)device;
	elf_close(library);
	if (!here) {
		doctor_is(finding, DOCTOR_UNKNOWN, "no glibc is found");
	} else if (here < needs) {
		doctor_is(finding, DOCTOR_PROBLEM, "%d.%d; libspillway.so was built for %d.%d or newer", here / 1000,
			  here % 1000, needs / 1000, needs % 1000);
		doctor_so(finding, "the loader refuses it, and programs run without Spillway or not at all");
		doctor_fix(finding, "make   # on this system, or on one as old");
	} else {
		doctor_is(finding, DOCTOR_OK, "%d.%d%s", here / 1000, here % 1000,
			  here < AUDIT_GLIBC ? "; --audit needs 2.35" : "");
	}
}

static const struct doctor_check checks[] = {
    {"system.name", "system", system_name},
    {"system.glibc", "glibc", system_glibc},
    {"system.container", "container", system_container},
};
const struct doctor_subject doctor_system = {"system", false, checks, sizeof(checks) / sizeof(*checks)};
