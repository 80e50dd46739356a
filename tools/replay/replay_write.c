/*
 * Writes a policy file with the budget that was found.
 */
#include "tools/common/units.h"
#include "tools/replay/replay_sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/tool.h"

static void say_taken(const char *path)
{
	char quoted[POLICY_QUOTED_BYTES];

	tool_say("%s is there already, and is not overwritten; name another file", policy_quote(path, quoted));
}

bool replay_is_taken(const char *path)
{
	struct stat there;

	if (!path || lstat(path, &there))
		return false;
	say_taken(path);
	return true;
}

FILE *replay_create(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	char quoted[POLICY_QUOTED_BYTES];

	if (file)
		return file;
	if (fd < 0 && errno == EEXIST)
		say_taken(path);
	else
		tool_say("%s cannot be made: %s", policy_quote(path, quoted), strerror(errno));
	if (fd >= 0)
		close(fd);
	return NULL;
}

int replay_close(FILE *file, const char *path, bool good)
{
	char quoted[POLICY_QUOTED_BYTES];

	errno = 0;
	good = fflush(file) == 0 && !ferror(file) && good;
	int error = errno;
	if (fclose(file) == 0 && good)
		return TOOL_OK;
	tool_say("%s could not be written%s%s", policy_quote(path, quoted), error ? ": " : "",
		 error ? strerror(error) : "");
	unlink(path);
	return TOOL_BROKEN;
}

/* Writes the text in double quotes for YAML. Returns false if it contains characters that a policy cannot contain. */
static bool put_quoted(FILE *file, const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	fputc('"', file);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', file);
		fputc(*text, file);
	}
	fputc('"', file);
	return true;
}

/* Includes the policy that was replayed, so that its rules apply. A file is named by its full path. */
static bool put_include(FILE *file, const char *name)
{
	char *path = realpath(name, NULL);
	bool is_file = path && (strchr(name, '/') || strstr(name, ".y"));
	bool ok;

	fputs("include: ", file);
	ok = put_quoted(file, is_file ? path : name);
	fputc('\n', file);
	free(path);
	return ok;
}

static bool put_policy(FILE *file, const struct replay_sweep *sweep)
{
	const struct replay_request *request = sweep->request;
	const struct replay_answer *best = sweep->best;
	char name[128], peak[UNITS_TEXT], held[UNITS_TEXT], host[UNITS_TEXT], budget[POLICY_SIZE_BYTES_TEXT];
	const char *slash = strrchr(request->path, '/');
	bool ok = true;

	fprintf(file,
		"# Written by `spillway replay` for %s, which asks for %s at most and takes %s of device memory.\n"
		"# With this budget a step is predicted to take %.1f ms; it takes %.1f ms with all of it in device "
		"memory.\n"
		"# Up to %s of host memory is taken.\n"
		"version: 1\n",
		policy_printable(slash ? slash + 1 : request->path, name, sizeof(name)), units_bytes(sweep->peak, peak),
		units_bytes(sweep->held, held), best->run.step_ms, sweep->full_ms,
		units_bytes(best->run.peak_host, host));
	if (request->policy_name && *request->policy_name)
		ok = put_include(file, request->policy_name);
	fprintf(file, "device.budget: %s\nspill.mode: %s\n", policy_size_format(best->budget, budget),
		policy_spill_name(request->mode));
	return ok;
}

static int write_check(const char *path)
{
	struct policy_errors errors;
	struct policy *policy = policy_read(path, NULL, &errors);

	tool_print_errors(&errors);
	policy_errors_free(&errors);
	policy_free(policy);
	return policy ? TOOL_OK : TOOL_BROKEN;
}

/* Returns whether the name is read as a file and not as a built-in policy. */
static bool is_path(const char *name)
{
	size_t n = strlen(name);

	return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".yaml")) ||
	       (n > 4 && !strcmp(name + n - 4, ".yml"));
}

int replay_write_policy(const struct replay_sweep *sweep)
{
	const char *path = sweep->request->write;

	if (!sweep->best) {
		tool_say("no policy is written: %s", sweep->full_ms > 0
							 ? "no budget that was tried is within 10 % of full speed"
							 : "no time of a step is known; say --step-time");
		return TOOL_BROKEN;
	}
	FILE *file = replay_create(path);
	if (!file)
		return TOOL_BROKEN;
	bool named = put_policy(file, sweep);
	if (!named)
		tool_say(
		    "the name of the policy that was replayed has characters that no policy can include; rename it");
	if (replay_close(file, path, named))
		return TOOL_BROKEN;
	if (sweep->request->set)
		tool_say("what --set says is not in the policy that was written");
	return is_path(path) ? write_check(path) : TOOL_OK;
}
