/*
 * heap_share_test.c: whether a block can be shared with other processes is a question of the memory that it has now, not
 * of what it had before something moved.
 */
#include "shim/heap/migration.h"
#include "test/core/core.h"

#define PIECE (4 * MIB)

static struct core_heap own;

static struct heap_grant get(void)
{
	struct heap_grant grant;

	assert_ok(heap_alloc(own.heap, PIECE, CHUNK_MOVABLE, HEAP_DEVICE, &grant));
	return grant;
}

static void give(const struct heap_grant *grant)
{
	heap_free(own.heap, grant->block, grant->address);
	assert_true(heap_is_valid(own.heap));
}

static enum sw_status share(const struct heap_grant *grant)
{
	uint64_t offset;

	assert_true(heap_pin(own.heap, grant->address, 1));
	return heap_share_begin(own.heap, grant->address, &offset);
}

/* The one that has left has the host's memory, the one that is made afterwards the memory that the first one had. */
static void who_can_be_shared(bool host_can)
{
	core_heap_open_shared(&own, PIECE, 64 * MIB, 64 * MIB);
	struct heap_grant first = get();
	if (!host_can)
		sim_fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, PIECE / HEAP_UNIT));
	assert_true(core_leaves(&own, first.address));
	assert_int_equal(sim_where(first.address), 'H');
	struct heap_grant second = get();
	assert_int_equal(sim_where(second.address), 'D');
	assert_int_equal(share(&first), host_can ? SW_OK : SW_NOT_SUPPORTED);
	assert_int_equal(share(&second), SW_OK);
	give(&first);
	give(&second);
	core_heap_close(&own);
}

static void what_has_moved_can_be_shared(void **state)
{
	(void)state;
	who_can_be_shared(true);
}

static void a_host_that_cannot_share_keeps_nobody_else_from_it(void **state)
{
	(void)state;
	who_can_be_shared(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_has_moved_can_be_shared),
	    cmocka_unit_test(a_host_that_cannot_share_keeps_nobody_else_from_it),
	};

	core_driver();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
