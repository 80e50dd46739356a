/*
 * faults_internal.h: what the files of faults.h share.
 */
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
 * Open the queue and start its thread, once; n_rules of the policy. uvm must have its file, and stay. False: *ret_why
 * says why.
 */
bool faults_queue_start(struct uvm *uvm, const struct faults_devices *devices, size_t n_rules, char *ret_why);
void faults_queue_end(void);
void faults_queue_child(void);

#endif
