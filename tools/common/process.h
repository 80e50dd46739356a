/*
 * process.h: running processes under Spillway, as far as the tool can see them: by their control sockets (user_dir.h,
 * control.h) and by /proc.
 */
#ifndef TOOLS_PROCESS_H
#define TOOLS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_COMMAND 256 /* bytes of a command line that are kept */
#define PROCESS_REPLY   512 /* room for a reply; the library sends at most 256 bytes */

/* Which process is meant: by its process id here, or by its id. The other one is 0. */
struct process_name {
	pid_t pid;
	uint64_t identity; /* shim/base/identity.h */
};
#define PROCESS_NAME 20
/* Returns false if the text is neither. */
bool process_read_name(const char *text, struct process_name *ret_name);
/* As the user wrote it. */
const char *process_show_name(const struct process_name *name, char room[PROCESS_NAME]);

/* One that has a control socket. */
struct process_found {
	pid_t pid;         /* here; 0: of a PID namespace that is not seen from here */
	uint64_t identity; /* 0: of an older release */
	dev_t device;      /* of the socket: the same one may be found by several ways */
	ino_t inode;
};

/* Connect to the control socket of a process of this user. -1: none is found. */
int process_connect(const struct process_name *name);

/* Why process_connect() found none, to stderr. verb: what the user asked for. */
void process_explain(const struct process_name *name, const char *verb);

/* Call visit() with each process of this user that has a control socket, connected; visit() owns fd. */
typedef void process_visit(const struct process_found *found, int fd, void *argument);
void process_each(process_visit *visit, void *argument);

/* Its command line, fit to be printed; "?" where it cannot be read. pid 0: it has none here. */
void process_command(pid_t pid, char ret_command[PROCESS_COMMAND]);

/* Send one request. False: the process does not take it (it has ended, say). */
bool process_send(int fd, const char *request);

/* The reply, without its newline. 1: it is there; 0: not within wait_ms (-1: for ever); -1: none will come. */
int process_receive(int fd, int wait_ms, char ret_reply[PROCESS_REPLY]);

#endif
