/*
 * report.h: the outputs of `spillway report`. Each function writes one digest (digest.h), or several, to stdout. Write
 * errors are detected at the end by main().
 */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "tools/digest/digest.h"

void report_text(const struct digest *digest);
void report_json(const struct digest *digest);
/* One run, or two side by side. */
void report_html(const struct digest *digests, size_t n);
void report_perfetto(const struct digest *digest);

/* Shows several runs side by side. */
void report_compare_text(const struct digest *digests, size_t n);
void report_compare_json(const struct digest *digests, size_t n);

/* Returns the wall-clock time, in ns since 1970, of a time of the trace's clock. */
uint64_t report_wall(const struct trace *trace, uint64_t time);

/*
 * Writes a name that fits on one line of a screen into the buffer of `bytes` bytes, without control characters and
 * invalid UTF-8. Returns the buffer.
 */
char *report_name(const struct digest *digest, enum digest_by by, uint64_t number, char *room, size_t bytes);

/* Maximum length of lists, such as the largest blocks, in text and in JSON. */
enum { REPORT_LINES = 12, REPORT_LIST = 200 };

/*
 * Finds the costliest blocks: sorted by waiting, then by moved bytes, then by size. Stores at most `most` of them and
 * returns their number.
 */
size_t report_blocks(const struct digest *digest, uint32_t *ret_blocks, size_t most);

#endif
