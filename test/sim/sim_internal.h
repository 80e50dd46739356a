// SPDX-License-Identifier: Apache-2.0
/*
 * sim_internal.h: what all files of the simulated driver share: entering and leaving a call, the model's state and
 * lock, tables of address ranges. What some share is in a header by subject, which includes this one:
 *
 *   sim_context.h  contexts, and whose memory they may touch       sim_work.h     streams, events, and what is done
 *   sim_memory.h   physical memory, mappings, blocks               sim_graph.h    captures and graphs
 *   sim_managed.h  managed memory and its pages
 *
 * One lock, sim.lock, guards the whole model. The body of every entry point runs under it (SPELL takes and leaves it);
 * kernels, copies, sets and host functions run on the streams' own threads without it. Bodies therefore call each
 * other's sim_ functions, never an exported cu* function. Waiting for work is sim_wait(), which gives the lock up.
 *
 * CUDA's opaque handles are pointers to the structs of these headers. Such a struct is never given back to malloc while
 * the driver lives: a stale handle is recognised by its `alive` field instead of being undefined behaviour.
 */
#ifndef SIM_INTERNAL_H
#define SIM_INTERNAL_H

#include "sim.h"
#include <stdatomic.h>

#define SIM_EXPORT      __attribute__((visibility("default")))
#define SIM_GRANULE     ((size_t)2 << 20) /* granularity of memory and mappings (docs/facts.md, Mapping) */
#define SIM_DEVICES_MAX 8
#define SIM_PIECE       ((size_t)64 << 10) /* what a copy or a set does between two pauses */

/* ---- sim_control.c: settings, entering and leaving a call, log, report; sim_fail.c: failures ---- */

enum {
	SIM_INIT = 1,    /* refused before cuInit */
	SIM_CONTEXT = 2, /* refused without a living current context */
};
struct sim_entry {
	const char *name;
	unsigned need;
	unsigned fail_at; /* calls left until the ordered failure, 0 = none */
	CUresult fail_with;
	CUresult next_with; /* the call after the ordered failure fails, too, with this; CUDA_SUCCESS: it does not */
	const char *then;   /* what fails from the ordered failure on; NULL: nothing */
	unsigned then_times;
	unsigned refused;  /* calls from now on that fail */
	unsigned hold_at;  /* calls left until one holds all work, 0 = none */
	unsigned stall_at; /* calls left until one stands still, 0 = none */
	unsigned long calls;
};
struct sim_origin {
	unsigned long call;
	const char *name;
};
struct sim_call {
	struct sim_entry *entry;
	struct sim_origin outer; /* host functions may call the driver from inside nothing, but a stack costs nothing */
	unsigned long number;
	CUresult result;
	bool locked;
};

/*
 * One exported spelling of an entry point: counted, failed by order, checked, logged; the expression is its body.
 * The rows of all files meet in one linker section, so that a name can be found before it was ever called.
 */
#define SIM_SPELL(attributes, needs, entry_name, params, ...)                                                          \
	static struct sim_entry entry_##entry_name = {.name = #entry_name, .need = (needs)};                           \
	static struct sim_entry *const row_##entry_name __attribute__((used, section("sim_entries"))) =                \
	    &entry_##entry_name;                                                                                       \
	SIM_EXPORT attributes CUresult entry_name params                                                               \
	{                                                                                                              \
		struct sim_call sim_call_;                                                                             \
		if (sim_enter(&sim_call_, &entry_##entry_name))                                                        \
			sim_call_.result = (__VA_ARGS__);                                                              \
		return sim_leave(&sim_call_);                                                                          \
	}
#define SPELL(name, params, ...)      SIM_SPELL(, SIM_INIT | SIM_CONTEXT, name, params, __VA_ARGS__)
#define SPELL_FREE(name, params, ...) SIM_SPELL(, SIM_INIT, name, params, __VA_ARGS__) /* needs no context */
#define SPELL_RAW(name, params, ...)  SIM_SPELL(, 0, name, params, __VA_ARGS__)        /* not even cuInit */

/* Two spellings that do the same: the name, and the name with _v2. */
#define SPELL_2(name, params, ...)                                                                                     \
	SPELL(name, params, __VA_ARGS__)                                                                               \
	SPELL(name##_v2, params, __VA_ARGS__)
#define SPELL_FREE_2(name, params, ...)                                                                                \
	SPELL_FREE(name, params, __VA_ARGS__)                                                                          \
	SPELL_FREE(name##_v2, params, __VA_ARGS__)

/* The answer to a question: it is put where the caller wants it, or INVALID_VALUE if that is nowhere. */
#define SIM_ANSWER(ret_value, ...)                                                                                     \
	((ret_value) ? (*(ret_value) = (__VA_ARGS__), CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE)

bool sim_enter(struct sim_call *call, struct sim_entry *entry);
CUresult sim_leave(struct sim_call *call);
struct sim_origin sim_origin(void);
/* The reason of a refusal for the log; hands the error through: return sim_why(CUDA_ERROR_..., "..."); */
CUresult sim_why(CUresult error, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_break_rule(const char *format, ...) __attribute__((format(printf, 1, 2)));
size_t sim_parse_size(const char *text, size_t otherwise);

struct sim_settings {
	int devices;
	_Atomic size_t memory, host_memory, window;
	_Atomic size_t vmm, host_vmm, fill, large, pageable, concurrent_managed, same_pointer, run, reuse, dead_handles,
	    stream_values;
	unsigned peers[SIM_DEVICES_MAX]; /* bits: the devices whose memory that device can reach */
	unsigned pcie[SIM_DEVICES_MAX];  /* bits: those of them that it reaches over PCIe */
	unsigned max_peers;
	_Atomic size_t delay_us, fault_ms, piece_us, pin_us;
	_Atomic size_t map_waits;  /* bits: 1: for copies to devices, 2: for copies to the host */
	_Atomic size_t pool_waste; /* % */
	_Atomic size_t decompress;
	uint64_t seed;
};

struct sim_graph_use {
	size_t made, cached; /* memory of living nodes; kept of ended ones */
	size_t used, used_high, reserved_high;
};
struct sim_device {
	size_t used;              /* physical bytes in use, pools' reserved bytes included */
	size_t managed;           /* bytes of managed pages that are here now, beside those (sim_managed.c) */
	struct CUctx_st *primary; /* made at the first retain, reused ever after */
	unsigned primary_references, primary_flags;
	struct CUmemPoolHandle_st *default_pool, *pool;
	struct sim_graph_use graphs;
};

struct sim {
	pthread_mutex_t lock;
	pthread_cond_t progress; /* some work was done, or something else changed that work may wait for */
	struct sim_settings set;
	bool initialised, held;
	struct sim_device device[SIM_DEVICES_MAX];
	size_t host_used;
	char *window;
	size_t half; /* bytes of device addresses; device d sees p at p + (1 + d) * half */
	char *managed;
	size_t managed_part; /* bytes of managed addresses; device d sees p at p + (1 + d) * managed_part */
	unsigned long calls, broken_rules;
	struct CUctx_st *contexts;
};
extern struct sim sim;

void sim_lock(void);
void sim_unlock(void);
void sim_wait(void);    /* until something changed; the caller looks again */
uint64_t sim_now(void); /* ns, monotonic */

struct sim_thread {
	struct CUctx_st *stack[16];
	unsigned depth, id;
	CUstreamCaptureMode mode; /* cuThreadExchangeStreamCaptureMode */
	struct sim_origin origin;
	char why[256];
};
struct sim_thread *sim_thread(void);
/* Reads the settings, once; but not those of failures: ordering one starts the model itself. */
void sim_start(void);
void sim_fail_read(void);
/* Is this call of it one that is to fail? Under the lock. */
bool sim_fails(struct sim_entry *entry, CUresult *ret_error);

extern struct sim_entry *const __start_sim_entries[] __attribute__((visibility("hidden")));
extern struct sim_entry *const __stop_sim_entries[] __attribute__((visibility("hidden")));

/* ---- sim_range.c: sorted tables of address ranges ---- */

struct sim_range {
	uintptr_t start;
	size_t bytes;
};
struct sim_ranges {
	struct sim_range **at; /* sorted by start, never overlapping */
	size_t n, room;
};
/* The range that holds the address, or NULL. */
struct sim_range *sim_range_at(const struct sim_ranges *set, uintptr_t address);
/* Index of the first range that ends after the address. */
size_t sim_range_index(const struct sim_ranges *set, uintptr_t address);
bool sim_range_free(const struct sim_ranges *set, uintptr_t start, size_t bytes);
void sim_range_add(struct sim_ranges *set, struct sim_range *range);
void sim_range_remove(struct sim_ranges *set, struct sim_range *range);

/* ---- sim_device.c: devices ---- */

CUresult sim_uuid(CUuuid *ret_uuid, CUdevice device);
bool sim_is_device(int device);

/* ---- sim_names.c ---- */

void *sim_export(const char *name); /* the address of an export of ours, or NULL */

#endif
