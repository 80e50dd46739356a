/*
 * Prefetches and discards in batches (CUDA 13), where the library takes hints about a part of the batch (hint.h). The
 * driver would refuse the whole batch for one heap block among managed ones, so it gets its part in a separate call,
 * by the function that the program called. A batch without heap memory is passed on unchanged. The whole batch is
 * checked before any of it is done. A batch has no order, so the order in which its parts are done does not matter.
 *
 * A prefetch of heap memory does nothing, as with a single one. A discard takes effect in stream order, as CUDA
 * defines it: it is a submission like any other, which gives the driver nothing; discard.c describes the rest. An
 * earlier discard of the same block is then void. While a capture is open nothing is discarded: the graph would need
 * the contents until it is launched.
 *
 * Assumed, not measured: the driver refuses the legacy default stream, which cuda.h forbids, with INVALID_VALUE.
 */
#include "shim/context/capture.h"
#include "shim/process/enter.h"
#include "shim/entry/hint.h"
#include "shim/entry/hook.h"
#include "shim/serve/serve.h"
#include "shim/submit/operands.h"
#include "shim/submit/submit_copy.h"
#include "shim/mover/spill.h"

#include <stdlib.h>

/* The arguments of a batch; the arrays are the program's. */
struct batch {
	CUdeviceptr *addresses;
	size_t *sizes, n;
	CUmemLocation *locations; /* with first and n_locations: only for a batch that prefetches */
	size_t *first, n_locations;
	unsigned long long flags;
	CUstream stream;
	bool prefetches, discards, per_thread;
};

/* The driver's part of a batch, in one allocation, which starts at locations. */
struct part {
	CUmemLocation *locations;
	CUdeviceptr *addresses;
	size_t *sizes, *first, n;
};

static bool locations_are_right(const struct batch *batch)
{
	if (!batch->locations || !batch->first || !batch->n_locations || batch->n_locations > batch->n ||
	    batch->first[0] != 0)
		return false;
	for (size_t i = 1; i < batch->n_locations; i++)
		if (batch->first[i] <= batch->first[i - 1] || batch->first[i] >= batch->n)
			return false;
	return true;
}

static bool is_legacy(const struct batch *batch)
{
	return batch->stream == CU_STREAM_LEGACY || (!batch->stream && !batch->per_thread);
}

/* Returns the location of operation i. *at: index of the location of the operation before; 0 at first. */
static const CUmemLocation *location_of(const struct batch *batch, size_t i, size_t *at)
{
	if (!batch->prefetches)
		return NULL;
	while (*at + 1 < batch->n_locations && batch->first[*at + 1] <= i)
		++*at;
	return &batch->locations[*at];
}

static size_t count_ours(const struct batch *batch)
{
	size_t n = 0;

	for (size_t i = 0; batch->addresses && batch->sizes && i < batch->n; i++) {
		CUresult result;

		n += hint_is_ours(batch->addresses[i], batch->sizes[i], NULL, &result);
	}
	return n;
}

/* Returns an error if an argument of the batch, or an operation on our memory, is wrong. */
static CUresult entry_batch_check(const struct batch *batch)
{
	size_t at = 0;

	if (batch->flags || is_legacy(batch) || (batch->prefetches && !locations_are_right(batch)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < batch->n; i++) {
		CUresult result;

		if (hint_is_ours(batch->addresses[i], batch->sizes[i], location_of(batch, i, &at), &result) &&
		    result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

/*
 * Collects the operations that are the driver's, each with a separate location. Returns false if there is no memory.
 * The caller frees part->locations.
 */
static bool entry_batch_split(const struct batch *batch, size_t n, struct part *part)
{
	size_t at = 0;

	part->locations = malloc(n * (sizeof(*part->locations) + sizeof(*part->addresses) + 2 * sizeof(*part->sizes)));
	if (!part->locations)
		return false;
	part->addresses = (CUdeviceptr *)(part->locations + n);
	part->sizes = (size_t *)(part->addresses + n);
	part->first = part->sizes + n;
	part->n = 0;
	for (size_t i = 0; i < batch->n && part->n < n; i++) {
		const CUmemLocation *location = location_of(batch, i, &at);
		CUresult result;

		if (hint_is_ours(batch->addresses[i], batch->sizes[i], NULL, &result))
			continue;
		part->addresses[part->n] = batch->addresses[i];
		part->sizes[part->n] = batch->sizes[i];
		part->first[part->n] = part->n;
		if (location)
			part->locations[part->n] = *location;
		part->n++;
	}
	return true;
}

/*
 * Must be called inside a submission that names all addresses. A discard up to the end of a block includes the rest
 * of its last piece, which belongs to no block.
 */
static void entry_batch_discard(const struct batch *batch, bool held)
{
	for (size_t i = 0; i < batch->n; i++) {
		CUdeviceptr address = batch->addresses[i];
		struct ledger_row row;

		if (!serve_find(address, &row) || batch->sizes[i] > row.bytes - (address - row.key))
			continue;
		bool to_end = batch->sizes[i] == row.bytes - (address - row.key);
		spill_discard_behind(device_get(row.device), address, to_end ? UINT64_MAX : batch->sizes[i],
				     batch->stream, batch->per_thread, held);
	}
}

static void submit_discards(enum hook_id id, const struct batch *batch)
{
	struct submission_stripe *inside = submission_enter();
	bool tracked = submission_is_tracking();

	submission_leave(inside);
	if (!tracked)
		return;
	struct submission *use = submission_open(id);
	/* Without a submission the blocks would not be pinned. */
	if (!use)
		return;
	if (batch->per_thread)
		operands_cuMemDiscardBatchAsync_ptsz(use, batch->addresses, batch->sizes, batch->n, 0, batch->stream);
	else
		operands_cuMemDiscardBatchAsync(use, batch->addresses, batch->sizes, batch->n, 0, batch->stream);
	inside = admit(use);
	if (!capture_is_open())
		entry_batch_discard(batch, submission_pins(use));
	submission_close(use, inside);
}

/*
 * Returns true if *ret_result is the answer to the program, apart from the driver's part. If there is such a part
 * (part->locations is not NULL), the caller must submit it first. In every case where it returns true, the caller
 * must call batch_done() at the end.
 */
static bool entry_batch_take(const struct batch *batch, struct part *part, CUresult *ret_result)
{
	struct enter_scope scope;

	part->locations = NULL;
	if (!enter_serve(&scope))
		return false;
	size_t n = count_ours(batch);
	if (n) {
		*ret_result = entry_batch_check(batch);
		if (*ret_result == CUDA_SUCCESS && n < batch->n && !entry_batch_split(batch, batch->n - n, part))
			*ret_result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	enter_leave(&scope, CUDA_SUCCESS);
	return n != 0;
}

static void batch_done(enum hook_id id, const struct batch *batch, struct part *part, CUresult result)
{
	if (result == CUDA_SUCCESS && batch->discards)
		submit_discards(id, batch);
	free(part->locations);
}

/* The driver's part is submitted, and counted, as a separate call. */
#define DISCARD(name, own)                                                                                             \
	bool hint_##name(CUresult *ret_result, CUdeviceptr *dptrs, size_t *sizes, size_t count,                        \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		struct batch batch = {.addresses = dptrs,                                                              \
				      .sizes = sizes,                                                                  \
				      .n = count,                                                                      \
				      .flags = flags,                                                                  \
				      .stream = hStream,                                                               \
				      .discards = true,                                                                \
				      .per_thread = own};                                                              \
		struct part part;                                                                                      \
                                                                                                                       \
		if (!entry_batch_take(&batch, &part, ret_result))                                                      \
			return false;                                                                                  \
		if (part.locations)                                                                                    \
			*ret_result = submit_##name(part.addresses, part.sizes, part.n, flags, hStream);               \
		batch_done(HOOK_##name, &batch, &part, *ret_result);                                                   \
		return true;                                                                                           \
	}
#define PREFETCH(name, own, discards_too)                                                                              \
	bool hint_##name(CUresult *ret_result, CUdeviceptr *dptrs, size_t *sizes, size_t count,                        \
			 CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,                 \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		struct batch batch = {                                                                                 \
		    dptrs,   sizes, count,        prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,               \
		    hStream, true,  discards_too, own};                                                                \
		struct part part;                                                                                      \
                                                                                                                       \
		if (!entry_batch_take(&batch, &part, ret_result))                                                      \
			return false;                                                                                  \
		if (part.locations)                                                                                    \
			*ret_result = submit_##name(part.addresses, part.sizes, part.n, part.locations, part.first,    \
						    part.n, flags, hStream);                                           \
		batch_done(HOOK_##name, &batch, &part, *ret_result);                                                   \
		return true;                                                                                           \
	}
DISCARD(cuMemDiscardBatchAsync, false)
DISCARD(cuMemDiscardBatchAsync_ptsz, true)
PREFETCH(cuMemPrefetchBatchAsync, false, false)
PREFETCH(cuMemPrefetchBatchAsync_ptsz, true, false)
PREFETCH(cuMemDiscardAndPrefetchBatchAsync, false, true)
PREFETCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, true, true)
