/*
 * socket_server.h: a socket in the user's private folder (user_dir.h), for the owner alone, and one small thread that waits at it.
 * Knows nothing of CUDA, nor of what is said. A server is a constant of the process: its first members are given where
 * it is defined, the rest is 0 and socket_server.c's own.
 *
 * Once a second the thread looks whether the socket is still found under its name. If somebody has removed it, as all of the
 * folder is at a log-out, it is made again under the same name, where the folder is then (user_dir_make()).
 *
 * Used for `spillway suspend` and its like (control.c) and for memory that other processes may map (ipc_give.c).
 */
#ifndef SPILLWAY_SOCKET_SERVER_H
#define SPILLWAY_SOCKET_SERVER_H

#include "shim/base/user_dir.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* A descriptor, plus 1 so that 0 is none, and which file it is. */
struct socket_server_held {
	_Atomic int fd_and_1;
	_Atomic ino_t inode;
};

struct socket_server {
	const char *tail;        /* how the name of the socket ends */
	const char *thread_name; /* 15 bytes at most */
	const char *cannot;      /* for messages: "`x` cannot reach" (process N) */
	bool is_identified;      /* the name carries the process's id (base/identity.h), by which the tool finds it */
	/* Serve one caller, on the server's thread; the connection ends when it returns. */
	void (*serve)(struct socket_server *server, int fd);
	/* Called about once a second, between two callers; NULL: never. */
	void (*tick)(void);

	long ticked; /* ms, the last one; the thread's */
	char path[200]; /* of the socket, empty: not known; the thread's once it runs, and so is the next line */
	dev_t device;   /* and what lies there */
	ino_t inode;
	_Atomic int state;
	struct socket_server_held listener, caller, place;
	/* Written while it starts, constant after that; but for the folder, which the thread replaces by a new one. */
	pid_t owner;
	struct user_dir folder;
	char name[48]; /* of the socket: PID-RANDOM or PID-ID, and the tail */
	pthread_t thread;
};

/*
 * Open the socket and start the thread, once; with no lock held that a caller's request needs. True: it is serving;
 * false also while another thread is in here. Leaves errno as it is. What fails is said once.
 */
bool socket_server_start(struct socket_server *server);
/*
 * The process ends: no more callers, the socket is removed. Waits at most 100 ms for one that is being served, and then
 * leaves it. Does nothing in a process that did not start it.
 */
void socket_server_stop(struct socket_server *server);
/* In the child of a fork, async-signal-safe: let go of the parent's descriptors, touch nothing that is the parent's. */
void socket_server_child(struct socket_server *server);

/* The name of its socket, once and while it serves; else NULL. */
const char *socket_server_name(struct socket_server *server);
/*
 * For serve(): wait until fd (-1: nothing) can be read, at most wait_ms. False: it cannot, or the process ends:
 * socket_server_stop() shuts the listener down, which wakes whoever waits with it.
 */
bool socket_server_wait(struct socket_server *server, int fd, int wait_ms);
/* Is this user at the other end? */
bool socket_server_peer_is_owner(int fd);

#endif
