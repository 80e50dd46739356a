// SPDX-License-Identifier: Apache-2.0
/*
 * What a run cost, and what to change.
 */
#include "policy/policy.h"
#include "policy/text.h"
#include "shim/base/call_site.h"
#include "shim/stats/summary.h"
#include "tools/common/grow.h"
#include "tools/common/units.h"
#include "tools/digest/digest_part.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * Follows the tensors of one line through the trace, and asks of each that is brought in whether it was born before the
 * step before. One begin of a step may lie between the forward and the backward pass, so a tensor that has seen one may
 * be of the same step.
 */

/* Whether most of what is brought in of a line's tensors was born more than a step before. */
enum digest_lasting {
	DIGEST_LASTING_UNKNOWN, /* or some of it was */
	DIGEST_PASSING,         /* hardly any */
	DIGEST_LASTING,
};

enum { ALIVE_MOST = 4096 }; /* of a line with more at once nothing is known */

struct tensor {
	uint64_t begin, end, born;
};

struct lasting {
	const struct digest *digest;
	struct tensor *alive;
	size_t n, room;
	uint64_t latest[DIGEST_DEVICES], before[DIGEST_DEVICES]; /* begins of steps, plus 1; 0: there was none */
	uint64_t all, lasting;                                   /* bytes brought in; of tensors that last */
};

/* Whatever was in these bytes is not there any more. */
static void lasting_forget(struct lasting *lasting, uint64_t begin, uint64_t end)
{
	for (size_t i = lasting->n; i-- > 0;)
		if (lasting->alive[i].begin < end && lasting->alive[i].end > begin)
			lasting->alive[i] = lasting->alive[--lasting->n];
}

static void note_steps(struct lasting *lasting, size_t *at, uint64_t now)
{
	const struct digest *digest = lasting->digest;

	for (; *at < digest->n_steps && digest->steps[*at].time <= now; ++*at) {
		const struct digest_step *step = &digest->steps[*at];

		lasting->before[step->device] = lasting->latest[step->device];
		lasting->latest[step->device] = step->time + 1;
	}
}

static void count_move(struct lasting *lasting, const struct digest_move *move)
{
	uint64_t end = move->address + move->bytes;

	if (move->to_host || move->stayed || move->end == UINT64_MAX || move->device >= DIGEST_DEVICES ||
	    !lasting->before[move->device])
		return;
	for (size_t i = 0; i < lasting->n; i++) {
		const struct tensor *tensor = &lasting->alive[i];
		uint64_t from = tensor->begin > move->address ? tensor->begin : move->address;
		uint64_t to = tensor->end < end ? tensor->end : end, bytes = to > from ? to - from : 0;

		lasting->all += bytes;
		lasting->lasting += tensor->born + 1 < lasting->before[move->device] ? bytes : 0;
	}
}

/* Returns false if nothing can be said. */
static bool take(struct lasting *lasting, const struct trace_event *event, uint64_t site)
{
	const struct digest *digest = lasting->digest;
	uint64_t begin = event->born.address, end = begin + event->born.bytes;

	if (end < begin)
		return true;
	lasting_forget(lasting, begin, end);
	if (event->kind != TRACE_born || event->born.site >= digest->trace->n_names[TRACE_SITES] ||
	    digest->first_site[event->born.site] != site)
		return true;
	if (lasting->n == ALIVE_MOST || !grow(&lasting->alive, lasting->n, &lasting->room, sizeof(*lasting->alive)))
		return false;
	lasting->alive[lasting->n++] = (struct tensor){begin, end, digest_since(digest, event->time)};
	return true;
}

/* site: a group's number by site. Moves and steps must have been found. */
static enum digest_lasting digest_lasting(const struct digest *digest, uint64_t site)
{
	struct lasting lasting = {.digest = digest};
	size_t n_moves = 0, step = 0;
	bool known = true;

	for (size_t i = 0; known && i < digest->trace->n_rows; i++) {
		const struct trace_event *event = &digest->trace->rows[i].event;

		note_steps(&lasting, &step, digest_since(digest, event->time));
		if (event->kind == TRACE_move)
			count_move(&lasting, &digest->moves[n_moves++]);
		else if (event->kind == TRACE_born || event->kind == TRACE_died)
			known = take(&lasting, event, site);
	}
	free(lasting.alive);
	if (!known || !lasting.all)
		return DIGEST_LASTING_UNKNOWN;
	if (2 * lasting.lasting > lasting.all)
		return DIGEST_LASTING;
	return 10 * lasting.lasting < lasting.all ? DIGEST_PASSING : DIGEST_LASTING_UNKNOWN;
}

/*
 * Computes what the run lost by its memory, in seconds; a verdict of one sentence; and advice. The library measured
 * the times. Costs that were not measured (the duration of page faults, what kernels lost by reading over the link)
 * have no time, and are listed last.
 */

/* Thresholds above which a cost is reported. */
#define HOST_TOUCHES 2.0  /* per step: above this, reading over the link costs more than fetching */
#define HOST_MOST    0.75 /* of all memory */
#define IDLE_SHARE   0.05 /* of the budget */
#define STEPS_LEAST  3

enum { NAME_TEXT = 96 };

struct judge {
	struct digest *digest;
	struct digest_device sum;             /* of all devices */
	const struct digest_device *tightest; /* needs most of its budget; NULL: none is known */
	enum digest_by by;                    /* the table whose lines show the cause best */
	const struct digest_group
	    *worst; /* of it: what is waited for most; NULL if neither rules nor sites are known */
	struct digest_cost all[DIGEST_COST_KINDS];
	char mode[32];
};

const char *const digest_cost_names[DIGEST_COST_KINDS] = {
    "waiting for memory", "GPU stopped to move memory", "suspended", "making allocations",
    "page faults",        "memory read over the link",
};

/* Rules if there are any, otherwise sites. */
static enum digest_by costs_telling(const struct digest *digest)
{
	const struct digest_table *rules = &digest->tables[DIGEST_BY_RULE], *sites = &digest->tables[DIGEST_BY_SITE];
	bool known = rules->n && rules->groups[0].number;

	return !known && sites->n && sites->groups[0].number ? DIGEST_BY_SITE : DIGEST_BY_RULE;
}

static const struct digest_group *worst_of(const struct digest *digest, enum digest_by by)
{
	const struct digest_table *table = &digest->tables[by];
	const struct digest_group *worst = NULL;

	if (!table->n || !table->groups[0].number)
		return NULL;
	for (size_t i = 0; i < table->n; i++)
		if (!worst || table->groups[i].wait_ns > worst->wait_ns ||
		    (table->groups[i].wait_ns == worst->wait_ns && table->groups[i].bytes_in > worst->bytes_in))
			worst = &table->groups[i];
	return worst;
}

/* Returns a name such as rule "optim", safe to print. */
static const char *costs_call(const struct digest *digest, enum digest_by by, uint64_t number, char room[NAME_TEXT])
{
	char made[64], name[NAME_TEXT - 8];

	policy_printable(digest_group_name(digest, by, number, made, sizeof(made)), name, sizeof(name));
	snprintf(room, NAME_TEXT, number ? "%s \"%s\"" : "no %s", digest_by_names[by], name);
	return room;
}

static struct digest_device sum_of(const struct digest *digest)
{
	struct digest_device sum = {0};

	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		const struct digest_device *device = &digest->devices[i];

		sum.moves_in += device->moves_in;
		sum.bytes_in += device->bytes_in;
		sum.gaps += device->gaps;
		sum.gaps_given_up += device->gaps_given_up;
		sum.waits += device->waits;
		sum.faults_gpu += device->faults_gpu;
		sum.faults_cpu += device->faults_cpu;
		sum.fault_in += device->fault_in;
		sum.fault_out += device->fault_out;
		sum.host = device->host > sum.host ? device->host : sum.host;
	}
	return sum;
}

/* ---- costs ---- */

static void judge_waiting(struct judge *judge)
{
	struct digest *digest = judge->digest;
	struct digest_cost *cost = &judge->all[DIGEST_WAITING];
	const struct digest_group *worst = judge->worst;
	char name[NAME_TEXT];
	int at = snprintf(cost->evidence, sizeof(cost->evidence), "%s", text_number(judge->sum.waits, "wait"));

	if (worst && worst->wait_ns && worst->tensors)
		snprintf(cost->evidence + at, sizeof(cost->evidence) - (size_t)at,
			 "; %s of it for tensors of %s, of which %s were brought in", text_time(worst->wait_ns),
			 costs_call(digest, judge->by, worst->number, name), text_bytes(worst->bytes_in));
	else if (worst && worst->wait_ns)
		snprintf(cost->evidence + at, sizeof(cost->evidence) - (size_t)at,
			 "; %s of it for blocks of %s, %s, brought in %s", text_time(worst->wait_ns),
			 costs_call(digest, judge->by, worst->number, name), text_bytes(worst->peak),
			 text_number(worst->moves_in, "time"));
}

static void judge_gaps(struct judge *judge)
{
	struct digest_cost *cost = &judge->all[DIGEST_GAPS];

	snprintf(cost->evidence, sizeof(cost->evidence), "%s of %s on average, %s of them given up",
		 text_number(judge->sum.gaps, "gap"),
		 text_time(judge->sum.gaps ? judge->digest->gap_ns / judge->sum.gaps : 0),
		 text_count(judge->sum.gaps_given_up));
}

static void judge_asking(struct judge *judge)
{
	struct digest *digest = judge->digest;
	struct digest_cost *cost = &judge->all[DIGEST_ASKING];
	int at = snprintf(cost->evidence, sizeof(cost->evidence), "%s, %s in all",
			  text_number(digest->total.allocations + digest->total.refused, "allocation"),
			  text_bytes(digest->total.bytes));

	if (digest->n_ask_host)
		snprintf(cost->evidence + at, sizeof(cost->evidence) - (size_t)at, "; %s of it for %s placed %s",
			 text_time(digest->ask_host_ns), text_count(digest->n_ask_host), digest_away(digest));
}

static void judge_suspended(struct judge *judge)
{
	snprintf(judge->all[DIGEST_SUSPENDED].evidence, DIGEST_TEXT, "by request; %s between suspended and going on",
		 text_number(judge->digest->n_events[TRACE_state], "change"));
}

/*
 * Of a job in which nothing moved: the submissions that named heap memory on the host, and the bytes they named there.
 */
static uint64_t count_reaching(const struct digest *digest, uint64_t *ret_bytes)
{
	const struct trace *trace = digest->trace;
	uint64_t n = 0;

	*ret_bytes = 0;
	for (size_t i = 0; !digest->n_moves && i < trace->n_rows; i++) {
		uint64_t bytes = 0;

		for (uint32_t k = 0; k < trace->rows[i].n_blocks; k++) {
			const struct trace_block *block = &trace->blocks[trace->rows[i].blocks[k]];

			bytes += block->backend == POLICY_USE_HEAP ? block->on_host : 0;
		}
		n += bytes != 0;
		*ret_bytes += bytes;
	}
	return n;
}

static void judge_unmeasured(struct judge *judge)
{
	struct digest_cost *cost = &judge->all[DIGEST_FAULTS];
	uint64_t bytes, n_reaching = count_reaching(judge->digest, &bytes);

	if (judge->sum.faults_gpu || judge->sum.faults_cpu)
		snprintf(cost->evidence, sizeof(cost->evidence),
			 "%s by the GPU, %s by the CPU; %s came in and %s went out by them; how long they took is not "
			 "measured",
			 text_count(judge->sum.faults_gpu), text_count(judge->sum.faults_cpu),
			 text_bytes(judge->sum.fault_in), text_bytes(judge->sum.fault_out));
	cost = &judge->all[DIGEST_REACHING];
	if (n_reaching)
		snprintf(cost->evidence, sizeof(cost->evidence),
			 "%s named memory %s, %s if each read all of it; what that cost is not "
			 "measured",
			 text_number(n_reaching, "submission"), digest_away(judge->digest), text_bytes(bytes));
}

static int by_ns(const void *a, const void *b)
{
	const struct digest_cost *x = a, *y = b;

	return ORDER(y->ns, x->ns) ?: ORDER(x->kind, y->kind);
}

static void judge_costs(struct judge *judge)
{
	struct digest *digest = judge->digest;
	/* What has none here was not measured. */
	const uint64_t ns[DIGEST_COST_KINDS] = {digest->wait_ns, digest->gap_ns, digest->suspended_ns, digest->ask_ns};

	judge_waiting(judge);
	judge_gaps(judge);
	judge_suspended(judge);
	judge_asking(judge);
	judge_unmeasured(judge);
	for (int i = 0; i < DIGEST_COST_KINDS; i++) {
		judge->all[i].kind = (enum digest_cost_kind)i;
		judge->all[i].known = i <= DIGEST_ASKING;
		judge->all[i].ns = ns[i];
	}
	qsort(judge->all, DIGEST_COST_KINDS, sizeof(*judge->all), by_ns);
	for (int i = 0; i < DIGEST_COST_KINDS && digest->n_costs < DIGEST_COSTS; i++)
		if (judge->all[i].known ? judge->all[i].ns != 0 : judge->all[i].evidence[0] != '\0')
			digest->costs[digest->n_costs++] = judge->all[i];
}

/* ---- the verdict ---- */

/* "1 allocation was", "2 allocations were" */
static const char *costs_allocations(uint64_t n, char room[UNITS_TEXT])
{
	snprintf(room, UNITS_TEXT, "%.20s allocation%s", text_count(n), n == 1 ? " was" : "s were");
	return room;
}

static const struct digest_device *costs_tightest(const struct digest *digest)
{
	const struct digest_device *found = NULL;
	double most = 0;

	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		const struct digest_device *device = &digest->devices[i];
		double ratio = device->budget ? (double)device->need / (double)device->budget : 0;

		if (device->seen && ratio > most) {
			most = ratio;
			found = device;
		}
	}
	return found;
}

static void judge_verdict(struct judge *judge)
{
	struct digest *digest = judge->digest;
	const struct digest_device *device = judge->tightest;
	char n[UNITS_TEXT];
	int at = 0;

	if (digest->total.refused)
		at =
		    snprintf(digest->verdict, DIGEST_TEXT, "%s refused. ", costs_allocations(digest->total.refused, n));
	if (!digest->trace->n_blocks && !judge->sum.host) {
		snprintf(digest->verdict + at, DIGEST_TEXT - (size_t)at, "No allocation was recorded.");
		return;
	}
	if (!judge->sum.host && !digest->n_moves) {
		snprintf(digest->verdict + at, DIGEST_TEXT - (size_t)at,
			 "Everything fitted: nothing was on the host, nothing was moved.");
		return;
	}
	if (device && device->need > device->budget)
		at += snprintf(digest->verdict + at, DIGEST_TEXT - (size_t)at,
			       "The job needed %.2f times its device budget (%s of %s)",
			       (double)device->need / (double)device->budget, text_bytes(device->need),
			       text_bytes(device->budget));
	else
		at += snprintf(digest->verdict + at, DIGEST_TEXT - (size_t)at, "%s of the job's memory was %s",
			       text_bytes(judge->sum.host), digest_away(digest));
	if (digest->lost_ns || digest->n_moves)
		snprintf(digest->verdict + at, DIGEST_TEXT - (size_t)at,
			 "; for %s of the run (%s) it waited for memory or was stopped.",
			 text_share((double)digest->lost_ns, (double)digest->run_ns), text_time(digest->lost_ns));
	else
		snprintf(digest->verdict + at, DIGEST_TEXT - (size_t)at,
			 "; nothing moved, and kernels reached it over the link, which a trace does not time.");
}

/* ---- advice: the most helpful comes first ---- */

static char *advice_room(struct digest *digest)
{
	return digest->n_advice < DIGEST_ADVICE ? digest->advice[digest->n_advice++] : NULL;
}

static uint64_t n_steps_of(const struct digest *digest)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		if (digest->devices[i].steps_begun > most)
			most = digest->devices[i].steps_begun;
	return most;
}

static void advise_refused(struct judge *judge)
{
	struct digest *digest = judge->digest;
	uint64_t largest = 0;
	char *room, n[UNITS_TEXT];

	for (size_t i = 0; i < digest->trace->n_rows; i++) {
		const struct trace_event *event = &digest->trace->rows[i].event;

		if (event->kind == TRACE_refused && event->refused.bytes > largest)
			largest = event->refused.bytes;
	}
	if (!digest->total.refused || !(room = advice_room(digest)))
		return;
	snprintf(room, DIGEST_TEXT, "%s refused, the largest of %s: raise host.budget, or let more spill.",
		 costs_allocations(digest->total.refused, n), text_bytes(largest));
}

static void advise_budget(struct judge *judge, char *room)
{
	const struct digest_device *device = judge->tightest;

	snprintf(room, DIGEST_TEXT,
		 "The job needs %s and its device budget is %s: device.budget: %" PRIu64
		 "MiB would hold all of it, if the GPU has so much.",
		 text_bytes(device->need), text_bytes(device->budget), (device->need + (UINT64_C(1) << 20) - 1) >> 20);
}

/* How often a step names an allocation of this group. */
static double touches_of(const struct digest_group *group, uint64_t steps)
{
	return (double)group->submits / (double)group->allocations / (double)steps;
}

/*
 * Returns whether a rule with place: host may help: memory that is named at most HOST_TOUCHES times a step costs less
 * to read there. A rule for a line places the blocks that the line asks for, and not the tensors that are born there.
 * All memory on the host is no useful advice.
 */
static bool is_for_host(const struct digest *digest, const struct digest_group *worst)
{
	uint64_t steps = n_steps_of(digest);

	return worst->allocations && !worst->tensors && steps >= STEPS_LEAST &&
	       touches_of(worst, steps) <= HOST_TOUCHES &&
	       (double)worst->peak <= HOST_MOST * (double)digest->total.peak;
}

static void advise_host(struct judge *judge, char *room)
{
	const struct digest_group *worst = judge->worst;
	uint64_t steps = n_steps_of(judge->digest);
	char name[NAME_TEXT];

	snprintf(
	    room, DIGEST_TEXT,
	    "%s (%s) is named %.1f times a step and causes %s of what is brought in: place: host for it saves up to %s "
	    "of waiting a step, less what its kernels lose by reading over the link.",
	    costs_call(judge->digest, judge->by, worst->number, name), text_bytes(worst->peak),
	    touches_of(worst, steps), text_share((double)worst->bytes_in, (double)judge->sum.bytes_in),
	    text_time(worst->wait_ns / steps));
}

/*
 * Returns what to do about tensors of a line. A line belongs to the forward pass if a site "LINE [backward]" exists:
 * the backward pass makes tensors for it.
 */
static const char *advice_for(const struct digest *digest, uint64_t site)
{
	const struct trace *trace = digest->trace;
	const char *name = trace_text(trace, TRACE_SITES, site);
	bool is_forward = false;
	char backward[256];

	if (call_site_names_backward(name))
		return "the backward pass makes them: make them smaller, or free gradients earlier "
		       "(zero_grad(set_to_none=True))";
	snprintf(backward, sizeof(backward), "%s [backward]", name);
	for (size_t i = 0; i < trace->n_names[TRACE_SITES]; i++)
		is_forward |= !strcmp(trace_text(trace, TRACE_SITES, i), backward);
	switch (digest_lasting(digest, site)) {
	case DIGEST_LASTING:
		return "they last from step to step, so only smaller ones, or fewer, move less";
	case DIGEST_PASSING:
		if (is_forward)
			return "make them smaller, free them earlier, or compute more of them again "
			       "(torch.utils.checkpoint)";
		break;
	default:
		break;
	}
	return "make them smaller, or free them earlier";
}

static void advise_tensors(struct judge *judge, char *room)
{
	const struct digest_group *worst = judge->worst;
	char name[NAME_TEXT];

	snprintf(room, DIGEST_TEXT, "Tensors of %s cause %s of what is brought in: %s.",
		 costs_call(judge->digest, judge->by, worst->number, name),
		 text_share((double)worst->bytes_in, (double)judge->sum.bytes_in),
		 advice_for(judge->digest, worst->number));
}

static void advise_move(struct judge *judge, char *room)
{
	snprintf(room, DIGEST_TEXT,
		 "%s stayed %s for good, as spill.mode: static says; exact brings it to where it is used.",
		 text_bytes(judge->sum.host), digest_away(judge->digest));
}

static void advise_fast(struct judge *judge, char *room)
{
	snprintf(room, DIGEST_TEXT,
		 "The GPU stood still for %s of the run while memory moved: spill.mode: fast moves it beside the "
		 "kernels (see its limits in spillway-policy(5)).",
		 text_share((double)judge->digest->gap_ns, (double)judge->digest->run_ns));
}

/* What the summary would say of this run, too. */
static void advise_changes(struct judge *judge)
{
	static void (*const say[ADVICES])(struct judge * judge, char *room) = {
	    [ADVICE_BUDGET] = advise_budget, [ADVICE_MOVE] = advise_move,    [ADVICE_FAST] = advise_fast,
	    [ADVICE_SITE] = advise_host,     [ADVICE_LINE] = advise_tensors,
	};
	const struct digest *digest = judge->digest;
	const struct digest_device *sum = &judge->sum, *device = judge->tightest;
	const struct digest_group *worst = judge->worst;
	struct advice_figures figures = {
	    .mode = judge->mode,
	    .run = (double)digest->run_ns / 1e9,
	    .lost = (double)(digest->wait_ns > digest->gap_ns ? digest->wait_ns : digest->gap_ns) / 1e9,
	    .stopped = (double)digest->gap_ns / 1e9,
	    .over = sum->host || digest->n_moves,
	    .moved = sum->moves_in,
	    .need = device ? device->need : 0,
	    .budget = device ? device->budget : 0,
	    .total = device ? device->total : 0,
	    .moved_in = sum->bytes_in,
	    .worst_in = worst ? worst->bytes_in : 0,
	    .worst_by_rule = worst && is_for_host(digest, worst),
	    .worst_born = worst && worst->tensors && worst->wait_ns,
	};
	enum advice found[ADVICES];
	char *room;

	for (unsigned i = 0, n = advice_find(&figures, found); i < n; i++)
		if (say[found[i]] && (room = advice_room(judge->digest)))
			say[found[i]](judge, room);
}

/* Memory that is always on the device and that no submission names. */
static void advise_idle(struct judge *judge)
{
	struct digest *digest = judge->digest;
	const struct trace *trace = digest->trace;
	enum digest_by by = judge->by;
	size_t n = (by == DIGEST_BY_RULE ? trace->n_names[TRACE_RULES] : trace->n_names[TRACE_SITES]) + 2, worst = 0;
	uint64_t *idle = calloc(n, sizeof(*idle)), budget = judge->tightest ? judge->tightest->budget : 0;
	char *room, name[NAME_TEXT];

	for (size_t i = 0; idle && i < trace->n_blocks; i++) {
		const struct trace_block *block = &trace->blocks[i];
		uint64_t end = block->freed == UINT64_MAX ? trace->last : block->freed;

		if (block->backend == POLICY_USE_HEAP && !block->submits && !block->on_host && !block->moves_out &&
		    end - block->made > digest->run_ns / 2)
			idle[digest_group_of(digest, by, block->rule, block->site)] += block->bytes;
	}
	for (size_t i = 0; idle && i < n; i++)
		worst = idle[i] > idle[worst] ? i : worst;
	if (idle && judge->sum.bytes_in && digest->n_events[TRACE_submit] && budget &&
	    (double)idle[worst] > IDLE_SHARE * (double)budget && (room = advice_room(digest)))
		snprintf(room, DIGEST_TEXT,
			 "%s of %s lies on the device and no submission names it: place: host for it makes room there.",
			 text_bytes(idle[worst]), costs_call(digest, by, worst, name));
	free(idle);
}

static void advise_rules(struct judge *judge)
{
	struct digest *digest = judge->digest;
	char *room, name[NAME_TEXT], policy[256];

	/*
	 * Rules of the built-in policies are for programs that may have such memory, so that an unused one is not
	 * reported.
	 */
	trace_value(digest->trace, "policy", policy, sizeof(policy));
	if ((*policy && !strpbrk(policy, "/.")) || !digest->n_idle_rules || !(room = advice_room(digest)))
		return;
	snprintf(room, DIGEST_TEXT, "%s never matched%s: `spillway explain` says why.",
		 costs_call(digest, DIGEST_BY_RULE, digest->idle_rules[0], name),
		 digest->n_idle_rules > 1 ? ", and others" : "");
}

void digest_costs_make(struct digest *digest)
{
	struct judge judge = {.digest = digest,
			      .sum = sum_of(digest),
			      .tightest = costs_tightest(digest),
			      .by = costs_telling(digest),
			      .worst = worst_of(digest, costs_telling(digest))};

	trace_value(digest->trace, "mode", judge.mode, sizeof(judge.mode));
	judge_costs(&judge);
	judge_verdict(&judge);
	advise_refused(&judge);
	advise_changes(&judge);
	advise_idle(&judge);
	advise_rules(&judge);
}
