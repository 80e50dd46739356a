/* Defines what the room keeps for the process: its object. */
#include "shim/lifecycle/lifecycle_state.h"

struct lifecycle_state lifecycle_state = {
    .summary.lock = LOCK_INIT(LOCK_SUMMARY),
    .sampler_lock = LOCK_INIT(LOCK_SAMPLER),
};
