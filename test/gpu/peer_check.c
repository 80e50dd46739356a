// SPDX-License-Identifier: Apache-2.0
/*
 * peer_check: what programs for several GPUs do with each other's memory, as CUDA's own samples show it: copies back
 * and forth, kernels that read and write the memory of a peer, copies between two GPUs asked for by a third.
 *
 *   peer_check [MIB]      on every two of the first four GPUs; MIB (32) is the size of a block
 *
 * It knows nothing of Spillway; run it with and without. With a device budget of less than two blocks they lie on the
 * host in part. Exit status: 0 every word is right; 1 one is not, or a call failed; 77 there is one GPU.
 */
#include "test/preload/driver.h"

enum { DEVICES = 4, TURNS = 6 };

static int n_devices;
static size_t words = 8 * MIB;
static CUcontext contexts[DEVICES];
static CUdeviceptr block[DEVICES], second[DEVICES];

static void be(int device)
{
	MUST(cu.cuCtxSetCurrent(contexts[device]));
}

static void expect(int device, CUdeviceptr at, unsigned value, const char *what, int other)
{
	be(device);
	if (driver_holds(at, value, words))
		return;
	fprintf(stderr, "peer_check: %s, GPU %d with GPU %d: wrong\n", what, device, other);
	exit(1);
}

static void fill(int device, CUdeviceptr at, unsigned value)
{
	be(device);
	MUST(driver_fill(NULL, at, value, words));
	MUST(cu.cuCtxSynchronize());
}

/* There and back again, by either side's streams. */
static void ping_pong(int a, int b)
{
	fill(a, block[a], 1000);
	for (int i = 0; i < TURNS; i++) {
		be(i & 1 ? a : b);
		MUST(i & 2 ? cuMemcpyPeer(block[b], contexts[b], block[a], contexts[a], words * 4)
			   : cuMemcpyDtoDAsync_v2(block[b], block[a], words * 4, NULL));
		MUST(cu.cuCtxSynchronize());
		expect(b, block[b], 1000 + (unsigned)i, "a copy", a);
		fill(b, block[b], 1001 + (unsigned)i);
		be(i & 2 ? a : b);
		MUST(cuMemcpy(block[a], block[b], words * 4));
		MUST(cu.cuCtxSynchronize());
		expect(a, block[a], 1001 + (unsigned)i, "a copy back", b);
	}
}

/* Kernels of a read and write memory of b, of before and of after. */
static void kernels(int a, int b)
{
	CUdeviceptr later;

	be(a);
	MUST(cuCtxEnablePeerAccess(contexts[b], 0));
	be(b);
	MUST(cu.cuMemAlloc_v2(&later, words * 4));
	fill(b, block[b], 31);
	be(a);
	MUST(driver_copy(NULL, block[a], block[b], words));
	MUST(driver_copy(NULL, later, block[a], words));
	MUST(driver_fill(NULL, block[b], 32, words));
	MUST(cu.cuCtxSynchronize());
	expect(a, block[a], 31, "a kernel that reads a peer", b);
	expect(b, later, 31, "a kernel that writes a peer", a);
	expect(b, block[b], 32, "a kernel that fills a peer", a);
	be(a);
	MUST(cuCtxDisablePeerAccess(contexts[b]));
	be(b);
	MUST(cu.cuMemFree_v2(later));
}

/* As code for one GPU does it: the current one has nothing to do with either. */
static void copy_from_third(int third, int a, int b)
{
	fill(a, second[a], 77);
	be(third);
	MUST(cuMemcpyDtoDAsync_v2(second[b], second[a], words * 4, NULL));
	MUST(cu.cuCtxSynchronize());
	expect(b, second[b], 77, "a copy by a third", a);
}

static void open_devices(void)
{
	for (int i = 0; i < n_devices; i++) {
		contexts[i] = driver_start(i);
		MUST(cu.cuMemAlloc_v2(&block[i], words * 4));
		MUST(cu.cuMemAlloc_v2(&second[i], words * 4));
	}
}

int main(int argc, char **argv)
{
	int n_wired = 0, reaches;

	if (argc > 1)
		words = (size_t)atoi(argv[1]) * MIB / 4;
	driver_open();
	if (cu.cuInit(0) || cuDeviceGetCount(&n_devices) || n_devices < 2 || !words) {
		fprintf(stderr, "peer_check: there are no two GPUs\n");
		return 77;
	}
	if (n_devices > DEVICES)
		n_devices = DEVICES;
	open_devices();
	for (int a = 0; a < n_devices; a++)
		for (int b = 0; b < n_devices; b++) {
			if (a == b)
				continue;
			ping_pong(a, b);
			MUST(cuDeviceCanAccessPeer(&reaches, a, b));
			n_wired += reaches;
			if (reaches)
				kernels(a, b);
			for (int third = 0; third < n_devices; third++)
				if (third != a && third != b)
					copy_from_third(third, a, b);
		}
	printf("peer_check: %d GPUs, %d of %d ways with peer access: every word is right\n", n_devices, n_wired,
	       n_devices * (n_devices - 1));
	return 0;
}
