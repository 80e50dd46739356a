// SPDX-License-Identifier: Apache-2.0
/*
 * A traced program (tracer.c), and its file as the reader sees it: what the program did is in it, all of it and nothing
 * else; and whatever befalls the program or the file, neither is harmed by the other.
 */
#include "policy/policy.h"
#include "test/preload/trace_help.h"
#include "test/unit/seed.h"

#include <dirent.h>
#include <sys/stat.h>

/* Twice what fits, as in scene.h, but with the summary. policy: more settings of it. */
static void run_with(const char *policy, const char *what, const char *argument, const char *more)
{
	char set[200];

	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=16MiB,host.budget=96MiB,report.summary=full%s", run_mode(),
		 policy);
	RUN_HERE(SET(trace_setting, set, "SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", more), TRACER,
		 what, argument);
}

static void run_tracer(const char *what, const char *argument, const char *more)
{
	run_with("", what, argument, more);
}

static size_t n_files(char *ret_other)
{
	DIR *dir = opendir(trace_folder);
	size_t n = 0;

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		n += entry->d_name[0] != '.';
		if (ret_other && entry->d_name[0] != '.' && strcmp(entry->d_name, "t"))
			snprintf(ret_other, 320, "%s/%s", trace_folder, entry->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

EACH_TEST(NULL, trace_teardown)

static void read_it(const char *file)
{
	trace_free(&trace);
	if (trace_read_file(file, &trace))
		fail_msg("%s %s\n%s", file, trace.problem, ran.err);
	if (trace.damaged)
		fail_msg("%s: %s\n%s", file, trace.problem, ran.err);
}

static size_t count(uint32_t kind)
{
	size_t n = 0;

	for (size_t i = 0; i < trace.n_rows; i++)
		n += trace.rows[i].event.kind == kind;
	return n;
}

static void check_blocks(bool freed)
{
	size_t i = 0;

	for (const char *line = ran.out; (line = strstr(line, "block ")); line += 6, i++) {
		unsigned long long address;
		unsigned long bytes;

		assert_int_equal(sscanf(line, "block %llx %lu", &address, &bytes), 2);
		assert_true(i < trace.n_blocks);
		assert_true(trace.blocks[i].address == address && trace.blocks[i].bytes == bytes);
		assert_int_equal(trace.blocks[i].freed != UINT64_MAX, freed);
		assert_true(trace.blocks[i].site &&
			    strstr(trace_text(&trace, TRACE_SITES, trace.blocks[i].site), "tracer+"));
	}
	assert_int_equal(i, trace.n_blocks);
	assert_int_equal(count(TRACE_ask), i);
}

static void check_moves(void)
{
	uint64_t in = 0, out = 0, pieces = 0, stayed = 0;

	for (size_t i = 0; i < trace.n_blocks; i++) {
		in += trace.blocks[i].bytes_in;
		out += trace.blocks[i].bytes_out;
	}
	for (size_t i = 0; i < trace.n_rows; i++)
		stayed += trace.rows[i].event.kind == TRACE_moved && trace.rows[i].event.moved.stayed;
	assert_int_equal(count(TRACE_move), count(TRACE_moved));
	pieces = count(TRACE_moved) - stayed;
	const char *line = strstr(ran.err, "host, in ");
	assert_int_equal(pieces, line ? strtoul(line + 9, NULL, 10) : 0);
	assert_int_equal(pieces != 0, run_moves());
	/* Blocks are 5 MiB and lie in 6 MiB of pieces. */
	assert_true(in % (1 << 20) == 0 && (in != 0) == run_moves() && (out != 0) == run_moves());
}

TEST(what_the_program_did_is_in_its_trace)
{
	char value[64];
	struct stat status;

	run_tracer("rounds", "200", NULL);
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	check_blocks(true);
	check_moves();
	assert_int_equal(count(TRACE_submit), trace_told(ran.out, "submits "));
	for (size_t i = 0; i < trace.n_blocks; i++)
		assert_int_equal(trace.blocks[i].submits, 201);
	assert_true(trace.ended && !trace.cut && !trace.n_lost);
	assert_string_equal(trace_text(&trace, TRACE_FUNCTIONS, trace.rows[trace.n_rows / 2].event.submit.function),
			    trace.rows[trace.n_rows / 2].event.kind == TRACE_submit ? "scene_touch" : "?");
	assert_string_equal(trace_value(&trace, "mode", value, sizeof(value)), run_mode());
	assert_true(count(TRACE_bytes) > 0);
	assert_true(!run_moves() || count(TRACE_wait) > 0);
	assert_true(strcmp(run_mode(), "exact") || count(TRACE_gap) > 0);
	assert_int_equal(stat(trace_path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
}

/* However short it is. */
TEST(a_short_run_has_its_figures)
{
	run_tracer("late", "1", NULL);
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	assert_true(trace.ended);
	assert_true(count(TRACE_bytes) > 0);
}

TEST(suspending_is_in_it)
{
	const uint64_t want[] = {1, 0};
	size_t n = 0, out = 0;

	if (!run_moves())
		skip();
	run_tracer("suspended", "50", NULL);
	assert_int_equal(ran.status, 0);
	assert_int_equal(trace_told(ran.out, "suspended "), 0);
	read_it(trace_path);
	for (size_t i = 0; i < trace.n_rows; i++) {
		const struct trace_event *event = &trace.rows[i].event;

		if (event->kind == TRACE_state)
			assert_true(n < 2 && event->state.suspended == want[n++]);
		out += event->kind == TRACE_move && event->move.why == TRACE_WHY_SUSPEND && event->move.to_host;
	}
	assert_int_equal(n, 2);
	assert_true(out > 0);
	check_blocks(true);
	check_moves();
}

TEST(a_process_that_is_killed_leaves_what_it_did)
{
	run_tracer("killed", "50", NULL);
	assert_int_equal(ran.status, 128 + 9);
	read_it(trace_path);
	check_blocks(false);
	assert_int_equal(count(TRACE_submit), trace_told(ran.out, "submits "));
	assert_false(trace.ended);
}

TEST(a_process_may_be_killed_at_any_moment)
{
	struct seed seed = seed_start(__func__);

	for (unsigned i = 0; i < 12; i++) {
		char us[16];

		snprintf(us, sizeof(us), "%u", (unsigned)seed_size(&seed, 400000));
		run_tracer("killed_sometime", us, NULL);
		assert_int_equal(ran.status, 128 + 9);
		/* Perhaps it had no file yet, or no head in it. */
		if (!access(trace_path, F_OK) && trace_read_file(trace_path, &trace) == 0)
			assert_false(trace.damaged || trace.ended);
		trace_teardown(NULL);
	}
}

static void check_parents_trace(const char *what)
{
	run_tracer(what, "50", NULL);
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	check_blocks(true);
	assert_int_equal(count(TRACE_submit), trace_told(ran.out, "submits "));
	assert_int_equal(count(TRACE_end), 1);
	assert_int_equal(n_files(NULL), 1);
}

TEST(a_child_of_fork_leaves_its_parents_trace_alone)
{
	check_parents_trace("forked");
}

TEST(a_child_of_clone_leaves_it_alone_too)
{
	check_parents_trace("cloned");
}

TEST(processes_with_one_name_write_a_file_each)
{
	char other[320] = "";

	run_tracer("children", "5", NULL);
	assert_int_equal(ran.status, 0);
	assert_int_equal(n_files(other), 2);
	for (unsigned i = 0; i < 2; i++) {
		read_it(i ? other : trace_path);
		assert_int_equal(trace.n_blocks, 6);
		assert_int_equal(count(TRACE_submit), 36);
		assert_true(trace.ended);
	}
	assert_true(strstr(ran.err, "spillway: the trace goes to ") != NULL);
}

TEST(a_full_disk_ends_the_trace_and_not_the_program)
{
	if (run_moves())
		skip();
	run_tracer("may_write", "4000", NULL);
	if (ran.status)
		fail_msg("status %d\n%s", ran.status, ran.err);
	assert_int_equal(run_lines_with(ran.err, "the trace ends here, the program goes on"), 1);
	assert_true(strstr(ran.err, "File too large") != NULL);
	read_it(trace_path);
	assert_false(trace.ended);
}

TEST(a_file_that_cannot_be_made_is_said_once)
{
	run_tracer("rounds", "5", "SPILLWAY_TRACE=/nowhere/at/all");
	assert_int_equal(ran.status, 0);
	assert_int_equal(run_lines_with(ran.err, "the trace ends here, the program goes on"), 1);
	assert_int_equal(n_files(NULL), 0);
}

TEST(threads_are_all_there)
{
	uint32_t most = 0;

	run_tracer("threads", "2", NULL);
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	assert_int_equal(trace.n_blocks, trace_told(ran.out, "threads "));
	assert_int_equal(count(TRACE_submit) + trace.n_lost, trace_told(ran.out, "submits "));
	for (size_t i = 0; i < trace.n_rows; i++)
		if (trace.rows[i].event.thread > most)
			most = trace.rows[i].event.thread;
	assert_true(most >= trace_told(ran.out, "threads "));
	assert_true(strstr(trace_text(&trace, TRACE_THREADS, 1), "tracer ") != NULL);
}

TEST(what_is_freed_and_what_is_not)
{
	run_tracer("frees", "5", "SIM_FAIL=cuMemFree_v2:1:999");
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	assert_int_equal(trace.n_blocks, 2);
	assert_int_equal(count(TRACE_freed), 1);
	assert_int_equal(count(TRACE_ask), 2);
	assert_true(trace.blocks[0].freed == UINT64_MAX); /* the driver refused */
	assert_true(trace.blocks[1].freed >= trace.blocks[1].made && trace.blocks[1].freed < UINT64_MAX);
	assert_int_equal(trace_told(strstr(ran.err, "allocations, "), "allocations, "), 1);
}

/* Attempts before, results after, for the program's own managed memory as for all. */
TEST(managed_memory_that_is_refused_is_told)
{
	const uint32_t order[] = {TRACE_ask, TRACE_refused, TRACE_ask, TRACE_made};
	unsigned n = 0;

	run_tracer("refused", "3", "SIM_FAIL=cuMemAllocManaged:1:2");
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	for (size_t i = 0; i < trace.n_rows; i++) {
		const struct trace_event *event = &trace.rows[i].event;

		if (event->kind != TRACE_ask && event->kind != TRACE_refused && event->kind != TRACE_made)
			continue;
		assert_true(n < 4 && event->kind == order[n++]);
		if (event->kind == TRACE_refused)
			assert_true(event->refused.bytes == 3 << 20 && event->refused.api == POLICY_API_MANAGED &&
				    event->refused.result == 2 /* out of memory */ && event->refused.site);
	}
	assert_int_equal(n, 4);
}

TEST(where_nothing_happens_there_is_no_file)
{
	run_tracer("asks", "2", NULL);
	assert_int_equal(ran.status, 0);
	assert_int_equal(n_files(NULL), 0);
}

/* What is not known of a device is no number of the trace; all together are what the process has had. */
TEST(page_faults_of_several_devices_add_up)
{
	uint64_t gpu[2] = {0}, cpu[2] = {0};

	run_tracer("faults", "4", "SIM_DEVICES=2");
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	assert_true(count(TRACE_faults) > 0);
	for (size_t i = 0; i < trace.n_rows; i++) {
		const struct trace_event *event = &trace.rows[i].event;

		if (event->kind != TRACE_faults)
			continue;
		assert_true(event->faults.device < 2);
		gpu[event->faults.device] = event->faults.gpu;
		cpu[event->faults.device] = event->faults.cpu;
	}
	assert_true(trace_told(ran.out, "gpu ") > 0 && trace_told(ran.out, "cpu ") > 0);
	assert_int_equal(gpu[0] + gpu[1], trace_told(ran.out, "gpu "));
	assert_int_equal(cpu[0] + cpu[1], trace_told(ran.out, "cpu "));
}

/* ---- memory of other devices ---- */

static struct {
	uint64_t out, in;     /* bytes that arrived there, and from there */
	uint64_t home, given; /* bytes: to the host from the device, and from there */
} peer;

/* All that has arrived. Device 0 moves, device 1 lends. */
static void add_up_moves(void)
{
	memset(&peer, 0, sizeof(peer));
	for (size_t i = 0; i < trace.n_rows; i++) {
		const struct trace_event *move = &trace.rows[i].event, *moved = NULL;

		for (size_t k = i; move->kind == TRACE_move && !moved && k < trace.n_rows; k++)
			if (trace.rows[k].event.kind == TRACE_moved &&
			    trace.rows[k].event.moved.number == move->move.number)
				moved = &trace.rows[k].event;
		if (!moved || moved->moved.stayed)
			continue;
		assert_true(move->move.device == 0 && (move->move.lender == 0 || move->move.lender == 2));
		assert_true(move->move.left == 0 || (move->move.left == 2 && move->move.to_host));
		if (move->move.lender)
			*(move->move.to_host ? &peer.out : &peer.in) += move->move.bytes;
		else if (move->move.to_host)
			*(move->move.left ? &peer.given : &peer.home) += move->move.bytes;
	}
}

static const struct trace_event *last_sample(uint64_t device)
{
	const struct trace_event *last = NULL;

	for (size_t i = 0; i < trace.n_rows; i++)
		if (trace.rows[i].event.kind == TRACE_bytes && trace.rows[i].event.bytes.device == device)
			last = &trace.rows[i].event;
	return last;
}

#define LENDING ",spill.peers=1,spill.peer_budget=64MiB"

/* There is room for everything on the other device: nothing of it is ever on the host. */
TEST(what_other_devices_lend_is_told_apart_from_the_host)
{
	uint64_t spilled = 0;

	run_with(LENDING, "kept", "200", "SIM_DEVICES=2");
	assert_int_equal(ran.status, 0);
	read_it(trace_path);
	check_blocks(false);
	assert_true(trace.tells_peers);
	for (size_t i = 0; i < trace.n_rows; i++) {
		const struct trace_event *event = &trace.rows[i].event;

		if (event->kind == TRACE_lent)
			assert_int_equal(event->lent.device, 1);
		if (event->kind != TRACE_bytes)
			continue;
		assert_int_equal(event->bytes.on_host, event->bytes.on_peers);
		assert_true(event->bytes.device == 1 || !event->bytes.lent);
	}
	for (size_t i = 0; i < trace.n_blocks; i++) {
		spilled += trace.blocks[i].on_host;
		assert_int_equal(trace.blocks[i].on_peers, trace.blocks[i].on_host);
	}
	add_up_moves();
	assert_true(spilled > 0 && !peer.home && !peer.given);
	assert_true((peer.out > 0) == run_moves() && (peer.in > 0) == run_moves());
	/* Of 30 MiB 16 fit. */
	const struct trace_event *own = last_sample(0), *other = last_sample(1);
	assert_true(own && own->bytes.budget == 16 << 20 && own->bytes.on_peers >= 14 << 20);
	assert_true(other && !other->bytes.on_device && !other->bytes.budget);
	assert_true(other->bytes.lent >= own->bytes.on_peers);
}

TEST(what_is_lent_no_more_is_told_to_leave_for_the_host)
{
	if (!run_moves())
		skip();
	run_with(LENDING, "suspended", "50", "SIM_DEVICES=2");
	assert_int_equal(ran.status, 0);
	assert_int_equal(trace_told(ran.out, "suspended "), 0);
	read_it(trace_path);
	add_up_moves();
	assert_true(peer.out > 0 && peer.given > 0);
}

TEST(what_finds_no_room_is_counted_and_said)
{
	/* Four words each: more than a ring has. */
	run_tracer("too_many_names", "140000", NULL);
	if (ran.status)
		fail_msg("status %d\n%s\n%s", ran.status, ran.out, ran.err);
	read_it(trace_path);
	assert_int_equal(trace.n_lost, 1);
	assert_int_equal(count(TRACE_submit), trace_told(ran.out, "submits "));
	assert_int_equal(run_lines_with(ran.err, "1 events of the trace had no room"), 1);
}

TEST(names_are_made_of_their_pattern)
{
	char pattern[96], expected[128], other[320] = "";

	snprintf(pattern, sizeof(pattern), "SPILLWAY_TRACE=%s/%%e-%%r%%%%", trace_folder);
	run_tracer("rounds", "1", pattern);
	assert_int_equal(n_files(other), 1);
	snprintf(expected, sizeof(expected), "%s/tracer-0%%", trace_folder);
	assert_string_equal(other, expected);
	read_it(other);
	assert_true(trace.ended);
}

TEST(without_cuda_there_is_no_file_and_no_thread)
{
	RUN_HERE(SET(trace_setting), "/bin/ls", "/proc/self/task");
	assert_int_equal(ran.status, 0);
	assert_int_equal(run_lines(ran.out), 1);
	assert_int_equal(n_files(NULL), 0);
	assert_string_equal(ran.err, "");
}

int main(void)
{
	return trace_main();
}
