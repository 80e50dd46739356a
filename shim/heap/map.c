#include "shim/heap/map.h"
#include "shim/clock.h"
#include "shim/real.h"
#include "shim/stats.h"

static CUresult counted(CUresult result, enum histogram histogram, uint64_t begin)
{
	stats_time(histogram, begin);
	stats_add(STAT_maps, 1);
	return result;
}

CUresult map_chunk(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
	uint64_t begin = clock_now();

	return counted(REAL(cuMemMap)(at, bytes, 0, handle, 0), HISTOGRAM_map_ns, begin);
}

CUresult map_allow(CUdeviceptr at, uint64_t bytes, CUdevice device)
{
	CUmemAccessDesc access = {
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	uint64_t begin = clock_now();

	return counted(REAL(cuMemSetAccess)(at, bytes, &access, 1), HISTOGRAM_map_ns, begin);
}

CUresult map_remove(CUdeviceptr at, uint64_t bytes)
{
	uint64_t begin = clock_now();

	return counted(REAL(cuMemUnmap)(at, bytes), HISTOGRAM_unmap_ns, begin);
}
