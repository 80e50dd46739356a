// SPDX-License-Identifier: Apache-2.0
/*
 * spawn.c: bench spawn, the time of whole processes from outside. Variables are set for them alone, so that this
 * process stays as it is.
 */
#include "test/bench/spawn.h"
#include "test/bench/sample.h"

#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct samples times;

extern char **environ;

static char **environment_with(char **extra, size_t n_extra)
{
	size_t n = 0;
	char **result;

	while (environ[n])
		n++;
	result = calloc(n + n_extra + 1, sizeof(*result));
	if (!result)
		exit(1);
	memcpy(result, extra, n_extra * sizeof(*result));
	memcpy(result + n_extra, environ, n * sizeof(*result));
	return result;
}

static void spawn_once(char **argv, char **environment)
{
	double start = now();
	posix_spawn_file_actions_t actions;
	int status, error;
	pid_t child;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	error = posix_spawnp(&child, argv[0], &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	if (error) {
		fprintf(stderr, "bench: cannot run %s: %s\n", argv[0], strerror(error));
		exit(1);
	}
	if (waitpid(child, &status, 0) < 0 || status != 0) {
		fprintf(stderr, "bench: %s failed\n", argv[0]);
		exit(1);
	}
	sample(&times, (now() - start) / 1e3);
}

void measure_spawn(int argc, char **argv)
{
	int count = argc > 0 ? atoi(argv[0]) : 0, first = 1;

	while (first < argc && strchr(argv[first], '='))
		first++;
	if (count < 1 || first >= argc) {
		fprintf(stderr, "usage: bench spawn COUNT [NAME=value...] PROGRAM [ARGUMENT...]\n");
		exit(2);
	}
	char **environment = environment_with(argv + 1, (size_t)first - 1);
	spawn_once(argv + first, environment);
	times.n = 0; /* that one brought the files into memory */
	for (int i = 0; i < count; i++)
		spawn_once(argv + first, environment);
	print_samples(&times, "spawn", "us");
	free(environment);
}
