/*
 * process.h: running processes under Spillway, as far as the tool can see them: by their control sockets (rundir.h,
 * control.h) and by /proc.
 */
#ifndef TOOLS_PROCESS_H
#define TOOLS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROCESS_COMMAND 256 /* bytes of a command line that are kept */
#define PROCESS_REPLY   512 /* room for a reply; the library sends at most 256 bytes */

/* Connect to the control socket of a process of this user. -1: none is found. */
int process_connect(pid_t pid);

/* Why process_connect() found none, to stderr. verb: what the user asked for. */
void process_explain(pid_t pid, const char *verb);

/* Call visit() with each process of this user that has a control socket, connected; visit() owns fd. */
typedef void process_visit(pid_t pid, int fd, void *argument);
void process_each(process_visit *visit, void *argument);

/* Its command line, fit to be printed; "?" where it cannot be read. */
void process_command(pid_t pid, char ret_command[PROCESS_COMMAND]);

/* Send one request. False: the process does not take it (it has ended, say). */
bool process_send(int fd, const char *request);

/* The reply, without its newline. 1: it is there; 0: not within wait_ms (-1: for ever); -1: none will come. */
int process_receive(int fd, int wait_ms, char ret_reply[PROCESS_REPLY]);

#endif
