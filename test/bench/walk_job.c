/* walk_job: the program that scripts/walk.sh follows: one allocation with room on the device; then, with the budget full, launches. */
#include <cuda.h>


#include <stdio.h>

#define MIB    (UINT64_C(1) << 20)
#define BLOCKS 6

int main(void)
{
	CUcontext context;
	CUdeviceptr block[BLOCKS];
	CUresult result = cuInit(0);

	if (!result)
		result = cuDevicePrimaryCtxRetain(&context, 0);
	if (!result)
		result = cuCtxSetCurrent(context);
	for (int i = 0; i < BLOCKS && !result; i++)
		result = cuMemAlloc(&block[i], 8 * MIB);
	for (int step = 0; step < 40 && !result; step++)
		for (int i = 0; i < BLOCKS && !result; i++)
			result = cuMemsetD8Async(block[i], (unsigned char)step, 8 * MIB, 0);
	if (!result)
		result = cuCtxSynchronize();
	for (int i = 0; i < BLOCKS && !result; i++)
		result = cuMemFree(block[i]);
	if (result)
		fprintf(stderr, "walk_job: CUDA error %d\n", (int)result);
	return result != CUDA_SUCCESS;
}
