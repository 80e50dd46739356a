/*
 * trace_code.h: the format of a trace file: events to bytes and back. Used by the library, which writes, and by the tool,
 * which reads: it needs libc alone, knows no CUDA and does no input or output.
 *
 * A file is the head, then frames to its end. All numbers are little-endian.
 *
 *   head    the 8 bytes TRACE_MAGIC, u32 bytes of what follows, then that many bytes of text, "key=value\n" each:
 *           version, start (ns since 1970), clock (CLOCK_MONOTONIC at that moment, ns), pid, host, command, policy,
 *           policy_hash, mode, spillway, devices, ...; fields: how many numbers each kind of event has, in the order
 *           of trace.def, with commas: by that events of other versions are read, and skipped
 *   frame   u32 TRACE_FRAME, u32 bytes of the events, u32 check (FNV-1a of the events), u32 thread, u64 time (ns,
 *           CLOCK_MONOTONIC); then the events. A frame is written by one write(2): what a SIGKILL leaves is whole frames,
 *           and perhaps a part of one at the end, which is dropped.
 *   event   its kind (u8), the time since the event before it in the frame (zig-zag varint, ns; the first: since the
 *           frame's), its fields (varints), then for `name` the text (varint length, bytes), for `submit` the addresses:
 *           each the difference to the one before it in units of 512 bytes (zig-zag varint of twice that, plus 1 where the
 *           bytes it reaches follow as one more varint).
 *
 * Frames of several threads are each in order of time; between threads they are not.
 */
#ifndef SPILLWAY_TRACE_CODE_H
#define SPILLWAY_TRACE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC   "SPLWTRC\n"
#define TRACE_VERSION 1
#define TRACE_FRAME   0x4d415246u /* "FRAM" */
#define TRACE_UNIT    512         /* addresses are told no finer: the least that allocators give out */

enum trace_kind {
#define EVENT(kind, ...) TRACE_##kind,
#include "shim/trace/trace.def"
	TRACE_KINDS, /* must be last */
};

/* What the numbers of `name` events name. */
enum trace_list {
	TRACE_FUNCTIONS, /* kernels, and entry points of the driver */
	TRACE_SITES,     /* "libtorch_cuda.so+0x1234" */
	TRACE_RULES,
	TRACE_THREADS,
	TRACE_RANGES,
	TRACE_LISTS, /* must be last */
};

/* enum trace_kind move: why */
enum trace_why {
	TRACE_WHY_WAITED,  /* a submission waits for it */
	TRACE_WHY_AHEAD,   /* prediction says it is needed soon; going out: that it is not */
	TRACE_WHY_ROOM,    /* somebody else needs room on the device */
	TRACE_WHY_SUSPEND, /* or resume */
	TRACE_WHYS,        /* must be last */
};

/* enum trace_kind fault: kinds up to this one are faults, the others what came of them. */
#define TRACE_FAULT_OF_CPU 1

/* One address that a submission names; bytes 0: as far as may be guessed. */
struct trace_named {
	uint64_t address, bytes;
};

#define TRACE_FIELDS 10

struct trace_event {
	uint64_t time;   /* ns, CLOCK_MONOTONIC */
	uint32_t thread; /* number of a name in TRACE_THREADS */
	uint32_t kind;   /* enum trace_kind */
	union {
		uint64_t field[TRACE_FIELDS]; /* as in the row of trace.def */
#define EVENT(kind, text, ...)                                                                                         \
	struct {                                                                                                       \
		uint64_t __VA_ARGS__;                                                                                  \
	} kind;
#include "shim/trace/trace.def"
	};
	const struct trace_named *named; /* submit: n of them */
	const char *text;                /* name; text_bytes, no zero behind them */
	size_t text_bytes;
};

/* The names of a kind's row and of its fields ("id, address, bytes"), and how many these are. */
const char *trace_kind_name(unsigned kind);
const char *trace_kind_text(unsigned kind);
const char *trace_kind_fields(unsigned kind);
unsigned trace_n_fields(unsigned kind);

/*
 * Writing. What was submitted before is remembered, so that it can be said with one number when it comes again; one
 * writer a file, one thread. Returns false without memory; the frame is then as it was before.
 */
struct trace_writer;
struct trace_writer *trace_writer_new(void);
void trace_writer_free(struct trace_writer *writer); /* accepts NULL */
/* A new frame: nothing is in it. */
void trace_frame_begin(struct trace_writer *writer, uint32_t thread, uint64_t time);
/* A `submit` becomes an `again` by itself. */
bool trace_frame_add(struct trace_writer *writer, const struct trace_event *event);
/* The whole frame, fit to be written; the writer's, until the next call. *ret_bytes 0: there is nothing in it. */
const void *trace_frame_end(struct trace_writer *writer, size_t *ret_bytes);
/* The head with this text ("key=value\n" ...) and `fields` into room; its bytes, or 0 when they do not fit. */
size_t trace_head(const char *text, void *room, size_t bytes);

/*
 * Reading one event of a frame. *at is moved behind it. `again` events are given as they are: who reads keeps the
 * submits. named: room for `most` addresses, where event->named points afterwards; submit.n stays what the file says.
 * False: the frame ends here, or, with *at not at its end, it is damaged.
 */
bool trace_event_read(const uint8_t *frame, size_t bytes, size_t *at, uint64_t *before, struct trace_named *named,
		      size_t most, struct trace_event *ret_event);
/*
 * The same for a file whose kinds have other numbers of fields than ours: as its head says under `fields`. Kinds we do
 * not know are given with the numbers they have; a kind never changes its place.
 */
struct trace_shape {
	unsigned n; /* kinds */
	uint8_t fields[256];
};
void trace_shape_own(struct trace_shape *ret_shape);
/* From the value of `fields`, up to its end or that of the line. False, and nothing is changed: it is not well formed. */
bool trace_shape_read(const char *value, struct trace_shape *ret_shape);
bool trace_event_read_as(const struct trace_shape *shape, const uint8_t *frame, size_t bytes, size_t *at,
			 uint64_t *before, struct trace_named *named, size_t most, struct trace_event *ret_event);
uint32_t trace_check(const void *bytes, size_t n);

#endif
