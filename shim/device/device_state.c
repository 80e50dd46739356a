/* Defines what the room keeps for the process: its object, and beside it what other rooms name. */
#include "shim/device/device_state.h"
#include "shim/device/peer.h"
#include "shim/device/peer_map.h"
#include "shim/device/pool.h"

struct budget host_budget;
struct lock pool_lock = LOCK_INIT(LOCK_POOL);
struct lock peer_lock = LOCK_INIT(LOCK_PEER);
_Atomic bool peer_any;

struct device_state device_state;
