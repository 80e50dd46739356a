/*
 * doctor_doors.h: reads the library's log of which libraries obtained the driver's functions, and how (format:
 * shim/driver/door_log.h). The file is not trusted: other lines are skipped, and the number of kept entries is
 * limited.
 */
#ifndef TOOLS_DOCTOR_DOORS_H
#define TOOLS_DOCTOR_DOORS_H

#include <stdbool.h>
#include <stddef.h>

enum { DOOR_BY_DLSYM, DOOR_BY_PROC, DOOR_KINDS };

/* Functions, counted by what the lookup returned. */
struct door_looked {
	unsigned ours, driver, copy, none, other;
};

struct door_object {
	char *path;
	struct door_looked looked[DOOR_KINDS];
	bool asked_resolver,
	    asked_empty; /* cuGetProcAddress looked up by dlsym; the empty name looked up, as the CUDA runtime does */
	unsigned linked_ours, linked_past, linked_unbound, linked_elsewhere;
	bool dlsym_past;
	bool apart;       /* mapped, but in another linker namespace than the program */
	char runtime[64]; /* the CUDA runtime that it calls, such as "libcudart.so.13"; "" if none */
};

struct door_process {
	int pid;
	char *executable;
	bool looked, ended; /* a library in it looked up a function; it ended by exit() */
	struct door_object *objects;
	size_t n_objects;
};

struct doors {
	struct door_process *processes;
	size_t n;
	bool cut; /* entries beyond the limit were dropped */
};

/* Reads from the start of fd. Returns false if memory runs out; *ret_doors then contains what was read so far. */
bool doors_read(int fd, struct doors *ret_doors);
void doors_free(struct doors *doors);

#endif
