// SPDX-License-Identifier: Apache-2.0
/*
 * process.h: finds running processes that use Spillway, by their control sockets (user_dir.h, control.h) and by /proc,
 * and sends them requests.
 */
#ifndef TOOLS_PROCESS_H
#define TOOLS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_COMMAND 256 /* bytes kept of a command line */
#define PROCESS_REPLY   512 /* buffer for a reply; the library sends at most 256 bytes */

/* Names a process by its process id in the tool's PID namespace or by its identity. The other field is 0. */
struct process_name {
	pid_t pid;
	uint64_t identity; /* shim/base/user_dir.h */
};
#define PROCESS_NAME 20
/* Returns false if the text is neither. */
bool process_read_name(const char *text, struct process_name *ret_name);
/* Writes the name as the user wrote it. */
const char *process_show_name(const struct process_name *name, char room[PROCESS_NAME]);
#define process_named(name) process_show_name(name, (char[PROCESS_NAME]){0})

/* A process that has a control socket. */
struct process_found {
	pid_t pid;         /* in the tool's PID namespace; 0: not visible from here */
	uint64_t identity; /* 0: an older release */
	dev_t device;      /* of the socket; the same socket may be found in several ways */
	ino_t inode;
};

/* Connects to the control socket of a process of this user. Returns -1 if no such process is found. */
int process_connect(const struct process_name *name);

/* Prints to stderr why process_connect() found no process. verb: what the user asked for. */
void process_explain(const struct process_name *name, const char *verb);

/* Calls visit() with each process of this user that has a control socket, connected. visit() must close fd. */
typedef void process_visit(const struct process_found *found, int fd, void *argument);
void process_each(process_visit *visit, void *argument);

/* Fills in the command line, safe to print; "?" if it cannot be read or pid is 0. */
void process_command(pid_t pid, char ret_command[PROCESS_COMMAND]);

/* Sends one request. Returns false if the process does not accept it, for example because it has ended. */
bool process_send(int fd, const char *request);

/*
 * Waits for the reply and removes its newline. Returns 1 if it arrived, 0 if it did not within wait_ms (-1: no limit),
 * -1 if none will arrive.
 */
int process_receive(int fd, int wait_ms, char ret_reply[PROCESS_REPLY]);

#endif
