/*
 * doctor_cuda.h: what the driver says of itself and of its devices. It is asked in a child process, so that a driver that
 * hangs or crashes is a finding, not the end of the tool; what the child had found out by then is kept.
 */
#ifndef TOOLS_DOCTOR_CUDA_H
#define TOOLS_DOCTOR_CUDA_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	DOCTOR_DEVICES = 16, /* more are counted, not looked at */
	DOCTOR_LINKED = 8,   /* of so many, from the first on, the links to each other are measured */
};

/* How far the child came; each says that everything before it is filled in. */
enum doctor_stage {
	DOCTOR_NOT_ASKED, /* there is no libcuda.so.1, or no child */
	DOCTOR_LOADED,    /* the library could be opened */
	DOCTOR_STARTED,   /* cuInit has returned, see init */
	DOCTOR_LOOKED,    /* devices are filled in */
	DOCTOR_MEASURED,  /* what of them could be measured is */
	DOCTOR_ALL,       /* so are the links between them */
};

enum doctor_end { DOCTOR_ENDED, DOCTOR_HUNG, DOCTOR_CRASHED };

/* From one device to another. */
struct doctor_link {
	int performance_rank; /* of the links of this machine, from 0, the best; -1: the driver does not say */
	int atomics;          /* do they work over it? -1: the driver does not say */
	double rate;          /* measured copies, bytes a second; 0: not measured, and error may say why */
	int error;            /* 0, the driver's, or DOCTOR_LINK_LATE */
};
enum { DOCTOR_LINK_LATE = -1 }; /* the time for all was over */

struct doctor_gpu {
	char name[100], bus[20]; /* "0000:01:00.0" */
	uint64_t total, free;    /* bytes; free 0: not known (it needs a context) */
	/* Attributes; -1: the driver does not know them. */
	int vmm, host_vmm, managed, concurrent, pageable, host_tables, compute_mode, rdma;
	uint64_t peers; /* other devices whose memory it reaches, a bit each */
	struct doctor_link links[DOCTOR_DEVICES];
	/* Measured copies of pinned memory, bytes a second; 0: not measured, and measure_error says why. */
	double to_device, to_host, both; /* both: the sum of both ways at once */
	char measure_error[100];
};

struct doctor_cuda {
	enum doctor_stage stage;
	enum doctor_end end;
	char load_error[300]; /* why libcuda.so.1 could not be opened */
	char path[PATH_MAX];  /* its real path */
	int init, version;    /* what cuInit answered; 12050 = CUDA 12.5 */
	char init_name[64];
	bool has_vmm, has_moves; /* does the library have the functions? see shim/mover/spill.c for the second */
	int n_devices;
	struct doctor_gpu devices[DOCTOR_DEVICES];
};

/*
 * root: as in struct doctor; with one, only the library below it is asked. The driver is given patience_s seconds for all
 * of it. Shows progress on a terminal. Always fills *ret_cuda.
 */
void doctor_cuda_ask(const char *root, bool measure, unsigned patience_s, struct doctor_cuda *ret_cuda);

/*
 * In the child: measure each device within the time for all; then, of several, the links between them, which begins no
 * further pair when its time is over. For doctor_cuda.c. driver: from dlopen.
 */
void doctor_measure(void *driver, struct doctor_cuda *cuda);
void doctor_measure_links(double at_most_seconds, struct doctor_cuda *cuda);

#endif
