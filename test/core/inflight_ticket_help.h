// SPDX-License-Identifier: Apache-2.0
/*
 * inflight_ticket_help.h: what the tests of tickets share: an engine with a heap of two blocks. There is no mover, the
 * test is.
 */
#ifndef SPILLWAY_TEST_INFLIGHT_TICKET_HELP_H
#define SPILLWAY_TEST_INFLIGHT_TICKET_HELP_H

#include "test/core/completion_help.h"
#include "test/core/log_help.h"

#include "shim/mover/mover.h"
#include "shim/submit/submission.h"

extern CUcontext ticket_context;
extern struct engine *ticket_engine;
extern struct arena *ticket_arena;
extern CUdeviceptr ticket_block, ticket_other; /* of a unit each */

/* cmocka's, for a group: memory moves beside what is submitted. */
int ticket_set_up(void **state);
int ticket_tear_down(void **state);

struct block_state *ticket_mark(CUdeviceptr address);
uint32_t ticket_unit(CUdeviceptr address);
/* Is the block used, by the mover's book, with all up to that number done? What the log has is heard first. */
bool ticket_is_out_for(CUdeviceptr address, uint64_t done);
void ticket_empty_log(void);

/* A submission that names the address, twice. */
struct submission *ticket_open(CUdeviceptr address);
/* Also submitted: its number. */
uint64_t ticket_submit(CUdeviceptr address);

#endif
