/*
 * A fixed table of slots, found by hash. A slot belongs to whom writes it last; it is read without a lock: the reader
 * takes a copy and then looks whether the slot's sequence number has stayed the same and even. So a layout is never
 * used while it changes, and a slot's memory is never anything else than a slot. Writers are rare (the first launch of
 * a function); there is one at a time, and one that finds another at work does without.
 *
 * Dropping everything is one increment: a slot holds only in the generation that it was asked in. A layout that is
 * asked for while a module goes away carries the generation from before, or from during the unloading, and both have
 * passed when the unloading is over.
 *
 * A function's name lies beside its slot, as a copy: the driver's own goes with the module. It is only read for a last
 * message, and is not dropped with the layout: whoever gets the handle next is asked for his own name.
 *
 * Why it is worth it: on an H200 with driver 580, asking for one parameter takes 10 ns, and learning that there are no
 * more takes 650 ns.
 */
#include "shim/submit/kernel_params.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define SLOT_BITS 12 /* 4096 functions, 1 MiB, of which only what is used is ever touched */
#define WAYS      4  /* slots in which a function may be, from its own one on */

/* In place of a number of runs. */
#define IS_LONG UINT32_MAX

/* A launch carries at most 32764 bytes of parameters (CUDA 12.1 on; 4 KiB before), so no function has more of them. */
#define MOST_PARAMS 32764

static struct slot {
	_Atomic uint32_t sequence; /* odd: being written */
	_Atomic uint32_t n;
	_Atomic uint64_t function, generation;
	_Atomic uint64_t run[KERNEL_PARAMS_RUNS];
} __attribute__((aligned(64))) slots[1 << SLOT_BITS];

_Static_assert(sizeof(struct slot) == 256, "four cache lines");
_Static_assert(sizeof(struct kernel_params_run) == sizeof(uint64_t), "a run is read and written as one word");

/* Of the functions in the slots; written and read under their sequence numbers. */
#define NAME_WORDS (KERNEL_PARAMS_NAME / sizeof(uint64_t))
static _Atomic uint64_t names[1 << SLOT_BITS][NAME_WORDS];

_Static_assert(KERNEL_PARAMS_NAME % sizeof(uint64_t) == 0, "a name is read and written by words");

static _Atomic uint64_t generation = 1; /* an empty slot is of generation 0 */
static atomic_flag writing = ATOMIC_FLAG_INIT;

static struct slot *slot_of(uint64_t function, unsigned way)
{
	uint64_t home = (function * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - SLOT_BITS);

	return &slots[(home + way) & ((1u << SLOT_BITS) - 1)];
}

void kernel_params_drop(void)
{
	atomic_fetch_add_explicit(&generation, 1, memory_order_acq_rel);
}

uint64_t kernel_params_generation(void)
{
	return atomic_load_explicit(&generation, memory_order_acquire);
}

/*
 * The acquiring loads keep the second look at the sequence number behind them, as the releasing stores in kernel_params_fill() keep
 * the odd number before them: no fence, which ThreadSanitizer does not understand. On x86-64 they are plain moves.
 */
static bool copy_slot(struct slot *slot, uint64_t function, uint64_t now, struct kernel_params *ret_layout,
		      uint32_t *ret_n)
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
	*ret_n = n;
	return atomic_load_explicit(&slot->sequence, memory_order_relaxed) == sequence;
}

static void kernel_params_fill(struct slot *slot, uint64_t function, uint64_t asked_in,
			       const struct kernel_params *layout, uint32_t n, const char name[KERNEL_PARAMS_NAME])
{
	uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_relaxed);

	atomic_store_explicit(&slot->sequence, sequence + 1, memory_order_relaxed);
	atomic_store_explicit(&slot->function, function, memory_order_release);
	atomic_store_explicit(&slot->generation, asked_in, memory_order_release);
	atomic_store_explicit(&slot->n, n, memory_order_release);
	for (uint32_t i = 0; n != IS_LONG && i < n; i++) {
		uint64_t run;
		memcpy(&run, &layout->run[i], sizeof(run));
		atomic_store_explicit(&slot->run[i], run, memory_order_release);
	}
	for (size_t i = 0; i < NAME_WORDS; i++) {
		uint64_t word;
		memcpy(&word, name + i * sizeof(word), sizeof(word));
		atomic_store_explicit(&names[slot - slots][i], word, memory_order_release);
	}
	atomic_store_explicit(&slot->sequence, sequence + 2, memory_order_release);
}

/* Its own slot if it has one, else one that nobody needs any more, else another function's, each in its turn. */
static void kernel_params_remember(uint64_t function, uint64_t asked_in, const struct kernel_params *layout, uint32_t n,
				   const char name[KERNEL_PARAMS_NAME])
{
	static unsigned turn;
	struct slot *place = NULL;

	if (atomic_flag_test_and_set_explicit(&writing, memory_order_acquire))
		return;
	for (unsigned way = 0; way < WAYS; way++) {
		struct slot *slot = slot_of(function, way);

		if (atomic_load_explicit(&slot->function, memory_order_relaxed) == function) {
			place = slot;
			break;
		}
		if (!place && atomic_load_explicit(&slot->generation, memory_order_relaxed) != asked_in)
			place = slot;
	}
	kernel_params_fill(place ? place : slot_of(function, turn++ % WAYS), function, asked_in, layout, n, name);
	atomic_flag_clear_explicit(&writing, memory_order_release);
}

/*
 * Where in a parameter can an address be? Something that has an 8-byte member, laid out as the language does, starts at
 * a multiple of 8 and is a multiple of 8 long: each of its 8-byte words. What is not so can hold an address only if it
 * is packed; those are looked at every 4 bytes. Less than 8 bytes hold none.
 *
 * Not found: a pointer at an odd multiple of 4 in a packed structure that happens to be a multiple of 8 long, and one
 * that is not even at a multiple of 4.
 */
static struct kernel_params_run run_of(unsigned index, size_t offset, size_t bytes)
{
	uint16_t step = offset % 8 || bytes % 8 ? 4 : 8;
	uint16_t words = bytes < 8 || bytes > MOST_PARAMS ? 0 : (uint16_t)((bytes - 8) / step + 1);

	return (struct kernel_params_run){(uint16_t)index, 1, words, step};
}

/*
 * The driver has two functions for the two kinds of handle, and each refuses the other's (and anything that is none) as
 * INVALID_HANDLE. The runtime library of CUDA 13, static or not, launches every kernel by its CUkernel.
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

/* Returns false when there is no more room. */
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
		if (result == CUDA_SUCCESS)
			return KERNEL_PARAMS_LONG;
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
 * Empty when the driver does not say. Its name functions are as new as 12.3 and wanted for a last message only, so they
 * have no row: the driver's own resolver is asked for them, at the first launch of a function.
 */
static void ask_name(CUfunction function, bool is_kernel, char ret_name[KERNEL_PARAMS_NAME])
{
	const char *symbol = is_kernel ? "cuKernelGetName" : "cuFuncGetName", *name = NULL;
	CUresult(CUDAAPI * ask_for)(const char **name, CUfunction function);
	CUdriverProcAddressQueryResult status;
	void *address = NULL;
	int saved = errno;

	memset(ret_name, 0, KERNEL_PARAMS_NAME);
	if (function && REAL(cuGetProcAddress_v2)(symbol, &address, 12030, 0, &status) == CUDA_SUCCESS && address) {
		memcpy(&ask_for, &address, sizeof(ask_for));
		if (ask_for(&name, function) == CUDA_SUCCESS && name)
			memcpy(ret_name, name, strnlen(name, KERNEL_PARAMS_NAME - 1));
	}
	errno = saved;
}

bool kernel_params_name(uint64_t function, char ret_name[KERNEL_PARAMS_NAME])
{
	for (unsigned way = 0; way < WAYS; way++) {
		struct slot *slot = slot_of(function, way);
		uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);

		if (atomic_load_explicit(&slot->function, memory_order_acquire) != function || sequence & 1)
			continue;
		for (size_t i = 0; i < NAME_WORDS; i++) {
			uint64_t word = atomic_load_explicit(&names[slot - slots][i], memory_order_acquire);
			memcpy(ret_name + i * sizeof(word), &word, sizeof(word));
		}
		if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) == sequence && ret_name[0])
			return true;
	}
	return false;
}

enum kernel_params_answer kernel_params_get(CUfunction function, struct kernel_params *ret_layout)
{
	uint64_t key = (uint64_t)(uintptr_t)function;
	uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
	uint32_t n;

	for (unsigned way = 0; way < WAYS; way++) {
		if (!copy_slot(slot_of(key, way), key, now, ret_layout, &n))
			continue;
		ret_layout->n = n;
		return n == IS_LONG ? KERNEL_PARAMS_LONG : KERNEL_PARAMS_KNOWN;
	}
	bool is_kernel;
	enum kernel_params_answer answer = ask_all(function, ret_layout, &is_kernel);
	if (answer != KERNEL_PARAMS_UNKNOWN) {
		char name[KERNEL_PARAMS_NAME];

		ask_name(function, is_kernel, name);
		kernel_params_remember(key, now, ret_layout, answer == KERNEL_PARAMS_LONG ? IS_LONG : ret_layout->n,
				       name);
	}
	return answer;
}
