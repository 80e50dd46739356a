// SPDX-License-Identifier: Apache-2.0
/*
 * What PyTorch's autograd says about a thread: both layouts of nodes, that each reference is given back and the last
 * one is not, and that nothing is asked of a PyTorch that is not known. Its functions are stood for here (-Wl,--wrap).
 */
#include <sys/mman.h>
#include <sys/uio.h>

#include "shim/base/base_state.h"
#include "shim/base/call_site.h"
#include "shim/base/libc.h"
#include "test/test.h"

#define GARBAGE ((uintptr_t)0xdeadbeef12345679)

/* As C++ returns it: in memory. Of an intrusive_ptr the rest is what was there before. */
struct reference {
	uintptr_t node, control, rest;
};

static struct reference current; /* node: 0: none */
static _Atomic uint32_t *count;  /* that a new reference adds one to; NULL: none */
static unsigned n_asked;
static unsigned missing; /* which function PyTorch lacks; 3: none */
static const char *looked_in;
static bool is_closed; /* the process may not read its own memory */

static uint64_t words[16]; /* a node */
static struct {
	void *functions;
	_Atomic uint32_t uses, weak;
} control;

static uint64_t next_number(void)
{
	return 77;
}

static uint64_t own_thread(void)
{
	return 5;
}

static struct reference current_node(void)
{
	n_asked++;
	if (count)
		(*count)++;
	return current;
}

bool __wrap_elf_symbols_find(const char *object, const char *const names[], unsigned n, uintptr_t ret_addresses[],
			     void **ret_held);
bool __wrap_elf_symbols_find(const char *object, const char *const names[], unsigned n, uintptr_t ret_addresses[],
			     void **ret_held)
{
	static const char *const wanted[] = {"_ZN2at15sequence_number4peekEv",
					     "_ZN2at14RecordFunction15currentThreadIdEv",
					     "_ZN5torch8autograd16get_current_nodeEv"};
	const uintptr_t found[] = {(uintptr_t)next_number, (uintptr_t)own_thread, (uintptr_t)current_node};

	looked_in = object;
	assert_null(ret_held); /* it stays */
	assert_int_equal(n, 3);
	for (unsigned i = 0; i < n; i++) {
		assert_string_equal(names[i], wanted[i]);
		ret_addresses[i] = i == missing ? 0 : found[i];
	}
	return missing != 0;
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
				unsigned long n_from, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
				unsigned long n_from, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
				unsigned long n_from, unsigned long flags)
{
	if (!is_closed)
		return __real_process_vm_readv(pid, to, n_to, from, n_from, flags);
	errno = EPERM;
	return -1;
}

FIXTURE(begin_anew)
{
	memset(&base_state.autograd, 0, sizeof(base_state.autograd));
	memset(words, 0x5a, sizeof(words));
	n_asked = 0;
	missing = 3;
	is_closed = false;
	current = (struct reference){0};
	count = NULL;
}

EACH_TEST(begin_anew, NULL)

static void make_shared(uint64_t number, uint64_t thread, unsigned references)
{
	words[1] = (uintptr_t)words;
	words[2] = (uintptr_t)&control;
	words[3] = number;
	words[6] = thread;
	control.uses = references;
	control.weak = 1;
	count = &control.uses;
	current = (struct reference){(uintptr_t)words, (uintptr_t)&control, GARBAGE};
}

/* upper: of the count: weak references, and a bit. */
static void make_intrusive(uint64_t number, uint64_t thread, unsigned references, uint32_t upper)
{
	words[1] = (uint64_t)upper << 32 | references;
	words[2] = number;
	words[5] = thread;
	count = (_Atomic uint32_t *)&words[1];
	current = (struct reference){(uintptr_t)words, GARBAGE, GARBAGE};
}

TEST(a_node_of_either_layout_is_read_and_given_back)
{
	struct autograd_node node;

	autograd_bind();
	assert_string_equal(looked_in, "libtorch_cpu.so");
	assert_true(autograd_is_here());
	errno = EBADF;
	for (unsigned i = 0; i < 3; i++) {
		make_shared(40 + i, 3, 2);
		assert_true(autograd_running(&node));
		assert_true(node.number == 40 + i && node.thread == 3);
		assert_int_equal(control.uses, 2);
		assert_int_equal(control.weak, 1);
	}
	begin_anew(NULL);
	autograd_bind();
	for (unsigned i = 0; i < 3; i++) {
		make_intrusive(50 + i, 4, 2, 0x80000001); /* Python has an object for it */
		assert_true(autograd_running(&node));
		assert_true(node.number == 50 + i && node.thread == 4);
		assert_int_equal(words[1], UINT64_C(0x8000000100000002));
	}
	assert_int_equal(errno, EBADF);
	node = autograd_next();
	assert_true(node.number == 77 && node.thread == 5);
}

TEST(a_thread_may_run_no_node_or_one_without_a_number)
{
	struct autograd_node node;

	autograd_bind();
	assert_false(autograd_running(&node));
	make_shared(UINT64_MAX, 3, 2); /* where a gradient is kept */
	assert_false(autograd_running(&node));
	assert_int_equal(control.uses, 2);
	current = (struct reference){0};
	count = NULL;
	assert_false(autograd_running(&node));
	assert_true(autograd_is_here());
}

static void nothing_is_known_from_now_on(void)
{
	struct autograd_node node;

	assert_false(autograd_running(&node));
	assert_false(autograd_is_here());
	autograd_bind();
	assert_false(autograd_is_here());
}

/* Who takes the last one has to destroy the node. */
TEST(the_last_reference_is_not_given_back)
{
	struct autograd_node node;

	autograd_bind();
	make_shared(40, 3, 2);
	assert_true(autograd_running(&node));
	make_shared(41, 3, 0);
	nothing_is_known_from_now_on();
	assert_int_equal(control.uses, 1);
	begin_anew(NULL);
	autograd_bind();
	make_intrusive(40, 3, 2, 1);
	assert_true(autograd_running(&node));
	make_intrusive(41, 3, 1, 1);
	nothing_is_known_from_now_on();
	assert_int_equal(words[1], UINT64_C(0x100000002));
}

TEST(a_layout_that_is_not_known_is_left_alone)
{
	uint64_t seen[16];
	char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(page, MAP_FAILED);
	const struct reference wrong[] = {{(uintptr_t)words, GARBAGE, GARBAGE},
					  {(uintptr_t)words, (uintptr_t)&control, GARBAGE},
					  {(uintptr_t)words + 1, GARBAGE, GARBAGE},
					  {(uintptr_t)page, (uintptr_t)page, GARBAGE},
					  {GARBAGE, GARBAGE, GARBAGE},
					  {8, 8, 8}};
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		begin_anew(NULL);
		autograd_bind();
		current = wrong[i];
		memcpy(seen, words, sizeof(seen));
		nothing_is_known_from_now_on();
		assert_memory_equal(seen, words, sizeof(seen));
		assert_int_equal(n_asked, 1);
	}
	munmap(page, 4096);
	for (unsigned i = 0; i < 5; i++) {
		begin_anew(NULL);
		autograd_bind();
		if (i < 3) {
			make_shared(40, 3, 2);
			words[1] += i == 0;
			words[2] += i == 1;
			words[6] *= i != 2; /* no thread has this number */
		} else {
			make_intrusive(40, i == 3 ? 0 : 3, 2, i == 3); /* likewise; or there is no weak reference */
		}
		nothing_is_known_from_now_on();
	}
}

TEST(a_pytorch_that_lacks_a_function_is_not_asked)
{
	assert_false(autograd_is_here());
	for (unsigned i = 0; i < 3; i++) {
		begin_anew(NULL);
		missing = i;
		autograd_bind();
		assert_false(autograd_is_here());
		missing = 3;
		autograd_bind(); /* the first call decides */
		assert_false(autograd_is_here());
	}
}

/* A node that cannot be looked at could not be given back: with it, all that it leads to would live for ever. */
TEST(a_process_that_may_not_read_itself_asks_for_no_node)
{
	is_closed = true;
	make_shared(40, 3, 2);
	errno = EBADF;
	autograd_bind();
	assert_int_equal(errno, EBADF);
	assert_false(autograd_is_here());
	assert_int_equal(n_asked, 0);
	assert_int_equal(control.uses, 2);
}
