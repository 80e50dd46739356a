/*
 * The numbers of call sites and of range names: two tables of fixed size, read and extended without a lock. A slot is
 * claimed by exchanging its pointer, and its index is the number. Texts are made once and kept for the life of the
 * process. A name that finds no slot has number 0.
 */
#include "shim/base/caller_name.h"
#include "shim/trace/trace_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 4096 /* call sites, or names of ranges; numbers 1 ... SLOTS - 1 */
#define TRIED 64   /* slots that are searched for a name */

struct name {
	uint64_t hash; /* hash of the text, or the address of a call site */
	char text[];
};

struct table {
	_Atomic(struct name *) slot[SLOTS];
	/*
	 * Upper bound of the slots in use; counted before a slot is taken. Another thread may find a name and use its
	 * number before the thread that stored it continues; the drainer must see then that there is a new name.
	 */
	atomic_uint n;
	bool told[SLOTS]; /* this and the next: drainer only */
	unsigned n_told;
};

static struct table sites, ranges;

/* Stores a name in a slot. Returns false if another thread was faster; *there is the name that it stored. */
static bool take_slot(struct table *table, uint64_t at, struct name *made, struct name **there)
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
static uint64_t number_of(struct table *table, uint64_t hash, const char *text,
			  struct name *(*make)(uint64_t hash, const char *text))
{
	uint64_t first = (hash ^ hash >> 29) * UINT64_C(0x9fb21c651e98df25) >> 40;
	struct name *made = NULL;

	for (unsigned i = 0; i < TRIED; i++) {
		uint64_t at = (first + i) % (SLOTS - 1) + 1;
		struct name *there = atomic_load_explicit(&table->slot[at], memory_order_acquire);

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

static struct name *trace_names_copy(uint64_t hash, const char *text)
{
	size_t n = strlen(text) + 1;
	struct name *name = malloc(sizeof(*name) + n);

	if (name) {
		name->hash = hash;
		memcpy(name->text, text, n);
	}
	return name;
}

/* Makes a text like "libtorch_cuda.so+0x1234" for a call site. */
static struct name *trace_names_describe(uint64_t hash, const char *text)
{
	char room[320];

	(void)text;
	caller_name_text((void *)(uintptr_t)hash, room, sizeof(room));
	return trace_names_copy(hash, *room ? room : "?");
}

uint64_t trace_site(void *caller)
{
	int saved = errno;
	uint64_t number =
	    caller && trace_is_on() ? number_of(&sites, (uintptr_t)caller, NULL, trace_names_describe) : 0;

	errno = saved;
	return number;
}

uint64_t trace_range(const char *name)
{
	uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
	int saved = errno;

	for (const char *at = name; *at; at++)
		hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
	uint64_t number = number_of(&ranges, hash, name, trace_names_copy);
	errno = saved;
	return number;
}

static void each_new(struct table *table, enum trace_list list,
		     void (*visit)(void *argument, enum trace_list list, uint64_t number, const char *text),
		     void *argument)
{
	if (atomic_load_explicit(&table->n, memory_order_relaxed) == table->n_told)
		return;
	for (unsigned i = 1; i < SLOTS; i++) {
		const struct name *name = atomic_load_explicit(&table->slot[i], memory_order_acquire);

		if (!name || table->told[i])
			continue;
		table->told[i] = true;
		table->n_told++;
		visit(argument, list, i, name->text);
	}
}

void names_each_new(void (*visit)(void *argument, enum trace_list list, uint64_t number, const char *text),
		    void *argument)
{
	each_new(&sites, TRACE_SITES, visit, argument);
	each_new(&ranges, TRACE_RANGES, visit, argument);
}
