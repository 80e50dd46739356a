// SPDX-License-Identifier: Apache-2.0
/*
 * policy_size_test.c: what sizes and conditions on sizes mean, and what is said of wrong ones.
 */
#include "policy/keys.h"
#include "test/test.h"

static void expect_size(const char *text, int kind, uint64_t value)
{
	struct policy_size size;
	char why[POLICY_MAX_WHY];

	if (!policy_size_read(text, &size, why))
		fail_msg("%s: %s", text, why);
	assert_int_equal(size.kind, kind);
	assert_true(size.value == value);
}

TEST(sizes_mean_what_their_units_say)
{
	expect_size("0", POLICY_SIZE_BYTES, 0);
	expect_size("7B", POLICY_SIZE_BYTES, 7);
	expect_size("1KiB", POLICY_SIZE_BYTES, 1024);
	expect_size("64MiB", POLICY_SIZE_BYTES, 64 * MIB);
	expect_size("1.5GiB", POLICY_SIZE_BYTES, 1536 * MIB);
	expect_size("1.50000000000000000000GiB", POLICY_SIZE_BYTES, 1536 * MIB);
	expect_size("2TiB", POLICY_SIZE_BYTES, 2ull << 40);
	expect_size("1kB", POLICY_SIZE_BYTES, 1000);
	expect_size("1KB", POLICY_SIZE_BYTES, 1000);
	expect_size("2.5MB", POLICY_SIZE_BYTES, 2500000);
	expect_size("3GB", POLICY_SIZE_BYTES, 3000000000);
	expect_size("0.000000000001TB", POLICY_SIZE_BYTES, 1);
	expect_size("18446744073709551615B", POLICY_SIZE_BYTES, UINT64_MAX);
	expect_size("16777215.5TiB", POLICY_SIZE_BYTES, (16777215ull << 40) + (1ull << 39));
}

TEST(budgets_may_be_auto_or_a_share)
{
	expect_size("auto", POLICY_SIZE_AUTO, 0);
	expect_size("50%", POLICY_SIZE_PERCENT, 5000);
	expect_size("12.5%", POLICY_SIZE_PERCENT, 1250);
	expect_size("0.01%", POLICY_SIZE_PERCENT, 1);
	expect_size("100.00%", POLICY_SIZE_PERCENT, 10000);
}

TEST(wrong_sizes_say_what_to_write_instead)
{
	static const char *const rows[][2] = {
	    {"64", "\"64\" has no unit; write 64MiB, 64GiB or 50%"},
	    {"1.5", "\"1.5\" has no unit; write 1.5MiB, 1.5GiB or 50%"},
	    {"4294967296", "\"4294967296\" has no unit; write 4GiB if bytes are meant"},
	    {"64M", "\"64M\" has an unknown unit \"M\"; write 64MiB"},
	    {"64g", "\"64g\" has an unknown unit \"g\"; write 64GiB"},
	    {"64mib", "\"64mib\" has an unknown unit \"mib\"; write 64MiB"},
	    {"64 MiB", "\"64 MiB\" has an unknown unit \" MiB\"; write 64MiB"},
	    {"50 %", "\"50 %\" is not a share; write digits and %, as in 50% or 12.5%"},
	    {"64bytes", "\"64bytes\" has an unknown unit \"bytes\"; write B, KiB, MiB, GiB or TiB (or kB, MB, GB, TB)"},
	    {"0x10MiB",
	     "\"0x10MiB\" has an unknown unit \"x10MiB\"; write B, KiB, MiB, GiB or TiB (or kB, MB, GB, TB)"},
	    {"1e3MiB", "\"1e3MiB\" has an unknown unit \"e3MiB\"; write B, KiB, MiB, GiB or TiB (or kB, MB, GB, TB)"},
	    {"1,5GiB", "\"1,5GiB\" has a comma in it; write a point, as in 1.5GiB, and nothing between thousands"},
	    {"-1MiB", "\"-1MiB\" is negative; write 0 or more, as in 64MiB"},
	    {"+1MiB", "\"+1MiB\" begins with a plus; write the size alone, as in 64MiB"},
	    {".5GiB", "\".5GiB\" has no digit before the point; write 0.5GiB for half a GiB"},
	    {"5.GiB", "\"5.GiB\" has no digit after the point; write 1.5GiB or 1GiB"},
	    {"nan", "\"nan\" is not a size; write auto, 64MiB or 50%"},
	    {"inf", "\"inf\" is not a size; write auto, 64MiB or 50%"},
	    {"", "has no value; write auto, 64MiB or 50%"},
	    {"0.3KiB", "\"0.3KiB\" is not a whole number of bytes; write 307B or 308B"},
	    {"0.5B", "\"0.5B\" is not a whole number of bytes; write 0B or 1B"},
	    {"1.0000000000000000001GiB",
	     "\"1.0000000000000000001GiB\" has too many digits after the point; write whole bytes, as in 1234567B"},
	    {"16777216TiB", "\"16777216TiB\" is more than 64 bits of bytes (16384 PiB) can say; write a smaller size"},
	    {"18446744073709551616B",
	     "\"18446744073709551616B\" is more than 64 bits of bytes (16384 PiB) can say; write a smaller size"},
	    {"99999999999999999999999999999999999999999.999999999999999999TiB",
	     "\"99999999999999999999999999999999999999999.9999999999999999...\" is more than 64 bits of bytes (16384 "
	     "PiB) can say; write a smaller size"},
	    {"101%", "\"101%\" is more than the whole; write 100% or less"},
	    {"100.01%", "\"100.01%\" is more than the whole; write 100% or less"},
	    {"1.005%", "\"1.005%\" has more than two digits after the point; write two at most, as in 12.25%"},
	    {"-5%", "\"-5%\" is negative; write 0 or more, as in 64MiB"},
	    {"\x1b[31m\xff", "\"?[31m?\" is not a size; write auto, 64MiB or 50%"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct policy_size size = {.value = 42};
		char why[POLICY_MAX_WHY];

		assert_false(policy_size_read(rows[i][0], &size, why));
		assert_string_equal(why, rows[i][1]);
		assert_int_equal(size.value, 42);
	}
}

static void expect_condition(const char *text, uint64_t lo, uint64_t hi)
{
	struct policy_range range;
	char why[POLICY_MAX_WHY];

	if (!policy_condition_parse(text, &range, why))
		fail_msg("%s: %s", text, why);
	assert_true(range.lo == lo && range.hi == hi);
}

TEST(conditions_hold_what_they_say)
{
	expect_condition(">= 64MiB", 64 * MIB, UINT64_MAX);
	expect_condition(">=64MiB", 64 * MIB, UINT64_MAX);
	expect_condition("> 64MiB", 64 * MIB + 1, UINT64_MAX);
	expect_condition("<= 1MiB", 0, MIB);
	expect_condition("< 1MiB", 0, MIB - 1);
	expect_condition("== 1MiB", MIB, MIB);
	expect_condition("== 0", 0, 0);
	expect_condition(">= 0", 0, UINT64_MAX);
	expect_condition("1MiB .. 64MiB", MIB, 64 * MIB);
	expect_condition("1MiB..64MiB", MIB, 64 * MIB);
	expect_condition("1.5MiB..1.5MiB", 3 * MIB / 2, 3 * MIB / 2);
}

TEST(wrong_conditions_say_what_to_write_instead)
{
	static const char *const rows[][2] = {
	    {"64MiB", "\"64MiB\" is a size, not a condition; write \"== 64MiB\", \">= 64MiB\" or \"1MiB .. 64MiB\""},
	    {"big", "\"big\" is not a condition; write \">= 64MiB\", \"< 1MiB\" or \"1MiB .. 64MiB\""},
	    {"", "\"\" is not a condition; write \">= 64MiB\", \"< 1MiB\" or \"1MiB .. 64MiB\""},
	    {">=", "has no value; write 64MiB"},
	    {">= 64", "\"64\" has no unit; write 64MiB or 64GiB"},
	    {">= 50%", "a share cannot be a condition; write bytes, as in \">= 64MiB\""},
	    {"< 0", "\"< 0\" matches nothing; write \"== 0\" or remove the rule"},
	    {"> 18446744073709551615B", "the condition matches nothing; write a smaller size or remove the rule"},
	    {"2MiB .. 1MiB", "the range is upside down and matches nothing; write \"1MiB .. 2MiB\""},
	    {"1MiB ..", "a range needs both ends; write \"1MiB .. 64MiB\", or \">= 1MiB\" for one end"},
	    {".. 1MiB", "a range needs both ends; write \"1MiB .. 64MiB\", or \">= 1MiB\" for one end"},
	    {"1 .. 2MiB", "\"1\" has no unit; write 1MiB or 1GiB"},
	    {"1% .. 2MiB", "a share cannot be a condition; write bytes, as in \"1MiB .. 64MiB\""},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct policy_range range = {4, 2};
		char why[POLICY_MAX_WHY];

		assert_false(policy_condition_parse(rows[i][0], &range, why));
		assert_string_equal(why, rows[i][1]);
		assert_true(range.lo == 4 && range.hi == 2);
	}
}
