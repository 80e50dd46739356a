// SPDX-License-Identifier: Apache-2.0
/* arguments.c: what arguments of calls, and parameters of graph nodes, mean (arguments.h). */
#include "shim/submit/arguments.h"
#include "shim/base/log.h"
#include "shim/stats/stats.h"
#include "shim/submit/types.h"

#include <errno.h>
#include <string.h>

/* ---- parameters of kernels ---- */

/*
 * The cache of parameter layouts and names: a fixed table of slots, found by hash
 * and read without a lock. The last writer of a slot determines its function. A reader copies the slot, then checks
 * that the slot's sequence number was even and has not changed. So a layout is never used while it changes, and the
 * memory of a slot is never reused for anything else. Writes are rare (the first launch of a function); only one thread
 * writes at a time, and a thread that finds another one writing does not cache its layout.
 *
 * All layouts are dropped by one increment: a slot is valid only in the generation in which its layout was queried. A
 * layout that is queried while a module is unloaded carries the generation from before the unloading or from during it;
 * both are past when the unloading is complete.
 *
 * A function's name lies beside its slot, as a copy, because the driver's string is freed with the module. The name is
 * read for messages and the trace only, and is not dropped with the layout: if the handle is reused, the new function's
 * name is queried.
 *
 * Measured (H200, driver 580): the query of one parameter takes 10 ns, and the query that finds no more parameters
 * 650 ns.
 */

#define WAYS 4 /* slots that a function may use, from its home slot on */

/* As the number of runs: there are more than KERNEL_PARAMS_RUNS. */
#define IS_LONG UINT32_MAX

/* A launch carries at most 32764 bytes of parameters (CUDA 12.1 on; 4 KiB before), so no function has more of them. */
#define MOST_PARAMS 32764

_Static_assert(sizeof(struct kernel_params_run) == sizeof(uint64_t), "a run is read and written as one word");

_Static_assert(KERNEL_PARAMS_NAME % sizeof(uint64_t) == 0, "a name is read and written by words");

void kernel_params_drop(void)
{
	atomic_fetch_add_explicit(&submit_state.kernel_params_generation, 1, memory_order_acq_rel);
}

uint64_t kernel_params_generation(void)
{
	return atomic_load_explicit(&submit_state.kernel_params_generation, memory_order_acquire);
}

/*
 * The acquire loads keep the second read of the sequence number behind them, as the release stores in
 * kernel_params_fill() keep the odd number before them. A fence would do, but ThreadSanitizer does not understand
 * fences. On x86-64 these loads and stores are plain moves.
 */
static bool copy_slot(struct kernel_params_slot *slot, uint64_t function, uint64_t now,
		      struct kernel_params *ret_layout)
{
	uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);

	if (atomic_load_explicit(&slot->function, memory_order_acquire) != function || sequence & 1 ||
	    atomic_load_explicit(&slot->generation, memory_order_acquire) != now)
		return false;
	uint32_t n = atomic_load_explicit(&slot->n, memory_order_acquire);
	for (uint32_t i = 0; n != IS_LONG && i < n; i++) {
		uint64_t run = atomic_load_explicit(&slot->run[i], memory_order_acquire);
		memcpy(&ret_layout->run[i], &run, sizeof(run));
	}
	ret_layout->n = n;
	return atomic_load_explicit(&slot->sequence, memory_order_relaxed) == sequence;
}

/* Returns the parameters of a layout, as bits, if each is one word, else 0. */
static uint64_t plain_of(const struct kernel_params *layout)
{
	uint64_t plain = 0;

	for (unsigned i = 0; i < layout->n && layout->n != IS_LONG; i++) {
		struct kernel_params_run run = layout->run[i];

		if (run.words != 1 || run.first + run.count > 64)
			return 0;
		for (unsigned param = run.first; param < run.first + (unsigned)run.count; param++)
			plain |= UINT64_C(1) << param;
	}
	return plain;
}

static void kernel_params_fill(struct kernel_params_slot *slot, uint64_t function, uint64_t asked_in,
			       const struct kernel_params *layout, const char name[KERNEL_PARAMS_NAME])
{
	uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_relaxed), n = layout->n;

	atomic_store_explicit(&slot->sequence, sequence + 1, memory_order_relaxed);
	atomic_store_explicit(&slot->function, function, memory_order_release);
	atomic_store_explicit(&slot->generation, asked_in, memory_order_release);
	atomic_store_explicit(&slot->n, n, memory_order_release);
	atomic_store_explicit(&slot->plain, plain_of(layout), memory_order_release);
	for (uint32_t i = 0; n != IS_LONG && i < n; i++) {
		uint64_t run;
		memcpy(&run, &layout->run[i], sizeof(run));
		atomic_store_explicit(&slot->run[i], run, memory_order_release);
	}
	for (size_t i = 0; i < KERNEL_PARAMS_NAME_WORDS; i++) {
		uint64_t word;
		memcpy(&word, name + i * sizeof(word), sizeof(word));
		atomic_store_explicit(&submit_tables.kernel_params.names[slot - submit_tables.kernel_params.slots][i],
				      word, memory_order_release);
	}
	atomic_store_explicit(&slot->sequence, sequence + 2, memory_order_release);
}

/*
 * Stores a layout in the function's present slot if it has one, else in a slot of another generation, else in one of
 * the function's slots in turn, which displaces another function.
 */
static void kernel_params_remember(uint64_t function, uint64_t asked_in, const struct kernel_params *layout,
				   const char name[KERNEL_PARAMS_NAME])
{
	struct kernel_params_slot *place = NULL;

	if (atomic_flag_test_and_set_explicit(&submit_tables.kernel_params.writing, memory_order_acquire))
		return;
	for (unsigned way = 0; way < WAYS; way++) {
		struct kernel_params_slot *slot = kernel_params_slot_of(function, way);

		if (atomic_load_explicit(&slot->function, memory_order_relaxed) == function) {
			place = slot;
			break;
		}
		if (!place && atomic_load_explicit(&slot->generation, memory_order_relaxed) != asked_in)
			place = slot;
	}
	kernel_params_fill(place ? place : kernel_params_slot_of(function, submit_tables.kernel_params.turn++ % WAYS),
			   function, asked_in, layout, name);
	atomic_flag_clear_explicit(&submit_tables.kernel_params.writing, memory_order_release);
}

/*
 * Returns where in a parameter an address can be. A type with an 8-byte member, laid out as the language does, starts
 * at a multiple of 8 and has a size that is a multiple of 8: each of its 8-byte words can be an address. Any other type
 * can hold an address only if it is packed; its words are read every 4 bytes. Fewer than 8 bytes hold none.
 *
 * Not found are pointers at an odd multiple of 4 in a packed structure whose size happens to be a multiple of 8, and
 * pointers that are not even at a multiple of 4.
 */
static struct kernel_params_run run_of(unsigned index, size_t offset, size_t bytes)
{
	uint16_t step = offset % 8 || bytes % 8 ? 4 : 8;
	uint16_t words = bytes < 8 || bytes > MOST_PARAMS ? 0 : (uint16_t)((bytes - 8) / step + 1);

	return (struct kernel_params_run){(uint16_t)index, 1, words, step};
}

/*
 * Queries one parameter. The driver has one function for each of the two kinds of handle; each refuses the other kind,
 * and invalid handles, with INVALID_HANDLE. The runtime library of CUDA 13, static or not, launches every kernel by its
 * CUkernel.
 */
static CUresult kernel_params_ask(CUfunction function, unsigned index, struct kernel_params_run *ret_run,
				  bool *ret_is_kernel)
{
	size_t offset = 0, bytes = 0;
	int saved = errno;
	CUresult result = REAL(cuFuncGetParamInfo)(function, index, &offset, &bytes);

	*ret_is_kernel = result == CUDA_ERROR_INVALID_HANDLE;
	if (*ret_is_kernel)
		result = REAL(cuKernelGetParamInfo)((CUkernel)function, index, &offset, &bytes);
	if (result == CUDA_SUCCESS)
		*ret_run = run_of(index, offset, bytes);
	errno = saved;
	return result;
}

bool kernel_params_one(CUfunction function, unsigned index, struct kernel_params_run *ret_run)
{
	bool is_kernel;

	return index < MOST_PARAMS && kernel_params_ask(function, index, ret_run, &is_kernel) == CUDA_SUCCESS;
}

/* Returns false if the layout is full. */
static bool kernel_params_append(struct kernel_params *layout, struct kernel_params_run run)
{
	struct kernel_params_run *last = layout->n ? &layout->run[layout->n - 1] : NULL;

	if (!run.words)
		return true;
	if (last && last->first + last->count == run.first && last->words == run.words && last->step == run.step) {
		last->count++;
		return true;
	}
	if (layout->n == KERNEL_PARAMS_RUNS)
		return false;
	layout->run[layout->n++] = run;
	return true;
}

static enum kernel_params_answer ask_all(CUfunction function, struct kernel_params *ret_layout, bool *ret_is_kernel)
{
	struct kernel_params_run run;
	CUresult result;

	ret_layout->n = 0;
	for (unsigned i = 0; i < MOST_PARAMS; i++) {
		result = kernel_params_ask(function, i, &run, ret_is_kernel);
		if (result == CUDA_ERROR_INVALID_VALUE)
			break;
		if (result == CUDA_SUCCESS && kernel_params_append(ret_layout, run))
			continue;
		if (result == CUDA_SUCCESS) {
			ret_layout->n = IS_LONG;
			return KERNEL_PARAMS_LONG;
		}
		if (result == CUDA_ERROR_NOT_FOUND)
			log_once("this driver does not tell what kernels take (12.4 and newer do): nothing moves "
				 "while a kernel runs");
		else
			log_once("it is not known what the kernel %p takes: cuFuncGetParamInfo answered %s; nothing "
				 "moves while it runs",
				 (void *)function, real_error_name(result));
		return KERNEL_PARAMS_UNKNOWN;
	}
	return KERNEL_PARAMS_KNOWN;
}

/* ---- names ---- */

/*
 * The name functions exist since 12.3 only, and serve messages, the trace and checks. hooks.def has them as exempt: the
 * driver's resolver is asked for them, at the first launch of a function and by checks.
 */
static const char *ask_name(CUfunction function, bool is_kernel)
{
	const char *symbol = is_kernel ? "cuKernelGetName" : "cuFuncGetName", *name = NULL;
	CUresult(CUDAAPI * ask_for)(const char **name, CUfunction function);
	CUdriverProcAddressQueryResult status;
	CUresult result = CUDA_ERROR_NOT_FOUND;
	void *address = NULL;
	int saved = errno;

	if (function && REAL(cuGetProcAddress_v2)(symbol, &address, 12030, 0, &status) == CUDA_SUCCESS && address) {
		memcpy(&ask_for, &address, sizeof(ask_for));
		result = ask_for(&name, function);
	}
	errno = saved;
	return result == CUDA_SUCCESS ? name : NULL;
}

const char *kernel_params_full_name(CUfunction function)
{
	struct kernel_params_run unused;
	bool is_kernel;

	kernel_params_ask(function, 0, &unused, &is_kernel);
	return ask_name(function, is_kernel);
}

bool kernel_params_name(uint64_t function, char ret_name[KERNEL_PARAMS_NAME])
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct kernel_params_slot *slot = kernel_params_slot_of(function, way);
		uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);

		if (atomic_load_explicit(&slot->function, memory_order_acquire) != function || sequence & 1)
			continue;
		for (size_t i = 0; i < KERNEL_PARAMS_NAME_WORDS; i++) {
			uint64_t word = atomic_load_explicit(
			    &submit_tables.kernel_params.names[slot - submit_tables.kernel_params.slots][i],
			    memory_order_acquire);
			memcpy(ret_name + i * sizeof(word), &word, sizeof(word));
		}
		if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) == sequence && ret_name[0])
			return true;
	}
	return false;
}

static bool find_cached(uint64_t function, uint64_t now, struct kernel_params *ret_layout)
{
	for (unsigned way = 0; way < WAYS; way++)
		if (copy_slot(kernel_params_slot_of(function, way), function, now, ret_layout))
			return true;
	return false;
}

bool kernel_params_cached(CUfunction function, struct kernel_params *ret_layout)
{
	return find_cached((uintptr_t)function, kernel_params_generation(), ret_layout) && ret_layout->n != IS_LONG;
}

enum kernel_params_answer kernel_params_get(CUfunction function, struct kernel_params *ret_layout)
{
	uint64_t key = (uint64_t)(uintptr_t)function;
	uint64_t now = kernel_params_generation();

	if (find_cached(key, now, ret_layout))
		return ret_layout->n == IS_LONG ? KERNEL_PARAMS_LONG : KERNEL_PARAMS_KNOWN;
	bool is_kernel;
	enum kernel_params_answer answer = ask_all(function, ret_layout, &is_kernel);
	if (answer != KERNEL_PARAMS_UNKNOWN) {
		const char *full = ask_name(function, is_kernel);
		char name[KERNEL_PARAMS_NAME] = "";

		if (full)
			memcpy(name, full, strnlen(full, KERNEL_PARAMS_NAME - 1));
		kernel_params_remember(key, now, ret_layout, name);
	}
	return answer;
}

bool kernel_params_buffer(void *const *extra, const char **ret_buffer, size_t *ret_bytes)
{
	const char *buffer = NULL;
	const size_t *bytes = NULL;

	/* Only these two entries are allowed in the list. */
	for (; extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER || extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else
			bytes = extra[1];
	}
	*ret_buffer = bytes && *bytes <= MOST_PARAMS ? buffer : NULL;
	*ret_bytes = *ret_buffer ? *bytes : 0;
	return extra[0] == CU_LAUNCH_PARAM_END;
}

/* ---- extents of copies ---- */

/* Computes base + z * slice + y * pitch + x. Returns false if that is not an address. */
static bool copy_extent_advance(CUdeviceptr base, size_t slice, size_t pitch, size_t z, size_t y, size_t x,
				CUdeviceptr *ret_at)
{
	size_t slices, rows;

	return !__builtin_mul_overflow(z, slice, &slices) && !__builtin_mul_overflow(y, pitch, &rows) &&
	       !__builtin_add_overflow(base, slices, &base) && !__builtin_add_overflow(base, rows, &base) &&
	       !__builtin_add_overflow(base, x, ret_at);
}

/*
 * If pitch or height is left out, rows and slices are packed. Whether the offset counts in the packed size is not
 * documented, so the range then reaches from the lowest possible byte to the highest.
 * Measured (H200, driver 580): 2D and 3D copies accept 0 for both.
 */
bool copy_extent_range(CUdeviceptr base, const struct copy_extent_place *place, const struct copy_extent *extent,
		       CUdeviceptr *ret_first, size_t *ret_bytes)
{
	size_t pitch = place->pitch, height = place->height, slice;
	CUdeviceptr first, last;

	*ret_bytes = 0;
	if (!extent->width || !extent->height || !extent->depth)
		return true;
	if (!pitch && __builtin_add_overflow(place->x, extent->width, &pitch))
		return false;
	if (!height && __builtin_add_overflow(place->y, extent->height, &height))
		return false;
	if (__builtin_mul_overflow(pitch, height, &slice)) {
		/* With only the first slice neither matters beyond the checks below, and both may have any value. */
		if (extent->depth > 1 || place->z)
			return false;
		slice = 0;
	}
	if (!copy_extent_advance(base, place->pitch && place->height ? slice : 0, place->pitch, place->z, place->y,
				 place->x, &first) ||
	    !copy_extent_advance(base, slice, pitch, place->z, place->y, place->x, &last) ||
	    !copy_extent_advance(last, slice, pitch, extent->depth - 1, extent->height - 1, extent->width - 1, &last) ||
	    last - first == SIZE_MAX)
		return false;
	*ret_first = first;
	*ret_bytes = last - first + 1;
	return true;
}

/* ---- memory operations of streams ---- */

bool memory_operation(const CUstreamBatchMemOpParams *operation, CUdeviceptr *ret_address, size_t *ret_bytes,
		      uint64_t *ret_word)
{
	*ret_address = operation->waitValue.address; /* it has the same offset in all of them */
	*ret_bytes = 0;
	*ret_word = 0;
	switch (operation->operation) {
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		*ret_word = operation->writeValue.value64;
		*ret_bytes = 8;
		return true;
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		*ret_bytes = 8;
		return true;
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		*ret_bytes = 4;
		return true;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
	case CU_STREAM_MEM_OP_BARRIER:
		return true;
	default:
		return false;
	}
}

/* ---- overlap of launches ---- */

/*
 * The most attributes of a launch that are copied, on the stack, 72 bytes each. CUDA 13.0 has 15 attributes for
 * launches, so a launch with more than this limit repeats some; it is passed on unchanged.
 */
#define ATTRIBUTES_MOST 32

void pdl_start(enum policy_pdl setting)
{
	atomic_store(&submit_state.pdl_setting, setting);
	if (setting == POLICY_PDL_OFF)
		atomic_store(&pdl_cleared, true);
}

void pdl_spilled(void)
{
	if (!pdl_is_cleared() && atomic_load(&submit_state.pdl_setting) == POLICY_PDL_AUTO)
		atomic_store(&pdl_cleared, true);
}

static bool is_overlap(const CUlaunchAttribute *attribute)
{
	return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
	       attribute->value.programmaticStreamSerializationAllowed;
}

/* Returns true if the launch asks for overlap. Counts launches with programmatic or launch-completion events. */
static bool pdl_look(const CUlaunchConfig *config)
{
	bool overlaps = false, has_event = false;

	for (unsigned i = 0; i < config->numAttrs; i++) {
		overlaps |= is_overlap(&config->attrs[i]);
		has_event |= config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
			     config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
	}
	if (has_event)
		stats_add(STAT_pdl_events, 1);
	return overlaps;
}

CUresult pdl_launch(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function, void **params,
		    void **extra)
{
	CUlaunchAttribute attributes[ATTRIBUTES_MOST];

	/* Invalid arguments are left for the driver to refuse. */
	if (!config || !config->numAttrs || !config->attrs || !pdl_look(config))
		return launch(config, function, params, extra);
	if (config->numAttrs > ATTRIBUTES_MOST) {
		log_once("a launch with %u attributes keeps its programmatic overlap: at most %d are looked at",
			 config->numAttrs, ATTRIBUTES_MOST);
		return launch(config, function, params, extra);
	}
	memcpy(attributes, config->attrs, config->numAttrs * sizeof(*attributes));
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (is_overlap(&attributes[i]))
			attributes[i].value.programmaticStreamSerializationAllowed = 0;
	CUlaunchConfig serial = *config;
	serial.attrs = attributes;
	stats_add(STAT_pdl_cleared, 1);
	return launch(&serial, function, params, extra);
}
