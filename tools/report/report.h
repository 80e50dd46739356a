/*
 * report.h: the outputs of `spillway report`. Each writes one digest (digest.h), or several, to stdout. Whether that could
 * be written is seen at the end by main().
 */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "tools/digest/digest.h"

void report_text(const struct digest *digest);
void report_json(const struct digest *digest);
void report_html(const struct digest *digest);
void report_perfetto(const struct digest *digest);

/* What --csv=TABLE can be; false: there is no such table. */
bool report_csv_known(const char *table);
void report_csv(const struct digest *digest, const char *table);
#define REPORT_CSV_TABLES "allocations, series, moves, rules"

/* Several runs beside each other. */
void report_compare_text(const struct digest *digests, size_t n);
void report_compare_json(const struct digest *digests, size_t n);

/* Wall-clock time of a moment of the trace's clock, ns since 1970. */
uint64_t report_wall(const struct trace *trace, uint64_t time);

/* A name on a screen's line: `bytes` of room, control characters and broken UTF-8 gone. Returns room. */
char *report_name(const struct digest *digest, enum digest_by by, uint64_t number, char *room, size_t bytes);

/* Largest blocks and the like: how many of them text and JSON show. */
enum { REPORT_LINES = 12, REPORT_LIST = 200 };

/* The blocks that cost most: waiting, then moved bytes, then size. At most `most` of them into ret_blocks; how many. */
size_t report_blocks(const struct digest *digest, uint32_t *ret_blocks, size_t most);

#endif
