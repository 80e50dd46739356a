/*
 * control.h: a running process is asked from outside: suspend, resume, how are you (`spillway suspend PID`).
 *
 * A socket in the user's private folder (user_dir.h), for the owner alone, and one small thread that waits at it. Both
 * come with the first heap allocation and only if the policy says so (`control: yes`); a process that never gets there
 * has neither. Whatever fails is said once, and the program goes on without.
 *
 * socket_server.c knows sockets, control.c what is said at this one; control_request.c knows what a request means.
 */
#ifndef SPILLWAY_CONTROL_H
#define SPILLWAY_CONTROL_H

#define CONTROL_MOST_REPLY 256 /* bytes of a reply, its newline too */

/*
 * Of what requests and replies mean. Either may end in CONTROL_SAYS_VERSION and the number; without it the version is 1,
 * which is all that peers from before there were numbers know. A library answers in the version of the request, or refuses
 * it; a reply that says another version is not to be understood.
 */
#define CONTROL_VERSION      1
#define CONTROL_SAYS_VERSION " version="

/* Answer one request, a line without its newline, in one line without a newline. On the control thread. */
typedef void control_answer(const char *request, char reply[CONTROL_MOST_REPLY]);

/*
 * What requests are answered with, and what the thread calls about once a second between two of them. Given once, before the
 * first control_start().
 */
void control_give(control_answer *answer, void (*tick)(void));
/*
 * In the first heap allocation, with no lock held: open the socket and start the thread, once. Cheap ever after. May
 * take memory and open files; leaves errno as it is. Makes no driver call.
 */
void control_start(void);

/*
 * The process ends: no more requests and ticks, the socket is removed. Waits at most 100 ms for one that is being
 * answered, and then leaves it. Does nothing in a process that did not start it.
 */
void control_stop(void);

/* In the child of a fork, async-signal-safe: let go of the parent's descriptors, touch nothing that is the parent's. */
void control_child(void);

#endif
