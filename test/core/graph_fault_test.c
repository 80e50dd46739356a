// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs when something fails or happens at once: each question to the driver, each piece of memory, two threads. An
 * instance is then unknown, or it is right; never wrong, and never is a failure of ours one of the program's.
 */
#include "test/core/core.h"
#include "test/core/graph_help.h"

#include "shim/submit/graph.h"
#include "shim/submit/arguments.h"

/* ---- memory that fails: every malloc and calloc of this program goes through here (CMakeLists.txt) ---- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

static __thread unsigned left; /* calls of this thread until one fails; 0: none will */

static bool fails(void)
{
	return left && !--left;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

/* ---- one of everything ---- */

static CUgraph graph, child;
static CUgraphNode kernel;
static struct mix_arguments first, second;

BEFORE_ALL
{
	CUstreamBatchMemOpParams op = {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, memory + 64, .value64 = 3}};
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = {.ctx = context, .count = 1, .paramArray = &op};
	CUgraphNode node;

	graph_test_start();
	first = mix_of(1);
	second = mix_of(2);
	graph = graph_new();
	child = graph_new();
	kernel = add_mix(graph, &first);
	CUDA_MEMCPY3D copy = form_line(memory + 4096, memory, 100);
	add_copy(graph, &copy);
	add_set(graph, (CUDA_MEMSET_NODE_PARAMS){.dst = memory + 8192, .elementSize = 1, .width = 10, .height = 1});
	p.ctx = context;
	op.writeValue.address = memory + 64;
	assert_ok(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &p));
	add_set(child, (CUDA_MEMSET_NODE_PARAMS){.dst = memory + MIB, .elementSize = 1, .width = 10, .height = 1});
	assert_ok(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
}

static void expect_first(CUgraphExec exec)
{
	EXPECT(exec, {first.first, 0}, {first.second, 0}, {first.inner.third, 0}, {first.inner.fourth, 0},
	       {memory, 100}, {memory + 4096, 100}, {memory + 8192, 10}, {memory + 64, 8}, {memory + MIB, 10});
}

static const char *const questions[] = {
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetAttribute",
    "cuGraphKernelNodeGetParams_v2",
    "cuFuncGetParamInfo",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams",
    "cuGraphBatchMemOpNodeGetParams",
    "cuGraphChildGraphNodeGetGraph",
};
#define N_QUESTIONS (sizeof(questions) / sizeof(questions[0]))

TEST(a_question_the_driver_does_not_answer_makes_the_instance_unknown)
{
	unsigned n_failures = 0;

	for (size_t i = 0; i < N_QUESTIONS; i++) {
		for (unsigned n = 1;; n++) {
			kernel_params_drop(); /* so that it has to be asked again */
			sim_fail(questions[i], n, CUDA_ERROR_UNKNOWN);
			CUgraphExec exec = instantiate(graph);
			bool happened = !sim_fail_pending();

			sim_fail(questions[i], 0, CUDA_SUCCESS);
			if (happened) {
				expect_unknown(exec);
				assert_int_equal(graph_n_unknown(), 1);
				n_failures++;
			} else {
				expect_first(exec);
			}
			assert_ok(cuGraphLaunch(exec, NULL));
			assert_ok(cuGraphExecDestroy(exec));
			assert_int_equal(graph_n_unknown(), 0);
			if (!happened)
				break;
		}
	}
	/*
	 * 4 times the nodes of a graph, 6 types, 5 parameters looked for, and one of each of the others but sets: two.
	 */
	assert_int_equal(n_failures, 4 + 6 + 1 + 1 + 5 + 1 + 2 + 1 + 1);
}

TEST(a_question_that_fails_when_parameters_are_set_makes_the_instance_unknown)
{
	for (unsigned n = 1; n <= 5; n++) {
		CUgraphExec exec = instantiate(graph);

		kernel_params_drop();
		sim_fail("cuFuncGetParamInfo", n, CUDA_ERROR_UNKNOWN);
		set_mix(exec, kernel, &second);
		assert_false(sim_fail_pending());
		expect_unknown(exec);
		/* No way back but by an update. */
		set_mix(exec, kernel, &second);
		expect_unknown(exec);
		assert_ok(cuGraphExecUpdate_v2(exec, graph, NULL));
		expect_first(exec);
		assert_ok(cuGraphExecDestroy(exec));
	}
	assert_int_equal(graph_n_unknown(), 0);
}

TEST(without_memory_an_update_makes_the_instance_unknown)
{
	CUgraphExec exec = instantiate(graph);
	unsigned n_failures = 0;

	for (bool done = false; !done; n_failures += !done) {
		left = n_failures + 1;
		graph_updated(exec, graph);
		done = left;
		left = 0;
		if (done)
			expect_first(exec);
		else
			expect_unknown(exec);
	}
	assert_int_equal(n_failures, 3); /* the set, the nodes, those of the child */
	assert_ok(cuGraphExecDestroy(exec));
	assert_int_equal(graph_n_unknown(), 0);
}

TEST(without_memory_set_parameters_make_the_instance_unknown)
{
	struct wide wide;
	void *params[1] = {&wide};
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	unsigned n_failures = 0;

	wide_of(&wide, 100);
	p.kernel.func = wide_function;
	p.kernel.kernelParams = params;
	for (bool done = false; !done; n_failures += !done) {
		CUgraphExec exec = instantiate(graph);

		left = n_failures + 1;
		graph_set(exec, &p);
		done = left;
		left = 0;
		assert_true(names_of(exec)->unknown == !done);
		if (done)
			assert_int_equal(names_of(exec)->n, WIDE + 9);
		assert_ok(cuGraphExecDestroy(exec));
	}
	assert_in_range(n_failures, 4, 8); /* the set, its growth in steps, the larger one for both */
	assert_int_equal(graph_n_unknown(), 0);
}

/* ---- threads ---- */

#define ROUNDS 300

/* Instances of its own come and go; what each names is always the whole. */
static void *come_and_go(void *argument)
{
	struct mix_arguments a = mix_of(1 + (unsigned)(uintptr_t)argument);
	CUgraph own = graph_new();

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CUgraphNode node = add_mix(own, &a);
	for (int i = 0; i < ROUNDS; i++) {
		CUgraphExec exec = instantiate(own);
		struct mix_arguments b = mix_of(4);
		const struct submission *use = names_of(exec);

		CHECK(!use->unknown && use->n == 4 && use->at[0].address == a.first);
		set_mix(exec, node, &b);
		use = names_of(exec);
		CHECK(!use->unknown && use->n == 8 && use->at[7].address == b.inner.fourth);
		CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
	}
	CHECK(cuGraphDestroy(own) == CUDA_SUCCESS);
	names_drop();
	return NULL;
}

static CUgraphExec shared;
static atomic_bool stop;

/* It is launched all the time while another thread changes it: a program should not, we must not fall over it. */
static void *launch_shared(void *argument)
{
	while (!atomic_load(&stop)) {
		const struct submission *use = names_of(shared);

		CHECK(use->unknown ? !use->n : use->n >= 9);
	}
	names_drop();
	return NULL;
}

TEST(threads_do_not_disturb_each_other)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	struct wide wide;
	void *params[1] = {&wide};
	pthread_t thread[3];

	p.kernel.func = wide_function;
	p.kernel.kernelParams = params;
	shared = instantiate(graph);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, (void *)i), 0);
	assert_int_equal(pthread_create(&thread[2], NULL, launch_shared, NULL), 0);
	for (size_t i = 0; i < 100; i++) {
		wide_of(&wide, i * 100);
		graph_set(shared, &p);
		if (i % 10 == 9)
			graph_updated(shared, graph);
	}
	expect_first(shared);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	atomic_store(&stop, true);
	pthread_join(thread[2], NULL);
	assert_ok(cuGraphExecDestroy(shared));
	assert_int_equal(graph_n_unknown(), 0);
}

/* Last: what could not be put down is believed to be alive for good. */
TEST(without_memory_an_instance_is_unknown)
{
	CUgraphExec exec = instantiate(graph);

	for (unsigned n = 1; n <= 5; n++) {
		left = n;
		graph_instantiated(exec, graph, 0);
		bool done = left;
		left = 0;
		assert_int_equal(done, n == 5);
		if (done)
			expect_first(exec);
		else
			expect_unknown(exec);
		assert_int_equal(graph_n_unknown(), n == 5 ? 1 : n == 1 ? 1 : 2);
	}
	assert_ok(cuGraphExecDestroy(exec));
	assert_int_equal(graph_n_unknown(), 1);
}
