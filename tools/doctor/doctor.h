/*
 * doctor.h: `spillway doctor`: what it knows, and what it finds.
 *
 * A check is a row in a table (struct doctor_check): a function that looks at one thing and fills a finding: what is so,
 * how good that is, what follows from it, and what to do. Checks neither print nor change anything. Files are looked at
 * below a root, so that tests can make machines up; the driver is asked once, in a child process (doctor_cuda.h).
 */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/doctor/doctor_cuda.h"

enum doctor_status {
	DOCTOR_NONE,    /* this row has nothing to say here; it is left out */
	DOCTOR_OK,      /* as it should be */
	DOCTOR_NOTE,    /* it works, less well or not in every way */
	DOCTOR_PROBLEM, /* keeps Spillway or CUDA from working */
	DOCTOR_UNKNOWN, /* it could not be found out; fact says why */
};

struct doctor_finding {
	const char *id, *subject, *title;
	enum doctor_status status;
	int device;     /* -1: of the machine */
	char fact[600]; /* what is so */
	char so[400];   /* what follows; "" where nothing does */
	char fix[400];  /* what to do: a command where there is one, else a sentence; "" where there is nothing */
	/* Of the program's doors: which process (0: none), which library ("": none). */
	int process;
	char object[400];
};

struct doctor {
	const char *root;             /* "" or a folder that has /proc, /sys, /dev, ... in it */
	char found_library[PATH_MAX]; /* "": there is none */
	bool measure, audit;
	struct doctor_cuda cuda;
	struct doctor_finding *findings; /* in the order of the checks */
	size_t n, room;
};

struct doctor_check {
	const char *id, *title;
	/* Leaves status DOCTOR_NONE where there is nothing to say. device: as in doctor_subject. */
	void (*look)(const struct doctor *doctor, int device, struct doctor_finding *ret_finding);
};

struct doctor_subject {
	const char *name;
	bool each_device; /* its checks are made for each device the driver shows; else once, with device -1 */
	const struct doctor_check *checks;
	size_t n;
};

extern const struct doctor_subject doctor_driver, doctor_device, doctor_nodes, doctor_memory, doctor_system,
    doctor_preload, doctor_neighbour;

/* For the checks: fill status and fact; then what follows, and what to do. */
__attribute__((format(printf, 3, 4))) void doctor_is(struct doctor_finding *finding, enum doctor_status status,
						     const char *format, ...);
__attribute__((format(printf, 2, 3))) void doctor_so(struct doctor_finding *finding, const char *format, ...);
__attribute__((format(printf, 2, 3))) void doctor_fix(struct doctor_finding *finding, const char *format, ...);

/*
 * A small file below the root, whole and terminated, without the last line end; what is over room is cut off. False: it
 * cannot be read, or is empty.
 */
bool doctor_read(const struct doctor *doctor, const char *path, char *buffer, size_t room);
/* Is there such a file or folder below the root? */
bool doctor_exists(const struct doctor *doctor, const char *path);
/* path below the root, for those who open it themselves. False: too long. */
bool doctor_path(const struct doctor *doctor, const char *path, char ret_path[PATH_MAX]);

/* A new finding at the end of the list; NULL: no memory. */
struct doctor_finding *doctor_add(struct doctor *doctor, const char *subject, const char *id, const char *title,
				  int device);

/*
 * Run the program (NULL at its end) under Spillway and add what is found about it. TOOL_OK, or the status to end with
 * when it could not be started.
 */
int doctor_program(struct doctor *doctor, char **program);

/* Everything found, to stdout. */
void doctor_print_text(const struct doctor *doctor);
void doctor_print_json(const struct doctor *doctor);
size_t doctor_count(const struct doctor *doctor, enum doctor_status status);

#endif
