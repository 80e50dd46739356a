// SPDX-License-Identifier: Apache-2.0
/*
 * page_make.h: files of figures as the library writes them, for tests of what reads them. Everything is in a folder of
 * the test's own, which is XDG_RUNTIME_DIR meanwhile and the place of /tmp.
 */
#ifndef UNIT_PAGE_MAKE_H
#define UNIT_PAGE_MAKE_H

#include "test/libc.h"
#include "shim/stats/stats_page.h"

#include <sys/types.h>

/* The folder is made, with "spillway" in it; and removed with what is in it. */
void page_make_begin(void);
void page_make_end(void);
const char *page_make_folder(void);

/* A page of that process, with a device, two rules and two sites, running since 100 s. The caller frees it. */
struct stats_page *page_make(pid_t pid);
/* A second device, which lends 3 GiB, and 4 at most, to the first one, over NVLink. */
void page_make_lender(struct stats_page *page);
/* As it is so many seconds later: everything that counts has grown. */
void page_make_grow(struct stats_page *page, unsigned seconds);
/* Write so many bytes of it to its file, mode 0600. */
void page_make_write(const struct stats_page *page, size_t bytes);
/* All of it to this file. */
void page_make_write_at(const struct stats_page *page, const char *path);
/* "PID-START.stats"; its id is made of the two, so two pages of the same need another one. */
const char *page_make_name(const struct stats_page *page);

/*
 * The account of a GPU with 32 GiB that three processes share, with turns, and one that has ended: process 4000001 has
 * had the turn for 2 s, 4000002 waits since 5 s, 4000003 takes no part.
 */
void page_make_account(void);

/* A process that only waits; ended by page_make_end(). */
pid_t page_make_process(void);

/* Returns the bucket of a histogram that a value counts in. */
static inline unsigned page_bucket(uint64_t value)
{
	unsigned bucket = 0;

	while (bucket + 1 < STATS_BUCKETS && stats_bucket_least(bucket + 1) <= value)
		bucket++;
	return bucket;
}

#endif
