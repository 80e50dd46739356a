/*
 * gpu.h: lists the GPUs of this machine, with the attributes that a policy can test.
 */
#ifndef TOOLS_GPU_H
#define TOOLS_GPU_H

#include "policy/policy.h"

enum { GPU_MOST = 63 }; /* as many devices as a rule can name */

/*
 * Returns the number of devices, at most GPU_MOST; 0 if there is no driver or it does not start. The driver is queried
 * by the first call only.
 */
int gpu_devices(const struct policy_device **ret_devices);

#endif
