// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels that may overlap by programmatic dependent launch: they do, on a stream and in a graph, until something has
 * spilled; what the policy says otherwise; and graphs that exist by then keep their edges. The simulated GPU does such
 * a kernel before its predecessor wherever both are queued.
 */
#include "test/preload/figures_help.h"
#include "test/preload/scene.h"
#include "test/test.h"

static struct scene scene;
static CUstream stream;
static unsigned *word;

static CUresult store(unsigned value, bool overlaps)
{
	CUdeviceptr at = (CUdeviceptr)word;
	void *args[] = {&at, &value};
	CUlaunchAttribute given[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY},
				      {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION}};
	CUlaunchAttribute before[2];
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, given, overlaps ? 2 : 1};

	given[1].value.programmaticStreamSerializationAllowed = 1;
	memcpy(before, given, sizeof(given));
	CUresult result = cuLaunchKernelEx(&config, scene.store, args, NULL);
	CHECK(!memcmp(before, given, sizeof(given)) && config.attrs == given);
	return result;
}

/* Two kernels store into one word: which of them was last? */
static unsigned last_of_two(void)
{
	sim_hold();
	MUST(store(1, false));
	MUST(store(2, true));
	sim_release();
	MUST(cu.cuStreamSynchronize(stream));
	return *word;
}

static CUgraphExec capture(void)
{
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(store(1, false));
	MUST(store(2, true));
	return driver_captured(stream);
}

static unsigned last_of_graph(CUgraphExec exec)
{
	MUST(cu.cuGraphLaunch(exec, stream));
	MUST(cu.cuStreamSynchronize(stream));
	return *word;
}

enum { IN_ORDER = 2, OVERLAPPED = 1 };

static void be(unsigned before, unsigned after)
{
	scene_load(&scene, 0);
	stream = child_stream();
	word = scene_word();
	MUST(cu.cuMemFree_v2(child_alloc(MIB))); /* the process is served from its first allocation on */
	CHECK(last_of_two() == before);
	CUgraphExec early = capture();
	CHECK(last_of_graph(early) == before);
	uint64_t graphs = page_there()->counter[STAT_pdl_graphs];
	CHECK(graphs == (before == OVERLAPPED));

	scene_allocate(&scene); /* more than the budget */
	CHECK(page_there()->counter[STAT_spilled_bytes] > 0);
	CHECK(last_of_two() == after);
	CUgraphExec late = capture();
	CHECK(last_of_graph(late) == after);
	CHECK(last_of_graph(early) == before);
	CHECK(page_there()->counter[STAT_pdl_graphs] == graphs + (after == OVERLAPPED));
	CHECK((page_there()->counter[STAT_pdl_cleared] > 0) == (after == IN_ORDER));
	MUST(cu.cuGraphExecDestroy(early));
	MUST(cu.cuGraphExecDestroy(late));
	CHECK(sim_broken_rules() == 0);
}

static int run(const char *more, void (*program)(void))
{
	char set[240];

	snprintf(set, sizeof(set), "%s%s", scene_set(), more);
	return child_run(
	    (const char *const[]){"SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", runtime, set, NULL},
	    program);
}

static void by_default(void)
{
	be(OVERLAPPED, IN_ORDER);
}

PART_TEST(they_overlap_as_ever_where_the_policy_keeps_it, assert_int_equal(run(",submit.pdl=keep", part), 0))
{
	be(OVERLAPPED, OVERLAPPED);
}

static void off(void)
{
	be(IN_ORDER, IN_ORDER);
}

TEST(kernels_overlap_until_something_has_spilled)
{
	assert_int_equal(run("", by_default), 0);
}

TEST(that_is_what_auto_says)
{
	assert_int_equal(run(",submit.pdl=auto", by_default), 0);
}

TEST(they_never_overlap_where_it_is_off)
{
	assert_int_equal(run(",submit.pdl=off", off), 0);
}

EACH_TEST(folder_make, folder_remove)
