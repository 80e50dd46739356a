// SPDX-License-Identifier: Apache-2.0
/*
 * The report of a job that `fast` has stopped: what was in transit, and what ran. The driver reports neither an address
 * nor a kernel, so what was not mapped, and what ran as far as is known, is all that can be reported.
 *
 * The death of a context shows some milliseconds after the access that caused it, and is noticed in the mover's next
 * pass. By then what was in transit has arrived, and often nothing is in transit any more. So the mover notes in each
 * pass what is in transit. The report covers what was seen within RECENT_NS before the last pass in which all was well,
 * because the mover may have been busy for longer than that since, pinning memory.
 */
#include "shim/accounting/ledger.h"
#include "shim/mover/mover.h"
#include "shim/process/process.h"
#include "shim/submit/arguments.h"

#include <stdio.h>

/* The most blocks that are reported, and how far back the report goes (ns). */
#define BLOCKS_MOST 8
#define RECENT_NS   1000000000

/* ---- what is in transit ---- */

/* Returns the block's entry for the pass at `now`; if there is none, reuses that of the block seen longest ago. */
static struct travel *fault_report_travel(struct travels *travels, uint32_t block_unit, uint64_t now)
{
	unsigned found = travels->latest;

	if (travels->at[found].block_unit != block_unit || !travels->at[found].seen) {
		found = 0;
		for (unsigned i = 0; i < TRAVELS; i++) {
			if (travels->at[i].seen && travels->at[i].block_unit == block_unit) {
				found = i;
				break;
			}
			if (travels->at[i].seen < travels->at[found].seen)
				found = i;
		}
	}
	struct travel *one = &travels->at[found];
	travels->latest = found;
	if (one->seen != now || one->block_unit != block_unit)
		*one = (struct travel){.block_unit = block_unit, .seen = now};
	return one;
}

static void note_queue(struct travels *travels, const struct queue *queue, bool in, uint64_t now)
{
	for (unsigned i = 0; i < queue->n; i++) {
		const struct move *move = &queue->at[(queue->head + i) % MOVES];
		const struct migration *migration = &move->migration;

		if (move->is_back)
			continue;
		struct travel *one = fault_report_travel(travels, migration->block_unit, now);
		*(in ? &one->in : &one->out) += (uint64_t)migration->units * HEAP_UNIT;
	}
}

/* Only the latest deferred maps are noted, because this runs in every pass. */
#define DEFERRED_MAPS_NOTED 16

static void note_all(struct engine *engine)
{
	uint64_t now = clock_now();

	note_queue(&engine->travels, &engine->moves.out, false, now);
	note_queue(&engine->travels, &engine->moves.in, true, now);
	for (unsigned i = engine->deferred.n; i && i + DEFERRED_MAPS_NOTED > engine->deferred.n; i--) {
		const struct migration *migration = &engine->deferred.at[i - 1].migration;

		fault_report_travel(&engine->travels, migration->block_unit, now)->resting +=
		    (uint64_t)migration->units * HEAP_UNIT;
	}
}

void fault_report_note(struct engine *engine)
{
	/* From the first sign of a death on, the notes are kept as they are. */
	if (engine->exact || engine->health.doubts)
		return;
	engine->travels.well = clock_now();
	if (migrate_any(engine))
		note_all(engine);
}

/* ---- the report ---- */

/* The most kernels that are reported, in all and of one stream. */
#define KERNELS_MOST   32
#define KERNELS_STREAM 12

/*
 * Kernels in flight, each once: first those whose launch has not returned, then the others in the order of submission.
 */
struct kernels {
	struct completion_what what[KERNELS_MOST];
	unsigned n, n_more;
	unsigned char of_row[COMPLETION_STREAMS]; /* how many kernels of the stream are in `what` */
};

static bool has_kernel(const struct kernels *kernels, const struct completion_what *what)
{
	for (unsigned i = 0; i < kernels->n; i++)
		if (kernels->what[i].function == what->function && kernels->what[i].id == what->id)
			return true;
	return false;
}

/* The kernel may run already, although its launch has not returned. */
static void add_inside(void *argument, const struct completion_what *what)
{
	struct kernels *kernels = argument;

	if (!has_kernel(kernels, what) && kernels->n < KERNELS_MOST)
		kernels->what[kernels->n++] = *what;
}

static void add_kernel(void *argument, unsigned row, const struct completion_what *what)
{
	struct kernels *kernels = argument;

	if (has_kernel(kernels, what))
		return;
	if (kernels->n == KERNELS_MOST || kernels->of_row[row] == KERNELS_STREAM) {
		kernels->n_more++;
		return;
	}
	kernels->of_row[row]++;
	kernels->what[kernels->n++] = *what;
}

static void tell_of_kernels(void)
{
	struct kernels kernels = {0};
	char text[900], name[KERNEL_PARAMS_NAME];
	size_t at = 0;

	/* In this order, so that a submission that gets its number in between is not missed. */
	submission_each_inside(add_inside, &kernels);
	completion_each_in_flight(add_kernel, &kernels);
	for (unsigned i = 0; i < kernels.n; i++) {
		const struct completion_what *what = &kernels.what[i];
		bool known = kernel_params_name(what->function, name);

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at ? ", " : "",
				       known ? name : real_name((int)what->id));
		if (at + KERNEL_PARAMS_NAME + 2 < sizeof(text) && i + 1 < kernels.n)
			continue;
		log_line("  in flight, as far as is known: %s", text);
		at = 0;
	}
	if (kernels.n_more)
		log_line("  and %u later submissions", kernels.n_more);
	if (!kernels.n)
		log_line("  in flight: nothing that was seen to be submitted");
}

/* The ledger's ids start here; they also count pinned and managed memory. */
#define FIRST_ID ((uint64_t)1 << 40)

/* Describes the block: what the program requested, its ordinal among all requests, and the rule that decided. */
static void name_block(const struct engine *engine, uint32_t block_unit, char *text, size_t room)
{
	CUdeviceptr address = arena_address(engine->arena, block_unit);
	uint32_t word = arena_look(engine->arena, address);
	const struct policy *policy = process_policy();
	struct ledger_row row;
	char bytes[32];

	if (word & ARENA_SLAB) {
		snprintf(text, room, "small allocations at 0x%llx", address);
		return;
	}
	uint32_t first;

	/* A part of an allocation that is backed on use. */
	if (arena_is_on_use(engine->arena, address, &first))
		address = arena_address(engine->arena, first);
	if (!ledger_get(LEDGER_HEAP, address, &row)) {
		snprintf(text, room, "an allocation at 0x%llx, freed since", address);
		return;
	}
	int rule = policy ? row.rule : -1;
	snprintf(text, room, "allocation %llu, %s at 0x%llx%s%s", (unsigned long long)(row.id - FIRST_ID + 1),
		 log_bytes(bytes, sizeof(bytes), row.bytes), address, rule >= 0 ? ", rule " : "",
		 rule >= 0 ? policy_rule_name(policy, rule) : "");
}

static int fault_report_later(const void *a, const void *b)
{
	const struct travel *one = a, *other = b;

	return (one->seen < other->seen) - (one->seen > other->seen);
}

/* Logs the blocks in transit since `since`, the latest first. */
static void tell_of_blocks(struct engine *engine, uint64_t since)
{
	struct travel *all = engine->travels.at;
	unsigned n = 0;

	qsort(all, TRAVELS, sizeof(*all), fault_report_later);
	for (; n < TRAVELS && all[n].seen > since; n++) {
		char who[200], out[32], in[32], resting[32];

		if (n >= BLOCKS_MOST)
			continue;
		name_block(engine, all[n].block_unit, who, sizeof(who));
		log_line("  in transit: %s (%s to the host, %s to the device, %s just gone to the host)", who,
			 log_bytes(out, sizeof(out), all[n].out), log_bytes(in, sizeof(in), all[n].in),
			 log_bytes(resting, sizeof(resting), all[n].resting));
	}
	if (n > BLOCKS_MOST)
		log_line("  and %u%s further blocks shortly before", n - BLOCKS_MOST, n == TRAVELS ? " or more" : "");
}

void fault_report_tell(struct engine *engine)
{
	uint64_t well = engine->travels.well ? engine->travels.well : clock_now();
	uint64_t since = well > RECENT_NS ? well - RECENT_NS : 1;
	bool any = migrate_any(engine);

	for (unsigned i = 0; i < TRAVELS; i++)
		any |= engine->travels.at[i].seen > since;
	if (!any)
		return;
	if (migrate_any(engine))
		note_all(engine);
	log_line("FAST MODE STOPPED THE JOB: the GPU accessed memory that was on its way and that no submission had "
		 "named, unless the program is at fault itself");
	tell_of_kernels();
	tell_of_blocks(engine, since);
	log_line("  ways out: spill.mode: exact, which never stops a job; or a rule for such memory with movable: no, "
		 "or with use: driver");
}
