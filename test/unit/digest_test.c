// SPDX-License-Identifier: Apache-2.0
/*
 * What a digest says of traces that are made by hand, in memory that may run out; and what must move, compared with a
 * plainer way of finding it.
 */
#include "test/test.h"
#include "test/unit/seed.h"
#include "test/unit/trace_help.h"
#include "tools/digest/digest.h"

#include "test/unit/failing_alloc.h"

#define AT UINT64_C(0x7f0000000000)
#define T0 (1000 * MS)

static struct digest digest;

static int begin(void **state)
{
	setup(state);
	file_frame(&file, 0, T0);
	return 0;
}

static int end(void **state)
{
	digest_free(&digest);
	return teardown(state);
}

static void again(void)
{
	end(NULL);
	begin(NULL);
}

EACH_TEST(begin, end)

GROUP(temporary_make, temporary_remove)

static void read_back(void)
{
	assert_int_equal(save_and_read(), 0);
	assert_int_equal(digest_make(&trace, NULL, &digest), 0);
}

/* Of a trace that ends after so many ms. */
static void read_until(uint64_t ms)
{
	FILE_ADD(&file, end, T0 + ms * MS, 0);
	read_back();
}

TEST(time_of_waits_that_overlap_counts_once)
{
	uint64_t lost = 0;

	FILE_ADD(&file, wait, T0, 0, 10 * MS, 0);
	FILE_ADD(&file, wait, T0 + 5 * MS, 0, 10 * MS, 0);
	FILE_ADD(&file, gap, T0 + 14 * MS, 0, 6 * MS, 0, 0, 0);
	read_until(100);
	assert_int_equal(digest.wait_ns, 15 * MS);
	assert_int_equal(digest.devices[0].wait_ns, 20 * MS);
	assert_int_equal(digest.devices[0].waiting_ns, 15 * MS);
	assert_int_equal(digest.gap_ns, 6 * MS);
	assert_int_equal(digest.lost_ns, 20 * MS);
	assert_int_equal(digest.both_ns, 1 * MS);
	assert_int_equal(digest.devices[0].lost_ns, 20 * MS);
	for (size_t i = 0; i < digest.n_bins; i++) {
		const struct digest_bin *bin = &digest.devices[0].bins[i];

		assert_true(bin->lost_ns <= bin->waiting_ns + bin->gap_ns);
		assert_true(bin->lost_ns >= bin->waiting_ns && bin->lost_ns >= bin->gap_ns);
		lost += bin->lost_ns;
	}
	assert_int_equal(lost, 20 * MS);
}

TEST(the_share_of_waiting_is_never_more_than_all)
{
	uint64_t waited = 0, waiting = 0;

	for (unsigned i = 0; i < 3; i++)
		FILE_ADD(&file, wait, T0 + i * MS, 0, 90 * MS, 0);
	read_until(100);
	for (size_t i = 0; i < digest.n_bins; i++) {
		assert_true(digest.devices[0].bins[i].waiting_ns <= digest.bin_ns);
		waited += digest.devices[0].bins[i].wait_ns;
		waiting += digest.devices[0].bins[i].waiting_ns;
	}
	assert_int_equal(waited, 270 * MS);
	assert_int_equal(waiting, 92 * MS);
}

TEST(what_lasts_beyond_the_trace_ends_with_it)
{
	FILE_ADD(&file, gap, T0, 0, UINT64_MAX, 0, 0, 0);
	FILE_ADD(&file, state, T0 + 40 * MS, 1);
	read_until(100);
	assert_int_equal(digest.gap_ns, 100 * MS);
	assert_int_equal(digest.suspended_ns, 60 * MS);
}

TEST(a_wait_is_shared_out_by_bytes_to_what_arrived_for_it)
{
	for (uint64_t i = 1; i < 4; i++)
		trace_frame_add(
		    file.writer,
		    &(struct trace_event){
			.kind = TRACE_name, .time = T0, .field = {TRACE_RULES, i}, .text = "rule", .text_bytes = 4});
	for (uint64_t i = 0; i < 3; i++)
		FILE_ADD(&file, made, T0, i + 1, AT + i * 64 * MIB, 64 * MIB, 0, 0, 0, i + 1, 0, 64 * MIB);
	FILE_ADD(&file, move, T0, 1, 0, AT, 48 * MIB, 0, TRACE_WHY_WAITED);
	FILE_ADD(&file, move, T0, 2, 0, AT + 64 * MIB, 16 * MIB, 0, TRACE_WHY_WAITED);
	FILE_ADD(&file, move, T0, 3, 0, AT + 128 * MIB, 64 * MIB, 0, TRACE_WHY_AHEAD);
	FILE_ADD(&file, wait, T0, 0, 40 * MS, 0);
	for (uint64_t i = 1; i < 4; i++)
		FILE_ADD(&file, moved, T0 + i * 10 * MS, i, 0);
	read_until(100);
	assert_int_equal(digest.block_wait_ns[0], 30 * MS);
	assert_int_equal(digest.block_wait_ns[1], 10 * MS);
	assert_int_equal(digest.block_wait_ns[2], 0);
	assert_int_equal(digest.tables[DIGEST_BY_RULE].groups[0].number, 1);
	assert_int_equal(digest.tables[DIGEST_BY_RULE].groups[0].wait_ns, 30 * MS);
}

/*
 * A piece of 64 MiB holds an allocation of 24, and while it is on its way one submission waits; another waits for
 * nothing.
 */
TEST(what_no_allocation_has_is_the_rest)
{
	FILE_ADD(&file, made, T0, 1, AT, 24 * MIB, 0, 0, 0, 0, 0, 24 * MIB);
	FILE_ADD(&file, move, T0, 1, 0, AT, 64 * MIB, 0, TRACE_WHY_WAITED);
	FILE_ADD(&file, wait, T0, 0, 20 * MS, 0);
	FILE_ADD(&file, moved, T0 + 10 * MS, 1, 0);
	FILE_ADD(&file, wait, T0 + 50 * MS, 0, 5 * MS, 0);
	read_until(100);
	assert_int_equal(digest.devices[0].bytes_in, 64 * MIB);
	assert_int_equal(digest.total.bytes_in, 24 * MIB);
	assert_int_equal(digest.rest.bytes_in, 40 * MIB);
	assert_int_equal(digest.rest.bytes_out, 0);
	assert_int_equal(digest.total.wait_ns, 20 * MS);
	assert_int_equal(digest.rest.wait_ns, 5 * MS);
}

/*
 * Two numbers of one name, with other callers, are one site and two chains; a third site has no callers that are known.
 */
TEST(sites_of_one_name_are_one)
{
	static const struct {
		uint64_t list, number;
		const char *text;
	} names[] = {{TRACE_SITES, 1, "a.py:3 in f"},
		     {TRACE_SITES, 2, "b.so+0x1"},
		     {TRACE_SITES, 3, "a.py:3 in f"},
		     {TRACE_CALLERS, 1, "a.py:9 in g"},
		     {TRACE_CALLERS, 3, "a.py:8 in h"}};
	const struct digest_table *sites = &digest.tables[DIGEST_BY_SITE], *calls = &digest.tables[DIGEST_BY_CALLS];
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		file_name(&file, names[i].list, names[i].number, names[i].text, strlen(names[i].text));
	for (uint64_t i = 0; i < 4; i++)
		FILE_ADD(&file, made, T0, i + 1, AT + i * 64 * MIB, (i + 1) * MIB, 0, 0, 0, 0, i % 3 + 1, 0);
	FILE_ADD(&file, refused, T0, MIB, 0, 0, 0, 3, 2);
	read_until(100);
	/* Blocks 1 and 4 are of site 1, 2 of site 2, 3 of site 3. */
	assert_int_equal(sites->n, 2);
	assert_int_equal(sites->groups[0].number, 1);
	assert_int_equal(sites->groups[0].allocations, 3);
	assert_int_equal(sites->groups[0].bytes, 8 * MIB);
	assert_int_equal(sites->groups[0].refused, 1);
	assert_int_equal(sites->groups[1].number, 2);
	assert_int_equal(calls->n, 3);
	for (size_t i = 0; i < 3; i++) {
		const struct digest_group *group = &calls->groups[i];

		assert_int_equal(group->allocations, group->number == 1 ? 2 : 1);
		assert_int_equal(group->refused, group->number == 3);
	}
	assert_string_equal(digest_callers(&digest, 1), "a.py:9 in g");
	assert_string_equal(digest_callers(&digest, 3), "a.py:8 in h");
	assert_null(digest_callers(&digest, 2));
}

/* The sites of three allocations: one that the CPU left alone, one that it brought back, one that no GPU used. */
static void add_managed(uint64_t lost)
{
	for (uint64_t i = 1; i < 4; i++)
		FILE_ADD(&file, made, T0, i, AT + i * 64 * MIB, MIB, 0, 0, 1, 0, i, 0);
	FILE_ADD(&file, managed, T0 + MS, 1, 0, 0);
	FILE_ADD(&file, managed, T0 + MS, 2, 0, 0);
	FILE_ADD(&file, managed, T0 + 2 * MS, 2, 1, 0);
	FILE_ADD(&file, managed, T0 + 2 * MS, 2, 1, 65536);
	FILE_ADD(&file, faults, T0 + 3 * MS, 0, 40, 2, 65536, 4096, lost);
}

TEST(what_the_cpu_touched_of_managed_memory_is_summed_by_site)
{
	for (uint64_t i = 1; i < 4; i++)
		file_name(&file, TRACE_SITES, i, (const char *[]){"", "a.py:1", "a.py:2", "a.py:3"}[i], 6);
	add_managed(1);
	read_until(100);
	assert_true(digest.tells_untouched);
	assert_int_equal(digest.total.managed_used, 2);
	assert_int_equal(digest.total.managed_touches, 2);
	for (size_t i = 0; i < 3; i++) {
		const struct digest_group *group = &digest.tables[DIGEST_BY_SITE].groups[i];

		assert_int_equal(group->managed_used, group->number < 3);
		assert_int_equal(group->managed_touches, group->number == 2 ? 2 : 0);
		assert_int_equal(group->managed_back, group->number == 2 ? 65536 : 0);
	}
}

TEST(nothing_is_said_to_be_untouched_where_events_are_missing)
{
	/* Lost by the driver; not read, or of an older version; lost by the trace; of a process that was killed. */
	add_managed(2);
	read_until(100);
	assert_false(digest.tells_untouched);
	again();
	add_managed(0);
	read_until(100);
	assert_false(digest.tells_untouched);
	again();
	add_managed(1);
	FILE_ADD(&file, lost, T0 + 4 * MS, 1);
	read_until(100);
	assert_false(digest.tells_untouched);
	again();
	add_managed(1);
	read_back();
	assert_false(digest.tells_untouched);
}

/* Two devices have allocations and only one a sample, so places come from allocations and moves. */
TEST(without_samples_peers_come_from_allocations_and_moves)
{
	FILE_ADD(&file, bytes, T0, 1, 1, 1, 0, 0, 0, 1, 1, 1);
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 0, 0, 48 * MIB);
	FILE_ADD(&file, lent, T0, 1, 1, 32 * MIB);
	FILE_ADD(&file, made, T0, 2, AT + 64 * MIB, MIB, 0, 1, 0, 0, 0, 0);
	/* From the host in, from the device to device 1, and from there to the host. */
	FILE_ADD(&file, move, T0 + 10 * MS, 1, 0, AT, 16 * MIB, 0, 0, 0, 0);
	FILE_ADD(&file, moved, T0 + 20 * MS, 1, 0);
	FILE_ADD(&file, move, T0 + 30 * MS, 2, 0, AT, 8 * MIB, 1, 0, 2, 0);
	FILE_ADD(&file, moved, T0 + 40 * MS, 2, 0);
	FILE_ADD(&file, move, T0 + 50 * MS, 3, 0, AT, 24 * MIB, 1, 0, 0, 2);
	FILE_ADD(&file, moved, T0 + 60 * MS, 3, 0);
	read_until(100);
	const struct digest_device *device = &digest.devices[0];
	const struct digest_bin *last = &device->bins[digest.n_bins - 1];
	assert_false(device->sampled || digest.devices[1].sampled);
	assert_int_equal(device->host, 48 * MIB);
	assert_int_equal(device->peers, 40 * MIB);
	assert_int_equal(device->host_alone, 24 * MIB);
	assert_true(last->host == 40 * MIB && last->peers == 16 * MIB && last->device == 24 * MIB);
	assert_true(device->bytes_out == 32 * MIB && device->peer_out == 8 * MIB && !device->peer_in);
}

/* Several pieces are on their way at once, and both ways; what stayed or did not arrive is on no link. */
TEST(the_rate_of_a_link_is_of_the_time_in_which_it_was_busy)
{
	for (uint64_t i = 0; i < 4; i++) {
		FILE_ADD(&file, move, T0 + i * 10 * MS, 2 * i, 2, AT + i * MIB, MIB, 1, 0, 4, 0);
		FILE_ADD(&file, move, T0 + i * 10 * MS, 2 * i + 1, 2, AT + i * MIB, 2 * MIB, 0, 0, 0, 0);
		FILE_ADD(&file, moved, T0 + (i + 2) * 10 * MS, 2 * i, i == 3);
		if (i != 1)
			FILE_ADD(&file, moved, T0 + i * 10 * MS + 5 * MS, 2 * i + 1, 0);
	}
	/* To a device that is beyond what is looked at. */
	FILE_ADD(&file, move, T0 + 50 * MS, 99, 2, AT, MIB, 1, 0, 1 + DIGEST_DEVICES, 0);
	FILE_ADD(&file, moved, T0 + 60 * MS, 99, 0);
	read_until(100);
	assert_int_equal(digest.n_links, 2);
	const struct digest_link *host = &digest.links[0], *peer = &digest.links[1];
	assert_true(host->device == 2 && host->lender == DIGEST_HOST && peer->device == 2 && peer->lender == 3);
	assert_true(host->moves_in == 3 && host->bytes_in == 6 * MIB && host->in_ns == 15 * MS && !host->moves_out);
	assert_true(peer->moves_out == 3 && peer->bytes_out == 3 * MIB && peer->out_ns == 40 * MS && !peer->in_ns);
}

TEST(time_on_the_host_is_from_the_way_out_to_the_way_back)
{
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 0, 0, 0);
	FILE_ADD(&file, move, T0 + 100 * MS, 1, 0, AT, 64 * MIB, 1, 0);
	FILE_ADD(&file, moved, T0 + 100 * MS, 1, 0);
	FILE_ADD(&file, move, T0 + 200 * MS, 2, 0, AT, 64 * MIB, 0, 0);
	FILE_ADD(&file, moved, T0 + 200 * MS, 2, 0);
	FILE_ADD(&file, freed, T0 + 300 * MS, 1);
	read_until(400);
	assert_int_equal(digest.devices[0].over_ns, 100 * MS);
}

/* While a piece moves it is at both ends, and samples count it twice. */
TEST(what_is_on_its_way_is_needed_once)
{
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 0, 0, 0);
	FILE_ADD(&file, made, T0, 2, AT + 64 * MIB, 64 * MIB, 0, 0, 0, 0, 0, 64 * MIB);
	FILE_ADD(&file, bytes, T0 + 10 * MS, 0, 64 * MIB, 64 * MIB, 0, 0, 0, 64 * MIB);
	FILE_ADD(&file, bytes, T0 + 20 * MS, 0, 128 * MIB, 128 * MIB, 0, 0, 0, 64 * MIB);
	FILE_ADD(&file, freed, T0 + 30 * MS, 1);
	FILE_ADD(&file, made, T0 + 40 * MS, 3, AT, 16 * MIB, 0, 0, 0, 0, 0, 0);
	read_until(100);
	assert_true(digest.devices[0].sampled);
	assert_int_equal(digest.devices[0].need, 128 * MIB);
	assert_int_equal(digest.devices[0].host, 128 * MIB);
}

TEST(samples_of_one_of_several_devices_are_not_believed)
{
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 0, 0, 0);
	FILE_ADD(&file, made, T0, 2, AT + 1024 * MIB, 32 * MIB, 0, 1, 0, 0, 0, 0);
	FILE_ADD(&file, made, T0, 3, AT + 2048 * MIB, 32 * MIB, 0, 64, 0, 0, 0, 0);
	FILE_ADD(&file, bytes, T0, 1, 96 * MIB, 0, 0, 0, 0, 128 * MIB);
	read_until(100);
	assert_false(digest.devices[1].sampled);
	assert_int_equal(digest.devices[0].device, 64 * MIB);
	assert_int_equal(digest.devices[1].device, 32 * MIB);
	assert_int_equal(digest.n_strangers, 1);
}

/* ---- Belady's rule, the plain way ---- */

enum { BLOCKS = 7, USES = 60 };

static struct {
	uint64_t bytes[BLOCKS];
	unsigned named[USES][2];
} job;

static unsigned next_use(unsigned block, unsigned from)
{
	while (from < USES && job.named[from][0] != block && job.named[from][1] != block)
		from++;
	return from;
}

static uint64_t plain_bytes_in(uint64_t budget)
{
	bool here[BLOCKS] = {false}, written[BLOCKS] = {false};
	uint64_t in = 0, used = 0;

	for (unsigned i = 0; i < USES; i++)
		for (unsigned k = 0; k < 2; k++) {
			unsigned block = job.named[i][k];
			bool fits = job.bytes[block] <= budget;

			if (here[block])
				continue;
			in += written[block] ? job.bytes[block] : 0;
			written[block] = true;
			while (fits && used + job.bytes[block] > budget) {
				unsigned victim = BLOCKS;

				for (unsigned b = 0; b < BLOCKS; b++)
					if (here[b] && b != job.named[i][0] && b != job.named[i][1] &&
					    (victim == BLOCKS || next_use(b, i) > next_use(victim, i)))
						victim = b;
				fits = victim < BLOCKS;
				if (fits) {
					here[victim] = false;
					used -= job.bytes[victim];
				}
			}
			here[block] = fits;
			used += fits ? job.bytes[block] : 0;
		}
	return in;
}

TEST(the_curve_is_beladys)
{
	struct seed seed = seed_start("the_curve_is_beladys");

	for (unsigned round = 0; round < 50; round++) {
		/*
		 * Blocks that are never used again all have the same next use: sizes alike leave no choice that
		 * matters.
		 */
		for (unsigned b = 0; b < BLOCKS; b++) {
			job.bytes[b] = 2 * MIB;
			FILE_ADD(&file, made, T0, b + 1, AT + b * 64 * MIB, job.bytes[b], 0, 0, 0, 0, 0, 0);
		}
		for (unsigned i = 0; i < USES; i++) {
			struct trace_named named[2];

			for (unsigned k = 0; k < 2; k++) {
				job.named[i][k] = i < BLOCKS ? i : (unsigned)seed_below(&seed, BLOCKS);
				named[k] = (struct trace_named){.address = AT + job.named[i][k] * 64 * MIB};
			}
			file_submit(&file, T0 + i, 0, named, 2);
		}
		read_back();
		assert_int_equal(digest.n_curve, DIGEST_CURVE);
		assert_int_equal(digest.peak, BLOCKS * 2 * MIB);
		for (unsigned i = 0; i < DIGEST_CURVE; i++)
			assert_int_equal(digest.curve[i].bytes_in, plain_bytes_in(digest.curve[i].budget));
		assert_int_equal(digest.curve[0].bytes_in, 0);
		assert_true(digest.curve[DIGEST_CURVE - 1].bytes_in > 0);
		again();
	}
}

/* Numbers as small as real ones now and then, so that blocks, moves and devices meet. */
static uint64_t any_number(struct seed *seed)
{
	switch (seed_below(seed, 6)) {
	case 0:
		return seed_below(seed, 4);
	case 1:
		return AT + seed_below(seed, 64) * MIB;
	case 2:
		return seed_below(seed, 64) * MIB;
	case 3:
		return UINT64_MAX - seed_below(seed, 3);
	case 4:
		return seed_next(seed);
	default:
		return seed_below(seed, 100);
	}
}

TEST(any_events_do_no_harm)
{
	struct seed seed = seed_start("any_events_do_no_harm");

	for (unsigned round = 0; round < 300; round++) {
		for (unsigned i = 0; i < 100; i++) {
			struct trace_event event = {
			    .kind = (uint32_t)seed_below(&seed, TRACE_KINDS), .text = "x", .text_bytes = 1};
			struct trace_named named[3] = {
			    {.address = AT}, {.address = any_number(&seed)}, {.address = AT + MIB}};

			event.time = seed_below(&seed, 50) ? T0 + i * MS : any_number(&seed);
			for (unsigned k = 0; k < TRACE_FIELDS; k++)
				event.field[k] = any_number(&seed);
			if (event.kind == TRACE_submit)
				event.submit.n = seed_below(&seed, 4);
			event.named = named;
			trace_frame_add(file.writer, &event);
		}
		read_back();
		assert_true(digest.run_ns <= UINT64_C(1) << 62);
		assert_true(digest.lost_ns <= digest.run_ns);
		again();
	}
}

TEST(without_memory_there_is_no_digest_and_no_leak)
{
	const struct trace_named named = {.address = AT};
	bool failed = true;

	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 1, 0, 0);
	FILE_ADD(&file, move, T0, 1, 0, AT, 64 * MIB, 1, 0);
	FILE_ADD(&file, moved, T0, 1, 0);
	FILE_ADD(&file, step, T0, 0, 1);
	file_submit(&file, T0, 0, &named, 1);
	assert_int_equal(save_and_read(), 0);
	for (unsigned at = 1; failed; at++) {
		/* From the at-th allocation on to twice that: the one in question is the first. */
		fail_every = at;
		n_allocations = 0;
		int error = digest_make(&trace, NULL, &digest);
		failed = n_allocations >= at;
		fail_every = 0;
		assert_true(error == 0 || error == -ENOMEM);
		if (!error)
			digest_free(&digest);
		assert_true(at < 200);
	}
}
