/* Defines what the room keeps for the process: its object. */
#include "shim/mover/mover_state.h"

struct mover_state mover_state = {
    .alive.lock = LOCK_INIT(LOCK_MOVERS),
    .discard.lock = LOCK_INIT(LOCK_DISCARD),
    .quiescing.lock = LOCK_INIT(LOCK_QUIESCE),
    .spill.lock = LOCK_INIT(LOCK_ENGINE_START),
};
