// SPDX-License-Identifier: Apache-2.0
#include "test/preload/gpus.h"
#include "test/test.h"

struct gpus gpus;

void gpus_start(int n, size_t bytes)
{
	assert_in_range(n, 1, GPUS_MOST);
	gpus.n = n;
	gpus.bytes = bytes;
	for (int i = 0; i < n; i++) {
		gpus.context[i] = driver_start(i);
		ok(cu.cuStreamCreate(&gpus.stream[i], CU_STREAM_NON_BLOCKING));
		ok(cu.cuMemAlloc_v2(&gpus.block[i], bytes));
	}
	gpus.host = malloc(bytes);
	gpus.seen = malloc(bytes);
	assert_non_null(gpus.host);
	assert_non_null(gpus.seen);
}

bool gpus_are_heap(void)
{
	for (int i = 0; i < gpus.n; i++)
		if (!driver_is_heap(gpus.block[i]))
			return false;
	return true;
}

void gpus_start_for_copies(int n, size_t bytes)
{
	gpus_start(n, bytes);
	assert_true(gpus_are_heap());
	for (int i = 0; i < n && getenv("PEERS_ENABLED"); i++)
		for (int j = 0; j < n; j++)
			if (i != j) {
				gpus_be(i);
				ok(cuCtxEnablePeerAccess(gpus.context[j], 0));
			}
}

void gpus_be(int device)
{
	ok(cu.cuCtxSetCurrent(gpus.context[device]));
}

unsigned char gpus_byte(size_t at, unsigned salt)
{
	return (unsigned char)(((unsigned)at * 2654435761u + salt * 40503u) >> 13);
}

static void make_bytes(unsigned char *to, size_t from, size_t n, unsigned salt)
{
	for (size_t i = 0; i < n; i++)
		to[i] = gpus_byte(from + i, salt);
}

size_t gpus_difference(const unsigned char *bytes, size_t n, unsigned salt)
{
	unsigned char expected[4096];

	for (size_t at = 0, piece; at < n; at += piece) {
		piece = n - at < sizeof(expected) ? n - at : sizeof(expected);
		make_bytes(expected, at, piece, salt);
		if (!memcmp(expected, bytes + at, piece))
			continue;
		while (bytes[at] == gpus_byte(at, salt))
			at++;
		return at;
	}
	return n;
}

void gpus_fill_host(unsigned salt)
{
	make_bytes(gpus.host, 0, gpus.bytes, salt);
}

void gpus_fill(int device, unsigned salt)
{
	gpus_be(device);
	gpus_fill_host(salt);
	ok(cu.cuMemcpyHtoD_v2(gpus.block[device], gpus.host, gpus.bytes));
	ok(cu.cuCtxSynchronize());
}

void gpus_expect(int device, unsigned salt, size_t bytes, const char *what, int form)
{
	gpus_be(device);
	memset(gpus.seen, 0, gpus.bytes);
	ok(cu.cuMemcpyDtoH_v2(gpus.seen, gpus.block[device], bytes));
	size_t i = gpus_difference(gpus.seen, bytes, salt);
	if (i < bytes)
		fail_msg("%s, form %d: byte %zu of device %d is %u, not %u", what, form, i, device, gpus.seen[i],
			 gpus_byte(i, salt));
}
