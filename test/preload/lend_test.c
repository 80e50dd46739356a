/*
 * Memory that other devices lend (spill.peers), as a program sees it: where its blocks are and how much there is.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES "SIM_MEMORY=128MiB", "SIM_DEVICES=4", "SPILLWAY_POLICY=" LEND_POLICY
#define BUDGETS "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,spill.mode=static"

static struct spillway_place own_place(CUdeviceptr block)
{
	__typeof__(&spillway_where) where = (__typeof__(where))dlsym(RTLD_DEFAULT, "spillway_where");
	struct spillway_place place;

	CHECK(where && where((const void *)(uintptr_t)block, &place) == 0);
	return place;
}

static int lies_elsewhere(void)
{
	size_t free, total;

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

	int ordinal = -1;
	MUST(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, striped + 20 * MIB));
	CHECK(ordinal == 0);
	MUST(driver_fill(NULL, striped, 1, 6 * MIB));
	MUST(driver_copy(NULL, plain, striped, 6 * MIB));
	MUST(cu.cuCtxSynchronize());
	CHECK(driver_holds(plain, 1, 6 * MIB));
	MUST(cu.cuMemFree_v2(striped));
	MUST(cu.cuMemFree_v2(plain));
	CHECK(sim_broken_rules() == 0);
	return 0;
}

static void blocks_lie_on_devices_that_lend(void **state)
{
	(void)state;
	assert_int_equal(child_run(((const char *const[]){DEVICES, BUDGETS, NULL}), lies_elsewhere), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(blocks_lie_on_devices_that_lend),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
