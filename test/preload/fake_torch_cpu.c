// SPDX-License-Identifier: Apache-2.0
/*
 * fake_torch_cpu.c: libtorch_cpu.so as far as the library knows it: what PyTorch's autograd exports about the calling
 * thread, under PyTorch's own names, and nodes of both layouts that PyTorch has had. Numbers count up by thread.
 *
 * A C++ function that returns a class with a destructor is passed the address of the room for it; in C that is so of
 * structures of more than 16 bytes.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define PEEK              _ZN2at15sequence_number4peekEv
#define CURRENT_THREAD_ID _ZN2at14RecordFunction15currentThreadIdEv
#define GET_CURRENT_NODE  _ZN5torch8autograd16get_current_nodeEv
#define GARBAGE           ((uintptr_t)0xdeadbeef12345679)

/* The control block of a std::shared_ptr. */
struct control {
	void *functions;
	_Atomic uint32_t uses, weak;
};

struct shared_node {
	void *functions;
	struct shared_node *self;
	struct control *control;
	uint64_t number, depth;
	_Bool has_parent;
	uint64_t thread;
	uint64_t more[16];
};

struct intrusive_node {
	void *functions;
	_Atomic uint32_t uses, weak;
	uint64_t number, depth;
	_Bool has_parent, hooks;
	uint64_t thread;
	uint64_t more[16];
};

struct reference {
	void *node, *control, *more;
};

/* What a thread of autograd does. */
struct backward {
	void *node; /* that it runs; NULL: none */
	int (*make_current)(void);
	unsigned long long (*allocate)(void *torch, size_t bytes, void *stream, size_t *ret_bytes);
	void *torch;
	size_t bytes;
};

uint64_t PEEK(void);
uint64_t CURRENT_THREAD_ID(void);
struct reference GET_CURRENT_NODE(void);
void fake_autograd_layout(int intrusive);
void *fake_node(void);
void fake_node_number(void *node, uint64_t number);
unsigned fake_node_references(void *node);
unsigned long long fake_backward(struct backward *backward);

static _Atomic uint64_t n_threads;
static __thread uint64_t thread, next;
static __thread struct reference current;
static int is_intrusive;

uint64_t PEEK(void)
{
	return next;
}

uint64_t CURRENT_THREAD_ID(void)
{
	if (!thread)
		thread = ++n_threads;
	return thread;
}

static _Atomic uint32_t *references(void *node)
{
	return is_intrusive ? &((struct intrusive_node *)node)->uses : &((struct shared_node *)node)->control->uses;
}

struct reference GET_CURRENT_NODE(void) {
	if (current.node)
		(*references(current.node))++;
	return current;
}

void fake_autograd_layout(int intrusive)
{
	is_intrusive = intrusive;
}

void *fake_node(void)
{
	uint64_t number = next++;

	if (is_intrusive) {
		struct intrusive_node *node = calloc(1, sizeof(*node));

		*node = (struct intrusive_node){.uses = 1, .weak = 1, .number = number, .thread = CURRENT_THREAD_ID()};
		return node;
	}
	struct shared_node *node = calloc(1, sizeof(*node));
	*node = (struct shared_node){.self = node, .number = number, .thread = CURRENT_THREAD_ID()};
	node->control = calloc(1, sizeof(*node->control));
	*node->control = (struct control){.uses = 1, .weak = 1};
	return node;
}

void fake_node_number(void *node, uint64_t number)
{
	if (is_intrusive)
		((struct intrusive_node *)node)->number = number;
	else
		((struct shared_node *)node)->number = number;
}

unsigned fake_node_references(void *node)
{
	return *references(node);
}

/* The engine has one reference of its own while the node runs, and the thread has one. */
static void *run(void *argument)
{
	struct backward *backward = argument;
	void *node = backward->node;

	prctl(PR_SET_NAME, "pt_autograd_0");
	if (backward->make_current())
		return NULL;
	if (node) {
		*references(node) += 2;
		current = (struct reference){node, (void *)GARBAGE, (void *)GARBAGE};
		if (!is_intrusive)
			current.control = ((struct shared_node *)node)->control;
	}
	uintptr_t at = backward->allocate(backward->torch, backward->bytes, NULL, NULL);
	if (node)
		*references(node) -= 2;
	return (void *)at;
}

/* Allocates in a thread of autograd. Returns the address; 0: there is no memory, or no thread. */
unsigned long long fake_backward(struct backward *backward)
{
	pthread_t other;
	void *result = NULL;

	if (pthread_create(&other, NULL, run, backward))
		return 0;
	pthread_join(other, &result);
	return (uintptr_t)result;
}
