// SPDX-License-Identifier: Apache-2.0
/*
 * managed_touch_test.c: managed memory on the heap that the CPU touches between submissions (serve/touch.c), in all modes.
 * Each part in a process of its own.
 */
#include "shim/spillway.h"
#include "test/preload/managed_heap_help.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kernels ---- */

/* Adds one where the pointer that is stored there leads. */
static void follow_body(const struct sim_launch *launch, void **args)
{
	const uint64_t *head = *(const uint64_t **)args[0];

	(void)launch;
	++*(uint32_t *)sim_pointer(head[0]);
}

/* Fills 22 MiB there. */
static void fill_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = sim_pointer(**(const uint64_t **)args[0]);

	(void)launch;
	for (size_t i = 0; i < 22 * MIB / 4; i++)
		at[i] = 5;
}

static const struct sim_kernel fill_kernel = {"fill", fill_body, 1, one_pointer};
static const struct sim_module fill_module = {SIM_MODULE_MAGIC, 1, &fill_kernel};
static const struct sim_kernel follow_kernel = {"follow", follow_body, 1, one_pointer};
static const struct sim_module follow_module = {SIM_MODULE_MAGIC, 1, &follow_kernel};

/* ---- contents ---- */

PART_TEST(the_cpu_reads_and_writes_what_the_gpu_has_used, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(5 * MIB);

	words(a)[3] = 1;
	MUST(driver_fill(NULL, a + 4096, 7, 100));
	MUST(cu.cuCtxSynchronize());
	CHECK(words(a)[3] == 1 && words(a + 4096)[99] == 7 && words(a + 4096)[100] == 0);
	words(a)[3] = 2;
	words(a + 4 * MIB)[1] = 5;
	MUST(driver_fill(NULL, a + 8, 9, 1));
	CHECK(read_back(a + 8) == 9 && read_back(a + 12) == 2 && read_back(a + 4 * MIB + 4) == 5);
	CHECK(words(a)[2] == 9 && words(a)[3] == 2);
	CHECK(counted(STAT_managed_moved) == 1 && counted(STAT_managed_touches) > 3);
	CHECK(counted(STAT_managed_returned_bytes) > 0);
	end_of(a);
}

/* Nothing but the GPU's work is waited for. */
PART_TEST(a_word_is_read_after_each_step, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = used_by_gpu(5 * MIB, 0);
	CUfunction bump = driver_function(&bump_module, "bump");

	for (uint32_t i = 1; i <= 300; i++) {
		launch(bump, NULL, a);
		CHECK(*words(a) == i);
	}
	CHECK(counted(STAT_managed_touches) == 300 && counted(STAT_managed_returned_bytes) == 0);
	end_of(a);
}

/* Reads in a row bring more at a time. */
PART_TEST(all_of_it_is_read_in_large_parts, assert_int_equal(run(part), 0))
{
	enum { ALL = 32 };

	driver_start(0);
	CUdeviceptr a = driver_managed(ALL * MIB);
	MUST(driver_fill(NULL, a, 6, ALL * MIB / 4));
	for (size_t i = 0; i < ALL * MIB / 4; i++)
		CHECK(words(a)[i] == 6);
	CHECK(counted(STAT_managed_touches) < 3 * ALL && counted(STAT_managed_touched_bytes) == ALL * MIB);
	memset(words(a), 1, ALL * MIB);
	CHECK(counted(STAT_managed_touches) < 6 * ALL);
	CHECK(read_back(a) == 0x01010101 && read_back(a + ALL * MIB - 4) == 0x01010101);
	CHECK(counted(STAT_managed_returned_bytes) == ALL * MIB);
	end_of(a);
}

/* The GPU's memory of the other parts is taken when they are touched. */
PART_TEST(parts_without_memory_are_touched, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(40 * MIB);

	MUST(cu.cuMemsetD32_v2(a, 3, 4));
	words(a + 36 * MIB)[2] = 8;
	CHECK(words(a)[3] == 3 && words(a + 36 * MIB)[2] == 8);
	CHECK(read_back(a + 36 * MIB + 8) == 8 && read_back(a + 4) == 3);
	end_of(a);
}

PART_TEST(what_was_evicted_is_touched, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(24 * MIB);

	MUST(driver_fill(NULL, a, 2, 24 * MIB / 4));
	for (int round = 0; round < 4; round++) {
		CUdeviceptr large = child_alloc(56 * MIB);

		MUST(driver_fill(NULL, large, 1, 56 * MIB / 4));
		for (size_t i = 0; i < 24; i++) {
			CHECK(*words(a + i * MIB) == 2 + (uint32_t)round);
			*words(a + i * MIB) += 1;
		}
		MUST(cu.cuMemFree_v2(large));
		MUST(driver_fill(NULL, a + 4, 1, 1));
	}
	for (size_t i = 0; i < 24; i++)
		CHECK(read_back(a + i * MIB) == 6);
	end_of(a);
}

/* ---- what the GPU uses without a name ---- */

/* The table on the device was made when the GPU had the block. */
PART_TEST(what_a_table_on_the_device_leads_to_goes_back, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr table = child_alloc(4096), a = used_by_gpu(4096, 5);
	CUfunction follow = driver_function(&follow_module, "follow");
	uint64_t pointer = a;

	MUST(cu.cuMemcpyHtoD_v2(table, &pointer, sizeof(pointer)));
	for (uint32_t i = 0; i < 20; i++) {
		CHECK(*words(a) == 5 + 11 * i);
		*words(a) += 10;
		launch(follow, NULL, table);
	}
	MUST(cu.cuMemFree_v2(table));
	end_of(a);
}

/* What the CPU writes later is searched for pointers, too. */
PART_TEST(what_a_new_pointer_leads_to_goes_along, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = used_by_gpu(3 * MIB, 0), b = driver_managed(MIB);
	CUfunction follow = driver_function(&follow_module, "follow");

	*words(b) = 7;
	*(uint64_t *)words(a + 2 * MIB + 64) = b;
	launch(follow, NULL, a + 2 * MIB + 64);
	CHECK(*words(b) == 8 && counted(STAT_managed_moved) == 2);
	MUST(cu.cuMemFree_v2(b));
	end_of(a);
}

/* ---- beside what runs ---- */

static CUdeviceptr shared;
static atomic_bool over;

/* One word that only the CPU writes, and one that it reads, in one page. */
static void *touch_all_the_time(void *unused)
{
	uint32_t last = 0;

	while (!over) {
		uint32_t now = __atomic_load_n(&words(shared)[0], __ATOMIC_RELAXED);

		CHECK(now >= last);
		last = now;
		__atomic_add_fetch(&words(shared)[1], 1, __ATOMIC_RELAXED);
	}
	return unused;
}

PART_TEST(no_write_is_lost_of_either_side, assert_int_equal(run(part), 0))
{
	enum { STEPS = 500 };
	pthread_t thread;

	driver_start(0);
	CUfunction bump = driver_function(&bump_module, "bump");
	CUdeviceptr copy = child_alloc(4096);
	shared = used_by_gpu(MIB, 0);
	CHECK(!pthread_create(&thread, NULL, touch_all_the_time, NULL));
	for (uint32_t i = 0, last = 0; i < STEPS; i++) {
		launch(bump, NULL, shared);
		MUST(driver_copy(NULL, copy, shared + 4, 1));
		uint32_t now = read_back(copy);
		CHECK(now >= last && read_back(shared) == i + 1);
		last = now;
	}
	over = true;
	CHECK(!pthread_join(thread, NULL));
	CHECK(words(shared)[0] == STEPS && read_back(shared + 4) == words(shared)[1] && words(shared)[1] > 0);
	MUST(cu.cuMemFree_v2(copy));
	end_of(shared);
}

static volatile uint32_t n_written;

static void *write_words(void *unused)
{
	for (uint32_t i = 0; i < MIB / 4; i++) {
		words(shared)[i] = i + 1;
		n_written = i + 1;
	}
	return unused;
}

/* The writer waits, and goes on. */
PART_TEST(no_write_is_lost_beside_the_first_use, assert_int_equal(run(part), 0))
{
	static uint32_t back[MIB / 4];

	driver_start(0);
	for (int round = 0; round < 20; round++) {
		pthread_t thread;

		shared = driver_managed(MIB);
		n_written = 0;
		CHECK(!pthread_create(&thread, NULL, write_words, NULL));
		while (n_written < (uint32_t)round * 500)
			;
		uint32_t before = n_written;
		MUST(cu.cuMemcpyDtoH_v2(back, shared, MIB));
		for (uint32_t i = 0; i < before; i++)
			CHECK(back[i] == i + 1);
		pthread_join(thread, NULL);
		MUST(cu.cuMemcpyDtoH_v2(back, shared, MIB));
		for (uint32_t i = 0; i < MIB / 4; i++)
			CHECK(back[i] == i + 1);
		MUST(cu.cuMemFree_v2(shared));
	}
	end();
}

static CUcontext context;
static CUstream held;
static CUdeviceptr gate;

static void *touch_once(void *value)
{
	*(uint32_t *)value = *words(shared);
	return NULL;
}

/* The GPU waits for what this thread submits next, and the touch waits for the GPU. */
PART_TEST(a_touch_does_not_hold_what_the_gpu_waits_for, assert_int_equal(run(part), 0))
{
	uint32_t value = 0;
	pthread_t thread;

	context = driver_start(0);
	gate = child_alloc(4096);
	held = child_stream();
	CUstream stream = child_stream();
	shared = used_by_gpu(MIB, 4);
	MUST(cu.cuMemsetD32_v2(gate, 0, 1));
	MUST(cuStreamWaitValue32_v2(held, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
	MUST(driver_fill(held, shared, 9, 1));
	CHECK(!pthread_create(&thread, NULL, touch_once, &value));
	usleep(30000);
	MUST(cuStreamWriteValue32_v2(stream, gate, 1, 0));
	CHECK(!pthread_join(thread, NULL));
	CHECK(value == 9);
	MUST(cu.cuMemFree_v2(gate));
	end_of(shared);
}

static void *bump_once(void *function)
{
	MUST(cu.cuCtxSetCurrent(context));
	launch(function, NULL, shared);
	return NULL;
}

/* It has not submitted yet, and would not see the touch any more. */
PART_TEST(a_touch_waits_for_who_is_inside_the_driver, assert_int_equal(run(part), 0))
{
	uint32_t value = 77;
	pthread_t thread[2];

	context = driver_start(0);
	shared = used_by_gpu(MIB, 4);
	CUfunction bump = driver_function(&bump_module, "bump");
	launch(bump, NULL, shared);
	MUST(cu.cuCtxSynchronize());
	sim_stall_at("cuLaunchKernel", 1);
	CHECK(!pthread_create(&thread[0], NULL, bump_once, bump));
	while (!sim_stalled())
		sched_yield();
	CHECK(!pthread_create(&thread[1], NULL, touch_once, &value));
	usleep(30000);
	sim_go_on();
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(thread[i], NULL));
	CHECK(value == 6 && *words(shared) == 6);
	end_of(shared);
}

/* Another thread touches while this one captures n sets, with naps between. */
static void touch_beside_a_capture(int n, useconds_t nap)
{
	uint32_t value = 0;
	pthread_t thread;
	CUgraph graph;

	context = driver_start(0);
	CUstream stream = child_stream();
	CUdeviceptr other = child_alloc(4096);
	shared = used_by_gpu(MIB, 4);
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(!pthread_create(&thread, NULL, touch_once, &value));
	for (int i = 0; i < n; i++) {
		MUST(driver_fill(stream, other, 1, 1));
		usleep(nap);
	}
	MUST(cu.cuStreamEndCapture(stream, &graph));
	CHECK(!pthread_join(thread, NULL));
	CHECK(value == 4);
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuMemFree_v2(other));
	end_of(shared);
}

PART_TEST(a_touch_waits_for_the_end_of_a_capture, assert_int_equal(run(part), 0))
{
	touch_beside_a_capture(1, 30000);
}

/* It takes two seconds: the thread that captures is not held up. */
PART_TEST(a_capture_goes_on_beside_a_touch, assert_int_equal(run(part), 0))
{
	touch_beside_a_capture(2000, 1000);
}

/* ---- what was said to be dead ---- */

static void evict(void)
{
	CUdeviceptr large = child_alloc(56 * MIB);

	MUST(driver_fill(NULL, large, 1, 14 * MIB));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(large));
}

static void writes_what_was_dead(bool is_declared)
{
	static uint32_t back[24 * MIB / 4];
	const size_t bytes = sizeof(back);

	driver_start(0);
	CUdeviceptr keep = child_alloc(40 * MIB), a = used_by_gpu(bytes, 1);
	MUST(driver_fill(NULL, keep, 3, 10 * MIB));
	for (int i = 0; i < 3; i++)
		evict(); /* so that memory moves */
	MUST(driver_fill(NULL, a, 1, bytes / 4));
	MUST(cu.cuCtxSynchronize());
	if (is_declared)
		CHECK(!spillway_born(words(a), bytes));
	CHECK(!spillway_discard(words(a), bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		words(a)[i] = (uint32_t)i + 1;
	for (int i = 0; i < 4; i++)
		evict();
	MUST(cu.cuMemcpyDtoH_v2(back, a, bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		CHECK(back[i] == i + 1);
	MUST(cu.cuMemFree_v2(keep));
	end_of(a);
}

PART_TEST(what_the_cpu_writes_where_all_was_discarded_is_alive, assert_int_equal(run(part), 0))
{
	writes_what_was_dead(false);
}

PART_TEST(what_the_cpu_writes_where_all_has_died_is_alive, assert_int_equal(run(part), 0))
{
	writes_what_was_dead(true);
}

/* What a kernel that finds the address in memory writes there stays. */
PART_TEST(what_is_born_while_the_cpu_reads_is_alive, assert_int_equal(run(part), 0))
{
	static uint32_t back[24 * MIB / 4];
	const size_t bytes = sizeof(back), dead = bytes - 2 * MIB;

	driver_start(0);
	CUdeviceptr keep = child_alloc(40 * MIB), table = child_alloc(4096);
	CUfunction fill = driver_function(&fill_module, "fill");
	MUST(driver_fill(NULL, keep, 3, 10 * MIB));
	for (int i = 0; i < 3; i++)
		evict(); /* so that memory moves */
	MUST(cu.cuMemFree_v2(keep));
	CUdeviceptr a = used_by_gpu(bytes, 1);
	MUST(driver_fill(NULL, a, 1, bytes / 4));
	for (size_t i = 0; i < 2; i++) /* not as a pointer that is copied, which would be known */
		MUST(cu.cuMemsetD32_v2(table + 4 * i, (uint32_t)(a >> 32 * i), 1));
	CHECK(!spillway_born(words(a), dead));
	CHECK(!spillway_discard(words(a), dead));
	CHECK(*words(a + bytes - 4) == 1);
	CHECK(!spillway_born(words(a), dead));
	launch(fill, NULL, table);
	MUST(cu.cuCtxSynchronize());
	if (!spillway_suspend())
		CHECK(!spillway_resume());
	MUST(cu.cuMemcpyDtoH_v2(back, a, bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		CHECK(back[i] == (i < dead / 4 ? 5 : 1));
	MUST(cu.cuMemFree_v2(table));
	end_of(a);
}

/* ---- when the use is refused ---- */

PART_TEST(what_the_cpu_has_written_stays_if_the_use_is_refused,
	  assert_int_equal(run_as("device.budget=16MiB,host.budget=16MiB", NULL, part), 0))
{
	driver_start(0);
	CUdeviceptr a = used_by_gpu(4 * MIB, 1), full = child_alloc(12 * MIB), b = driver_managed(28 * MIB);

	for (size_t i = 0; i < 28; i++)
		*words(b + i * MIB) = (uint32_t)i;
	CHECK(words(a)[0] == 1);
	words(a)[1] = 2;
	for (uint32_t i = 0; i < 3; i++) {
		words(a)[1]++;
		words(a + 2 * MIB)[1] = i;
		*words(b) += 1;
		CHECK(driver_copy(NULL, a + 64, b, 1) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(*words(b + 27 * MIB) == 27);
	}
	MUST(cu.cuMemFree_v2(full));
	MUST(cu.cuMemFree_v2(b));
	CHECK(read_back(a + 4) == 5 && words(a)[1] == 5 && read_back(a + 2 * MIB + 4) == 2);
	end_of(a);
}

static void *write_until_over(void *unused)
{
	write_until(&over, &words(shared)[MIB], &n_written);
	return unused;
}

/* The CPU has it again; who has waited meanwhile goes on. */
PART_TEST(a_touch_beside_a_refused_use_goes_on,
	  assert_int_equal(run_as("device.budget=16MiB,host.budget=16MiB", NULL, part), 0))
{
	pthread_t thread;

	driver_start(0);
	CUdeviceptr full = child_alloc(12 * MIB);
	shared = driver_managed(28 * MIB);
	for (size_t i = 0; i < 28; i++)
		*words(shared + i * MIB) = (uint32_t)i;
	CHECK(!pthread_create(&thread, NULL, write_until_over, NULL));
	for (int i = 0; i < 200; i++) {
		CHECK(driver_fill(NULL, shared + 64, 1, 1) == CUDA_ERROR_OUT_OF_MEMORY);
		for (uint32_t before = n_written; n_written == before;)
			;
	}
	over = true;
	CHECK(!pthread_join(thread, NULL));
	MUST(cu.cuMemFree_v2(full));
	MUST(driver_fill(NULL, shared + 64, 1, 1));
	CHECK(read_back(shared + 4 * MIB) == n_written && read_back(shared + 27 * MIB) == 27);
	end_of(shared);
}

/* ---- the rest of the process ---- */

static atomic_uint n_signals;

static void on_signal(int number)
{
	n_signals += number == SIGUSR1;
}

static void *touch_with_all_blocked(void *unused)
{
	sigset_t all;

	sigfillset(&all);
	CHECK(!pthread_sigmask(SIG_SETMASK, &all, NULL));
	CHECK(*words(shared) == 3);
	words(shared)[1] = 4;
	return unused;
}

static void *send_signals(void *thread)
{
	while (!over)
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

/* A touch needs no signal, and goes on after one. */
PART_TEST(signals_are_the_programs, assert_int_equal(run(part), 0))
{
	pthread_t thread, self = pthread_self();

	driver_start(0);
	shared = used_by_gpu(MIB, 3);
	CHECK(!pthread_create(&thread, NULL, touch_with_all_blocked, NULL) && !pthread_join(thread, NULL));
	CHECK(words(shared)[1] == 4);
	CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
	CHECK(!pthread_create(&thread, NULL, send_signals, &self));
	for (uint32_t i = 0; i < 100; i++) {
		MUST(driver_fill(NULL, shared, i, 1));
		CHECK(*words(shared) == i);
		words(shared)[2] = i;
		CHECK(read_back(shared + 8) == i);
	}
	over = true;
	CHECK(!pthread_join(thread, NULL) && n_signals > 0);
	end_of(shared);
}

PART_TEST(a_child_of_a_fork_has_no_access, assert_int_equal(run(part), 0))
{
	int status;

	driver_start(0);
	CUdeviceptr a = used_by_gpu(4 * MIB, 3);
	CHECK(*words(a) == 3);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (!pid) {
			signal(SIGSEGV, SIG_DFL);
			_exit((int)*words(a + (size_t)i * 2 * MIB));
		}
		CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	*words(a) += 1;
	*words(a + 2 * MIB) = 9;
	CHECK(read_back(a) == 4 && read_back(a + 2 * MIB) == 9);
	end_of(a);
}

PART_TEST(a_suspended_process_touches_its_memory, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(8 * MIB);

	MUST(driver_fill(NULL, a, 3, 8 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(*words(a) == 3);
	*words(a) = 4;
	bool suspended = !spillway_suspend();
	CHECK(suspended == !!strcmp(getenv("SPILL_MODE"), "static"));
	for (size_t i = 0; i < 8; i++) {
		CHECK(*words(a + i * MIB) == (i ? 3 : 4));
		*words(a + i * MIB) += 1;
	}
	CHECK(!suspended || !spillway_resume());
	for (size_t i = 0; i < 8; i++)
		CHECK(read_back(a + i * MIB) == (i ? 4 : 5));
	end_of(a);
}

PART_TEST(what_was_touched_may_be_freed, assert_int_equal(run(part), 0))
{
	driver_start(0);
	for (int i = 0; i < 20; i++) {
		CUdeviceptr a = used_by_gpu(3 * MIB, 3), b = used_by_gpu(MIB, 2);

		CHECK(*words(a) == 3 && *words(b) == 2);
		if (i % 2)
			words(a)[700000] = 5;
		MUST(cu.cuMemFree_v2(a));
		CUdeviceptr c = driver_managed(3 * MIB);
		CHECK(*words(c) == 0 && words(c)[700000] == 0);
		MUST(driver_fill(NULL, b + 4, 2, 1));
		CHECK(words(b)[0] == 2 && words(b)[1] == 2);
		MUST(cu.cuMemFree_v2(b));
		MUST(cu.cuMemFree_v2(c));
	}
	end();
}

PART_TEST(each_gpus_work_is_waited_for,
	  assert_int_equal(run_as("device.budget=64MiB,host.budget=384MiB", "SIM_DEVICES=2", part), 0))
{
	CUcontext first = driver_start(0);
	CUdeviceptr a = used_by_gpu(4 * MIB, 1);

	driver_start(1);
	CUdeviceptr b = used_by_gpu(4 * MIB, 2);
	for (uint32_t i = 0; i < 20; i++) {
		MUST(driver_fill(NULL, a + 4, i, 1));
		CHECK(words(a)[1] == i && words(b)[0] == 2 + i);
		words(a)[0] = i;
		words(b)[0]++;
		if (i % 2)
			MUST(cu.cuCtxSetCurrent(first));
		CHECK(read_back(a) == i && read_back(b) == 3 + i);
	}
	MUST(cu.cuMemFree_v2(b));
	end_of(a);
}

/* ---- contexts ---- */

/* Another context of the device was there before, and ends. */
PART_TEST(another_context_may_end, assert_int_equal(run(part), 0))
{
	CUcontext first = driver_start(0), other;

	for (int i = 0; i < 3; i++) {
		MUST(cu.cuCtxCreate_v2(&other, 0, 0));
		CUdeviceptr a = used_by_gpu(MIB, 1);
		CHECK(*words(a) == 1);
		words(a)[1] = 2;
		MUST(cu.cuCtxSetCurrent(first));
		MUST(driver_fill(NULL, child_alloc(MIB), 1, 1));
		MUST(cu.cuCtxCreate_v2(&first, 0, 0));
		MUST(cu.cuCtxSetCurrent(other));
		CHECK(words(a)[1] == 2);
		words(a)[2] = 3;
		MUST(driver_fill(NULL, a + 12, 4, 1));
		CHECK(words(a)[0] == 1 && words(a)[1] == 2 && words(a)[2] == 3 && words(a)[3] == 4);
		words(a)[4] = 5;
		MUST(cu.cuCtxDestroy_v2(other));
		MUST(cu.cuCtxSetCurrent(first));
		CUdeviceptr b = used_by_gpu(MIB, 1);
		CHECK(words(b)[0] == 1 && words(b)[4] == 0);
		MUST(cu.cuMemFree_v2(b));
	}
}

static void failing_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	(void)args;
	sim_assert_fails();
}

static const struct sim_kernel failing_kernel = {"failing", failing_body, 1, one_pointer};
static const struct sim_module failing_module = {SIM_MODULE_MAGIC, 1, &failing_kernel};

/* What is well goes on as natively. */
PART_TEST(a_context_that_has_died_is_not_waited_for, assert_int_equal(run(part), 0))
{
	CUcontext died = driver_start(0), other;

	MUST(cu.cuCtxCreate_v2(&other, 0, 0));
	CUdeviceptr a = used_by_gpu(MIB, 1);
	MUST(cu.cuCtxSetCurrent(died));
	launch(driver_function(&failing_module, "failing"), NULL, 0);
	CHECK(cu.cuCtxSynchronize() != CUDA_SUCCESS);
	MUST(cu.cuCtxSetCurrent(other));
	MUST(driver_fill(NULL, a + 4, 2, 1));
	CHECK(words(a)[0] == 1 && words(a)[1] == 2);
	words(a)[2] = 3;
	CHECK(read_back(a + 8) == 3);
	MUST(cu.cuMemFree_v2(a));
}

/* The driver may be short of memory for a moment, or another thread ends the context. */
PART_TEST(an_error_that_passes_ends_no_touch, assert_int_equal(run(part), 0))
{
	static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_CONTEXT_IS_DESTROYED,
					  CUDA_ERROR_UNKNOWN};

	driver_start(0);
	CUdeviceptr a = used_by_gpu(MIB, 1);
	for (uint32_t i = 0; i < 3; i++) {
		sim_fail("cuMemcpyDtoHAsync_v2", 1, errors[i]);
		CHECK(words(a)[0] == 1 + i);
		words(a)[1] = i;
		sim_fail("cuEventCreate", 1, errors[i]);
		MUST(driver_fill(NULL, a, 2 + i, 1));
		CHECK(words(a)[1] == i && read_back(a) == 2 + i);
	}
	end_of(a);
}

/* ---- what never ends by itself ---- */

static void touch_in_a_function(void *unused)
{
	(void)unused;
	shared = *words(shared);
}

/* The GPU's work is the function itself. It ends as where the CPU has no access, after a bounded time. */
PART_TEST(a_touch_in_a_function_of_the_host_ends_in_a_fault,
	  assert_int_equal(run(part), strcmp(getenv("SPILL_MODE"), "exact") ? 0 : 128 + SIGSEGV))
{
	if (strcmp(getenv("SPILL_MODE"), "exact"))
		return;
	driver_start(0);
	signal(SIGSEGV, SIG_DFL);
	CUstream stream = child_stream();
	shared = used_by_gpu(MIB, 3);
	MUST(cuLaunchHostFunc(stream, touch_in_a_function, NULL));
	MUST(cu.cuStreamSynchronize(stream));
}

EACH_TEST(folder_make, folder_remove)

START(if (!has_userfaultfd()) return 77)
