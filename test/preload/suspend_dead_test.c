// SPDX-License-Identifier: Apache-2.0
/*
 * A program whose allocator reports births and deaths of tensors (fake_torch.h) is suspended before anything has
 * spilled: nobody has seen what its submissions name. What is alive is as it was afterwards, and what is dead is not
 * copied. Each figure is exact.
 */
#include "test/preload/torch_help.h"

CHILD_FRAME(torch_begin, NULL)

static void resume(void)
{
	CHECK(spillway_resume() == 0);
}

/* Suspends. Returns how many bytes of what left were not copied. */
static uint64_t suspend_dead(uint64_t out)
{
	uint64_t before = torch_bytes_out(), dead = torch_dead_bytes();

	child_suspend();
	if (torch_bytes_out() - before != out)
		printf("%llu bytes left\n", (unsigned long long)(torch_bytes_out() - before));
	CHECK(torch_bytes_out() - before == out);
	return torch_dead_bytes() - dead;
}

/* The library also has a word of host memory. */
static size_t host_mib(void)
{
	return sim_live().host_bytes / MIB;
}

/* ---- deaths that count ---- */

static void dying_first(void)
{
	struct tensor whole = tensor_new(4 * MIB, NULL), alive = tensor_new(6 * MIB, NULL),
		      in_part = tensor_new(MIB / 2, NULL), beside = tensor_new(MIB / 2, NULL);

	tensor_fill(&whole, NULL);
	tensor_fill(&in_part, NULL);
	tensor_fill(&beside, NULL);
	tensor_free(&whole);
	tensor_free(&in_part);
	tensor_fill(&alive, NULL); /* the deaths count */
	CHECK(torch_bytes_out() == 0);
	/* And half of what small tensors share was never born. What is dead as a whole takes no memory of the host. */
	CHECK(suspend_dead(12 * MIB) == 4 * MIB + MIB / 2 + MIB);
	CHECK(sim_live().device_bytes == 0 && host_mib() == 8);
	resume();
	CHECK(tensor_holds(&alive) && tensor_holds(&beside));
	CHECK(child_on_device(whole.at, whole.bytes) && host_mib() == 8);
	/* Again, with new ones where the dead ones were. */
	whole = tensor_new(4 * MIB, NULL);
	in_part = tensor_new(MIB / 2, NULL);
	tensor_fill(&whole, NULL);
	tensor_fill(&in_part, NULL);
	child_suspend();
	resume();
	CHECK(tensor_holds(&whole) && tensor_holds(&in_part) && tensor_holds(&alive) && tensor_holds(&beside));
}

/* Many times, as a training job does: what lives for a part of a step is dead at its end. */
static void stepping(void)
{
	struct tensor kept, between[3];

	kept = tensor_new(2 * MIB, NULL);
	tensor_fill(&kept, NULL);
	for (unsigned step = 0; step < 8; step++) {
		for (unsigned i = 0; i < 3; i++) {
			between[i] = tensor_new(3 * MIB, NULL);
			tensor_fill(&between[i], NULL);
			tensor_copy_late(&between[i], &kept, 0, NULL);
		}
		for (unsigned i = 0; i < 3; i++)
			tensor_free(&between[i]);
		tensor_fill(&kept, NULL);
		MUST(cu.cuCtxSynchronize());
		if (step != 5)
			continue;
		uint64_t reserved = torch->reserved(torch_cache);
		CHECK(reserved == 16 * MIB && torch_bytes_out() == 0);
		CHECK(suspend_dead(reserved) == reserved - kept.bytes);
		resume();
		CHECK(tensor_holds(&kept));
	}
}

TEST(what_is_dead_when_a_program_is_first_suspended_is_not_copied)
{
	torch_run(dying_first);
	torch_run(stepping);
}

/* ---- pieces without memory ---- */

/* A tensor that is dead, in a segment of its own, and a small one that is alive; nothing has spilled. */
static struct tensor dead_one(size_t bytes, struct tensor *ret_alive)
{
	struct tensor tensor = tensor_new(bytes, NULL);
	*ret_alive = tensor_new(MIB, NULL);
	tensor_fill(&tensor, NULL);
	tensor_free(&tensor);
	tensor_fill(ret_alive, NULL);
	return tensor;
}

/* The address must lead to memory of its own. */
static void use_again(struct tensor *tensor, struct tensor *alive)
{
	CUdeviceptr at = tensor->at;

	*tensor = tensor_new(tensor->bytes, NULL);
	CHECK(tensor->at == at);
	tensor_fill(tensor, NULL);
	CHECK(tensor_holds(tensor) && tensor_holds(alive));
	child_suspend();
	resume();
	CHECK(tensor_holds(tensor) && tensor_holds(alive) && sim_broken_rules() == 0);
}

/* Others have the device when the program goes on. */
static void finding_the_device_full(void)
{
	struct tensor alive, dead = dead_one(6 * MIB, &alive);

	child_suspend();
	CHECK(host_mib() == 2);
	sim_switch("MEMORY", 2 * MIB);
	resume();
	CHECK(host_mib() == 8 && !child_on_device(dead.at, dead.bytes));
	sim_switch("MEMORY", 256 * MIB);
	use_again(&dead, &alive);
}

/* And the system pins no more: it stays suspended, until there is memory. */
static void finding_no_memory(void)
{
	struct tensor alive, dead = dead_one(6 * MIB, &alive);

	child_suspend();
	sim_switch("MEMORY", 2 * MIB);
	sim_switch("HOST_MEMORY", sim_live().host_bytes);
	for (unsigned i = 0; i < 3; i++)
		CHECK(spillway_resume() == -ENOMEM);
	CHECK(spillway_suspend() == 0);
	sim_switch("HOST_MEMORY", 512 * MIB);
	resume();
	use_again(&dead, &alive);
}

/* The host budget has room for what is alive, not for what is dead: nothing is suspended, and nothing is lost. */
static void having_no_host_budget(void)
{
	struct tensor alive, dead = dead_one(14 * MIB, &alive);

	CHECK(spillway_suspend() == -ENOMEM);
	CHECK(tensor_holds(&alive));
	struct tensor again = tensor_new(dead.bytes, NULL);
	CHECK(again.at == dead.at);
	tensor_fill(&again, NULL);
	CHECK(tensor_holds(&again) && tensor_holds(&alive));
}

/* The driver does not take back what it should: nothing is suspended. */
static void having_a_driver_that_takes_nothing(void)
{
	struct tensor alive, dead = dead_one(6 * MIB, &alive);

	child_refuse("cuMemRelease", 1000000);
	CHECK(spillway_suspend() == -EIO);
	child_refuse("cuMemRelease", 0);
	CHECK(tensor_holds(&alive));
	use_again(&dead, &alive);
}

static const char *call; /* that fails once */

/* Nor does it map what it has made for what was dead: it lies on the host then. */
static void having_a_driver_that_does_not_map(void)
{
	struct tensor alive, dead = dead_one(6 * MIB, &alive);

	child_suspend();
	usleep(50000); /* what is alive is mapped on the host */
	child_refuse(call, 1);
	resume();
	child_refuse(call, 0);
	use_again(&dead, &alive);
}

/* While it is suspended, a block without memory is pinned. */
static void pinning(void)
{
	struct tensor alive, dead = dead_one(6 * MIB, &alive), more = tensor_new(8 * MIB, NULL);

	tensor_fill(&more, NULL);
	tensor_free(&more);
	tensor_fill(&alive, NULL);
	child_suspend();
	CHECK(host_mib() == 2 && sim_live().device_bytes == 0);
	CHECK(spillway_pin(own_pointer(more.at)) == 0);
	/* What a thread waits for lies on the host, and nothing else of it. */
	CHECK(host_mib() == 10 && sim_live().device_bytes == 0);
	resume();
	CHECK(spillway_unpin(own_pointer(more.at)) == 0);
	use_again(&dead, &alive);
	tensor_free(&dead);
}

static void freeing(void)
{
	struct tensor alive, dead = dead_one(6 * MIB, &alive);

	child_suspend();
	CHECK(host_mib() == 2);
	torch->empty_cache(torch_cache);
	CHECK(sim_live().device_bytes == 0);
	/* Its address can be given out again. */
	CUdeviceptr at = child_alloc(6 * MIB);
	MUST(cu.cuMemFree_v2(at));
	resume();
	CHECK(tensor_holds(&alive));
	dead = tensor_new(6 * MIB, NULL);
	tensor_fill(&dead, NULL);
	CHECK(tensor_holds(&dead) && tensor_holds(&alive) && sim_broken_rules() == 0);
}

static struct tensor alive_at_end;
static unsigned long made;

/* Runs after the handler of the mover, as those of the driver. */
static void check_end(void)
{
	CHECK(sim_calls("cuMemCreate") == made && tensor_holds(&alive_at_end));
}

/* What is alive is there to the end; no memory is made for what is dead. */
static void ending(void)
{
	CHECK(atexit(check_end) == 0);
	torch_begin();
	dead_one(6 * MIB, &alive_at_end);
	child_suspend();
	made = sim_calls("cuMemCreate");
	exit(0);
}

static void run_with(const char *set, void (*part)(void))
{
	const char *const settings[] = {
	    "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_MAP_WAITS=3", set, runtime, NULL};

	folder_clear();
	assert_int_equal(child_run(settings, part), 0);
}

TEST(what_is_dead_has_no_memory_while_suspended_and_its_own_afterwards)
{
	char set[160];

	torch_run(finding_the_device_full);
	torch_run(finding_no_memory);
	torch_run(having_a_driver_that_takes_nothing);
	for (unsigned i = 0; i < 3; i++) {
		call = (const char *const[]){"cuMemMap", "cuMemSetAccess", "cuMemCreate"}[i];
		torch_run(having_a_driver_that_does_not_map);
	}
	torch_run(pinning);
	torch_run(freeing);
	torch_run_bare(ending);
	snprintf(set, sizeof(set), "SPILLWAY_SET=device.budget=32MiB,host.budget=8MiB,report.summary=no,spill.mode=%s",
		 scene_mode());
	run_with(set, having_no_host_budget);
}

/* ---- deaths that do not ---- */

/* The thread has submitted nothing since: it may be about to report the same memory alive. */
static void going_no_further(void)
{
	struct tensor first = tensor_new(4 * MIB, NULL), last = tensor_new(6 * MIB, NULL);

	tensor_fill(&first, NULL);
	tensor_fill(&last, NULL);
	tensor_free(&first);
	tensor_fill(&last, NULL);
	tensor_free(&last);
	MUST(cu.cuCtxSynchronize());
	CHECK(suspend_dead(10 * MIB) == 4 * MIB);
	resume();
	CHECK(tensor_holds(&last));
}

static void suspend_between(void)
{
	child_suspend();
	resume();
}

static CUcontext context;

static void *launch_and_suspend(void *unused)
{
	MUST(cu.cuCtxSetCurrent(context));
	struct tensor other = tensor_new(MIB, NULL);
	tensor_fill(&other, NULL);
	MUST(cu.cuCtxSynchronize());
	suspend_between();
	CHECK(tensor_holds(&other));
	tensor_free(&other);
	return NULL;
}

static CUdeviceptr other_memory;

static void *launch_only(void *unused)
{
	MUST(cu.cuCtxSetCurrent(context));
	words_fill(other_memory, 5, 256, NULL);
	MUST(cu.cuCtxSynchronize());
	suspend_between();
	return NULL;
}

static void launch_in_another_thread(void)
{
	test_beside(launch_only, NULL);
}

/* What a pool holds dies and is born again; the program is suspended in between. */
static void restore(void (*between)(void))
{
	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	struct tensor tensors[3];

	torch->use_pool(torch_cache, pool, false);
	for (unsigned i = 0; i < 3; i++) {
		tensors[i] = tensor_new((i + 1) * MIB, NULL);
		tensor_fill(&tensors[i], NULL);
	}
	torch->use_pool(torch_cache, 0, false);
	MUST(cu.cuCtxSynchronize());
	torch->checkpoint(torch_cache, pool, between);
	for (unsigned i = 0; i < 3; i++)
		CHECK(tensor_holds(&tensors[i]));
	suspend_between();
	for (unsigned i = 0; i < 3; i++) {
		CHECK(tensor_holds(&tensors[i]));
		tensor_free(&tensors[i]);
	}
	torch->drop_pool(torch_cache, pool);
	torch->empty_cache(torch_cache);
}

static void restoring(void)
{
	restore(suspend_between);
}

static void restoring_beside_another_thread(void)
{
	MUST(cu.cuCtxGetCurrent(&context));
	other_memory = child_alloc(4096);
	restore(launch_in_another_thread);
}

/* By a thread for which no place is left to count its submissions apart from those of others. */
static void *restore_in_another_thread(void *unused)
{
	MUST(cu.cuCtxSetCurrent(context));
	restore(launch_in_another_thread);
	return NULL;
}

static void restoring_as_one_of_many(void)
{
	MUST(cu.cuCtxGetCurrent(&context));
	other_memory = child_alloc(4096);
	for (unsigned i = 0; i < 40; i++) {
		struct tensor tensor = tensor_new(MIB, NULL);

		tensor_free(&tensor);
		if (i == 0 || i == 39)
			test_beside(launch_and_suspend, NULL);
		else
			test_beside(restore_in_another_thread, NULL);
	}
}

TEST(what_a_suspension_finds_half_restored_is_preserved)
{
	torch_run(going_no_further);
	torch_run(restoring);
	torch_run(restoring_beside_another_thread);
	torch_run(restoring_as_one_of_many);
}

/* ---- what submissions may still use ---- */

/* A kernel on a side stream reads a tensor that died after the launch, and is not done when the order comes. */
static void reading_late(void)
{
	CUstream side = child_stream();
	struct tensor from = tensor_new(4 * MIB, NULL), to = tensor_new(4 * MIB, side), small = tensor_new(1024, NULL);

	tensor_fill(&from, NULL);
	MUST(cu.cuCtxSynchronize());
	tensor_copy_late(&to, &from, 50000, side);
	torch->record_stream(torch_cache, from.at, side);
	tensor_free(&from);
	tensor_fill(&small, NULL);
	child_suspend();
	resume();
	MUST(cu.cuCtxSynchronize());
	CHECK(tensor_holds(&to) && tensor_holds(&small));
}

static struct tensor dead;
static _Atomic int submitting;

static void *name_the_dead(void *unused)
{
	MUST(cu.cuCtxSetCurrent(context));
	atomic_store(&submitting, 1);
	tensor_fill(&dead, NULL); /* waits until resume */
	atomic_store(&submitting, 2);
	return NULL;
}

/* A kernel that names what is dead comes while the program is suspended: what it writes is there afterwards. */
static void naming_the_dead(void)
{
	MUST(cu.cuCtxGetCurrent(&context));
	dead = tensor_new(4 * MIB, NULL);
	tensor_fill(&dead, NULL);
	tensor_free(&dead);
	struct tensor small = tensor_new(1024, NULL);
	tensor_fill(&small, NULL);
	child_suspend();
	pthread_t thread = test_thread(name_the_dead, NULL);
	UNTIL(atomic_load(&submitting));
	usleep(50000);
	CHECK(atomic_load(&submitting) == 1);
	resume();
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(tensor_holds(&dead) && tensor_holds(&small));
	suspend_between();
	CHECK(tensor_holds(&dead) && tensor_holds(&small));
}

/*
 * A graph's memory, which it writes through a pointer that nothing announces. early: it is born before the capture, and
 * the graph names another tensor of the same segment.
 */
static void replay(bool early)
{
	struct tensor inside, named;

	CUstream stream = child_stream();
	CUdeviceptr table = child_alloc(4096);
	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	for (int capturing = 0; capturing <= 1; capturing++) {
		if (capturing)
			torch_capture(stream, pool);
		else
			torch->use_pool(torch_cache, pool, false);
		if (capturing == early)
			continue;
		inside = tensor_new(2 * MIB, stream);
		named = tensor_new(2 * MIB, stream);
	}
	words_fill_hidden(table, 9, inside.bytes / 4, stream);
	words_fill(named.at, 8, 1, stream);
	if (!early)
		tensor_free(&inside);
	CUgraphExec exec = torch_end_capture(stream);
	if (early)
		tensor_free(&inside);
	MUST(cu.cuMemcpyHtoD_v2(table, &inside.at, sizeof(inside.at)));
	MUST(cu.cuGraphLaunch(exec, stream));
	struct tensor small = tensor_new(1024, stream);
	tensor_fill(&small, stream);
	suspend_between();
	CHECK(words_same(inside.at, 9, inside.bytes / 4) == inside.bytes / 4);
	MUST(cu.cuGraphExecDestroy(exec));
}

static void replaying(void)
{
	replay(false);
}

static void replaying_what_was_there_before(void)
{
	replay(true);
}

TEST(what_is_submitted_around_a_suspension_finds_and_leaves_what_it_should)
{
	torch_run(reading_late);
	torch_run(naming_the_dead);
	torch_run(replaying);
	torch_run(replaying_what_was_there_before);
}

EACH_TEST(folder_make, folder_remove)
