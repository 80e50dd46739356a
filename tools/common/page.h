/*
 * page.h: the figures of running processes, as their files show them (stats_page.h). Nothing is mapped and nothing is
 * written: a file that its owner cuts short is a short read and no signal, and no process notices that it is looked at.
 *
 * Nothing in a file is believed: sizes, version and marks are checked, texts get an end and lose what a terminal would
 * obey. Whose process it is says the kernel, by the owner of the file.
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
	PAGE_OTHER_VERSION, /* of another release: there is a process, and no more is known of it */
	PAGE_BROKEN,        /* not what it should be; problem says why */
};

struct page {
	pid_t pid;         /* in our PID namespace; 0: it is not seen from here */
	pid_t own_pid;     /* as the process itself has it */
	uint64_t started;  /* ticks of /proc/PID/stat */
	uint64_t identity; /* unique on the machine (shim/base/identity.h); 0: its figures cannot be read */
	dev_t device;      /* of the file, which tells those apart that cannot be read */
	ino_t inode;
	bool held; /* somebody has the file mapped (user_dir_hold) */
	uid_t owner;
	enum page_kind kind;
	bool alive;              /* the process that made it is still there */
	uint64_t version;        /* of the layout; 0: broken */
	uint64_t clock;          /* CLOCK_MONOTONIC when it was read, ns */
	char problem[96];        /* of a broken one, for people */
	struct stats_page *copy; /* only where it is good; its texts are fit to be printed */
};

/* Read the file of that name. NULL: it is gone, is not a file of figures, or is only just being made. */
struct page *page_read(const struct user_dir *folder, const char *name, uid_t owner);
void page_free(struct page *page);
/* Find out which process it is and whether that is alive. fresh: as view_process(). */
void page_locate(struct page *page, bool fresh);
/* Is it a process of a PID namespace that is not ours? */
bool page_is_strange(const struct page *page);
/* Do both tell of the same process? */
bool page_is_same(const struct page *a, const struct page *b);

/* A counter; for a process that is gone, as it was at its last sign of life. */
uint64_t page_counter(const struct page *page, enum stats_counter counter);
/* For how long the process has used CUDA memory, or had; ns. */
uint64_t page_age(const struct page *page);
/* When it was last known to live, CLOCK_MONOTONIC; 0: its figures cannot be read. */
uint64_t page_last(const struct page *page);
/* "running", "suspended", "ended", "gone", "other version", "broken" */
const char *page_state(const struct page *page);
/* The program without its arguments, "python train.py" where it is a script: short, and nothing secret. */
#define PAGE_PROGRAM 64
const char *page_program(const struct page *page, char room[PAGE_PROGRAM]);

/* All pages at one moment, in the order of their process ids here. */
struct pages {
	struct page **page;
	size_t n, room;
	size_t n_refused; /* folders and files that are not as they must be, and were left alone */
};

/*
 * Look at all folders where processes of this user show their figures; root looks at those of all users. only: this user
 * alone; (uid_t)-1: everybody who may be seen. What was in pages before is freed. False: no memory.
 */
bool pages_read(struct pages *pages, uid_t only);
void pages_free(struct pages *pages);

#endif
