/*
 * A caching allocator with expandable segments (fake_torch.h) and vmm.spill: move. Each part in a process of its own,
 * beside a job that needs twice its budget.
 */
#include "test/preload/torch_help.h"

#include <stdio.h>
#include <string.h>

#define HANDLE ((size_t)4 * MIB)

static void expandable_run(int (*part)(void))
{
	char set[300];

	folder_clear();
	snprintf(set, sizeof(set), "%s,vmm.spill=move", scene_set());
	const char *const settings[] = {
	    "SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_MAP_WAITS=3", runtime, set, NULL};
	assert_int_equal(child_run(settings, part), 0);
}

static void begin(void)
{
	torch_begin(true);
	torch->expand(torch_cache, HANDLE);
}

/* Of a handle, behind which nothing is mapped, only the last bytes are alive. */
static int last_bytes(void)
{
	begin();
	CUstream stream = child_stream();
	struct tensor first = tensor_new(MIB, stream), second = tensor_new(MIB - FAKE_TORCH_UNIT, stream),
		      last = tensor_new(FAKE_TORCH_UNIT, stream), other;

	CHECK(first.at % (2 * MIB) == 0 && last.at + last.bytes == first.at + 2 * MIB);
	tensor_free(&first);
	tensor_free(&second);
	for (unsigned i = 0; i < 20; i++) {
		tensor_fill(&last, stream);
		/* This thread has submitted, and reports again: the deaths count. */
		other = tensor_new(1000, stream);
		tensor_free(&other);
		MUST(cu.cuStreamSynchronize(stream));
		torch_evict();
		CHECK(tensor_holds(&last));
	}
	return own_end();
}

static void a_handle_moves_of_which_only_the_end_is_alive(void **state)
{
	(void)state;
	expandable_run(last_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_handle_moves_of_which_only_the_end_is_alive, folder_make, folder_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
