// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that other devices lend (spill.peers), as a program sees it: where its blocks are and how much there is.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "test/preload/slow_clock.h"
#include "test/test.h"

#include <dlfcn.h>

#define DEVICES "SIM_MEMORY=128MiB", "SIM_DEVICES=4", "SPILLWAY_POLICY=" LEND_POLICY
#define BUDGETS "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,spill.mode=static"

static struct spillway_place own_place(CUdeviceptr block)
{
	__typeof__(&spillway_where) where = (__typeof__(where))dlsym(RTLD_DEFAULT, "spillway_where");
	struct spillway_place place;

	CHECK(where && where((const void *)(uintptr_t)block, &place) == 0);
	return place;
}

CHILD_TEST(blocks_lie_on_devices_that_lend, ((const char *const[]){DEVICES, BUDGETS, NULL}))
{
	size_t free, total, by_device;

	driver_start(0);
	MUST(cu.cuMemGetInfo_v2(&free, &total));
	CUdeviceptr striped = child_alloc(24 * MIB), plain = child_alloc(32 * MIB);
	struct spillway_place place = own_place(striped);
	CHECK(place.bytes_on_device == 8 * MIB && place.bytes_on_host == 16 * MIB && !place.movable);
	place = own_place(plain);
	CHECK(place.bytes_on_device == 24 * MIB && place.bytes_on_host == 8 * MIB);
	CHECK(sim_live().host_bytes == 0);

	/* 32 MiB here, 64 on the host, and 16 on each of the others. */
	MUST(cu.cuMemGetInfo_v2(&free, &total));
	CHECK(total == (32 + 64 + 3 * 16) * MIB && free == total - 56 * MIB);
	MUST(cu.cuDeviceTotalMem_v2(&by_device, 0));
	CHECK(by_device == total);

	CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, striped + 20 * MIB) == 0);
	MUST(driver_fill(NULL, striped, 1, 6 * MIB));
	MUST(driver_copy(NULL, plain, striped, 6 * MIB));
	MUST(cu.cuCtxSynchronize());
	CHECK(driver_holds(plain, 1, 6 * MIB));
	MUST(cu.cuMemFree_v2(striped));
	MUST(cu.cuMemFree_v2(plain));
}

/* Device 3 has no heap and nobody has asked for one; what lends to it is what would. */
CHILD_TEST(the_total_is_the_same_by_device_as_by_context, ((const char *const[]){DEVICES, BUDGETS, NULL}))
{
	size_t free, total, by_device[2];
	CUdevice device[2];

	driver_start(3);
	for (int i = 0; i < 2; i++) {
		MUST(cu.cuDeviceGet(&device[i], 3 * i));
		MUST(cu.cuDeviceTotalMem_v2(&by_device[i], device[i]));
	}
	CHECK(by_device[0] == (32 + 64 + 3 * 16) * MIB && by_device[1] == (32 + 64 + 2 * 16) * MIB);
	for (int i = 0; i < 2; i++) {
		driver_start(device[i]);
		MUST(cu.cuMemGetInfo_v2(&free, &total));
		CHECK(total == by_device[i]);
	}
}

/* ---- whose it is ---- */

/* Half of so small a device is the heaps'. */
#define EACH(more) "SPILLWAY_SET=host.budget=128MiB,report.summary=no," more

static size_t on_own_device(CUdeviceptr block)
{
	return own_place(block).bytes_on_device / MIB;
}

CHILD_TEST(what_a_device_lends_does_not_come_off_its_own_budget,
	   ((const char *const[]){
	       "SIM_MEMORY=256MiB", "SIM_DEVICES=3",
	       EACH("spill.peers=0 .. 2,device.budget=32MiB,spill.mode=static,spill.peer_budget=40MiB"), NULL}))
{
	driver_start(1);
	CUdeviceptr first = child_alloc(72 * MIB);
	CHECK(on_own_device(first) == 32 && sim_live().device_bytes == 72 * MIB);
	/* Device 0 has lent all it may; what is next is device 2. */
	CUdeviceptr more = child_alloc(8 * MIB);
	CHECK(on_own_device(more) == 0 && sim_live().host_bytes == 0);
	driver_start(0);
	CUdeviceptr own = child_alloc(32 * MIB);
	CHECK(on_own_device(own) == 32);
}

/* Its budget is all that heaps may take of it. */
#define LENT(peers, mode)                                                                                              \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=128MiB", "SIM_DEVICES=2",                                                                      \
	    EACH("spill.peers=" peers ",device.budget=64MiB,spill.mode=" mode ",spill.peer_budget=64MiB"), NULL})

CHILD_TEST(no_more_is_lent_of_a_budget_than_its_owner_leaves, LENT("0 .. 1", "static"))
{
	driver_start(0);
	CUdeviceptr own = child_alloc(48 * MIB);
	driver_start(1);
	CUdeviceptr borrowed = child_alloc(96 * MIB);
	CHECK(on_own_device(own) == 48 && on_own_device(borrowed) == 64);
	CHECK(sim_live().device_bytes == 128 * MIB && sim_live().host_bytes == 16 * MIB);
	/* What is not used goes back when the lender needs it, even what others keep for their next block. */
	MUST(cu.cuMemFree_v2(borrowed));
	driver_start(0);
	CUdeviceptr more = child_alloc(16 * MIB);
	CHECK(on_own_device(more) == 16);
}

/* The same for what comes in: nothing has to leave for it. */
CHILD_TEST(what_is_lent_comes_back_for_what_its_owner_brings_in, LENT("0 .. 1", "exact"))
{
	CUdeviceptr own[4];

	driver_start(1);
	CUdeviceptr borrowed = child_alloc(64 * MIB), lent = child_alloc(16 * MIB);
	CHECK(on_own_device(borrowed) == 64 && on_own_device(lent) == 0);
	CUcontext other = driver_current();
	driver_start(0);
	CUcontext here = driver_current();
	for (unsigned i = 0; i < 4; i++) {
		own[i] = child_alloc(16 * MIB);
		CHECK(on_own_device(own[i]) == (i < 3 ? 16 : 0));
	}
	MUST(driver_fill(NULL, own[3], 1, 4 * MIB));
	MUST(cu.cuCtxSynchronize());
	CHECK(on_own_device(own[0]) + on_own_device(own[1]) + on_own_device(own[2]) + on_own_device(own[3]) == 48);
	MUST(cu.cuCtxSetCurrent(other));
	MUST(cu.cuMemFree_v2(lent));
	MUST(cu.cuCtxSetCurrent(here));
	for (unsigned i = 0; i < 400; i++) {
		MUST(driver_fill(NULL, own[i % 4], i % 4, 4 * MIB));
		MUST(cu.cuCtxSynchronize());
	}
	for (unsigned i = 0; i < 4; i++)
		CHECK(on_own_device(own[i]) == 16 && driver_holds(own[i], i, 4 * MIB));
}

/* Nobody has said how much: half of its budget stays its own, whoever borrows. */
CHILD_TEST(half_of_a_budget_stays_its_owners_where_nobody_says_how_much,
	   ((const char *const[]){"SIM_MEMORY=128MiB", "SIM_DEVICES=3",
				  EACH("spill.peers=0 .. 2,device.budget=64MiB,spill.mode=static"), NULL}))
{
	driver_start(1);
	CUdeviceptr first = child_alloc(96 * MIB);
	CHECK(on_own_device(first) == 64 && sim_live().device_bytes == 96 * MIB);
	driver_start(2);
	CUdeviceptr second = child_alloc(80 * MIB);
	CHECK(on_own_device(second) == 64 && sim_live().host_bytes == 16 * MIB);
	driver_start(0);
	CUdeviceptr own = child_alloc(32 * MIB);
	CHECK(on_own_device(own) == 32);
}

/* ---- what the lender needs itself ---- */

enum { OWN = 4, BORROWED = 8 };
#define EACH_BYTES (16 * MIB)
#define WORDS      (EACH_BYTES / 4)

static CUdeviceptr borrowed[BORROWED];

/* Device 1 has half of it in its own memory, and half in all that device 0 may have. */
static void borrow_everything(void)
{
	driver_start(1);
	for (unsigned i = 0; i < BORROWED; i++) {
		borrowed[i] = child_alloc(EACH_BYTES);
		MUST(driver_fill(NULL, borrowed[i], 100 + i, WORDS));
	}
	MUST(cu.cuCtxSynchronize());
}

static bool are_right(const CUdeviceptr *blocks, unsigned n, unsigned first)
{
	for (unsigned i = 0; i < n; i++)
		if (!driver_holds(blocks[i], first + i, WORDS))
			return false;
	return true;
}

static size_t all_on_own_device(const CUdeviceptr *blocks, unsigned n)
{
	size_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += on_own_device(blocks[i]);
	return sum;
}

/* What others have had before the device began has to leave. */
PART_TEST(what_a_device_needs_itself_comes_back, child_passes(LENT("0 .. 1", "exact"), part);
	  child_passes(LENT("0 .. 1", "fast"), part))
{
	CUdeviceptr own[OWN];
	unsigned n_there = 0;

	borrow_everything();
	CHECK(all_on_own_device(borrowed, BORROWED) == 64 && sim_live().host_bytes == 0);
	driver_start(0);
	for (unsigned i = 0; i < OWN; i++)
		own[i] = child_alloc(EACH_BYTES);
	CHECK(all_on_own_device(own, OWN) == 0);
	/* Blocks are looked at one after another: what was there may leave while the next is looked at. Hence twice. */
	while (n_there < 2) {
		for (unsigned i = 0; i < OWN; i++)
			MUST(driver_fill(NULL, own[i], i, WORDS));
		MUST(cu.cuCtxSynchronize());
		n_there = all_on_own_device(own, OWN) == 64 ? n_there + 1 : 0;
	}
	CHECK(are_right(own, OWN, 0));
	driver_start(1);
	CHECK(all_on_own_device(borrowed, BORROWED) == 64);
	CHECK(are_right(borrowed, BORROWED, 100));
	/* And it stays its own. */
	for (unsigned i = 0; i < 10 * BORROWED; i++) {
		MUST(driver_fill(NULL, borrowed[i % BORROWED], i % BORROWED, WORDS));
		MUST(cu.cuCtxSynchronize());
	}
	CHECK(all_on_own_device(own, OWN) == 64);
	CHECK(are_right(borrowed, BORROWED, 0));
}

/*
 * The device has 128 MiB, and neither a heap nor a budget of its own has a part in it. Others have half a second to
 * begin giving back what they borrowed, and copies so much for each piece; a loaded machine needs longer
 * (slow_clock.h).
 */
PART_TEST(what_a_device_has_lent_makes_room_for_anybody_there, child_passes(LENT("0", "exact"), part);
	  child_passes(LENT("0", "fast"), part))
{
	CUmemGenericAllocationHandle handle;

	borrow_everything();
	CHECK(all_on_own_device(borrowed, BORROWED) == 64 && sim_live().host_bytes == 0);
	driver_start(0);
	slow_clock_begin();
	MUST(driver_create(&handle, 0, 96 * MIB));
	slow_clock_end();
	driver_start(1);
	CHECK(are_right(borrowed, BORROWED, 100));
	CHECK(sim_live().host_bytes >= 32 * MIB);
}

#define TIGHT(mode)                                                                                                    \
	((const char *const[]){"SIM_MEMORY=256MiB", "SIM_DEVICES=2",                                                   \
			       "SPILLWAY_SET=host.budget=4MiB,heap.chunk=4MiB,report.summary=no,spill.peers=0,"        \
			       "device.budget=32MiB,spill.mode=" mode,                                                 \
			       NULL})

/* The host has room for one of its four pieces. The others stay where they are. */
PART_TEST(what_is_wanted_on_the_host_takes_no_more_of_a_peer, child_passes(TIGHT("exact"), part);
	  child_passes(TIGHT("fast"), part))
{
	size_t most = 0;

	driver_start(1);
	CUdeviceptr own = child_alloc(32 * MIB), lent = child_alloc(16 * MIB);
	MUST(driver_fill(NULL, own, 1, 8 * MIB));
	MUST(driver_fill(NULL, lent, 2, 4 * MIB));
	MUST(cu.cuCtxSynchronize());
	CHECK(on_own_device(lent) == 0 && sim_live().device_bytes == 48 * MIB);
	CHECK(spillway_prefer_host((const void *)(uintptr_t)lent) == 0); /* NOLINT(performance-no-int-to-ptr) */
	for (unsigned i = 0; i < 100; i++) {
		MUST(driver_fill(NULL, own, 1, MIB));
		MUST(cu.cuCtxSynchronize());
		size_t now = sim_live().device_bytes;
		most = now > most ? now : most;
		usleep(1000);
	}
	CHECK(most <= 48 * MIB);
	CHECK(driver_holds(lent, 2, 4 * MIB) && driver_holds(own, 1, 8 * MIB));
}

/* ---- a device that other processes have a part of ---- */

/* What it lends is of this process's own part: the rest is theirs, though nobody is there yet. */
static void borrow_of_a_total(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(144 * MIB);
	CHECK(on_own_device(block) == 32);
	CHECK(sim_live().device_bytes <= (32 + 64) * MIB);
}

static void borrow_of_one_that_is_used(void)
{
	driver_start(1);
	MUST(cu.cuMemFree_v2(child_alloc(2 * MIB)));
	borrow_of_a_total();
}

TEST(no_more_is_lent_of_a_device_than_its_total)
{
	const char *const settings[] = {
	    "SIM_MEMORY=512MiB", "SIM_DEVICES=2", runtime,
	    EACH("spill.peers=0 .. 1,device.total=64MiB,device.budget=32MiB,spill.mode=static"), NULL};

	assert_int_equal(child_run(settings, borrow_of_a_total), 0);
	assert_int_equal(child_run(settings, borrow_of_one_that_is_used), 0);
}

EACH_TEST(folder_make, folder_remove)
