// SPDX-License-Identifier: Apache-2.0
/*
 * The tables of lines of each version of CPython, as its compiler made them of one function, and tables that are cut
 * off or no tables at all.
 *
 * line 2   def walk(a):
 *      3       b = (a +
 *      4            1)
 *      5       for i in range(3):
 *      6           b += i
 *      8       return [
 *      9           b,
 *     10           a]
 */
#include "shim/base/python.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define FIRST 2

struct span {
	unsigned until, line; /* bytes of instructions up to here have this line */
};

struct table {
	const char *name;
	enum python_lines_kind kind;
	const unsigned char *bytes;
	size_t n;
	struct span span[12];
};

static const unsigned char table_3_9[] = {0x00, 0x01, 0x02, 0x01, 0x02, 0xff, 0x04, 0x02,
					  0x0c, 0x01, 0x0a, 0x03, 0x02, 0x01, 0x02, 0xfe};
static const unsigned char table_3_10[] = {0x02, 0x01, 0x02, 0x01, 0x04, 0xff, 0x0c, 0x02,
					   0x0a, 0x01, 0x02, 0x03, 0x02, 0x01, 0x04, 0xfe};
static const unsigned char table_3_11[] = {
    0x80, 0x00, 0xd8, 0x09, 0x0a, 0xd8, 0x09, 0x0a, 0xf1, 0x03, 0x01, 0x0a, 0x0b, 0x80, 0x41, 0xe5, 0x0d,
    0x12, 0x90, 0x31, 0x89, 0x58, 0x8c, 0x58, 0xf0, 0x00, 0x01, 0x05, 0x0f, 0xf0, 0x00, 0x01, 0x05, 0x0f,
    0x88, 0x01, 0xd8, 0x08, 0x09, 0x88, 0x51, 0x89, 0x06, 0x88, 0x01, 0x88, 0x01, 0xf0, 0x06, 0x00, 0x09,
    0x0a, 0xd8, 0x08, 0x09, 0xf0, 0x05, 0x02, 0x0c, 0x0b, 0xf0, 0x00, 0x02, 0x05, 0x0b};
static const unsigned char table_3_12[] = {0x80, 0x00, 0xd8, 0x09, 0x0a, 0xd8, 0x09, 0x0a, 0xf1, 0x03, 0x01, 0x0a, 0x0b,
					   0x80, 0x41, 0xe4, 0x0d, 0x12, 0x90, 0x31, 0x8b, 0x58, 0xf2, 0x00, 0x01, 0x05,
					   0x0f, 0x88, 0x01, 0xd8, 0x08, 0x09, 0x88, 0x51, 0x89, 0x06, 0x89, 0x01, 0xf0,
					   0x03, 0x01, 0x05, 0x0f, 0xf0, 0x08, 0x00, 0x09, 0x0a, 0xd8, 0x08, 0x09, 0xf0,
					   0x05, 0x02, 0x0c, 0x0b, 0xf0, 0x00, 0x02, 0x05, 0x0b};
static const unsigned char table_3_13[] = {
    0x80, 0x00, 0xd8, 0x09, 0x0a, 0xd8, 0x09, 0x0a, 0xf1, 0x03, 0x01, 0x0a, 0x0b, 0x80, 0x41, 0xe4, 0x0d, 0x12,
    0x90, 0x31, 0x8e, 0x58, 0x88, 0x01, 0xd8, 0x08, 0x09, 0x89, 0x06, 0x8a, 0x01, 0xf1, 0x03, 0x00, 0x0e, 0x16,
    0xf0, 0x08, 0x00, 0x09, 0x0a, 0xd8, 0x08, 0x09, 0xf0, 0x05, 0x02, 0x0c, 0x0b, 0xf0, 0x00, 0x02, 0x05, 0x0b};

static const struct table tables[] = {
    {"3.9",
     PYTHON_LINES_LNOTAB,
     table_3_9,
     sizeof(table_3_9),
     {{2, 3}, {4, 4}, {8, 3}, {20, 5}, {30, 6}, {32, 9}, {34, 10}, {38, 8}}},
    {"3.10",
     PYTHON_LINES_LINETABLE,
     table_3_10,
     sizeof(table_3_10),
     {{2, 3}, {4, 4}, {8, 3}, {20, 5}, {30, 6}, {32, 9}, {34, 10}, {38, 8}}},
    {"3.11",
     PYTHON_LINES_LOCATIONS,
     table_3_11,
     sizeof(table_3_11),
     {{2, 2}, {4, 3}, {6, 4}, {12, 3}, {46, 5}, {58, 6}, {60, 9}, {62, 10}, {66, 8}}},
    {"3.12",
     PYTHON_LINES_LOCATIONS,
     table_3_12,
     sizeof(table_3_12),
     {{2, 2}, {4, 3}, {6, 4}, {12, 3}, {40, 5}, {52, 6}, {54, 5}, {56, 9}, {58, 10}, {62, 8}}},
    {"3.13",
     PYTHON_LINES_LOCATIONS,
     table_3_13,
     sizeof(table_3_13),
     {{2, 2}, {4, 3}, {6, 4}, {12, 3}, {40, 5}, {52, 6}, {56, 5}, {58, 9}, {60, 10}, {64, 8}}},
};

/* Memory that ends where the table ends, which no read may pass. */
struct memory {
	const unsigned char *bytes;
	size_t n;
	size_t most; /* bytes of one read */
};
#define BASE 0x10000

static size_t read_memory(void *context, uint64_t address, void *room, size_t bytes)
{
	const struct memory *memory = context;

	assert_in_range(address, BASE, BASE + memory->n);
	if (bytes > memory->most)
		bytes = memory->most;
	if (address + bytes > BASE + memory->n)
		bytes = BASE + memory->n - address;
	memcpy(room, memory->bytes + (address - BASE), bytes);
	return bytes;
}

static unsigned find(const struct table *table, size_t most, size_t claimed, uint64_t offset)
{
	struct memory memory = {table->bytes, table->n, most};
	struct python_memory how = {read_memory, &memory};

	return python_lines_find(&how, table->kind, BASE, claimed, FIRST, offset);
}

TEST(each_instruction_has_its_line)
{
	for (unsigned i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		unsigned offset = 0;

		for (const struct span *span = tables[i].span; span->until; span++)
			for (; offset < span->until; offset += 2) {
				unsigned line = find(&tables[i], SIZE_MAX, tables[i].n, offset);

				if (line != span->line)
					fail_msg("%s: the line at %u is %u", tables[i].name, offset, line);
				/* What arrives byte by byte says the same. */
				assert_int_equal(find(&tables[i], 1, tables[i].n, offset), line);
			}
		/* Behind the end: 3.9 says no end, so the last line goes on. */
		assert_int_equal(find(&tables[i], SIZE_MAX, tables[i].n, offset),
				 tables[i].kind == PYTHON_LINES_LNOTAB ? 8 : 0);
	}
}

TEST(what_has_no_line_has_none)
{
	/* 3.10: -128 leaves the line as it is for what follows. 3.11: kind 15; then kind 14, 1000 lines on. */
	static const unsigned char line_less_3_10[] = {0x02, 0x01, 0x02, 0x80, 0x02, 0x01};
	static const unsigned char line_less_3_11[] = {0xf8, 0xf0, 0x50, 0x1f, 0x00, 0x01, 0x01, 0xe8, 0x03};
	const struct table old = {"3.10", PYTHON_LINES_LINETABLE, line_less_3_10, sizeof(line_less_3_10), {{0}}};
	const struct table new = {"3.11", PYTHON_LINES_LOCATIONS, line_less_3_11, sizeof(line_less_3_11), {{0}}};

	assert_int_equal(find(&old, 1, old.n, 0), FIRST + 1);
	assert_int_equal(find(&old, 1, old.n, 2), 0);
	assert_int_equal(find(&old, 1, old.n, 4), FIRST + 2);
	assert_int_equal(find(&new, 1, new.n, 0), 0);
	assert_int_equal(find(&new, 1, new.n, 2), FIRST + 1000);
	/* 13: no columns; odd numbers are negative. */
	assert_int_equal(find(&new, 1, new.n, 4), FIRST + 999);
}

TEST(a_table_that_ends_early_or_is_none_gives_a_line_or_none)
{
	unsigned char garbage[4096];
	struct table table = {"garbage", 0, garbage, 0, {{0}}};
	struct seed seed = seed_start("python_lines_test");

	for (unsigned round = 0; round < 3000; round++) {
		table.n = seed_below(&seed, sizeof(garbage));
		table.kind = round % 3;
		for (unsigned i = 0; i < table.n; i++)
			garbage[i] = (unsigned char)seed_next(&seed);
		/* It claims to be longer than the memory is. */
		assert_true(find(&table, 1 + seed_below(&seed, 512), SIZE_MAX, seed_below(&seed, 1 << 20)) <=
			    INT32_MAX);
	}
}
