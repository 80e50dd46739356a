// SPDX-License-Identifier: Apache-2.0
/*
 * page.h: reads the figures of running processes from their stats files (stats_page.h). The files are neither mapped
 * nor written: a file that its owner truncates gives a short read and no signal, and a process cannot notice that it
 * is read.
 *
 * The contents are not trusted: sizes, version and marks are checked, texts are terminated and stripped of terminal
 * control characters. The owner of a process is taken from the file's owner, which the kernel vouches for.
 */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H

#include "shim/base/user_dir.h"
#include "shim/stats/stats_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum page_kind {
	PAGE_GOOD,
	PAGE_OTHER_VERSION, /* written by another release: the process exists, and nothing more is known about it */
	PAGE_BROKEN,        /* malformed; `problem` says why */
};

struct page {
	pid_t pid;         /* in the tool's PID namespace; 0: not visible from here */
	pid_t own_pid;     /* as the process itself sees it */
	uint64_t started;  /* start time in ticks, as in /proc/PID/stat */
	uint64_t identity; /* unique on the machine (shim/base/user_dir.h); 0: the figures cannot be read */
	dev_t device;      /* of the file; distinguishes processes whose figures cannot be read */
	ino_t inode;
	bool held; /* the lock of the file is held: a live process has it open or mapped (user_dir_hold) */
	uid_t owner;
	enum page_kind kind;
	bool alive;              /* the process that made the file still exists */
	uint64_t version;        /* of the layout; 0: broken */
	uint64_t clock;          /* CLOCK_MONOTONIC when the file was read, ns */
	char problem[96];        /* why the page is broken, for people */
	struct stats_page *copy; /* set only if the page is good; its texts are safe to print */
};

/* Reads the file of that name. Returns NULL if it no longer exists, is not a stats file, or is still being created. */
struct page *page_read(const struct user_dir *folder, const char *name, uid_t owner);
void page_free(struct page *page);
/* Returns whether the process belongs to another PID namespace. */
bool page_is_strange(const struct page *page);
/* Returns whether both pages describe the same process. */
bool page_is_same(const struct page *a, const struct page *b);

/* Returns a counter; for a process that has ended, its last known value. */
uint64_t page_counter(const struct page *page, enum stats_counter counter);
/* Returns for how long, in ns, the process has used CUDA memory (or had, if it has ended). */
uint64_t page_age(const struct page *page);
/* Returns the last time when the process was known to be alive, CLOCK_MONOTONIC; 0 if its figures cannot be read. */
uint64_t page_last(const struct page *page);
/* Returns "running", "suspended", "ended", "gone", "other version" or "broken". */
const char *page_state(const struct page *page);
/* The program's name without arguments, or "python train.py" for a script: short, and without secrets. */
#define PAGE_PROGRAM 64
const char *page_program(const struct page *page, char room[PAGE_PROGRAM]);

/* All pages, read at one moment, sorted by process id in the tool's PID namespace. */
struct pages {
	struct page **page;
	size_t n, room;
	size_t n_refused; /* folders whose owner or mode is wrong, and which were skipped */
};

/*
 * Reads all folders where processes of this user publish figures; for root, those of all users. only: limits this to
 * one user; (uid_t)-1: all visible users. Frees the previous contents of pages. Returns false if memory runs out.
 */
bool pages_read(struct pages *pages, uid_t only);
void pages_free(struct pages *pages);

#endif
