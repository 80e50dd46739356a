// SPDX-License-Identifier: Apache-2.0
/*
 * A part of a test that hangs says where: the alarm that ends it writes the stacks of all its threads, also of those
 * that block all signals, as the library's do.
 */
#include "test/preload/child.h"
#include "test/test.h"

#include <stdatomic.h>
#include <sys/mman.h>

static int written_to;
static atomic_bool is_there;

void *hangs_for_ever(void *argument);
void hangs_with_a_thread(void);

void *hangs_for_ever(void *argument)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_setname_np(pthread_self(), "hangs");
	atomic_store(&is_there, true);
	for (;;)
		pause();
	return argument;
}

void hangs_with_a_thread(void)
{
	CHECK(dup2(written_to, 2) == 2);
	driver_start(0);
	child_alloc(MIB);
	test_thread(hangs_for_ever, NULL);
	UNTIL(atomic_load(&is_there));
	raise(SIGALRM); /* as the alarm does, a minute later */
}

TEST(stacks_of_all_threads_are_written)
{
	const char *const settings[] = {CHILD_BUDGETS, NULL};
	char text[65536] = "";

#ifdef __SANITIZE_THREAD__
	skip();
#endif
	written_to = memfd_create("stacks", MFD_CLOEXEC);
	assert_true(written_to >= 0);
	assert_int_equal(child_run(settings, hangs_with_a_thread), 128 + SIGALRM);
	assert_true(pread(written_to, text, sizeof(text) - 1, 0) > 0);
	close(written_to);
	const char *own = strstr(text, "hangs_with_a_thread+"), *named = strstr(text, " hangs\n");
	assert_non_null(own);
	assert_non_null(named);
	assert_non_null(strstr(named, "hangs_for_ever+"));
	assert_null(strstr(text, "does not answer"));
}
