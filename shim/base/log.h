// SPDX-License-Identifier: Apache-2.0
/*
 * log.h: the log of the library: lines on standard error, each by a single write(2), without lock or allocation.
 *
 * Standard error is the file that descriptor 2 was when the library was loaded. If it was closed then, or is another
 * file by now, nothing is written: it may be a data file of the program. No call waits for a reader, except after
 * log_patience(). Lines for which there is no space are counted, and the next line that is written reports their
 * number.
 *
 * Every line starts "spillway: ". A process that never used CUDA memory writes none.
 */
#ifndef SPILLWAY_LOG_H
#define SPILLWAY_LOG_H

#include <stdatomic.h>
#include <stddef.h>

/* Writes one line of at most 1023 bytes; adds the newline. On a terminal it is wrapped. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* As log_line(), for a finished text, which is not wrapped. Async-signal-safe. */
void log_text(const char *text, size_t bytes);

/* Writes a line once for each place in the code that uses the macro. */
#define log_once(...)                                                                                                  \
	do {                                                                                                           \
		static atomic_flag log_said = ATOMIC_FLAG_INIT;                                                        \
		if (!atomic_flag_test_and_set(&log_said))                                                              \
			log_line(__VA_ARGS__);                                                                         \
	} while (0)

/* Takes the present descriptor 2 as standard error. Runs by itself at load; for tests. */
void log_begin(void);

/* Called when the process ends: from now on lines wait for space, for `ms` in total. */
void log_patience(unsigned ms);

/* Formats a number of bytes for people: "512 B", "1.5 MiB", "12.0 GiB". Returns buffer. */
char *log_bytes(char *buffer, size_t room, unsigned long long bytes);

#endif
