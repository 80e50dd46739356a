// SPDX-License-Identifier: Apache-2.0
/*
 * socket_server.h: a socket in the user's private folder (user_dir.h), for the owner only, with one small thread that
 * serves it. It knows neither CUDA nor the protocol. A server is a static variable: its definition sets the first
 * members; the rest is 0 and private to socket_server.c.
 *
 * Once a second the thread checks that the socket still has its name. If it was removed, as the whole folder is at a
 * log-out, the thread creates it again under the same name, in the folder of that time (user_dir_make()); so it does if
 * the program closes the socket's descriptor. While that fails there are no callers, but `look` and `tick` are called
 * as before.
 *
 * Used for requests to a running process, as of `spillway suspend` (control.c), and for memory that other processes
 * may map (ipc.c).
 */
#ifndef SPILLWAY_SOCKET_SERVER_H
#define SPILLWAY_SOCKET_SERVER_H

#include "shim/base/user_dir.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * A descriptor plus 1 (0: none), and the inode of its file. Written by who starts the server, then by its thread, the
 * inode first; read by who stops it, after it has set OVER, which the thread reads after it has written.
 */
struct socket_server_held {
	_Atomic int fd_and_1;
	_Atomic ino_t inode;
};

struct socket_server {
	const char *tail;        /* suffix of the socket's name */
	const char *thread_name; /* 15 bytes at most */
	const char *cannot;      /* for messages: "`x` cannot reach" (process N) */
	bool is_identified;      /* the name carries the process's id (user_dir.h), by which the tool finds it */
	/* Serves one caller, on the server's thread; the connection ends when it returns. */
	void (*serve)(struct socket_server *server, int fd);
	/* Called about once a second, between two callers; may be NULL. */
	void (*tick)(void);

	/*
	 * Called by the same thread; returns after how many ms it is to be called again at the latest. At first, and
	 * where it returns 0, it is called once a second. May be NULL.
	 */
	unsigned (*look)(void);
	/* Called by it while the program has closed the socket and no other can be made, once a second. May be NULL. */
	void (*cut_off)(void);

	/* Only the thread uses these. */
	long ticked; /* time of the last tick, ms */
	long looked; /* time of the last look, ms; and after how many the next one is due */
	unsigned look_ms;
	char path[200]; /* of the socket; empty: not known */
	dev_t device;   /* of the socket at `path` */
	ino_t inode;
	_Atomic int state; /* any thread (socket_server.c) */
	struct socket_server_held listener, caller, place;
	/* Written during the start and constant afterwards, except for the folder, which the thread may replace. */
	pid_t owner;
	struct user_dir folder;
	char name[48]; /* of the socket: PID-RANDOM or PID-ID, and the tail */
	pthread_t thread;
};

/*
 * Opens the socket and starts the thread, once. Returns true if it serves; false also while another thread is starting
 * it. Preserves errno. Logs a failure once. Locking: the caller must hold no lock that a request needs.
 */
bool socket_server_start(struct socket_server *server);
/*
 * Called when the process ends: accepts no more callers and removes the socket. Waits at most 100 ms for the caller
 * that is being served. Does nothing in a process that did not start the server.
 */
void socket_server_stop(struct socket_server *server);
/*
 * Called in the child of a fork: closes the parent's descriptors and changes nothing of the parent.
 * Async-signal-safe.
 */
void socket_server_child(struct socket_server *server);

/* Returns the name of the socket while the server serves, else NULL. */
const char *socket_server_name(struct socket_server *server);
/*
 * For serve(): waits until fd (-1: none) can be read, at most wait_ms. Returns false if it cannot, or if the process
 * ends: socket_server_stop() shuts the listener down, which ends the wait.
 */
bool socket_server_wait(struct socket_server *server, int fd, int wait_ms);
/* Returns true if the peer process belongs to this user. */
bool socket_server_peer_is_owner(int fd);

#endif
