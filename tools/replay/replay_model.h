/*
 * replay_model.h: a recorded job, whatever it was recorded with, as what replay needs of it: allocations, their ends, and
 * submissions with the memory that they name, in one order. Owner: whoever reads it; constant once read. No lock.
 *
 * Four kinds of file are read: a trace of the library (shim/trace/trace_code.h), the older text ("A id bytes", "F id",
 * "L function id:offset ..."), a log of RMM's logging resource (CSV), and what torch_snapshot.py makes of a memory
 * snapshot of PyTorch, which is the same CSV. The last two know no submissions: they say what is needed, not how long
 * it takes. All may be gzipped.
 *
 * Nothing in a file is believed: every number is checked, and what cannot be understood ends the reading with the line or
 * event where that is.
 */
#ifndef TOOLS_REPLAY_MODEL_H
#define TOOLS_REPLAY_MODEL_H

#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace;

#define REPLAY_NONE UINT32_MAX
/* The address space that the library reserves at most: nothing is larger than that. */
#define REPLAY_BYTES_MOST ((uint64_t)16 << 40)
#define REPLAY_DEVICES    63

/* One allocation. */
struct replay_block {
	uint64_t bytes; /* the most it ever had: one that grows in place has room for that from the beginning */
	uint64_t order; /* the how many-th allocation, from 1 */
	uint64_t place; /* in the file: its line, or number of the event */
	uint32_t device;
	uint32_t api;  /* enum policy_api */
	uint32_t site; /* where it was asked for: in texts; REPLAY_NONE: not known */
	bool freed;
};

/* In the order of a stream? */
static inline bool replay_is_ordered(const struct replay_block *block)
{
	return block->api == POLICY_API_ASYNC || block->api == POLICY_API_POOL;
}

enum replay_kind {
	REPLAY_MADE,
	REPLAY_FREED,
	REPLAY_SUBMIT,
};

struct replay_event {
	uint32_t kind;  /* enum replay_kind */
	uint32_t which; /* block, or submission */
	uint64_t time;  /* ns since the first; 0 where the file has no times */
};

/* Memory that a submission names. bytes 0: as far as may be guessed. */
struct replay_named {
	uint64_t offset, bytes;
	uint32_t block;
};

struct replay_submit {
	uint64_t function;
	uint64_t first; /* in named */
	uint32_t n;
};

struct replay_model {
	struct replay_block *blocks;
	struct replay_event *events;
	struct replay_submit *submits; /* several events may be of one */
	struct replay_named *named;
	char **texts;
	size_t n_blocks, n_events, n_submits, n_named, n_texts;
	size_t room_blocks, room_events, room_submits, room_named, room_texts;
	size_t n_launches;                /* events that are submissions */
	uint64_t peak_bytes;              /* live at once, at most, as asked for; in a trace by trace_peaks() */
	uint64_t peak_of[REPLAY_DEVICES]; /* the same of one device */
	bool timed;                       /* events have times */
	bool spilled;                     /* recorded with memory on the host: times may be longer than they need be */
	bool peers;                       /* recorded with memory on other devices */
	uint64_t lost;                    /* events that are missing, by the file's own count */
	uint64_t strange;                 /* ends of what never began and the like: passed over */
	uint64_t strange_at;              /* the place of the first of them */
	uint64_t refused;                 /* allocations that failed when it was recorded */
	int mode;            /* enum policy_spill in which it was recorded; POLICY_SPILL_COUNT: not known */
	const char *kind;    /* of file, for people */
	char process[64];    /* name of the program; "" */
	char arguments[512]; /* and the rest of its command line; "" */
	int64_t rank;        /* in its job, or POLICY_NO_RANK */
	char problem[256];   /* why reading ended; "" */
	char broken[256];    /* what is there was read, and this is why it is not all; "" */
};

/* 0, or a negative errno with problem filled in. Either way replay_model_free() takes it back. */
int replay_model_read(struct replay_model *model, const char *path);
/* The same of a trace that was read already; it is not needed any more afterwards. */
int replay_model_take(struct replay_model *model, const struct trace *trace);
void replay_model_free(struct replay_model *model);

/* ---- for readers ---- */

/* Each returns false without memory, with problem filled in; nothing was added then. */
bool replay_add_block(struct replay_model *model, const struct replay_block *block, uint64_t time, uint32_t *ret_block);
bool replay_add_end(struct replay_model *model, uint32_t block, uint64_t time);
bool replay_add_named(struct replay_model *model, const struct replay_named *named);
/* What was named since the one before is its; *ret_submit may be used again by replay_add_launch(). */
bool replay_add_submit(struct replay_model *model, uint64_t function, uint32_t *ret_submit);
bool replay_add_launch(struct replay_model *model, uint32_t submit, uint64_t time);
bool replay_add_text(struct replay_model *model, const char *text, uint32_t *ret_text);
/* Something that does not fit and is passed over. */
void replay_strange(struct replay_model *model, uint64_t place);
/* problem, and -EINVAL. */
__attribute__((format(printf, 2, 3))) int replay_wrong(struct replay_model *model, const char *format, ...);

#endif
