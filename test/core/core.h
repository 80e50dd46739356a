// SPDX-License-Identifier: Apache-2.0
/*
 * core.h: what the in-process tests of the core share. The simulated libcuda.so.1 is linked, so it is loaded; the core
 * binds to it as it would in a program. Nothing is preloaded.
 *
 * CHECK stands in for cmocka's assertions where those cannot be used: in other threads and in child processes.
 */
#ifndef SPILLWAY_TEST_CORE_H
#define SPILLWAY_TEST_CORE_H

#include <stdatomic.h>

#include "shim/device/device.h"
#include "shim/heap/heap.h"
#include "shim/heap/migration.h"
#include "shim/driver/real.h"
#include "test/forms.h"
#include "test/sim/sim.h"
#include "test/test.h"

#define assert_ok(call) assert_int_equal((call), 0)

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			core_fail(__FILE__, __LINE__, #condition);                                                     \
	} while (0)
/* Says where, and ends the process without running exit handlers. */
void core_fail(const char *file, int line, const char *what) __attribute__((noreturn));

/* Initialise the driver and make the primary context of device 0 current. */
void core_driver(void);
/* Tells the library of the current context, which must be of device 0, and returns it. */
CUcontext core_context(void);
/* What the driver gives, by whatever serves the call in this program. Streams are non-blocking. */
CUcontext core_current(void);
CUcontext core_new_context(void); /* of device 0, made current */
CUdeviceptr core_alloc(size_t bytes);
CUdeviceptr core_block(size_t bytes); /* the same, and it is in the heap of a device */
CUstream core_stream(void); /* core_streams_end() ends those that are left, as a program does or by that function */
void core_streams_end(void (*end)(CUstream stream));
CUgraphExec core_instance(CUgraph graph);
/* Settings, "NAME=value" each, NULL at the end; core_start() then starts the driver and the library. Once a process. */
void core_start(const char *const *settings);
void core_settings(const char *const *settings);

#define CORE_START(...) START(core_start((const char *const[]){__VA_ARGS__, NULL}))

/*
 * Run a part of a test in a process of its own, whose driver and library have not been used: settings may differ from
 * test to test. The parent must not use the driver. Returns run()'s result, or 1 after CHECK; a signal fails the test.
 */
int core_in_child(const char *const *settings, int (*run)(void *argument), void *argument);

/* A test whose body, which follows, is the function `part`, and returns 0: the statement runs it where it belongs. */
#define PART_TEST(name, ...)                                                                                           \
	static int name##_part(void *argument);                                                                        \
	TEST(name)                                                                                                     \
	{                                                                                                              \
		int (*const part)(void *argument) = name##_part;                                                       \
                                                                                                                       \
		__VA_ARGS__;                                                                                           \
	}                                                                                                              \
	static int name##_part(void *argument __attribute__((unused)))

/* A heap on device 0 with budgets of its own, beside what device.c does. */
struct core_heap {
	struct budget device, host, peer[HEAP_LENDERS]; /* of peers: their own, of which all is taken that they lend */
	struct lender lender[HEAP_LENDERS];
	struct heap *heap;
	struct sim_live before;
	struct heap_grant held[512]; /* by core_try() and core_take() */
	unsigned n_held;
};
/* keep: free memory kept warm, at either place. */
void core_heap_open(struct core_heap *own, uint64_t device_bytes, uint64_t host_bytes, uint64_t keep);
/* The same with that many peers, devices 1 and up, which lend so much each. */
void core_heap_open_lent(struct core_heap *own, uint64_t device_bytes, uint64_t host_bytes, uint64_t keep,
			 unsigned n_peers, uint64_t lent);
/* The same without, and what moves is exportable, as the device and the host can. */
void core_heap_open_shared(struct core_heap *own, uint64_t device_bytes, uint64_t host_bytes, uint64_t keep);
/* Checks every invariant of the heap's room; ends a heap, and gives all its memory back to the driver (heap_check.c). */
bool heap_is_valid(struct heap *heap);
void heap_destroy(struct heap *heap);
/* As heap_alloc(), and the heap must be valid then; core_take() must succeed. */
enum sw_status core_try(struct core_heap *own, size_t bytes, enum chunk_kind kind, enum heap_from from,
			struct heap_grant *ret_grant);
struct heap_grant core_take(struct core_heap *own, size_t bytes, enum chunk_kind kind, enum heap_from from);
/* Frees what one of these returned, and the heap must be valid then. */
void core_give(struct core_heap *own, const struct heap_grant *grant);
/*
 * Frees what core_try() and core_take() returned and the test still has. That must be all: then the budgets are empty,
 * and the model holds what it held before.
 */
void core_heap_close(struct core_heap *own);
int core_heap_end(void **state); /* a tear-down: the same with the heap that was opened last, if it is open */

/* A mover of this heap. It lives as long as the process. */
struct engine *core_engine(struct core_heap *own, struct device *device, bool exact);

/*
 * The piece at an address begins to move there; memory of its size is made if there is none. Copies all of it, which must
 * be mapped nowhere or not written meanwhile. Both, and the rest of a move, after which the heap must be valid.
 */
struct migration core_begin_move(struct heap *heap, CUdeviceptr address, enum chunk_place to, bool in_place);
void core_copy(const struct migration *transit);
void core_move(struct heap *heap, CUdeviceptr address, enum chunk_place to);
/*
 * The piece at an address leaves the device, without what is in it, as it does in a gap. False: no memory of its size
 * lies ready elsewhere.
 */
bool core_leaves(struct core_heap *own, CUdeviceptr address);

/* Driver calls that make, map, unmap or release memory, so far. */
unsigned long core_vmm_calls(void);

/* Fill with bytes that only this seed gives, by the driver's copy, large ranges in part; are these bytes there? */
void core_fill(CUdeviceptr address, size_t bytes, uint64_t seed);
bool core_is_filled(CUdeviceptr address, size_t bytes, uint64_t seed);
/*
 * A tear-down: ends the test's streams. Then nothing may be left in the ledger, in the heap of device 0 or in the
 * budgets, no capture open, and no rule broken.
 */
int core_check(void **state);
/* Wait for the current context and free what is pending for it, until nothing is. */
void core_drain(void);

/* How many 2 MiB pages of a range are at that place ('D', 'H', 0)? */
size_t core_pages_at(CUdeviceptr address, size_t bytes, char place);

#endif
