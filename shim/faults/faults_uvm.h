/*
 * faults_uvm.h: the driver's device /dev/nvidia-uvm-tools: counters that the driver itself adds up in a page of ours, and
 * a queue of events in pages of ours. No CUDA, no policy; called from faults.c and faults_queue.c alone.
 *
 * It needs no privileges and disturbs no profiler (docs/facts.md, Page faults). What is asked for concerns this process
 * alone: a tracker is tied to the process's own /dev/nvidia-uvm, which the driver opened.
 */
#ifndef SPILLWAY_FAULTS_UVM_H
#define SPILLWAY_FAULTS_UVM_H

#include "shim/faults/faults_seam.h"

#include <stdbool.h>
#include <stdint.h>

/* The calls of libc. */
extern const struct faults_seam uvm_system;

#define UVM_WHY 192 /* bytes of a reason, for people */

/* Where the driver keeps which number. Slots 3 to 6 are for Windows, 7 and 8 parts of 0 and 1. */
enum uvm_slot { UVM_BYTES_IN = 0, UVM_BYTES_OUT = 1, UVM_CPU_FAULTS = 2, UVM_GPU_FAULTS = 9, UVM_SLOTS = 10 };

/* A descriptor of ours in somebody else's process: if the program closes it, the number may become another file's. */
struct uvm_held {
	int fd;
	dev_t device;
	ino_t inode;
};
bool uvm_is_ours(const struct uvm_held *held);

struct uvm {
	const struct faults_seam *seam;
	const struct uvm_layout *layout; /* how this driver's parameters lie */
	char version[24];                /* of the driver; "unknown" */
	struct uvm_held file;            /* a copy of the process's own /dev/nvidia-uvm; fd -1: not found yet */
};

/* Look at the version and choose the layout. False: no version of which anything is known. */
bool uvm_open(const struct faults_seam *seam, struct uvm *ret_uvm, char *ret_why);
/* Give up the copy of /dev/nvidia-uvm: trackers have their own hold on it. */
void uvm_close(struct uvm *uvm);

/* The three numbers of the text "... Module  580.159.03  ..."; false: there are none. Exposed for the tests. */
bool uvm_parse_version(const char *text, char ret_version[24], unsigned *ret_major);

/* One page of counters. Once made it is never unmapped: who reads it needs no lock. */
struct uvm_counter {
	struct uvm_held held;
	uint64_t *slots;
	size_t bytes;
};
/*
 * Counters of one processor, by its UUID; NULL: of all together. The self-test is part of it: the answer must be where
 * the layout has it, nothing else may have been written. False: *ret_why (UVM_WHY bytes) says why, and nothing is held.
 */
bool uvm_counter_open(struct uvm *uvm, const unsigned char *uuid, struct uvm_counter *ret_counter, char *ret_why);
uint64_t uvm_counter_read(const struct uvm_counter *counter, enum uvm_slot slot);
/* Have only those slots been written that were asked for? */
bool uvm_counter_is_sound(const struct uvm_counter *counter);

/* The queue: entries of 64 bytes, the driver's control block, and who has read how far. */
struct uvm_queue {
	struct uvm_held held;
	unsigned char *entries;
	uint32_t *control;
	uint64_t *dropped; /* by type of event */
	uint32_t n, get;   /* entries, a power of 2; the next to read */
	size_t bytes;
};
enum { UVM_ENTRY = 64, UVM_EVENT_TYPES = 64 };
bool uvm_queue_open(struct uvm *uvm, uint32_t n, uint64_t types, struct uvm_queue *ret_queue, char *ret_why);
/* The next entry into ret_entry (UVM_ENTRY bytes); false: there is none now. One reader at a time. */
bool uvm_queue_read(struct uvm_queue *queue, unsigned char *ret_entry);
/* Wait until half of it is full, wait_ms at most. */
void uvm_queue_wait(const struct uvm *uvm, const struct uvm_queue *queue, int wait_ms);

/* UUIDs of processors by the numbers that events use; 0 is the CPU. False: the driver does not say. */
enum { UVM_PROCESSORS = 33 };
bool uvm_processors(struct uvm *uvm, unsigned char ret_uuids[UVM_PROCESSORS][16]);

#endif
