// SPDX-License-Identifier: Apache-2.0
/*
 * trace_code.h: the format of a trace file; encodes events as bytes and decodes them. The library writes with it and
 * the tool reads with it, so it needs only libc, knows no CUDA and does no input or output.
 *
 * A file consists of a head and of frames that follow up to its end. All numbers are little-endian.
 *
 *   head    the 8 bytes TRACE_MAGIC, u32 length of the text, then the text, lines of "key=value\n":
 *           version, start (ns since 1970), clock (CLOCK_MONOTONIC at that moment, ns), pid, host, command, policy,
 *           policy_hash, mode, spillway, devices, ...; fields: the number of fields of each kind of event, in the
 *           order of trace.def, separated by commas; with it a reader decodes or skips events of other versions
 *   frame   u32 TRACE_FRAME, u32 bytes of the events, u32 check (FNV-1a of the events), u32 thread, u64 time (ns,
 *           CLOCK_MONOTONIC); then the events. Each frame is written by one write(2), so a SIGKILL leaves whole frames
 *           and at most one partial frame at the end, which readers drop.
 *   event   its kind (u8), the time since the previous event of the frame (zig-zag varint, ns; for the first event
 *           since the frame's time), its fields (varints), then for `name` the text (varint length, bytes), and for
 *           `submit` the addresses: each is the difference to the previous one in units of 512 bytes (zig-zag varint
 *           of twice the difference, plus 1 if the number of bytes follows as another varint).
 *
 * The frames of one thread are in order of time; frames of different threads are not.
 */
#ifndef SPILLWAY_TRACE_CODE_H
#define SPILLWAY_TRACE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC   "SPLWTRC\n"
#define TRACE_VERSION 1
#define TRACE_FRAME   0x4d415246u /* "FRAM" */
#define TRACE_UNIT    512         /* resolution of addresses: the smallest alignment of allocators */

enum trace_kind {
#define EVENT(kind, ...) TRACE_##kind,
#include "shim/trace/trace.def"
	TRACE_KINDS, /* must be last */
};

/* What a `name` event gives a name to. */
enum trace_list {
	TRACE_FUNCTIONS, /* kernels, and entry points of the driver */
	TRACE_SITES,     /* "libtorch_cuda.so+0x1234" */
	TRACE_RULES,
	TRACE_THREADS,
	TRACE_RANGES,
	TRACE_CALLERS, /* of the site of this number (call_site.h): "train.py:80 in step < train.py:97 in main" */
	TRACE_LISTS,   /* must be last */
};

/* Field `why` of a `move` event. */
enum trace_why {
	TRACE_WHY_WAITED,  /* a submission waits for the piece */
	TRACE_WHY_AHEAD,   /* predicted to be needed soon; for an eviction: not to be needed soon */
	TRACE_WHY_ROOM,    /* the device needs room for other memory */
	TRACE_WHY_SUSPEND, /* suspend or resume */
	TRACE_WHYS,        /* must be last */
};

/* Field `kind` of a `fault` event: values up to this one are faults, larger ones are their consequences. */
#define TRACE_FAULT_OF_CPU 1

/* One address that a submission names. bytes: its extent, or 0 if it is not known and must be guessed. */
struct trace_named {
	uint64_t address, bytes;
};

#define TRACE_FIELDS 10

struct trace_event {
	uint64_t time;   /* ns, CLOCK_MONOTONIC */
	uint32_t thread; /* number in TRACE_THREADS */
	uint32_t kind;   /* enum trace_kind */
	union {
		uint64_t field[TRACE_FIELDS]; /* in the order of the row of trace.def */
#define EVENT(kind, text, ...)                                                                                         \
	struct {                                                                                                       \
		uint64_t __VA_ARGS__;                                                                                  \
	} kind;
#include "shim/trace/trace.def"
	};
	const struct trace_named *named; /* of `submit`: submit.n addresses */
	const char *text;                /* of `name`: text_bytes bytes, not terminated */
	size_t text_bytes;
};

/* The rows of trace.def: kind and text, fields ("id, address, bytes"), and their number. */
extern const struct trace_kind_row {
	const char *name, *text, *fields;
	unsigned n;
} trace_kinds[TRACE_KINDS];

/*
 * The writer of one file; one thread uses it. It remembers earlier submissions, so that a repeated one is written as a
 * single number.
 */
struct trace_writer *trace_writer_new(void);         /* returns NULL without memory */
void trace_writer_free(struct trace_writer *writer); /* accepts NULL */
/* Begins an empty frame. */
void trace_frame_begin(struct trace_writer *writer, uint32_t thread, uint64_t time);
/*
 * Adds an event; writes `again` for a `submit` that it remembers. Returns false without memory, and for an unknown
 * kind; the frame is then unchanged.
 */
bool trace_frame_add(struct trace_writer *writer, const struct trace_event *event);
/*
 * Returns the complete frame, ready for write(2); it belongs to the writer and is valid until the next call. Sets
 * *ret_bytes to 0 if the frame has no events.
 */
const void *trace_frame_end(struct trace_writer *writer, size_t *ret_bytes);
/* Writes a head with this text ("key=value\n" ...) and `fields` to room. Returns its size, or 0 if it does not fit. */
size_t trace_head(const char *text, void *room, size_t bytes);

/*
 * The shape of a file: the number of fields of each kind, as `fields` in its head says; it may differ from that of this
 * version. Events of unknown kinds are returned with the numbers they have. A kind never changes its place.
 */
struct trace_shape {
	unsigned n; /* number of kinds */
	uint8_t fields[256];
};
/* Gives the shape of this version. */
void trace_shape_own(struct trace_shape *ret_shape);
/*
 * Parses the value of `fields` up to the end of the string or line. Returns false, without a result, if it is
 * malformed.
 */
bool trace_shape_read(const char *value, struct trace_shape *ret_shape);
/*
 * Reads the event of a frame of a file of this shape at *at and advances *at. *before is the time of the previous
 * event, at first that of the frame. `again` events are returned as they are; the caller must keep the submits. named:
 * room for `most` addresses, to which ret_event->named points; submit.n is the number in the file, even if it is
 * larger. Returns false at the end of the frame; if *at is not at the end then, the frame is damaged.
 */
bool trace_event_read(const struct trace_shape *shape, const uint8_t *frame, size_t bytes, size_t *at, uint64_t *before,
		      struct trace_named *named, size_t most, struct trace_event *ret_event);
/* Returns the FNV-1a hash of n bytes. */
uint32_t trace_check(const void *bytes, size_t n);

#endif
