// SPDX-License-Identifier: Apache-2.0
/*
 * fft_plans.c: plans of cuFFT, whose tables no launch names, on a real GPU with more memory in use than the device
 * budget. Built with nvcc and libcufft (scripts/others.sh); exits 0 when every transform is as the first one was, 1
 * when not, 77 without a GPU.
 *
 * Usage: fft_plans [ROUNDS]. Each of N_PLANS plans (made in turn by cufftXtMakePlanMany and cufftPlan1d, of lengths
 * that need large tables) transforms a block of its own; between them kernels of another plan name all other blocks in
 * turn, so that tables which nobody names are the first to leave. Prints what the plans took of the device, and a
 * digest.
 */
#include <cuda_runtime.h>
#include <cufftXt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PLANS  6
#define N_BLOCKS 24
#define POINTS   (1 << 20) /* of a block: 8 MiB of complex numbers */

static void must(int result, const char *what)
{
	if (result != 0) {
		fprintf(stderr, "fft_plans: %s: error %d\n", what, result);
		exit(1);
	}
}

/* Lengths: powers of two, of small primes, and a large prime, for which cuFFT keeps the most tables (Bluestein). */
static const long long lengths[N_PLANS] = {1 << 20, 823543, 1000000, 999983, 531441, 524309};

static size_t used(void)
{
	size_t left, all;

	must(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
	return all - left;
}

static uint64_t digest(const void *data, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)data;
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ at[i]) * 0x100000001b3;
	return hash;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 20, n = 0, bad = 0;
	const size_t bytes = POINTS * sizeof(cufftComplex);
	cufftComplex *block[N_BLOCKS], *out, *host = (cufftComplex *)malloc(bytes);
	uint64_t first[N_PLANS] = {0}, all = 0;
	cufftHandle plan[N_PLANS];

	if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
		return 77;
	if (!host)
		return 1;
	must(cudaFree(NULL), "cudaFree");
	size_t before = used();
	for (int i = 0; i < N_PLANS; i++) {
		size_t work;

		must(cufftCreate(&plan[i]), "cufftCreate");
		if (i % 2 == 0)
			must(cufftXtMakePlanMany(plan[i], 1, (long long *)&lengths[i], NULL, 1, 0, CUDA_C_32F, NULL, 1,
						 0, CUDA_C_32F, 1, &work, CUDA_C_32F),
			     "cufftXtMakePlanMany");
		else
			must(cufftMakePlan1d(plan[i], (int)lengths[i], CUFFT_C2C, 1, &work), "cufftMakePlan1d");
		printf("fft_plans: plan %d of %lld points: %.1f MiB in all, work area %.1f MiB\n", i, lengths[i],
		       (double)(used() - before) / (1 << 20), (double)work / (1 << 20));
	}
	for (size_t i = 0; i < POINTS; i++) {
		host[i].x = (float)(i * 2654435761u % 1000) / 1000;
		host[i].y = (float)(i * 40503u % 777) / 777;
	}
	must(cudaMalloc((void **)&out, bytes), "cudaMalloc");
	for (int b = 0; b < N_BLOCKS; b++) {
		must(cudaMalloc((void **)&block[b], bytes), "cudaMalloc");
		must(cudaMemcpy(block[b], host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
	}
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < N_PLANS; i++) {
			/*
			 * The same transform of every block, so that all of them are named, and pass through the
			 * budget.
			 */
			for (int b = 0; b < N_BLOCKS; b++)
				must(cufftXtExec(plan[(round + i) % N_PLANS], block[b], out, CUFFT_FORWARD),
				     "cufftXtExec");
			must(cudaMemcpy(host, out, (size_t)lengths[(round + i) % N_PLANS] * sizeof(*host),
					cudaMemcpyDeviceToHost),
			     "cudaMemcpy");
			int p = (round + i) % N_PLANS;
			uint64_t now = digest(host, (size_t)lengths[p] * sizeof(*host));
			if (!first[p])
				first[p] = now;
			bad += now != first[p];
		}
	}
	for (int i = 0; i < N_PLANS; i++) {
		all = all * 31 + first[i];
		must(cufftDestroy(plan[i]), "cufftDestroy");
	}
	printf("check digest %016llx\n", (unsigned long long)all);
	printf("fft_plans: %d rounds, %d transforms differ from the first of their plan\n", rounds, bad);
	return bad != 0;
}
