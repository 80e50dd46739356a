// SPDX-License-Identifier: Apache-2.0
/*
 * model.h: what the programs share that test what the simulated GPU promises, beyond what a real one can be asked
 * (rules.h). They are linked directly against it, no shim in between.
 */
#ifndef SPILLWAY_TEST_MODEL_H
#define SPILLWAY_TEST_MODEL_H

#include <stdatomic.h>
#include "sim.h"
#include "test/forms.h"
#include "test/test.h"

#define ok(call)    assert_int_equal((call), CUDA_SUCCESS)
#define is(e, call) assert_int_equal((call), (e))

/*
 * For each test a context of its own, the kernels loaded into it. With the context end its memory, streams and events,
 * and the graphs and instances that the test has made here; then nothing may be left in the model.
 */
int model_set_up(void **state);
int model_tear_down(void **state);

/* Each is made in the current context, or the test fails. Streams are non-blocking. */
CUdeviceptr model_alloc(size_t bytes);
CUstream model_stream(void);
CUevent model_event(unsigned flags);
CUgraph model_graph(void);
CUgraph model_captured(CUstream stream); /* ends the capture */
CUgraphExec model_instance(CUgraph graph);

CUmemAllocationProp model_on(CUmemLocationType type);
CUmemGenericAllocationHandle model_handle(CUmemLocationType type, size_t bytes);
/* At an address of its own, where no device may touch it yet. */
CUdeviceptr model_map(CUmemGenericAllocationHandle handle, size_t bytes);
CUdeviceptr model_map_new(CUmemLocationType type, size_t bytes);
void model_set_access(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags); /* of device 0 */
void model_unmap(CUdeviceptr at, size_t bytes);                               /* and frees the address */

extern CUcontext model_context;
/* chase(table) writes 77 where the pointer at `table`, in device memory, leads; pair(add, pair): b[i] = a[i] + add */
extern CUfunction model_chase, model_pair;
struct model_pair {
	uint32_t *a, *b;
	uint32_t n;
};

/* value, value + 1, ... to n words; and is that what is there? */
CUresult model_launch_fill(CUdeviceptr at, uint32_t value, size_t n, CUstream stream);
/*
 * The same, by a launch that allows programmatic stream serialization: it may start before its predecessor has ended.
 */
CUresult model_launch_overlapping_fill(CUdeviceptr at, uint32_t value, size_t n, CUstream stream);
void model_expect(CUdeviceptr at, uint32_t value, size_t n);
/* A kernel that runs until the gate is open. model_set_up() closes it, model_tear_down() opens it. */
CUresult model_launch_gate(CUstream stream);
extern atomic_bool model_gate;

#endif
