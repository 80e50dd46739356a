/*
 * Builds a model; its arrays grow.
 */
#include "tools/replay/replay_model.h"
#include "tools/common/grow.h"

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
	char *copy;

	if (!model_more(&model->texts, model->n_texts, &model->room_texts, sizeof(*model->texts)))
		return false;
	copy = strdup(text);
	if (!copy)
		return false;
	*ret_text = (uint32_t)model->n_texts;
	model->texts[model->n_texts++] = copy;
	return true;
}

void replay_strange(struct replay_model *model, uint64_t place)
{
	if (!model->strange++)
		model->strange_at = place;
}

void replay_model_free(struct replay_model *model)
{
	for (size_t i = 0; i < model->n_texts; i++)
		free(model->texts[i]);
	free(model->texts);
	free(model->blocks);
	free(model->events);
	free(model->submits);
	free(model->named);
	free(model->parts);
	*model = (struct replay_model){0};
}
