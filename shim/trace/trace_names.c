/*
 * The state of the trace, and what switches it on and off; and the numbers of call sites and of range names: two tables of fixed size, read and extended without a lock. A slot is
 * claimed by exchanging its pointer, and its index is the number. Texts are made once and kept for the life of the
 * process. A name that finds no slot has number 0.
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
 * Returns the number of the name with this hash and text, which it creates if necessary. text NULL: compares the hash
 * only.
 */
static uint64_t number_of(struct trace_names *table, uint64_t hash, const char *text,
			  struct trace_name *(*make)(uint64_t hash, const char *text))
{
	uint64_t first = (hash ^ hash >> 29) * UINT64_C(0x9fb21c651e98df25) >> 40;
	struct trace_name *made = NULL;

	for (unsigned i = 0; i < TRIED; i++) {
		uint64_t at = (first + i) % (TRACE_NAMES_SLOTS - 1) + 1;
		struct trace_name *there = atomic_load_explicit(&table->slot[at], memory_order_acquire);

		if (!there && !made && !(made = make(hash, text)))
			return 0;
		if (!there && take_slot(table, at, made, &there))
			return at;
		/* The slot was in use, or another thread has just filled it, with this name or another. */
		if (there->hash == hash && (!text || !strcmp(there->text, text))) {
			free(made);
			return at;
		}
	}
	free(made);
	return 0;
}

static struct trace_name *trace_names_copy(uint64_t hash, const char *text)
{
	size_t n = strlen(text) + 1;
	struct trace_name *name = malloc(sizeof(*name) + n);

	if (name) {
		name->hash = hash;
		memcpy(name->text, text, n);
	}
	return name;
}

/* Makes the name of a call site, which its address identifies: "train.py:57 in forward [libcublasLt.so.13]". */
static struct trace_name *trace_names_describe(uint64_t hash, const char *text)
{
	const struct call_site *site = (const struct call_site *)(uintptr_t)hash;
	char room[512];

	(void)text;
	if (!site->library)
		return trace_names_copy(hash, *site->text ? site->text : "?");
	snprintf(room, sizeof(room), "%s [%s]", site->text, site->library);
	return trace_names_copy(hash, room);
}

uint64_t trace_site(const struct call_site *site)
{
	int saved = errno;
	uint64_t number =
	    site && trace_is_on() ? number_of(&trace_tables.sites, (uintptr_t)site, NULL, trace_names_describe) : 0;

	errno = saved;
	return number;
}

uint64_t trace_range(const char *name)
{
	uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
	int saved = errno;

	for (const char *at = name; *at; at++)
		hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
	uint64_t number = number_of(&trace_tables.ranges, hash, name, trace_names_copy);
	errno = saved;
	return number;
}

/* A name of a call site has its address as hash. */
static const struct call_site *site_of(const struct trace_name *name)
{
	return (const struct call_site *)(uintptr_t)name->hash;
}

static void each_new(struct trace_names *table, enum trace_list list,
		     void (*visit)(void *argument, enum trace_list list, uint64_t number, const char *text),
		     void *argument)
{
	if (atomic_load_explicit(&table->n, memory_order_relaxed) == table->n_told)
		return;
	for (unsigned i = 1; i < TRACE_NAMES_SLOTS; i++) {
		const struct trace_name *name = atomic_load_explicit(&table->slot[i], memory_order_acquire);

		if (!name || table->told[i])
			continue;
		table->told[i] = true;
		table->n_told++;
		visit(argument, list, i, name->text);
		if (list == TRACE_SITES && site_of(name)->callers)
			visit(argument, TRACE_CALLERS, i, site_of(name)->callers);
	}
}

void names_each_new(void (*visit)(void *argument, enum trace_list list, uint64_t number, const char *text),
		    void *argument)
{
	each_new(&trace_tables.sites, TRACE_SITES, visit, argument);
	each_new(&trace_tables.ranges, TRACE_RANGES, visit, argument);
}
