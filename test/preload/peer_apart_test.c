// SPDX-License-Identifier: Apache-2.0
/*
 * What one GPU runs does not keep the memory of another one where it is, unless it can touch it: a GPU that was given
 * access, a copy that names it, a graph, whose nodes may lie on any GPU. Two GPUs; a job on the first one needs twice
 * its budget (scene.h), the second one is busy for as long as the test likes. Each part in a process of its own
 * (child.h).
 */
#include "test/preload/scene.h"
#include "test/test.h"

#include <stdatomic.h>

enum { MAIN = 0, FAR = 3 }; /* lanes */
enum { MOVES = 8, STILL_MS = 400, DEADLINE_MS = 20000, OPENINGS = 10, CHASES = 200 };

static struct scene scene, far;
static CUstream stream; /* of the other GPU */

/* ---- a kernel that finds the blocks in memory, where no launch names them ---- */

static atomic_bool starts, stops;
static atomic_uint n_chases;

static void chase_body(const struct sim_launch *launch, void **args)
{
	while (!atomic_load(&starts))
		;
	while (!atomic_load(&stops)) {
		for (unsigned i = 0; i < SCENE_BLOCKS; i++)
			for (size_t at = FAR; at < SCENE_BYTES / 4; at += SCENE_STRIDE)
				((unsigned *)sim_pointer(scene.block[i]))[at]++;
		atomic_fetch_add(&n_chases, 1);
	}
}

SIM_MODULE(image, SIM_KERNEL("chase", chase_body, 8));

static void chase(void)
{
	CUdeviceptr nothing = 0;
	void *args[] = {&nothing};
	CUfunction function = driver_function(&image, "chase");

	MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

/* The kernel ends, and what it did is counted. */
static void chase_end(void)
{
	atomic_store(&stops, true);
	MUST(cu.cuStreamSynchronize(stream));
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		scene.count[i][FAR] = atomic_load(&n_chases);
}

/* ---- both GPUs ---- */

static unsigned long moves(void)
{
	return sim_calls("cuMemcpyDtoDAsync_v2");
}

/* The first GPU's job moves memory; the other's context is current, with a stream and a block of its own. */
static void open_both(void)
{
	scene_load(&far, 1);
	far.block[0] = child_alloc(SCENE_BYTES);
	MUST(cu.cuMemsetD32_v2(far.block[0], 0, SCENE_BYTES / 4));
	stream = child_stream();
	scene_open_warm(&scene);
	MUST(cu.cuCtxSetCurrent(far.context));
}

static void one_round(void)
{
	MUST(cu.cuCtxSetCurrent(scene.context));
	MUST(scene_round(&scene, NULL, MAIN));
	MUST(cu.cuStreamSynchronize(NULL));
	MUST(cu.cuCtxSetCurrent(far.context));
}

static bool goes_on_moving(void)
{
	unsigned long before = moves();
	uint64_t until = test_now() / 1000000 + DEADLINE_MS;

	while (scene_moves() && moves() - before < MOVES && test_now() / 1000000 < until)
		one_round();
	return !scene_moves() || moves() - before >= MOVES;
}

static bool stands_still(void)
{
	unsigned long before = moves();
	uint64_t until = test_now() / 1000000 + STILL_MS;

	while (test_now() / 1000000 < until)
		one_round();
	return moves() == before;
}

static void close_both(void)
{
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuStreamDestroy_v2(stream));
	MUST(cu.cuCtxSetCurrent(scene.context));
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	scene_close(&scene);
}

CHILD_FRAME(open_both, close_both)

/* ---- what cannot touch it ---- */

PART_TEST(memory_moves_beside_what_another_gpu_runs,
	  assert_int_equal(child_run(SCENE_SETTINGS("SIM_DEVICES=2"), part), 0);
	  assert_int_equal(child_run(SCENE_SETTINGS("SIM_DEVICES=2", "SIM_PEERS=none"), part), 0))
{
	unsigned *word = scene_word();
	MUST(scene_spin(&far, stream, (CUdeviceptr)word, 1, 0, MAIN));
	CHECK(goes_on_moving());
	child_release(word);
	CHECK(goes_on_moving());
}

/* Behind the kernel, until it has ended. */
static void *a_copy(void *word)
{
	unsigned one;

	MUST(cu.cuCtxSetCurrent(far.context));
	MUST(cu.cuMemcpyDtoH_v2(&one, far.block[0], sizeof(one)));
	return word;
}

CHILD_TEST(memory_moves_beside_who_is_inside_the_driver_for_another_gpu, SCENE_SETTINGS("SIM_DEVICES=2"))
{
	unsigned *word = scene_word();
	MUST(scene_spin(&far, NULL, (CUdeviceptr)word, 1, 0, MAIN));
	unsigned long before = sim_calls("cuMemcpyDtoH_v2");
	pthread_t thread = test_thread(a_copy, NULL);
	UNTIL(sim_calls("cuMemcpyDtoH_v2") != before);
	CHECK(goes_on_moving());
	child_release(word);
	pthread_join(thread, NULL);
	CHECK(goes_on_moving());
}

/* ---- what can ---- */

static bool is_exact(void)
{
	return !strcmp(scene_mode(), "exact");
}

/* To the device, where it may move. Where it is. */
static char bring(CUdeviceptr block)
{
	MUST(cu.cuCtxSetCurrent(scene.context));
	for (int i = 0; i < 1000 && sim_where(block) != 'D'; i++) {
		MUST(cu.cuMemsetD32_v2(block, 1, 2 * MIB / 4));
		MUST(cu.cuStreamSynchronize(NULL));
	}
	MUST(cu.cuCtxSetCurrent(far.context));
	return sim_where(block);
}

CHILD_TEST(a_copy_that_names_it_is_waited_for, SCENE_SETTINGS("SIM_DEVICES=2", "SIM_PEERS=none"))
{
	MUST(cu.cuCtxSetCurrent(scene.context));
	CUdeviceptr to = child_alloc(2 * MIB);
	MUST(cu.cuMemsetD32_v2(to, 1, 2 * MIB / 4));
	CHECK(goes_on_moving());
	MUST(cu.cuCtxSetCurrent(far.context));
	MUST(cu.cuMemsetD32_v2(far.block[0], 7, 2 * MIB / 4));
	unsigned *word = child_hold(stream);
	char where = bring(to);
	MUST(cuMemcpyPeerAsync(to, scene.context, far.block[0], far.context, 2 * MIB, stream));
	if (is_exact())
		CHECK(stands_still());
	else
		(void)stands_still();
	CHECK(sim_where(to) == where);
	child_release(word);
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(goes_on_moving());
	MUST(cu.cuCtxSetCurrent(scene.context));
	CHECK(driver_holds(to, 7, 2 * MIB / 4));
	MUST(cu.cuMemFree_v2(to));
}

CHILD_TEST(a_graph_of_another_gpu_is_waited_for, SCENE_SETTINGS("SIM_DEVICES=2"))
{
	CUgraph graph;

	unsigned *word = scene_word();
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(scene_spin(&far, stream, (CUdeviceptr)word, 1, 0, MAIN));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	CUgraphExec exec = driver_instance(graph);
	CHECK(goes_on_moving());
	MUST(cu.cuGraphLaunch(exec, stream));
	if (is_exact())
		CHECK(stands_still());
	child_release(word);
	CHECK(goes_on_moving());
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
}

/* In `fast` such a kernel may stop the job (spillway-limits(7)). */
PART_TEST(what_a_gpu_with_access_runs_is_waited_for,
	  if (is_exact()) assert_int_equal(child_run(SCENE_SETTINGS("SIM_DEVICES=2"), part), 0))
{
	MUST(cuCtxEnablePeerAccess(scene.context, 0));
	CHECK(goes_on_moving());
	atomic_store(&starts, true);
	chase();
	CHECK(stands_still());
	chase_end();
	CHECK(goes_on_moving());
}

/* ---- what can from now on ---- */

static atomic_bool rounds_end;

static void *rounds(void *unused)
{
	MUST(cu.cuCtxSetCurrent(scene.context));
	while (!atomic_load(&rounds_end)) {
		MUST(scene_round(&scene, NULL, MAIN));
		MUST(cu.cuStreamSynchronize(NULL));
	}
	return unused;
}

/* What runs already on the other GPU writes as soon as it may. */
static void access_that_is_opened(void)
{
	chase();
	pthread_t thread = test_thread(rounds, NULL);
	for (unsigned long before = moves(); moves() - before < MOVES;)
		sched_yield();
	MUST(cuCtxEnablePeerAccess(scene.context, 0));
	atomic_store(&starts, true);
	UNTIL(atomic_load(&n_chases) >= CHASES);
	chase_end();
	atomic_store(&rounds_end, true);
	pthread_join(thread, NULL);
	CHECK(goes_on_moving());
}

TEST(access_is_opened_when_nothing_moves)
{
	for (int i = 0; is_exact() && i < OPENINGS; i++)
		assert_int_equal(child_run(SCENE_SETTINGS("SIM_DEVICES=2"), access_that_is_opened), 0);
}

START(scene_size = SCENE_SMALL)
