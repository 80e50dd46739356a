/*
 * The function by which NVTX attaches this library, if the user has named it in NVTX_INJECTION64_PATH (nvtx.h). NVTX
 * defines the name.
 */
#include "shim/serve/alloc_decide.h"
#include "shim/serve/nvtx.h"

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id));

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
	return nvtx_attach(export_table, alloc_decide_wants_ranges());
}
