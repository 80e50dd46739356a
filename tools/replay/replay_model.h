// SPDX-License-Identifier: Apache-2.0
/*
 * replay_model.h: a recorded job in the form that replay needs: allocations, frees, what an allocator of the program
 * reports as alive, and submissions with the memory that they name, in one order. It is made from a trace of the
 * library (tools/trace/trace_read.h), whose contents are not trusted. A model belongs to its maker until it is
 * complete, and is constant afterwards.
 *
 * Locking: none; the tool has one thread.
 */
#ifndef TOOLS_REPLAY_MODEL_H
#define TOOLS_REPLAY_MODEL_H

#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace;

#define REPLAY_NONE UINT32_MAX
/* The maximum address space that the library reserves; no allocation can be larger. */
#define REPLAY_BYTES_MOST ((uint64_t)16 << 40)
#define REPLAY_DEVICES    63

/* One allocation. */
struct replay_block {
	uint64_t bytes; /* the largest size: a block that grows in place has room for it from the beginning */
	uint64_t order; /* ordinal of the allocation, from 1 */
	uint64_t place; /* in the file: the number of the event */
	uint32_t device;
	uint32_t api;  /* enum policy_api */
	uint32_t site; /* index in texts of the call site; REPLAY_NONE: not known */
	bool freed;
};

/* Returns whether the block is allocated and freed in stream order. */
static inline bool replay_is_ordered(const struct replay_block *block)
{
	return block->api == POLICY_API_ASYNC || block->api == POLICY_API_POOL;
}

enum replay_kind {
	REPLAY_MADE,
	REPLAY_FREED,
	REPLAY_SUBMIT,
	/* What the program's allocator reports of a part of a block (shim/plan/live_map.h). */
	REPLAY_KEPT,    /* it reports from now on */
	REPLAY_BORN,    /* the part is alive */
	REPLAY_DIED,    /* it is dead */
	REPLAY_DOUBTED, /* reports of it do not count any more */
};

struct replay_event {
	uint16_t kind;   /* enum replay_kind */
	uint16_t thread; /* of the program, from 1; 0: not known */
	uint32_t which;  /* the block, submission or part */
	uint64_t time;   /* ns since the first event */
};

/* Memory that a submission names. bytes is 0 if the size must be guessed. */
struct replay_named {
	uint64_t offset, bytes;
	uint32_t block;
};

/* A part of a block. block: REPLAY_NONE: all of the device whose number is `offset` (doubted). */
struct replay_part {
	uint64_t offset, bytes;
	uint32_t block;
};

struct replay_submit {
	uint64_t function;
	uint64_t first; /* index in named */
	uint32_t n;
};

struct replay_model {
	struct replay_block *blocks;
	struct replay_event *events;
	struct replay_submit *submits; /* each once: several events may refer to one */
	struct replay_named *named;
	struct replay_part *parts;
	char **texts;
	size_t n_blocks, n_events, n_submits, n_named, n_parts, n_texts;
	size_t room_blocks, room_events, room_submits, room_named, room_parts, room_texts;
	uint16_t thread;                  /* of the events that are added */
	size_t n_births;                  /* events that are births */
	size_t n_launches;                /* events that are submissions */
	uint64_t peak_bytes;              /* maximum of bytes live at once, as requested: that of trace_peaks() */
	uint64_t peak_of[REPLAY_DEVICES]; /* the same, per device */
	bool spilled;                     /* recorded with memory on the host: times say nothing of full speed */
	bool peers;                       /* recorded with memory on other devices */
	uint64_t lost;                    /* missing events, as the file counts them */
	uint64_t strange;                 /* events that do not fit, such as the free of an unknown block: ignored */
	uint64_t strange_at;              /* the place in the file of the first of them */
	uint64_t refused;                 /* allocations that failed while recording */
	uint64_t n_modes;                 /* how often spill.mode was set while recording */
	enum policy_spill mode;           /* while recording; POLICY_SPILL_COUNT: not known */
	char process[64];                 /* name of the program; "" if not known */
	char arguments[512];              /* its arguments; "" if not known */
	int64_t rank;                     /* rank in its job, or POLICY_NO_RANK */
	char problem[256];                /* why reading failed; "" if it did not */
	char broken[256];                 /* why only a part could be read; "" if all of it was */
};

/*
 * Reads a trace. Returns 0, or a negative errno with problem filled in. In both cases the caller must call
 * replay_model_free().
 */
int replay_model_read(struct replay_model *model, const char *path);
/* Like replay_model_read(), for a trace in memory. The trace is not needed afterwards. */
int replay_model_take(struct replay_model *model, const struct trace *trace);
void replay_model_free(struct replay_model *model);
/* Returns POLICY_SPILL_COUNT if no mode has that name. */
enum policy_spill replay_mode_named(const char *name);

/* ---- for whoever makes one ---- */

/* All of these return false, with nothing added, if memory runs out. */
bool replay_add_block(struct replay_model *model, const struct replay_block *block, uint64_t time, uint32_t *ret_block);
bool replay_add_end(struct replay_model *model, uint32_t block, uint64_t time);
bool replay_add_named(struct replay_model *model, const struct replay_named *named);
/*
 * Adds a submission with the memory named since the last one. *ret_submit may be passed to replay_add_launch() several
 * times.
 */
bool replay_add_submit(struct replay_model *model, uint64_t function, uint32_t *ret_submit);
bool replay_add_launch(struct replay_model *model, uint32_t submit, uint64_t time);
/* Adds what an allocator reports: an event of the kinds from REPLAY_KEPT on. */
bool replay_add_part(struct replay_model *model, enum replay_kind kind, const struct replay_part *part, uint64_t time);
bool replay_add_text(struct replay_model *model, const char *text, uint32_t *ret_text);

#endif
