// SPDX-License-Identifier: Apache-2.0
/*
 * cdi.c: `spillway cdi`. Writes a spec of the Container Device Interface: who starts a container with its device gets
 * the library in front of every program there. Engines read such specs from /etc/cdi and /var/run/cdi.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/commands.h"
#include "tools/common/json.h"
#include "tools/common/library.h"
#include "tools/common/new_file.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"

/* The oldest version of the interface that has all that is written here, so that old engines take it, too. */
#define CDI_VERSION "0.3.0"
#define CDI_KIND    "spillway/memory"

/* The command line. */
struct cdi_request {
	const char *library, *policy, *set, *folder, *at, *name, *output;
};

/* What the spec names. */
struct cdi {
	const struct cdi_request *request;
	char library[PATH_MAX], tool[PATH_MAX];
	char policy[PATH_MAX]; /* a file of the host; "": none, or a built-in one */
	char folder[PATH_MAX]; /* "": none */
	char machine[256];     /* the folder of the machine's policy; "": it has none */
};

static const struct option_row rows[] = {
    OPTION_TEXT("output", "FILE", cdi_request, output, "write it to this file, which must not exist (standard output)"),
    OPTION_TEXT("name", "NAME", cdi_request, name, "the device's name in the spec (all)"),
    OPTION_TEXT("policy", "POLICY", cdi_request, policy,
		"as for `spillway run`; a file is mounted beside the library, and must include no other file"),
    OPTION_TEXT("set", "KEY=VALUE", cdi_request, set, "on top of it; several with commas between them"),
    OPTION_TEXT("run-folder", "FOLDER", cdi_request, folder,
		"a folder of the host that the containers of one user share, for sockets, figures and budgets"),
    OPTION_TEXT("at", "FOLDER", cdi_request, at, "where in the container the files are (/opt/spillway)"),
    OPTION_TEXT("library", "PATH", cdi_request, library,
		"the library to mount (else the libspillway.so that belongs to this tool)"),
};

static const struct options options = {
    .command = "cdi",
    OPTION_ROWS(rows),
    .column = 23,
    .head = "usage: spillway cdi [option...]\n\n"
	    "Writes a spec of the Container Device Interface: a container that is started with its device has the\n"
	    "library in front of the CUDA calls of all its programs. The device is " CDI_KIND "=NAME.\n",
    .tail = "Exit status: 0 it was written, 1 it could not be, 2 wrong usage or an error in the policy.\n\n"
	    "example:\n"
	    "  spillway cdi --policy training --output /etc/cdi/spillway.json\n"
	    "  podman run --device nvidia.com/gpu=all --device " CDI_KIND "=all IMAGE python train.py\n",
};

/* Names of devices: letters, digits, and _ - . : inside. */
static bool is_name(const char *name)
{
	static const char ends[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (!strchr(ends, name[i]) && (i == 0 || i + 1 == n || !strchr("_-.:", name[i])))
			return false;
	return n > 0;
}

static int cdi_read(int argc, char **argv, struct cdi_request *request)
{
	int status = options_read(&options, argc, argv, request);

	if (status != OPTIONS_GO_ON)
		return status;
	if (optind != argc)
		return tool_bad("`spillway cdi` takes no argument, but was given %s", policy_quoted(argv[optind]));
	if (!is_name(request->name))
		return tool_bad(
		    "--name: %s is no name of a device; it has letters and digits, and _ - . : between them",
		    policy_quoted(request->name));
	if (*request->at != '/' || strpbrk(request->at, ": "))
		return tool_bad("--at: %s is no full path without blanks and colons, which LD_PRELOAD could carry",
				policy_quoted(request->at));
	return OPTIONS_GO_ON;
}

/* Reads the policy as the container would, and finds its file. */
static bool find_policy(struct cdi *cdi)
{
	const char *name = cdi->request->policy;
	struct policy_errors errors;
	struct policy *policy = policy_read(name, cdi->request->set, &errors);
	bool good = policy != NULL;

	tool_print_errors(&errors);
	policy_errors_free(&errors);
	if (good && name && *name && !policy_is_builtin(policy)) {
		good = !policy_includes_files(policy) && realpath(name, cdi->policy);
		if (policy_includes_files(policy))
			tool_say("%s includes other files, which the container would not have; write it as one file",
				 name);
	}
	policy_free(policy);
	return good;
}

/* The library takes such a folder only from the user to whom alone it belongs. */
static bool find_folder(struct cdi *cdi)
{
	struct stat status;

	if (!cdi->request->folder)
		return true;
	if (!realpath(cdi->request->folder, cdi->folder) || stat(cdi->folder, &status) != 0)
		return tool_fails("--run-folder: %s: %s", cdi->request->folder, strerror(errno));
	if (S_ISDIR(status.st_mode) && (status.st_mode & 0777) == S_IRWXU)
		return true;
	return tool_fails("--run-folder: %s must be a folder of the user that the containers run as, with mode 0700; "
			  "install -d -m 700 -o USER FOLDER makes one",
			  cdi->request->folder);
}

static bool find_files(struct cdi *cdi)
{
	if (!library_find(cdi->request->library, cdi->library))
		return false;
	if (realpath("/proc/self/exe", cdi->tool))
		return true;
	return tool_fails("the path of this tool is not known: %s", strerror(errno));
}

/* ---- the spec ---- */

__attribute__((format(printf, 2, 3))) static void put_variable(struct json *json, const char *format, ...)
{
	static char text[1 << 17]; /* the longest is SPILLWAY_SET, of which the policy took 64 KiB at most */
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	json_text(json, NULL, text);
}

/* from: on the host. at, name: folder and file in the container. */
static void put_mount(struct json *json, const char *from, const char *at, const char *name, bool writable)
{
	char to[PATH_MAX + 32];

	if (!*from)
		return;
	snprintf(to, sizeof(to), "%s%s", at, name);
	json_open(json, NULL, '{');
	json_text(json, "hostPath", from);
	json_text(json, "containerPath", to);
	json_open(json, "options", '[');
	json_text(json, NULL, writable ? "rw" : "ro");
	json_text(json, NULL, "nosuid");
	json_text(json, NULL, "nodev");
	json_text(json, NULL, "bind");
	json_close(json, ']');
	json_close(json, '}');
}

/* NVTX_INJECTION64_PATH: as `spillway run --trace` sets it, for containers that are given SPILLWAY_TRACE. */
static void put_environment(struct json *json, const struct cdi *cdi)
{
	const struct cdi_request *request = cdi->request;

	json_open(json, "env", '[');
	put_variable(json, "LD_PRELOAD=%s/libspillway.so", request->at);
	put_variable(json, "NVTX_INJECTION64_PATH=%s/libspillway.so", request->at);
	if (*cdi->policy)
		put_variable(json, "SPILLWAY_POLICY=%s/policy.yaml", request->at);
	else if (request->policy && *request->policy)
		put_variable(json, "SPILLWAY_POLICY=%s", request->policy);
	if (request->set)
		put_variable(json, "SPILLWAY_SET=%s", request->set);
	if (*cdi->folder)
		put_variable(json, "XDG_RUNTIME_DIR=%s/run", request->at);
	json_close(json, ']');
}

static void print_spec(const void *what)
{
	const struct cdi *cdi = what;
	struct json writer = {.comma = ",", .line = "\n"}, *json = &writer;

	json_open(json, NULL, '{');
	json_text(json, "cdiVersion", CDI_VERSION);
	json_text(json, "kind", CDI_KIND);
	json_open(json, "devices", '[');
	json_open(json, NULL, '{');
	json_text(json, "name", cdi->request->name);
	json_open(json, "containerEdits", '{');
	put_environment(json, cdi);
	json_open(json, "mounts", '[');
	put_mount(json, cdi->library, cdi->request->at, "/libspillway.so", false);
	put_mount(json, cdi->tool, cdi->request->at, "/spillway", false);
	put_mount(json, cdi->policy, cdi->request->at, "/policy.yaml", false);
	put_mount(json, cdi->machine, cdi->machine, "", false);
	put_mount(json, cdi->folder, cdi->request->at, "/run", true);
	json_close(json, ']');
	json_close(json, '}');
	json_close(json, '}');
	json_close(json, ']');
	json_close(json, '}');
	putchar('\n');
}

int tool_cdi(int argc, char **argv)
{
	struct cdi_request request = {.at = "/opt/spillway", .name = "all"};
	struct cdi cdi = {.request = &request};
	int status = cdi_read(argc, argv, &request);

	if (status != OPTIONS_GO_ON)
		return status;
	if (new_file_is_taken(request.output) || !find_policy(&cdi) || !find_folder(&cdi) || !find_files(&cdi))
		return TOOL_BAD;
	if (access(policy_machine_path, R_OK) == 0) {
		snprintf(cdi.machine, sizeof(cdi.machine), "%s", policy_machine_path);
		*strrchr(cdi.machine, '/') = '\0';
	}
	if (request.output)
		return new_file_print(request.output, print_spec, &cdi);
	print_spec(&cdi);
	return TOOL_OK;
}
