// SPDX-License-Identifier: Apache-2.0
/*
 * pointer_arrays.c: finds heap addresses in copies from the host, and remembers them as arrays (pointer_arrays.h).
 * Launches look up every address that they name, so a miss must cost next to nothing: arrays are found by the 512-byte
 * lines that they cover (allocators use no finer granularity), in sets of four lines that are read without a lock. A
 * line belongs to the latest array in it. If a line is displaced, the array is no longer found by addresses in that
 * line.
 */
#include "shim/submit/pointer_arrays.h"
#include "shim/submit/types.h"
#include "shim/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MANY       1024 /* addresses of an array that are listed */
#define LINE_SHIFT 9
/* No array is longer: a quarter of all lines. */
#define BYTES_MOST ((size_t)POINTER_ARRAYS_SETS << LINE_SHIFT)
/* If this many bytes hold no address, the array ends, or there is none. */
#define BYTES_WITHOUT ((size_t)65536)
/* A word of a set: the line's number, and below it 9 bits for the number of its table, plus 1. */
#define TABLE_SHIFT 9
#define TABLE_MASK  ((1u << TABLE_SHIFT) - 1)
/*
 * As POINTER_ARRAYS_READ, for a buffer on the stack of a program's thread, which may be small. At most PIPE_BUF, so
 * that a pipe takes it whole.
 */
#define READ_SMALL 4096u
/* Rows of a copy that are searched; each costs a system call. */
#define ROWS_MOST ((size_t)64)
/* The first FIRST functions launched with an array follow it: one, or one that prepares and one that works. */
#define FIRST 2

struct pointer_array {
	CUdeviceptr start, end;
	uint64_t functions[FIRST]; /* those that follow the array */
	unsigned n_functions;
	unsigned n; /* addresses in `at`; if more than MANY, none is listed */
	CUdeviceptr at[];
};

static struct pointer_arrays_state *const arrays = &submit_tables.pointer_arrays;

/* ---- lines ---- */

static _Atomic uint64_t *set_of(uint64_t line)
{
	return arrays->lines[(line * UINT64_C(0x9e3779b97f4a7c15) >> 32) % POINTER_ARRAYS_SETS];
}

/* Returns the table of a line, or -1 if the line is not known. */
static int table_of(uint64_t line)
{
	_Atomic uint64_t *set = set_of(line);

	for (unsigned way = 0; way < POINTER_ARRAYS_WAYS; way++) {
		uint64_t word = atomic_load_explicit(&set[way], memory_order_relaxed);

		if (word && word >> TABLE_SHIFT == line)
			return (int)(word & TABLE_MASK) - 1;
	}
	return -1;
}

static void set_line(uint64_t line, unsigned table)
{
	_Atomic uint64_t *set = set_of(line);
	unsigned at = arrays->next_way++ % POINTER_ARRAYS_WAYS;

	for (unsigned way = 0; way < POINTER_ARRAYS_WAYS; way++) {
		uint64_t word = atomic_load_explicit(&set[way], memory_order_relaxed);

		if (!word)
			at = way;
		if (word >> TABLE_SHIFT == line) {
			at = way;
			break;
		}
	}
	atomic_store_explicit(&set[at], line << TABLE_SHIFT | (table + 1), memory_order_relaxed);
}

static void pointer_arrays_forget(unsigned number)
{
	struct pointer_array *table = arrays->tables[number];

	if (!table)
		return;
	for (uint64_t line = table->start >> LINE_SHIFT; line <= (table->end - 1) >> LINE_SHIFT; line++) {
		_Atomic uint64_t *set = set_of(line);

		for (unsigned way = 0; way < POINTER_ARRAYS_WAYS; way++)
			if (atomic_load_explicit(&set[way], memory_order_relaxed) ==
			    (line << TABLE_SHIFT | (number + 1)))
				atomic_store_explicit(&set[way], 0, memory_order_relaxed);
	}
	free(table);
	arrays->tables[number] = NULL;
}

/* ---- copies ---- */

/* A quick test of all words, without branches: most copies have no address in them. */
static bool any_within(const CUdeviceptr *words, size_t n, CUdeviceptr first, CUdeviceptr bytes)
{
	bool any = false;

	for (size_t i = 0; i < n; i++)
		any |= submission_pointer(words[i]) - first < bytes;
	return any;
}

/* The result of reading memory. */
enum read {
	READ_DONE,
	READ_BAD,     /* not all readable: a bad pointer, which the driver will refuse, or device memory */
	READ_REFUSED, /* the system denies it */
};

static enum read read_by_call(CUdeviceptr from, void *ret_bytes, size_t n)
{
	struct iovec to = {ret_bytes, n}, at = {(void *)(uintptr_t)from, n};

	if (atomic_load_explicit(&arrays->call_refused, memory_order_relaxed))
		return READ_REFUSED;
	ssize_t got = process_vm_readv(getpid(), &to, 1, &at, 1, 0);
	if (got >= 0 || errno == EFAULT)
		return got == (ssize_t)n ? READ_DONE : READ_BAD;
	if (errno == EPERM || errno == ENOSYS)
		atomic_store_explicit(&arrays->call_refused, true, memory_order_relaxed);
	return READ_REFUSED;
}

/*
 * Reads memory through a pipe: write(2) from an unreadable address returns EFAULT and raises no signal. The pipe lives
 * for one call: the program could close a pipe that is kept, and the library would then write to the file that got its
 * number.
 */
static enum read read_by_pipe(CUdeviceptr from, void *ret_bytes, size_t n)
{
	enum read result = READ_DONE;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return READ_REFUSED;
	for (size_t at = 0; at < n && result == READ_DONE;) {
		size_t some = n - at < READ_SMALL ? n - at : READ_SMALL;
		/*
		 * Not write(): ThreadSanitizer would report a race with the program, which may be writing this memory.
		 */
		long put = syscall(SYS_write, ends[1], (uintptr_t)(from + at), some);

		if (put != (long)some)
			result = put >= 0 || errno == EFAULT ? READ_BAD : READ_REFUSED;
		else if (read(ends[0], (char *)ret_bytes + at, some) != (ssize_t)some)
			result = READ_REFUSED;
		at += some;
	}
	close(ends[0]);
	close(ends[1]);
	return result;
}

/* Reads through the kernel, so that an invalid address causes no fault. */
static enum read read_memory(CUdeviceptr from, void *ret_bytes, size_t n)
{
	enum read result = read_by_call(from, ret_bytes, n);

	if (result != READ_REFUSED)
		return result;
	int cancel;
	/* These calls are cancellation points, and a pipe is open. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	result = read_by_pipe(from, ret_bytes, n);
	pthread_setcancelstate(cancel, NULL);
	if (result == READ_REFUSED)
		log_once(
		    "this process may not read its own memory (process_vm_readv and a pipe are both refused): launches "
		    "that name what was copied from the host count as ones that may touch anything");
	return result;
}

/* Makes a table for the array at dst, with room for `listed` addresses. Returns NULL if memory is short. */
static struct pointer_array *new_table(CUdeviceptr dst, size_t bytes, unsigned n, unsigned listed)
{
	struct pointer_array *table = malloc(sizeof(*table) + listed * sizeof(*table->at));

	if (table)
		*table = (struct pointer_array){.start = dst, .end = dst + bytes, .n = n};
	return table;
}

/*
 * Finds the heap addresses among the words of a copy, and returns them in a new table that reaches to the last of them.
 * Returns NULL if there are none, or if memory is short. words: a buffer of n bytes.
 */
static struct pointer_array *find_addresses(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUdeviceptr *words,
					    size_t n)
{
	CUdeviceptr first, span;
	struct pointer_array *table = NULL;
	size_t end = 0;

	submission_heap_span(&first, &span);
	if (!span)
		return NULL;
	if (bytes > BYTES_MOST)
		bytes = BYTES_MOST;
	for (size_t at = 0; bytes - at >= sizeof(*words) && at - end < BYTES_WITHOUT && (!table || table->n <= MANY);) {
		size_t some = bytes - at < n ? (bytes - at) & ~(sizeof(*words) - 1) : n;
		enum read read = read_memory(src + at, words, some);

		if (read != READ_DONE) {
			free(table);
			return read == READ_BAD ? NULL : new_table(dst, bytes, MANY + 1, 0);
		}
		bool any = any_within(words, some / sizeof(*words), first, span);
		for (size_t i = 0; any && i < some / sizeof(*words) && (!table || table->n <= MANY); i++) {
			CUdeviceptr pointer = submission_pointer(words[i]);

			if (!submission_means_heap(pointer))
				continue;
			if (!table && !(table = new_table(dst, 0, 0, MANY + 1)))
				return NULL;
			table->at[table->n++] = pointer;
			end = at + (i + 1) * sizeof(*words);
		}
		at += some;
	}
	if (table)
		table->end = dst + (table->n > MANY ? bytes : end);
	return table;
}

static __attribute__((noinline)) struct pointer_array *find_with_small_room(CUdeviceptr dst, CUdeviceptr src,
									    size_t bytes)
{
	CUdeviceptr words[READ_SMALL / sizeof(CUdeviceptr)];

	return find_addresses(dst, src, bytes, words, sizeof(words));
}

/* One thread at a time uses the large buffer; the others use a small one on their stacks. */
static struct pointer_array *pointer_arrays_find(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	if (bytes <= READ_SMALL || atomic_flag_test_and_set_explicit(&arrays->taken, memory_order_acquire))
		return find_with_small_room(dst, src, bytes);
	struct pointer_array *table = find_addresses(dst, src, bytes, arrays->words, sizeof(arrays->words));
	atomic_flag_clear_explicit(&arrays->taken, memory_order_release);
	return table;
}

static void pointer_arrays_remember(struct pointer_array *table)
{
	unsigned listed = table->n > MANY ? 0 : table->n;
	struct pointer_array *fits = realloc(table, sizeof(*table) + listed * sizeof(*table->at));

	table = fits ? fits : table;
	pointer_arrays_forget(arrays->next_table);
	arrays->tables[arrays->next_table] = table;
	for (uint64_t line = table->start >> LINE_SHIFT; line <= (table->end - 1) >> LINE_SHIFT; line++)
		set_line(line, arrays->next_table);
	arrays->next_table = (arrays->next_table + 1) % POINTER_ARRAYS_TABLES;
	atomic_store(&pointer_arrays_any, true);
}

void pointer_arrays_copied(struct submission *submission, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	int saved = errno;

	if (bytes < sizeof(CUdeviceptr) || submission_is_heap(src))
		return;
	struct pointer_array *table = pointer_arrays_find(dst, src, bytes);
	if (table && table->n > MANY)
		submission_stores(submission, 0);
	for (unsigned i = 0; table && i < table->n && table->n <= MANY; i++)
		submission_stores(submission, table->at[i]);
	if (table || atomic_load(&pointer_arrays_any)) {
		lock_take(&submit_state.pointer_arrays_lock);
		/* The copy overwrites these arrays, or parts of them. */
		for (unsigned i = 0; i < POINTER_ARRAYS_TABLES; i++)
			if (arrays->tables[i] && arrays->tables[i]->start < dst + bytes && arrays->tables[i]->end > dst)
				pointer_arrays_forget(i);
		if (table)
			pointer_arrays_remember(table);
		lock_drop(&submit_state.pointer_arrays_lock);
	}
	errno = saved;
}

/* ---- words that a stream writes ---- */

static bool has_address(const struct pointer_array *table, CUdeviceptr address)
{
	for (unsigned i = 0; i < table->n && table->n <= MANY; i++)
		if (table->at[i] == address)
			return true;
	return table->n > MANY;
}

/* Adds an address to an array, which then has more than MANY if memory is short. */
static void pointer_arrays_add(unsigned number, CUdeviceptr address)
{
	struct pointer_array *table = arrays->tables[number], *more = NULL;

	if (has_address(table, address))
		return;
	if (table->n < MANY)
		more = realloc(table, sizeof(*table) + (table->n + 1) * sizeof(*table->at));
	if (more) {
		arrays->tables[number] = more;
		more->at[more->n++] = address;
	} else {
		table->n = MANY + 1;
	}
}

/* Returns the array that has the line of dst, or ends there, or -1. */
static int array_near(CUdeviceptr dst)
{
	int number = table_of(dst >> LINE_SHIFT), before = table_of((dst - 1) >> LINE_SHIFT);

	if (number < 0 && before >= 0 && arrays->tables[before] && arrays->tables[before]->end == dst)
		number = before;
	if (number < 0 || !arrays->tables[number])
		return -1;
	CUdeviceptr start = dst >> LINE_SHIFT << LINE_SHIFT, end = dst + sizeof(dst);
	start = start < arrays->tables[number]->start ? start : arrays->tables[number]->start;
	end = end > arrays->tables[number]->end ? end : arrays->tables[number]->end;
	return end - start <= BYTES_MOST ? number : -1;
}

/*
 * A kernel is given the beginning of what the words are written into, which is in no line before theirs unless they
 * follow each other.
 */
static void pointer_arrays_put(CUdeviceptr dst, CUdeviceptr address)
{
	CUdeviceptr start = dst >> LINE_SHIFT << LINE_SHIFT, end = dst + sizeof(address);
	int number = array_near(dst);
	struct pointer_array *table = number < 0 ? new_table(start, end - start, 1, 1) : arrays->tables[number];

	if (!table)
		return;
	if (number < 0) {
		table->at[0] = address;
		pointer_arrays_remember(table);
		return;
	}
	set_line(dst >> LINE_SHIFT, (unsigned)number);
	table->start = start < table->start ? start : table->start;
	table->end = end > table->end ? end : table->end;
	/* As after a copy: whoever is given it now follows it. */
	table->n_functions = 0;
	pointer_arrays_add((unsigned)number, address);
}

void pointer_arrays_written(struct submission *submission, CUdeviceptr dst, uint64_t word)
{
	CUdeviceptr pointer = submission_pointer(word);
	int saved = errno;

	if (!submission_means_heap(pointer))
		return;
	submission_stores(submission, pointer);
	lock_take(&submit_state.pointer_arrays_lock);
	pointer_arrays_put(dst, pointer);
	lock_drop(&submit_state.pointer_arrays_lock);
	errno = saved;
}

/* ---- copies in several dimensions ---- */

/*
 * Fills in pitch and height where they are left out and rows and slices are packed. With an offset the packing is not
 * documented (arguments.c), so they stay 0.
 */
static struct pointer_arrays_side packed(const struct pointer_arrays_side *side, const struct copy_extent *extent)
{
	struct pointer_arrays_side known = *side;

	if (!known.place.pitch && !known.place.x)
		known.place.pitch = extent->width;
	if (!known.place.height && !known.place.y)
		known.place.height = extent->height;
	return known;
}

/* Returns true, and sets *ret_first, if there are no gaps between the bytes. */
static bool is_run(const struct pointer_arrays_side *side, const struct copy_extent *extent, CUdeviceptr *ret_first)
{
	size_t bytes, all;

	return !__builtin_mul_overflow(extent->width, extent->height, &all) &&
	       !__builtin_mul_overflow(all, extent->depth, &all) &&
	       copy_extent_range(side->base, &side->place, extent, ret_first, &bytes) && bytes == all;
}

static bool copied_run(struct submission *submission, const struct pointer_arrays_side *dst,
		       const struct pointer_arrays_side *src, const struct copy_extent *extent)
{
	CUdeviceptr to, from;

	if (!is_run(dst, extent, &to) || !is_run(src, extent, &from))
		return false;
	pointer_arrays_copied(submission, to, from, extent->width * extent->height * extent->depth);
	return true;
}

void pointer_arrays_copied_box(struct submission *submission, const struct pointer_arrays_side *dst,
			       const struct pointer_arrays_side *src, const struct copy_extent *extent)
{
	struct pointer_arrays_side to = packed(dst, extent), from = packed(src, extent);
	size_t rows;

	if (extent->width < sizeof(CUdeviceptr) || copied_run(submission, &to, &from, extent) ||
	    __builtin_mul_overflow(extent->height, extent->depth, &rows) || rows > ROWS_MOST)
		return;
	for (size_t z = 0; z < extent->depth; z++) {
		for (size_t y = 0; y < extent->height; y++) {
			struct pointer_arrays_side to_row = to, from_row = from;

			to_row.place.y += y;
			to_row.place.z += z;
			from_row.place.y += y;
			from_row.place.z += z;
			copied_run(submission, &to_row, &from_row, &(struct copy_extent){extent->width, 1, 1});
		}
	}
}

/* ---- launches ---- */

static bool follows(struct pointer_array *table, uint64_t function)
{
	for (unsigned i = 0; i < table->n_functions; i++)
		if (table->functions[i] == function)
			return true;
	if (table->n_functions == FIRST)
		return false;
	table->functions[table->n_functions++] = function;
	return true;
}

void pointer_arrays_look(struct submission *submission, CUdeviceptr address,
			 void (*name)(struct submission *submission, CUdeviceptr address))
{
	int number = table_of(address >> LINE_SHIFT);

	if (number < 0)
		return;
	lock_take(&submit_state.pointer_arrays_lock);
	struct pointer_array *table = arrays->tables[number];
	if (table && address >= table->start && address < table->end &&
	    (name || follows(table, submission_what(submission)))) {
		if (table->n > MANY)
			submission_unknown(submission);
		for (unsigned i = 0; i < table->n && table->n <= MANY; i++) {
			if (name)
				name(submission, table->at[i]);
			else
				submission_name(submission, table->at[i], 0);
		}
	}
	lock_drop(&submit_state.pointer_arrays_lock);
}
