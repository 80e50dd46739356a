/*
 * Searches for libspillway.so beside the tool and checks that it is the library.
 */
#include "tools/common/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static bool is_file(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, R_OK) == 0;
}

/* The loader splits LD_PRELOAD at spaces and colons and has no way to quote them. */
static bool can_be_preloaded(const char *path)
{
	if (!strpbrk(path, ": "))
		return true;
	tool_say(
	    "the library's path \"%s\" has a blank or a colon in it, which LD_PRELOAD cannot carry; put the library "
	    "elsewhere and name it with --library",
	    path);
	return false;
}

bool library_is_ours(const char *path)
{
	struct elf_file *file = elf_open(path, NULL);
	bool is_ours = file && elf_defines(file, "spillway_version") && elf_defines(file, "cuGetProcAddress_v2");

	elf_close(file);
	return is_ours;
}

static bool find_given(const char *given, char ret_path[PATH_MAX])
{
	if (!realpath(given, ret_path)) {
		tool_say("--library: %s: %s", given, strerror(errno));
		return false;
	}
	if (!is_file(ret_path)) {
		tool_say("--library: %s is not a file that can be read", given);
		return false;
	}
	if (!library_is_ours(ret_path)) {
		tool_say(
		    "--library: %s is not Spillway's library: it does not define spillway_version and the driver's "
		    "cuGetProcAddress_v2; name a libspillway.so",
		    given);
		return false;
	}
	return can_be_preloaded(ret_path);
}

bool library_tool_folder(char ret_path[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", ret_path, PATH_MAX - 1);

	if (length < 0) {
		tool_say("/proc/self/exe cannot be read, so what belongs to this tool is not found: %s",
			 strerror(errno));
		return false;
	}
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
		if (is_file(path[i]) && realpath(path[i], ret_path))
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

	if (snprintf(ret_path, PATH_MAX, "%.*s/libspillway-audit.so", folder, library) < PATH_MAX && is_file(ret_path))
		return true;
	tool_say("--audit: there is no libspillway-audit.so beside %s", library);
	return false;
}
