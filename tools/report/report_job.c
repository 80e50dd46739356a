// SPDX-License-Identifier: Apache-2.0
/*
 * Shows the traces of the ranks of one job as one: what the job spilled, which rank is slowest, which loses most by
 * memory, and a line for each rank. A rank without a trace, and a trace that ends in the middle, are named.
 */
#include "tools/report/report.h"
#include "tools/common/grow.h"
#include "tools/common/json.h"
#include "tools/common/units.h"
#include "tools/common/wrap.h"

#include "policy/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MISSING_MOST = 16, LIST_MOST = 200 };

/* ---- what is kept ---- */

static struct job_rank *add_row(struct report_job *job, const char *path)
{
	if (!grow(&job->rank, job->n, &job->room, sizeof(*job->rank)))
		return NULL;
	struct job_rank *row = &job->rank[job->n];
	*row = (struct job_rank){.path = strdup(path)};
	job->n += row->path != NULL;
	return row->path ? row : NULL;
}

bool report_job_add(struct report_job *job, const struct digest *digest)
{
	const struct trace *trace = digest->trace;
	struct job_rank *row = add_row(job, trace->path);
	char room[256];

	if (!row)
		return false;
	row->has_rank = trace_number(trace, "rank", &row->rank);
	trace_number(trace, "ranks", &row->ranks);
	policy_printable(trace_value(trace, "host", room, sizeof(room)), row->host, sizeof(row->host));
	policy_printable(trace_value(trace, "job", room, sizeof(room)), row->job, sizeof(row->job));
	row->run_ns = digest->run_ns;
	row->lost_ns = digest->lost_ns;
	row->refused = digest->total.refused;
	row->ended = trace->ended;
	row->whole = !trace->damaged && !trace->cut && !trace->n_lost;
	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		const struct digest_device *device = &digest->devices[i];

		row->need += device->need;
		row->on_device += device->device;
		row->away += device->host;
		row->bytes_in += device->bytes_in;
		row->bytes_out += device->bytes_out;
		if (device->step_median > row->step_ns) {
			row->step_ns = device->step_median;
			row->steps = device->n_steps;
		}
	}
	return true;
}

bool report_job_add_unread(struct report_job *job, const char *path, const char *problem)
{
	struct job_rank *row = add_row(job, path);

	if (row)
		policy_printable(problem, row->problem, sizeof(row->problem));
	return row != NULL;
}

void report_job_free(struct report_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		free(job->rank[i].path);
	free(job->rank);
}

/* ---- order ---- */

/* What could not be read comes last. */
static int by_rank(const void *a, const void *b)
{
	const struct job_rank *left = a, *right = b;

	return ORDER(right->has_rank, left->has_rank) ?: ORDER(left->rank, right->rank);
}

/* Traces that could be read, in the order of by_rank(). */
static size_t count_read(const struct report_job *job)
{
	size_t n = 0;

	while (n < job->n && job->rank[n].has_rank)
		n++;
	return n;
}

bool report_job_is(struct report_job *job)
{
	size_t n;
	bool is = job->n > 1;

	for (size_t i = 0; i < job->n; i++)
		is &= job->rank[i].has_rank || *job->rank[i].problem;
	if (!is)
		return false;
	qsort(job->rank, job->n, sizeof(*job->rank), by_rank);
	n = count_read(job);
	for (size_t i = 1; i < n; i++)
		is &= job->rank[i].rank != job->rank[i - 1].rank && !strcmp(job->rank[i].job, job->rank[0].job);
	return is && n > 1;
}

/* ---- what follows from it ---- */

struct answer {
	size_t n, n_spill, n_whole, n_hosts;
	uint64_t ranks; /* how many there should be */
	uint64_t missing[MISSING_MOST];
	size_t n_missing;
	const struct job_rank *slowest, *most_lost;
	uint64_t middle_step;
	double middle_lost;
	uint64_t need, away, bytes_in, bytes_out, refused;
};

static double lost_share(const struct job_rank *row)
{
	return row->run_ns ? (double)row->lost_ns / (double)row->run_ns : 0;
}

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/*
 * Of an even number the lower one of the two in the middle. Values below 0 are not known. Returns 0 if none is known,
 * or if memory runs out.
 */
static double middle(const struct report_job *job, size_t n, double (*value)(const struct job_rank *row))
{
	double *values = malloc(n * sizeof(*values)), found = 0;
	size_t n_known = 0;

	for (size_t i = 0; values && i < n; i++) {
		values[n_known] = value(&job->rank[i]);
		n_known += values[n_known] >= 0;
	}
	if (n_known) {
		qsort(values, n_known, sizeof(*values), by_value);
		found = values[(n_known - 1) / 2];
	}
	free(values);
	return found;
}

static double step_of(const struct job_rank *row)
{
	return row->step_ns ? (double)row->step_ns : -1;
}

static double lost_of(const struct job_rank *row)
{
	return row->run_ns ? lost_share(row) : -1;
}

static bool is_new_host(const struct report_job *job, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (!strcmp(job->rank[i].host, job->rank[index].host))
			return false;
	return true;
}

static void find_missing(const struct report_job *job, struct answer *answer)
{
	size_t at = 0;

	for (uint64_t rank = 0; rank < answer->ranks; rank++) {
		if (at < answer->n && job->rank[at].rank == rank)
			at++;
		else if (answer->n_missing++ < MISSING_MOST)
			answer->missing[answer->n_missing - 1] = rank;
	}
}

static void find_answer(const struct report_job *job, struct answer *answer)
{
	*answer = (struct answer){.n = count_read(job)};
	for (size_t i = 0; i < answer->n; i++) {
		const struct job_rank *row = &job->rank[i];

		answer->n_spill += row->away > 0;
		answer->n_whole += row->whole && row->ended;
		answer->n_hosts += is_new_host(job, i);
		answer->need += row->need;
		answer->away += row->away;
		answer->bytes_in += row->bytes_in;
		answer->bytes_out += row->bytes_out;
		answer->refused += row->refused;
		/* A number from the environment may be anything. */
		if (row->ranks > answer->ranks && row->ranks <= 1000000)
			answer->ranks = row->ranks;
		if (row->step_ns && (!answer->slowest || row->step_ns > answer->slowest->step_ns))
			answer->slowest = row;
		if (row->lost_ns && (!answer->most_lost || lost_share(row) > lost_share(answer->most_lost)))
			answer->most_lost = row;
	}
	answer->middle_step = (uint64_t)middle(job, answer->n, step_of);
	answer->middle_lost = middle(job, answer->n, lost_of);
	find_missing(job, answer);
}

/* ---- text ---- */

static void print_missing(const struct report_job *job, const struct answer *answer)
{
	char list[LIST_MOST] = "", path[120];

	for (size_t i = 0; i < answer->n_missing && i < MISSING_MOST; i++) {
		size_t at = strlen(list);

		snprintf(list + at, sizeof(list) - at, "%s%llu", i ? ", " : "", (unsigned long long)answer->missing[i]);
	}
	if (answer->n_missing)
		wrap_line(0, 2, "NOT COMPLETE: of %zu rank%s there is no trace here: %s%s", answer->n_missing,
			  answer->n_missing == 1 ? "" : "s", list, answer->n_missing > MISSING_MOST ? ", ..." : "");
	for (size_t i = answer->n; i < job->n; i++)
		wrap_line(0, 2, "NOT COMPLETE: %s: %s", policy_printable(job->rank[i].path, path, sizeof(path)),
			  job->rank[i].problem);
}

static void print_answer(const struct answer *answer)
{
	if (answer->n_spill)
		wrap_line(0, 2,
			  "%zu of %zu ranks spill: at their peaks %s of %s lay off the devices; %s moved in and %s out",
			  answer->n_spill, answer->n, text_bytes(answer->away), text_bytes(answer->need),
			  text_bytes(answer->bytes_in), text_bytes(answer->bytes_out));
	else
		wrap_line(0, 2, "no rank spills: at their peaks they need %s", text_bytes(answer->need));
	if (answer->slowest && answer->middle_step)
		wrap_line(0, 2, "slowest: rank %llu, %s a step, %.2f times the middle one (%s)",
			  (unsigned long long)answer->slowest->rank, text_time(answer->slowest->step_ns),
			  (double)answer->slowest->step_ns / (double)answer->middle_step,
			  text_time(answer->middle_step));
	if (answer->most_lost)
		wrap_line(0, 2, "most held up by memory: rank %llu, %s of its time; the middle one %s",
			  (unsigned long long)answer->most_lost->rank, text_share(lost_share(answer->most_lost), 1),
			  text_share(answer->middle_lost, 1));
	if (answer->refused)
		wrap_line(0, 2, "%llu requests ended in out of memory", (unsigned long long)answer->refused);
}

static const char *end_of(const struct job_rank *row)
{
	if (!row->whole)
		return row->ended ? "not complete" : "cut off";
	return row->ended ? "ended" : "did not end";
}

static void print_rows(const struct report_job *job, size_t n)
{
	printf("\n%5s  %-12s %10s %9s %5s %10s %10s %10s  %s\n", "rank", "host", "recorded", "step", "lost", "needed",
	       "spilled", "moved in", "trace");
	for (size_t i = 0; i < n; i++) {
		const struct job_rank *row = &job->rank[i];

		printf("%5llu  %-12.12s %10s %9s %5s %10s %10s %10s  %s\n", (unsigned long long)row->rank, row->host,
		       text_time(row->run_ns), row->step_ns ? text_time(row->step_ns) : "n/a",
		       text_share(lost_share(row), 1), text_bytes(row->need), text_bytes(row->away),
		       text_bytes(row->bytes_in), end_of(row));
	}
}

void report_job_text(const struct report_job *job)
{
	struct answer answer;

	find_answer(job, &answer);
	wrap_line(0, 2, "job %s: %zu ranks on %zu host%s, %zu of which ended by themselves",
		  *job->rank[0].job ? job->rank[0].job : "(no name)", answer.n, answer.n_hosts,
		  answer.n_hosts == 1 ? "" : "s", answer.n_whole);
	print_answer(&answer);
	print_missing(job, &answer);
	print_rows(job, answer.n);
}

/* ---- JSON ---- */

static void put_rank(struct json *json, const struct job_rank *row)
{
	json_open(json, NULL, '{');
	json_text(json, "path", row->path);
	json_text(json, "problem", *row->problem ? row->problem : NULL);
	json_number_or_null(json, "rank", row->rank, row->has_rank);
	json_text(json, "host", *row->host ? row->host : NULL);
	json_truth(json, "complete", row->whole && !*row->problem);
	json_truth(json, "ended", row->ended);
	JSON_NUMBERS(json, {"run_ns", row->run_ns}, {"step_ns", row->step_ns ? row->step_ns : JSON_UNKNOWN},
		     {"steps", row->steps}, {"lost_ns", row->lost_ns}, {"need", row->need},
		     {"on_device", row->on_device}, {"spilled", row->away}, {"bytes_in", row->bytes_in},
		     {"bytes_out", row->bytes_out}, {"refused", row->refused});
	json_close(json, '}');
}

void report_job_json(const struct report_job *job)
{
	struct json writer = JSON_WRITER, *json = &writer;
	const struct job_rank *slowest;
	struct answer answer;

	find_answer(job, &answer);
	slowest = answer.slowest;
	json_open(json, NULL, '{');
	json_number(json, "schema", 1);
	json_text(json, "job", *job->rank[0].job ? job->rank[0].job : NULL);
	JSON_NUMBERS(json, {"hosts", answer.n_hosts}, {"spilling", answer.n_spill},
		     {"slowest", slowest ? slowest->rank : JSON_UNKNOWN});
	json_real_or_null(json, "imbalance",
			  answer.middle_step && slowest ? (double)slowest->step_ns / (double)answer.middle_step : 0, 3,
			  answer.middle_step && slowest);
	json_number_or_null(json, "most_held_up", answer.most_lost ? answer.most_lost->rank : 0,
			    answer.most_lost != NULL);
	json_open(json, "missing", '[');
	for (size_t i = 0; i < answer.n_missing && i < MISSING_MOST; i++)
		json_number(json, NULL, answer.missing[i]);
	json_close(json, ']');
	json_open(json, "ranks", '[');
	for (size_t i = 0; i < job->n; i++)
		put_rank(json, &job->rank[i]);
	json_close(json, ']');
	json_close(json, '}');
	putchar('\n');
}
