// SPDX-License-Identifier: Apache-2.0
/*
 * Reads and writes sizes and conditions on sizes. A number is read as an integer and a count of the digits behind the
 * point; multiplied by the unit in 128 bits, it must leave no remainder. Nothing is rounded, and no floating point is
 * used: strtod depends on the locale, accepts "nan" and "0x1p3", and cannot hold all 64 bits.
 */
#include "policy/keys.h"

#include <stdio.h>
#include <string.h>

#include "policy/text.h"

/* Units in order of preference: suggestions and formatting take the first that fits. */
static const struct unit {
	const char *name;
	uint64_t bytes;
} units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"TB", 1000000000000ull},
    {"GB", 1000000000},  {"MB", 1000000},     {"KB", 1000},        {"kB", 1000},        {"B", 1},
};

enum { N_BINARY_UNITS = 4, MAX_FRACTION = 18 };

/* The number digits / 10^n_fraction, and where its text ends. */
struct number {
	unsigned __int128 digits;
	unsigned n_fraction;
	const char *end;
};

char *policy_size_format(uint64_t bytes, char buffer[POLICY_SIZE_BYTES_TEXT])
{
	size_t i = 0;

	while (i < N_BINARY_UNITS && (bytes == 0 || bytes % units[i].bytes != 0))
		i++;
	if (bytes == 0)
		snprintf(buffer, POLICY_SIZE_BYTES_TEXT, "0");
	else if (i < N_BINARY_UNITS)
		snprintf(buffer, POLICY_SIZE_BYTES_TEXT, "%llu%s", (unsigned long long)(bytes / units[i].bytes),
			 units[i].name);
	else
		snprintf(buffer, POLICY_SIZE_BYTES_TEXT, "%lluB", (unsigned long long)bytes);
	return buffer;
}

char *policy_range_format(const struct policy_range *range, char buffer[POLICY_RANGE_TEXT])
{
	char low[POLICY_SIZE_BYTES_TEXT], high[POLICY_SIZE_BYTES_TEXT];

	policy_size_format(range->lo, low);
	policy_size_format(range->hi, high);
	if (range->lo == range->hi)
		snprintf(buffer, POLICY_RANGE_TEXT, "== %s", low);
	else if (range->hi == UINT64_MAX)
		snprintf(buffer, POLICY_RANGE_TEXT, ">= %s", low);
	else if (range->lo == 0)
		/* "< 1MiB" is stored as "<= 1048575B", which is hard to read. */
		snprintf(buffer, POLICY_RANGE_TEXT, "< %s", policy_size_format(range->hi + 1, high));
	else
		snprintf(buffer, POLICY_RANGE_TEXT, "%s .. %s", low, high);
	return buffer;
}

static uint64_t power_of_ten(unsigned n)
{
	uint64_t power = 1;

	while (n-- > 0)
		power *= 10;
	return power;
}

/*
 * Reads digits with an optional fraction. Whole parts saturate above 2^64, that is, below 2^68: with the 18 digits
 * (2^60) of a fraction behind them they still fit in 128 bits. Zeros at the end of a fraction are dropped.
 */
static bool number_parse(const char *text, struct number *ret_number, char *ret_why)
{
	const unsigned __int128 limit = (unsigned __int128)1 << 64;
	struct number number = {0};
	const char *c = text;
	unsigned n_zeros = 0;

	for (; policy_is_digit(*c); c++)
		if (number.digits < limit)
			number.digits = number.digits * 10 + (unsigned)(*c - '0');
	if (*c == '.' && c[1] != '.') {
		c++;
		if (!policy_is_digit(*c))
			return policy_wrong(ret_why, text, "has no digit after the point; write 1.5GiB or 1GiB");
		for (; policy_is_digit(*c); c++) {
			if (*c == '0') {
				n_zeros++;
				continue;
			}
			if (number.n_fraction + n_zeros + 1 > MAX_FRACTION)
				return policy_wrong(
				    ret_why, text,
				    "has too many digits after the point; write whole bytes, as in 1234567B");
			number.digits = number.digits * power_of_ten(n_zeros + 1) + (unsigned)(*c - '0');
			number.n_fraction += n_zeros + 1;
			n_zeros = 0;
		}
	}
	number.end = c;
	*ret_number = number;
	return true;
}

/* Explains words for nothing or anything, and numbers in a form that is not accepted. */
static bool fail_start(const char *text, bool full, char *ret_why)
{
	const char *also = full ? "auto, 64MiB or 50%" : "64MiB";

	if (!*text)
		return policy_wrong(ret_why, NULL, "has no value; write %s", also);
	if (*text == '-')
		return policy_wrong(ret_why, text, "is negative; write 0 or more, as in 64MiB");
	if (*text == '+')
		return policy_wrong(ret_why, text, "begins with a plus; write the size alone, as in 64MiB");
	if (*text == '.' && policy_is_digit(text[1]))
		return policy_wrong(ret_why, text, "has no digit before the point; write 0.5GiB for half a GiB");
	return policy_wrong(ret_why, text, "is not a size; write %s", also);
}

static bool fail_no_unit(const char *text, const struct number *number, bool full, char *ret_why)
{
	char bytes[POLICY_SIZE_BYTES_TEXT];

	/* A number this large can only mean bytes. */
	if (number->n_fraction == 0 && number->digits >= 1 << 20 && number->digits <= UINT64_MAX) {
		uint64_t value = (uint64_t)number->digits;

		return policy_wrong(ret_why, text, "has no unit; write %s if bytes are meant",
				    policy_size_format(value, bytes));
	}
	if (strlen(text) > 16)
		return policy_wrong(ret_why, text, "has no unit; write 64MiB%s", full ? ", 64GiB or 50%" : " or 64GiB");
	return policy_wrong(ret_why, text, "has no unit; write %sMiB%s%sGiB%s", text, full ? ", " : " or ", text,
			    full ? " or 50%" : "");
}

/* Explains a wrong unit, as in "64M", "64mib", "64 MiB", "64MiBs", with the unit that was probably meant. */
static bool fail_unit(const char *text, const char *unit, char *ret_why)
{
	const char *begin = unit, *likely = NULL;

	while (*begin == ' ')
		begin++;
	for (size_t i = 0; i < sizeof(units) / sizeof(*units) && !likely; i++)
		if (policy_distance(begin, units[i].name) == 0)
			likely = units[i].name;
	for (size_t i = 0; i < N_BINARY_UNITS && !likely; i++)
		if (policy_lower(*begin) == policy_lower(units[i].name[0]) && strlen(begin) <= 4)
			likely = units[i].name;
	if (strcmp(begin, "%") == 0)
		likely = "%";
	if (likely && unit - text <= 16)
		return policy_wrong(ret_why, text, "has an unknown unit %s; write %.*s%s", policy_quoted(unit),
				    (int)(unit - text), text, likely);
	if (*unit == ',')
		return policy_wrong(ret_why, text,
				    "has a comma in it; write a point, as in 1.5GiB, and nothing between thousands");
	return policy_wrong(ret_why, text, "has an unknown unit %s; write B, KiB, MiB, GiB or TiB (or kB, MB, GB, TB)",
			    policy_quoted(unit));
}

/* Reads a number with a unit and nothing behind. full: only changes which examples are given. */
static bool bytes_parse(const char *text, bool full, uint64_t *ret_bytes, char *ret_why)
{
	const struct unit *unit = NULL;
	struct number number;
	unsigned __int128 product;

	if (!policy_is_digit(*text))
		return fail_start(text, full, ret_why);
	if (!number_parse(text, &number, ret_why))
		return false;
	if (!*number.end && number.digits != 0)
		return fail_no_unit(text, &number, full, ret_why);
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (strcmp(number.end, units[i].name) == 0)
			unit = &units[i];
	if (*number.end && !unit)
		return fail_unit(text, number.end, ret_why);
	/* The whole part is checked first, so the product stays below 2^64 * 10^18. */
	uint64_t divisor = power_of_ten(number.n_fraction);
	product = number.digits * (unit ? unit->bytes : 1);
	if (number.digits / divisor > UINT64_MAX / (unit ? unit->bytes : 1) || product / divisor > UINT64_MAX)
		return policy_wrong(ret_why, text,
				    "is more than 64 bits of bytes (16384 PiB) can say; write a smaller size");
	if (product % divisor != 0) {
		unsigned long long whole = (unsigned long long)(product / divisor);

		return policy_wrong(ret_why, text, "is not a whole number of bytes; write %lluB or %lluB", whole,
				    whole + 1);
	}
	*ret_bytes = (uint64_t)(product / divisor);
	return true;
}

/* Reads a share. text must end in '%'. */
static bool percent_parse(const char *text, struct policy_size *ret_size, char *ret_why)
{
	struct number number;

	if (!policy_is_digit(*text))
		return fail_start(text, true, ret_why);
	if (!number_parse(text, &number, ret_why))
		return false;
	if (strcmp(number.end, "%") != 0)
		return policy_wrong(ret_why, text, "is not a share; write digits and %%, as in 50%% or 12.5%%");
	if (number.n_fraction > 2)
		return policy_wrong(ret_why, text,
				    "has more than two digits after the point; write two at most, as in 12.25%%");
	number.digits *= power_of_ten(2 - number.n_fraction);
	if (number.digits > 10000)
		return policy_wrong(ret_why, text, "is more than the whole; write 100%% or less");
	*ret_size = (struct policy_size){.kind = POLICY_SIZE_PERCENT, .value = (uint64_t)number.digits};
	return true;
}

bool policy_size_read(const char *text, struct policy_size *ret_size, char *ret_why)
{
	size_t length = strlen(text);
	uint64_t bytes;

	if (strcmp(text, "auto") == 0) {
		*ret_size = (struct policy_size){.kind = POLICY_SIZE_AUTO};
		return true;
	}
	if (length > 0 && text[length - 1] == '%')
		return percent_parse(text, ret_size, ret_why);
	if (!bytes_parse(text, true, &bytes, ret_why))
		return false;
	*ret_size = (struct policy_size){.kind = POLICY_SIZE_BYTES, .value = bytes};
	return true;
}

bool policy_bytes_read(const char *text, uint64_t *ret_bytes, char *ret_why)
{
	if (*text && text[strlen(text) - 1] == '%')
		return policy_wrong(ret_why, NULL, "a share is not taken here; write bytes, as in 64MiB");
	return bytes_parse(text, false, ret_bytes, ret_why);
}

/* Operators of two characters come first, so that "<=" is not taken for "<". */
static const char *const operators[] = {">=", "<=", "==", ">", "<"};

static bool compare_parse(const char *text, const char *operator, struct policy_range * ret_range, char *ret_why)
{
	struct policy_range range = {0, UINT64_MAX};
	const char *size = text + strlen(operator);
	uint64_t bytes;

	while (*size == ' ')
		size++;
	if (*size && size[strlen(size) - 1] == '%')
		return policy_wrong(ret_why, NULL,
				    "a share cannot be a condition; write bytes, as in \"%s 64MiB\"", operator);
	if (!bytes_parse(size, false, &bytes, ret_why))
		return false;
	if (operator[0] == '<' && !operator[1] && bytes == 0)
		return policy_wrong(ret_why, NULL, "\"< 0\" matches nothing; write \"== 0\" or remove the rule");
	if (operator[0] == '>' && !operator[1] && bytes == UINT64_MAX)
		return policy_wrong(ret_why, NULL,
				    "the condition matches nothing; write a smaller size or remove the rule");
	if (operator[0] != '>')
		range.hi = operator[1] ? bytes : bytes - 1;
	if (operator[0] != '<')
		range.lo = operator[1] ? bytes : bytes + 1;
	*ret_range = range;
	return true;
}

/* Reads a range. dots must point to the ".." in text. */
static bool range_parse(const char *text, const char *dots, struct policy_range *ret_range, char *ret_why)
{
	char from[POLICY_MAX_WHY];
	size_t length = (size_t)(dots - text);
	struct policy_range range;

	while (length > 0 && text[length - 1] == ' ')
		length--;
	dots += 2;
	while (*dots == ' ')
		dots++;
	if (length == 0 || !*dots)
		return policy_wrong(ret_why, NULL,
				    "a range needs both ends; write \"1MiB .. 64MiB\", or \">= 1MiB\" for one end");
	if (length >= sizeof(from))
		return policy_wrong(ret_why, NULL, "the range is too long; write \"1MiB .. 64MiB\"");
	memcpy(from, text, length);
	from[length] = '\0';
	if (from[length - 1] == '%' || dots[strlen(dots) - 1] == '%')
		return policy_wrong(ret_why, NULL,
				    "a share cannot be a condition; write bytes, as in \"1MiB .. 64MiB\"");
	if (!bytes_parse(from, false, &range.lo, ret_why) || !bytes_parse(dots, false, &range.hi, ret_why))
		return false;
	if (range.lo > range.hi)
		return policy_wrong(ret_why, NULL, "the range is upside down and matches nothing; write \"%s .. %s\"",
				    policy_size_text(range.hi), policy_size_text(range.lo));
	*ret_range = range;
	return true;
}

bool policy_condition_parse(const char *text, struct policy_range *ret_range, char *ret_why)
{
	const char *dots = strstr(text, "..");

	for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++)
		if (strncmp(text, operators[i], strlen(operators[i])) == 0)
			return compare_parse(text, operators[i], ret_range, ret_why);
	if (dots)
		return range_parse(text, dots, ret_range, ret_why);
	if (policy_is_digit(*text))
		return policy_wrong(
		    ret_why, text, "is a size, not a condition; write \"== 64MiB\", \">= 64MiB\" or \"1MiB .. 64MiB\"");
	return policy_wrong(ret_why, text, "is not a condition; write \">= 64MiB\", \"< 1MiB\" or \"1MiB .. 64MiB\"");
}
