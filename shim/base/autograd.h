/*
 * autograd.h: what PyTorch's autograd says about the calling thread: the node that it runs in the backward pass, and
 * the number that the next node will have which this thread makes in the forward pass.
 *
 * A node is made before the operation that it belongs to computes: while that operation allocates, the node is the one
 * before the next. Numbers count up by thread, so a node is identified by its number and the thread that made it.
 *
 * Three functions that libtorch_cpu.so exports are called: at::sequence_number::peek(), at::RecordFunction::
 * currentThreadId() and torch::autograd::get_current_node(). The last one returns a reference to the node, which is
 * given back by subtracting one from its count, but never the last one: the engine holds two while a node runs. Number
 * and thread are read from the node. Two layouts are known:
 *   std::shared_ptr      a node has its own address and that of the count at byte 8, its number at 24, its thread at 48
 *   c10::intrusive_ptr   a node has its count at byte 8, its number at 16, its thread at 40
 * The first node that is seen must have one of them, read by process_vm_readv(), so a wrong address is an error and no
 * fault. If it has neither, that node is never freed, and nothing is known from then on. A process that may not read
 * its own memory (seccomp) asks for no node.
 *
 * Checked (x86-64, on the CPU): 2.11.0 has the first layout, 2.14.1 and 2.15.0 have the second. 2.7.1 has the names
 * and, in its headers, the first one.
 *
 * Locking: none, but for autograd_bind().
 */
#ifndef SPILLWAY_AUTOGRAD_H
#define SPILLWAY_AUTOGRAD_H

#include <stdbool.h>
#include <stdint.h>

struct autograd_node {
	uint64_t number, thread; /* thread: that made it, as PyTorch counts threads */
};

/*
 * Looks for the functions, and holds their library, which is never unloaded anyway: it has unique symbols of C++. The
 * first call decides; a PyTorch that is loaded later is not found. Locking: takes the loader's lock.
 */
void autograd_bind(void);
/* Returns true if all three functions are there, and nodes have a layout that is known, as far as one was seen. */
bool autograd_is_here(void);
/* Returns the node that this thread would make next. The caller must have checked autograd_is_here(). */
struct autograd_node autograd_next(void);
/*
 * Returns true if this thread runs a node that has a number; *ret is that node. The caller must have checked
 * autograd_is_here().
 */
bool autograd_running(struct autograd_node *ret);

#endif
