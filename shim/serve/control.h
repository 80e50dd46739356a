// SPDX-License-Identifier: Apache-2.0
/*
 * control.h: the control socket: requests to a running process from outside: suspend, resume, status, set (`spillway
 * suspend PID`).
 *
 * A socket in the user's private folder (user_dir.h), for the owner alone, and one small thread that waits at it.
 * Both are made at the first request to the heap, or with the first managed or system memory, and only if the policy
 * says so (`control: yes`). Any failure is logged once, and the program goes on without them.
 *
 * socket_server.c handles sockets, control.c the packets at this one; control_request.c knows what a request means.
 */
#ifndef SPILLWAY_CONTROL_H
#define SPILLWAY_CONTROL_H

#define CONTROL_MOST_REPLY 256 /* bytes of a reply, with its newline */

/*
 * Version of the meaning of requests and replies. Either may end in CONTROL_SAYS_VERSION and the number; without it
 * the version is 1, which is all that peers from before there were versions know. A library answers in the version of
 * the request, or refuses it; a client must not interpret a reply of another version.
 */
#define CONTROL_VERSION      1
#define CONTROL_SAYS_VERSION " version="

/* Answers one request, a line without its newline, in one line without a newline. Called on the control thread. */
typedef void control_answer(const char *request, char reply[CONTROL_MOST_REPLY]);

/*
 * Sets what answers requests, and what the thread calls between two of them: tick about once a second, look again after
 * as many ms as it returned, 0: as often as tick; and cut_off once a second while no request can come, because the
 * program has closed the socket. Called once, before the first control_start().
 */
void control_give(control_answer *answer, void (*tick)(void), unsigned (*look)(void), void (*cut_off)(void));
/*
 * Opens the socket and starts the thread, once; later calls are cheap. Called with the memory named above. May take
 * memory and open files; leaves errno as it is. Makes no driver call. Locking: the caller must hold no lock.
 */
void control_start(void);

/*
 * At the end of the process: no more requests and ticks, the socket is removed. Waits at most 100 ms for a request
 * that is being answered, and then leaves it. Does nothing in a process that did not start the thread.
 */
void control_stop(void);

/* In the child of a fork: closes the parent's descriptors, touches nothing else of the parent's. Async-signal-safe. */
void control_child(void);

#endif
