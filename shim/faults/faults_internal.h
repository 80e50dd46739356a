/* faults_internal.h: shared by faults.c and faults_queue.c. */
#ifndef SPILLWAY_FAULTS_INTERNAL_H
#define SPILLWAY_FAULTS_INTERNAL_H

#include "shim/base/limits.h"
#include "shim/faults/faults.h"
#include "shim/faults/faults_uvm.h"

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

#endif
