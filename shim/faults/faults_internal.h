/*
 * faults_internal.h: shared by faults.c and faults_queue.c, and everything that the room keeps for the process, in one
 * object. faults_queue_on (faults.h) stays apart, because inline functions read it.
 */
#ifndef SPILLWAY_FAULTS_INTERNAL_H
#define SPILLWAY_FAULTS_INTERNAL_H

#include "shim/base/limits.h"
#include "shim/base/lock.h"
#include "shim/faults/faults.h"
#include "shim/faults/faults_uvm.h"

#include <sys/types.h>

/* The devices that the process sees, by ordinal. */
struct faults_devices {
	int n;
	unsigned char uuid[DEVICE_MOST][16];
	bool known[DEVICE_MOST];
};

/*
 * Opens the queue and starts its thread; must be called once. `uvm` must have its file and must stay valid. n_rules:
 * number of rules of the policy. Returns false if there is no queue; *ret_why says why.
 */
bool faults_queue_start(struct uvm *uvm, const struct faults_devices *devices, size_t n_rules, char *ret_why);
/* Reads the last events and makes the thread end. Locking: takes FAULTS. */
void faults_queue_end(void);
/* In the child of a fork: closes the parent's descriptor. Async-signal-safe. */
void faults_queue_child(void);

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
