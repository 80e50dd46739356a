/*
 * graph_scratch.c: makes and maps the scratch ranges of a device. Each range has two units of 2 MiB. See
 * graph_scratch.h.
 */
#include "shim/serve/graph_scratch.h"
#include "shim/serve/serve_state.h"
#include "shim/heap/map.h"
#include "shim/driver/real.h"

static struct scratch *scratch_of(const struct device *device)
{
	return &serve_state.scratch[device->ordinal];
}

static unsigned range_of(enum scratch_side side, enum scratch_kind was, enum scratch_kind will)
{
	return ((unsigned)side * SCRATCH_KINDS + (unsigned)was) * SCRATCH_KINDS + (unsigned)will;
}

static CUdeviceptr address_of(const struct scratch *scratch, unsigned range, unsigned unit)
{
	return scratch->base + ((CUdeviceptr)range * SCRATCH_UNITS + unit) * HEAP_UNIT;
}

/* ---- making ---- */

static bool graph_scratch_create(CUmemLocation location, struct budget *budget,
				 CUmemGenericAllocationHandle *ret_handle)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};

	if (REAL(cuMemCreate)(ret_handle, HEAP_UNIT, &prop, 0) != CUDA_SUCCESS)
		return false;
	budget_charge(budget, HEAP_UNIT);
	return true;
}

/* After a failure, what was made is kept for the next try. */
static bool graph_scratch_make(struct device *device, struct scratch *scratch)
{
	CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal};

	if (!device->host_vmm)
		return false;
	if (!scratch->memory[MAPPED_OF_DEVICE] &&
	    !graph_scratch_create(here, &device->budget, &scratch->memory[MAPPED_OF_DEVICE]))
		return false;
	if (!scratch->memory[MAPPED_OF_HOST] &&
	    !graph_scratch_create(device->host_location, &host_budget, &scratch->memory[MAPPED_OF_HOST]))
		return false;
	return scratch->base || REAL(cuMemAddressReserve)(&scratch->base, SCRATCH_RANGES * SCRATCH_UNITS * HEAP_UNIT,
							  HEAP_UNIT, 0, 0) == CUDA_SUCCESS;
}

bool scratch_begin(struct device *device)
{
	struct scratch *scratch = scratch_of(device);

	lock_assert_held(LOCK_MEND);
	if (!scratch->made && !scratch->abandoned)
		scratch->made = graph_scratch_make(device, scratch);
	return scratch->made && !scratch->abandoned;
}

/* ---- mapping ---- */

static bool graph_scratch_clear(struct scratch *scratch, unsigned range, unsigned unit)
{
	unsigned char *mapped = &scratch->mapped[range][unit];

	if (*mapped != MAPPED_NOTHING && map_remove(address_of(scratch, range, unit), HEAP_UNIT) != CUDA_SUCCESS)
		return false;
	*mapped = MAPPED_NOTHING;
	return true;
}

static bool graph_scratch_fill(const struct device *device, struct scratch *scratch, unsigned range, unsigned unit,
			       unsigned char what)
{
	CUdeviceptr at = address_of(scratch, range, unit);

	if (scratch->mapped[range][unit] == what)
		return true;
	if (!graph_scratch_clear(scratch, range, unit) ||
	    map_chunk(at, HEAP_UNIT, scratch->memory[what]) != CUDA_SUCCESS)
		return false;
	scratch->mapped[range][unit] = what;
	if (map_allow(at, HEAP_UNIT, device->ordinal, 0) == CUDA_SUCCESS)
		return true;
	graph_scratch_clear(scratch, range, unit);
	return false;
}

bool scratch_show(struct device *device, enum scratch_side side, enum scratch_kind was, enum scratch_kind will,
		  enum scratch_kind kind)
{
	struct scratch *scratch = scratch_of(device);
	unsigned range = range_of(side, was, will);

	lock_assert_held(LOCK_MEND);
	return graph_scratch_fill(device, scratch, range, 0,
				  kind == SCRATCH_HOST ? MAPPED_OF_HOST : MAPPED_OF_DEVICE) &&
	       graph_scratch_fill(device, scratch, range, 1,
				  kind == SCRATCH_DEVICE ? MAPPED_OF_DEVICE : MAPPED_OF_HOST);
}

CUdeviceptr scratch_at(const struct device *device, enum scratch_side side, enum scratch_kind was,
		       enum scratch_kind will, size_t bytes)
{
	/* MIXED: around the middle, where the kinds meet. */
	return address_of(scratch_of(device), range_of(side, was, will), 1) - bytes / 2;
}

void scratch_end(struct device *device)
{
	struct scratch *scratch = scratch_of(device);

	lock_assert_held(LOCK_MEND);
	for (unsigned range = 0; range < SCRATCH_RANGES; range++)
		for (unsigned unit = 0; unit < SCRATCH_UNITS; unit++)
			graph_scratch_clear(scratch, range, unit);
}

void scratch_abandon(struct device *device)
{
	lock_assert_held(LOCK_MEND);
	scratch_of(device)->abandoned = true;
	scratch_end(device);
}
