/* Defines what the room keeps for the process: its object, and capture_lock, which the fork handler names. */
#include "shim/context/context_state.h"
#include "shim/context/capture.h"

struct lock capture_lock = LOCK_INIT(LOCK_CAPTURE);

struct context_state context_state = {
    .event = {.lock = LOCK_INIT(LOCK_EVENTS)},
    .all = {.lock = LOCK_INIT(LOCK_CONTEXTS), .n_changes = 1},
};
