// SPDX-License-Identifier: Apache-2.0
/*
 * What launches of graphs name after instances were changed, used up or destroyed (graph_test.c).
 */
#include "test/core/core.h"
#include "test/core/graph_help.h"

#include "shim/submit/graph.h"

/* ---- changes ---- */

TEST(parameters_set_on_an_instance_are_added)
{
	struct mix_arguments a = mix_of(1), b = {.first = memory + 5 * MIB}, c = {.first = memory + 6 * MIB};
	CUgraph graph = graph_new();
	CUgraphNode kernel = add_mix(graph, &a);
	CUDA_MEMCPY3D copy = form_line(memory + 4096, memory, 100);
	CUgraphNode copying = add_copy(graph, &copy);
	CUDA_MEMSET_NODE_PARAMS p = {.dst = memory + 8192, .elementSize = 1, .width = 10, .height = 1};
	CUgraphNode setting = add_set(graph, p);
	CUgraphExec exec = instantiate(graph);

	set_mix(exec, kernel, &b);
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS_v1 v1 = {mix_function, 1, 1, 1, 1, 1, 1, 0, params, NULL};
	mix_params(&c, params);
	assert_ok(cuGraphExecKernelNodeSetParams(exec, kernel, &v1));
	copy = form_line(memory + MIB, memory, 300);
	assert_ok(cuGraphExecMemcpyNodeSetParams(exec, copying, &copy, context));
	p.dst = memory + 2 * MIB;
	assert_ok(cuGraphExecMemsetNodeSetParams(exec, setting, &p, context));
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	any.memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = memory + 3 * MIB, .elementSize = 1, .width = 7, .height = 1};
	assert_ok(cuGraphExecNodeSetParams(exec, setting, &any));
	/* What the driver refuses is not named. */
	p.dst = 0;
	assert_int_not_equal(cuGraphExecMemsetNodeSetParams(exec, setting, &p, context), CUDA_SUCCESS);
	sim_fail("cuGraphExecMemcpyNodeSetParams", 1, CUDA_ERROR_UNKNOWN);
	copy = form_line(memory + 4 * MIB, memory, 300);
	assert_int_equal(cuGraphExecMemcpyNodeSetParams(exec, copying, &copy, context), CUDA_ERROR_UNKNOWN);
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0}, {memory, 300},
	       {memory + 4096, 100}, {memory + 8192, 10}, {b.first, 0}, {c.first, 0}, {memory + MIB, 300},
	       {memory + 2 * MIB, 10}, {memory + 3 * MIB, 7});
}

/* A node that is set again and again is still one: else what it names would weigh more with each step. */
TEST(parameters_set_again_are_not_counted_again)
{
	struct mix_arguments a = mix_of(0), b = mix_of(1);
	CUgraph graph = graph_new();
	CUgraphNode node = add_mix(graph, &a);

	add_mix(graph, &a);
	CUgraphExec exec = instantiate(graph);
	for (int i = 0; i < 20; i++) {
		set_mix(exec, node, &b);
		set_mix(exec, node, &a);
	}
	assert_int_equal(uses_of(exec, a.first), 2);
	assert_int_equal(uses_of(exec, b.first), 1);
	/* An update is a new count. */
	CUgraph other = graph_new();
	CUgraphExecUpdateResultInfo info;
	add_mix(other, &b);
	add_mix(other, &b);
	assert_ok(cuGraphExecUpdate_v2(exec, other, &info));
	assert_int_equal(uses_of(exec, a.first), 0);
	assert_int_equal(uses_of(exec, b.first), 2);
}

TEST(an_update_replaces_what_is_named_if_it_succeeds)
{
	struct mix_arguments a = mix_of(1), b = {.first = memory + 5 * MIB};
	CUgraph graph = graph_new(), other = graph_new(), longer = graph_new();
	CUgraphExecUpdateResultInfo info;
	CUgraphExecUpdateResult why;
	CUgraphNode error;

	add_mix(graph, &a);
	add_mix(other, &b);
	add_mix(longer, &b);
	add_mix(longer, &b);
	CUgraphExec exec = instantiate(graph);
	uint64_t number = names_of(exec)->function;
	assert_int_equal(cuGraphExecUpdate_v2(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0});
	assert_ok(cuGraphExecUpdate_v2(exec, other, &info));
	EXPECT(exec, {b.first, 0});
	assert_ok(cuGraphExecUpdate(exec, graph, &error, &why));
	EXPECT(exec, {a.first, 0}, {a.second, 0}, {a.inner.third, 0}, {a.inner.fourth, 0});
	assert_true(names_of(exec)->function == number);
	/* Unknown and known again. */
	sim_fail("cuGraphNodeGetType", 1, CUDA_ERROR_UNKNOWN);
	assert_ok(cuGraphExecUpdate_v2(exec, other, &info));
	expect_unknown(exec);
	assert_int_equal(graph_n_unknown(), 1);
	assert_ok(cuGraphExecUpdate_v2(exec, other, &info));
	EXPECT(exec, {b.first, 0});
}

TEST(an_instance_whose_names_grow_without_end_becomes_unknown)
{
	CUgraph graph = graph_new();
	struct wide wide;
	void *params[1] = {&wide};
	CUDA_KERNEL_NODE_PARAMS p = form_kernel(wide_function, params, NULL);
	CUgraphNode node;
	size_t n = 0;

	wide_of(&wide, n);
	assert_ok(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
	CUgraphExec exec = instantiate(graph);
	for (n = WIDE; n + WIDE <= 65536; n += WIDE) {
		assert_int_equal(names_of(exec)->n, n);
		wide_of(&wide, n);
		assert_ok(cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
		/* The same again adds nothing. */
		assert_ok(cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
	}
	wide_of(&wide, n);
	assert_false(names_of(exec)->unknown);
	assert_ok(cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
	expect_unknown(exec);
}

TEST(the_number_of_a_launch_is_that_of_its_structure)
{
	struct mix_arguments a = mix_of(1), b = mix_of(2);
	CUgraph one = graph_new(), same = graph_new(), other = graph_new();
	CUDA_KERNEL_NODE_PARAMS p = form_kernel(plain_function, NULL, NULL);
	CUgraphNode node;

	add_mix(one, &a);
	add_mix(same, &b);
	assert_ok(cuGraphAddKernelNode_v2(&node, other, NULL, 0, &p));
	CUgraphExec first = instantiate(one), second = instantiate(same), third = instantiate(other);
	uint64_t number = names_of(first)->function;
	assert_true(names_of(first)->function == number);
	assert_true(names_of(second)->function == number);
	assert_true(names_of(third)->function != number);
}

/* ---- ends ---- */

TEST(a_destroyed_instance_is_forgotten_and_one_that_lives_is_not)
{
	struct mix_arguments a = {.first = memory};
	CUgraph graph = graph_new();

	add_mix(graph, &a);
	CUgraphExec exec = instantiate(graph);
	sim_fail("cuGraphExecDestroy", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuGraphExecDestroy(exec), CUDA_ERROR_UNKNOWN);
	EXPECT(exec, {memory, 0});
	assert_ok(cuGraphExecDestroy(exec));
	expect_unknown(exec);
}

TEST(a_handle_that_is_used_again_names_what_the_new_instance_does)
{
	struct mix_arguments a = {.first = memory}, b = {.first = memory + MIB};
	CUgraph graph = graph_new(), other = graph_new();

	add_mix(graph, &a);
	add_mix(other, &b);
	CUgraphExec exec = instantiate(graph);
	/* The end of the first was not seen. */
	graph_instantiated(exec, other, 0);
	EXPECT(exec, {memory + MIB, 0});
	graph_instantiated(exec, other, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	graph_instantiated(exec, other, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	assert_int_equal(graph_n_unknown(), 1);
}

TEST(instances_end_with_their_context)
{
	struct mix_arguments a = {.first = memory};
	CUgraph graph = graph_new();
	CUgraphExec known, sealed;

	add_mix(graph, &a);
	known = instantiate(graph);
	assert_ok(cuGraphInstantiateWithFlags(&sealed, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
	graph_context_ended((CUcontext)&a);
	graph_context_ended(NULL);
	assert_int_equal(graph_n_unknown(), 1);
	/* As far as it can be while the other one lives. */
	assert_int_equal(names_of(known)->n, 1);
	graph_context_ended(context);
	assert_int_equal(graph_n_unknown(), 0);
	expect_unknown(known);
	assert_ok(cuGraphExecDestroy(sealed));
}

FIXTURE(start)
{
	graph_test_start();
}

EACH_TEST(NULL, graph_check)
GROUP(start, graph_test_stop)
