// SPDX-License-Identifier: Apache-2.0
/*
 * pager_test.c: page faults that are served by a thread of the test (base/pager.h). Skipped where the kernel refuses
 * them.
 */
#include "shim/base/pager.h"
#include "test/check.h"
#include "test/test.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 8

static size_t page;
static char *range;
static pthread_t toucher;
static volatile char *touched;
static volatile char seen;

static void *read_it(void *unused)
{
	seen = *touched;
	return unused;
}

static void *write_it(void *unused)
{
	*touched = 'w';
	return unused;
}

static struct pager_fault touch(size_t at, bool write)
{
	struct pager_fault fault;

	touched = range + at * page + 5;
	CHECK(!pthread_create(&toucher, NULL, write ? write_it : read_it, NULL));
	pager_wait(&fault);
	CHECK(fault.at == (uintptr_t)range + at * page && fault.is_write == write && pager_has(&fault));
	return fault;
}

static uint64_t entry_of(size_t at)
{
	uint64_t entry;

	CHECK(pager_pages(range + at * page, 1, &entry));
	return entry;
}

static void give_and_check(size_t at, size_t n, bool writable)
{
	char from[PAGES * 65536];

	memset(from, 'g', n * page);
	CHECK(pager_give(range + at * page, n * page, from, writable));
	CHECK(!pthread_join(toucher, NULL));
}

/* In a process of its own, because the pager stays. Returns its status. */
static int apart(void (*part)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		page = (size_t)sysconf(_SC_PAGESIZE);
		range = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(range != MAP_FAILED);
		alarm(60);
		if (!pager_start())
			_exit(77);
		part();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	return status;
}

static void serve_all(void)
{
	struct pager_fault fault;

	range[0] = 'a';
	CHECK(pager_watch(range, PAGES * page));
	/* What is there is protected, and may be read. */
	CHECK(range[0] == 'a' && entry_of(0) & PAGER_PROTECTED && !(entry_of(1) & PAGER_THERE));
	fault = touch(0, true);
	CHECK(fault.is_protected && pager_allow(range, page) && !pager_has(&fault) && !pthread_join(toucher, NULL));
	CHECK(range[5] == 'w' && entry_of(0) & PAGER_THERE && !(entry_of(0) & PAGER_PROTECTED));
	/* Of what is given, pages that are there stay as they are. */
	fault = touch(1, false);
	CHECK(!fault.is_protected);
	give_and_check(0, 3, false);
	CHECK(seen == 'g' && range[5] == 'w' && range[2 * page] == 'g' && entry_of(2) & PAGER_PROTECTED);
	touch(4, true);
	give_and_check(4, 1, true);
	CHECK(range[4 * page] == 'g' && range[4 * page + 5] == 'w' && !(entry_of(4) & PAGER_PROTECTED));
	/* All of it is plain memory again. */
	touch(6, true);
	CHECK(pager_forget(range, PAGES * page) && !pthread_join(toucher, NULL));
	CHECK(range[6 * page + 5] == 'w' && range[7 * page] == 0 && range[1 * page] == 'g');
	range[1 * page] = 'b';
}

TEST(each_fault_is_served)
{
	assert_int_equal(apart(serve_all), 0);
}

static void close_all(void)
{
	CHECK(pager_watch(range, PAGES * page));
	CHECK(!syscall(SYS_close_range, 0, ~0u, 0));
	touch(3, false);
	give_and_check(3, 1, false);
	CHECK(seen == 'g');
}

TEST(nobody_can_close_it)
{
	assert_int_equal(apart(close_all), 0);
}

static void refuse_one(void)
{
	struct pager_fault fault;

	CHECK(pager_watch(range, PAGES * page));
	signal(SIGSEGV, SIG_DFL);
	fault = touch(2, false);
	CHECK(pager_refuse((void *)fault.at) && !pager_has(&fault));
	pthread_join(toucher, NULL);
}

TEST(what_is_refused_is_a_fault_of_the_program)
{
	int status = apart(refuse_one);

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void ask_often(void)
{
	CHECK(pager_watch(range, PAGES * page));
	for (int i = 0; i < 1000; i++)
		CHECK(!(entry_of(7) & PAGER_THERE));
	CHECK(pager_n_refused() == 0);
}

static sigjmp_buf out;

static void on_fault(int number)
{
	siglongjmp(out, number);
}

static void *read_and_go_on(void *unused)
{
	if (!sigsetjmp(out, 1))
		seen = *touched;
	return unused;
}

static void refuse_and_go_on(void)
{
	struct pager_fault fault;

	CHECK(pager_watch(range, PAGES * page) && signal(SIGSEGV, on_fault) != SIG_ERR);
	touched = range + 2 * page;
	CHECK(!pthread_create(&toucher, NULL, read_and_go_on, NULL));
	pager_wait(&fault);
	CHECK(pager_refuse((void *)fault.at) && !pthread_join(toucher, NULL) && pager_n_refused() == 1);
	touch(3, false);
	give_and_check(0, PAGES, false);
	CHECK(seen == 'g' && range[0] == 'g' && range[(PAGES - 1) * page] == 'g');
}

/* The range is several mappings then. */
TEST(pages_beside_a_refused_one_are_given)
{
	assert_int_equal(apart(refuse_and_go_on), 0);
}

TEST(requests_are_served_one_after_the_other)
{
	assert_int_equal(apart(ask_often), 0);
}
