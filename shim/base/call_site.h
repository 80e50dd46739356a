// SPDX-License-Identifier: Apache-2.0
/*
 * call_site.h: what in the program asked for memory, with a name for people and for policies.
 *
 * The caller of the driver is rarely the answer: it is the CUDA runtime, and behind it the allocator of a framework.
 * Kinds of names, the first that can be had:
 *   "train.py:57 in forward"            the innermost frame of the user's own files in Python (python.h)
 *   "train.py:57 in forward [backward]" a thread of PyTorch's autograd, which runs no Python of users: of its tensors,
 *                                       where it is known for which line it makes them (lifetimes.h)
 *   "backward"                          such a thread otherwise
 *   "libmodel.so:load_weights+0x1c"     the innermost native caller that is no plumbing, without the function's name
 *                                       where that is not exported: "libmodel.so+0x4711"
 * Plumbing is the CUDA libraries, and libraries of frameworks and their allocators (call_site.c has the list).
 *
 * Naming may take 1 % of the time, and 20 ms that were saved, in time of the CPU. Measured (CPython 3.10 and 3.12,
 * x86-64): 5 us, and 1.5 us for each frame of a library that is passed; 20 us behind ten of them. Once it has taken
 * more, requests go by the address that called, until there is time again; except that all are named if the policy asks
 * (call_site_always()).
 *
 * Callers are frames of the user's files in Python, and only the trace asks for them (call_site_callers()): all frames
 * of the thread must be gone through. Measured (CPython 3.11, x86-64, in a virtual machine): 3 us a frame of the user.
 * Half of what may be saved is kept for names without them.
 *
 * Locking: takes no lock. With glibc before 2.35 the loader's is taken: the caller must hold no lock that can be taken
 * under it.
 */
#ifndef SPILLWAY_CALL_SITE_H
#define SPILLWAY_CALL_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Never freed: the address of a site is its identity. Constant, but for what is found at its address. */
struct call_site {
	const void *address; /* code: that called the driver, or that is named */
	const void *object;  /* that contains it (caller_name_object); NULL: not known */
	uint32_t hash;
	uint16_t number;            /* from 1: see call_site_numbered() */
	_Atomic uint8_t at_address; /* for call_site.c: is that code still there? */
	bool is_plumbing, is_named; /* is_named: text says more than the address */
	bool is_backward;           /* a thread of PyTorch's autograd, of which no line is known */
	/* File name of the library that called the driver, unless text names it or it is the runtime; else NULL. */
	const char *library;
	/* Path of the object that contains the address; NULL if is_named, or if its closing would not be heard of. */
	const char *path;
	bool is_runtime; /* the path is that of the CUDA runtime */
	/*
	 * The frames of the user's files that called the line of text, from the inside out (python.h), "" if it
	 * is the outermost; NULL: not known. Sites that differ in it alone have the same hash, address and text.
	 */
	const char *callers;
	char text[]; /* "" if nothing is known */
};

/* Returns whether this names tensors that the backward pass makes. */
static inline bool call_site_names_backward(const char *text)
{
	static const char end[] = " [backward]";
	size_t n = strlen(text), m = sizeof(end) - 1;

	return !strcmp(text, "backward") || (n > m && !strcmp(text + n - m, end));
}

/* Prepares call_site_find(). May be called repeatedly. Locking: the caller must hold no lock: the loader's is taken. */
void call_site_bind(void);
/* From now on callers are named, too, while more than half of the time for names is saved: for the trace. */
void call_site_callers(void);
/* From now on every request is named. */
void call_site_always(void);
/*
 * Returns the site of a request that this thread makes. caller: return address of the driver's function. Returns NULL
 * if caller is NULL, or if there is no memory for a new site, or no room: there is for 4,096. Leaves errno as it is.
 */
const struct call_site *call_site_find(const void *caller);
/*
 * Returns the path of the object that contains the caller, as caller_name_library() does. It is looked up once for each
 * caller. Locking: as call_site_find().
 */
const char *call_site_path(const void *caller);
/*
 * Returns the object (caller_name_object) that asked the CUDA runtime, or the driver if it is not the runtime that
 * called it; NULL: not known. Leaves errno as it is. Measured (glibc 2.36, x86-64, in a virtual machine): 2.5 us behind
 * the runtime. Locking: as call_site_find(), and the loader's until libgcc_s is loaded.
 */
const void *call_site_asker(const void *caller);
/*
 * Returns the path of the object that called the driver, or the CUDA runtime if that did, for what this thread does;
 * NULL: not known. Leaves errno as it is. Locking: as call_site_asker().
 */
const char *call_site_launcher(void);
/*
 * Returns the line of Python that this thread is at, or "backward", as the site of a tensor that is born now: its
 * address is NULL. Returns NULL if the thread is in neither, or without memory or room. deep: with callers, if they are
 * wanted at all. Leaves errno as it is. The caller must limit how often it asks (clock.h): what is measured above
 * holds here.
 * Locking: never the loader's.
 */
const struct call_site *call_site_of_tensor(bool deep);
/*
 * Returns the site of tensors that a thread of autograd makes for this line of the forward pass: "LINE [backward]",
 * with the callers of the line. Returns NULL without memory or room. Leaves errno as it is. Locking: never the
 * loader's.
 */
const struct call_site *call_site_backward(const struct call_site *line);
/* Returns the site of this number; NULL: there is none. */
const struct call_site *call_site_numbered(unsigned number);

/* ---- the node of autograd that a thread runs ---- */

/*
 * What PyTorch's autograd says about the calling thread: the node that it runs in the backward pass, and
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
