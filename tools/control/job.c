/*
 * Finds the processes of a job, by /proc/PID/environ, which the user who owns a process may read.
 */
#include "tools/control/job.h"
#include "shim/base/rank.h"
#include "tools/common/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENVIRONMENT_MOST = 1 << 21 }; /* bytes; the kernel takes no more than a quarter of the stack's 8 MiB */

struct environment {
	char *text; /* variables, each terminated; one more byte 0 at the end */
	size_t bytes;
};

static bool read_environment(pid_t pid, struct environment *ret_environment)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	*ret_environment = (struct environment){.text = malloc(ENVIRONMENT_MOST + 1)};
	while (ret_environment->text && ret_environment->bytes < ENVIRONMENT_MOST) {
		n = read(fd, ret_environment->text + ret_environment->bytes, ENVIRONMENT_MOST - ret_environment->bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		ret_environment->bytes += (size_t)n;
	}
	close(fd);
	if (ret_environment->text)
		ret_environment->text[ret_environment->bytes] = '\0';
	return ret_environment->text != NULL;
}

static const char *variable(const char *name, void *argument)
{
	const struct environment *environment = argument;
	size_t length = strlen(name);

	for (const char *at = environment->text; at < environment->text + environment->bytes; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			return at + length + 1;
	return NULL;
}

bool job_has(pid_t pid, const char *job)
{
	char found[RANK_JOB_BYTES] = "";
	struct environment environment;

	if (!pid || !read_environment(pid, &environment))
		return false;
	rank_job_of(variable, &environment, found);
	free(environment.text);
	return !strcmp(found, job);
}

struct search {
	const char *job;
	struct job_list *list;
	bool failed;
};

static void add_found(const struct process_found *found, int fd, void *argument)
{
	struct search *search = argument;
	struct job_list *list = search->list;

	close(fd);
	if (!job_has(found->pid, search->job))
		return;
	for (size_t i = 0; i < list->n; i++)
		if (list->name[i].pid == found->pid)
			return;
	if (!grow(&list->name, list->n, &list->room, sizeof(*list->name))) {
		search->failed = true;
		return;
	}
	list->name[list->n++] = (struct process_name){.pid = found->pid};
}

bool job_find(const char *job, struct job_list *ret_list)
{
	struct search search = {job, ret_list, false};

	*ret_list = (struct job_list){0};
	process_each(add_found, &search);
	return !search.failed;
}
