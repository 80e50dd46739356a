// SPDX-License-Identifier: Apache-2.0
/*
 * doctor_preload.c: checks the library, its settings, and what else stands in front of the driver or shares the GPU:
 * preloaded libraries, MPS, MIG, profilers.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/policy.h"
#include "tools/doctor/doctor.h"
#include "tools/common/elf_file.h"
#include "tools/common/library.h"

static void preload_library(const struct doctor *doctor, struct doctor_finding *finding)
{
	if (!*doctor->found_library) {
		doctor_is(finding, DOCTOR_PROBLEM, "libspillway.so is not found, or cannot be preloaded (see above)");
		doctor_advise(finding, "`spillway run` cannot start anything",
			      "spillway run --library /path/to/libspillway.so ...   # or install it: make install");
		return;
	}
	bool is_ours = library_is_ours(doctor->found_library);
	doctor_is(finding, is_ours ? DOCTOR_OK : DOCTOR_PROBLEM, "%s%s", doctor->found_library,
		  is_ours ? "" : " is not Spillway's library for this machine");
	if (is_ours)
		return;
	doctor_advise(finding, "programs run without Spillway", "spillway doctor --library /path/to/libspillway.so");
}

static void preload_audit(const struct doctor *doctor, struct doctor_finding *finding)
{
	int folder = *doctor->found_library ? (int)(strrchr(doctor->found_library, '/') - doctor->found_library) : 0;
	char path[PATH_MAX];

	if (!*doctor->found_library || snprintf(path, sizeof(path), "%.*s/libspillway-audit.so", folder,
						doctor->found_library) >= (int)sizeof(path))
		return;
	if (access(path, R_OK) == 0)
		doctor_is(finding, DOCTOR_OK, "libspillway-audit.so lies beside it");
	else
		doctor_is(finding, DOCTOR_NOTE, "no libspillway-audit.so beside the library");
}

static void preload_off(const struct doctor *doctor, struct doctor_finding *finding)
{
	const char *value = getenv("SPILLWAY");

	(void)doctor;
	if (value && strcmp(value, "0") == 0)
		doctor_is(finding, DOCTOR_PROBLEM, "SPILLWAY=0 is set");
}

/* Warnings may precede the first error. */
static const char *first_error(const struct policy_errors *errors, char *line, size_t room)
{
	for (size_t i = 0; i < errors->n_kept; i++)
		if (!errors->kept[i].warning)
			return policy_error_format(&errors->kept[i], line, room);
	return "it has errors";
}

/* A machine's policy that is refused is a warning to all who read a policy. */
static void look_at_machine(const struct policy_errors *errors, struct doctor_finding *finding)
{
	for (size_t i = 0; i < errors->n_kept; i++) {
		const struct policy_error *problem = &errors->kept[i];

		if (strcmp(problem->file, policy_machine_path) != 0 || problem->line)
			continue;
		finding->status = DOCTOR_NOTE;
		doctor_so(finding, "%s: %.400s", policy_machine_path, problem->text);
		doctor_fix(finding, "chown -R root: /etc/spillway && chmod -R go-w /etc/spillway   # as root");
		return;
	}
}

static void preload_policy(const struct doctor *doctor, struct doctor_finding *finding)
{
	const char *name = getenv("SPILLWAY_POLICY"), *set = getenv("SPILLWAY_SET");
	char line[sizeof(struct policy_error) + 64];
	struct policy_errors errors;
	struct policy *read = policy_read(name, set, &errors);

	(void)doctor;
	if (read) {
		bool named = name && *name, is_heap = policy_is_builtin(read);

		doctor_is(finding, DOCTOR_OK, "%.200s%s%s%.300s", policy_name(read),
			  named     ? ""
			  : is_heap ? " (no other is set)"
				    : " (the machine's; no other is set)",
			  set && *set ? " with " : "", set && *set ? set : "");
		look_at_machine(&errors, finding);
	} else {
		doctor_is(finding, DOCTOR_PROBLEM, "%.500s", first_error(&errors, line, sizeof(line)));
		doctor_fix(finding, "spillway check %.200s   # prints all of it", name && *name ? name : "FILE");
	}
	policy_free(read);
	policy_errors_free(&errors);
}

static void preload_visible(const struct doctor *doctor, struct doctor_finding *finding)
{
	const char *value = getenv("CUDA_VISIBLE_DEVICES");

	(void)doctor;
	if (value)
		doctor_is(finding, *value && strncmp(value, "-1", 2) != 0 ? DOCTOR_OK : DOCTOR_PROBLEM,
			  "CUDA_VISIBLE_DEVICES=%.200s", value);
}

/* Returns whether a file or folder at the path would be refused by shim/base/user_dir.h. text says why. */
static bool is_bad_folder(const struct doctor *doctor, const char *path, char text[300])
{
	char full[PATH_MAX];
	struct stat status;
	const char *why = NULL;

	if (!doctor_path(doctor, path, full) || lstat(full, &status) != 0)
		return false;
	if (!S_ISDIR(status.st_mode))
		why = "is no folder";
	else if (status.st_uid != geteuid())
		why = "belongs to somebody else";
	else if (status.st_mode & 077)
		why = "is open to others";
	if (why)
		snprintf(text, 300, "%.250s %s", path, why);
	return why != NULL;
}

static void preload_runtime(const struct doctor *doctor, struct doctor_finding *finding)
{
	const char *folder = getenv("XDG_RUNTIME_DIR");
	char places[3][PATH_MAX] = {""}, text[300];

	if (folder && *folder == '/')
		snprintf(places[0], PATH_MAX, "%s/spillway", folder);
	snprintf(places[1], PATH_MAX, "/dev/shm/spillway-%u", (unsigned)geteuid());
	snprintf(places[2], PATH_MAX, "/tmp/spillway-%u", (unsigned)geteuid());
	doctor_is(finding, DOCTOR_OK, "below %.200s",
		  *places[0] ? folder : "/dev/shm and /tmp (XDG_RUNTIME_DIR is not set)");
	for (int i = 0; i < 3; i++) {
		if (!*places[i] || !is_bad_folder(doctor, places[i], text))
			continue;
		doctor_is(finding, DOCTOR_NOTE, "%s", text);
		doctor_fix(finding, "rm -r %.250s   # or chmod 700; as its owner", places[i]);
	}
}

/* ---- other preloaded libraries ---- */

/* The driver's names have "cu" and a capital letter, unlike cuDNN's. */
static bool is_driver_name(const char *name)
{
	return isupper((unsigned char)name[2]);
}

/* A file that does not exist; a library that also replaces driver functions. */
struct other {
	bool missing, clashes;
};

static void look_at_other(const struct doctor *doctor, const char *path, struct other *other,
			  struct doctor_finding *finding)
{
	char full[PATH_MAX];
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *name;
	struct elf_file *file = NULL;

	/* Under `spillway run` this is Spillway's own library. */
	if (strcmp(base, "libspillway.so") == 0 || strcmp(base, "libspillway-audit.so") == 0)
		return;
	doctor_more(finding, "%s%s", *finding->fact ? "; " : "", path);
	if (strchr(path, '/') && doctor_path(doctor, path, full)) {
		if (access(full, R_OK) != 0) {
			other->missing = true;
			doctor_more(finding, ": cannot be read");
		}
		file = elf_open(full);
	}
	name = file ? elf_defines_prefix(file, "cu", is_driver_name) : NULL;
	if (file && !name && elf_defines(file, "dlsym"))
		name = "dlsym";
	if (name) {
		other->clashes = true;
		doctor_more(finding, ": has a %.60s of its own", name);
	}
	elf_close(file);
}

static void look_at_list(const struct doctor *doctor, const char *list, struct other *other,
			 struct doctor_finding *finding)
{
	char *copy = strdup(list ? list : ""), *rest = copy, *path;

	while (copy && (path = strsep(&rest, ": \t\n")))
		if (*path)
			look_at_other(doctor, path, other, finding);
	free(copy);
}

static void preload_others(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct other other = {0};
	char list[4096];

	look_at_list(doctor, getenv("LD_PRELOAD"), &other, finding);
	if (doctor_read(doctor, "/etc/ld.so.preload", list, sizeof(list)))
		look_at_list(doctor, list, &other, finding);
	if (!*finding->fact)
		doctor_more(finding, "none");
	finding->status = other.clashes || other.missing ? DOCTOR_NOTE : DOCTOR_OK;
	if (other.clashes) {
		doctor_advise(finding,
			      "it stands in front of the driver as Spillway does: of both, the one that comes first is "
			      "asked first, and may hide what the other should see",
			      "env -u LD_PRELOAD spillway run ...   # or look with `spillway doctor -- PROGRAM`");
	} else if (other.missing) {
		doctor_advise(finding, "the loader says so at the start of every program, and goes on",
			      "unset LD_PRELOAD   # or take the file out of /etc/ld.so.preload");
	}
}

static void preload_audits(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_finding found = {0};

	look_at_list(doctor, getenv("LD_AUDIT"), &(struct other){0}, &found);
	if (*found.fact)
		doctor_is(finding, DOCTOR_NOTE, "LD_AUDIT: %s", found.fact);
}

static const struct doctor_check preload_checks[] = {
    {"preload.library", "library", preload_library, NULL, NULL},
    {"preload.audit", "audit library", preload_audit,
     "`spillway run --audit` cannot be used: libraries opened with RTLD_DEEPBIND or by dlmopen are "
     "not seen",
     "make install   # puts both in one place"},
    {"preload.off", "switched off", preload_off, "the library does nothing at all", "unset SPILLWAY"},
    {"preload.policy", "policy", preload_policy,
     "`spillway run` starts nothing; a program that has the library passes everything to the "
     "driver",
     NULL},
    {"preload.runtime", "runtime folder", preload_runtime,
     "Spillway does not use it: running processes may not be seen or suspended from outside", NULL},
    {"preload.visible", "GPUs hidden", preload_visible, "it hides every GPU from programs started here",
     "unset CUDA_VISIBLE_DEVICES"},
    {"preload.others", "other preloads", preload_others, NULL, NULL},
    {"preload.audits", "other audits", preload_audits, "it may lead calls of the driver elsewhere than to Spillway",
     "unset LD_AUDIT   # or look with `spillway doctor -- PROGRAM`"},
};
const struct doctor_subject doctor_preload = DOCTOR_SUBJECT("Spillway", false, preload_checks);

/* ---- other users of the GPU and of its driver ---- */

static void neighbour_mps(const struct doctor *doctor, struct doctor_finding *finding)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY"), *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	char path[PATH_MAX];

	if (!folder || !*folder)
		folder = "/tmp/nvidia-mps";
	if (snprintf(path, sizeof(path), "%s/control", folder) >= (int)sizeof(path) || !doctor_exists(doctor, path)) {
		doctor_is(finding, DOCTOR_OK, "no server is seen in %.200s", folder);
		return;
	}
	doctor_is(finding, DOCTOR_NOTE, "a server has its pipes in %.200s%s%.100s", folder,
		  limit ? ", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" : "", limit ? limit : "");
}

static void neighbour_mig(const struct doctor *doctor, struct doctor_finding *finding)
{
	size_t n = doctor_count_files(doctor, "/proc/driver/nvidia/capabilities/gpu*/mig/gi*");

	if (!n)
		doctor_is(finding, DOCTOR_OK, "no instances");
	else
		doctor_is(finding, DOCTOR_NOTE, "%zu GPU instance%s", n, n == 1 ? "" : "s");
}

/* The driver of a guest with a vGPU brings the settings of its licence. */
static void neighbour_vgpu(const struct doctor *doctor, struct doctor_finding *finding)
{
	if (doctor_exists(doctor, "/etc/nvidia/gridd.conf"))
		doctor_is(finding, DOCTOR_NOTE, "the driver of a guest with a vGPU is seen (/etc/nvidia/gridd.conf)");
}

/* HAMi and what is made of it: a library in front of the driver, with its limits in the environment. */
static void neighbour_limits(const struct doctor *doctor, struct doctor_finding *finding)
{
	static const char *const variables[] = {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0",
						"CUDA_DEVICE_SM_LIMIT"};
	const char *found = NULL;

	(void)doctor;
	for (size_t i = 0; !found && i < sizeof(variables) / sizeof(*variables); i++)
		found = getenv(variables[i]) ? variables[i] : NULL;
	if (found)
		doctor_is(finding, DOCTOR_NOTE, "%s=%.100s limits the GPU for HAMi or its kin", found, getenv(found));
}

/* Environment variables by which a tool injects its code into a program. */
static const struct {
	const char *variable, *who;
} injections[] = {
    {"CUDA_INJECTION64_PATH", "a profiler (CUPTI)"},
    {"NVTX_INJECTION64_PATH", "an NVTX tool"},
    {"NSYS_PROFILING_SESSION_ID", "Nsight Systems"},
};

static void neighbour_cupti(const struct doctor *doctor, struct doctor_finding *finding)
{
	(void)doctor;
	for (size_t i = 0; i < sizeof(injections) / sizeof(*injections); i++) {
		const char *value = getenv(injections[i].variable);

		/* `spillway run` itself names the library as an NVTX tool. */
		if (value && *value && !strstr(value, "/libspillway.so"))
			doctor_more(finding, "%s%s (%s)", *finding->fact ? ", " : "", injections[i].who,
				    injections[i].variable);
	}
	finding->status = DOCTOR_NOTE;
	if (!*finding->fact)
		doctor_is(finding, DOCTOR_OK, "none is set up here");
}

static const struct doctor_check neighbour_checks[] = {
    {"neighbour.mps", "MPS", neighbour_mps,
     "clients share one context: an error that stops one (an access in transit in spill.mode fast) stops "
     "all. Spillway has not been tried under MPS",
     "spillway run --set spill.mode=exact ...   # or end it: echo quit | nvidia-cuda-mps-control"},
    {"neighbour.mig", "MIG", neighbour_mig,
     "a program sees one slice, with the slice's memory; Spillway has not been tried on one",
     "nvidia-smi -L   # names the slices for CUDA_VISIBLE_DEVICES"},
    {"neighbour.vgpu", "vGPU", neighbour_vgpu,
     "a vGPU has a fixed part of the GPU's memory, and not each kind has virtual memory management, without "
     "which nothing can spill; Spillway has not been tried on one",
     "spillway doctor   # says of each GPU whether it has virtual memory management"},
    {"neighbour.limits", "limits of others", neighbour_limits,
     "its library stands in front of the driver as Spillway does, and counts what the driver is asked for; "
     "the two have not been tried together",
     "spillway run --set device.budget=LIMIT ...   # with a LIMIT below that one"},
    {"neighbour.profiler", "CUPTI subscribers", neighbour_cupti,
     "before CUDA 13.3 only one subscriber of CUPTI gets in: Spillway leaves it to the profiler and counts "
     "page faults by other means; figures of time include the profiler's",
     "leave the profiler out where it is not wanted"},
};
const struct doctor_subject doctor_neighbour = DOCTOR_SUBJECT("neighbours", false, neighbour_checks);
