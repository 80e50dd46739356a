/*
 * Turns the frames of a trace into rows. Frames are read in the order of the file, and each event becomes a row at
 * once. Rows of submissions with the same addresses share one copy of them; submissions that the file repeats by
 * number are looked up by that number.
 */
#include "tools/trace/trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	FRAME_HEAD = 24,      /* bytes before the events */
	NAMES_MOST = 1 << 20, /* limit of the numbers of names */
	SEARCHES = 16,        /* attempts to find a frame after one whose length exceeds the file */
};

/* ---- submissions: each different one once ---- */

static uint64_t hash_submit(const struct submit *submit)
{
	uint64_t hash = (submit->function << 8 ^ submit->device) * UINT64_C(0x9fb21c651e98df25);

	for (uint64_t i = 0; i < submit->n; i++) {
		hash = (hash ^ hash >> 32 ^ submit->named[i].address) * UINT64_C(0x9fb21c651e98df25);
		hash = (hash ^ hash >> 32 ^ submit->named[i].bytes) * UINT64_C(0x9fb21c651e98df25);
	}
	return hash;
}

static bool is_same(const struct submit *a, const struct submit *b)
{
	return a->function == b->function && a->device == b->device && a->n == b->n &&
	       (!a->n || !memcmp(a->named, b->named, a->n * sizeof(*a->named)));
}

/* event->named is scratch memory before the call and belongs to the trace after it. */
static bool keep_submit(struct reader *reader, struct trace_row *row)
{
	struct trace_event *event = &row->event;
	struct submit submit = {event->submit.function, event->submit.device, event->submit.n, reader->named, 0};

	if (!reader_room(reader, (void **)&reader->submits, reader->n_submits, &reader->submits_room, sizeof(submit)))
		return false;
	uint64_t hash = hash_submit(&submit), same;
	/*
	 * Different ones with the same hash, which a file may be made to have, are not found again; that is no error.
	 */
	if (number_map_get(&reader->by_hash, hash, &same) && is_same(&reader->submits[same], &submit)) {
		submit = reader->submits[same];
	} else {
		struct trace_named *named = trace_memory(reader->trace, submit.n * sizeof(*named));

		reader->no_memory |= !named || !number_map_set(&reader->by_hash, hash, reader->n_submits);
		if (reader->no_memory)
			return false;
		if (submit.n)
			memcpy(named, reader->named, submit.n * sizeof(*named));
		submit.named = named;
		submit.which = reader->trace->n_submits++;
	}
	reader->submits[reader->n_submits++] = submit;
	event->named = submit.named;
	row->which = submit.which;
	return true;
}

/* Returns false if no submission has that number. */
static bool repeat_submit(const struct reader *reader, struct trace_row *row)
{
	struct trace_event *event = &row->event;

	if (event->again.earlier >= reader->n_submits)
		return false;
	const struct submit *submit = &reader->submits[event->again.earlier];
	event->kind = TRACE_submit;
	event->submit.function = submit->function;
	event->submit.device = submit->device;
	event->submit.n = submit->n;
	event->named = submit->named;
	row->which = submit->which;
	return true;
}

/* ---- events ---- */

/* Lists and numbers out of range come from another version or are damaged; they are ignored. */
static bool keep_name(struct reader *reader, const struct trace_event *event)
{
	struct trace *trace = reader->trace;
	uint64_t list = event->name.list, number = event->name.number;

	if (list >= TRACE_LISTS || number >= NAMES_MOST)
		return true;
	while (number >= reader->names_room[list])
		if (!reader_room(reader, (void **)&trace->names[list], reader->names_room[list],
				 &reader->names_room[list], sizeof(*trace->names[list])))
			return false;
	for (; trace->n_names[list] <= number; trace->n_names[list]++)
		trace->names[list][trace->n_names[list]] = NULL;
	trace->names[list][number] = reader_text(trace, event->text, event->text_bytes, false);
	reader->no_memory |= !trace->names[list][number];
	return !reader->no_memory;
}

/* Returns false if the reading must end here. */
static bool keep_event(struct reader *reader, const struct trace_event *event)
{
	struct trace *trace = reader->trace;

	if (event->kind >= TRACE_KINDS)
		return true;
	if (trace->n_rows >= TRACE_NONE - 1) {
		reader_problem(trace, "has more events than this reader can number");
		trace->damaged = true;
		return false;
	}
	if (!reader_room(reader, (void **)&trace->rows, trace->n_rows, &reader->rows_room, sizeof(*trace->rows)))
		return false;
	struct trace_row *row = &trace->rows[trace->n_rows];
	*row = (struct trace_row){.event = *event, .which = TRACE_NONE};
	if (event->kind != TRACE_submit)
		row->event.named = NULL;
	if (event->kind == TRACE_submit && !keep_submit(reader, row))
		return false;
	if (event->kind == TRACE_again && !repeat_submit(reader, row)) {
		reader_problem(trace, "event %zu repeats submission %" PRIu64 ", which is not there", trace->n_rows,
			       event->again.earlier);
		trace->damaged = true;
		return false;
	}
	if (event->kind == TRACE_name && !keep_name(reader, event))
		return false;
	if (event->kind == TRACE_lost)
		trace->n_lost += event->lost.n;
	trace->ended |= event->kind == TRACE_end;
	trace->n_rows++;
	return true;
}

/* Makes room for the addresses of a submission. */
static bool make_named_room(struct reader *reader, uint64_t n)
{
	while (n > reader->named_room)
		if (!reader_room(reader, (void **)&reader->named, reader->named_room, &reader->named_room,
				 sizeof(*reader->named)))
			return false;
	return true;
}

static bool read_events(struct reader *reader, const uint8_t *events, size_t bytes, uint32_t thread, uint64_t time)
{
	struct trace_event event;
	size_t at = 0, first = 0;
	uint64_t before = time;

	while (
	    trace_event_read(&reader->shape, events, bytes, &at, &time, reader->named, reader->named_room, &event)) {
		event.thread = thread;
		if (event.kind == TRACE_submit && event.submit.n > reader->named_room) {
			if (!make_named_room(reader, event.submit.n))
				return false;
			/* Read the event again, with enough room. */
			at = first;
			time = before;
			continue;
		}
		if (!keep_event(reader, &event))
			return false;
		first = at;
		before = time;
	}
	if (at == bytes)
		return true;
	reader_problem(reader->trace, "event %zu is not well formed", reader->trace->n_rows);
	reader->trace->damaged = true;
	return false;
}

/*
 * Returns whether this is the last frame. A frame that is longer than the rest of the file was cut when the process
 * ended, or its length is wrong; in the latter case whole frames follow it.
 */
static bool is_last(const uint8_t *at, size_t left)
{
	const uint8_t magic[4] = {'F', 'R', 'A', 'M'}, *end = at + left;

	at++;
	for (unsigned i = 0; i < SEARCHES; i++) {
		at = memmem(at, (size_t)(end - at), magic, sizeof(magic));
		if (!at || end - at < FRAME_HEAD)
			return true;
		size_t bytes = reader_fixed(at + 4, 4);
		if (bytes <= (size_t)(end - at) - FRAME_HEAD &&
		    reader_fixed(at + 8, 4) == trace_check(at + FRAME_HEAD, bytes))
			return false;
		at++;
	}
	return true;
}

size_t reader_frame(struct reader *reader, size_t place)
{
	struct trace *trace = reader->trace;
	const uint8_t *at = (const uint8_t *)trace->file + place;
	size_t left = reader->bytes - place;

	if (left < FRAME_HEAD || FRAME_HEAD + reader_fixed(at + 4, 4) > left) {
		trace->cut = left < FRAME_HEAD || (reader_fixed(at, 4) == TRACE_FRAME && is_last(at, left));
		trace->damaged = !trace->cut;
		if (trace->damaged)
			reader_problem(trace, "what is at byte %zu is not a frame", place);
		return 0;
	}
	size_t bytes = reader_fixed(at + 4, 4);
	if (reader_fixed(at, 4) != TRACE_FRAME || reader_fixed(at + 8, 4) != trace_check(at + FRAME_HEAD, bytes)) {
		trace->damaged = true;
		reader_problem(trace, "the frame at byte %zu is not as it was written", place);
		return 0;
	}
	if (!read_events(reader, at + FRAME_HEAD, bytes, (uint32_t)reader_fixed(at + 12, 4), reader_fixed(at + 16, 8)))
		return 0;
	return FRAME_HEAD + bytes;
}
