// SPDX-License-Identifier: Apache-2.0
/* Reads the policy of the machine, if nobody but its owner can have written it, and applies its limits to a policy. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/keys.h"
#include "policy/parse.h"

const char *policy_machine_path = "/etc/spillway/policy.yaml";
unsigned policy_machine_owner = 0;

const struct policy_limits policy_no_limits = {.spill = POLICY_SPILL_FAST};

bool policy_machine_is(const char *file)
{
	return strcmp(file, policy_machine_path) == 0;
}

/* Root's group may write, because many systems give root's files to it; any other group may not. */
static bool is_safe(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_uid == policy_machine_owner && !(status.st_mode & S_IWOTH) &&
	       (!(status.st_mode & S_IWGRP) || status.st_gid == policy_machine_owner);
}

/* Opens the folder of the path. Returns a descriptor, or -1 and errno. */
static int open_folder(const char *path, const char **ret_name)
{
	char folder[256];
	const char *slash = strrchr(path, '/');

	*ret_name = slash + 1;
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void warn(struct policy_errors *errors, const char *why)
{
	policy_warning_add(errors, policy_machine_path, POLICY_WHOLE,
			   "%s; it is ignored, and with it the limits of this machine", why);
}

char *policy_machine_read(size_t *ret_bytes, struct policy_errors *errors)
{
	const char *name;
	int folder = open_folder(policy_machine_path, &name);
	int fd = folder < 0 ? -1 : policy_file_open(folder, name);
	bool is_there = fd >= 0 || (errno != ENOENT && errno != ENOTDIR),
	     safe = fd >= 0 && is_safe(folder) && is_safe(fd);
	char *text = NULL, why[POLICY_MAX_WHY];

	if (folder >= 0)
		close(folder);
	if (fd >= 0 && !safe) {
		close(fd);
		warn(errors, "the file and its folder must be root's, and nobody else may write there");
	} else if (fd < 0) {
		if (is_there)
			warn(errors, "it cannot be opened by this user; allow reading with chmod");
	} else {
		text = policy_file_read_open(fd, ret_bytes, why);
		if (!text)
			warn(errors, why);
	}
	return text;
}

void policy_machine_limits(const char *text, size_t bytes, struct policy_limits *ret_limits,
			   struct policy_errors *errors)
{
	struct policy *policy = policy_new(policy_machine_path);
	char *real_path = realpath(policy_machine_path, NULL);
	struct policy_errors found = {0};

	if (policy)
		policy_parse(policy_machine_path, real_path, text, bytes, policy, &found);
	else
		policy_error_add(errors, policy_machine_path, POLICY_WHOLE, POLICY_NO_MEMORY);
	for (size_t i = 0; i < found.n_kept; i++) {
		const struct policy_error *problem = &found.kept[i];

		if (!problem->warning)
			policy_error_add(errors, problem->file, (struct policy_place){problem->line, problem->column},
					 "%s", problem->text);
	}
	if (found.n_errors && !found.n_kept)
		policy_error_add(errors, policy_machine_path, POLICY_WHOLE, POLICY_NO_MEMORY);
	if (policy)
		*ret_limits = policy->settings.limits;
	policy_errors_free(&found);
	policy_free(policy);
	free(real_path);
}

/* Returns true if *value exceeds the limit on any machine. It becomes the limit then and, if shares, when auto. */
static bool cut_size(struct policy_size *value, struct policy_size most, bool shares)
{
	bool less = value->kind == most.kind && most.kind != POLICY_SIZE_AUTO && most.value < value->value;

	if (!less && !(shares && value->kind == POLICY_SIZE_AUTO))
		return false;
	*value = most;
	return less;
}

static bool cut_mode(int *mode, int most)
{
	if (*mode <= most)
		return false;
	*mode = most;
	return true;
}

/* Of a built-in policy nobody here has written the value, so nobody can write another. Such a name has no slash. */
static bool is_of_builtin(const struct policy *policy, const struct policy_origin *origin)
{
	const char *path = origin->from == POLICY_FROM_FILE ? policy->real_paths[origin->file] : NULL;

	return path && !strchr(path, '/');
}

static void warn_cut(struct policy *policy, const struct policy_origin *origin, const char *name, const char *before,
		     const char *after, struct policy_errors *errors)
{
	bool in_file = origin->from == POLICY_FROM_FILE;

	if (origin->from != POLICY_FROM_NOWHERE && !is_of_builtin(policy, origin))
		policy_warning_add(errors, in_file ? policy->files[origin->file] : "SPILLWAY_SET", origin->place,
				   "%s: %s is more than this machine allows; %s holds (limits of %s)", name, before,
				   after, policy_machine_path);
}

void policy_limits_apply(struct policy *policy, const struct policy_limits *limits, struct policy_errors *errors)
{
	if (limits != &policy->settings.limits)
		policy->settings.limits = *limits;
	for (size_t i = 0; i < policy_limit_keys.n; i++) {
		const struct policy_key *limit = &policy_limit_keys.keys[i];
		int index = policy_key_find(&policy_file_keys, limit->name);
		const struct policy_key *key = &policy_file_keys.keys[index];
		void *value = (char *)&policy->settings + key->offset,
		     *most = (char *)&policy->settings + limit->offset;
		char before[POLICY_SETTING_BYTES], after[POLICY_SETTING_BYTES];
		/* Where what all have together is limited, all must count it. */
		bool shares = most == (void *)&policy->settings.limits.most[POLICY_LIMIT_DEVICE_TOTAL], is_cut;

		policy_value_write(key, &policy->settings, before);
		is_cut = limit->type == POLICY_TYPE_ENUM ? cut_mode(value, *(int *)most)
							 : cut_size(value, *(struct policy_size *)most, shares);
		if (!is_cut)
			continue;
		memcpy(policy->before_cut[i], before, sizeof(before));
		warn_cut(policy, &policy->origins[index], key->name, before,
			 policy_value_write(key, &policy->settings, after), errors);
	}
}
