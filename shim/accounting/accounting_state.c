/* Defines what the room keeps for the process: its object, and va_ranges_any, which serve/ reads. */
#include "shim/accounting/accounting_state.h"
#include "shim/accounting/va_ranges.h"

_Atomic bool va_ranges_any;

struct accounting_state accounting_state = {
    .ledger = {.lock = LOCK_INIT(LOCK_LEDGER),
	       .table = accounting_state.ledger.first_table,
	       .n_buckets = LEDGER_FIRST_BUCKETS,
	       .all = {.low = UINT64_MAX},
	       .next_id = (uint64_t)1 << 40},
    .va_ranges = {.lock = LOCK_INIT(LOCK_VA_RANGES)},
    .quota = {.taking = LOCK_INIT(LOCK_QUOTA_TAKE),
	      .publishing = LOCK_INIT(LOCK_QUOTA_SEAT),
	      .seat = {.fd = -1},
	      .patience = 1000000000,
	      .want_lasts = 2000000000,
	      .sweep_every = 5000000,
	      .join_patience = 2000000000},
};
