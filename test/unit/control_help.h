// SPDX-License-Identifier: Apache-2.0
/*
 * control_help.h: what control_test.c needs to look at a process: a child with folders of its own, a caller at its
 * socket, and what /proc/self says of its threads and descriptors. The fakes of the engine are here too.
 */
#ifndef UNIT_CONTROL_HELP_H
#define UNIT_CONTROL_HELP_H

#include "shim/base/user_dir.h"
#include "test/check.h"
#include "test/slow.h"

#include <limits.h>
#include <stdatomic.h>

#define STRANGER   12345                   /* a user that owns nothing here */
#define WAIT_MS    (20000 * TEST_SLOWNESS) /* nothing takes a tenth of it; what takes longer hangs */
#define WATCHDOG_S (60 * TEST_SLOWNESS)

/* ---- the engine ---- */
extern _Atomic int fake_calls, fake_status;
extern _Atomic int fake_ticks; /* calls of the tick */
extern _Atomic uint64_t fake_bytes;
extern _Atomic bool fake_away;     /* it is not the process's turn */
extern _Atomic bool fake_hold;     /* both calls wait while it is set */
void fake_policy(const char *set); /* on top of the built-in policy; before the first use */

/* ---- processes ---- */
extern char runtime[64], fallback[64]; /* its XDG_RUNTIME_DIR, its /tmp */

/* Runs it in a child, with control_stop() after it. Returns 0 if all that it CHECKs holds. */
int child_status(void (*run)(void));
#define IN_CHILD(run) assert_int_equal(child_status(run), 0)
/* A test in a child of its own; its body follows. */
#define TEST_IN_CHILD(name)                                                                                            \
	static void name##_in_child(void);                                                                             \
	TEST(name)                                                                                                     \
	{                                                                                                              \
		IN_CHILD(name##_in_child);                                                                             \
	}                                                                                                              \
	static void name##_in_child(void)
int ended(pid_t pid);
long now_ms(void);

/* ---- callers ---- */

/* The control socket of this process, in the folder. */
bool socket_name(const struct user_dir *folder, char ret_name[NAME_MAX + 1]);
/* The same below XDG_RUNTIME_DIR, which must have one. */
void open_runtime(struct user_dir *ret_folder, char ret_name[NAME_MAX + 1]);
void connect_with(int fd, const struct user_dir *folder, const char *name);
/* A new connection to the control socket of this process. */
int caller(void);
/* One packet; false: the connection ended. Hanging ends the process. Closes nothing. */
bool receive(int fd, char ret_reply[256]);
/* One request, one reply; "" where the connection ended without. */
void ask(const char *request, size_t bytes, char ret_reply[256]);
void ask_in(const struct user_dir *folder, const char *request, size_t bytes, char ret_reply[256]);
bool says(const char *request, const char *reply);
bool asked_in(const struct user_dir *folder); /* does `status` get an answer there? */

/* ---- what there is ---- */
int n_threads_of_ours(void);
bool signals_are_blocked(void); /* on our thread: all that can be */
int n_descriptors(void);
bool all_close_on_exec(int but_for); /* descriptors beyond that many */
int n_entries(const char *path);     /* of a folder; 0 where there is none */
int n_sockets(const char *path);     /* in a folder and those below it */
void make_old(const struct user_dir *folder, const char *name);

#endif
