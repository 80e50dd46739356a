/*
 * Rings of events and of names. They are allocated as a whole; what is not used yet takes no memory.
 */
#include "shim/plan/tensor_log.h"
#include "shim/base/array.h"
#include "shim/plan/predict.h"

#include <stdlib.h>
#include <string.h>

void tensor_log_fini(struct tensor_log *log)
{
	free(log->events);
	free(log->names);
	free(log->first);
	free(log->alive);
	*log = (struct tensor_log){0};
}

static bool log_ready(struct tensor_log *log)
{
	if (log->failed || log->first)
		return !log->failed;
	log->events = calloc(TENSOR_LOG_EVENTS, sizeof(*log->events));
	log->names = calloc(TENSOR_LOG_NAMES, sizeof(*log->names));
	log->first = calloc(PREDICT_MOST, sizeof(*log->first));
	log->from = 1;
	log->failed = !log->events || !log->names || !log->first;
	return !log->failed;
}

/* ---- what is alive ---- */

/* Returns the index of the first tensor that ends after this byte. */
static uint32_t alive_from(const struct tensor_log *log, uint64_t address)
{
	uint32_t low = 0, high = log->n_alive;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (log->alive[middle].begin + log->alive[middle].bytes > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

const struct tensor *tensor_log_at(const struct tensor_log *log, uint64_t address)
{
	uint32_t index = alive_from(log, address);

	return index < log->n_alive && log->alive[index].begin <= address ? &log->alive[index] : NULL;
}

void tensor_log_forget(struct tensor_log *log, uint64_t begin, uint64_t end)
{
	uint32_t first = alive_from(log, begin), past = first;

	while (past < log->n_alive && log->alive[past].begin < end)
		past++;
	if (past == first)
		return;
	memmove(&log->alive[first], &log->alive[past], (log->n_alive - past) * sizeof(*log->alive));
	log->n_alive -= past - first;
}

static bool alive_add(struct tensor_log *log, struct tensor tensor)
{
	if (!ARRAY_ROOM(log->alive, log->n_alive, log->room_alive, TENSOR_LOG_ALIVE))
		return false;
	uint32_t index = alive_from(log, tensor.begin);
	memmove(&log->alive[index + 1], &log->alive[index], (log->n_alive - index) * sizeof(*log->alive));
	log->alive[index] = tensor;
	log->n_alive++;
	return true;
}

/* ---- recording ---- */

static void add_event(struct tensor_log *log, struct tensor_event event)
{
	log->events[log->n_events++ % TENSOR_LOG_EVENTS] = event;
}

void tensor_log_birth(struct tensor_log *log, const struct tensor_event *birth, uint64_t end)
{
	const struct tensor tensor = {birth->begin, end - birth->begin, log->n_events};

	if (tensor.bytes <= TENSOR_LOG_LEAST || !log_ready(log))
		return;
	tensor_log_forget(log, tensor.begin, end);
	if (end / TENSOR_GRAIN > UINT32_MAX || !alive_add(log, tensor))
		log->failed = true;
	else
		add_event(log, *birth);
}

void tensor_log_death(struct tensor_log *log, uint64_t position, uint64_t begin, uint64_t end)
{
	const struct tensor *tensor = tensor_log_at(log, begin);

	if (!tensor || tensor->begin != begin || tensor->bytes != end - begin || log->failed)
		return;
	uint64_t asked = tensor_log_has(log, tensor->value) ? tensor_log_event(log, tensor->value)->bytes : end - begin;
	tensor_log_forget(log, begin, end);
	add_event(log, (struct tensor_event){.position = position, .begin = begin, .bytes = asked});
}

/* ---- names ---- */

void tensor_log_name(struct tensor_log *log, uint64_t position, const uint64_t *addresses, unsigned n)
{
	uint64_t last = UINT64_MAX;

	if (!log->first || log->failed)
		return;
	if (position != log->now + 1)
		log->from = position;
	log->now = position;
	log->first[position % PREDICT_MOST] = log->n_names;
	for (unsigned i = 0; i < n; i++) {
		const struct tensor *tensor = tensor_log_at(log, addresses[i]);

		/* Most often a tensor that is named more than once is so in a row. */
		if (!tensor || tensor->begin == last)
			continue;
		last = tensor->begin;
		log->names[log->n_names++ % TENSOR_LOG_NAMES] = (uint32_t)(last / TENSOR_GRAIN);
	}
}

/* ---- reading ---- */

uint64_t tensor_log_from(const struct tensor_log *log, uint64_t position)
{
	uint64_t low = log->n_events > TENSOR_LOG_EVENTS ? log->n_events - TENSOR_LOG_EVENTS : 0, high = log->n_events;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (tensor_log_event(log, middle)->position >= position)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool tensor_log_names(const struct tensor_log *log, uint64_t position, uint64_t *ret_from, uint64_t *ret_to)
{
	if (!log->first || position < log->from || position > log->now || log->now - position >= PREDICT_MOST)
		return false;
	*ret_from = log->first[position % PREDICT_MOST];
	*ret_to = position == log->now ? log->n_names : log->first[(position + 1) % PREDICT_MOST];
	return log->n_names - *ret_from <= TENSOR_LOG_NAMES;
}
