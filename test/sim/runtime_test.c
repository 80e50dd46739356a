// SPDX-License-Identifier: Apache-2.0
/*
 * runtime_test.c: the small libcudart and portable.h together: a program as others will write them, with kernels that
 * nvcc could compile as well.
 */
#include "test/portable.h"
#include "test/test.h"

#define ok(call) assert_int_equal((call), cudaSuccess)

KERNEL4(scale_add, float *, out, const float *, in, float, factor, size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		out[i] += factor * in[i];
}

KERNEL2(through_a_table, float **, table, size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		DEVICE_POINTER(table[i])[0] = (float)i;
}

TEST(kernels_compute_on_runtime_memory)
{
	enum { N = 10000 };
	float *in, *out, *host = malloc(N * sizeof(float));
	cudaStream_t stream;

	for (size_t i = 0; i < N; i++)
		host[i] = (float)i;
	ok(cudaMalloc((void **)&in, N * sizeof(float)));
	ok(cudaMalloc((void **)&out, N * sizeof(float)));
	ok(cudaStreamCreate(&stream));
	ok(cudaMemcpyAsync(in, host, N * sizeof(float), cudaMemcpyHostToDevice, stream));
	ok(cudaMemsetAsync(out, 0, N * sizeof(float), stream));
	ok(LAUNCH(scale_add, 32, 128, stream, out, in, 2, N));
	ok(cudaMemcpyAsync(host, out, N * sizeof(float), cudaMemcpyDeviceToHost, stream));
	ok(cudaStreamSynchronize(stream));
	for (size_t i = 0; i < N; i++)
		assert_true(host[i] == 2.0f * (float)i);
	ok(cudaStreamDestroy(stream));
	ok(cudaFree(in));
	ok(cudaFree(out));
	free(host);
}

TEST(addresses_in_device_memory_can_be_followed)
{
	float *cells, *pointers[4], **table, got[4];

	ok(cudaMalloc((void **)&cells, sizeof(got)));
	ok(cudaMalloc((void **)&table, sizeof(pointers)));
	for (int i = 0; i < 4; i++)
		pointers[i] = cells + i;
	ok(cudaMemcpy(table, pointers, sizeof(pointers), cudaMemcpyDefault));
	ok(LAUNCH(through_a_table, 1, 32, 0, table, 4));
	ok(cudaMemcpy(got, cells, sizeof(got), cudaMemcpyDefault));
	for (int i = 0; i < 4; i++)
		assert_true(got[i] == (float)i);
	ok(cudaFree(cells));
	ok(cudaFree(table));
}

TEST(last_error_is_given_once)
{
	void *at;

	assert_int_equal(cudaMalloc(&at, (size_t)1 << 50), cudaErrorMemoryAllocation);
	assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaSuccess);
	assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
}

TEST(captured_launches_replay)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	float *at, one = 1, got;

	ok(cudaMalloc((void **)&at, 16));
	ok(cudaMemcpy(at, &one, 4, cudaMemcpyHostToDevice));
	ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	ok(LAUNCH(scale_add, 1, 32, stream, at, at, 1, 1));
	ok(cudaStreamEndCapture(stream, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 3; i++)
		ok(cudaGraphLaunch(exec, stream));
	ok(cudaStreamSynchronize(stream));
	ok(cudaMemcpy(&got, at, 4, cudaMemcpyDeviceToHost));
	assert_true(got == 8);
	ok(cudaGraphExecDestroy(exec));
	ok(cudaGraphDestroy(graph));
	ok(cudaStreamDestroy(stream));
	ok(cudaFree(at));
}

TEST(illegal_address_stays_until_the_reset)
{
	float *at;

	ok(cudaMalloc((void **)&at, 4096));
	ok(cudaFree(at));
	ok(LAUNCH(scale_add, 1, 32, 0, at, at, 1, 1000));
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
	assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
	assert_int_equal(cudaMalloc((void **)&at, 16), cudaErrorIllegalAddress);
	ok(cudaDeviceReset());
	ok(cudaMalloc((void **)&at, 4096));
	ok(LAUNCH(scale_add, 1, 32, 0, at, at, 1, 10));
	ok(cudaDeviceSynchronize());
	ok(cudaFree(at));
}
