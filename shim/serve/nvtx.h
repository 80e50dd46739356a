/*
 * nvtx.h: the NVTX ranges that the program has pushed, for rules that look at them (match.nvtx).
 *
 * NVTX is compiled into its users, and loads the one tool that NVTX_INJECTION64_PATH names. A user who wants ranges
 * to be known names this library there; a profiler names itself and takes precedence, and then none is known. The
 * library does not set the variable (`spillway run` does, if a rule wants ranges): unrelated programs would inherit
 * it. The other way in, a pointer that a static tool defines, is hidden by NVTX's header in every library, out of
 * reach of a preloaded one.
 */
#ifndef SPILLWAY_NVTX_H
#define SPILLWAY_NVTX_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Attaches to the NVTX of one library, which calls this as NvtxInitializeInjectionNvtxFunc_t. wanted: from
 * alloc_decide_wants_ranges(). Returns nonzero if we attach.
 */
int nvtx_attach(const void *(*export_table)(uint32_t id), bool wanted);

/* Called if rules look at ranges: logs it if none will be known. */
void nvtx_say(void);

/*
 * Returns the name of this thread's innermost range, valid until it pushes or pops another, or NULL if none is known.
 */
const char *nvtx_range(void);

#endif
