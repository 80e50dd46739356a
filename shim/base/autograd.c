/* The node that a thread runs. See autograd.h. */
#include "shim/base/autograd.h"
#include "shim/base/base_state.h"
#include "shim/base/modules.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/uio.h>
#include <unistd.h>

enum state {
	STATE_NEW,
	STATE_LOOKING,
	STATE_NONE,       /* no PyTorch, or one that is not known */
	STATE_NOT_SEEN,   /* no node has been seen yet */
	STATE_SHARED_PTR, /* the layouts of autograd.h */
	STATE_INTRUSIVE_PTR,
};

enum name { NEXT_NUMBER, THREAD, CURRENT_NODE, NAMES };
static const char *const names[NAMES] = {
    [NEXT_NUMBER] = "_ZN2at15sequence_number4peekEv",
    [THREAD] = "_ZN2at14RecordFunction15currentThreadIdEv",
    [CURRENT_NODE] = "_ZN5torch8autograd16get_current_nodeEv",
};

/* Words of a node. */
enum {
	SHARED_SELF = 1,
	SHARED_COUNT = 2,
	SHARED_NUMBER = 3,
	SHARED_THREAD = 6,
	INTRUSIVE_COUNT = 1,
	INTRUSIVE_NUMBER = 2,
	INTRUSIVE_THREAD = 5,
	WORDS = 7 /* that are looked at; each kind of node has more */
};
#define COUNT_MOST   (1u << 20)          /* of references that are plausible */
#define THREADS_MOST (UINT64_C(1) << 30) /* of threads */

/*
 * What get_current_node() returns: a class of C++ with a destructor, so the caller passes the address of the room for
 * it, in the register that the ABI has for that. In C only structures of more than 16 bytes are returned so. Of an
 * intrusive_ptr the first word alone is written, of a shared_ptr two.
 */
struct autograd_reference {
	uintptr_t node, control, room;
};
_Static_assert(sizeof(struct autograd_reference) > 16, "it is returned in memory");

/* The count of a shared_ptr is behind the pointer to the functions of its control block. */
static _Atomic uint32_t *shared_count(uintptr_t control)
{
	return (_Atomic uint32_t *)(control + sizeof(void *));
}

/*
 * Gives a reference back. Returns false, and keeps it, if there are fewer than `least`. Of the word of an intrusive
 * count the lower 32 bits are references.
 */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower 32 bits of a word are its first");
static bool give_back(_Atomic uint32_t *count, uint32_t least)
{
	uint32_t was = atomic_load_explicit(count, memory_order_relaxed);

	do {
		if (was < least)
			return false;
	} while (
	    !atomic_compare_exchange_weak_explicit(count, &was, was - 1, memory_order_acq_rel, memory_order_relaxed));
	return true;
}

static bool read_own(uintptr_t address, void *room, size_t bytes)
{
	struct iovec to = {room, bytes}, from = {(void *)address, bytes};

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)bytes;
}

static bool is_thread(uint64_t thread)
{
	return thread && thread < THREADS_MOST;
}

/* Returns the layout of the node that a reference is to, which may be of any layout; STATE_NONE: not known. */
static enum state layout_of(const struct autograd_reference *reference)
{
	uint64_t word[WORDS];
	uint32_t count;

	if (reference->node % sizeof(uint64_t) || !read_own(reference->node, word, sizeof(word)))
		return STATE_NONE;
	if (word[SHARED_SELF] == reference->node && word[SHARED_COUNT] == reference->control &&
	    reference->control % sizeof(uint64_t) == 0 && is_thread(word[SHARED_THREAD]) &&
	    read_own((uintptr_t)shared_count(reference->control), &count, sizeof(count)) && count < COUNT_MOST)
		return STATE_SHARED_PTR;
	/* Beside the references there are weak ones, and one bit (63). */
	count = (uint32_t)word[INTRUSIVE_COUNT];
	uint32_t weak = (uint32_t)(word[INTRUSIVE_COUNT] >> 32) & INT32_MAX;
	if (count > 2 && count < COUNT_MOST && weak && weak < COUNT_MOST && is_thread(word[INTRUSIVE_THREAD]))
		return STATE_INTRUSIVE_PTR;
	return STATE_NONE;
}

static bool read_node(const struct autograd_reference *reference, enum state layout, struct autograd_node *ret)
{
	const uint64_t *word = (const uint64_t *)reference->node;

	if (layout == STATE_SHARED_PTR) {
		*ret = (struct autograd_node){word[SHARED_NUMBER], word[SHARED_THREAD]};
		return word[SHARED_SELF] == reference->node && word[SHARED_COUNT] == reference->control &&
		       give_back(shared_count(reference->control), 2);
	}
	*ret = (struct autograd_node){word[INTRUSIVE_NUMBER], word[INTRUSIVE_THREAD]};
	/* From 2 to 1 a reference to Python's object of the node would have to be given back, too. */
	return give_back((_Atomic uint32_t *)&word[INTRUSIVE_COUNT], 3);
}

bool autograd_running(struct autograd_node *ret)
{
	struct autograd_state *autograd = &base_state.autograd;
	struct autograd_reference reference = autograd->current_node();
	int state = atomic_load_explicit(&autograd->state, memory_order_acquire);

	if (!reference.node)
		return false;
	if (state == STATE_NOT_SEEN) {
		int saved = errno;

		state = (int)layout_of(&reference);
		errno = saved;
		atomic_store_explicit(&autograd->state, state, memory_order_release);
	}
	if (state <= STATE_NOT_SEEN || !read_node(&reference, (enum state)state, ret)) {
		atomic_store_explicit(&autograd->state, STATE_NONE, memory_order_release);
		return false;
	}
	return ret->number != UINT64_MAX; /* AccumulateGrad, which no operation has made */
}

struct autograd_node autograd_next(void)
{
	return (struct autograd_node){base_state.autograd.next_number(), base_state.autograd.own_thread()};
}

bool autograd_is_here(void)
{
	return atomic_load_explicit(&base_state.autograd.state, memory_order_acquire) >= STATE_NOT_SEEN;
}

void autograd_bind(void)
{
	struct autograd_state *autograd = &base_state.autograd;
	int expected = STATE_NEW, found = STATE_NONE, saved = errno;
	uintptr_t address[NAMES] = {0};
	char byte;

	if (!atomic_compare_exchange_strong(&autograd->state, &expected, STATE_LOOKING))
		return;
	/* Without reading, the first node could not be given back. */
	if (elf_symbols_find("libtorch_cpu.so", names, NAMES, address, NULL) && address[THREAD] &&
	    address[CURRENT_NODE] && read_own((uintptr_t)&byte, &byte, 1)) {
		autograd->next_number = (autograd_count_function *)address[NEXT_NUMBER];
		autograd->own_thread = (autograd_count_function *)address[THREAD];
		autograd->current_node = (autograd_node_function *)address[CURRENT_NODE];
		found = STATE_NOT_SEEN;
	}
	errno = saved;
	atomic_store_explicit(&autograd->state, found, memory_order_release);
}
