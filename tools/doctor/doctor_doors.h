/*
 * doctor_doors.h: reading what the library has written down about who got hold of the driver's functions (the format is
 * in shim/driver/door_log.h). The file may hold anything: what is no such line is passed over, and there is an end to what is kept.
 */
#ifndef TOOLS_DOCTOR_DOORS_H
#define TOOLS_DOCTOR_DOORS_H

#include <stdbool.h>
#include <stddef.h>

enum { DOOR_BY_DLSYM, DOOR_BY_PROC, DOOR_KINDS };

/* Functions by what was handed out. */
struct door_looked {
	unsigned ours, driver, copy, none, other;
};

struct door_object {
	char *path;
	struct door_looked looked[DOOR_KINDS];
	bool asked_resolver, asked_empty; /* cuGetProcAddress by dlsym; the empty name, as the CUDA runtime does */
	unsigned linked_ours, linked_past, linked_unbound, linked_elsewhere;
	bool dlsym_past;
	bool apart;       /* mapped, but not in the program's namespace */
	char runtime[64]; /* "libcudart.so.13" that it calls, or "" */
};

struct door_process {
	int pid;
	char *executable;
	bool looked, ended; /* has somebody in it looked a function up; did it end by exit() */
	struct door_object *objects;
	size_t n_objects;
};

struct doors {
	struct door_process *processes;
	size_t n;
	bool cut; /* there was more than we keep */
};

/* From the start of fd. False: no memory; what was read is in *ret_doors all the same. */
bool doors_read(int fd, struct doors *ret_doors);
void doors_free(struct doors *doors);

#endif
