// SPDX-License-Identifier: Apache-2.0
/* Defines what the room keeps for the process: its objects, and what inline functions of other rooms read. */
#include "shim/submit/types.h"
#include "shim/submit/pointer_arrays.h"

struct submission_stripe submission_stripes[SUBMISSION_STRIPES];
_Atomic uint32_t submission_state;
_Atomic bool pdl_cleared;
_Atomic bool pointer_arrays_any;

struct submit_state submit_state = {
    .completion = {.table_lock = LOCK_INIT(LOCK_ROWS), .rows = {[0 ... ROWS] = {.lock = LOCK_INIT(LOCK_ROW)}}},
    .gate = {.devices = UINT64_MAX, .lock = LOCK_INIT(LOCK_GATE)},
    .kernel_params_generation = 1,
    .pdl_setting = POLICY_PDL_KEEP,
    .graph_lock = LOCK_INIT(LOCK_GRAPH),
    .pointer_arrays_lock = LOCK_INIT(LOCK_POINTER_ARRAYS),
};
struct submit_tables submit_tables;
