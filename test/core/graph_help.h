// SPDX-License-Identifier: Apache-2.0
/*
 * graph_help.h: what the tests of graphs share: kernels, graphs, and a struct submission that writes down what it is
 * told.
 */
#ifndef SPILLWAY_TEST_GRAPH_HELP_H
#define SPILLWAY_TEST_GRAPH_HELP_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the fakes ---- */

struct test_name {
	CUdeviceptr address;
	size_t bytes;
};
struct submission {
	uint64_t function;
	unsigned n_functions, n_stored;
	bool unknown;
	struct graph_names *graph; /* dropped when the thread asks again */
	size_t n;
	struct test_name at[1 << 16];
};
/* What a launch of it names; good until the thread asks again. A thread that ends must call names_drop() before. */
const struct submission *names_of(CUgraphExec exec);
void names_drop(void);
void expect_names(CUgraphExec exec, const struct test_name *names, size_t n, int line);
#define EXPECT(exec, ...)                                                                                              \
	expect_names(exec, (const struct test_name[]){__VA_ARGS__},                                                    \
		     sizeof((const struct test_name[]){__VA_ARGS__}) / sizeof(struct test_name), __LINE__)
#define EXPECT_NOTHING(exec) expect_names(exec, NULL, 0, __LINE__)
/* How many nodes of the instance use the address; 0: it is not named. */
unsigned uses_of(CUgraphExec exec, CUdeviceptr address);
void expect_unknown(CUgraphExec exec);

/* ---- the driver ---- */

extern CUcontext context;
extern CUdeviceptr memory; /* 8 MiB of it */
void graph_test_start(void);
int graph_test_stop(void **state); /* no instance may be left */

/* mix(pointer, int, pointer, struct of 24 bytes), plain(), wide(struct of pointers). */
struct mix_arguments {
	CUdeviceptr first;
	int number, unused;
	CUdeviceptr second;
	struct {
		CUdeviceptr third;
		long number;
		CUdeviceptr fourth;
	} inner;
};
#define WIDE 512
struct wide {
	CUdeviceptr at[WIDE];
};
extern CUfunction mix_function, plain_function, wide_function;
extern CUkernel mix_kernel;
struct mix_arguments mix_of(unsigned which);
void mix_params(struct mix_arguments *arguments, void *ret_params[4]);
void wide_of(struct wide *ret_wide, size_t from);
void do_nothing(void *argument);

/* graph_check() ends the first 64 that these make in a test, if they are left; then no instance may be unknown. */
CUgraph graph_new(void);
CUgraphExec instantiate(CUgraph graph);
int graph_check(void **state);
CUgraphNode add_mix(CUgraph graph, struct mix_arguments *arguments);
CUgraphNode add_copy(CUgraph graph, const CUDA_MEMCPY3D *copy);
CUgraphNode add_set(CUgraph graph, CUDA_MEMSET_NODE_PARAMS set);
void set_mix(CUgraphExec exec, CUgraphNode node, struct mix_arguments *arguments);

#endif
