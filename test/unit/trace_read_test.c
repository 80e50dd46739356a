// SPDX-License-Identifier: Apache-2.0
/*
 * A trace is read as it was written and put in order, and what happened to each block is added up. Files that are not
 * as they should be have a program of their own (trace_wrong_test.c).
 */
#include "test/test.h"
#include "test/unit/seed.h"
#include "test/unit/trace_help.h"

#include <sys/resource.h>

#define S UINT64_C(1000000000)

static void move_piece(uint64_t number, uint64_t time, uint64_t address, uint64_t bytes, bool to_host, bool stayed)
{
	FILE_ADD(&file, move, time, number, 0, address, bytes, to_host, 0);
	FILE_ADD(&file, moved, time + 1, number, stayed);
}

/* ---- against a plain way of doing it ---- */

static uint32_t plain_block_at(uint64_t address, uint64_t time)
{
	for (size_t i = 0; i < trace.n_blocks; i++) {
		const struct trace_block *block = &trace.blocks[i];

		if (block->made <= time && block->freed > time && block->address <= address &&
		    address - block->address < block->bytes)
			return (uint32_t)i;
	}
	return TRACE_NONE;
}

/* ---- a large one ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_MEASURED 0
#else
#define MEMORY_IS_MEASURED 1
#endif

/* A million events of two threads: a step of 1000 submissions over 5000 blocks again and again, with moves. */
TEST(a_million_events_fit_into_512_mib)
{
	enum { EVENTS = 1000000, BLOCKS = 5000, STEP = 1000 };
	struct rusage usage;
	uint64_t time = 0;

	file_frame(&file, 0, 0);
	for (uint64_t i = 0; i < BLOCKS; i++)
		FILE_ADD(&file, made, ++time, i, i << 21, 1 << 20);
	for (uint64_t i = BLOCKS; i < EVENTS; i++) {
		uint64_t k = i % STEP;
		const struct trace_named named[4] = {
		    {k << 21, 0}, {(k + 1) << 21, 0}, {(k + 7) << 21, 4096}, {(k * 4) << 21, 0}};

		if (i % 4096 == 0)
			file_frame(&file, (uint32_t)(i >> 12 & 1), time > 10000 ? time - 10000 : 0);
		if (i % 10 == 8)
			FILE_ADD(&file, move, ++time, i, 0, (k * 3) << 21, 1 << 20, i & 16, 0);
		else if (i % 10 == 9)
			FILE_ADD(&file, moved, ++time, i - 1, 0);
		else
			file_submit(&file, ++time, k, named, 4);
	}
	double begun = (double)test_now() / 1e9;
	assert_int_equal(save_and_read(), 0);
	getrusage(RUSAGE_SELF, &usage);
	printf("%zu events, %.1f MB: %.2f s, %ld MiB with the file's own %zu\n", trace.n_rows,
	       (double)trace.bytes / 1e6, (double)test_now() / 1e9 - begun, usage.ru_maxrss >> 10, file.room >> 20);
	assert_int_equal(trace.n_rows, EVENTS);
	assert_true(!MEMORY_IS_MEASURED || usage.ru_maxrss >> 10 <= 512);
}

TEST(rows_of_several_threads_come_in_the_order_of_their_times)
{
	const uint32_t kinds[] = {TRACE_name, TRACE_ask, TRACE_push, TRACE_made, TRACE_pop, TRACE_end};
	const uint32_t threads[] = {0, 1, 2, 1, 2, 1};
	char room[32];

	file_frame(&file, 0, 0);
	file_name(&file, TRACE_THREADS, 1, "one", 3);
	file_frame(&file, 2, 100);
	FILE_ADD(&file, push, 150, 7);
	FILE_ADD(&file, pop, 250, 0);
	file_frame(&file, 1, 90);
	FILE_ADD(&file, ask, 110, 512);
	FILE_ADD(&file, made, 200, 1, 4096, 512);
	FILE_ADD(&file, end, 300, 0);
	assert_int_equal(save_and_read(), 0);
	assert_int_equal(trace.n_rows, 6);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(trace.rows[i].event.kind, kinds[i]);
		assert_int_equal(trace.rows[i].event.thread, threads[i]);
	}
	assert_true(trace.first == 0 && trace.last == 300);
	assert_true(trace.ended && !trace.cut && !trace.damaged && !trace.problem[0]);
	assert_true(trace.start == 1000 && trace.clock == 50);
	assert_string_equal(trace_value(&trace, "command", room, sizeof(room)), "a b=c");
	assert_string_equal(trace_value(&trace, "policy", room, sizeof(room)), "");
	assert_string_equal(trace_value(&trace, "comm", room, sizeof(room)), "");
	assert_string_equal(trace_value(&trace, "command", room, 3), "a ");
	assert_string_equal(trace_text(&trace, TRACE_THREADS, 1), "one");
	assert_string_equal(trace_text(&trace, TRACE_THREADS, 0), "?");
	assert_string_equal(trace_text(&trace, TRACE_THREADS, 1u << 30), "?");
	assert_true(trace.bytes == file.n);
}

TEST(a_submission_that_comes_again_is_whole)
{
	const struct trace_named a[2] = {{1 << 20, 0}, {2 << 20, 99}}, b[1] = {{3 << 20, 0}};
	const uint32_t which[] = {0, 1, 0, 2, 1};

	file_frame(&file, 0, 0);
	file_submit(&file, 1, 5, a, 2);
	file_submit(&file, 2, 6, b, 1);
	file_frame(&file, 1, 0);
	file_submit(&file, 3, 5, a, 2);
	file_submit(&file, 4, 6, NULL, 0);
	file_end_frame(&file);
	/* A writer that has forgotten says it in full once more. */
	trace_writer_free(file.writer);
	file.writer = trace_writer_new();
	file_frame(&file, 0, 5);
	file_submit(&file, 5, 6, b, 1);
	assert_int_equal(save_and_read(), 0);
	assert_int_equal(trace.n_rows, 5);
	assert_int_equal(trace.n_submits, 3);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(trace.rows[i].event.kind, TRACE_submit);
		assert_int_equal(trace.rows[i].which, which[i]);
	}
	const struct trace_event *event = &trace.rows[2].event;
	assert_true(event->submit.function == 5 && event->submit.n == 2);
	assert_true(event->named[1].address == 2 << 20 && event->named[1].bytes == 99);
	assert_true(trace.rows[3].event.submit.n == 0);
}

TEST(blocks_are_made_grow_and_are_freed)
{
	file_frame(&file, 0, 0);
	FILE_ADD(&file, made, 10, 7, 4096, 1024, 1, 2, 3, 4, 5, 6);
	FILE_ADD(&file, grown, 20, 7, 2048);
	FILE_ADD(&file, freed, 30, 7);
	FILE_ADD(&file, freed, 31, 7);  /* twice: nonsense */
	FILE_ADD(&file, freed, 32, 99); /* never seen */
	FILE_ADD(&file, made, 40, 8, 4096, 512);
	assert_int_equal(save_and_read(), 0);
	assert_int_equal(trace.n_blocks, 2);
	const struct trace_block *block = &trace.blocks[0];
	assert_true(block->id == 7 && block->bytes == 2048 && block->made == 10 && block->freed == 30);
	assert_true(block->api == 1 && block->device == 2 && block->backend == 3 && block->rule == 4);
	assert_true(block->site == 5 && block->on_host == 6);
	assert_true(trace.blocks[1].freed == UINT64_MAX);
	assert_true(trace.rows[0].which == 0 && trace.rows[1].which == 0 && trace.rows[2].which == 0);
	assert_true(trace.rows[3].which == TRACE_NONE && trace.rows[4].which == TRACE_NONE);
	assert_int_equal(trace_block_at(&trace, 4096, 9), TRACE_NONE);
	assert_int_equal(trace_block_at(&trace, 4096, 10), 0);
	assert_int_equal(trace_block_at(&trace, 4096 + 2047, 29), 0);
	assert_int_equal(trace_block_at(&trace, 4096 + 2048, 29), TRACE_NONE);
	assert_int_equal(trace_block_at(&trace, 4095, 29), TRACE_NONE);
	assert_int_equal(trace_block_at(&trace, 4096, 30), TRACE_NONE);
	assert_int_equal(trace_block_at(&trace, 4096, UINT64_MAX - 1), 1);
}

TEST(what_devices_lend_of_a_block_is_part_of_what_is_away)
{
	file_frame(&file, 0, 0);
	FILE_ADD(&file, made, 10, 7, 4096, 1024, 0, 0, 0, 0, 0, 600);
	FILE_ADD(&file, lent, 11, 7, 1, 200);
	FILE_ADD(&file, lent, 12, 7, 2, 300);
	FILE_ADD(&file, made, 13, 8, 8192, 1024, 0, 0, 0, 0, 0, 600);
	FILE_ADD(&file, lent, 14, 8, 1, UINT64_MAX); /* more than there is: nonsense */
	FILE_ADD(&file, lent, 15, 8, 1, UINT64_MAX);
	FILE_ADD(&file, lent, 16, 9, 1, 5); /* never seen */
	assert_int_equal(save_and_read(), 0);
	assert_true(trace.tells_peers);
	assert_int_equal(trace.blocks[0].on_peers, 500);
	assert_int_equal(trace.blocks[1].on_peers, 600);
	assert_true(trace.rows[1].which == 0 && trace.rows[5].which == 1 && trace.rows[6].which == TRACE_NONE);
}

/* As files were before devices lent to each other: a move of six numbers, samples of seven, and no kind of its own. */
TEST(a_file_of_before_does_not_tell_peers_from_the_host)
{
	static const char text[] = "version=1\nfields=4,9,6,1,2,3,1,6,2,5,3,2,1,1,1,7,5,6,2,1,1\n";
	static const uint8_t events[] = {TRACE_move, 0, 1, 0, 8, 16, 1, 2, TRACE_moved, 2, 1, 0, TRACE_end, 2, 3};
	const uint64_t bytes = sizeof(text) - 1, n = sizeof(events);
	uint8_t head[24] = {'F', 'R', 'A', 'M', (uint8_t)n};
	uint32_t check = trace_check(events, n);

	file.n = 0;
	file_put(&file, TRACE_MAGIC, 8);
	file_put(&file, (uint8_t[]){(uint8_t)bytes, 0, 0, 0}, 4);
	file_put(&file, text, bytes);
	memcpy(head + 8, &check, 4);
	file_put(&file, head, sizeof(head));
	file_put(&file, events, n);
	assert_int_equal(save_and_read(), 0);
	assert_true(!trace.tells_peers && !trace.damaged && trace.ended);
	assert_int_equal(trace.n_rows, 3);
	const struct trace_event *move = &trace.rows[0].event;
	assert_true(move->move.number == 1 && move->move.address == 8 && move->move.bytes == 16 && move->move.why == 2);
	assert_true(move->move.to_host == 1 && !move->move.lender && !move->move.left);
}

TEST(submissions_count_for_the_blocks_they_name)
{
	const struct trace_named named[] = {{1 << 20, 0}, {(1 << 20) + 512, 0}, {2 << 20, 0}, {9 << 20, 0}};

	file_frame(&file, 0, 0);
	FILE_ADD(&file, made, 1, 1, 1 << 20, 4096);
	file_submit(&file, 2, 0, named, 4);
	FILE_ADD(&file, made, 3, 2, 2 << 20, 4096);
	file_submit(&file, 4, 0, named, 4);
	FILE_ADD(&file, freed, 5, 1);
	file_submit(&file, 6, 0, named, 4);
	FILE_ADD(&file, made, 7, 3, 1 << 20, 512); /* only the first of the two */
	file_submit(&file, 8, 0, named, 4);
	file_submit(&file, 9, 1, named, 2);
	assert_int_equal(save_and_read(), 0);
	assert_int_equal(trace.blocks[0].submits, 2);
	assert_int_equal(trace.blocks[1].submits, 3);
	assert_int_equal(trace.blocks[2].submits, 2);
}

TEST(moves_count_for_their_blocks_and_soon_returns_as_refetches)
{
	const uint64_t base = 1 << 20, piece = 1 << 16;

	file_frame(&file, 0, 0);
	FILE_ADD(&file, made, 1, 1, base, 4 * piece);
	move_piece(1, 10, base, piece, true, false);
	move_piece(2, 20, base + piece, piece, true, true); /* stayed */
	move_piece(3, 30, base + piece, piece, false, false);
	move_piece(4, 11 + 10 * S, base, piece, false, false); /* out at 11: just soon enough */
	move_piece(5, 20 * S, base, piece, true, false);
	move_piece(6, 30 * S + 2, base, piece, false, false);   /* too late to count */
	move_piece(7, 31 * S, base, piece, false, false);       /* it did not leave before */
	FILE_ADD(&file, move, 32 * S, 8, 0, base, piece, 1, 0); /* never arrives */
	assert_int_equal(save_and_read(), 0);
	const struct trace_block *block = &trace.blocks[0];
	assert_int_equal(block->moves_out, 2);
	assert_int_equal(block->bytes_out, 2 * piece);
	assert_int_equal(block->moves_in, 4);
	assert_int_equal(block->bytes_in, 4 * piece);
	assert_int_equal(block->refetches, 1);
}

TEST(a_piece_with_several_blocks_counts_for_each)
{
	file_frame(&file, 0, 0);
	FILE_ADD(&file, made, 1, 1, 0x10000, 0x1000);
	FILE_ADD(&file, made, 1, 2, 0x12000, 0x1000);
	FILE_ADD(&file, made, 1, 3, 0x13000, 0x10000);
	FILE_ADD(&file, made, 1, 4, 0x30000, 0x1000);
	move_piece(1, 10, 0x10000, 0x8000, true, false);
	FILE_ADD(&file, freed, 20, 2);
	FILE_ADD(&file, made, 30, 5, 0x12000, 0x1000);
	move_piece(2, 40, 0x10000, 0x8000, false, false);
	assert_int_equal(save_and_read(), 0);
	const uint64_t out[] = {0x1000, 0x1000, 0x5000, 0, 0}, in[] = {0x1000, 0, 0x5000, 0, 0x1000};
	const uint64_t again[] = {1, 0, 1, 0, 0};
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(trace.blocks[i].bytes_out, out[i]);
		assert_int_equal(trace.blocks[i].bytes_in, in[i]);
		assert_int_equal(trace.blocks[i].refetches, again[i]);
	}
}

TEST(what_was_lost_is_added_up_and_names_are_harmless)
{
	const char text[] = "a\033[2J\nb\0c";

	file_frame(&file, 0, 0);
	FILE_ADD(&file, lost, 1, 3);
	FILE_ADD(&file, lost, 2, 4);
	file_name(&file, TRACE_FUNCTIONS, 3, text, sizeof(text) - 1);
	file_name(&file, TRACE_LISTS, 3, "x", 1);
	file_name(&file, UINT64_MAX, 3, "x", 1);
	file_name(&file, TRACE_FUNCTIONS, UINT64_MAX, "x", 1);
	file_name(&file, TRACE_FUNCTIONS, 1 << 20, "x", 1);
	assert_int_equal(save_and_read(), 0);
	assert_int_equal(trace.n_lost, 7);
	assert_string_equal(trace_text(&trace, TRACE_FUNCTIONS, 3), "a?[2J?b?c");
	assert_int_equal(trace.n_names[TRACE_FUNCTIONS], 4);
}

/* Blocks of a random program: at any time none overlaps another. */
TEST(blocks_are_found_by_address_and_time)
{
	enum { SLOTS = 64, EVENTS = 3000 };
	struct seed seed = seed_start(__func__);
	struct {
		uint64_t id, end;
	} slots[SLOTS] = {{0}};
	uint64_t id = 1;

	file_frame(&file, 0, 0);
	for (uint64_t time = 1; time <= EVENTS; time++) {
		unsigned i = (unsigned)seed_below(&seed, SLOTS);

		if (slots[i].id) {
			FILE_ADD(&file, freed, time, slots[i].id);
			slots[i].id = 0;
			continue;
		}
		/* From its slot as far as the next one that is taken. */
		unsigned room = 1;
		while (i + room < SLOTS && !slots[i + room].id)
			room++;
		bool covered = false;
		for (unsigned k = 0; k < i; k++)
			covered |= slots[k].id && slots[k].end > i * 512u;
		if (covered)
			continue;
		uint64_t bytes = seed_size(&seed, room * 512);
		FILE_ADD(&file, made, time, id, i * 512u, bytes);
		slots[i].id = id++;
		slots[i].end = i * 512u + bytes;
	}
	assert_int_equal(save_and_read(), 0);
	assert_true(trace.n_blocks > 100);
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t address = seed_below(&seed, SLOTS * 512), time = seed_below(&seed, EVENTS + 2);

		assert_int_equal(trace_block_at(&trace, address, time), plain_block_at(address, time));
	}
}

EACH_TEST(setup, teardown)

GROUP(temporary_make, temporary_remove)
