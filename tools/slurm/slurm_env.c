// SPDX-License-Identifier: Apache-2.0
/*
 * From options of `srun` to the environment of a task.
 */
#include "tools/slurm/slurm_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void slurm_site_default(struct slurm_site *ret_site, const char *library, const char *tool)
{
	*ret_site = (struct slurm_site){.library = library, .tool = tool, .budgets = true};
}

/* Returns what follows `name` and '=', or NULL if the text does not begin so. */
static const char *value_of(const char *text, const char *name)
{
	size_t n = strlen(name);

	return strncmp(text, name, n) == 0 && text[n] == '=' ? text + n + 1 : NULL;
}

static bool read_number(const char *text, unsigned *ret)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || number == 0 || number > 100000)
		return false;
	*ret = (unsigned)number;
	return true;
}

bool slurm_site_argument(struct slurm_site *site, const char *argument)
{
	const char *value;

	if ((value = value_of(argument, "library")) && *value == '/') {
		site->library = value;
		return true;
	}
	if ((value = value_of(argument, "tool")) && *value == '/') {
		site->tool = value;
		return true;
	}
	if ((value = value_of(argument, "shards")))
		return read_number(value, &site->shards);
	if ((value = value_of(argument, "budgets")) && (strcmp(value, "yes") == 0 || strcmp(value, "no") == 0)) {
		site->budgets = *value == 'y';
		return true;
	}
	return false;
}

/* Appends, behind the separator unless the text is empty. Returns false if there is no room. */
static bool append(char text[SLURM_ENV_BYTES], char separator, const char *item, size_t bytes)
{
	size_t at = strlen(text);

	if (at + bytes + 2 > SLURM_ENV_BYTES)
		return false;
	if (at)
		text[at++] = separator;
	memcpy(text + at, item, bytes);
	text[at + bytes] = 0;
	return true;
}

/* The length of the key of an item, without blanks around it; 0 if there is none. */
static size_t key_length(const char **item, const char *end)
{
	while (*item < end && **item == ' ')
		(*item)++;
	const char *equals = memchr(*item, '=', (size_t)(end - *item));
	if (!equals)
		return 0;
	while (equals > *item && equals[-1] == ' ')
		equals--;
	return (size_t)(equals - *item);
}

bool slurm_set_add(char set[SLURM_ENV_BYTES], const char *item)
{
	const char *key = item;

	return key_length(&key, item + strlen(item)) && append(set, ',', item, strlen(item));
}

/*
 * Does a part of the settings set the key? A value may hold commas; what follows one then begins with no key of ours.
 */
static bool sets(const char *set, const char *key, size_t length)
{
	while (set && *set) {
		const char *end = strchrnul(set, ','), *at = set;

		if (key_length(&at, end) == length && strncmp(at, key, length) == 0)
			return true;
		set = *end ? end + 1 : end;
	}
	return false;
}

/* Adds the settings of the job's environment whose keys the command line does not set. */
static bool add_inherited(char ret_set[SLURM_ENV_BYTES], const char *inherited, const char *set)
{
	bool keep = true;

	while (inherited && *inherited) {
		const char *end = strchrnul(inherited, ','), *key = inherited;
		size_t length = key_length(&key, end);

		/* A part without '=' belongs to the value before it. */
		if (length)
			keep = !sets(set, key, length);
		if (keep && end > inherited && !append(ret_set, ',', inherited, (size_t)(end - inherited)))
			return false;
		inherited = *end ? end + 1 : end;
	}
	return true;
}

static bool is_free(const struct slurm_request *request, const char *key)
{
	return !sets(request->set, key, strlen(key)) && !sets(request->inherited, key, strlen(key));
}

static bool add_host_budget(char ret_set[SLURM_ENV_BYTES], const struct slurm_request *request)
{
	const struct slurm_task *task = &request->task;
	uint64_t mib = task->memory_mib / 2 / (task->tasks ? task->tasks : 1);
	char item[64];

	/* host.total says what processes share; a fixed budget would end that. */
	if (mib == 0 || !is_free(request, "host.budget") || !is_free(request, "host.total"))
		return true;
	int n = snprintf(item, sizeof(item), "host.budget=%lluMiB", (unsigned long long)mib);
	return append(ret_set, ',', item, (size_t)n);
}

/* Percent of one GPU that a task may use, 100 if nobody shares it. */
static unsigned gpu_percent(const struct slurm_site *site, const struct slurm_task *task)
{
	unsigned tasks = task->tasks ? task->tasks : 1, gpus = task->gpus, all = 100 * (gpus ? gpus : 1);

	if (task->mps_percent)
		all = task->mps_percent;
	else if (task->shards && site->shards)
		all = 100 * task->shards / site->shards;
	else if (!gpus)
		return 100; /* what the task may use is not known */
	return all / tasks < 100 ? all / tasks : 100;
}

static bool add_device_budget(char ret_set[SLURM_ENV_BYTES], const struct slurm_site *site,
			      const struct slurm_request *request)
{
	unsigned percent = gpu_percent(site, &request->task) * 9 / 10;
	char item[64];

	if (percent >= 90 || percent == 0 || !is_free(request, "device.budget") || !is_free(request, "device.total"))
		return true;
	int n = snprintf(item, sizeof(item), "device.budget=%u%%", percent);
	return append(ret_set, ',', item, (size_t)n);
}

/* The library first; it is not named twice. */
static bool make_preload(char ret_preload[SLURM_ENV_BYTES], const char *library, const char *existing)
{
	if (!append(ret_preload, ':', library, strlen(library)))
		return false;
	while (existing && *existing) {
		size_t n = strcspn(existing, ": ");

		if (n && (n != strlen(library) || strncmp(existing, library, n) != 0) &&
		    !append(ret_preload, ':', existing, n))
			return false;
		existing += n + (existing[n] != 0);
	}
	return true;
}

bool slurm_environment_make(const struct slurm_site *site, const struct slurm_request *request,
			    struct slurm_environment *ret_environment)
{
	char *set = ret_environment->set;

	memset(ret_environment, 0, sizeof(*ret_environment));
	if (!make_preload(ret_environment->preload, site->library, request->preload))
		return false;
	if (request->policy && !append(ret_environment->policy, ',', request->policy, strlen(request->policy)))
		return false;
	if (site->budgets && (!add_host_budget(set, request) || !add_device_budget(set, site, request)))
		return false;
	return add_inherited(set, request->inherited, request->set) &&
	       (!request->set || !*request->set || append(set, ',', request->set, strlen(request->set)));
}
