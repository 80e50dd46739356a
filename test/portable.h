// SPDX-License-Identifier: Apache-2.0
/*
 * portable.h: kernels and launches written once, compiled by nvcc for a real GPU (the file included as .cu) and by gcc
 * for the simulated one.
 *
 *   KERNEL3(add, float *, a, const float *, b, size_t, n)
 *   {
 *           for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
 *                   a[i] += b[i];
 *   }
 *   LAUNCH(add, 256, 128, stream, a, b, n)      a cudaError_t
 *
 * A body walks its whole range by KERNEL_FIRST and KERNEL_STEP: on the simulated GPU one call does the whole grid. An
 * address that it reads from device memory goes through DEVICE_POINTER before it is used.
 */
#ifndef SPILLWAY_PORTABLE_H
#define SPILLWAY_PORTABLE_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#ifdef __CUDACC__

#define KERNEL_FIRST ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL_STEP  ((size_t)gridDim.x * blockDim.x)
#define DEVICE_POINTER(p) (p)

template <typename T> struct portable_as {
	typedef T type;
};

/* The kernel alone decides the types; what is given is converted to them, as in a call. */
template <typename... T>
static inline cudaError_t portable_launch(void (*kernel)(T...), unsigned blocks, unsigned threads, cudaStream_t stream,
					  typename portable_as<T>::type... values)
{
	void *args[] = {(void *)&values...};

	return cudaLaunchKernel((const void *)kernel, dim3(blocks), dim3(threads), args, 0, stream);
}
#define LAUNCH(name, blocks, threads, stream, ...) portable_launch(name, blocks, threads, stream, __VA_ARGS__)

#define KERNEL1(name, T1, a1) \
	static __global__ void name(T1 a1)
#define KERNEL2(name, T1, a1, T2, a2) \
	static __global__ void name(T1 a1, T2 a2)
#define KERNEL3(name, T1, a1, T2, a2, T3, a3) \
	static __global__ void name(T1 a1, T2 a2, T3 a3)
#define KERNEL4(name, T1, a1, T2, a2, T3, a3, T4, a4) \
	static __global__ void name(T1 a1, T2 a2, T3 a3, T4 a4)
#define KERNEL5(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) \
	static __global__ void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5)
#define KERNEL6(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) \
	static __global__ void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6)
#define KERNEL7(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) \
	static __global__ void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7)
#define KERNEL8(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) \
	static __global__ void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8)

#else

#include "sim/sim.h"

#define KERNEL_FIRST ((size_t)0)
#define KERNEL_STEP  ((size_t)1)
#define DEVICE_POINTER(p) ((__typeof__(p))sim_pointer((CUdeviceptr)(uintptr_t)(p)))
#define LAUNCH(name, blocks, threads, stream, ...) name##_launch(blocks, threads, stream, __VA_ARGS__)

/* The body; a thunk that unpacks its parameters; their sizes; the kernel; and a typed launch. */
#define KERNEL1(name, T1, a1) \
	static void name(T1 a1); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 1, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1) \
	{ \
		void *args[] = {(void *)&a1}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1)
#define KERNEL2(name, T1, a1, T2, a2) \
	static void name(T1 a1, T2 a2); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0], *(T2 *)args[1]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1), sizeof(T2)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 2, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1, T2 a2) \
	{ \
		void *args[] = {(void *)&a1, (void *)&a2}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1, T2 a2)
#define KERNEL3(name, T1, a1, T2, a2, T3, a3) \
	static void name(T1 a1, T2 a2, T3 a3); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0], *(T2 *)args[1], *(T3 *)args[2]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1), sizeof(T2), sizeof(T3)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 3, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1, T2 a2, T3 a3) \
	{ \
		void *args[] = {(void *)&a1, (void *)&a2, (void *)&a3}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1, T2 a2, T3 a3)
#define KERNEL4(name, T1, a1, T2, a2, T3, a3, T4, a4) \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0], *(T2 *)args[1], *(T3 *)args[2], *(T4 *)args[3]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1), sizeof(T2), sizeof(T3), sizeof(T4)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 4, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1, T2 a2, T3 a3, T4 a4) \
	{ \
		void *args[] = {(void *)&a1, (void *)&a2, (void *)&a3, (void *)&a4}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4)
#define KERNEL5(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5) \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0], *(T2 *)args[1], *(T3 *)args[2], *(T4 *)args[3], *(T5 *)args[4]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1), sizeof(T2), sizeof(T3), sizeof(T4), sizeof(T5)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 5, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5) \
	{ \
		void *args[] = {(void *)&a1, (void *)&a2, (void *)&a3, (void *)&a4, (void *)&a5}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5)
#define KERNEL6(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6) \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0], *(T2 *)args[1], *(T3 *)args[2], *(T4 *)args[3], *(T5 *)args[4], *(T6 *)args[5]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1), sizeof(T2), sizeof(T3), sizeof(T4), sizeof(T5), sizeof(T6)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 6, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6) \
	{ \
		void *args[] = {(void *)&a1, (void *)&a2, (void *)&a3, (void *)&a4, (void *)&a5, (void *)&a6}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6)
#define KERNEL7(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7) \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0], *(T2 *)args[1], *(T3 *)args[2], *(T4 *)args[3], *(T5 *)args[4], *(T6 *)args[5], *(T7 *)args[6]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1), sizeof(T2), sizeof(T3), sizeof(T4), sizeof(T5), sizeof(T6), sizeof(T7)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 7, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7) \
	{ \
		void *args[] = {(void *)&a1, (void *)&a2, (void *)&a3, (void *)&a4, (void *)&a5, (void *)&a6, (void *)&a7}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7)
#define KERNEL8(name, T1, a1, T2, a2, T3, a3, T4, a4, T5, a5, T6, a6, T7, a7, T8, a8) \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8); \
	static void name##_thunk(const struct sim_launch *portable_grid, void **args) \
	{ \
		(void)portable_grid; \
		name(*(T1 *)args[0], *(T2 *)args[1], *(T3 *)args[2], *(T4 *)args[3], *(T5 *)args[4], *(T6 *)args[5], *(T7 *)args[6], *(T8 *)args[7]); \
	} \
	static const size_t name##_bytes[] = {sizeof(T1), sizeof(T2), sizeof(T3), sizeof(T4), sizeof(T5), sizeof(T6), sizeof(T7), sizeof(T8)}; \
	static const struct sim_kernel name##_kernel = {#name, name##_thunk, 8, name##_bytes}; \
	__attribute__((unused)) static cudaError_t name##_launch(unsigned portable_blocks, unsigned portable_threads, \
		cudaStream_t portable_stream, T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8) \
	{ \
		void *args[] = {(void *)&a1, (void *)&a2, (void *)&a3, (void *)&a4, (void *)&a5, (void *)&a6, (void *)&a7, (void *)&a8}; \
		dim3 portable_grid = {portable_blocks, 1, 1}, portable_block = {portable_threads, 1, 1}; \
		return cudaLaunchKernel((const void *)&name##_kernel, portable_grid, portable_block, args, 0, portable_stream); \
	} \
	static void name(T1 a1, T2 a2, T3 a3, T4 a4, T5 a5, T6 a6, T7 a7, T8 a8)

#endif
/* clang-format on */
#endif
