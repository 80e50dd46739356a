// SPDX-License-Identifier: Apache-2.0
/*
 * For which lines a thread of autograd makes tensors: those that were noted for the node that it runs, and none where
 * that is not certain. Python, the clock and PyTorch's autograd are stood for here (-Wl,--wrap).
 */
#include <stdatomic.h>
#include <sys/prctl.h>

#include "shim/base/base_state.h"
#include "shim/base/call_site.h"
#include "shim/base/python.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/lifetimes/types.h"
#include "test/test.h"

#define BASE (UINT64_C(1) << 40)

static char line[PYTHON_NAME];
static const char *called_by;
static bool autograd_is_known;
static struct autograd_node next; /* that this thread makes */
static struct autograd_node run;  /* that it runs */
static bool runs;
static unsigned n_asked;
static uint64_t place; /* of the next birth, so that none is recognized */

uint64_t __wrap_clock_now(void);
uint64_t __wrap_clock_now(void)
{
	return 60000000000;
}

uint64_t __wrap_clock_thread(void);
uint64_t __wrap_clock_thread(void)
{
	return 0;
}

bool __wrap_python_process_is_here(void);
bool __wrap_python_process_is_here(void)
{
	return true;
}

enum python_found __wrap_python_process_name(char *room, char *callers);
enum python_found __wrap_python_process_name(char *room, char *callers)
{
	snprintf(room, PYTHON_NAME, "%s", line);
	if (callers)
		snprintf(callers, PYTHON_CALLERS, "%s", called_by);
	return *line ? PYTHON_OF_USER : PYTHON_NO_FRAMES;
}

bool __wrap_autograd_is_here(void);
bool __wrap_autograd_is_here(void)
{
	return autograd_is_known;
}

struct autograd_node __wrap_autograd_next(void);
struct autograd_node __wrap_autograd_next(void)
{
	n_asked++;
	return next;
}

bool __wrap_autograd_running(struct autograd_node *ret);
bool __wrap_autograd_running(struct autograd_node *ret)
{
	n_asked++;
	*ret = run;
	return runs;
}

BEFORE_EACH
{
	for (unsigned i = 0; i < CALL_SITE_SLOTS; i++)
		free(atomic_load(&base_state.call_site.slot[i]));
	memset(&base_state.call_site, 0, sizeof(base_state.call_site));
	memset(&lifetimes_state.births, 0, sizeof(lifetimes_state.births));
	called_by = "";
	autograd_is_known = true;
	n_asked = 0;
}

static const struct call_site *birth(void)
{
	place += 8 * MIB;
	return call_site_numbered(birth_lines_name(BASE + place, 8 * MIB));
}

/* A tensor is born at line `at` by a thread that has made all nodes before `number`. */
static const struct call_site *forward(unsigned at, uint64_t thread, uint64_t number)
{
	snprintf(line, sizeof(line), "train.py:%u in forward", at);
	next = (struct autograd_node){number, thread};
	return birth();
}

/* A thread of autograd makes a tensor while it runs this node. */
static const struct call_site *backward(uint64_t thread, uint64_t number)
{
	char name[16];

	line[0] = 0;
	next = (struct autograd_node){0, 99};
	run = (struct autograd_node){number, thread};
	runs = true;
	prctl(PR_GET_NAME, name);
	prctl(PR_SET_NAME, "pt_autograd_0");
	const struct call_site *site = birth();
	prctl(PR_SET_NAME, name);
	runs = false;
	return site;
}

static const char *text_of_backward(uint64_t thread, uint64_t number)
{
	const struct call_site *site = backward(thread, number);

	return site ? site->text : "(none)";
}

TEST(a_tensor_counts_for_the_line_that_made_the_node)
{
	forward(1, 1, 100);
	forward(10, 1, 101);
	forward(11, 1, 102);
	for (unsigned i = 0; i < 3; i++) {
		assert_string_equal(text_of_backward(1, 101), "train.py:11 in forward [backward]");
		assert_string_equal(text_of_backward(1, 100), "train.py:10 in forward [backward]");
	}
	assert_ptr_equal(backward(1, 100), backward(1, 100));
	assert_string_equal(forward(10, 1, 103)->text, "train.py:10 in forward"); /* what it makes itself is apart */
	assert_string_equal(text_of_backward(1, 102), "train.py:10 in forward [backward]");
	errno = EBADF;
	backward(1, 101);
	assert_int_equal(errno, EBADF);
}

TEST(only_the_first_birth_after_a_node_is_noted)
{
	forward(1, 1, 200);
	forward(10, 1, 201);
	forward(11, 1, 201); /* has no node of its own */
	assert_string_equal(text_of_backward(1, 200), "train.py:10 in forward [backward]");
	forward(11, 1, 201);
	forward(12, 1, 204); /* three were made: of the first two nobody knows */
	assert_string_equal(text_of_backward(1, 201), "backward");
	assert_string_equal(text_of_backward(1, 202), "backward");
	assert_string_equal(text_of_backward(1, 203), "train.py:12 in forward [backward]");
	/* The first birth has no line, so the second is not taken for it. */
	line[0] = 0;
	next = (struct autograd_node){205, 1};
	birth();
	forward(13, 1, 205);
	assert_string_equal(text_of_backward(1, 204), "backward");
}

static void *first_births(void *argument)
{
	forward(10, 6, 250);
	forward(11, 6, 251);
	return NULL;
}

TEST(what_a_thread_made_before_its_first_birth_is_not_known)
{
	test_beside(first_births, NULL);
	assert_string_equal(text_of_backward(6, 249), "backward");
	assert_string_equal(text_of_backward(6, 250), "train.py:11 in forward [backward]");
}

TEST(a_node_that_nobody_has_made_has_no_line)
{
	forward(1, 1, 300);
	forward(10, 1, 301);
	assert_string_equal(text_of_backward(1, 301), "backward"); /* not made yet */
	assert_string_equal(text_of_backward(1, 300 + NODE_LINES_SLOTS), "backward");
	assert_string_equal(text_of_backward(1, 300 + (UINT64_C(1) << 35)), "backward");
	assert_string_equal(text_of_backward(1, UINT64_MAX - 1), "backward");
	assert_string_equal(text_of_backward(1 + (UINT64_C(1) << 16), 300), "backward");
	assert_string_equal(text_of_backward(2, 300), "backward");
	assert_string_equal(text_of_backward(1 + NODE_LINES_SLOTS, 300), "backward"); /* has the same place */
	assert_string_equal(text_of_backward(1, 300), "train.py:10 in forward [backward]");
	/* Numbers that do not fit are not noted, so nothing is found in their place. */
	forward(11, 1, (UINT64_C(1) << 35) + 301);
	forward(12, 1 + (UINT64_C(1) << 16), 301);
	assert_string_equal(text_of_backward(1, 300), "train.py:10 in forward [backward]");
	/* The table holds so many. */
	forward(13, 1, 300 + NODE_LINES_SLOTS);
	forward(14, 1, 301 + NODE_LINES_SLOTS);
	assert_string_equal(text_of_backward(1, 300), "backward");
	assert_string_equal(text_of_backward(1, 300 + NODE_LINES_SLOTS), "train.py:14 in forward [backward]");
}

TEST(threads_may_use_the_same_numbers)
{
	for (unsigned thread = 1; thread <= 8; thread++) {
		forward(1, thread, 400);
		for (unsigned i = 0; i < 100; i++)
			forward(100 * thread + i, thread, 401 + i);
	}
	for (unsigned i = 0; i < 100; i++)
		for (unsigned thread = 1; thread <= 8; thread++) {
			char text[64];

			snprintf(text, sizeof(text), "train.py:%u in forward [backward]", 100 * thread + i);
			assert_string_equal(text_of_backward(thread, 400 + i), text);
		}
}

/* A thread of autograd that computes a part of the forward pass again makes nodes, too. */
TEST(nodes_of_the_backward_pass_are_not_those_of_the_next_line)
{
	forward(1, 7, 500);
	line[0] = 0;
	prctl(PR_SET_NAME, "pt_autograd_0");
	next = (struct autograd_node){501, 7}; /* by a double backward */
	assert_string_equal(birth()->text, "backward");
	prctl(PR_SET_NAME, "test");
	forward(10, 7, 501);
	assert_string_equal(text_of_backward(7, 500), "backward");
}

TEST(without_autograd_all_is_as_before)
{
	autograd_is_known = false;
	forward(1, 1, 600);
	forward(10, 1, 601);
	assert_string_equal(text_of_backward(1, 600), "backward");
	assert_int_equal(n_asked, 0);
	autograd_is_known = true;
	assert_string_equal(text_of_backward(1, 600), "backward");
}

TEST(a_site_in_backward_has_the_callers_of_its_line)
{
	call_site_callers();
	forward(1, 1, 700);
	called_by = "train.py:90 in step";
	forward(10, 1, 701);
	called_by = "train.py:91 in evaluate";
	forward(10, 1, 702);
	const struct call_site *step = backward(1, 700), *evaluate = backward(1, 701);
	assert_string_equal(step->text, evaluate->text);
	assert_string_equal(step->callers, "train.py:90 in step");
	assert_string_equal(evaluate->callers, "train.py:91 in evaluate");
	assert_true(step->hash == evaluate->hash); /* figures count them as one */
}
