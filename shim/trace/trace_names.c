/*
 * The state of the trace, and what switches it on and off; and the numbers of call sites and of range names: two tables
 * of fixed size, read and extended without a lock. A slot is claimed by exchanging its pointer, and its index is the
 * number. Texts are made once and kept for the life of the process. A name that finds no slot has number 0.
 */
#include "shim/base/call_site.h"
#include "shim/base/log.h"
#include "shim/trace/trace_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read by an inline function of trace.h in all rooms, so it is apart. */
_Atomic bool trace_on;
struct trace_state trace_state = {
    .rings.none = {.busy = true},
    .start.lock = LOCK_INIT(LOCK_TRACE_START),
    .drainer = {.lock = LOCK_INIT(LOCK_TRACE_FILE), .file = {.fd = -1}},
};
struct trace_tables trace_tables;

void state_begin(const struct trace_sources *sources)
{
	trace_state.start.sources = sources;
	atomic_store(&trace_on, true);
	sources->submissions(true);
}

void state_stop(void)
{
	trace_state.start.sources->submissions(false);
	atomic_store(&trace_on, false);
}

void trace_fail(const char *why)
{
	state_stop();
	log_once("the trace ends here, the program goes on: %s", why);
}

void trace_child(void)
{
	atomic_store(&trace_on, false);
}

uint64_t trace_lost(void)
{
	uint64_t sum = atomic_load(&trace_state.rings.none.lost);

	for (struct ring *ring = atomic_load(&trace_state.rings.first); ring; ring = ring->next)
		sum += atomic_load_explicit(&ring->lost, memory_order_relaxed);
	return sum;
}

/* ---- numbers ---- */

#define TRIED 64 /* slots that are searched for a name */

/* Stores a name in a slot. Returns false if another thread was faster; *there is the name that it stored. */
static bool take_slot(struct trace_names *table, uint64_t at, struct trace_name *made, struct trace_name **there)
{
	atomic_fetch_add_explicit(&table->n, 1, memory_order_relaxed);
	if (atomic_compare_exchange_strong(&table->slot[at], there, made))
		return true;
	atomic_fetch_sub_explicit(&table->n, 1, memory_order_relaxed);
	return false;
}

/*
 * Makes the name of a range, or of a call site: "train.py:57 in forward [libcublasLt.so.13]". Returns NULL if there is
 * no memory.
 */
static struct trace_name *name_of(const struct call_site *site, const char *range)
{
	char text[512];

	if (!site || !site->library)
		snprintf(text, sizeof(text), "%s", !site ? range : *site->text ? site->text : "?");
	else
		snprintf(text, sizeof(text), "%s [%s]", site->text, site->library);
	struct trace_name *name = malloc(sizeof(*name) + strlen(text) + 1);

	if (name) {
		name->site = site;
		strcpy(name->text, text);
	}
	return name;
}

/* Returns the number of the call site, or of the range, whose name it makes if necessary. Leaves errno as it is. */
static uint64_t number_of(struct trace_names *table, const struct call_site *site, const char *range)
{
	struct trace_name *made = NULL;
	uint64_t hash = (uintptr_t)site, number = 0;
	int saved = errno;

	for (const char *at = site ? "" : range; *at; at++)
		hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211); /* FNV-1a */
	uint64_t first = (hash ^ hash >> 29) * UINT64_C(0x9fb21c651e98df25) >> 40;
	for (unsigned i = 0; i < TRIED && !number; i++) {
		uint64_t at = (first + i) % (TRACE_NAMES_SLOTS - 1) + 1;
		struct trace_name *there = atomic_load_explicit(&table->slot[at], memory_order_acquire);

		if (!there && !made && !(made = name_of(site, range)))
			break;
		if (!there && take_slot(table, at, made, &there)) {
			made = NULL;
			number = at;
		} else if (site ? there->site == site : !strcmp(there->text, range)) {
			/* The slot was in use, or another thread has just filled it, with this name. */
			number = at;
		}
	}
	free(made);
	errno = saved;
	return number;
}

uint64_t trace_site(const struct call_site *site)
{
	return site && trace_is_on() ? number_of(&trace_tables.sites, site, NULL) : 0;
}

uint64_t trace_range(const char *name)
{
	return trace_is_on() ? number_of(&trace_tables.ranges, NULL, name) : 0;
}

void names_each_new(enum trace_list list,
		    void (*visit)(void *argument, enum trace_list list, uint64_t number, const char *text),
		    void *argument)
{
	struct trace_names *table = list == TRACE_SITES ? &trace_tables.sites : &trace_tables.ranges;

	if (atomic_load_explicit(&table->n, memory_order_relaxed) == table->n_told)
		return;
	for (unsigned i = 1; i < TRACE_NAMES_SLOTS; i++) {
		const struct trace_name *name = atomic_load_explicit(&table->slot[i], memory_order_acquire);

		if (!name || table->told[i])
			continue;
		table->told[i] = true;
		table->n_told++;
		visit(argument, list, i, name->text);
		if (name->site && name->site->callers)
			visit(argument, TRACE_CALLERS, i, name->site->callers);
	}
}
