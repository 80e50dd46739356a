/*
 * doctor_cuda.h: queries the driver about itself and its devices. The queries run in a child process, so that a driver
 * that hangs or crashes becomes a finding and does not end the tool; what the child found out before that is kept.
 */
#ifndef TOOLS_DOCTOR_CUDA_H
#define TOOLS_DOCTOR_CUDA_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

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

#endif
