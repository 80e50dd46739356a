// SPDX-License-Identifier: Apache-2.0
/*
 * figures_help.h: a program that fills its device and more, for tests of its figures. In a child (child.h), whose files
 * are in the test's own folder (folder.h).
 */
#ifndef PRELOAD_FIGURES_HELP_H
#define PRELOAD_FIGURES_HELP_H

#include "shim/stats/stats_page.h"
#include "test/preload/child.h"
#include "test/preload/folder.h"

#define N_BLOCKS 12
#define BLOCK    (4 * MIB)
#define N_WORDS  (BLOCK / 4)

#define SETTINGS(more)                                                                                                 \
	((const char *const[]){"SIM_MEMORY=128MiB", runtime,                                                           \
			       "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no" more, NULL})

extern CUdeviceptr blocks[N_BLOCKS];

/* Allocate all blocks and fill each three times. */
void work(void);
void free_blocks(void);
/* The only page there is, to be read alone. */
const struct stats_page *page_there(void);

#endif
