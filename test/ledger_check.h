// SPDX-License-Identifier: Apache-2.0
/* ledger_check.h: how many rows the ledger has, and whether its table, spans and counts agree. */
#ifndef SPILLWAY_TEST_LEDGER_CHECK_H
#define SPILLWAY_TEST_LEDGER_CHECK_H

#include "shim/accounting/ledger.h"

static inline size_t ledger_n_rows(void)
{
	lock_take(&ledger.lock);
	size_t n = ledger.n_rows;
	lock_drop(&ledger.lock);
	return n;
}

static inline bool ledger_is_valid(void)
{
	size_t seen = 0, synced = 0, spanning = 0;
	bool ok = true;

	lock_take(&ledger.lock);
	for (size_t i = 0; i < ledger.n_buckets; i++) {
		for (const struct ledger_row *row = ledger.table[i]; row; row = row->next) {
			ok = ok && ledger_bucket(row->key, ledger.n_buckets) == i && row->kind;
			synced += row->sync_memops;
			spanning += row->spans;
			seen++;
		}
	}
	for (size_t i = 0; i < ledger.n_spans; i++)
		ok = ok && ledger.spans[i]->spans &&
		     (!i || ledger.spans[i - 1]->key + ledger.spans[i - 1]->bytes <= ledger.spans[i]->key);
	ok = ok && seen == ledger.n_rows && spanning == ledger.n_spans && ledger.n_spans <= ledger.n_spanning &&
	     ledger.n_spanning <= ledger.spans_room && synced == atomic_load(&ledger.n_sync_memops);
	lock_drop(&ledger.lock);
	return ok;
}

#endif
