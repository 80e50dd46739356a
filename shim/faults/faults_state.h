/*
 * faults_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 * faults_queue_on (faults.h) stays apart, because inline functions read it; it is defined beside the object.
 */
#ifndef SPILLWAY_FAULTS_STATE_H
#define SPILLWAY_FAULTS_STATE_H

#include "shim/base/lock.h"
#include "shim/faults/faults_internal.h"

#include <sys/types.h>

/* ---- faults.c ---- */

/*
 * Everything that is read is written before `state` becomes COUNTING, and is constant from then on, except `lost`. No
 * lock protects it.
 */
struct faults_counters {
	_Atomic int state; /* NONE, STARTING, COUNTING or OVER (faults.c) */
	struct uvm uvm;
	struct faults_devices devices;
	struct uvm_counter all, device[DEVICE_MOST];
	bool counts_device[DEVICE_MOST];
	uint64_t major; /* major faults of the process at the start */
	char line[FAULTS_LINE];
	pid_t owner; /* the process of the pages: a child not made by fork() has them in its tables, not in memory */
	_Atomic(const char *) lost; /* why counting has stopped */
};

/* ---- faults_queue.c ---- */

struct faults_events {
	struct lock lock; /* FAULTS, over the reading end of the queue, the tallies and the listener */
	struct uvm *uvm;
	struct uvm_queue queue;
	struct faults_devices devices;
	unsigned char processors[UVM_PROCESSORS][16]; /* UUIDs, by the number that the driver's events use */
	unsigned looks;                               /* how often that table was read */
	struct faults_tally *tallies;                 /* of no rule, of the default, of each rule */
	size_t n_tallies;
	pid_t owner;       /* as above */
	_Atomic bool over; /* the thread shall end */
	void (*visit)(const struct fault_event *event, void *argument);
	void *argument;
};

struct faults_state {
	struct faults_counters counters;
	struct faults_events events;
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct faults_state faults_state __attribute__((visibility("hidden")));

#endif
