/*
 * Traces, read and made, and Belady's rule on them; plan_sim_run.c puts the planner in charge of one.
 */
#include "test/unit/plan_sim.h"
#include "shim/plan/tensor_extents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *more(void *old, uint32_t *room, uint32_t want, size_t size)
{
	if (want <= *room)
		return old;
	while (*room < want)
		*room = *room ? *room * 2 : 1024;
	void *new = realloc(old, *room * size);
	if (!new)
		abort();
	return new;
}

/* ---- traces ---- */

void sim_add_event(struct sim_trace *trace, enum sim_kind kind, uint64_t function, const uint32_t *pieces, uint32_t n)
{
	trace->pieces = more(trace->pieces, &trace->piece_room, trace->n_pieces + n, sizeof(uint32_t));
	trace->events = more(trace->events, &trace->event_room, trace->n_events + 1, sizeof(*trace->events));
	trace->events[trace->n_events++] =
	    (struct sim_event){.kind = kind, .function = function, .from = trace->n_pieces, .n = n};
	memcpy(trace->pieces + trace->n_pieces, pieces, n * sizeof(*pieces));
	trace->n_pieces += n;
	trace->n_launches += kind == SIM_LAUNCH;
}

uint32_t sim_add_block(struct sim_trace *trace, uint32_t units, uint32_t cap_units)
{
	uint32_t first = trace->n_units, n = 0, most = cap_units ? cap_units : units;
	uint32_t *pieces = calloc(units, sizeof(*pieces));

	trace->units = more(trace->units, &trace->unit_room, first + units, sizeof(uint32_t));
	memset(trace->units + first, 0, units * sizeof(uint32_t));
	for (uint32_t left = units, at = first; left; n++) {
		while (cap_units && most > left)
			most /= 2;
		pieces[n] = at;
		trace->units[at] = most;
		at += most;
		left -= most;
	}
	trace->n_units += units;
	trace->need_units += units;
	sim_add_event(trace, SIM_NEW, 0, pieces, n);
	free(pieces);
	return first;
}

struct loading {
	struct sim_trace *trace;
	struct tensor_extents *extents;
	struct {
		uint32_t unit, event;
		uint64_t bytes;
	} * block;
	uint32_t block_room;
	uint32_t *mark; /* by unit: the launch that named the piece last */
	uint32_t mark_room;
	uint32_t names[16384], n_names;
	uint32_t cap_units;
};

static void name(struct loading *loading, uint32_t piece)
{
	struct sim_trace *trace = loading->trace;

	while (!trace->units[piece])
		piece--; /* the middle of one */
	if (loading->mark[piece] == trace->n_launches + 1 || loading->n_names == 16384)
		return;
	loading->mark[piece] = trace->n_launches + 1;
	loading->names[loading->n_names++] = piece;
}

/* Both passes over a launch's pointers: first their starts are learned, then what they reach is named. */
static void pointers(struct loading *loading, const char *text, bool learn)
{
	unsigned id;
	unsigned long long offset;
	int length;

	for (; sscanf(text, " %u:%llx%n", &id, &offset, &length) == 2; text += length) {
		uint32_t first = loading->block[id].unit;
		uint64_t bytes = loading->block[id].bytes;

		if (offset >= bytes)
			continue;
		if (learn) {
			tensor_extents_note(loading->extents, first, bytes, offset);
			continue;
		}
		uint64_t end = loading->cap_units ? tensor_extents_end(loading->extents, first, offset) : offset + 1;
		for (uint64_t unit = offset / SIM_UNIT; unit * SIM_UNIT < end; unit++)
			name(loading, first + (uint32_t)unit);
	}
}

static void load_line(struct loading *loading, char *line)
{
	struct sim_trace *trace = loading->trace;
	unsigned id;
	unsigned long long number;
	int length;

	if (sscanf(line, "A %u %llu", &id, &number) == 2) {
		loading->block = more(loading->block, &loading->block_room, id + 1, sizeof(*loading->block));
		loading->block[id].bytes = number;
		loading->block[id].event = trace->n_events;
		loading->block[id].unit =
		    sim_add_block(trace, (uint32_t)((number + SIM_UNIT - 1) / SIM_UNIT), loading->cap_units);
		uint32_t old = loading->mark_room;
		loading->mark = more(loading->mark, &loading->mark_room, trace->n_units, sizeof(uint32_t));
		memset(loading->mark + old, 0, (loading->mark_room - old) * sizeof(uint32_t));
	} else if (sscanf(line, "F %u", &id) == 1) {
		struct sim_event born = trace->events[loading->block[id].event];
		uint32_t *copy = malloc(born.n * sizeof(*copy));

		memcpy(copy, trace->pieces + born.from, born.n * sizeof(*copy));
		sim_add_event(trace, SIM_GONE, 0, copy, born.n);
		tensor_extents_forget(loading->extents, loading->block[id].unit);
		free(copy);
	} else if (sscanf(line, "L %llx%n", &number, &length) == 1) {
		loading->n_names = 0;
		pointers(loading, line + length, true);
		pointers(loading, line + length, false);
		sim_add_event(trace, SIM_LAUNCH, number, loading->names, loading->n_names);
		tensor_extents_submitted(loading->extents, TENSOR_EXTENTS_AGE);
	}
}

bool sim_load(struct sim_trace *trace, const char *path, uint32_t cap_units)
{
	struct loading *loading = calloc(1, sizeof(*loading));
	char command[1200], *line = NULL;
	size_t room = 0;

	*trace = (struct sim_trace){0};
	snprintf(command, sizeof(command), "gzip -dc '%s'", path);
	FILE *file = popen(command, "r");
	if (!loading || !file)
		return false;
	loading->trace = trace;
	loading->cap_units = cap_units;
	loading->extents = tensor_extents_new();
	while (getline(&line, &room, file) > 0)
		load_line(loading, line);
	tensor_extents_free(loading->extents);
	free(loading->block);
	free(loading->mark);
	free(loading);
	free(line);
	return pclose(file) == 0 && trace->n_launches;
}

void sim_unload(struct sim_trace *trace)
{
	free(trace->events);
	free(trace->pieces);
	free(trace->units);
	*trace = (struct sim_trace){0};
}

/* ---- Belady ---- */

struct belady {
	uint64_t *next; /* by place in trace->pieces: the event at which the piece is named again */
	uint64_t *use;  /* by piece: the event at which it is named next */
	uint8_t *in;    /* by piece */
	uint32_t *resident, n_resident;
	uint64_t used_units;
};

static void belady_evict(struct belady *belady, const struct sim_trace *trace, uint64_t budget, uint32_t event)
{
	while (belady->used_units > budget) {
		uint32_t best = UINT32_MAX;

		for (uint32_t i = 0; i < belady->n_resident; i++)
			if (belady->use[belady->resident[i]] > event &&
			    (best == UINT32_MAX ||
			     belady->use[belady->resident[i]] > belady->use[belady->resident[best]]))
				best = i;
		if (best == UINT32_MAX)
			return;
		uint32_t piece = belady->resident[best];
		belady->resident[best] = belady->resident[--belady->n_resident];
		belady->in[piece] = false;
		belady->used_units -= trace->units[piece];
	}
}

uint64_t sim_belady(const struct sim_trace *trace, uint64_t budget_units, uint32_t from)
{
	struct belady belady = {
	    .next = calloc(trace->n_pieces, sizeof(uint64_t)),
	    .use = calloc(trace->n_units, sizeof(uint64_t)),
	    .in = calloc(trace->n_units, 1),
	    .resident = calloc(trace->n_units, sizeof(uint32_t)),
	};
	uint64_t units_in = 0;
	uint32_t launch = 0;

	for (uint32_t i = 0; i < trace->n_units; i++)
		belady.use[i] = UINT64_MAX;
	for (uint32_t e = trace->n_events; e-- > 0;)
		for (uint32_t i = trace->events[e].from; i < trace->events[e].from + trace->events[e].n; i++) {
			belady.next[i] = belady.use[trace->pieces[i]];
			if (trace->events[e].kind == SIM_LAUNCH)
				belady.use[trace->pieces[i]] = e;
		}
	for (uint32_t e = 0; e < trace->n_events; e++) {
		const struct sim_event *event = &trace->events[e];

		launch += event->kind == SIM_LAUNCH;
		for (uint32_t i = event->from; i < event->from + event->n && event->kind == SIM_LAUNCH; i++) {
			uint32_t piece = trace->pieces[i];

			belady.use[piece] = e; /* is in use: no victim */
			if (belady.in[piece])
				continue;
			belady.in[piece] = true;
			belady.resident[belady.n_resident++] = piece;
			belady.used_units += trace->units[piece];
			if (launch > from)
				units_in += trace->units[piece];
		}
		belady_evict(&belady, trace, budget_units, e);
		for (uint32_t i = event->from; i < event->from + event->n && event->kind == SIM_LAUNCH; i++)
			belady.use[trace->pieces[i]] = belady.next[i];
	}
	free(belady.next);
	free(belady.use);
	free(belady.in);
	free(belady.resident);
	return units_in * SIM_UNIT;
}
