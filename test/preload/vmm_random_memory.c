// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_random_memory.c: how the memory of a worker comes, moves to other addresses, and goes.
 */
#include "test/preload/vmm_random.h"

void worker_settle(struct worker *worker)
{
	for (unsigned i = 0; i < STREAMS; i++)
		GO(cuStreamSynchronize(worker->stream[i]));
}

static void memory_drop(struct worker *worker, struct memory *memory)
{
	if (memory->slots || !memory->released)
		return;
	worker->live -= memory->bytes;
	free(memory->shadow);
	free(memory);
}

void handle_release(CUmemGenericAllocationHandle handle)
{
	CUresult result;

	do /* a refusal that was meant for the library may have come here */
		result = cuMemRelease(handle);
	while (result == CUDA_ERROR_UNKNOWN);
	GO(result);
}

void memory_release(struct worker *worker, struct memory *memory)
{
	if (!memory->released)
		handle_release(memory->handle);
	memory->released = true;
	memory_drop(worker, memory);
}

struct memory *memory_make(struct worker *worker, size_t bytes, bool shown)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = shown ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
					  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	if (!shown && worker->live + bytes > worker->share)
		return NULL;
	struct memory *memory = calloc(1, sizeof(*memory));
	memory->bytes = bytes;
	memory->shown = shown;
	memory->shadow = malloc(bytes);
	worker->live += bytes;
	GO(cuMemCreate(&memory->handle, bytes, &prop, 0));
	return memory;
}

void slot_map(struct segment *segment, unsigned slot, struct memory *memory)
{
	const CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUdeviceptr at = segment->at + slot * segment->piece;

	GO(cuMemMap(at, segment->piece, 0, memory->handle, 0));
	GO(cuMemSetAccess(at, segment->piece, &desc, 1));
	segment->slot[slot] = memory;
	memory->slots++;
}

void slot_fill(struct worker *worker, struct segment *segment, unsigned slot)
{
	struct op op = {.kind = SET32,
			.stream = worker_below(worker, STREAMS),
			.to = {segment, slot * (segment->piece / 4), segment->piece / 4},
			.salt = worker_below(worker, 1u << 30)};

	op_run(worker, &op);
}

void segment_grow(struct worker *worker, struct segment *segment)
{
	unsigned n = 1 + worker_below(worker, segment->piece > 4 * MIB ? 2 : 6);

	for (unsigned i = 0; i < SLOTS && n; i++) {
		if (segment->slot[i])
			continue;
		struct memory *memory = memory_make(worker, segment->piece, false);
		if (!memory)
			return;
		slot_map(segment, i, memory);
		if (worker_below(worker, 3))
			memory_release(worker, memory); /* as who will never need it but by its address */
		slot_fill(worker, segment, i);
		n--;
	}
}

void segment_unmap(struct worker *worker, struct segment *segment, unsigned first, unsigned n)
{
	GO(cuMemUnmap(segment->at + first * segment->piece, n * segment->piece));
	for (unsigned i = first; i < first + n; i++) {
		struct memory *memory = segment->slot[i];

		segment->slot[i] = NULL;
		memory->slots--;
		if (!memory->slots && !memory->released)
			memory_release(worker, memory);
		else
			memory_drop(worker, memory);
	}
}

static void shrink(struct worker *worker, struct segment *segment)
{
	unsigned first = worker_below(worker, SLOTS), n = 0, most = 1 + worker_below(worker, 6);

	while (first < SLOTS && !segment->slot[first])
		first++;
	while (first + n < SLOTS && n < most && segment->slot[first + n])
		n++;
	if (!n)
		return;
	worker_settle(worker);
	segment_unmap(worker, segment, first, n);
}

/* All that is mapped goes, runs of slots in one call each; some comes back at other places, the rest is new. */
static void sleep_and_wake(struct worker *worker, struct segment *segment)
{
	struct memory *kept[SLOTS];
	bool was[SLOTS];
	unsigned n_kept = 0;

	worker_settle(worker);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct memory *memory = segment->slot[i];

		was[i] = memory;
		if (!memory || worker_below(worker, 2))
			continue;
		if (memory->released) /* its handle can be had by its address */
			GO(cuMemRetainAllocationHandle(&memory->handle, (void *)(segment->at + i * segment->piece)));
		memory->released = false;
		memory->slots++; /* so that it is not released when it is unmapped */
		kept[n_kept++] = memory;
	}
	for (unsigned i = 0, n; i < SLOTS; i += n ? n : 1) {
		for (n = 0; i + n < SLOTS && segment->slot[i + n];)
			n++;
		if (n)
			segment_unmap(worker, segment, i, n);
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		struct memory *memory = NULL;

		if (!was[i])
			continue;
		if (n_kept && worker_below(worker, 2)) {
			memory = kept[--n_kept];
			memory->slots--;
			slot_map(segment, i, memory);
			continue;
		}
		memory = memory_make(worker, segment->piece, false);
		if (!memory)
			continue;
		slot_map(segment, i, memory);
		slot_fill(worker, segment, i);
	}
	while (n_kept) {
		struct memory *memory = kept[--n_kept];

		memory->slots--;
		if (!memory->slots)
			memory_release(worker, memory);
	}
}

/* Memory of one segment in another one of the same size of pieces, beside where it is. */
static void alias(struct worker *worker, struct segment *from, struct segment *to)
{
	unsigned i = worker_below(worker, SLOTS), j = worker_below(worker, SLOTS);

	if (!from->slot[i] || to->slot[j])
		return;
	if (from->slot[i]->released) {
		GO(cuMemRetainAllocationHandle(&from->slot[i]->handle, (void *)(from->at + i * from->piece)));
		from->slot[i]->released = false;
	}
	slot_map(to, j, from->slot[i]);
}

/* Where something is mapped nothing else can be, whether or not that is moving. */
static void map_over(struct worker *worker, struct segment *segment)
{
	const struct memory *there = segment->slot[worker_below(worker, SLOTS)];
	unsigned i = worker_below(worker, SLOTS);

	if (there && !there->released && segment->slot[i] &&
	    cuMemMap(segment->at + i * segment->piece, segment->piece, 0, there->handle, 0) == CUDA_SUCCESS)
		made_up_fail("slot %u was mapped over", i);
}

void block_change(struct worker *worker, struct segment *segment)
{
	struct memory *memory = segment->slot[0];

	if (memory) {
		segment->slot[0] = NULL;
		GO(cuMemFree_v2(segment->at)); /* waits for what uses it */
		memory->slots = 0;
		memory->released = true;
		memory_drop(worker, memory);
		return;
	}
	segment->piece = (1 + worker_below(worker, 10)) * MIB;
	if (worker->live + segment->piece > worker->share)
		return;
	memory = calloc(1, sizeof(*memory));
	memory->bytes = segment->piece;
	memory->shadow = malloc(segment->piece);
	memory->slots = 1;
	memory->released = true;
	worker->live += memory->bytes;
	GO(cuMemAlloc_v2(&segment->at, segment->piece));
	segment->slot[0] = memory;
	slot_fill(worker, segment, 0);
}

void worker_change(struct worker *worker)
{
	struct segment *segment = &worker->segment[worker_below(worker, SEGMENTS)];

	if (segment->block) {
		block_change(worker, segment);
		return;
	}
	switch (worker_below(worker, 9)) {
	case 0:
		sleep_and_wake(worker, segment);
		break;
	case 1:
	case 2:
		shrink(worker, segment);
		break;
	case 3:
		alias(worker, &worker->segment[0], &worker->segment[1]);
		break;
	case 4:
		map_over(worker, segment);
		break;
	default:
		segment_grow(worker, segment);
		break;
	}
}
