// SPDX-License-Identifier: Apache-2.0
/*
 * faults_uvm.h: the driver's device /dev/nvidia-uvm-tools: counters that the driver adds up in a page of this process,
 * and a queue of events in such pages. No CUDA, no policy; called from faults.c only.
 *
 * The device needs no privileges and disturbs no profiler (docs/facts.md, Page faults). Only this process is counted: a
 * tracker is tied to the process's /dev/nvidia-uvm, which the driver opened.
 */
#ifndef SPILLWAY_FAULTS_UVM_H
#define SPILLWAY_FAULTS_UVM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- the system calls ---- */

/*
 * The five system calls that read page faults, as a table, so that a substitute for the driver's device can be put
 * behind them. Plain C: the simulated GPU of the tests includes it.
 *
 * How the substitute is chosen: the library looks up FAULTS_SEAM in the libcuda.so.1 that the process has loaded.
 * NVIDIA's has no such symbol, the simulated one has. So everything above the table, from parsing the driver's version
 * to the search through /proc/self/fd and the self-test, is the same code on a real and on a simulated GPU, and the
 * faults of every program on the simulated GPU are counted without any setting. An environment variable is not used,
 * because nothing in the environment may point a process at another device file; a function for tests is not used,
 * because it would not reach whole programs. A user who can put another libcuda.so.1 into a process runs code in it
 * already, and gains nothing.
 */

#define FAULTS_TOOLS   "/dev/nvidia-uvm-tools"
#define FAULTS_UVM     "/dev/nvidia-uvm"
#define FAULTS_VERSION "/proc/driver/nvidia/version"

/* Each works as the libc function: returns -1 and sets errno on failure. */
struct faults_seam {
	size_t size; /* of this struct; a table of another version is not used */
	int (*open)(const char *path, int flags);
	int (*close)(int fd);
	int (*ioctl)(int fd, unsigned long request, void *parameters);
	ssize_t (*link)(int fd, char *buffer, size_t room); /* target of the link /proc/self/fd/N */
	int (*wait)(int fd, int wait_ms); /* poll() for POLLIN: 0 if the time is up, > 0 if half of the queue is full */
};

#define FAULTS_SEAM "spillway_sim_uvm"

/* The table of the libc functions. */
extern const struct faults_seam uvm_system;

#define UVM_WHY 192 /* bytes of a reason in words */

/* The slots of the driver's counters. Slots 3 to 6 are for Windows; 7 and 8 are parts of 0 and 1. */
enum uvm_slot { UVM_BYTES_IN = 0, UVM_BYTES_OUT = 1, UVM_CPU_FAULTS = 2, UVM_GPU_FAULTS = 9, UVM_SLOTS = 10 };

/*
 * A descriptor that the library opened in the program's process. If the program closes it, the number may become
 * another file's.
 */
struct uvm_held {
	int fd;
	dev_t device;
	ino_t inode;
};
/* Returns whether the descriptor is still the file that the library opened. */
bool uvm_is_ours(const struct uvm_held *held);

struct uvm {
	const struct faults_seam *seam;
	const struct uvm_layout *layout; /* layout of this driver's parameters */
	char version[24];                /* of the driver, or "unknown" */
	struct uvm_held file; /* a copy of the process's descriptor of /dev/nvidia-uvm; fd -1: not found yet */
};

/*
 * Reads the driver's version and chooses the layout. Returns false if nothing is known of this version; *ret_why
 * (UVM_WHY bytes) says so.
 */
bool uvm_open(const struct faults_seam *seam, struct uvm *ret_uvm, char *ret_why);
/* Closes the copy of /dev/nvidia-uvm; trackers keep a reference to the file. */
void uvm_close(struct uvm *uvm);

/*
 * Parses the version out of a text like "... Module  580.159.03  ..."; returns false if it has none. Exposed for the
 * tests.
 */
bool uvm_parse_version(const char *text, char ret_version[24], unsigned *ret_major);

/* One page of counters. It is never unmapped, so readers need no lock. */
struct uvm_counter {
	struct uvm_held held;
	uint64_t *slots;
	size_t bytes;
};
/*
 * Opens the counters of one processor, by its UUID, or of all together (NULL). Includes the self-test: the answer must
 * be where the layout puts it, and nothing else may have been written. Returns false, with nothing left open, if that
 * fails; *ret_why (UVM_WHY bytes) says why.
 */
bool uvm_counter_open(struct uvm *uvm, const unsigned char *uuid, struct uvm_counter *ret_counter, char *ret_why);
uint64_t uvm_counter_read(const struct uvm_counter *counter, enum uvm_slot slot);
/* Returns whether only the requested slots have been written. */
bool uvm_counter_is_sound(const struct uvm_counter *counter);

/* The queue of events: entries of 64 bytes and the driver's control block, which says how far each side has got. */
struct uvm_queue {
	struct uvm_held held;
	unsigned char *entries;
	uint32_t *control;
	uint32_t n, get; /* number of entries, a power of 2; the next to read */
	size_t bytes;
};
enum { UVM_ENTRY = 64 };
/*
 * Opens a queue of n entries for the events in the bits `types`. Returns false, with nothing left open, if that fails;
 * *ret_why (UVM_WHY bytes) says why.
 */
bool uvm_queue_open(struct uvm *uvm, uint32_t n, uint64_t types, struct uvm_queue *ret_queue, char *ret_why);
/*
 * Copies the next entry into ret_entry (UVM_ENTRY bytes); returns false if the queue is empty. Locking: one reader at a
 * time.
 */
bool uvm_queue_read(struct uvm_queue *queue, unsigned char *ret_entry);
/* Returns how many events the driver had no room for; STATS_NA if the program has closed the queue's descriptor. */
uint64_t uvm_queue_lost(const struct uvm_queue *queue);
/* Waits until half of the queue is full, at most wait_ms. */
void uvm_queue_wait(const struct uvm *uvm, const struct uvm_queue *queue, int wait_ms);

/*
 * Stores the UUIDs of processors by the numbers that events use; 0 is the CPU. Stores nothing if the driver does not
 * report them.
 */
enum { UVM_PROCESSORS = 33 };
void uvm_processors(struct uvm *uvm, unsigned char ret_uuids[UVM_PROCESSORS][16]);

#endif
