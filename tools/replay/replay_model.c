// SPDX-License-Identifier: Apache-2.0
/*
 * Builds a model; its arrays grow.
 */
#include "tools/common/grow.h"
#include "tools/replay/replay_model.h"
#include "tools/trace/trace_read.h"
#include "policy/policy.h"
#include "policy/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more element. Returns false if memory runs out; the array is then unchanged. */
static bool model_more(void *array_p, size_t n, size_t *room, size_t each)
{
	return n < REPLAY_NONE && grow(array_p, n, room, each);
}

static bool add_event(struct replay_model *model, enum replay_kind kind, uint32_t which, uint64_t time)
{
	if (!model_more(&model->events, model->n_events, &model->room_events, sizeof(*model->events)))
		return false;
	model->events[model->n_events++] =
	    (struct replay_event){.kind = (uint16_t)kind, .thread = model->thread, .which = which, .time = time};
	return true;
}

bool replay_add_block(struct replay_model *model, const struct replay_block *block, uint64_t time, uint32_t *ret_block)
{
	uint32_t which = (uint32_t)model->n_blocks;

	if (!model_more(&model->blocks, model->n_blocks, &model->room_blocks, sizeof(*model->blocks)) ||
	    !add_event(model, REPLAY_MADE, which, time))
		return false;
	model->blocks[model->n_blocks++] = *block;
	model->blocks[which].order = model->n_blocks;
	*ret_block = which;
	return true;
}

bool replay_add_end(struct replay_model *model, uint32_t block, uint64_t time)
{
	if (!add_event(model, REPLAY_FREED, block, time))
		return false;
	model->blocks[block].freed = true;
	return true;
}

bool replay_add_named(struct replay_model *model, const struct replay_named *named)
{
	if (!model_more(&model->named, model->n_named, &model->room_named, sizeof(*model->named)))
		return false;
	model->named[model->n_named++] = *named;
	return true;
}

bool replay_add_submit(struct replay_model *model, uint64_t function, uint32_t *ret_submit)
{
	const struct replay_submit *last = model->n_submits ? &model->submits[model->n_submits - 1] : NULL;
	uint64_t first = last ? last->first + last->n : 0;

	if (!model_more(&model->submits, model->n_submits, &model->room_submits, sizeof(*model->submits)))
		return false;
	*ret_submit = (uint32_t)model->n_submits;
	model->submits[model->n_submits++] =
	    (struct replay_submit){.function = function, .first = first, .n = (uint32_t)(model->n_named - first)};
	return true;
}

bool replay_add_launch(struct replay_model *model, uint32_t submit, uint64_t time)
{
	if (!add_event(model, REPLAY_SUBMIT, submit, time))
		return false;
	model->n_launches++;
	return true;
}

bool replay_add_part(struct replay_model *model, enum replay_kind kind, const struct replay_part *part, uint64_t time)
{
	if (!model_more(&model->parts, model->n_parts, &model->room_parts, sizeof(*model->parts)) ||
	    !add_event(model, kind, (uint32_t)model->n_parts, time))
		return false;
	model->parts[model->n_parts++] = *part;
	model->n_births += kind == REPLAY_BORN;
	return true;
}

bool replay_add_text(struct replay_model *model, const char *text, uint32_t *ret_text)
{
	if (!model_more(&model->texts, model->n_texts, &model->room_texts, sizeof(*model->texts)))
		return false;
	char *copy = strdup(text);
	if (!copy)
		return false;
	*ret_text = (uint32_t)model->n_texts;
	model->texts[model->n_texts++] = copy;
	return true;
}

/* Counts an event that does not fit and is ignored. */
static void replay_strange(struct replay_model *model, uint64_t place)
{
	if (!model->strange++)
		model->strange_at = place;
}

void replay_model_free(struct replay_model *model)
{
	for (size_t i = 0; i < model->n_texts; i++)
		free(model->texts[i]);
	FREE_ALL(model->texts, model->blocks, model->events, model->submits, model->named, model->parts);
	*model = (struct replay_model){0};
}

/*
 * Builds a model from a trace of the library. The trace's submissions name addresses; these become blocks and offsets,
 * once for all events of a submission until the next allocation or free.
 */

_Static_assert(TRACE_doubted - TRACE_kept == REPLAY_DOUBTED - REPLAY_KEPT, "in the same order");

struct taking {
	struct replay_model *model;
	const struct trace *trace;
	uint32_t *block_of;  /* by block of the trace: block of the model; REPLAY_NONE: not made yet, or ignored */
	uint32_t *submit_of; /* by different submit of the trace: submission of the model ... */
	uint64_t *as_of;     /* ... made after this many allocations and frees, plus 1 */
	uint64_t changes;
};

static bool take_made(struct taking *taking, const struct trace_row *row, uint64_t at, uint64_t time)
{
	const struct trace_block *from = &taking->trace->blocks[row->which];
	uint64_t bytes = from->bytes > row->event.made.bytes ? from->bytes : row->event.made.bytes;
	struct replay_block block = {.bytes = bytes,
				     .place = at,
				     .device = from->device,
				     .api = from->api < POLICY_API_COUNT ? from->api : POLICY_API_MALLOC,
				     .site = REPLAY_NONE};

	if (!bytes || bytes > REPLAY_BYTES_MOST || from->device >= REPLAY_DEVICES) {
		replay_strange(taking->model, at);
		return true;
	}
	taking->changes++;
	taking->model->spilled |= from->on_host != 0;
	taking->model->peers |= from->on_peers != 0;
	/* Site 0 is not known. All sites are texts of the model, by the same numbers. */
	if (from->site && from->site < taking->model->n_texts)
		block.site = from->site;
	return replay_add_block(taking->model, &block, time, &taking->block_of[row->which]);
}

static bool take_freed(struct taking *taking, const struct trace_row *row, uint64_t at, uint64_t time)
{
	uint32_t block = row->which < taking->trace->n_blocks ? taking->block_of[row->which] : REPLAY_NONE;

	if (block == REPLAY_NONE || taking->model->blocks[block].freed) {
		replay_strange(taking->model, at);
		return true;
	}
	taking->changes++;
	return replay_add_end(taking->model, block, time);
}

static bool take_names(struct taking *taking, const struct trace_event *event)
{
	for (uint64_t i = 0; i < event->submit.n; i++) {
		uint32_t from = trace_block_at(taking->trace, event->named[i].address, event->time);
		uint32_t block = from == TRACE_NONE ? REPLAY_NONE : taking->block_of[from];

		if (block == REPLAY_NONE || taking->model->blocks[block].freed)
			continue;
		struct replay_named named = {.offset = event->named[i].address - taking->trace->blocks[from].address,
					     .bytes = event->named[i].bytes,
					     .block = block};
		if (named.offset < taking->model->blocks[block].bytes && !replay_add_named(taking->model, &named))
			return false;
	}
	return true;
}

static bool take_submit(struct taking *taking, const struct trace_row *row, uint64_t time)
{
	uint32_t which = row->which;

	if (taking->as_of[which] != taking->changes + 1) {
		taking->as_of[which] = taking->changes + 1;
		if (!take_names(taking, &row->event) ||
		    !replay_add_submit(taking->model, row->event.submit.function, &taking->submit_of[which]))
			return false;
	}
	return replay_add_launch(taking->model, taking->submit_of[which], time);
}

/*
 * Splits what is reported into parts of blocks: a tensor may cover several handles that the program has mapped. What
 * lies in no block ends it.
 */
static bool take_parts(struct taking *taking, enum replay_kind kind, const struct trace_event *event, uint64_t time)
{
	uint64_t at = event->born.address, left = event->born.bytes;
	const struct replay_part all = {.offset = event->born.device, .block = REPLAY_NONE};

	if (kind == REPLAY_DOUBTED && !left)
		return replay_add_part(taking->model, kind, &all, time);
	while (left) {
		uint32_t from = trace_block_at(taking->trace, at, event->time);
		uint32_t block = from == TRACE_NONE ? REPLAY_NONE : taking->block_of[from];

		if (block == REPLAY_NONE || taking->model->blocks[block].freed)
			return true;
		struct replay_part part = {.offset = at - taking->trace->blocks[from].address, .block = block};
		uint64_t room = taking->model->blocks[block].bytes;

		if (part.offset >= room)
			return true;
		part.bytes = left < room - part.offset ? left : room - part.offset;
		if (!replay_add_part(taking->model, kind, &part, time))
			return false;
		at += part.bytes;
		left -= part.bytes;
	}
	return true;
}

static bool take_row(struct taking *taking, const struct trace_row *row, uint64_t at)
{
	const struct trace_event *event = &row->event;
	uint64_t time = event->time - taking->trace->first;

	/* Numbers of other threads than the first 65534 do not fit. */
	taking->model->thread = event->thread < UINT16_MAX ? (uint16_t)(event->thread + 1) : 0;
	switch (event->kind) {
	case TRACE_made:
		return row->which >= taking->trace->n_blocks || take_made(taking, row, at, time);
	case TRACE_freed:
		return take_freed(taking, row, at, time);
	case TRACE_refused:
		taking->model->refused++;
		return true;
	case TRACE_submit:
		return row->which >= taking->trace->n_submits || take_submit(taking, row, time);
	case TRACE_move:
		taking->model->spilled = true;
		taking->model->peers |= event->move.lender || event->move.left;
		return true;
	case TRACE_kept:
	case TRACE_born:
	case TRACE_died:
	case TRACE_doubted:
		/* These kinds follow one another in both lists. */
		return take_parts(taking, REPLAY_KEPT + (event->kind - TRACE_kept), event, time);
	case TRACE_mode:
		taking->model->n_modes++;
		return true;
	default:
		return true;
	}
}

/* Reads the command line ("python3 train.py ...") and the rank. */
static void take_process(struct replay_model *model, const struct trace *trace)
{
	char room[sizeof(model->arguments)];
	const char *command = trace_value(trace, "command", room, sizeof(room));
	uint64_t rank;
	size_t name = strcspn(command, " ");
	const char *slash = memrchr(command, '/', name), *begin = slash ? slash + 1 : command;

	snprintf(model->process, sizeof(model->process), "%.*s", (int)(command + name - begin), begin);
	snprintf(model->arguments, sizeof(model->arguments), "%s", command + name + strspn(command + name, " "));
	if (trace_number(trace, "rank", &rank))
		model->rank = (int64_t)rank;
}

enum policy_spill replay_mode_named(const char *name)
{
	int mode = 0;

	while (mode < POLICY_SPILL_COUNT && strcmp(name, policy_spill_name((enum policy_spill)mode)) != 0)
		mode++;
	return (enum policy_spill)mode;
}

int replay_model_take(struct replay_model *model, const struct trace *trace)
{
	struct taking taking = {
	    .model = model,
	    .trace = trace,
	    .block_of = malloc((trace->n_blocks + 1) * sizeof(*taking.block_of)),
	    .submit_of = calloc((size_t)trace->n_submits + 1, sizeof(*taking.submit_of)),
	    .as_of = calloc((size_t)trace->n_submits + 1, sizeof(*taking.as_of)),
	};
	bool ok = taking.block_of && taking.submit_of && taking.as_of;
	char mode[32];

	trace_value(trace, "mode", mode, sizeof(mode));
	*model = (struct replay_model){.lost = trace->n_lost, .rank = POLICY_NO_RANK, .mode = replay_mode_named(mode)};
	ok = ok && trace_peaks(trace, model->peak_of, REPLAY_DEVICES, &model->peak_bytes);
	if (ok) {
		memset(taking.block_of, 0xff, (trace->n_blocks + 1) * sizeof(*taking.block_of));
		take_process(model, trace);
	}
	for (size_t i = 0; ok && i < trace->n_names[TRACE_SITES]; i++)
		ok = replay_add_text(model, trace_text(trace, TRACE_SITES, i), &(uint32_t){0});
	for (size_t i = 0; ok && i < trace->n_rows; i++)
		ok = take_row(&taking, &trace->rows[i], i + 1);
	FREE_ALL(taking.block_of, taking.submit_of, taking.as_of);
	if (ok && model->n_blocks)
		return 0;
	snprintf(model->problem, sizeof(model->problem), "%s",
		 ok ? "it has no allocation; was anything recorded?" : "there is no memory for all of it");
	return ok ? -EINVAL : -ENOMEM;
}

int replay_model_read(struct replay_model *model, const char *path)
{
	struct trace trace;
	int status = trace_read_file(path, &trace);

	*model = (struct replay_model){0};
	status = status ?: replay_model_take(model, &trace);
	if (status && *trace.problem)
		memcpy(model->problem, trace.problem, sizeof(trace.problem));
	else if (trace.cut && status == -EINVAL)
		snprintf(model->problem, sizeof(model->problem), "it is cut off before the first allocation");
	else if (trace.damaged)
		snprintf(model->broken, sizeof(model->broken), "is damaged, %s", trace.problem);
	else if (trace.cut)
		snprintf(model->broken, sizeof(model->broken), "is cut off at its end");
	trace_free(&trace);
	return status;
}
