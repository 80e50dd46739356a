/*
 * sim_cudart.h: what the two files of the small runtime share.
 */
#ifndef SIM_CUDART_H
#define SIM_CUDART_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#define SIM_EXPORT __attribute__((visibility("default")))

#endif
