/*
 * gpu.h: the devices of this machine, as far as a policy can ask for what they do.
 */
#ifndef TOOLS_GPU_H
#define TOOLS_GPU_H

#include "policy/policy.h"

enum { GPU_MOST = 63 }; /* as many as a rule can name */

/* How many there are, at most GPU_MOST; 0 where there is no driver, or it does not start. Asks it once. */
int gpu_devices(const struct policy_device **ret_devices);

#endif
