/*
 * doctor_preload.c: checks the library, its settings, and other preloaded libraries.
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

static void preload_library(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	bool is_ours;

	(void)device;
	if (!*doctor->found_library) {
		doctor_is(finding, DOCTOR_PROBLEM, "libspillway.so is not found, or cannot be preloaded (see above)");
		doctor_so(finding, "`spillway run` cannot start anything");
		doctor_fix(finding,
			   "spillway run --library /path/to/libspillway.so ...   # or install it: make install");
		return;
	}
	is_ours = library_is_ours(doctor->found_library);
	doctor_is(finding, is_ours ? DOCTOR_OK : DOCTOR_PROBLEM, "%s%s", doctor->found_library,
		  is_ours ? "" : " is not Spillway's library for this machine");
	if (is_ours)
		return;
	doctor_so(finding, "programs run without Spillway");
	doctor_fix(finding, "spillway doctor --library /path/to/libspillway.so");
}

static void preload_audit(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	int folder = *doctor->found_library ? (int)(strrchr(doctor->found_library, '/') - doctor->found_library) : 0;
	char path[PATH_MAX];

	(void)device;
	if (!*doctor->found_library || snprintf(path, sizeof(path), "%.*s/libspillway-audit.so", folder,
						doctor->found_library) >= (int)sizeof(path))
		return;
	if (access(path, R_OK) == 0) {
		doctor_is(finding, DOCTOR_OK, "libspillway-audit.so lies beside it");
		return;
	}
	doctor_is(finding, DOCTOR_NOTE, "no libspillway-audit.so beside the library");
	doctor_so(finding,
		  "`spillway run --audit` cannot be used: libraries opened with RTLD_DEEPBIND or by dlmopen are "
		  "not seen");
	doctor_fix(finding, "make install   # puts both in one place");
}

static void preload_off(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const char *value = getenv("SPILLWAY");

	(void)doctor;
	(void)device;
	if (!value || strcmp(value, "0") != 0)
		return;
	doctor_is(finding, DOCTOR_PROBLEM, "SPILLWAY=0 is set");
	doctor_so(finding, "the library does nothing at all");
	doctor_fix(finding, "unset SPILLWAY");
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

static void preload_policy(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const char *name = getenv("SPILLWAY_POLICY"), *set = getenv("SPILLWAY_SET");
	char line[sizeof(struct policy_error) + 64];
	struct policy_errors errors;
	struct policy *read = policy_read(name, set, &errors);

	(void)doctor;
	(void)device;
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
		doctor_so(finding,
			  "`spillway run` starts nothing; a program that has the library passes everything to the "
			  "driver");
		doctor_fix(finding, "spillway check %.200s   # prints all of it", name && *name ? name : "FILE");
	}
	policy_free(read);
	policy_errors_free(&errors);
}

static void preload_visible(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const char *value = getenv("CUDA_VISIBLE_DEVICES");

	(void)doctor;
	(void)device;
	if (!value)
		return;
	doctor_is(finding, DOCTOR_OK, "CUDA_VISIBLE_DEVICES=%.200s", value);
	if (*value && strncmp(value, "-1", 2) != 0)
		return;
	finding->status = DOCTOR_PROBLEM;
	doctor_so(finding, "it hides every GPU from programs started here");
	doctor_fix(finding, "unset CUDA_VISIBLE_DEVICES");
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

static void preload_runtime(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	const char *folder = getenv("XDG_RUNTIME_DIR");
	char places[3][PATH_MAX] = {""}, text[300];

	(void)device;
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
		doctor_so(finding,
			  "Spillway does not use it: running processes may not be seen or suspended from outside");
		doctor_fix(finding, "rm -r %.250s   # or chmod 700; as its owner", places[i]);
	}
}

/* ---- other preloaded libraries ---- */

/* The driver's names have "cu" and a capital letter, unlike cuDNN's. */
static bool is_driver_name(const char *name)
{
	return isupper((unsigned char)name[2]);
}

struct other {
	char text[400];        /* findings, for the fact */
	bool missing, clashes; /* a file that does not exist; a library that also replaces driver functions */
	size_t n;
};

static void add_text(struct other *other, const char *path, const char *what)
{
	size_t length = strlen(other->text);

	snprintf(other->text + length, sizeof(other->text) - length, "%s%s%s%s", length ? "; " : "", path,
		 *what ? ": " : "", what);
}

static void look_at_other(const struct doctor *doctor, const char *path, struct other *other)
{
	char full[PATH_MAX], what[100] = "";
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *name;
	struct elf_file *file = NULL;

	/* Under `spillway run` this is Spillway's own library. */
	if (strcmp(base, "libspillway.so") == 0 || strcmp(base, "libspillway-audit.so") == 0)
		return;
	other->n++;
	if (strchr(path, '/') && doctor_path(doctor, path, full)) {
		other->missing = other->missing || access(full, R_OK) != 0;
		if (access(full, R_OK) != 0)
			snprintf(what, sizeof(what), "cannot be read");
		file = elf_open(full, NULL);
	}
	name = file ? elf_defines_prefix(file, "cu", is_driver_name) : NULL;
	if (file && !name && elf_defines(file, "dlsym"))
		name = "dlsym";
	if (name) {
		other->clashes = true;
		snprintf(what, sizeof(what), "has a %.60s of its own", name);
	}
	add_text(other, path, what);
	elf_close(file);
}

static void look_at_list(const struct doctor *doctor, const char *list, struct other *other)
{
	char *copy = strdup(list ? list : ""), *rest = copy, *path;

	while (copy && (path = strsep(&rest, ": \t\n")))
		if (*path)
			look_at_other(doctor, path, other);
	free(copy);
}

static void preload_others(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	static struct other other;
	char list[4096];

	(void)device;
	memset(&other, 0, sizeof(other));
	look_at_list(doctor, getenv("LD_PRELOAD"), &other);
	if (doctor_read(doctor, "/etc/ld.so.preload", list, sizeof(list)))
		look_at_list(doctor, list, &other);
	if (!other.n) {
		doctor_is(finding, DOCTOR_OK, "none");
		return;
	}
	doctor_is(finding, other.clashes || other.missing ? DOCTOR_NOTE : DOCTOR_OK, "%s", other.text);
	if (other.clashes) {
		doctor_so(finding,
			  "it stands in front of the driver as Spillway does: of both, the one that comes first is "
			  "asked first, and may hide what the other should see");
		doctor_fix(finding, "env -u LD_PRELOAD spillway run ...   # or look with `spillway doctor -- PROGRAM`");
	} else if (other.missing) {
		doctor_so(finding, "the loader says so at the start of every program, and goes on");
		doctor_fix(finding, "unset LD_PRELOAD   # or take the file out of /etc/ld.so.preload");
	}
}

static void preload_audits(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	static struct other other;

	(void)device;
	memset(&other, 0, sizeof(other));
	look_at_list(doctor, getenv("LD_AUDIT"), &other);
	if (!other.n)
		return;
	doctor_is(finding, DOCTOR_NOTE, "LD_AUDIT: %s", other.text);
	doctor_so(finding, "it may lead calls of the driver elsewhere than to Spillway");
	doctor_fix(finding, "unset LD_AUDIT   # or look with `spillway doctor -- PROGRAM`");
}

static const struct doctor_check checks[] = {
    {"preload.library", "library", preload_library},        {"preload.audit", "audit library", preload_audit},
    {"preload.off", "switched off", preload_off},           {"preload.policy", "policy", preload_policy},
    {"preload.runtime", "runtime folder", preload_runtime}, {"preload.visible", "GPUs hidden", preload_visible},
    {"preload.others", "other preloads", preload_others},   {"preload.audits", "other audits", preload_audits},
};
const struct doctor_subject doctor_preload = {"Spillway", false, checks, sizeof(checks) / sizeof(*checks)};
