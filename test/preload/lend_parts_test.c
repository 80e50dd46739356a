/*
 * lend_parts_test.c: copies in parts, and whole to a device that lends. What is copied how follows from speeds that the
 * library measures.
 */
#include "test/preload/child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LARGE = 3, ROUNDS = 12 };
#define LARGE_BYTES (64 * MIB)

/*
 * Half of what a program goes through again and again lies elsewhere. A piece that moves is one copy each way, or several
 * with as many small ones between them where changes of mappings would wait for the whole of it; and it is mapped once.
 */
static double copies_of_a_piece(void)
{
	CUdeviceptr blocks[LARGE];
	unsigned long copies = 0, maps = 0;

	driver_start(0);
	for (unsigned i = 0; i < LARGE; i++)
		blocks[i] = child_alloc(LARGE_BYTES);
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (round == ROUNDS / 2) {
			copies = sim_calls("cuMemcpyDtoDAsync_v2");
			maps = sim_calls("cuMemMap");
		}
		for (unsigned i = 0; i < LARGE; i++)
			MUST(cu.cuMemsetD8Async(blocks[i], (unsigned char)round, LARGE_BYTES, NULL));
		MUST(cu.cuCtxSynchronize());
	}
	copies = sim_calls("cuMemcpyDtoDAsync_v2") - copies;
	maps = sim_calls("cuMemMap") - maps;
	CHECK(maps >= 4);
	CHECK(sim_broken_rules() == 0);
	return (double)copies / (double)maps;
}

static int in_parts(void)
{
	CHECK(copies_of_a_piece() > 2);
	return 0;
}

static int whole(void)
{
	CHECK(copies_of_a_piece() < 2);
	return 0;
}

#define MOVING                                                                                                         \
	"SIM_MEMORY=640MiB", "SIM_HOST_MEMORY=1GiB", "SIM_DEVICES=2", "SIM_FILL=0",                                    \
	    "SPILLWAY_SET=spill.mode=exact,heap.chunk=64MiB,device.budget=128MiB,host.budget=256MiB"

/*
 * What the library measures of a link is off where something else takes the machine's time meanwhile: then it divides
 * copies otherwise, rightly so. One of several processes in a row must have seen the link as it is.
 */
static bool holds_in_one_of_several(const char *const *settings, int (*program)(void))
{
	for (int i = 0; i < 5; i++)
		if (child_run(settings, program) == 0)
			return true;
	return false;
}

/* Which copies those are differs between machines, and between links of one. */
static void what_changes_of_mappings_wait_for_is_copied_in_parts(void **state)
{
	(void)state;
	assert_true(holds_in_one_of_several(((const char *const[]){"SIM_MAP_WAITS=1", MOVING, NULL}), in_parts));
	assert_true(holds_in_one_of_several(((const char *const[]){"SIM_MAP_WAITS=2", MOVING, NULL}), in_parts));
	assert_true(holds_in_one_of_several(
	    ((const char *const[]){"SIM_MAP_WAITS=3", MOVING ",spill.peers=1", NULL}), whole));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_changes_of_mappings_wait_for_is_copied_in_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
