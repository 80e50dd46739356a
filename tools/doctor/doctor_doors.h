// SPDX-License-Identifier: Apache-2.0
/*
 * doctor_doors.h: reads the library's log of which libraries obtained the driver's functions, and how (format:
 * shim/driver/real.h). The file is not trusted: other lines are skipped, and the number of kept entries is
 * limited.
 */
#ifndef TOOLS_DOCTOR_DOORS_H
#define TOOLS_DOCTOR_DOORS_H

#include <stdbool.h>
#include <stddef.h>

/* How many of the driver's functions a library got by Spillway and past it, and how many it may come to need. */
struct door_count {
	unsigned through, past, unbound;
};

struct door_object {
	char *path;
	struct door_count looked, linked; /* by asking for a name; by being linked to it */
	bool dlsym_past;                  /* its dlsym is not Spillway's */
	bool apart;                       /* mapped, but in another linker namespace than the program */
};

struct door_process {
	int pid;
	char *executable;
	bool ended; /* by exit() */
	struct door_object *objects;
	size_t n_objects, room;
};

struct doors {
	struct door_process *processes;
	size_t n, room;
	bool cut; /* entries beyond the limit, or beyond the memory, were dropped */
};

/* Reads from the start of fd. Returns false if the file cannot be read. */
bool doors_read(int fd, struct doors *ret_doors);
void doors_free(struct doors *doors);

#endif
