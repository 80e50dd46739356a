// SPDX-License-Identifier: Apache-2.0
/*
 * units.h: formats bytes, times and shares for people. Each function fills the caller's buffer (UNITS_TEXT bytes) and
 * returns it.
 */
#ifndef TOOLS_UNITS_H
#define TOOLS_UNITS_H

#include <stdint.h>

#define UNITS_TEXT 40

char *units_bytes(uint64_t bytes, char room[UNITS_TEXT]);            /* "12.3 GiB" */
char *units_time(uint64_t ns, char room[UNITS_TEXT]);                /* "12.3 s", "4 min 05 s" */
char *units_share(double part, double whole, char room[UNITS_TEXT]); /* "31 %"; "n/a" if whole is 0 */
char *units_count(uint64_t n, char room[UNITS_TEXT]);                /* "1,204" */
/* "1 wait", "1,204 waits". The plural of word must be formed with an s. */
char *units_number(uint64_t n, const char *word, char room[UNITS_TEXT]);
/* The rate at which bytes moved: "41.2 GB/s", as links are measured; "n/a" if ns is 0. */
char *units_rate(uint64_t bytes, uint64_t ns, char room[UNITS_TEXT]);
/* The date of a time in ns since 1970: "2026-11-21 20:08:17 UTC". */
char *units_date(uint64_t ns, char room[UNITS_TEXT]);

/* The same as texts that live until the end of the block. */
#define UNITS_ROOM           ((char[UNITS_TEXT]){0})
#define text_bytes(bytes)    units_bytes(bytes, UNITS_ROOM)
#define text_time(ns)        units_time(ns, UNITS_ROOM)
#define text_share(part, of) units_share(part, of, UNITS_ROOM)
#define text_count(n)        units_count(n, UNITS_ROOM)
#define text_number(n, word) units_number(n, word, UNITS_ROOM)
#define text_rate(bytes, ns) units_rate(bytes, ns, UNITS_ROOM)
#define text_date(ns)        units_date(ns, UNITS_ROOM)

#endif
