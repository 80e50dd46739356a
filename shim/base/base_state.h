// SPDX-License-Identifier: Apache-2.0
/*
 * base_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 * The folders of user_dir.h, which serve/ reads and tests change, stay apart and are defined beside the object. The
 * faults of pager.c and the action of signals.c have a lock; other fields are atomic, or written before they are read.
 */
#ifndef SPILLWAY_BASE_STATE_H
#define SPILLWAY_BASE_STATE_H

#include "shim/base/lock.h"
#include "shim/base/pager.h"
#include "shim/base/python.h"
#include "shim/base/signals.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* ---- user_dir.c: the number of the process ---- */

struct identity_state {
	_Atomic uint64_t number;
	_Atomic pid_t owner; /* the process that drew the number; DRAWING: a thread is about to write it */
	/* identity_space() of `space_owner`, which is written last; other processes look again. */
	_Atomic uint64_t space;
	_Atomic pid_t space_owner;
};

/* ---- log.c ---- */

struct log_state {
	/* The file that standard error is; written under `once`. */
	struct stat standard_error;
	pthread_once_t once;
	atomic_bool is_open; /* standard error was open when the library was loaded */
	_Atomic uint64_t
	    wait_until;      /* ns, CLOCK_MONOTONIC: at the end of the process lines wait until then; 0: never */
	atomic_uint n_lost;  /* lines lost since the last one that was written */
	atomic_bool was_cut; /* the last line was written in part */
};

/* ---- python.c ---- */

typedef void *python_thread_function(void); /* PyGILState_GetThisThreadState() */

struct python_process_state {
	_Atomic int
	    state; /* enum state of the file; the others are constant once it says that there is an interpreter */
	uint64_t version; /* as in Py_Version; 0: older than 3.9 */
	struct python python;
	python_thread_function *thread;
	atomic_uint n_calls; /* of it, that threads are in; raised before `state` is read, read after that is written */
};

/* ---- call_site.c: autograd ---- */

typedef uint64_t autograd_count_function(void);
typedef struct autograd_reference autograd_node_function(void);

struct autograd_state {
	_Atomic int state; /* enum autograd_layout; the functions are constant once it says that they are there */
	autograd_count_function *next_number, *own_thread;
	autograd_node_function *current_node;
};

/* ---- call_site.c ---- */

#define CALL_SITE_SLOTS 4096

#define WATCHED_OBJECTS 256

struct call_site_state {
	_Atomic(struct call_site *) slot[CALL_SITE_SLOTS]; /* each written once, by who is first */
	_Atomic bool always;        /* every request is named, whatever it takes; set for the policy, or by faults.c */
	_Atomic bool callers;       /* callers are named, too, if there is time; set by who starts the trace */
	atomic_uint n_with_callers; /* sites that have them */
	_Atomic uint64_t paid;      /* clock.h: for naming */
	/* By number of a site: that of the site of its backward pass (call_site_backward()); 0: not made yet */
	_Atomic uint16_t backward[CALL_SITE_SLOTS];
	/* Objects whose closing is heard of; NULL: free. Taken by exchange; given back by who closes the object. */
	_Atomic(const void *) watched[WATCHED_OBJECTS];
	/*
	 * _Unwind_Backtrace() and _Unwind_GetIP() of the program's libgcc_s, which is held; NULL: it has none. The
	 * second is written first and read second.
	 */
	_Atomic uintptr_t backtrace, address_of;
};

/* ---- signals.c ---- */

struct signals_state {
	/* The C library's functions; NULL: it has none. */
	_Atomic(signals_action_function *) action;
	_Atomic(signals_kin_function *) kin[SIGNALS_KIN_COUNT];
	_Atomic(void (*)(uintptr_t address)) look; /* set when the handler is installed; NULL until then */
	/*
	 * Guards `theirs`, with all signals of the thread blocked: sigaction() may be called in a signal handler, also
	 * in one that has interrupted it.
	 */
	atomic_bool held;
	struct sigaction theirs; /* the program's action */
	pid_t pid;               /* of the process whose action that is */
};

/* ---- pager.c ---- */

#define PAGER_FAULTS 64 /* pages that threads wait for at once */

struct pager_request;

struct pager_state {
	struct lock lock; /* PAGER: the faults, which the pager alone writes */
	struct pager_fault fault[PAGER_FAULTS];
	unsigned n;
	uint64_t n_ever;
	uint64_t looked;        /* ns: when the pager last looked how long they wait */
	atomic_bool goes_on;    /* progress has been made since */
	struct clock_cond come; /* a fault has come */
	size_t page;
	char *bell;                              /* the page at which a request is heard */
	_Atomic(struct pager_request *) request; /* that has not been heard yet */
	atomic_uint n_refused;
	_Atomic enum { PAGER_STARTS, PAGER_RUNS, PAGER_REFUSED } stage;
};

struct base_state {
	struct signals_state signals;
	struct pager_state pager;
	struct identity_state identity;
	struct log_state log;
	struct python_process_state python_process;
	struct autograd_state autograd;
	struct call_site_state call_site;
	/*
	 * _dl_find_object(), since glibc 2.35 (libc.c): takes no lock and does not walk the symbols of the whole
	 * object, as dladdr() does. It is looked up by name, so that an older C library can still load the library;
	 * NULL there.
	 */
	_Atomic(__typeof__(_dl_find_object) *) find_object;
	atomic_flag user_dir_loss; /* user_dir_is_first_loss() has returned true */
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct base_state base_state __attribute__((visibility("hidden")));

#endif
