// SPDX-License-Identifier: Apache-2.0
/*
 * pager.h: page faults of the CPU in chosen ranges of private anonymous memory, by userfaultfd(2). In a range that is
 * watched, an access to a page that is absent, and a write to one that is protected, is a fault: the thread that made
 * it waits, and makes the access again when the fault has been settled.
 *
 * The pager is a thread that owns the descriptor, in a table of descriptors of its own, so nobody else can close it,
 * and no child has it: once it is closed, the kernel takes absent pages for zeros. The thread only makes system calls
 * that do not wait, so it goes on whatever other threads wait for. What others ask of it reaches it as a fault as well,
 * on a page of its own: there is no second descriptor.
 *
 * A fault that nobody settles ends all the same, when PAGER_MS have passed without a pager_goes_on(): the page loses
 * all access, and the access is a SIGSEGV. Time in which the process is stopped does not count.
 */
#ifndef SPILLWAY_PAGER_H
#define SPILLWAY_PAGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGER_MS 60000

/*
 * Starts the thread, once. Returns false if the system has no such descriptors, refuses them to this process, does not
 * protect anonymous memory by them, or does not show which pages are protected. Locking: one thread at a time.
 */
bool pager_start(void);

/* ---- requests; one thread at a time may make them. Return whether they were done. ---- */

/* From now on faults in this range are the pager's; pages that are there are protected. */
bool pager_watch(const void *at, size_t bytes);
/* The range is plain memory again: all pages may be written, and absent ones are zeros. Settles its faults. */
bool pager_forget(const void *at, size_t bytes);
bool pager_protect(const void *at, size_t bytes);
/* Takes the protection away from pages that are there. Settles the faults of the range. */
bool pager_allow(const void *at, size_t bytes);
/* Fills pages that are absent, and leaves the others as they are; protects them unless `writable`. Settles as above. */
bool pager_give(const void *at, size_t bytes, const void *from, bool writable);
/* Settles the faults of the page. */
bool pager_settle(const void *at);
/* The same, and it has no access any more. */
bool pager_refuse(const void *at);

/* Makes pages of a range that is watched absent, also those that the program has locked. No request. */
bool pager_drop(void *at, size_t bytes);

/* Words of /proc/self/pagemap, one a page. */
#define PAGER_THERE     (UINT64_C(3) << 62) /* in memory, or swapped out */
#define PAGER_PROTECTED (UINT64_C(1) << 57)
bool pager_pages(const void *at, size_t n, uint64_t *entries);

/* ---- faults ---- */

struct pager_fault {
	uintptr_t at; /* of the page */
	uint64_t number;
	unsigned ms;                 /* for which it has waited */
	bool is_write, is_protected; /* the page is there, and protected */
};
/* Waits for a fault, and stores the oldest one, which stays until it is settled. Locking: takes PAGER. */
void pager_wait(struct pager_fault *ret_fault);
/* Returns whether it has not been settled, nor ended. Locking: takes PAGER. */
bool pager_has(const struct pager_fault *fault);
/* What threads wait for makes progress. Locking: none. */
void pager_goes_on(void);
/* Returns how many pages have lost all access, ever. */
unsigned pager_n_refused(void);

#endif
