// SPDX-License-Identifier: Apache-2.0
#include "test/preload/run.h"
#include "test/test.h"

#include <dirent.h>

extern char **environ;

static void set(const char *setting)
{
	char *copy = strdup(setting), *equals = strchr(copy, '=');

	*equals = 0;
	if (!strcmp(copy, "LD_PRELOAD") && !equals[1])
		unsetenv("LD_PRELOAD");
	else
		setenv(copy, equals + 1, 1);
	free(copy);
}

static void clean_environment(void)
{
	static const char *const ours[] = {"SPILLWAY", "SIM_", "DRIVER_"};

	for (size_t i = 0; environ[i];) {
		char name[256];
		bool drop = false;

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="), environ[i]);
		for (size_t j = 0; j < sizeof(ours) / sizeof(ours[0]); j++)
			drop = drop || !strncmp(name, ours[j], strlen(ours[j]));
		if (drop)
			unsetenv(name);
		else
			i++;
	}
}

static void child(const char *const argv[], const char *const settings[], const char *folder, int out, int err)
{
	clean_environment();
	setenv("LD_PRELOAD", getenv("TEST_PRELOAD"), 1);
	setenv("HOME", folder, 1);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	setenv("TMPDIR", folder, 1);
	/* What a sanitizer says of leaks would mix with what the program says, and children of fork confuse it. */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	for (size_t i = 0; settings && settings[i]; i++)
		set(settings[i]);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	if (!chdir(folder))
		execv(argv[0], (char *const *)argv);
	_exit(127);
}

static char *read_all(int fd)
{
	size_t bytes = (size_t)lseek(fd, 0, SEEK_END), at = 0;
	char *text = malloc(bytes + 1);
	ssize_t n;

	while (at < bytes && (n = pread(fd, text + at, bytes - at, (off_t)at)) > 0)
		at += (size_t)n;
	text[at] = 0;
	close(fd);
	return text;
}

/* The control socket of a process that was killed or left by _exit(), which nothing can remove; and its folder. */
static bool remove_ours(int folder, unsigned *n_figures)
{
	int below = openat(folder, "spillway", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = below >= 0 ? fdopendir(below) : NULL;

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		if (strstr(entry->d_name, ".ctl")) {
			unlinkat(below, entry->d_name, 0);
		} else if (strstr(entry->d_name, ".stats")) {
			unlinkat(below, entry->d_name, 0);
			++*n_figures;
		}
	if (dir)
		closedir(dir);
	return unlinkat(folder, "spillway", AT_REMOVEDIR) == 0;
}

/* Name what is in the folder, and empty it. */
static char *take_files(const char *folder, unsigned *n_figures)
{
	char *names = calloc(1, 4096);
	DIR *dir = opendir(folder);

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!strcmp(entry->d_name, "spillway") && remove_ours(dirfd(dir), n_figures))
			continue;
		unlinkat(dirfd(dir), entry->d_name, 0);
		if (strlen(names) + strlen(entry->d_name) < 4000)
			strcat(strcat(names, entry->d_name), "\n");
	}
	if (dir)
		closedir(dir);
	return names;
}

struct outcome run(const char *const argv[], const char *const settings[])
{
	struct outcome its = {0};
	char folder[] = "/tmp/spillway_run.XXXXXX";
	FILE *out = tmpfile(), *err = tmpfile();
	int status;

	if (!out || !err || !mkdtemp(folder)) {
		perror("run");
		exit(1);
	}
	fflush(NULL);
	pid_t pid = fork();
	if (!pid)
		child(argv, settings, folder, fileno(out), fileno(err));
	waitpid(pid, &status, 0);
	its.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	its.out = read_all(dup(fileno(out)));
	its.err = read_all(dup(fileno(err)));
	its.files = take_files(folder, &its.n_figures);
	rmdir(folder);
	fclose(out);
	fclose(err);
	return its;
}

void run_free(struct outcome *which)
{
	free(which->out);
	free(which->err);
	free(which->files);
}

struct outcome ran;

void run_here(const char *const argv[], const char *const settings[])
{
	run_end(NULL);
	ran = run(argv, settings);
}

int run_end(void **state)
{
	run_free(&ran);
	ran = (struct outcome){0};
	return 0;
}

size_t run_lines(const char *output)
{
	return run_lines_with(output, "");
}

size_t run_lines_with(const char *output, const char *text)
{
	size_t n = 0;

	while (*output) {
		size_t length = strcspn(output, "\n");

		n += memmem(output, length, text, strlen(text)) != NULL;
		output += length + (output[length] == '\n');
	}
	return n;
}

const char *run_mode(void)
{
	return getenv("SPILL_MODE") ? getenv("SPILL_MODE") : "static";
}

bool run_moves(void)
{
	return !strcmp(run_mode(), "exact") || !strcmp(run_mode(), "fast");
}

void run_says(struct outcome outcome, int status, const char *out, unsigned n_figures, const struct said *said)
{
	while (said->words && run_lines_with(outcome.err, said->words) == said->n)
		said++;
	if (said->words || outcome.status != status || (out && strcmp(outcome.out, out)) || *outcome.files ||
	    outcome.n_figures != n_figures)
		fail_msg("status %d (not %d), stdout \"%s\", files \"%s\", %u of figures (not %u), not %zu lines with "
			 "\"%s\", stderr:\n%s",
			 outcome.status, status, outcome.out, outcome.files, outcome.n_figures, n_figures, said->n,
			 said->words ? said->words : "", outcome.err);
	run_free(&outcome);
}
