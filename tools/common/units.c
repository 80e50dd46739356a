// SPDX-License-Identifier: Apache-2.0
/*
 * Formats bytes, times and shares for people.
 */
#include "tools/common/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

char *units_bytes(uint64_t bytes, char room[UNITS_TEXT])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	/* Beyond this, one decimal would be rounded up to 1024.0. */
	for (; value >= 1023.95 && unit + 1 < sizeof(names) / sizeof(*names); unit++)
		value /= 1024;
	snprintf(room, UNITS_TEXT, unit ? "%.1f %s" : "%.0f %s", value, names[unit]);
	return room;
}

char *units_time(uint64_t ns, char room[UNITS_TEXT])
{
	double s = (double)ns / 1e9;

	if (ns == 0)
		snprintf(room, UNITS_TEXT, "0 s");
	else if (s < 1e-3)
		snprintf(room, UNITS_TEXT, "%.1f us", s * 1e6);
	else if (s < 1)
		snprintf(room, UNITS_TEXT, s < 0.1 ? "%.1f ms" : "%.0f ms", s * 1e3);
	else if (s < 120)
		snprintf(room, UNITS_TEXT, s < 10 ? "%.2f s" : "%.1f s", s);
	else if (s < 7200)
		snprintf(room, UNITS_TEXT, "%" PRIu64 " min %02" PRIu64 " s", ns / 60000000000, ns / 1000000000 % 60);
	else
		snprintf(room, UNITS_TEXT, "%" PRIu64 " h %02" PRIu64 " min", ns / 3600000000000,
			 ns / 60000000000 % 60);
	return room;
}

char *units_share(double part, double whole, char room[UNITS_TEXT])
{
	double percent = whole > 0 ? part / whole * 100 : 0;

	if (!(whole > 0))
		snprintf(room, UNITS_TEXT, "n/a");
	else if (percent > 0 && percent < 0.1)
		snprintf(room, UNITS_TEXT, "<0.1 %%");
	else
		snprintf(room, UNITS_TEXT, percent > 0 && percent < 9.95 ? "%.1f %%" : "%.0f %%", percent);
	return room;
}

char *units_count(uint64_t n, char room[UNITS_TEXT])
{
	char digits[24];
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n), out = 0;

	for (size_t i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			room[out++] = ',';
		room[out++] = digits[i];
	}
	room[out] = '\0';
	return room;
}

char *units_number(uint64_t n, const char *word, char room[UNITS_TEXT])
{
	size_t length = strlen(units_count(n, room));

	snprintf(room + length, UNITS_TEXT - length, " %s%s", word, n == 1 ? "" : "s");
	return room;
}

char *units_rate(uint64_t bytes, uint64_t ns, char room[UNITS_TEXT])
{
	if (!ns)
		snprintf(room, UNITS_TEXT, "n/a");
	else
		snprintf(room, UNITS_TEXT, "%.1f GB/s", (double)bytes / (double)ns);
	return room;
}

char *units_date(uint64_t ns, char room[UNITS_TEXT])
{
	time_t s = (time_t)(ns / 1000000000);
	struct tm parts;

	if (!gmtime_r(&s, &parts) || !strftime(room, UNITS_TEXT, "%Y-%m-%d %H:%M:%S UTC", &parts))
		snprintf(room, UNITS_TEXT, "n/a");
	return room;
}
