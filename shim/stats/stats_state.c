/* Defines what the room keeps for the process: its object, and beside it the page and the stripes of calls. */
#include "shim/stats/stats_state.h"

struct stats_page stats = {.bytes = sizeof(struct stats_page), .version = STATS_VERSION, .magic = STATS_MAGIC};
struct stats_stripe stats_stripes[STATS_STRIPES];

struct stats_state stats_state = {.waiting = {.lock = LOCK_INIT(LOCK_WAITING)}};
