/*
 * The figures of the processes of one run.
 */
#include "tools/run/fit_figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim/stats/summary.h"
#include "tools/run/watcher.h"

enum { MOST_FILES = 4096, MOST_PARENTS = 64 };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- the folder ---- */

bool fit_folder_make(char ret_path[64])
{
	static const char *const places[] = {"/tmp", "/dev/shm"};
	char inner[80];

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(ret_path, 64, "%s/spillway-fit-XXXXXX", places[i]);
		if (!mkdtemp(ret_path))
			continue;
		snprintf(inner, sizeof(inner), "%s/spillway", ret_path);
		if (mkdir(inner, 0700) == 0 && setenv("SPILLWAY_FIGURES", ret_path, 1) == 0)
			return true;
		rmdir(inner);
		rmdir(ret_path);
	}
	*ret_path = 0;
	return false;
}

static void remove_file(const struct user_dir *folder, const char *name, void *argument)
{
	(void)argument;
	unlinkat(folder->fd, name, 0);
}

void fit_folder_remove(const char *path)
{
	struct user_dir folder;

	if (!*path || user_dir_open_xdg(path, &folder) != 0)
		return;
	user_dir_each_file(&folder, STATS_TAIL, MOST_FILES, remove_file, NULL);
	user_dir_close(&folder, true);
	/* Not there any more unless a process that still runs has put something into it. */
	rmdir(path);
}

/* ---- while it runs ---- */

/* Returns the parent of a process; 0 if it has ended. */
static pid_t parent_of(pid_t pid)
{
	char path[32], line[512];
	int parent = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	/* "PID (NAME) STATE PARENT": the name may contain anything. */
	const char *name = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	if (name && sscanf(name + 1, " %*c %d", &parent) != 1)
		parent = 0;
	if (file)
		fclose(file);
	return parent;
}

static bool descends(pid_t pid, pid_t from)
{
	for (unsigned i = 0; i < MOST_PARENTS && pid > 1; i++, pid = parent_of(pid))
		if (pid == from)
			return true;
	return false;
}

struct fit_moment fit_figures_now(const struct fit_program *program)
{
	struct fit_moment moment = {0};
	struct pages pages = {0};

	pages_read(&pages, geteuid());
	for (size_t i = 0; i < pages.n; i++)
		if (pages.page[i]->copy && pages.page[i]->alive && pages.page[i]->pid > 0 &&
		    descends(pages.page[i]->pid, program->pid))
			fit_moment_add(&moment, pages.page[i]->copy, pages.page[i]->clock);
	pages_free(&pages);
	return moment;
}

/* ---- afterwards ---- */

/* Returns when the process ended; it has ended by now. */
static uint64_t end_of(const struct page *page)
{
	uint64_t end = atomic_load(&page->copy->end_clock);

	return end > page->copy->start_clock ? end : page->clock;
}

static bool is_used(const struct page *page)
{
	return page->copy &&
	       atomic_load(&page->copy->counter[STAT_allocations]) + atomic_load(&page->copy->counter[STAT_refused]);
}

/* Returns whether a lost more than b; where both lost the same, whether it held more. */
static bool lost_more(const struct page *a, const struct page *b)
{
	double of_a = summary_lost(a->copy, end_of(a)), of_b = summary_lost(b->copy, end_of(b));

	if (of_a < of_b || of_a > of_b)
		return of_a > of_b;
	return atomic_load(&a->copy->backend[0].figure[FIGURE_peak]) >
	       atomic_load(&b->copy->backend[0].figure[FIGURE_peak]);
}

/* Takes over the page, or frees it. */
static void fit_figures_take(struct fit_rest *rest, struct page *page)
{
	if (!page || !is_used(page)) {
		page_free(page);
		return;
	}
	rest->n++;
	if (rest->page && !lost_more(page, rest->page)) {
		page_free(page);
		return;
	}
	page_free(rest->page);
	rest->page = page;
	rest->now = end_of(page);
}

static void take_file(const struct user_dir *folder, const char *name, void *argument)
{
	fit_figures_take(argument, page_read(folder, name, geteuid()));
}

/* Returns whether these are what the program has left that did not end by exit(). */
static bool is_left_by(const struct page *page, const struct fit_program *program)
{
	return page->copy && !page_is_strange(page) && page->own_pid == program->pid &&
	       page->started == program->started && page->copy->state != STATS_ENDED && is_used(page);
}

struct fit_rest fit_figures_rest(const char *path, const struct fit_program *program, enum policy_report report)
{
	struct fit_rest rest = {0};
	struct pages pages = {0};
	struct user_dir folder;

	if (*path && user_dir_open_xdg(path, &folder) == 0) {
		user_dir_each_file(&folder, STATS_TAIL, MOST_FILES, take_file, &rest);
		user_dir_close(&folder, false);
	}
	pages_read(&pages, geteuid());
	for (size_t i = 0; i < pages.n; i++) {
		if (!is_left_by(pages.page[i], program))
			continue;
		if (report != POLICY_REPORT_NONE)
			watcher_print(pages.page[i]->copy, now_ns(), report == POLICY_REPORT_FULL);
		fit_figures_take(&rest, pages.page[i]);
		pages.page[i] = NULL;
	}
	pages_free(&pages);
	return rest;
}
