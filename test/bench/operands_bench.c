// SPDX-License-Identifier: Apache-2.0
/*
 * operands_bench: what it costs to read the operands of a launch, with a struct submission that does nothing: the call
 * of submission_name() is in it, what submission.c does is not. No driver: the layouts are invented. Medians of 15
 * rounds, in ns.
 */
#include "shim/driver/real.h"
#include "shim/submit/graph.h"
#include "shim/submit/submit_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS   15
#define LAUNCHES 200000

static volatile uint64_t sink;

void submission_stream(struct submission *use, CUstream stream, bool per_thread)
{
	(void)use;
	(void)stream;
	(void)per_thread;
}

void submission_function(struct submission *use, uint64_t function)
{
	(void)use;
	(void)function;
}

void submission_stores(struct submission *use, CUdeviceptr address)
{
	(void)use;
	(void)address;
}

void submission_name(struct submission *use, CUdeviceptr address, size_t bytes)
{
	(void)use;
	(void)bytes;
	sink = address;
}

uint64_t submission_what(const struct submission *use)
{
	(void)use;
	return 0;
}

bool submission_is_heap(CUdeviceptr address)
{
	(void)address;
	return false;
}

bool submission_means_heap(CUdeviceptr address)
{
	(void)address;
	return false;
}

void submission_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes)
{
	*ret_first = 0;
	*ret_bytes = 0;
}

void submission_named_only(struct submission *use)
{
	(void)use;
}

void submission_unknown(struct submission *use)
{
	(void)use;
	abort();
}

void graph_operands(struct submission *use, CUgraphExec exec)
{
	(void)use;
	(void)exec;
}

/* Handles are 256 bytes apart, as a heap would place what is behind them; the last byte says which kernel it is. */
enum { POINTERS, MIXED, LIST };
#define MANY 1000

static CUresult CUDAAPI invented(CUfunction of, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	static const unsigned n[] = {10, 15, 1};
	unsigned which = (uintptr_t)of & 0xff;

	if (index >= n[which])
		return CUDA_ERROR_INVALID_VALUE;
	*ret_offset = 8 * index;
	*ret_bytes = which == LIST ? 4088 : which == MIXED && index % 3 == 2 ? 4 : 8;
	return CUDA_SUCCESS;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const char *name, unsigned which, unsigned n_functions, void **params)
{
	double round[ROUNDS];

	for (int r = -1; r < ROUNDS; r++) {
		double start = now();

		for (unsigned i = 0; i < LAUNCHES; i++) {
			uintptr_t of = (uintptr_t)0x555500000000 + 256 * (uintptr_t)(i % n_functions) + which;
			operands_cuLaunchKernel(NULL, (CUfunction)of, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
		}
		if (r >= 0)
			round[r] = (now() - start) / LAUNCHES;
	}
	qsort(round, ROUNDS, sizeof(round[0]), by_value);
	printf("%s %.1f %.1f %.1f ns\n", name, round[ROUNDS / 2], round[0], round[ROUNDS - 1]);
}

int main(void)
{
	CUdeviceptr word[512];
	void *params[16], *list[1] = {word};

	for (unsigned i = 0; i < 512; i++)
		word[i] = (CUdeviceptr)0x7f0000000000 + i * 0x100000;
	for (unsigned i = 0; i < 16; i++)
		params[i] = &word[i];
	real.cuFuncGetParamInfo = invented;
	measure("operands_10_pointers", POINTERS, 1, params);
	measure("operands_10_pointers_of_15", MIXED, 1, params);
	measure("operands_10_pointers_1000_functions", POINTERS, MANY, params);
	measure("operands_4088_bytes", LIST, 1, list);
	return 0;
}
