// SPDX-License-Identifier: Apache-2.0
/*
 * Computes a digest. What must be known in advance (moves and their completions, suspensions) is found first. Then one
 * pass over the events passes each to every part, with completions of moves inserted at their times. Then the parts
 * end, and the costs are judged by their results.
 */
#include "tools/digest/digest_part.h"
#include "tools/common/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ASKERS = 1024 }; /* threads that may be in an allocation at once; a power of two */

struct asker {
	uint64_t time;
	uint32_t thread;
	bool asking;
};

struct pass {
	struct digest *digest;
	digest_progress *progress;
	struct digest_groups groups;
	struct digest_places places;
	struct digest_cover waits, gaps, either, lost; /* either: waits and gaps; lost: and suspensions */
	struct asker askers[ASKERS];
	struct digest_move **arrivals; /* sorted by their ends */
	size_t n_arrivals, next_arrival;
};

static int by_end(const void *a, const void *b)
{
	const struct digest_move *x = *(const struct digest_move *const *)a, *y = *(const struct digest_move *const *)b;

	return (x->end > y->end) - (x->end < y->end);
}

/* Finds completed moves, the time in which the links were busy, and the outcome of the other moves. */
static bool arrivals_find(struct pass *pass)
{
	struct digest *digest = pass->digest;
	struct digest_cover links[DIGEST_DEVICES + 1] = {0};

	pass->arrivals = calloc(digest->n_moves, sizeof(*pass->arrivals));
	if (!pass->arrivals)
		return false;
	for (size_t i = 0; i < digest->n_moves; i++) {
		struct digest_move *move = &digest->moves[i];

		if (move->end == UINT64_MAX) {
			digest->moves_open++;
			continue;
		}
		digest_cover_add(&links[move->device], move->begin, move->end);
		if (move->stayed) {
			digest->moves_stayed++;
			continue;
		}
		if (move->why < TRACE_WHYS)
			digest->move_why[move->to_host][move->why] += move->bytes;
		pass->arrivals[pass->n_arrivals++] = move;
	}
	for (unsigned i = 0; i <= DIGEST_DEVICES; i++)
		digest->link_ns += links[i].total;
	qsort(pass->arrivals, pass->n_arrivals, sizeof(*pass->arrivals), by_end);
	return true;
}

static void arrive_until(struct pass *pass, uint64_t time)
{
	for (; pass->next_arrival < pass->n_arrivals && pass->arrivals[pass->next_arrival]->end <= time;
	     pass->next_arrival++)
		digest_series_moved(pass->digest, &pass->places, pass->arrivals[pass->next_arrival]);
}

static void take_ask(struct pass *pass, const struct trace_event *event)
{
	struct asker *asker = &pass->askers[event->thread & (ASKERS - 1)];

	if (event->kind == TRACE_ask) {
		*asker = (struct asker){event->time, event->thread, true};
		return;
	}
	if (asker->asking && asker->thread == event->thread) {
		pass->digest->ask_ns += event->time - asker->time;
		if (event->kind == TRACE_made && event->made.on_host) {
			pass->digest->ask_host_ns += event->time - asker->time;
			pass->digest->n_ask_host++;
		}
	}
	asker->asking = false;
}

/* Returns when the state changes again after this row. */
static uint64_t next_state(const struct digest *digest, const struct trace_row *row)
{
	while (++row < digest->trace->rows + digest->trace->n_rows)
		if (row->event.kind == TRACE_state)
			return digest_since(digest, row->event.time);
	return digest->run_ns;
}

static void take_times(struct pass *pass, const struct trace_row *row)
{
	const struct trace_event *event = &row->event;
	struct digest *digest = pass->digest;
	uint64_t begin = digest_since(digest, event->time), end;

	if (event->kind == TRACE_state) {
		if (!event->state.suspended)
			return;
		end = next_state(digest, row);
		digest->suspended_ns += end - begin;
	} else {
		end = digest_end(digest, begin, event->kind == TRACE_gap ? event->gap.ns : event->wait.ns);
		digest_cover_add(event->kind == TRACE_gap ? &pass->gaps : &pass->waits, begin, end);
		digest_cover_add(&pass->either, begin, end);
	}
	digest_cover_add(&pass->lost, begin, end);
}

static uint64_t device_of(const struct trace_event *event)
{
	return event->kind == TRACE_made     ? event->made.device
	       : event->kind == TRACE_submit ? event->submit.device
	       : event->kind == TRACE_move   ? event->move.device
	       : event->kind == TRACE_gap    ? event->gap.device
	       : event->kind == TRACE_wait   ? event->wait.device
	       : event->kind == TRACE_bytes  ? event->bytes.device
	       : event->kind == TRACE_faults ? event->faults.device
	       : event->kind == TRACE_lent   ? event->lent.device
	       : event->kind == TRACE_kept || event->kind == TRACE_born || event->kind == TRACE_died ||
		       event->kind == TRACE_doubted
		   ? event->kept.device
		   : 0;
}

static void digest_take(struct pass *pass, const struct trace_row *row)
{
	const struct trace_event *event = &row->event;
	struct digest *digest = pass->digest;

	arrive_until(pass, digest_since(digest, event->time));
	digest->n_strangers += device_of(event) >= DIGEST_DEVICES;
	digest_groups_event(digest, &pass->groups, row);
	digest_series_event(digest, &pass->places, row);
	if (event->kind == TRACE_ask || event->kind == TRACE_made || event->kind == TRACE_refused)
		take_ask(pass, event);
	else if (event->kind == TRACE_gap || event->kind == TRACE_wait || event->kind == TRACE_state)
		take_times(pass, row);
}

static void take_all(struct pass *pass)
{
	const struct trace *trace = pass->digest->trace;

	for (size_t i = 0; i < trace->n_rows; i++) {
		digest_take(pass, &trace->rows[i]);
		if (pass->progress && i % 65536 == 0)
			pass->progress("events", i, trace->n_rows);
	}
	arrive_until(pass, UINT64_MAX - 1);
	digest_series_end(pass->digest, &pass->places);
	pass->digest->wait_ns = pass->waits.total;
	pass->digest->gap_ns = pass->gaps.total;
	pass->digest->both_ns = pass->waits.total + pass->gaps.total - pass->either.total;
	pass->digest->lost_ns = pass->lost.total;
}

/* Computes the median, least and longest duration of a step, for each device. */
static bool steps_measure(struct digest *digest)
{
	uint64_t *ns = calloc(digest->n_steps, sizeof(*ns));

	if (!ns)
		return false;
	for (unsigned i = 0; digest->n_steps && i < DIGEST_DEVICES; i++) {
		struct digest_device *device = &digest->devices[i];
		size_t n = 0;

		for (size_t k = 0; device->seen && k < digest->n_steps; k++)
			if (digest->steps[k].device == i && digest->steps[k].ns)
				ns[n++] = digest->steps[k].ns;
		if (!n)
			continue;
		qsort(ns, n, sizeof(*ns), by_number);
		device->n_steps = n;
		device->steps_begun = n + 1;
		device->step_median = ns[n / 2];
		device->step_least = ns[0];
		device->step_most = ns[n - 1];
	}
	free(ns);
	return true;
}

static int by_wait(const void *a, const void *b)
{
	const struct digest_function *x = a, *y = b;

	return ORDER(y->wait_ns, x->wait_ns) ?: ORDER(y->submits, x->submits) ?: ORDER(x->number, y->number);
}

/* Functions without a name share the last line. */
static bool functions_count(struct digest *digest)
{
	const struct trace *trace = digest->trace;
	size_t n = trace->n_names[TRACE_FUNCTIONS];

	digest->functions = calloc(n + 1, sizeof(*digest->functions));
	if (!digest->functions)
		return false;
	for (size_t i = 0; i <= n; i++)
		digest->functions[i].number = (uint32_t)i;
	for (size_t i = 0; i < trace->n_rows; i++) {
		const struct trace_event *event = &trace->rows[i].event;
		bool waited = event->kind == TRACE_wait;

		if (!waited && event->kind != TRACE_submit)
			continue;
		uint64_t number = waited ? event->wait.function : event->submit.function;
		uint64_t begin = digest_since(digest, event->time);
		struct digest_function *function = &digest->functions[number < n ? number : n];
		function->submits += !waited;
		function->waits += waited;
		function->wait_ns += waited ? digest_end(digest, begin, event->wait.ns) - begin : 0;
	}
	for (size_t i = 0; i <= n; i++)
		if (digest->functions[i].submits || digest->functions[i].waits)
			digest->functions[digest->n_functions++] = digest->functions[i];
	qsort(digest->functions, digest->n_functions, sizeof(*digest->functions), by_wait);
	return true;
}

/* Reads the memory of the devices from the head: "0:150110011392 1:150110011392". Anything else counts as not known. */
static void totals_find(struct digest *digest)
{
	char text[1024], *at = text, *end;

	trace_value(digest->trace, "devices", text, sizeof(text));
	for (;; at = end) {
		uint64_t device = strtoull(at, &end, 10), total;

		if (end == at || *end != ':' || device >= DIGEST_DEVICES)
			return;
		at = end + 1;
		total = strtoull(at, &end, 10);
		if (end == at || (*end && *end != ' '))
			return;
		digest->devices[device].total = total;
	}
}

/*
 * Finds the names of devices, and their peaks.
 * Peaks are computed from allocations: samples count moving pieces at both ends, and spare chunks, so that they do not
 * show what was needed.
 */
static bool devices_find(struct digest *digest)
{
	uint64_t peaks[DIGEST_DEVICES];
	char key[16];

	if (!trace_peaks(digest->trace, peaks, DIGEST_DEVICES, &digest->peak))
		return false;
	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		struct digest_device *device = &digest->devices[i];

		device->need = peaks[i];
		snprintf(key, sizeof(key), "gpu%u", i);
		trace_value(digest->trace, key, device->name, sizeof(device->name));
	}
	return true;
}

/* What groups do not explain of the sums over devices. */
static void rest_find(struct digest *digest)
{
	const struct digest_group *total = &digest->total;
	uint64_t in = 0, out = 0, wait_ns = 0;

	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		in += digest->devices[i].bytes_in;
		out += digest->devices[i].bytes_out;
		wait_ns += digest->devices[i].wait_ns;
	}
	digest->rest.bytes_in = in > total->bytes_in ? in - total->bytes_in : 0;
	digest->rest.bytes_out = out > total->bytes_out ? out - total->bytes_out : 0;
	digest->rest.wait_ns = wait_ns > total->wait_ns ? wait_ns - total->wait_ns : 0;
}

static bool digest_prepare(struct pass *pass)
{
	struct digest *digest = pass->digest;

	digest->block_wait_ns = calloc(digest->trace->n_blocks, sizeof(*digest->block_wait_ns));
	return digest->block_wait_ns && devices_find(digest) && digest_groups_begin(digest, &pass->groups) &&
	       digest_series_begin(digest, &pass->places) && digest_moves_find(digest) && digest_links_find(digest) &&
	       arrivals_find(pass);
}

static bool digest_finish(struct pass *pass)
{
	struct digest *digest = pass->digest;

	digest_moves_blame(digest, pass->arrivals, pass->n_arrivals);
	if (!digest_alive_find(digest) || !digest_groups_end(digest, &pass->groups) || !digest_steps_find(digest) ||
	    !steps_measure(digest) || !functions_count(digest))
		return false;
	rest_find(digest);
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		if (digest->devices[i].seen && !digest->devices[i].bins)
			return false;
	if (!digest_curve_make(digest, pass->progress))
		return false;
	digest_costs_make(digest);
	return true;
}

int digest_make(const struct trace *trace, digest_progress *progress, struct digest *ret_digest)
{
	struct pass *pass = calloc(1, sizeof(*pass));
	bool good = false;

	memset(ret_digest, 0, sizeof(*ret_digest));
	if (!pass)
		return -ENOMEM;
	ret_digest->trace = trace;
	ret_digest->run_ns = digest_since(ret_digest, trace->last);
	ret_digest->bin_ns = ret_digest->run_ns / DIGEST_BINS + 1;
	ret_digest->n_bins = (size_t)(ret_digest->run_ns / ret_digest->bin_ns) + 1;
	for (size_t i = 0; i < trace->n_rows; i++)
		if (trace->rows[i].event.kind < TRACE_KINDS)
			ret_digest->n_events[trace->rows[i].event.kind]++;
	totals_find(ret_digest);
	pass->digest = ret_digest;
	pass->progress = progress;
	if (digest_prepare(pass)) {
		take_all(pass);
		good = digest_finish(pass);
	}
	digest_groups_free(&pass->groups);
	digest_series_free(&pass->places);
	FREE_ALL(pass->arrivals, pass);
	if (!good)
		digest_free(ret_digest);
	return good ? 0 : -ENOMEM;
}

void digest_free(struct digest *digest)
{
	for (int i = 0; i < DIGEST_TABLES; i++)
		free(digest->tables[i].groups);
	for (int i = 0; i < DIGEST_DEVICES; i++)
		free(digest->devices[i].bins);
	FREE_ALL(digest->block_wait_ns, digest->first_site, digest->moves, digest->shares, digest->links,
		 digest->moments, digest->steps, digest->functions, digest->idle_rules);
	memset(digest, 0, sizeof(*digest));
}
