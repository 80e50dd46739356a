/*
 * nvtx.h: the NVTX ranges that the program has pushed, for rules that look at them (match.nvtx).
 *
 * NVTX is compiled into whoever uses it, and takes the one tool that NVTX_INJECTION64_PATH names. A user who wants ranges
 * to be known names this library there; a profiler names itself, comes first, and then none is known. The library does not
 * set the variable (`spillway run` does, where a rule wants ranges): programs would inherit it that have nothing to do with us. The other way in, a pointer that a static
 * tool defines, is hidden by NVTX's header in every library, out of reach of one that is preloaded.
 */
#ifndef SPILLWAY_NVTX_H
#define SPILLWAY_NVTX_H

#include <stdbool.h>
#include <stdint.h>

/*
 * One NVTX, of one library, offers itself: as NvtxInitializeInjectionNvtxFunc_t. wanted: by alloc_decide_wants_ranges(). Returns
 * nonzero if we take it.
 */
int nvtx_attach(const void *(*export_table)(uint32_t id), bool wanted);

/* Rules look at ranges: will any be known? If not, that is said. */
void nvtx_say(void);

/* The name of this thread's innermost range, good until it pushes or pops another; NULL: none is known. */
const char *nvtx_range(void);

#endif
