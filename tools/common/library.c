// SPDX-License-Identifier: Apache-2.0
/*
 * Searches for libspillway.so beside the tool, checks that it is the library, and determines why the loader would
 * ignore LD_PRELOAD. It does in a process that gains rights at its start (AT_SECURE), and a static executable has no
 * loader at all. Both run as if LD_PRELOAD were not set, so the user must be warned.
 */
#include "tools/common/library.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/common/elf_file.h"
#include "tools/common/tool.h"

/* Relative to the folder of the tool: the build folder first, then an installed tree (bin/spillway). */
static const char *const places[] = {
    "libspillway.so",
    "../lib/libspillway.so",
    "../lib64/libspillway.so",
    "../lib/" SPILLWAY_MULTIARCH "/libspillway.so",
};
enum { N_PLACES = sizeof(places) / sizeof(*places) };

/* Returns whether it is a file with that kind of access: R_OK or X_OK. */
static bool is_file(const char *path, int how)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, how) == 0;
}

/* The loader splits LD_PRELOAD at spaces and colons and has no way to quote them. */
static bool can_be_preloaded(const char *path)
{
	if (!strpbrk(path, ": "))
		return true;
	return tool_fails(
	    "the library's path \"%s\" has a blank or a colon in it, which LD_PRELOAD cannot carry; put the library "
	    "elsewhere and name it with --library",
	    path);
}

bool library_is_ours(const char *path)
{
	struct elf_file *file = elf_open(path);
	bool is_ours = file && elf_defines(file, "spillway_version") && elf_defines(file, "cuGetProcAddress_v2");

	elf_close(file);
	return is_ours;
}

static bool find_given(const char *given, char ret_path[PATH_MAX])
{
	if (!realpath(given, ret_path))
		return tool_fails("--library: %s: %s", given, strerror(errno));
	if (!is_file(ret_path, R_OK))
		return tool_fails("--library: %s is not a file that can be read", given);
	if (!library_is_ours(ret_path))
		return tool_fails(
		    "--library: %s is not Spillway's library: it does not define spillway_version and the driver's "
		    "cuGetProcAddress_v2; name a libspillway.so",
		    given);
	return can_be_preloaded(ret_path);
}

bool library_tool_folder(char ret_path[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", ret_path, PATH_MAX - 1);

	if (length < 0)
		return tool_fails("/proc/self/exe cannot be read, so what belongs to this tool is not found: %s",
				  strerror(errno));
	ret_path[length] = '\0';
	*strrchr(ret_path, '/') = '\0';
	return true;
}

bool library_find(const char *given, char ret_path[PATH_MAX])
{
	char self[PATH_MAX], path[N_PLACES][2 * PATH_MAX];

	if (given)
		return find_given(given, ret_path);
	if (!library_tool_folder(self))
		return false;
	for (int i = 0; i < N_PLACES; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/%s", self, places[i]);
		if (is_file(path[i], R_OK) && realpath(path[i], ret_path))
			return can_be_preloaded(ret_path);
	}
	tool_say("libspillway.so is not found; name it with --library. Looked at:");
	for (int i = 0; i < N_PLACES; i++)
		tool_say("  %s", path[i]);
	return false;
}

bool library_find_audit(const char *library, char ret_path[PATH_MAX])
{
	int folder = (int)(strrchr(library, '/') - library);

	if (snprintf(ret_path, PATH_MAX, "%.*s/libspillway-audit.so", folder, library) < PATH_MAX &&
	    is_file(ret_path, R_OK))
		return true;
	return tool_fails("--audit: there is no libspillway-audit.so beside %s", library);
}

/* ---- programs to start ---- */

/* The kernel follows MAX_SCRIPTS scripts that name scripts, and reads MAX_LINE bytes of the first line. */
enum { MAX_SCRIPTS = 5, MAX_LINE = 256 };

#if defined(__x86_64__)
enum { OUR_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { OUR_MACHINE = EM_AARCH64 };
#else
#error "which ELF machine is this?"
#endif

/* ---- programs that start others ---- */

#define OTHER_USER "it starts programs with an environment of its own; write `%s ... spillway run -- PROGRAM`"
#define CONTAINER  "neither this environment nor the library is in the container; run spillway in there"
#define ELSEWHERE  "what it starts runs on another machine; run spillway there"

/* Matched by name, because that is what people type. "%s" in a reason stands for the name. */
static const struct {
	const char *name, *reason;
} launchers[] = {
    {"sudo", OTHER_USER},     {"doas", OTHER_USER},  {"su", OTHER_USER},         {"runuser", OTHER_USER},
    {"pkexec", OTHER_USER},   {"docker", CONTAINER}, {"podman", CONTAINER},      {"nerdctl", CONTAINER},
    {"apptainer", CONTAINER}, {"enroot", CONTAINER}, {"singularity", CONTAINER}, {"ssh", ELSEWHERE},
    {"kubectl", ELSEWHERE},
};

/*
 * Returns Slurm's export setting. Slurm passes the whole environment unless a variable or an option (which wins) says
 * otherwise. A word right after an option may be its value; the first other word is the program to start.
 */
static const char *slurm_exports(char *const argv[], const char *variable)
{
	const char *exports = getenv(variable);
	bool may_be_value = false;

	for (int i = 1; argv[i] && (argv[i][0] == '-' || may_be_value); i++) {
		if (strncmp(argv[i], "--export=", 9) == 0)
			exports = argv[i] + 9;
		else if (may_be_value && strcmp(argv[i - 1], "--export") == 0)
			exports = argv[i];
		may_be_value = argv[i][0] == '-' && !strchr(argv[i], '=');
	}
	return exports;
}

static bool slurm_strips(char *const argv[], const char *variable)
{
	const char *exports = slurm_exports(argv, variable);

	return exports && strncmp(exports, "ALL", 3) != 0 && !strstr(exports, "LD_PRELOAD");
}

static bool env_strips(char *const argv[])
{
	for (int i = 1; argv[i] && argv[i][0] == '-'; i++)
		if (strcmp(argv[i], "-") == 0 || strcmp(argv[i], "-i") == 0 ||
		    strcmp(argv[i], "--ignore-environment") == 0)
			return true;
	return false;
}

bool target_launcher(char *const argv[], char ret_reason[TARGET_REASON_BYTES])
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0], *reason = NULL;

	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (strcmp(name, launchers[i].name) == 0)
			reason = launchers[i].reason;
	if ((strcmp(name, "srun") == 0 && slurm_strips(argv, "SLURM_EXPORT_ENV")) ||
	    (strcmp(name, "sbatch") == 0 && slurm_strips(argv, "SBATCH_EXPORT")))
		reason = "--export leaves LD_PRELOAD out; add it, or write `%s ... spillway run -- PROGRAM`";
	else if (strcmp(name, "env") == 0 && env_strips(argv))
		reason = "it takes the environment away; write `%s -i ... spillway run -- PROGRAM`";
	if (!reason)
		return false;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(ret_reason, TARGET_REASON_BYTES, reason, name);
#pragma GCC diagnostic pop
	return true;
}

bool target_warn_launcher(char *const argv[])
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	char reason[TARGET_REASON_BYTES];

	if (!target_launcher(argv, reason))
		return false;
	tool_say("%s: Spillway will not take effect in what it starts: %s", name, reason);
	return true;
}

/* ---- the file ---- */

bool target_find(const char *program, char ret_path[PATH_MAX])
{
	const char *folders = getenv("PATH");

	if (strchr(program, '/'))
		return snprintf(ret_path, PATH_MAX, "%s", program) < PATH_MAX && access(program, F_OK) == 0;
	if (!folders)
		folders = "/bin:/usr/bin";
	for (;;) {
		size_t length = strcspn(folders, ":");
		const char *here = length ? "" : "."; /* an empty entry means the current folder */

		if (snprintf(ret_path, PATH_MAX, "%.*s%s/%s", (int)length, folders, here, program) < PATH_MAX &&
		    is_file(ret_path, X_OK))
			return true;
		if (!folders[length])
			return false;
		folders += length + 1;
	}
}

/* Returns whether starting this ELF file would raise the rights of the process. */
static bool gains_rights(int fd, const char *path)
{
	struct statvfs volume;
	struct stat status;

	if (fstat(fd, &status) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return false;
	if (fstatvfs(fd, &volume) == 0 && (volume.f_flag & ST_NOSUID))
		return false;
	return ((status.st_mode & S_ISUID) && status.st_uid != getuid()) ||
	       ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getgid()) ||
	       (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

/* Returns why the loader will not load the library into this ELF file, of which `head` is the head; NULL if it will. */
static const char *elf_reason(int fd, const char *path, const Elf64_Ehdr *head)
{
	const char *loader, *reason = NULL;

	if (head->e_ident[EI_CLASS] == ELFCLASS32)
		return "it is a 32-bit program";
	if (head->e_machine != OUR_MACHINE)
		return "it is a program for another kind of processor";
	struct elf_file *file = elf_open(path);
	/* What cannot be read the kernel will refuse. */
	if (!file)
		return NULL;
	loader = elf_loader(file);
	if (!loader)
		reason = "it is statically linked";
	else if (strstr(loader, "/ld-musl-"))
		reason = "it was built for musl, another C library than CUDA's (glibc)";
	else if (gains_rights(fd, path))
		reason = "it runs with more rights than you have (set-user-ID, set-group-ID or capabilities)";
	elf_close(file);
	return reason;
}

/*
 * Finds the program that runs a script whose first bytes are line ("#!/bin/sh -e"): its interpreter, or the program
 * that "env" would find. Changes line. Returns false if the program is not known.
 */
static bool script_interpreter(char *line, char ret_path[PATH_MAX])
{
	char *rest = line + 2, *interpreter, *argument, *name;

	rest[strcspn(rest, "\n")] = '\0';
	rest += strspn(rest, " \t");
	interpreter = strsep(&rest, " \t");
	if (!interpreter || !*interpreter)
		return false;
	name = strrchr(interpreter, '/');
	if (rest && name && strcmp(name, "/env") == 0) {
		rest += strspn(rest, " \t");
		argument = strsep(&rest, " \t");
		if (argument && *argument && *argument != '-' && !strchr(argument, '='))
			return target_find(argument, ret_path);
	}
	return snprintf(ret_path, PATH_MAX, "%s", interpreter) < PATH_MAX;
}

const char *target_reason(const char *path, char ret_file[PATH_MAX])
{
	char line[MAX_LINE + 1];

	if (snprintf(ret_file, PATH_MAX, "%s", path) >= PATH_MAX)
		return NULL;
	for (int n = 0; n <= MAX_SCRIPTS; n++) {
		int fd = open(ret_file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		const char *reason = NULL;
		Elf64_Ehdr head;

		if (fd < 0)
			return NULL;
		ssize_t bytes = pread(fd, line, MAX_LINE, 0);
		line[bytes > 0 ? bytes : 0] = '\0';
		bool script = strncmp(line, "#!", 2) == 0;
		if (bytes >= (ssize_t)sizeof(head) && memcmp(line, ELFMAG, SELFMAG) == 0) {
			memcpy(&head, line, sizeof(head));
			reason = elf_reason(fd, ret_file, &head);
		}
		close(fd);
		if (reason || !script || !script_interpreter(line, ret_file))
			return reason;
	}
	return NULL;
}

void target_warn(const char *path)
{
	char file[PATH_MAX];
	const char *reason = target_reason(path, file);

	if (reason)
		tool_say("%s: Spillway will not take effect: %s", file, reason);
}
