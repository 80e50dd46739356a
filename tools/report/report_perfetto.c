// SPDX-License-Identifier: Apache-2.0
/*
 * Writes a trace for Perfetto's UI, in Chrome's JSON format and not in Perfetto's protobuf format: PyTorch's profiler
 * writes JSON, so that both can be merged into one file, and existing tools read it.
 *
 * Times are on the wall clock. As in PyTorch's profiles, they are microseconds with three decimals since a time that
 * the file names (baseTimeNanoseconds), which is a multiple of 7889238 s (a quarter of a year) since 1970. So the
 * numbers stay exact to the ns in a reader that stores doubles, and equal numbers in a profile of the same days mean
 * the same time.
 *
 * Each device is shown as a process, with counters and with tracks of slices: gaps, steps, fetches and evictions.
 * Moves may overlap, but slices of one track must not: each move goes to the first free lane. The threads, with their
 * waits and NVTX ranges, are shown as one more process.
 */
#include "policy/policy.h"
#include "tools/common/json.h"
#include "tools/report/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BASE_NS UINT64_C(7889238000000000)
/* Process ids that no process can have: Linux ends at 4194304. */
#define VIEW_PID    900000000u
#define THREADS_PID (VIEW_PID + DIGEST_DEVICES)
#define BLOCK_LEAST (UINT64_C(1) << 20) /* smaller allocations appear only in the counters */

/* Moves have separate lanes by direction: to the device, to the host, from other devices and to other devices. */
enum { WAY_IN, WAY_OUT, WAY_FROM_PEER, WAY_TO_PEER, WAYS };
enum { LANES = 16, LANE_GAPS = 1, LANE_STEPS, LANE_MOVES = 10 };

static uint64_t base;
static bool first;

static void perfetto_begin(const char *phase, uint32_t pid, uint64_t tid, const char *name)
{
	printf("%s{\"ph\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu64 ",\"name\":", first ? "" : ",\n", phase, pid,
	       tid);
	first = false;
	json_quoted(name, true);
}

/* The same of an event at a time of the trace's clock. */
static void perfetto_put(const struct trace *trace, uint64_t time, const char *phase, uint32_t pid, uint64_t tid,
			 const char *name)
{
	uint64_t wall = report_wall(trace, time);
	uint64_t ns = wall > base ? wall - base : 0;

	perfetto_begin(phase, pid, tid, name);
	printf(",\"ts\":%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static void perfetto_lasts(uint64_t ns)
{
	printf(",\"dur\":%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static void name_it(const char *what, uint32_t pid, uint64_t tid, const char *name)
{
	perfetto_begin("M", pid, tid, what);
	printf(",\"args\":{\"name\":");
	json_quoted(name, true);
	printf("}}");
}

/* ---- devices ---- */

static void put_names(const struct digest *digest)
{
	char name[128], pid[24];

	trace_value(digest->trace, "pid", pid, sizeof(pid));
	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		if (!digest->devices[i].seen)
			continue;
		snprintf(name, sizeof(name), "Spillway: device %u of process %s", i, pid);
		name_it("process_name", VIEW_PID + i, 0, name);
		name_it("thread_name", VIEW_PID + i, LANE_GAPS, "gaps (the GPU is stopped)");
		name_it("thread_name", VIEW_PID + i, LANE_STEPS, "steps");
	}
	snprintf(name, sizeof(name), "Spillway: threads of process %s", pid);
	name_it("process_name", THREADS_PID, 0, name);
	for (size_t i = 0; i < digest->trace->n_names[TRACE_THREADS]; i++)
		if (digest->trace->names[TRACE_THREADS][i])
			name_it("thread_name", THREADS_PID, i + 1, digest->trace->names[TRACE_THREADS][i]);
}

static void put_counter(const struct trace *trace, const struct trace_event *event, const char *name, uint64_t bytes)
{
	perfetto_put(trace, event->time, "C", VIEW_PID + (uint32_t)event->bytes.device, 0, name);
	printf(",\"args\":{\"bytes\":%" PRIu64 "}}", bytes);
}

/* A counter keeps its value until the next event, so a counter that was ever above 0 is written each time. */
static void put_bytes(const struct digest *digest, const struct trace_event *event)
{
	const struct digest_device *device = &digest->devices[event->bytes.device];
	const struct trace *trace = digest->trace;
	uint64_t on_host = event->bytes.on_host, on_peers = event->bytes.on_peers;

	on_peers = on_peers < on_host ? on_peers : on_host;
	perfetto_put(trace, event->time, "C", VIEW_PID + (uint32_t)event->bytes.device, 0, "bytes");
	printf(",\"args\":{\"device\":%" PRIu64 ",\"host\":%" PRIu64 ",\"managed\":%" PRIu64 ",\"system\":%" PRIu64
	       ",\"driver\":%" PRIu64,
	       event->bytes.on_device, on_host - on_peers, event->bytes.managed, event->bytes.system,
	       event->bytes.driver);
	if (device->peers)
		printf(",\"other GPUs\":%" PRIu64, on_peers);
	printf("}}");
	if (device->lent)
		put_counter(trace, event, "lent to other GPUs", event->bytes.lent);
	if (event->bytes.budget)
		put_counter(trace, event, "device budget", event->bytes.budget);
}

/* For a device without samples, and for figures of which only sums exist: writes the bins in which a value changed. */
static void put_bins(const struct digest *digest, unsigned number)
{
	const struct digest_device *device = &digest->devices[number];
	double second = 1e9 / (double)digest->bin_ns;

	for (size_t i = 0; i < digest->n_bins; i++) {
		const struct digest_bin *bin = &device->bins[i];
		uint64_t time = digest->trace->first + i * digest->bin_ns;
		const struct digest_bin *before = i ? bin - 1 : NULL;

		if (!device->sampled && (!before || memcmp(bin, before, offsetof(struct digest_bin, budget)) != 0)) {
			const struct trace_event event = {.time = time,
							  .bytes = {.device = number,
								    .on_device = bin->device,
								    .on_host = bin->host,
								    .managed = bin->managed,
								    .system = bin->system,
								    .driver = bin->driver,
								    .on_peers = bin->peers}};

			put_bytes(digest, &event);
		}
		if ((device->moves_in || device->moves_out) &&
		    (!before || bin->bytes_in != before->bytes_in || bin->bytes_out != before->bytes_out)) {
			perfetto_put(digest->trace, time, "C", VIEW_PID + number, 0, "moved, bytes a second");
			printf(",\"args\":{\"in\":%.0f,\"out\":%.0f", (double)bin->bytes_in * second,
			       (double)bin->bytes_out * second);
			if (device->peer_in || device->peer_out)
				printf(",\"in from other GPUs\":%.0f,\"out to other GPUs\":%.0f",
				       (double)bin->peer_in * second, (double)bin->peer_out * second);
			printf("}}");
		}
	}
}

static void put_faults(const struct trace *trace, const struct trace_event *event)
{
	perfetto_put(trace, event->time, "C", VIEW_PID + (uint32_t)event->faults.device, 0, "page faults");
	printf(",\"args\":{\"GPU\":%" PRIu64 ",\"CPU\":%" PRIu64 "}}", event->faults.gpu, event->faults.cpu);
}

static void put_gap(const struct digest *digest, const struct trace_event *event)
{
	perfetto_put(digest->trace, event->time, "X", VIEW_PID + (uint32_t)event->gap.device, LANE_GAPS,
		     event->gap.given_up ? "gap, given up" : "gap");
	perfetto_lasts(event->gap.ns < digest->run_ns ? event->gap.ns : digest->run_ns);
	printf(",\"args\":{\"bytes in\":%" PRIu64 ",\"bytes out\":%" PRIu64 "}}", event->gap.bytes_in,
	       event->gap.bytes_out);
}

/* Lanes of one device, by direction: the time until which each lane is occupied, and whether it was named. */
struct lanes {
	uint64_t busy[WAYS][LANES + 1];
	bool named[WAYS][LANES + 1];
};

static unsigned way_of(const struct digest_move *move)
{
	if (move->lender == DIGEST_HOST)
		return move->to_host ? WAY_OUT : WAY_IN;
	return move->to_host ? WAY_TO_PEER : WAY_FROM_PEER;
}

static uint64_t track_of(unsigned way, unsigned lane)
{
	return LANE_MOVES + way * (LANES + 1) + lane;
}

static void name_lane(struct lanes *lanes, const struct digest_move *move, unsigned way, unsigned lane)
{
	static const char *const names[WAYS] = {"to the device", "to the host", "from other GPUs", "to other GPUs"};
	char name[32];

	if (lanes->named[way][lane])
		return;
	lanes->named[way][lane] = true;
	snprintf(name, sizeof(name), "%s %u", names[way], lane + 1);
	name_it("thread_name", VIEW_PID + move->device, track_of(way, lane), name);
}

static void put_other(const char *name, uint32_t device)
{
	if (device < DIGEST_DEVICES)
		printf(",\"%s\":%" PRIu32, name, device);
}

static void put_move(const struct digest *digest, const struct digest_move *move, struct lanes *lanes)
{
	unsigned way = way_of(move), lane = 0;
	uint64_t *busy = lanes->busy[way], end = move->end == UINT64_MAX ? digest->run_ns : move->end;
	char made[64];

	/* If all lanes are occupied, the last one is used. */
	while (lane < LANES && busy[lane] > move->begin)
		lane++;
	busy[lane] = end;
	name_lane(lanes, move, way, lane);
	perfetto_put(digest->trace, digest->trace->first + move->begin, "X", VIEW_PID + move->device,
		     track_of(way, lane), move->stayed ? "stayed" : digest_why_name(move->why));
	perfetto_lasts(end - move->begin);
	printf(",\"args\":{\"address\":\"0x%" PRIx64 "\",\"bytes\":%" PRIu64, move->address, move->bytes);
	put_other("lender", move->lender);
	put_other("left", move->left);
	if (move->uncopied)
		printf(",\"not copied\":%" PRIu64, move->uncopied);
	if (move->end == UINT64_MAX)
		printf(",\"end\":\"not in the trace\"");
	if (move->block != TRACE_NONE) {
		const struct trace_block *block = &digest->trace->blocks[move->block];
		const char *rule = digest_group_name(digest, DIGEST_BY_RULE,
						     digest_group_of(digest, DIGEST_BY_RULE, block->rule, block->site),
						     made, sizeof(made));

		printf(",\"allocation\":%" PRIu64 ",\"rule\":", block->id);
		json_quoted(rule, true);
	}
	printf("}}");
}

/* What is neither alive nor dead was never used. */
static void put_alive(const struct digest *digest, const struct digest_alive *alive)
{
	perfetto_put(digest->trace, digest->trace->first + alive->time, "C", VIEW_PID + alive->device, 0,
		     "kept by the program's allocator, bytes");
	printf(",\"args\":{\"alive\":%" PRIu64 ",\"dead\":%" PRIu64 ",\"never used\":%" PRIu64 "}}", alive->alive,
	       alive->dead, alive->kept - alive->alive - alive->dead);
}

static void put_devices(const struct digest *digest)
{
	struct lanes lanes;

	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		if (!digest->devices[i].seen)
			continue;
		memset(&lanes, 0, sizeof(lanes));
		put_bins(digest, i);
		for (size_t k = 0; k < digest->n_moves; k++)
			if (digest->moves[k].device == i)
				put_move(digest, &digest->moves[k], &lanes);
	}
	for (size_t i = 0; i < digest->n_moments; i++)
		put_alive(digest, &digest->moments[i]);
	for (size_t i = 0; i < digest->n_steps; i++) {
		perfetto_put(digest->trace, digest->trace->first + digest->steps[i].time, "X",
			     VIEW_PID + digest->steps[i].device, LANE_STEPS, "step");
		perfetto_lasts(digest->steps[i].ns);
		printf(",\"args\":{\"submissions\":%" PRIu64 "}}", digest->steps[i].submissions);
	}
}

/* ---- threads ---- */

static void put_wait(const struct digest *digest, const struct trace_event *event)
{
	perfetto_put(digest->trace, event->time, "X", THREADS_PID, (uint64_t)event->thread + 1, "waits for memory");
	perfetto_lasts(event->wait.ns < digest->run_ns ? event->wait.ns : digest->run_ns);
	printf(",\"args\":{\"for\":");
	json_quoted(trace_text(digest->trace, TRACE_FUNCTIONS, event->wait.function), true);
	printf("}}");
}

static void put_moment(const struct trace *trace, const struct trace_event *event, const char *name, uint64_t bytes)
{
	perfetto_put(trace, event->time, "i", THREADS_PID, (uint64_t)event->thread + 1, name);
	printf(",\"s\":\"t\",\"args\":{\"bytes\":%" PRIu64 "}}", bytes);
}

static void put_range(const struct trace *trace, const struct trace_event *event)
{
	bool push = event->kind == TRACE_push;

	perfetto_put(trace, event->time, push ? "B" : "E", THREADS_PID, (uint64_t)event->thread + 1,
		     push ? trace_text(trace, TRACE_RANGES, event->push.range) : "");
	putchar('}');
}

static void put_event(const struct digest *digest, const struct trace_event *event)
{
	const struct trace *trace = digest->trace;

	uint32_t kind = event->kind;

	if (kind == TRACE_bytes && event->bytes.device < DIGEST_DEVICES)
		put_bytes(digest, event);
	else if (kind == TRACE_faults && event->faults.device < DIGEST_DEVICES)
		put_faults(trace, event);
	else if (kind == TRACE_gap && event->gap.device < DIGEST_DEVICES)
		put_gap(digest, event);
	else if (kind == TRACE_wait)
		put_wait(digest, event);
	else if (kind == TRACE_push || kind == TRACE_pop)
		put_range(trace, event);
	else if (kind == TRACE_made && event->made.bytes >= BLOCK_LEAST)
		put_moment(trace, event, "allocation", event->made.bytes);
	else if (kind == TRACE_refused)
		put_moment(trace, event, "REFUSED", event->refused.bytes);
	else if (kind == TRACE_mode)
		put_moment(trace, event, event->mode.mode == POLICY_SPILL_FAST ? "spill.mode fast" : "spill.mode exact",
			   0);
	else if (kind == TRACE_state)
		put_moment(trace, event, event->state.suspended ? "suspended" : "goes on", 0);
}

void report_perfetto(const struct digest *digest)
{
	const struct trace *trace = digest->trace;

	base = report_wall(trace, trace->first) / BASE_NS * BASE_NS;
	first = true;
	printf("{\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":%" PRIu64 ",\"traceEvents\":[\n", base);
	put_names(digest);
	put_devices(digest);
	for (size_t i = 0; i < trace->n_rows; i++)
		put_event(digest, &trace->rows[i].event);
	printf("\n]}\n");
}
