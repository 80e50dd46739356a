// SPDX-License-Identifier: Apache-2.0
/*
 * growth: what it takes to grow an array on the GPU, as a vector grows: from 1 MiB on it is made twice as long, again
 * and again, and keeps its contents.
 *
 *   growth [ROUNDS [MOST_MIB]]
 *
 * "grow": spillway_grow(), where the program runs under Spillway. "vmm": as a program does it that maps memory itself:
 * addresses for all of it are reserved at first, and each growth makes one handle and maps it behind what is there.
 * "copy": as all others do it: cuMemAlloc of the new length, a copy on the device, cuMemFree of the old one; the copy
 * is waited for. Each result is a line "name median least most unit" over ROUNDS (9); growth_WAY_MIB is one growth to
 * MIB MiB, growth_WAY_all is all of them together up to MOST_MIB (8192; 64 on the simulated GPU), and growth_WAY_peak
 * is the device memory that was in use at once at most, MiB. The first block and the reservation are made before the
 * clock starts. Between two growths, a word at the beginning and at the end of each part is compared with what was
 * written. Freed memory is kept warm by the library's heap, so that its first round, which is not counted, is the
 * slowest; heap.release_threshold=0 makes all rounds alike.
 */
#include <errno.h>

#include "test/bench/gpu.h"

#define FIRST      MIB
#define MOST_STEPS 24

enum way { GROW, VMM, COPY, WAYS };
static const char *const way_names[WAYS] = {"grow", "vmm", "copy"};

static int (*spillway_grow_found)(const void *address, uint64_t new_bytes);

/* One array. bytes: how long it is. */
static struct array {
	CUdeviceptr at;
	size_t bytes, most;
	CUmemGenericAllocationHandle handles[MOST_STEPS];
	size_t parts[MOST_STEPS]; /* bytes of each handle */
	unsigned n_handles;
} array;

/* ---- what is in it ---- */

static uint64_t word_at(size_t offset)
{
	return offset * 0x9e3779b97f4a7c15u + 1;
}

/* Writes the first and the last word of from..to. */
static void mark(size_t from, size_t to)
{
	const size_t places[] = {from, to - sizeof(uint64_t)};

	for (unsigned i = 0; i < 2; i++) {
		uint64_t word = word_at(places[i]);

		CHECK(cuMemcpyHtoD(array.at + places[i], &word, sizeof(word)));
	}
}

static void compare(size_t from, size_t to)
{
	const size_t places[] = {from, to - sizeof(uint64_t)};

	for (unsigned i = 0; i < 2; i++) {
		uint64_t word = 0;

		CHECK(cuMemcpyDtoH(&word, array.at + places[i], sizeof(word)));
		if (word == word_at(places[i]))
			continue;
		fprintf(stderr, "growth: what was written at %zu is not there any more\n", places[i]);
		exit(1);
	}
}

static void compare_all(void)
{
	compare(0, FIRST);
	for (size_t part = FIRST; part < array.bytes; part *= 2)
		compare(part, 2 * part);
}

/* ---- three ways ---- */

static size_t whole_units(size_t bytes)
{
	return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* Maps so much more that `bytes` can be used; the granularity of all devices is 2 MiB. */
static void map_more(size_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	size_t have = array.n_handles ? whole_units(array.bytes) : 0, more = whole_units(bytes) - have;

	if (!more)
		return;
	CHECK(cuMemCreate(&array.handles[array.n_handles], more, &prop, 0));
	CHECK(cuMemMap(array.at + have, more, 0, array.handles[array.n_handles], 0));
	CHECK(cuMemSetAccess(array.at + have, more, &access, 1));
	array.parts[array.n_handles++] = more;
}

/* The library's small blocks share memory and cannot grow: one byte more makes it one that can. */
static void begin(enum way way, size_t most)
{
	array = (struct array){.bytes = FIRST, .most = most};
	if (way == VMM) {
		CHECK(cuMemAddressReserve(&array.at, whole_units(most), 0, 0, 0));
		map_more(FIRST);
	} else {
		CHECK(cuMemAlloc(&array.at, FIRST + (way == GROW)));
	}
	mark(0, FIRST);
	CHECK(cuCtxSynchronize());
}

static void copy_to_longer(size_t bytes)
{
	CUdeviceptr longer;

	CHECK(cuMemAlloc(&longer, bytes));
	CHECK(cuMemcpyDtoD(longer, array.at, array.bytes));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemFree(array.at));
	array.at = longer;
}

static void grow_in_place(size_t bytes)
{
	int result = spillway_grow_found((const void *)(uintptr_t)array.at, bytes);

	if (!result)
		return;
	fprintf(stderr, "growth: spillway_grow to %zu bytes: %s\n", bytes, strerror(-result));
	exit(1);
}

static void end(enum way way)
{
	size_t at = 0;

	for (unsigned i = 0; i < array.n_handles; i++) {
		CHECK(cuMemUnmap(array.at + at, array.parts[i]));
		CHECK(cuMemRelease(array.handles[i]));
		at += array.parts[i];
	}
	if (way == VMM)
		CHECK(cuMemAddressFree(array.at, whole_units(array.most)));
	else
		CHECK(cuMemFree(array.at));
}

static void grow_once(enum way way)
{
	size_t bytes = 2 * array.bytes;

	if (way == GROW)
		grow_in_place(bytes);
	else if (way == VMM)
		map_more(bytes);
	else
		copy_to_longer(bytes);
}

/* ---- measuring ---- */

static struct samples steps[MOST_STEPS], all, peak;

static void one_round(enum way way, size_t most, bool counts)
{
	double sum = 0;
	unsigned step = 0;

	begin(way, most);
	for (; 2 * array.bytes <= most; step++) {
		double before = now();

		grow_once(way);
		double took = (now() - before) / 1000;
		array.bytes *= 2;
		mark(array.bytes / 2, array.bytes);
		compare_all();
		sum += took;
		if (counts)
			sample(&steps[step], took);
	}
	if (counts) {
		sample(&all, sum);
		/* While it is copied, the old one, which is half as long, is there, too. */
		sample(&peak, (double)(way == COPY ? array.bytes + array.bytes / 2 : array.bytes) / (double)MIB);
	}
	end(way);
}

static void measure(enum way way, unsigned rounds, size_t most)
{
	char name[64];

	for (unsigned round = 0; round <= rounds; round++)
		one_round(way, most, round > 0);
	for (unsigned step = 0; step < MOST_STEPS; step++) {
		snprintf(name, sizeof(name), "growth_%s_%zu", way_names[way], (FIRST / MIB) << (step + 1));
		print_samples(&steps[step], name, "us");
	}
	snprintf(name, sizeof(name), "growth_%s_all", way_names[way]);
	print_samples(&all, name, "us");
	snprintf(name, sizeof(name), "growth_%s_peak", way_names[way]);
	print_samples(&peak, name, "MiB");
}

/* The longest that a copy beside it leaves room for. */
static size_t longest(size_t wanted)
{
	size_t free = 0, total = 0, most = FIRST;

	CHECK(cuMemGetInfo(&free, &total));
	while (2 * most <= wanted && 3 * most + 64 * MIB <= free && most < (FIRST << (MOST_STEPS - 1)))
		most *= 2;
	return most;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 9;

	gpu_open();
	size_t most = longest((argc > 2 ? (size_t)atoi(argv[2]) : simulated ? 64 : 8192) * MIB);
	*(void **)&spillway_grow_found = dlsym(RTLD_DEFAULT, "spillway_grow");
	if (!rounds || most < 2 * FIRST) {
		fprintf(stderr, "usage: growth [ROUNDS [MOST_MIB]]; at least one growth must fit the device\n");
		return 2;
	}
	for (enum way way = 0; way < WAYS; way++) {
		if (way == GROW && !spillway_grow_found)
			printf("growth_grow: not measured, this program does not run under Spillway\n");
		else
			measure(way, rounds, most);
	}
	return 0;
}
