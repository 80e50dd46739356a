/* Calls the driver's mapping functions, and counts and times them (map.h). */
#include "shim/heap/map.h"
#include "shim/base/clock.h"
#include "shim/driver/real.h"
#include "shim/stats/stats.h"

static CUresult map_counted(CUresult result, enum histogram histogram, uint64_t begin)
{
	stats_time(histogram, begin);
	stats_add(STAT_maps, 1);
	return result;
}

CUresult map_chunk(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
	uint64_t begin = clock_now();

	return map_counted(REAL(cuMemMap)(at, bytes, 0, handle, 0), HISTOGRAM_map_ns, begin);
}

static CUmemAccessDesc access_of(CUdevice device, bool allow)
{
	return (CUmemAccessDesc){
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	    .flags = allow ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE,
	};
}

/* Appends to the first n descriptions; returns their new number. */
static unsigned add_peers(CUmemAccessDesc *access, unsigned n, uint64_t peers, bool allow)
{
	for (; peers; peers &= peers - 1)
		access[n++] = access_of(__builtin_ctzll(peers), allow);
	return n;
}

CUresult map_allow(CUdeviceptr at, uint64_t bytes, CUdevice device, uint64_t peers)
{
	CUmemAccessDesc access[65] = {access_of(device, true)};
	uint64_t begin = clock_now();
	unsigned n = add_peers(access, 1, peers, true);

	return map_counted(REAL(cuMemSetAccess)(at, bytes, access, n), HISTOGRAM_map_ns, begin);
}

CUresult map_allow_peers(CUdeviceptr at, uint64_t bytes, uint64_t peers, bool allow)
{
	CUmemAccessDesc access[64];
	uint64_t begin = clock_now();
	unsigned n = add_peers(access, 0, peers, allow);

	return map_counted(REAL(cuMemSetAccess)(at, bytes, access, n), HISTOGRAM_map_ns, begin);
}

CUresult map_remove(CUdeviceptr at, uint64_t bytes)
{
	uint64_t begin = clock_now();

	return map_counted(REAL(cuMemUnmap)(at, bytes), HISTOGRAM_unmap_ns, begin);
}
