// SPDX-License-Identifier: Apache-2.0
/*
 * pointer_arrays_test.c [EPERM|ENOSYS [pipe]]: which arrays of pointers are known, against a struct submission of the
 * test's own. A heap lies at HEAP. With an argument a seccomp filter answers process_vm_readv() so, and with "pipe"
 * pipe2() as well.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "shim/base/log.h"
#include "shim/submit/pointer_arrays.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define HEAP  ((CUdeviceptr)0x200000000000)
#define BYTES ((CUdeviceptr)1 << 40)

static CUdeviceptr named[2048];
static unsigned n_named, n_unknown, n_asked, n_said, n_stored, n_stored_many;

bool submission_is_heap(CUdeviceptr address)
{
	n_asked++;
	return address >= HEAP && address < HEAP + BYTES;
}

bool submission_means_heap(CUdeviceptr address)
{
	return submission_is_heap(address);
}

void submission_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes)
{
	*ret_first = HEAP;
	*ret_bytes = BYTES;
}

void submission_name(struct submission *use, CUdeviceptr address, size_t bytes)
{
	assert_int_equal(bytes, 0);
	named[n_named++ % 2048] = address;
}

void submission_stores(struct submission *use, CUdeviceptr address)
{
	n_stored += address != 0;
	n_stored_many += address == 0;
}

void submission_unknown(struct submission *use)
{
	n_unknown++;
}

/* log.h */
void log_line(const char *format, ...)
{
	n_said++;
}

static uint64_t function;

uint64_t submission_what(const struct submission *use)
{
	return function;
}

static void copy(CUdeviceptr dst, const CUdeviceptr *words, size_t n)
{
	errno = 4711;
	pointer_arrays_copied(NULL, dst, (CUdeviceptr)(uintptr_t)words, n * sizeof(*words));
	assert_int_equal(errno, 4711);
}

/* How many are named for this address. */
static unsigned look(CUdeviceptr address)
{
	n_named = n_unknown = 0;
	pointer_arrays_name(NULL, address);
	return n_named;
}

TEST(an_array_is_known_wherever_it_is_named)
{
	CUdeviceptr words[300] = {[3] = HEAP + 5, [4] = 17, [200] = HEAP + BYTES - 1, [299] = HEAP + BYTES};

	assert_false(atomic_load(&pointer_arrays_any)); /* the first test: nothing is asked for */
	copy(HEAP + 4096, words, 300);
	assert_int_equal(n_stored, 2); /* the submission was told of them */
	assert_int_equal(look(HEAP + 4096), 2);
	assert_int_equal(named[0], HEAP + 5);
	assert_int_equal(named[1], HEAP + BYTES - 1);
	assert_int_equal(look(HEAP + 4096 + 201 * 8 - 1), 2); /* as far as addresses reach */
	assert_int_equal(look(HEAP + 4096 + 201 * 8), 0);
	assert_int_equal(look(HEAP + 4095), 0);
	/* Half of it is overwritten: it is not what it was. */
	CUdeviceptr none[4] = {1, 2, 3, 4};
	copy(HEAP + 4096 + 512, none, 4);
	assert_int_equal(look(HEAP + 4096), 0);
	copy(HEAP + 4096, words, 4);
	assert_int_equal(look(HEAP + 4096), 1);
	/* Of two in one line the later one is known. */
	copy(HEAP + 4096 + 32, words, 4);
	assert_int_equal(look(HEAP + 4096 + 32), 1);
	assert_int_equal(look(HEAP + 4096), 0);
}

/* Programs keep marks of their own in the bits that no address has. */
TEST(a_pointer_with_a_tag_is_its_address)
{
	const CUdeviceptr tag = UINT64_C(0x55) << 57;
	CUdeviceptr words[3] = {tag | (HEAP + 5), tag | 17, ~UINT64_C(0) << 57 | (HEAP + BYTES - 1)};
	unsigned before = n_stored;

	copy(HEAP + 8192, words, 3);
	assert_int_equal(n_stored, before + 2);
	assert_int_equal(look(HEAP + 8192), 2);
	assert_int_equal(named[0], HEAP + 5);
	assert_int_equal(named[1], HEAP + BYTES - 1);
	pointer_arrays_written(NULL, HEAP + 16384, words[0]);
	assert_int_equal(look(HEAP + 16384), 1);
	assert_int_equal(named[0], HEAP + 5);
}

/* FSDP's are: by a number for each block of the grid that works on them. */
TEST(an_array_may_be_followed_by_anything)
{
	enum { WORDS = 8 << 20 >> 3 };
	CUdeviceptr *words = calloc(WORDS, sizeof(*words)), place = HEAP + (1 << 25);

	assert_non_null(words);
	for (unsigned i = 0; i < 48; i++)
		words[i] = HEAP + i;
	for (size_t n = 65536 / 8 + 1; n <= WORDS; n *= 4) {
		copy(place, words, n);
		assert_int_equal(look(place), 48);
		assert_int_equal(look(place + 48 * 8 - 1), 48);
		assert_int_equal(look(place + 48 * 8), 0);
	}
	/* What comes after 64 KiB without an address is of no array; after less it is. */
	words[47 + 65536 / 8] = words[47 + 2 * 65536 / 8] = HEAP + 1;
	copy(place, words, WORDS);
	assert_int_equal(look(place), 50);
	assert_int_equal(look(place + 48 * 8 + 2 * 65536 - 1), 50);
	words[47 + 65536 / 8] = 0;
	copy(place, words, WORDS);
	assert_int_equal(look(place), 48);
	/* A long copy overwrites what lies anywhere in it. */
	copy(place + (6 << 20), words, 48);
	assert_int_equal(look(place + (6 << 20)), 48);
	memset(words, 0, 400);
	copy(place, words, WORDS);
	assert_int_equal(look(place), 0);
	assert_int_equal(look(place + (6 << 20)), 0);
	free(words);
}

static void copy_box(CUdeviceptr dst, size_t dst_pitch, const CUdeviceptr *src, size_t src_pitch,
		     struct copy_extent extent)
{
	struct pointer_arrays_side to = {dst, {.pitch = dst_pitch}},
				   from = {(CUdeviceptr)(uintptr_t)src, {.pitch = src_pitch}};

	pointer_arrays_copied_box(NULL, &to, &from, &extent);
}

TEST(rows_are_looked_through_one_by_one)
{
	CUdeviceptr words[65 * 8] = {[0] = HEAP + 1, [1] = HEAP + 2, [8] = HEAP + 3, [9] = 4711, [64 * 8] = HEAP + 5};
	CUdeviceptr place = HEAP + (3 << 25);

	/* Two words of each row of eight, to rows 4 KiB apart. */
	copy_box(place, 4096, words, 64, (struct copy_extent){16, 2, 1});
	assert_int_equal(look(place), 2);
	assert_int_equal(look(place + 16), 0);
	assert_int_equal(look(place + 4096), 1);
	assert_int_equal(named[0], HEAP + 3);
	/* The same as slices of one row each, from the second word on. */
	struct pointer_arrays_side to = {place, {.x = 8, .pitch = 64, .height = 64}};
	struct pointer_arrays_side from = {(CUdeviceptr)(uintptr_t)words, {.x = 8, .pitch = 64, .height = 1}};
	pointer_arrays_copied_box(NULL, &to, &from, &(struct copy_extent){8, 1, 2});
	assert_int_equal(look(place + 8), 1);
	assert_int_equal(named[0], HEAP + 2);
	assert_int_equal(look(place + 4096 + 8), 0);
	/* 64 rows, and no more. */
	memset(words, 0, 64 * 64);
	words[63 * 8] = HEAP + 4;
	copy_box(place, 4096, words, 64, (struct copy_extent){8, 64, 1});
	assert_int_equal(look(place + 63 * 4096), 1);
	copy_box(place + (1 << 20), 4096, words, 64, (struct copy_extent){8, 65, 1});
	assert_int_equal(look(place + (1 << 20) + 64 * 4096), 0);
}

TEST(rows_without_gaps_are_one_array)
{
	static CUdeviceptr words[8 * 100] = {[0] = HEAP + 1, [799] = HEAP + 2};
	CUdeviceptr place = HEAP + (4 << 25);

	copy_box(place, 64, words, 0, (struct copy_extent){64, 100, 1});
	assert_int_equal(look(place), 2);
	copy_box(place, 0, words, 64, (struct copy_extent){64, 10, 10});
	assert_int_equal(look(place), 2);
	/* Of what is left out behind an offset nobody knows where it is: its first row, and no further. */
	struct pointer_arrays_side to = {place + 8192, {.y = 1}}, from = {(CUdeviceptr)(uintptr_t)words, {.x = 0}};
	pointer_arrays_copied_box(NULL, &to, &from, &(struct copy_extent){64, 100, 2});
	assert_int_equal(look(place + 8192), 0);
	/* Nonsense is the driver's to refuse. */
	copy_box(place, SIZE_MAX / 2, words, SIZE_MAX, (struct copy_extent){SIZE_MAX, SIZE_MAX, SIZE_MAX});
	copy_box(place, SIZE_MAX / 2, words, SIZE_MAX, (struct copy_extent){64, 3, 3});
	copy_box(place, 64, words, 64, (struct copy_extent){64, 0, 0});
	copy_box(place, 64, words, 64, (struct copy_extent){0, 100, 1});
}

TEST(what_is_no_array_is_not_remembered)
{
	static CUdeviceptr words[1025];

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		words[i] = HEAP + i;
	pointer_arrays_copied(NULL, HEAP + (1 << 20), HEAP + 64, 64); /* from a heap */
	pointer_arrays_copied(NULL, HEAP + (1 << 20), 16, 64);        /* from nowhere */
	pointer_arrays_copied(NULL, HEAP + (1 << 20), (CUdeviceptr)(uintptr_t)words, 7);
	assert_int_equal(look(HEAP + (1 << 20)), 0);
	/* Of too many, none is listed. */
	copy(HEAP + (1 << 20), words, 1024);
	assert_int_equal(look(HEAP + (1 << 20)), 1024);
	assert_int_equal(n_unknown, 0);
	copy(HEAP + (1 << 20), words, 1025);
	assert_int_equal(look(HEAP + (1 << 20)), 0);
	assert_int_equal(n_unknown, 1);
}

TEST(an_array_need_not_lie_in_a_heap)
{
	CUdeviceptr words[2] = {HEAP + 1, HEAP + 2}, none = 0;

	copy(HEAP - 4096, words, 2);
	assert_int_equal(look(HEAP - 4096), 2);
	copy(HEAP - 4096, &none, 1);
	assert_int_equal(look(HEAP - 4096), 0);
}

TEST(whoever_comes_later_has_other_memory_there)
{
	CUdeviceptr word = HEAP + 1, place = HEAP + (1 << 22);

	for (int again = 0; again < 2; again++) {
		copy(place, &word, 1);
		for (function = 1; function < 5; function++)
			assert_int_equal(look(place), function < 3);
		for (function = 1; function < 5; function++)
			assert_int_equal(look(place), function < 3);
	}
	function = 0;
}

/* Most copies are of that kind, and none is to be slow for it. */
TEST(words_that_lie_in_no_heap_are_not_asked_about)
{
	static CUdeviceptr words[65536 / 8];
	struct seed seed = seed_start(__func__);

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		words[i] = i % 2 ? HEAP - 1 - seed_below(&seed, 1 << 20) : HEAP + BYTES + seed_below(&seed, 1 << 20);
	n_asked = 0;
	copy(HEAP + (5 << 25), words, sizeof(words) / sizeof(*words));
	assert_int_equal(n_asked, 1); /* whether the source is one */
	assert_int_equal(look(HEAP + (5 << 25)), 0);
	words[8191] = HEAP;
	copy(HEAP + (5 << 25), words, sizeof(words) / sizeof(*words));
	assert_int_equal(look(HEAP + (5 << 25)), 1);
}

TEST(the_latest_are_remembered)
{
	struct seed seed = seed_start(__func__);
	CUdeviceptr at[1000];
	unsigned known = 0;

	for (unsigned i = 0; i < 1000; i++) {
		CUdeviceptr word = HEAP + i;

		at[i] = HEAP + ((CUdeviceptr)(i + 1) << 24) + seed_below(&seed, 1000) * 4096;
		copy(at[i], &word, 1);
		assert_int_equal(look(at[i]), 1);
		assert_int_equal(named[0], word);
	}
	for (unsigned i = 0; i < 1000; i++)
		known += look(at[i]) == 1;
	/* Those of 256 lines in 512 sets that came to a set with four others were crowded out. */
	assert_in_range(known, 240, 256);
}

/* Words that lie across two pages, the second of which is not there. */
TEST(memory_that_ends_is_the_drivers_to_refuse)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr word = HEAP + 1, place = HEAP + (7 << 25);

	assert_ptr_not_equal(at, MAP_FAILED);
	munmap(at + page, page);
	memcpy(at + page - sizeof(word), &word, sizeof(word));
	copy(place, (CUdeviceptr *)(at + page) - 1, 1);
	assert_int_equal(look(place), 1);
	for (size_t n = 2; n < 1000; n *= 7) {
		copy(place + (1 << 20), (CUdeviceptr *)(at + page) - 1, n);
		assert_int_equal(look(place + (1 << 20)), 0);
		assert_int_equal(n_unknown, 0);
	}
	munmap(at, page);
}

/* Of what cannot be read nobody knows what it holds, but for a bad pointer, which is the driver's to refuse. */
static void what_cannot_be_read_may_reach_anything(void **state)
{
	CUdeviceptr words[4] = {1, 2, 3, 4}, place = HEAP + (1 << 25);

	copy(place, words, 4);
	assert_int_equal(look(place + 31), 0);
	assert_int_equal(n_unknown, 1);
	look(place + 32);
	assert_int_equal(n_unknown, 0);
	/* As far as arrays reach. */
	CUdeviceptr *large = calloc(1, 1 << 20);
	assert_non_null(large);
	copy(place, large, (1 << 20) / 8);
	look(place + (256 << 10) - 1);
	assert_int_equal(n_unknown, 1);
	look(place + (256 << 10));
	assert_int_equal(n_unknown, 0);
	free(large);
	/* Memory of a heap is no source of arrays. */
	pointer_arrays_copied(NULL, place + (1 << 22), HEAP + 64, 64);
	look(place + (1 << 22));
	assert_int_equal(n_unknown, 0);
	assert_int_equal(n_said, 1);
}

/* From here on these calls fail with that error. False: there are no such filters here. */
static bool refuse(int error, bool pipes)
{
	struct sock_filter lines[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, pipes ? SYS_pipe2 : SYS_process_vm_readv, 1, 0),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
	};
	struct sock_fprog filter = {sizeof(lines) / sizeof(*lines), lines};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static bool is_refused(int error)
{
	char from = 1, to;
	struct iovec source = {&from, 1}, target = {&to, 1};

	return process_vm_readv(getpid(), &target, 1, &source, 1, 0) < 0 && errno == error;
}

static int run_refused(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_cannot_be_read_may_reach_anything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

static void put(CUdeviceptr dst, uint64_t word)
{
	errno = 4711;
	pointer_arrays_written(NULL, dst, word);
	assert_int_equal(errno, 4711);
}

/* A stream writes pointers one by one: they are known by the beginning of what has them. */
TEST(words_that_a_stream_writes_become_an_array)
{
	CUdeviceptr base = HEAP + ((CUdeviceptr)1 << 30), words[4] = {HEAP + 1, HEAP + 2, 0, 0};
	unsigned stored = n_stored;

	put(base + 16, HEAP + 5);
	put(base + 64, HEAP + 6);
	put(base + 72, 12);
	put(base + 64, HEAP + 6); /* once more: not twice in it */
	assert_int_equal(n_stored - stored, 3);
	assert_int_equal(look(base), 2);
	assert_int_equal(named[0], HEAP + 5);
	assert_int_equal(named[1], HEAP + 6);
	assert_int_equal(look(base + 71), 2);
	assert_int_equal(look(base + 72) + look(base - 1) + look(base + 512), 0);
	/* Across lines they follow each other. */
	for (unsigned i = 0; i < 100; i++)
		put(base + 1024 + i * 8, HEAP + 100 + i);
	assert_int_equal(look(base + 1024), 100);
	assert_int_equal(named[99], HEAP + 199);
	/* Another one, on what a copy has brought. */
	copy(base + 4096 + 128, words, 4);
	put(base + 4096 + 136, HEAP + 7);
	assert_int_equal(look(base + 4096 + 128), 3);
	assert_int_equal(look(base + 4096), 3);
	/* Below one, in its line: both are one. */
	put(base + 4096 + 8, HEAP + 8);
	assert_int_equal(look(base + 4096 + 128), 4);
	/* A copy makes an end of it. */
	words[0] = words[1] = 0;
	copy(base + 4096 + 128, words, 4);
	assert_int_equal(look(base + 4096), 0);
	/* Two functions are given it before it is written again, and then a third one. */
	put(base + 16384, HEAP + 9);
	for (function = 101; function <= 103; function++) {
		if (function == 103)
			put(base + 16384, HEAP + 10);
		assert_int_equal(look(base + 16384), function == 103 ? 2 : 1);
	}
	/* Too many of them may be anything. */
	for (unsigned i = 0; i < 1100; i++)
		put(base + 8192, HEAP + 1000 + i);
	assert_int_equal(look(base + 8192), 0);
	assert_int_equal(n_unknown, 1);
}

int main(int argc, char **argv)
{
	int error = argc > 1 && !strcmp(argv[1], "ENOSYS") ? ENOSYS : EPERM;

	if (argc > 1 && (!refuse(error, argc > 2) || !is_refused(error))) {
		printf("no seccomp filters here\n");
		return 77;
	}
	return argc > 2 ? run_refused() : test_run();
}
