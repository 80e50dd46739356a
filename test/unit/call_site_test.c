// SPDX-License-Identifier: Apache-2.0
/*
 * Sites of the program: one for each address and name, how much time naming may take, and that nobody waits for a
 * thread that asks the loader. The loader, Python and the clock are stood for here (-Wl,--wrap).
 */
#include <stdatomic.h>
#include <sys/prctl.h>

#include "shim/base/base_state.h"
#include "shim/base/call_site.h"
#include "shim/base/libc.h"
#include "shim/base/python.h"
#include "test/test.h"

static _Atomic uint64_t now = 10000 * (uint64_t)MS;
static atomic_bool loader_is_busy; /* while set, who asks for the name of STUCK is kept there */
static atomic_uint n_asking;
#define STUCK ((void *)4096)

static atomic_bool python_is_here;
static const char *line;         /* what Python says; NULL: it has no frames */
static const char *called_by;    /* and of its callers */
static uint64_t python_takes;    /* ns */
static const char *library_path; /* of all addresses */

uint64_t __wrap_clock_now(void);
uint64_t __wrap_clock_now(void)
{
	return atomic_load(&now);
}

/* Of the CPU: the same, for nobody else runs here. */
uint64_t __wrap_clock_thread(void);
uint64_t __wrap_clock_thread(void)
{
	return __wrap_clock_now();
}

char *__wrap_caller_name_text(const void *address, char *room, size_t bytes);
char *__wrap_caller_name_text(const void *address, char *room, size_t bytes)
{
	atomic_fetch_add(&n_asking, 1);
	while (atomic_load(&loader_is_busy) && address == STUCK)
		sched_yield();
	errno = ENOENT;
	snprintf(room, bytes, "prog+%p", address);
	return room;
}

const char *__wrap_caller_name_library(const void *address);
const char *__wrap_caller_name_library(const void *address)
{
	return library_path;
}

bool __wrap_python_process_is_here(void);
bool __wrap_python_process_is_here(void)
{
	return atomic_load(&python_is_here);
}

enum python_found __wrap_python_process_name(char *room, char *callers);
enum python_found __wrap_python_process_name(char *room, char *callers)
{
	atomic_fetch_add(&now, python_takes);
	snprintf(room, PYTHON_NAME, "%s", line ? line : "");
	if (callers)
		snprintf(callers, PYTHON_CALLERS, "%s", called_by);
	return line ? PYTHON_OF_USER : PYTHON_NO_FRAMES;
}

BEFORE_EACH
{
	for (unsigned i = 0; i < CALL_SITE_SLOTS; i++)
		free(atomic_load(&base_state.call_site.slot[i]));
	memset(&base_state.call_site, 0, sizeof(base_state.call_site));
	atomic_store(&python_is_here, false);
	line = NULL;
	called_by = "";
	python_takes = 0;
	library_path = "/bin/prog";
}

static void *at(uintptr_t i)
{
	return (void *)(0x10000 + i * 16);
}

TEST(an_address_has_one_site)
{
	errno = EBADF;
	const struct call_site *one = call_site_find(at(1)), *other = call_site_find(at(2));
	assert_int_equal(errno, EBADF);
	assert_non_null(one);
	assert_ptr_not_equal(one, other);
	assert_ptr_equal(call_site_find(at(1)), one);
	assert_ptr_equal(one->address, at(1));
	assert_string_equal(one->text, "prog+0x10010");
	assert_null(one->library);
	assert_null(call_site_find(NULL));
}

TEST(a_line_of_python_is_a_site_of_its_own)
{
	atomic_store(&python_is_here, true);
	library_path = "/lib/libcudart.so.13";
	const struct call_site *plain = call_site_find(at(1));
	line = "a.py:3 in f";
	const struct call_site *three = call_site_find(at(1));
	line = "a.py:4 in f";
	const struct call_site *four = call_site_find(at(1));
	assert_string_equal(plain->text, "prog+0x10010");
	assert_string_equal(three->text, "a.py:3 in f");
	assert_string_equal(four->text, "a.py:4 in f");
	assert_ptr_equal(three->address, at(1));
	assert_null(three->library); /* the runtime is no news */
	line = "a.py:3 in f";
	assert_ptr_equal(call_site_find(at(1)), three);
	library_path = "/lib/libcublasLt.so.13";
	assert_string_equal(call_site_find(at(2))->library, "libcublasLt.so.13");
	line = NULL;
	assert_ptr_equal(call_site_find(at(1)), plain);
}

TEST(a_thread_of_autograd_is_backward)
{
	char name[16];

	prctl(PR_GET_NAME, name);
	atomic_store(&python_is_here, true);
	prctl(PR_SET_NAME, "pt_autograd_3");
	assert_string_equal(call_site_find(at(1))->text, "backward");
	line = "loss.py:9 in backward"; /* a function of the user's own */
	assert_string_equal(call_site_find(at(1))->text, "loss.py:9 in backward");
	prctl(PR_SET_NAME, name);
	line = NULL;
	assert_string_equal(call_site_find(at(1))->text, "prog+0x10010");
}

TEST(a_tensor_is_born_at_a_line_or_in_the_backward_pass)
{
	char name[16];

	assert_null(call_site_of_tensor(false)); /* no Python */
	atomic_store(&python_is_here, true);
	assert_null(call_site_of_tensor(false));
	line = "a.py:3 in f";
	errno = EBADF;
	const struct call_site *three = call_site_of_tensor(false), *of_call = call_site_find(at(1));
	assert_int_equal(errno, EBADF);
	assert_string_equal(three->text, "a.py:3 in f");
	assert_null(three->address);
	assert_ptr_not_equal(three, of_call); /* what the driver was asked for there is another site */
	assert_ptr_equal(call_site_of_tensor(false), three);
	line = "a.py:4 in f";
	const struct call_site *four = call_site_of_tensor(false);
	assert_ptr_not_equal(four, three);
	assert_ptr_equal(call_site_numbered(three->number), three);
	assert_ptr_equal(call_site_numbered(four->number), four);
	assert_ptr_equal(call_site_numbered(of_call->number), of_call);
	assert_null(call_site_numbered(0));
	assert_null(call_site_numbered(CALL_SITE_SLOTS + 1));
	line = NULL;
	prctl(PR_GET_NAME, name);
	prctl(PR_SET_NAME, "pt_autograd_3");
	assert_string_equal(call_site_of_tensor(false)->text, "backward");
	prctl(PR_SET_NAME, name);
	/* Callers come if the trace wants them, and the one who asks. */
	line = "a.py:3 in f";
	called_by = "a.py:9 in g";
	assert_ptr_equal(call_site_of_tensor(true), three);
	call_site_callers();
	assert_string_equal(call_site_of_tensor(true)->callers, "a.py:9 in g");
	assert_ptr_equal(call_site_of_tensor(false), three);
}

static unsigned named_of(unsigned n)
{
	unsigned named = 0;

	for (unsigned i = 0; i < n; i++)
		named += call_site_find(at(1))->is_named;
	return named;
}

TEST(naming_takes_a_hundredth_of_the_time)
{
	atomic_store(&python_is_here, true);
	line = "a.py:3 in f";
	python_takes = MS;
	/* 20 ms are free; the 20 ms that pass meanwhile allow 0.2 ms, that is one more. */
	assert_int_equal(named_of(100), 21);
	assert_int_equal(named_of(100), 0);
	atomic_fetch_add(&now, 1000 * (uint64_t)MS);
	assert_int_equal(named_of(100), 10);
	call_site_always();
	assert_int_equal(named_of(100), 100);
}

/* On a thread of its own. */
static void *ask(void *argument)
{
	return (void *)(uintptr_t)call_site_find(argument);
}

/* Before glibc 2.35 the loader's lock is needed: a library that is being loaded holds it, and may allocate. */
TEST(callers_make_a_site_only_if_they_are_wanted)
{
	atomic_store(&python_is_here, true);
	line = "a.py:3 in f";
	called_by = "a.py:9 in g";
	const struct call_site *plain = call_site_find(at(1));
	assert_null(plain->callers);
	called_by = "a.py:8 in h";
	assert_ptr_equal(call_site_find(at(1)), plain);
	call_site_callers();
	const struct call_site *of_h = call_site_find(at(1));
	called_by = "a.py:9 in g";
	const struct call_site *of_g = call_site_find(at(1));
	called_by = "";
	const struct call_site *outermost = call_site_find(at(1));
	assert_string_equal(of_h->callers, "a.py:8 in h");
	assert_string_equal(of_g->callers, "a.py:9 in g");
	assert_string_equal(outermost->callers, "");
	assert_true(of_h != of_g && of_h != plain && of_g != outermost && outermost != plain);
	/* What is counted by site is counted by hash, address and text. */
	assert_true(of_h->hash == plain->hash && of_g->hash == plain->hash);
	assert_true(of_h->address == plain->address && !strcmp(of_h->text, plain->text));
	called_by = "a.py:8 in h";
	assert_ptr_equal(call_site_find(at(1)), of_h);
}

/* 20 ms and a hundredth of the time may be taken by names, and half of that by names with callers. */
TEST(callers_take_half_of_the_time_of_names)
{
	unsigned n = 0, deep = 0;

	atomic_store(&python_is_here, true);
	call_site_callers();
	line = "a.py:3 in f";
	called_by = "a.py:9 in g";
	python_takes = MS;
	for (unsigned i = 0; i < 30; i++) {
		const struct call_site *site = call_site_find(at(1));

		n += site->is_named;
		deep += site->callers != NULL;
	}
	assert_int_equal(n, 21);    /* the first 20 ms, and one for the time that they took */
	assert_int_equal(deep, 11); /* the same of 10 ms */
}

TEST(nobody_waits_for_who_asks_the_loader)
{
	void *first;

	atomic_store(&n_asking, 0);
	atomic_store(&loader_is_busy, true);
	pthread_t thread = test_thread(ask, STUCK);
	while (!atomic_load(&n_asking))
		sched_yield();
	/* Half of the places are taken, so one of these searches the place of the other. */
	for (unsigned i = 0; i < CALL_SITE_SLOTS / 2; i++)
		assert_non_null(call_site_find(at(i)));
	atomic_store(&loader_is_busy, false);
	pthread_join(thread, &first);
	assert_ptr_equal(first, call_site_find(STUCK));
}

TEST(a_full_table_knows_no_more)
{
	unsigned known = 0;

	for (unsigned i = 0; i < 3 * CALL_SITE_SLOTS; i++)
		known += call_site_find(at(i)) != NULL;
	assert_int_equal(known, CALL_SITE_SLOTS);
	known = 0;
	for (unsigned i = 0; i < 3 * CALL_SITE_SLOTS; i++)
		known += call_site_find(at(i)) != NULL;
	assert_int_equal(known, CALL_SITE_SLOTS);
}

#define ROUNDS 2000
static const struct call_site *seen[4][ROUNDS];

static void *find_all(void *argument)
{
	const struct call_site **mine = argument;

	for (unsigned i = 0; i < ROUNDS; i++)
		mine[i] = call_site_find(at(i));
	return NULL;
}

TEST(threads_agree_on_what_a_site_is)
{
	pthread_t threads[4];

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, find_all, seen[i]), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < ROUNDS; i++)
		for (unsigned thread = 1; thread < 4; thread++)
			assert_ptr_equal(seen[thread][i], seen[0][i]);
}
