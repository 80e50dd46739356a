// SPDX-License-Identifier: Apache-2.0
/*
 * Reads one stats file into memory. The copy is one read from page-aligned to aligned memory. A number is 8 bytes at a
 * multiple of 8, and every supported processor copies those atomically.
 */
#include "tools/common/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"
#include "shim/base/clock.h"
#include "shim/base/user_dir.h"
#include "tools/common/grow.h"
#include "tools/common/view.h"

/* Accepts only "PID-START.stats" and "PID-START-ID.stats", with PID and START in decimal. */
static bool read_name(const char *name, pid_t *ret_pid, uint64_t *ret_started)
{
	uint64_t identity;
	char *rest;

	if (!policy_is_digit(*name))
		return false;
	errno = 0;
	long pid = strtol(name, &rest, 10);
	if (errno || pid <= 0 || pid > INT32_MAX || *rest != '-' || !policy_is_digit(rest[1]))
		return false;
	*ret_started = strtoull(rest + 1, &rest, 10);
	*ret_pid = (pid_t)pid;
	if (errno)
		return false;
	if (*rest == '-' && identity_read(rest + 1, strchrnul(rest, '.'), &identity))
		rest = strchrnul(rest, '.');
	return !strcmp(rest, STATS_TAIL);
}

/*
 * Returns whether a process of that id and start time exists and belongs to the file's owner: a number in a file name
 * proves nothing.
 */
static bool is_alive(const struct page *page)
{
	struct stat status;
	char path[32];

	if (!page->pid || !page->started || user_dir_process_started(page->pid) != page->started)
		return false;
	snprintf(path, sizeof(path), "/proc/%d", (int)page->pid);
	/* /proc/PID belongs to root if the process is not dumpable. */
	return stat(path, &status) == 0 && (status.st_uid == page->owner || status.st_uid == 0);
}

__attribute__((format(printf, 2, 3))) static void is_broken(struct page *page, const char *format, ...)
{
	va_list arguments;

	page->kind = PAGE_BROKEN;
	page->version = 0;
	va_start(arguments, format);
	vsnprintf(page->problem, sizeof(page->problem), format, arguments);
	va_end(arguments);
}

/* Returns the number of bytes read. */
static size_t read_all(int fd, void *room, size_t bytes)
{
	size_t at = 0;

	while (at < bytes) {
		ssize_t n = TEMP_FAILURE_RETRY(pread(fd, (char *)room + at, bytes - at, (off_t)at));

		if (n <= 0)
			break;
		at += (size_t)n;
	}
	return at;
}

static void page_clean(char *text, size_t bytes)
{
	char safe[STATS_LINE]; /* as long as the longest text */

	_Static_assert(STATS_LINE >= sizeof(((struct stats_page *)0)->command), "the command is no longer than that");
	text[bytes - 1] = 0;
	if (*text)
		memcpy(text, policy_printable(text, safe, bytes), bytes);
}

static void clean_texts(struct stats_page *copy)
{
	page_clean(copy->command, sizeof(copy->command));
	page_clean(copy->policy, sizeof(copy->policy));
	page_clean(copy->policy_hash, sizeof(copy->policy_hash));
	page_clean(copy->mode, sizeof(copy->mode));
	page_clean(copy->spillway, sizeof(copy->spillway));
	page_clean(copy->rank, sizeof(copy->rank));
	page_clean(copy->local_rank, sizeof(copy->local_rank));
	page_clean(copy->job, sizeof(copy->job));
	page_clean(copy->fault_source, sizeof(copy->fault_source));
	for (unsigned i = 0; i < STATS_DEVICES; i++)
		page_clean(copy->device[i].name, STATS_TEXT);
	for (unsigned i = 0; i < STATS_RULES; i++)
		page_clean(copy->rule[i].name, STATS_TEXT);
	for (unsigned i = 0; i < STATS_SITES; i++)
		page_clean(copy->site[i].text, STATS_TEXT);
}

/* Returns false if nothing was written to the file yet. */
static bool check_head(struct page *page, const uint64_t head[2], uint64_t file_bytes)
{
	if (!head[0] && !head[1])
		return false;
	page->version = head[1];
	/* No release wrote a wrong size, version 0, or a version this high. */
	if (head[0] != file_bytes || head[1] == 0 || head[1] > 9999)
		is_broken(page, "its size is %llu bytes, and its head says %llu, version %llu",
			  (unsigned long long)file_bytes, (unsigned long long)head[0], (unsigned long long)head[1]);
	else if (head[1] != STATS_VERSION)
		page->kind = PAGE_OTHER_VERSION;
	else if (file_bytes != sizeof(struct stats_page))
		is_broken(page, "its size is %llu bytes, not %zu", (unsigned long long)file_bytes,
			  sizeof(struct stats_page));
	return true;
}

/* Returns false if nothing was written to the file yet. */
static bool page_fill(struct page *page, int fd, uint64_t file_bytes)
{
	uint64_t head[2] = {0};

	if (read_all(fd, head, sizeof(head)) < sizeof(head)) {
		is_broken(page, "it has no head");
		return file_bytes > 0;
	}
	if (!check_head(page, head, file_bytes))
		return false;
	if (page->kind != PAGE_GOOD)
		return true;
	page->copy = aligned_alloc(STATS_ALIGN, sizeof(*page->copy));
	if (!page->copy || read_all(fd, page->copy, sizeof(*page->copy)) < sizeof(*page->copy)) {
		is_broken(page, page->copy ? "it became shorter while it was read" : "there is no memory for a copy");
	} else if (page->copy->magic != STATS_MAGIC || page->copy->bytes != head[0] || page->copy->version != head[1]) {
		is_broken(page, "its mark is not that of a page of figures");
	} else if (page->copy->pid != (uint64_t)page->own_pid || page->copy->started != page->started) {
		is_broken(page, "it is of another process than its name says");
	} else {
		clean_texts(page->copy);
		page->clock = clock_now();
		return true;
	}
	free(page->copy);
	page->copy = NULL;
	return true;
}

struct page *page_read(const struct user_dir *folder, const char *name, uid_t owner)
{
	struct page *page = NULL, found = {.owner = owner};
	struct stat status;

	if (!read_name(name, &found.own_pid, &found.started))
		return NULL;
	/* Without O_NONBLOCK, a pipe of that name would block the tool. */
	int fd = openat(folder->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	/* Only the owner can have written it. Mode 0600 while the library fills it, and in earlier versions. */
	bool is_private = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == owner &&
			  status.st_nlink == 1 && (status.st_mode & 0577) == 0400;
	if (is_private && page_fill(&found, fd, (uint64_t)status.st_size)) {
		found.device = status.st_dev;
		found.inode = status.st_ino;
		found.held = user_dir_is_held(fd);
		found.identity = found.copy ? found.copy->identity : 0;
		page = malloc(sizeof(*page));
		if (page)
			*page = found;
		else
			free(found.copy);
	}
	close(fd);
	return page;
}

void page_free(struct page *page)
{
	if (page)
		free(page->copy);
	free(page);
}

bool page_is_strange(const struct page *page)
{
	return page->copy && page->copy->space && page->copy->space != view_own_space();
}

/* Finds out which process the page belongs to and whether it is alive. fresh: as for view_process(). */
static void page_locate(struct page *page, bool fresh)
{
	page->pid = page_is_strange(page) ? view_process(page->copy->space, page->own_pid, fresh) : page->own_pid;
	bool there = is_alive(page);
	/* The contents may be forged: the process found here must match in start time and owner. */
	if (!there && page_is_strange(page))
		page->pid = 0;
	page->alive = there || page->held;
}

bool page_is_same(const struct page *a, const struct page *b)
{
	if (a->owner != b->owner)
		return false;
	if (a->identity && b->identity)
		return a->identity == b->identity;
	return a->device == b->device && a->inode == b->inode && a->own_pid == b->own_pid && a->started == b->started;
}

static uint64_t last_sign(const struct page *page)
{
	uint64_t end = page->copy->end_clock, last = page->copy->last_clock;

	if (page->alive && page->copy->state != STATS_ENDED)
		return page->clock;
	return end > last ? end : last;
}

uint64_t page_counter(const struct page *page, enum stats_counter counter)
{
	return stats_page_get(page->copy, counter, last_sign(page));
}

uint64_t page_age(const struct page *page)
{
	return page_last(page) - page->copy->start_clock;
}

uint64_t page_last(const struct page *page)
{
	if (!page->copy)
		return 0;
	uint64_t last = last_sign(page), start = page->copy->start_clock;
	return last > start ? last : start;
}

const char *page_state(const struct page *page)
{
	static const char *const names[] = {"running", "suspended", "ended"};

	if (page->kind == PAGE_BROKEN)
		return "broken";
	if (!page->alive)
		return "gone";
	if (page->kind == PAGE_OTHER_VERSION)
		return "other version";
	return page->copy->state <= STATS_ENDED ? names[page->copy->state] : "broken";
}

/* Returns the last component of the path that ends before `end`. */
static const char *base_of(const char *path, const char *end)
{
	const char *base = path;

	for (const char *at = path; at < end; at++)
		if (*at == '/')
			base = at + 1;
	return base;
}

static bool takes_a_script(const char *base)
{
	static const char *const names[] = {"python", "bash", "sh", "perl", "ruby", "node", "julia", "lua", "Rscript"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(base, names[i], strlen(names[i])))
			return true;
	return false;
}

const char *page_program(const struct page *page, char room[PAGE_PROGRAM])
{
	const char *command = page->copy ? page->copy->command : "", *end = command + strcspn(command, " ");
	const char *base = base_of(command, end);
	char whole[2 * PAGE_PROGRAM];
	int n = snprintf(whole, sizeof(whole), "%.*s", (int)(end - base < 60 ? end - base : 60), base);

	if (takes_a_script(base) && *end && end[1] && end[1] != '-') {
		const char *script = end + 1, *script_end = script + strcspn(script, " ");

		script = base_of(script, script_end);
		snprintf(whole + n, sizeof(whole) - (size_t)n, " %.*s",
			 (int)(script_end - script < 60 ? script_end - script : 60), script);
	}
	return policy_printable(n ? whole : "?", room, PAGE_PROGRAM);
}

/* ---- finding the files ---- */

enum { MOST_FILES = 10000 }; /* in one folder; a limit beyond any real use */

struct search {
	struct pages *pages;
	uid_t owner; /* of the folder being searched */
	bool out_of_memory;
};

static void take_page(const struct user_dir *folder, const char *name, void *argument)
{
	struct search *search = argument;
	struct pages *pages = search->pages;
	struct page *page = page_read(folder, name, search->owner);

	if (!page)
		return;
	for (size_t i = 0; i < pages->n; i++)
		if (page_is_same(pages->page[i], page))
			goto drop;
	if (!grow(&pages->page, pages->n, &pages->room, sizeof(struct page *))) {
		search->out_of_memory = true;
		goto drop;
	}
	pages->page[pages->n++] = page;
	return;
drop:
	page_free(page);
}

static void look_in(const struct user_dir *folder, uid_t owner, void *argument)
{
	struct search *search = argument;

	search->owner = owner;
	user_dir_each_file(folder, STATS_TAIL, MOST_FILES, take_page, search);
}

static int by_pid(const void *a, const void *b)
{
	const struct page *left = *(struct page *const *)a, *right = *(struct page *const *)b;
	int order = ORDER(left->pid, right->pid) ?: ORDER(left->started, right->started);

	return order ?: ORDER(left->identity, right->identity);
}

static void locate_all(struct pages *pages)
{
	bool fresh = true;

	for (size_t i = 0; i < pages->n; i++) {
		page_locate(pages->page[i], fresh);
		fresh &= !page_is_strange(pages->page[i]);
	}
}

bool pages_read(struct pages *pages, uid_t only)
{
	struct search search = {.pages = pages};
	struct folders folders = {.only = only, .visit = look_in, .argument = &search};

	pages_free(pages);
	folders_own(&folders);
	folders_of_views(&folders);
	pages->n_refused = folders.n_refused;
	locate_all(pages);
	if (pages->n)
		qsort(pages->page, pages->n, sizeof(*pages->page), by_pid);
	return !search.out_of_memory;
}

void pages_free(struct pages *pages)
{
	for (size_t i = 0; i < pages->n; i++)
		page_free(pages->page[i]);
	free(pages->page);
	*pages = (struct pages){0};
}
