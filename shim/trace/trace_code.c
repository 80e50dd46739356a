// SPDX-License-Identifier: Apache-2.0
/*
 * The codec of trace files. A frame grows in one buffer, which begins with space for the frame's head. An event is
 * written only once the buffer has space for all of it, so that a lack of memory leaves no partial event.
 *
 * Earlier submissions are found by a hash of 128 bits of the function, the device and all addresses; the addresses
 * themselves are not kept. The table has a fixed size: a new entry replaces the oldest of a few neighbours. A
 * submission that was replaced is written in full when it is repeated, which costs only bytes.
 */
#include "shim/trace/trace_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_HEAD   24 /* bytes; see trace_code.h */
#define VARINT_MOST  10
#define FRAME_MOST   (1u << 30)
#define TABLE_MOST   (1u << 19) /* 12 MiB, of which only touched pages use memory */
#define NEIGHBOURS   8
#define FILE_MAGIC_N 8

const struct trace_kind_row trace_kinds[TRACE_KINDS] = {
#define EVENT(kind, text, ...)                                                                                         \
	[TRACE_##kind] = {#kind, text, #__VA_ARGS__, sizeof(((struct trace_event *)0)->kind) / sizeof(uint64_t)},
#include "shim/trace/trace.def"
};

uint32_t trace_check(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ at[i]) * 16777619u;
	return hash;
}

/* ---- numbers ---- */

static uint64_t trace_code_zigzag(uint64_t difference)
{
	return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static uint64_t trace_code_unzigzag(uint64_t value)
{
	return value >> 1 ^ -(value & 1);
}

static uint8_t *trace_code_put(uint8_t *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at++ = (uint8_t)value;
	return at;
}

static void put_fixed(uint8_t *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

/* Returns the position after the number, or NULL if it exceeds the frame or 64 bits. */
static const uint8_t *trace_code_get(const uint8_t *at, const uint8_t *end, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (unsigned shift = 0; at && at < end && shift < 64; shift += 7) {
		uint8_t byte = *at++;

		if (shift == 63 && byte > 1)
			return NULL;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			*ret_value = value;
			return at;
		}
	}
	return NULL;
}

/* ---- writing ---- */

struct known {
	uint64_t a, b;   /* hash of the submission; a is 0 if the slot is free */
	uint64_t number; /* ordinal of its `submit` event */
};

struct trace_writer {
	uint8_t *frame;
	size_t bytes, room;
	uint32_t thread;
	uint64_t begun, before; /* time of the frame and of its last event */
	uint64_t n_submits;     /* `submit` events written so far */
	struct known table[TABLE_MOST];
};

struct trace_writer *trace_writer_new(void)
{
	return calloc(1, sizeof(struct trace_writer));
}

void trace_writer_free(struct trace_writer *writer)
{
	if (writer)
		free(writer->frame);
	free(writer);
}

void trace_frame_begin(struct trace_writer *writer, uint32_t thread, uint64_t time)
{
	writer->bytes = FRAME_HEAD;
	writer->thread = thread;
	writer->begun = writer->before = time;
}

static bool make_room(struct trace_writer *writer, size_t more)
{
	size_t room = writer->room ? writer->room : 4096;

	if (more > FRAME_MOST - writer->bytes)
		return false;
	while (room - writer->bytes < more)
		room *= 2;
	if (room == writer->room)
		return true;
	uint8_t *frame = realloc(writer->frame, room);
	if (!frame)
		return false;
	writer->frame = frame;
	writer->room = room;
	return true;
}

/* One step of a 64-bit hash: the multiplication spreads bits upwards, the shift downwards. */
static uint64_t trace_code_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ hash >> 32;
}

static struct known key_of(const struct trace_event *event)
{
	struct known key = {.a = 1, .b = 2};

	key.a = trace_code_mix(trace_code_mix(key.a, event->submit.function), event->submit.device);
	key.b = trace_code_mix(trace_code_mix(key.b, event->submit.device), event->submit.function);
	for (uint64_t i = 0; i < event->submit.n; i++) {
		uint64_t unit = event->named[i].address / TRACE_UNIT;

		key.a = trace_code_mix(trace_code_mix(key.a, unit), event->named[i].bytes);
		key.b = trace_code_mix(trace_code_mix(key.b, event->named[i].bytes), unit);
	}
	key.a |= 1; /* distinguishes it from a free slot */
	return key;
}

/*
 * Returns true, and the number of the earlier submission, if it is known. Otherwise adds it to the table: to a free
 * slot, or over the oldest neighbour.
 */
static bool is_known(struct trace_writer *writer, const struct trace_event *event, uint64_t *ret_number)
{
	struct known key = key_of(event), *place = &writer->table[key.b % TABLE_MOST];

	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		struct known *slot = &writer->table[(key.b + i) % TABLE_MOST];

		if (slot->a == key.a && slot->b == key.b) {
			*ret_number = slot->number;
			return true;
		}
		if (!slot->a || slot->number < place->number)
			place = slot;
		if (!slot->a)
			break;
	}
	key.number = writer->n_submits++;
	*place = key;
	return false;
}

static uint8_t *put_named(uint8_t *at, const struct trace_named *named, uint64_t n)
{
	uint64_t before = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t unit = named[i].address / TRACE_UNIT;

		at = trace_code_put(at, trace_code_zigzag((unit - before) * 2 + (named[i].bytes != 0)));
		if (named[i].bytes)
			at = trace_code_put(at, named[i].bytes);
		before = unit;
	}
	return at;
}

/* Returns an upper bound of the event's bytes, or SIZE_MAX if a frame cannot hold it. */
static size_t most_bytes(const struct trace_event *event)
{
	size_t most = 1 + VARINT_MOST * (2 + TRACE_FIELDS);

	if (event->kind == TRACE_submit)
		return event->submit.n > FRAME_MOST / (2 * VARINT_MOST) ? SIZE_MAX
									: most + 2 * VARINT_MOST * event->submit.n;
	if (event->kind == TRACE_name)
		return event->text_bytes > FRAME_MOST ? SIZE_MAX : most + event->text_bytes;
	return most;
}

bool trace_frame_add(struct trace_writer *writer, const struct trace_event *event)
{
	struct trace_event again = {.kind = TRACE_again};

	if (event->kind >= TRACE_KINDS || !make_room(writer, most_bytes(event)))
		return false;
	uint64_t time = event->time;
	if (event->kind == TRACE_submit && is_known(writer, event, &again.again.earlier))
		event = &again;
	uint8_t *at = writer->frame + writer->bytes;
	*at++ = (uint8_t)event->kind;
	at = trace_code_put(at, trace_code_zigzag(time - writer->before));
	for (unsigned i = 0; i < trace_kinds[event->kind].n; i++)
		at = trace_code_put(at, event->field[i]);
	if (event->kind == TRACE_submit)
		at = put_named(at, event->named, event->submit.n);
	if (event->kind == TRACE_name) {
		at = trace_code_put(at, event->text_bytes);
		memcpy(at, event->text, event->text_bytes);
		at += event->text_bytes;
	}
	writer->bytes = (size_t)(at - writer->frame);
	writer->before = time;
	return true;
}

const void *trace_frame_end(struct trace_writer *writer, size_t *ret_bytes)
{
	if (writer->bytes <= FRAME_HEAD) {
		*ret_bytes = 0;
		return NULL;
	}
	uint8_t *frame = writer->frame;
	size_t n = writer->bytes - FRAME_HEAD;
	put_fixed(frame, TRACE_FRAME, 4);
	put_fixed(frame + 4, n, 4);
	put_fixed(frame + 8, trace_check(frame + FRAME_HEAD, n), 4);
	put_fixed(frame + 12, writer->thread, 4);
	put_fixed(frame + 16, writer->begun, 8);
	*ret_bytes = writer->bytes;
	return frame;
}

/* Writes "fields=4,9,6,...\n", from which a reader of another version knows where each event ends. */
static size_t fields_line(char *room, size_t bytes)
{
	size_t n = 0;

	for (unsigned kind = 0; kind < TRACE_KINDS && n < bytes; kind++)
		n += (size_t)snprintf(room + n, bytes - n, "%s%u", kind ? "," : "fields=", trace_kinds[kind].n);
	if (n < bytes)
		n += (size_t)snprintf(room + n, bytes - n, "\n");
	return n;
}

size_t trace_head(const char *text, void *room, size_t bytes)
{
	char fields[8 * TRACE_KINDS + 16];
	size_t n = strlen(text), more = fields_line(fields, sizeof(fields));
	uint8_t *at = room;

	if (n > UINT32_MAX - more || bytes < FILE_MAGIC_N + 4 + n + more)
		return 0;
	memcpy(at, TRACE_MAGIC, FILE_MAGIC_N);
	put_fixed(at + FILE_MAGIC_N, n + more, 4);
	memcpy(at + FILE_MAGIC_N + 4, text, n);
	memcpy(at + FILE_MAGIC_N + 4 + n, fields, more);
	return FILE_MAGIC_N + 4 + n + more;
}

/* ---- reading ---- */

void trace_shape_own(struct trace_shape *ret_shape)
{
	*ret_shape = (struct trace_shape){.n = TRACE_KINDS};
	for (unsigned kind = 0; kind < TRACE_KINDS; kind++)
		ret_shape->fields[kind] = (uint8_t)trace_kinds[kind].n;
}

bool trace_shape_read(const char *value, struct trace_shape *ret_shape)
{
	struct trace_shape shape = {0};

	for (const char *at = value;; at++) {
		unsigned fields = 0, digits = 0;

		for (; *at >= '0' && *at <= '9' && digits < 4; at++, digits++)
			fields = 10 * fields + (unsigned)(*at - '0');
		if (!digits || fields > UINT8_MAX || shape.n == sizeof(shape.fields))
			return false;
		shape.fields[shape.n++] = (uint8_t)fields;
		if (!*at || *at == '\n')
			break;
		if (*at != ',')
			return false;
	}
	*ret_shape = shape;
	return true;
}

/* Returns the position after the addresses, or NULL if they are damaged. Skips those that `named` has no room for. */
static const uint8_t *get_named(const uint8_t *at, const uint8_t *end, struct trace_named *named, size_t most,
				const struct trace_event *event)
{
	uint64_t unit = 0, n = event->submit.n;

	if (n > (size_t)(end - at))
		return NULL;
	for (uint64_t i = 0; at && i < n; i++) {
		uint64_t value = 0, bytes = 0;

		at = trace_code_get(at, end, &value);
		value = trace_code_unzigzag(value);
		unit += (uint64_t)((int64_t)value >> 1);
		if (at && value & 1)
			at = trace_code_get(at, end, &bytes);
		if (i < most)
			named[i] = (struct trace_named){unit * TRACE_UNIT, bytes};
	}
	return at;
}

bool trace_event_read(const struct trace_shape *shape, const uint8_t *frame, size_t bytes, size_t *at, uint64_t *before,
		      struct trace_named *named, size_t most, struct trace_event *ret_event)
{
	const uint8_t *now = frame + *at, *end = frame + bytes;
	struct trace_event event = {.named = named};
	uint64_t value = 0;

	if (*at >= bytes)
		return false;
	event.kind = *now++;
	if (event.kind >= shape->n)
		return false;
	now = trace_code_get(now, end, &value);
	event.time = *before + trace_code_unzigzag(value);
	for (unsigned i = 0; now && i < shape->fields[event.kind]; i++) {
		now = trace_code_get(now, end, &value);
		if (i < TRACE_FIELDS)
			event.field[i] = value;
	}
	if (now && event.kind == TRACE_submit)
		now = get_named(now, end, named, most, &event);
	if (now && event.kind == TRACE_name) {
		now = trace_code_get(now, end, &value);
		if (!now || value > (size_t)(end - now))
			return false;
		event.text = (const char *)now;
		event.text_bytes = value;
		now += value;
	}
	if (!now)
		return false;
	*at = (size_t)(now - frame);
	*before = event.time;
	*ret_event = event;
	return true;
}
