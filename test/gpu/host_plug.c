// SPDX-License-Identifier: Apache-2.0
/*
 * host_plug: an allocator for PyTorch that puts every EVERY-th of its blocks (HOST_PLUG_EVERY, default 2) into pinned
 * host memory by cuMemHostAlloc and the others into device memory: memory behind the link without Spillway. Blocks are
 * kept and used again by size and stream.
 *
 * Build: gcc -shared -fPIC -o host_plug.so host_plug.c -I CUDA/include -lcuda. Needs the driver to link or run.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 65536 };

static struct block {
	CUdeviceptr at;
	size_t bytes;
	void *stream;
	bool used;
} blocks[MOST];
static unsigned n_blocks, n_on_host;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "host_plug: %s: %d\n", what, (int)result);
	abort();
}

static void need_context(int device)
{
	CUcontext context = NULL;

	cuCtxGetCurrent(&context);
	if (context)
		return;
	must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

static CUdeviceptr make(size_t bytes)
{
	const char *text = getenv("HOST_PLUG_EVERY");
	unsigned every = text ? (unsigned)atoi(text) : 2;
	CUdeviceptr at = 0;
	void *host;

	if (!every || n_blocks % every) {
		must(cuMemAlloc(&at, bytes), "cuMemAlloc");
		return at;
	}
	must(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
	must(cuMemHostGetDevicePointer(&at, host, 0), "cuMemHostGetDevicePointer");
	n_on_host++;
	return at;
}

static struct block *find(size_t bytes, void *stream)
{
	for (unsigned i = 0; i < n_blocks; i++)
		if (!blocks[i].used && blocks[i].bytes == bytes && blocks[i].stream == stream)
			return &blocks[i];
	if (n_blocks == MOST)
		return NULL;
	blocks[n_blocks] = (struct block){make(bytes), bytes, stream, false};
	return &blocks[n_blocks++];
}

void *host_plug_alloc(ssize_t size, int device, void *stream)
{
	if (size <= 0)
		return NULL;
	need_context(device);
	pthread_mutex_lock(&one);
	struct block *block = find(((size_t)size + 511) & ~(size_t)511, stream);
	if (block)
		block->used = true;
	pthread_mutex_unlock(&one);
	return block ? (void *)block->at : NULL;
}

void host_plug_free(void *at, ssize_t size, int device, void *stream)
{
	(void)size;
	(void)device;
	(void)stream;
	pthread_mutex_lock(&one);
	for (unsigned i = 0; i < n_blocks; i++)
		if (blocks[i].at == (CUdeviceptr)at)
			blocks[i].used = false;
	pthread_mutex_unlock(&one);
}

__attribute__((destructor)) static void report(void)
{
	if (n_blocks)
		fprintf(stderr, "host_plug: %u blocks, %u of them in host memory\n", n_blocks, n_on_host);
}
