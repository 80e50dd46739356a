/*
 * Launches ask for every pointer they name, so the answer "no" must cost next to nothing: arrays are found by the lines
 * of 512 bytes they cover (allocators give out no finer), in sets of four that are read without a lock. A line belongs to
 * the latest array in it, and one that is crowded out takes the knowledge of its array along, for its own addresses.
 */
#include "shim/submit/pointer_arrays.h"
#include "shim/base/lock.h"
#include "shim/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MANY       1024 /* addresses */
#define TABLES     256
#define LINE_SHIFT 9
#define SETS       512
#define WAYS       4
/* No array is longer: a quarter of all lines. */
#define BYTES_MOST ((size_t)SETS << LINE_SHIFT)
/* So much without an address is the end of the array, or no array at all. */
#define BYTES_WITHOUT ((size_t)65536)
/* A line's number, and 9 bits for the number of its table, plus 1. */
#define TABLE_SHIFT 9
#define TABLE_MASK  ((1u << TABLE_SHIFT) - 1)
/* Read at once: a system call costs more than reading some pages more. */
#define READ_MOST 16384u
/* The same on the stack of a thread of the program's, which may be small; PIPE_BUF, so that a pipe takes it whole. */
#define READ_SMALL 4096u
/* Each costs a system call. */
#define ROWS_MOST ((size_t)64)
/* So many launches after the copy say which functions follow an array: one, or one that prepares and one that works. */
#define FIRST 2

struct table {
	CUdeviceptr start, end;
	uint64_t functions[FIRST]; /* that follow it, */
	unsigned n_functions;      /* as far as they are known */
	unsigned n;                /* more than MANY: too many to be listed */
	CUdeviceptr at[];
};

_Atomic bool pointer_arrays_any;
static struct lock lock = LOCK_INIT(LOCK_POINTER_ARRAYS);
static struct table *tables[TABLES];
static unsigned next_table;
static unsigned next_way;
static _Atomic uint64_t lines[SETS][WAYS];

/* ---- lines ---- */

static _Atomic uint64_t *set_of(uint64_t line)
{
	return lines[(line * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SETS];
}

/* The table that a line belongs to; -1: none is known. */
static int table_of(uint64_t line)
{
	_Atomic uint64_t *set = set_of(line);

	for (unsigned way = 0; way < WAYS; way++) {
		uint64_t word = atomic_load_explicit(&set[way], memory_order_relaxed);

		if (word && word >> TABLE_SHIFT == line)
			return (int)(word & TABLE_MASK) - 1;
	}
	return -1;
}

static void set_line(uint64_t line, unsigned table)
{
	_Atomic uint64_t *set = set_of(line);
	unsigned at = next_way++ % WAYS;

	for (unsigned way = 0; way < WAYS; way++) {
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
	struct table *table = tables[number];

	if (!table)
		return;
	for (uint64_t line = table->start >> LINE_SHIFT; line <= (table->end - 1) >> LINE_SHIFT; line++) {
		_Atomic uint64_t *set = set_of(line);

		for (unsigned way = 0; way < WAYS; way++)
			if (atomic_load_explicit(&set[way], memory_order_relaxed) ==
			    (line << TABLE_SHIFT | (number + 1)))
				atomic_store_explicit(&set[way], 0, memory_order_relaxed);
	}
	free(table);
	tables[number] = NULL;
}

/* ---- what was copied ---- */

/* Most copies have no address in them: this is all that is done with their words. */
static bool any_within(const CUdeviceptr *words, size_t n, CUdeviceptr first, CUdeviceptr bytes)
{
	bool any = false;

	for (size_t i = 0; i < n; i++)
		any |= words[i] - first < bytes;
	return any;
}

/* How reading memory went. */
enum read {
	READ_DONE,
	READ_BAD, /* it is not all readable: a bad pointer, which is the driver's to refuse, or memory of a device */
	READ_REFUSED, /* the system does not let us */
};

/* Is process_vm_readv() refused for good? Seccomp filters answer EPERM, emulators ENOSYS. */
static atomic_bool call_refused;

static enum read read_by_call(CUdeviceptr from, void *ret_bytes, size_t n)
{
	struct iovec to = {ret_bytes, n}, at = {(void *)(uintptr_t)from, n};

	if (atomic_load_explicit(&call_refused, memory_order_relaxed))
		return READ_REFUSED;
	ssize_t got = process_vm_readv(getpid(), &to, 1, &at, 1, 0);
	if (got >= 0 || errno == EFAULT)
		return got == (ssize_t)n ? READ_DONE : READ_BAD;
	if (errno == EPERM || errno == ENOSYS)
		atomic_store_explicit(&call_refused, true, memory_order_relaxed);
	return READ_REFUSED;
}

/*
 * The other way: write(2) from an address that cannot be read is EFAULT, no signal. The pipe lives for one call: one that
 * was kept could be closed by the program, and what we wrote would land in the file that got its number.
 */
static enum read read_by_pipe(CUdeviceptr from, void *ret_bytes, size_t n)
{
	enum read result = READ_DONE;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return READ_REFUSED;
	for (size_t at = 0; at < n && result == READ_DONE;) {
		size_t some = n - at < READ_SMALL ? n - at : READ_SMALL;
		/* Not write(): the thread sanitizer would take what the program may be writing just now for a race of ours. */
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

/* By way of the kernel, so that no address is a bad one. */
static enum read read_memory(CUdeviceptr from, void *ret_bytes, size_t n)
{
	enum read result = read_by_call(from, ret_bytes, n);

	if (result != READ_REFUSED)
		return result;
	int cancel;
	/* Cancellation points, with a pipe open. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	result = read_by_pipe(from, ret_bytes, n);
	pthread_setcancelstate(cancel, NULL);
	if (result == READ_REFUSED)
		log_once(
		    "this process may not read its own memory (process_vm_readv and a pipe are both refused): launches "
		    "that name what was copied from the host count as ones that may touch anything");
	return result;
}

/* The array that a copy brings to dst, with room for so many addresses. NULL: there is no memory for it. */
static struct table *new_table(CUdeviceptr dst, size_t bytes, unsigned n, unsigned listed)
{
	struct table *table = malloc(sizeof(*table) + listed * sizeof(*table->at));

	if (table)
		*table = (struct table){.start = dst, .end = dst + bytes, .n = n};
	return table;
}

/*
 * The addresses of heaps among the words of a copy, in a table of their own, which reaches to the last of them. NULL:
 * there are none, or no memory for it. words: room for n bytes.
 */
static struct table *find_addresses(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUdeviceptr *words, size_t n)
{
	CUdeviceptr first, span;
	struct table *table = NULL;
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
			if (!submission_is_heap(words[i]))
				continue;
			if (!table && !(table = new_table(dst, 0, 0, MANY + 1)))
				return NULL;
			table->at[table->n++] = words[i];
			end = at + (i + 1) * sizeof(*words);
		}
		at += some;
	}
	if (table)
		table->end = dst + (table->n > MANY ? bytes : end);
	return table;
}

static struct table *find_with_small_room(CUdeviceptr dst, CUdeviceptr src, size_t bytes) __attribute__((noinline));
static struct table *find_with_small_room(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	CUdeviceptr words[READ_SMALL / sizeof(CUdeviceptr)];

	return find_addresses(dst, src, bytes, words, sizeof(words));
}

/* One thread at a time has the large room; the others do with what is on their stacks. */
static struct table *pointer_arrays_find(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	static CUdeviceptr words[READ_MOST / sizeof(CUdeviceptr)];
	static atomic_flag taken = ATOMIC_FLAG_INIT;

	if (bytes <= READ_SMALL || atomic_flag_test_and_set_explicit(&taken, memory_order_acquire))
		return find_with_small_room(dst, src, bytes);
	struct table *table = find_addresses(dst, src, bytes, words, sizeof(words));
	atomic_flag_clear_explicit(&taken, memory_order_release);
	return table;
}

static void pointer_arrays_remember(struct table *table)
{
	unsigned listed = table->n > MANY ? 0 : table->n;
	struct table *fits = realloc(table, sizeof(*table) + listed * sizeof(*table->at));

	table = fits ? fits : table;
	pointer_arrays_forget(next_table);
	tables[next_table] = table;
	for (uint64_t line = table->start >> LINE_SHIFT; line <= (table->end - 1) >> LINE_SHIFT; line++)
		set_line(line, next_table);
	next_table = (next_table + 1) % TABLES;
	atomic_store(&pointer_arrays_any, true);
}

void pointer_arrays_copied(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	int saved = errno;

	if (bytes < sizeof(CUdeviceptr) || submission_is_heap(src))
		return;
	struct table *table = pointer_arrays_find(dst, src, bytes);
	if (table || atomic_load(&pointer_arrays_any)) {
		lock_take(&lock);
		/* What was there is overwritten, or a part of it. */
		for (unsigned i = 0; i < TABLES; i++)
			if (tables[i] && tables[i]->start < dst + bytes && tables[i]->end > dst)
				pointer_arrays_forget(i);
		if (table)
			pointer_arrays_remember(table);
		lock_drop(&lock);
	}
	errno = saved;
}

/* Where it is left out rows and slices are packed; behind an offset nobody says how (copy_extent.c). */
static struct pointer_arrays_side pointer_arrays_packed(const struct pointer_arrays_side *side,
							const struct copy_extent *extent)
{
	struct pointer_arrays_side known = *side;

	if (!known.place.pitch && !known.place.x)
		known.place.pitch = extent->width;
	if (!known.place.height && !known.place.y)
		known.place.height = extent->height;
	return known;
}

/* Where the bytes begin, if there are no gaps between them. */
static bool is_run(const struct pointer_arrays_side *side, const struct copy_extent *extent, CUdeviceptr *ret_first)
{
	size_t bytes, all;

	return !__builtin_mul_overflow(extent->width, extent->height, &all) &&
	       !__builtin_mul_overflow(all, extent->depth, &all) &&
	       copy_extent_range(side->base, &side->place, extent, ret_first, &bytes) && bytes == all;
}

static bool copied_run(const struct pointer_arrays_side *dst, const struct pointer_arrays_side *src,
		       const struct copy_extent *extent)
{
	CUdeviceptr to, from;

	if (!is_run(dst, extent, &to) || !is_run(src, extent, &from))
		return false;
	pointer_arrays_copied(to, from, extent->width * extent->height * extent->depth);
	return true;
}

void pointer_arrays_copied_box(const struct pointer_arrays_side *dst, const struct pointer_arrays_side *src,
			       const struct copy_extent *extent)
{
	struct pointer_arrays_side to = pointer_arrays_packed(dst, extent), from = pointer_arrays_packed(src, extent);
	size_t rows;

	if (extent->width < sizeof(CUdeviceptr) || copied_run(&to, &from, extent) ||
	    __builtin_mul_overflow(extent->height, extent->depth, &rows) || rows > ROWS_MOST)
		return;
	for (size_t z = 0; z < extent->depth; z++) {
		for (size_t y = 0; y < extent->height; y++) {
			struct pointer_arrays_side to_row = to, from_row = from;

			to_row.place.y += y;
			to_row.place.z += z;
			from_row.place.y += y;
			from_row.place.z += z;
			copied_run(&to_row, &from_row, &(struct copy_extent){extent->width, 1, 1});
		}
	}
}

/* ---- what is named ---- */

static bool pointer_arrays_follows(struct table *table, uint64_t function)
{
	for (unsigned i = 0; i < table->n_functions; i++)
		if (table->functions[i] == function)
			return true;
	if (table->n_functions == FIRST)
		return false;
	table->functions[table->n_functions++] = function;
	return true;
}

void pointer_arrays_look(struct submission *use, CUdeviceptr address)
{
	int number = table_of(address >> LINE_SHIFT);

	if (number < 0)
		return;
	lock_take(&lock);
	struct table *table = tables[number];
	if (table && address >= table->start && address < table->end &&
	    pointer_arrays_follows(table, submission_what(use))) {
		if (table->n > MANY)
			submission_unknown(use);
		for (unsigned i = 0; i < table->n && table->n <= MANY; i++)
			submission_name(use, table->at[i], 0);
	}
	lock_drop(&lock);
}
