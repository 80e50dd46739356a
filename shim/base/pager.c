// SPDX-License-Identifier: Apache-2.0
/* pager.c: the thread that owns the userfaultfd (pager.h). */
#include "shim/base/pager.h"
#include "shim/base/base_state.h"
#include "shim/base/clock.h"
#include "shim/base/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Since Linux 5.9 and 5.11; older headers lack them. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOSE_UNSHARE  (1u << 1)
#define USER_MODE_ONLY 1

#define STACK_BYTES ((size_t)256 << 10)
#define LOOK_MS     100 /* while faults wait */

enum op { OP_WATCH, OP_FORGET, OP_PROTECT, OP_ALLOW, OP_GIVE, OP_SETTLE, OP_REFUSE, OP_PAGES };

struct pager_request {
	enum op op;
	uintptr_t at;
	size_t bytes;
	const void *from;
	uint64_t *entries;
	bool writable, ok;
	atomic_bool done;
};

static struct pager_state *const pager = &base_state.pager;

/* ---- on the pager's thread, in whose table these are ---- */

struct files {
	int faults, pagemap;
};

static bool control(const struct files *files, unsigned long what, void *argument)
{
	int result;

	do
		result = ioctl(files->faults, what, argument);
	while (result && errno == EAGAIN);
	return !result;
}

static bool protect(const struct files *files, uintptr_t at, size_t bytes, bool on)
{
	struct uffdio_writeprotect range = {.range = {at, bytes}, .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
	size_t half = bytes / pager->page / 2 * pager->page;

	if (control(files, UFFDIO_WRITEPROTECT, &range))
		return true;
	/* Before Linux 6.4 the range must lie in one mapping; advice for a part of it splits that. */
	return errno == ENOENT && half && protect(files, at, half, on) && protect(files, at + half, bytes - half, on);
}

static bool forget(const struct files *files, uintptr_t at, size_t bytes)
{
	struct uffdio_range range = {at, bytes};

	protect(files, at, bytes, false);
	return control(files, UFFDIO_UNREGISTER, &range);
}

static bool watch(const struct files *files, uintptr_t at, size_t bytes)
{
	struct uffdio_register range = {.range = {at, bytes},
					.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};

	if (!control(files, UFFDIO_REGISTER, &range))
		return false;
	if (range.ioctls >> _UFFDIO_WRITEPROTECT & 1 && protect(files, at, bytes, true))
		return true;
	forget(files, at, bytes);
	return false;
}

static bool give(const struct files *files, const struct pager_request *request)
{
	bool apart = false; /* it lies in several mappings: a page was refused, or a part has advice of its own */

	for (size_t done = 0; done < request->bytes;) {
		struct uffdio_copy copy = {.dst = request->at + done,
					   .src = (uintptr_t)request->from + done,
					   .len = apart ? pager->page : request->bytes - done,
					   .mode = UFFDIO_COPY_MODE_DONTWAKE |
						   (request->writable ? 0 : UFFDIO_COPY_MODE_WP)};

		if (!ioctl(files->faults, UFFDIO_COPY, &copy))
			done += copy.len;
		else if (copy.copy > 0)
			done += (size_t)copy.copy;
		else if (errno == EEXIST || (errno == ENOENT && apart))
			done += pager->page;
		else if (errno == ENOENT)
			apart = true;
		else if (errno != EAGAIN)
			return false;
	}
	return true;
}

/* What waits there makes its access again. */
static bool settle(const struct files *files, uintptr_t at, size_t bytes)
{
	struct uffdio_range range = {at, bytes};
	unsigned n = 0;

	lock_take(&pager->lock);
	for (unsigned i = 0; i < pager->n; i++)
		if (pager->fault[i].at - at >= bytes)
			pager->fault[n++] = pager->fault[i];
	pager->n = n;
	lock_drop(&pager->lock);
	return control(files, UFFDIO_WAKE, &range);
}

static bool refuse(const struct files *files, uintptr_t at)
{
	mprotect((void *)at, pager->page, PROT_NONE);
	atomic_fetch_add(&pager->n_refused, 1);
	return settle(files, at, pager->page);
}

static bool read_pages(const struct files *files, const struct pager_request *request)
{
	size_t bytes = request->bytes * sizeof(uint64_t);

	return pread(files->pagemap, request->entries, bytes, (off_t)(request->at / pager->page * sizeof(uint64_t))) ==
	       (ssize_t)bytes;
}

static bool serve(const struct files *files, const struct pager_request *request)
{
	uintptr_t at = request->at;
	size_t bytes = request->bytes;

	switch (request->op) {
	case OP_WATCH:
		return watch(files, at, bytes);
	case OP_FORGET:
		return forget(files, at, bytes) & settle(files, at, bytes);
	case OP_PROTECT:
		return protect(files, at, bytes, true);
	case OP_ALLOW:
		return protect(files, at, bytes, false) & settle(files, at, bytes);
	case OP_GIVE:
		return give(files, request) && settle(files, at, bytes);
	case OP_SETTLE:
		return settle(files, at, bytes);
	case OP_REFUSE:
		return refuse(files, at);
	case OP_PAGES:
		return read_pages(files, request);
	}
	return false;
}

static void hear_bell(const struct files *files)
{
	struct uffdio_zeropage zero = {.range = {(uintptr_t)pager->bell, pager->page}};
	struct pager_request *request = atomic_exchange(&pager->request, NULL);

	if (request) {
		request->ok = serve(files, request);
		atomic_store(&request->done, true);
	}
	/* After a signal the same access may be heard of twice. */
	if (ioctl(files->faults, UFFDIO_ZEROPAGE, &zero))
		control(files, UFFDIO_WAKE, &zero.range);
}

/* A fault that finds no place is made again at once. */
static void hear_fault(const struct files *files, uintptr_t at, uint64_t flags)
{
	unsigned i;

	lock_take(&pager->lock);
	for (i = 0; i < pager->n && pager->fault[i].at != at; i++)
		;
	bool full = i == PAGER_FAULTS;
	if (!full && i == pager->n)
		pager->fault[pager->n++] = (struct pager_fault){.at = at, .number = ++pager->n_ever};
	if (!full) {
		pager->fault[i].is_write |= flags & UFFD_PAGEFAULT_FLAG_WRITE;
		pager->fault[i].is_protected |= flags & UFFD_PAGEFAULT_FLAG_WP;
		clock_wake_all(&pager->come);
	}
	lock_drop(&pager->lock);
	if (full)
		settle(files, at, pager->page);
}

static void end_late(const struct files *files)
{
	uint64_t now = clock_now();

	if (now - pager->looked < LOOK_MS * UINT64_C(1000000))
		return;
	pager->looked = now;
	if (atomic_exchange(&pager->goes_on, false))
		return;
	for (unsigned i = 0; i < pager->n; i++)
		if ((pager->fault[i].ms += LOOK_MS) > PAGER_MS)
			refuse(files, pager->fault[i--].at);
}

/* Closes nothing for others, and takes nothing along that they may close. */
static bool open_files(struct files *ret)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
	struct uffdio_register bell = {.range = {(uintptr_t)pager->bell, pager->page},
				       .mode = UFFDIO_REGISTER_MODE_MISSING};

	if (syscall(SYS_close_range, 0, ~0u, CLOSE_UNSHARE))
		return false;
	ret->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ret->faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
	return ret->pagemap >= 0 && ret->faults >= 0 && control(ret, UFFDIO_API, &api) &&
	       control(ret, UFFDIO_REGISTER, &bell);
}

static void *run(void *unused)
{
	struct files files;

	if (!open_files(&files)) {
		atomic_store(&pager->stage, PAGER_REFUSED);
		return unused; /* and its table with it */
	}
	atomic_store(&pager->stage, PAGER_RUNS);
	for (;;) {
		struct pollfd ready = {.fd = files.faults, .events = POLLIN};
		struct uffd_msg message;

		poll(&ready, 1, pager->n ? LOOK_MS : -1);
		end_late(&files);
		if (read(files.faults, &message, sizeof(message)) != sizeof(message) ||
		    message.event != UFFD_EVENT_PAGEFAULT)
			continue;
		uintptr_t at = (uintptr_t)message.arg.pagefault.address & -(uintptr_t)pager->page;
		if (at == (uintptr_t)pager->bell)
			hear_bell(&files);
		else
			hear_fault(&files, at, message.arg.pagefault.flags);
	}
}

/* ---- requests ---- */

bool pager_drop(void *at, size_t bytes)
{
	/* mlockall() locks all that there is. */
	return !madvise(at, bytes, MADV_DONTNEED) || (!munlock(at, bytes) && !madvise(at, bytes, MADV_DONTNEED));
}

/* The page that is rung at is absent when nothing is asked. */
static bool ask(struct pager_request *request)
{
	atomic_store(&pager->request, request);
	while (!atomic_load(&request->done)) {
		(void)*(volatile char *)pager->bell;
		pager_drop(pager->bell, pager->page);
	}
	return request->ok;
}

#define ASK(op_, at_, bytes_, ...)                                                                                     \
	ask(&(struct pager_request){.op = (op_), .at = (uintptr_t)(at_), .bytes = (bytes_), ##__VA_ARGS__})

bool pager_watch(const void *at, size_t bytes)
{
	return ASK(OP_WATCH, at, bytes);
}

bool pager_forget(const void *at, size_t bytes)
{
	return ASK(OP_FORGET, at, bytes);
}

bool pager_protect(const void *at, size_t bytes)
{
	return ASK(OP_PROTECT, at, bytes);
}

bool pager_allow(const void *at, size_t bytes)
{
	return ASK(OP_ALLOW, at, bytes);
}

bool pager_give(const void *at, size_t bytes, const void *from, bool writable)
{
	return ASK(OP_GIVE, at, bytes, .from = from, .writable = writable);
}

bool pager_settle(const void *at)
{
	return ASK(OP_SETTLE, at, pager->page);
}

bool pager_refuse(const void *at)
{
	return ASK(OP_REFUSE, at, 0);
}

bool pager_pages(const void *at, size_t n, uint64_t *entries)
{
	return ASK(OP_PAGES, at, n, .entries = entries);
}

/* ---- faults ---- */

void pager_wait(struct pager_fault *ret_fault)
{
	lock_take(&pager->lock);
	while (!pager->n) {
		struct timespec until = clock_in(UINT64_C(1000000000));

		lock_wait(&pager->lock, &pager->come, &until);
	}
	*ret_fault = pager->fault[0];
	lock_drop(&pager->lock);
}

bool pager_has(const struct pager_fault *fault)
{
	bool has = false;

	lock_take(&pager->lock);
	for (unsigned i = 0; i < pager->n; i++)
		has |= pager->fault[i].at == fault->at && pager->fault[i].number == fault->number;
	lock_drop(&pager->lock);
	return has;
}

void pager_goes_on(void)
{
	atomic_store(&pager->goes_on, true);
}

unsigned pager_n_refused(void)
{
	return atomic_load(&pager->n_refused);
}

/* ---- start ---- */

static char *map(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	madvise(at, bytes, MADV_DONTFORK);
	return at;
}

/* Whether pages of a range show that they are protected: Linux tells so since 5.14. */
static bool shows_protection(void)
{
	char *page = map(pager->page);
	uint64_t before = 0, after = 0;
	bool ok = page && (*page = 1) && pager_watch(page, pager->page) && pager_pages(page, 1, &before) &&
		  pager_allow(page, pager->page) && pager_pages(page, 1, &after) && pager_forget(page, pager->page);

	if (page)
		munmap(page, pager->page);
	return ok && before & PAGER_PROTECTED && after & PAGER_THERE && !(after & PAGER_PROTECTED);
}

bool pager_start(void)
{
	pager->page = (size_t)sysconf(_SC_PAGESIZE);
	pager->bell = map(pager->page);
	if (!pager->bell || thread_start(run, NULL, STACK_BYTES, false, NULL))
		return false;
	while (atomic_load(&pager->stage) == PAGER_STARTS)
		sched_yield();
	return atomic_load(&pager->stage) == PAGER_RUNS && shows_protection();
}
