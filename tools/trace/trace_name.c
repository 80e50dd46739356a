/*
 * Checks the file name pattern of `run --trace` and makes it absolute.
 */
#include "tools/trace/trace_name.h"
#include "policy/text.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool knows_all(const char *pattern)
{
	for (const char *at = strchr(pattern, '%'); at; at = strchr(at + 2, '%')) {
		if (at[1] && strchr("pher%", at[1]))
			continue;
		tool_say(
		    "--trace: '%%%.1s' is not known; %%p is the process, %%h the host, %%e the program, %%r the rank, "
		    "%%%% a percent sign",
		    at + 1);
		return false;
	}
	return true;
}

bool trace_name_make(const char *pattern, char ret_name[PATH_MAX])
{
	char quoted[POLICY_QUOTED_BYTES], folder[PATH_MAX], real[PATH_MAX];
	struct stat there;
	const char *slash = strrchr(pattern, '/'), *name = slash ? slash + 1 : pattern;
	size_t n = slash ? (size_t)(slash - pattern) : 0;

	policy_quote(pattern, quoted);
	if (!knows_all(pattern))
		return false;
	if (!*name || !strcmp(name, ".") || !strcmp(name, "..") || n >= sizeof(folder)) {
		tool_say("--trace: %s is no name of a file", quoted);
		return false;
	}
	snprintf(folder, sizeof(folder), "%.*s", (int)n, pattern);
	/*
	 * A folder with a process id or host in its name must be created by the one who starts the processes, so it is
	 * not checked.
	 */
	if (strchr(folder, '%'))
		snprintf(real, sizeof(real), "%s", folder);
	else if (!realpath(!slash ? "." : n ? folder : "/", real) || access(real, W_OK | X_OK)) {
		tool_say("--trace: no file can be made for %s: %s", quoted, strerror(errno));
		return false;
	}
	if (snprintf(ret_name, PATH_MAX, "%s/%s", strcmp(real, "/") ? real : "", name) >= PATH_MAX) {
		tool_say("--trace: %s is too long", quoted);
		return false;
	}
	/* If the name is a folder, the library would write a file beside it, which the user does not want. */
	if (stat(ret_name, &there) || !S_ISDIR(there.st_mode))
		return true;
	tool_say("--trace: %s is a folder; name a file in it", quoted);
	return false;
}
