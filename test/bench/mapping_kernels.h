// SPDX-License-Identifier: Apache-2.0
/*
 * mapping_kernels.h: the kernels of mapping.c, for the driver as PTX and for the simulated GPU, where they do no more
 * than is looked at. Included once.
 */
#ifndef SPILLWAY_BENCH_MAPPING_KERNELS_H
#define SPILLWAY_BENCH_MAPPING_KERNELS_H

#include <stdint.h>
#include <string.h>

#include "test/sim/sim.h"

/* Adds 1 to a word of each 16 bytes of n times 16. */
static const char sweep_ptx[] = ".version 6.4\n"
				".target sm_75\n"
				".address_size 64\n"
				".visible .entry sweep(.param .u64 words, .param .u32 count) {\n"
				"  .reg .pred end; .reg .b32 i, step, n, t, b, x<4>; .reg .b64 at, here;\n"
				"  ld.param.u64 at, [words]; ld.param.u32 n, [count];\n"
				"  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 step, %ntid.x;\n"
				"  mad.lo.u32 i, b, step, t; mov.u32 b, %nctaid.x; mul.lo.u32 step, step, b;\n"
				"next: setp.ge.u32 end, i, n; @end bra done;\n"
				"  mul.wide.u32 here, i, 16; add.u64 here, here, at;\n"
				"  ld.global.v4.u32 {x0, x1, x2, x3}, [here]; add.u32 x0, x0, 1;\n"
				"  st.global.v4.u32 [here], {x0, x1, x2, x3};\n"
				"  add.u32 i, i, step; bra next;\n"
				"done: ret; }\n";

/* n times 16 bytes from one address to another. */
static const char copy_ptx[] = ".version 6.4\n"
			       ".target sm_75\n"
			       ".address_size 64\n"
			       ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 count) {\n"
			       "  .reg .pred end; .reg .b32 i, step, n, t, b, x<4>; .reg .b64 src, dst, at;\n"
			       "  ld.param.u64 dst, [to]; ld.param.u64 src, [from]; ld.param.u32 n, [count];\n"
			       "  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 step, %ntid.x;\n"
			       "  mad.lo.u32 i, b, step, t; mov.u32 b, %nctaid.x; mul.lo.u32 step, step, b;\n"
			       "next: setp.ge.u32 end, i, n; @end bra done;\n"
			       "  mul.wide.u32 at, i, 16; add.u64 at, at, src;\n"
			       "  ld.global.cs.v4.u32 {x0, x1, x2, x3}, [at];\n"
			       "  mul.wide.u32 at, i, 16; add.u64 at, at, dst;\n"
			       "  st.global.cs.v4.u32 [at], {x0, x1, x2, x3};\n"
			       "  add.u32 i, i, step; bra next;\n"
			       "done: ret; }\n";

static void sweep_body(const struct sim_launch *launch, void **args) {}

static void copy_body(const struct sim_launch *launch, void **args)
{
	memcpy(*(void **)args[0], *(void **)args[1], (size_t) * (uint32_t *)args[2] * 16);
}

SIM_MODULE(sweep_module, SIM_KERNEL("sweep", sweep_body, 8, 4), SIM_KERNEL("copy", copy_body, 8, 8, 4));

#endif
