// SPDX-License-Identifier: Apache-2.0
/*
 * A program of the CUDA runtime: built once with a libcudart of its own in it, once with the shared one.
 */
#include "test/sim/sim_cudart.h"

int main(void)
{
	void *block;

	return cudaMalloc(&block, 4096) || cudaFree(block);
}
