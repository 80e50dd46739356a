// SPDX-License-Identifier: Apache-2.0
/*
 * doctor.h: the checks of `spillway doctor` and their findings.
 *
 * A check is a row in a table (struct doctor_check): a function that examines one thing and fills in a finding: the
 * fact, its status, the consequence and the fix. Checks neither print nor change anything. Files are read below a root
 * folder, so that tests can simulate machines. The driver is queried once, in a child process (doctor_cuda.c).
 */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* ---- what the driver says (doctor_cuda.c) ----
 *
 * It is asked in a child process, so that a driver that hangs or crashes becomes a finding and does not end the tool;
 * what the child found out before that is kept.
 */

enum {
	DOCTOR_DEVICES = 16, /* more devices are counted but not examined */
	DOCTOR_LINKED = 8,   /* the links between this many devices, starting with the first, are measured */
};

/* How far the child came. Each stage means that the results of all earlier ones are filled in. */
enum doctor_stage {
	DOCTOR_NOT_ASKED, /* libcuda.so.1 does not exist, or no child could be started */
	DOCTOR_LOADED,    /* the library could be opened */
	DOCTOR_STARTED,   /* cuInit has returned; see init */
	DOCTOR_LOOKED,    /* devices are filled in */
	DOCTOR_MEASURED,  /* the devices are measured, as far as possible */
	DOCTOR_ALL,       /* the links between devices are measured, too */
};

enum doctor_end { DOCTOR_ENDED, DOCTOR_HUNG, DOCTOR_CRASHED };

/* The link from one device to another. */
struct doctor_link {
	int performance_rank; /* rank among this machine's links, from 0, the best; -1: the driver does not report it */
	int atomics;          /* whether atomics work over it; -1: the driver does not report it */
	double rate;          /* measured copy rate, bytes per second; 0: not measured, and error may say why */
	int error;            /* 0, the driver's, or DOCTOR_LINK_LATE */
};
enum { DOCTOR_LINK_LATE = -1 }; /* the time for all measurements was over */

struct doctor_gpu {
	char name[100], bus[20]; /* "0000:01:00.0" */
	uint64_t total, free;    /* bytes; free 0: not known (it needs a context) */
	/* Device attributes; -1: the driver does not know them. */
	int vmm, host_vmm, managed, concurrent, pageable, host_tables, compute_mode, rdma;
	uint64_t peers; /* bit mask of other devices whose memory this one can access */
	struct doctor_link links[DOCTOR_DEVICES];
	/* Measured copy rates of pinned memory, bytes per second; 0: not measured, and measure_error says why. */
	double to_device, to_host, both; /* both: sum of both directions at once */
	char measure_error[100];
};

struct doctor_cuda {
	enum doctor_stage stage;
	enum doctor_end end;
	char load_error[300]; /* why libcuda.so.1 could not be opened */
	char path[PATH_MAX];  /* its real path */
	int init, version;    /* the result of cuInit; 12050 = CUDA 12.5 */
	char init_name[64];
	bool has_vmm, has_moves; /* the library has the functions; for has_moves see shim/mover/spill.c */
	int n_devices;
	struct doctor_gpu devices[DOCTOR_DEVICES];
};

/*
 * Queries the driver and always fills in *ret_cuda. root: as in struct doctor; if set, only the library below it is
 * used. patience_s: the time that the driver has for everything. Shows progress on a terminal.
 */
void doctor_cuda_ask(const char *root, bool measure, unsigned patience_s, struct doctor_cuda *ret_cuda);

/* ---- findings ---- */

enum doctor_status {
	DOCTOR_NONE,    /* the check does not apply here; the row is left out */
	DOCTOR_OK,      /* as it should be */
	DOCTOR_NOTE,    /* it works, but slowly or with restrictions */
	DOCTOR_PROBLEM, /* it keeps Spillway or CUDA from working */
	DOCTOR_UNKNOWN, /* the check failed; fact says why */
};

struct doctor_finding {
	const char *id, *subject, *title;
	enum doctor_status status;
	int device;     /* -1: the whole machine */
	char fact[600]; /* what is the case */
	char so[400];   /* the consequence; "" if there is none */
	char fix[400];  /* the fix: a command if possible, otherwise a sentence; "" if there is none */
	/* Only of findings about the program's doors: the process (0: none) and the library ("": none). */
	int process;
	char object[400];
};

struct doctor {
	const char *root;             /* "" or a folder that contains /proc, /sys, /dev, ... */
	char found_library[PATH_MAX]; /* "": not found */
	bool measure, audit;
	struct doctor_cuda cuda;
	struct doctor_finding *findings; /* in the order of the checks */
	size_t n, room;
};

struct doctor_check {
	const char *id, *title;
	/* Leaves the status DOCTOR_NONE if the check does not apply. finding->device: as in doctor_subject. */
	void (*look)(const struct doctor *doctor, struct doctor_finding *finding);
	/* The consequence and the fix of a note or a problem for which look() gives none; NULL: it has none. */
	const char *so, *fix;
};

struct doctor_subject {
	const char *name;
	bool each_device; /* the checks are run for each device that the driver lists; otherwise once, with device -1 */
	const struct doctor_check *checks;
	size_t n;
};

/* A subject with an array of checks. */
#define DOCTOR_SUBJECT(name, each_device, checks)                                                                      \
	{                                                                                                              \
		name, each_device, checks, sizeof(checks) / sizeof(*(checks))                                          \
	}
extern const struct doctor_subject doctor_driver, doctor_device, doctor_nodes, doctor_memory, doctor_system,
    doctor_preload, doctor_neighbour;

/*
 * For checks: doctor_is() sets status and fact, doctor_more() adds to the fact, the others set the consequence and the
 * fix.
 */
#define doctor_is(finding, state, ...)                                                                                 \
	((finding)->status = (state), doctor_write((finding)->fact, 0, sizeof((finding)->fact), __VA_ARGS__))
#define doctor_more(finding, ...)                                                                                      \
	doctor_write((finding)->fact, strlen((finding)->fact), sizeof((finding)->fact), __VA_ARGS__)
#define doctor_so(finding, ...)  doctor_write((finding)->so, 0, sizeof((finding)->so), __VA_ARGS__)
#define doctor_fix(finding, ...) doctor_write((finding)->fix, 0, sizeof((finding)->fix), __VA_ARGS__)
#define doctor_advise(finding, consequence, ...)                                                                       \
	(doctor_so(finding, "%s", consequence), doctor_fix(finding, __VA_ARGS__))
/*
 * Writes a text from there on, without control characters: it may be of a file or a variable, and goes to a terminal.
 */
__attribute__((format(printf, 4, 5))) void doctor_write(char *text, size_t from, size_t room, const char *format, ...);

/*
 * Reads a small file below the root and terminates it, without the last line end; bytes beyond `room` are cut off.
 * Returns false if the file cannot be read or is empty.
 */
bool doctor_read(const struct doctor *doctor, const char *path, char *buffer, size_t room);
/* Returns the number of devices that are examined. */
int doctor_n_devices(const struct doctor *doctor);
/* Returns whether this file or folder exists below the root. */
bool doctor_exists(const struct doctor *doctor, const char *path);
/* Returns how many files below the root match the pattern. */
size_t doctor_count_files(const struct doctor *doctor, const char *pattern);
/* Puts the root before path, for callers that open the file themselves. Returns false if the result is too long. */
bool doctor_path(const struct doctor *doctor, const char *path, char ret_path[PATH_MAX]);

/* Returns whether the tool runs in a container: missing parts must be added when the container is started. */
bool doctor_is_container(const struct doctor *doctor);

/* Kind of a link from one device to another, as far as the driver reports it. */
enum doctor_link_kind {
	DOCTOR_LINK_NONE, /* the device cannot access the other's memory */
	DOCTOR_LINK_PCIE,
	DOCTOR_LINK_NVLINK,
	DOCTOR_LINK_UNKNOWN, /* it can, over a link of unknown kind */
};
enum doctor_link_kind doctor_link_kind(const struct doctor *doctor, int from, int to);

/* Adds a finding at the end of the list. Returns NULL if memory runs out. */
struct doctor_finding *doctor_add(struct doctor *doctor, const char *subject, const char *id, const char *title,
				  int device);

/*
 * Runs the program (argv ends with NULL) under Spillway and adds findings about it. Returns TOOL_OK, or the exit
 * status if the program could not be started.
 */
int doctor_program(struct doctor *doctor, char **program);

#endif
