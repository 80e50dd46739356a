/*
 * log.h: what the library says, always on stderr, one line at a time by a single write(2), no lock, no memory.
 *
 * Standard error is the file that descriptor 2 was when the library was loaded. If it was closed then, or is another file
 * by now, nothing is written: that may be a file of the program's data. No call waits for a reader, but for what
 * log_patience() says. Lines that find no room are counted, and the next one that does says how many there were.
 *
 * Every line starts "spillway: ". A process that never used CUDA memory says nothing.
 */
#ifndef SPILLWAY_LOG_H
#define SPILLWAY_LOG_H

#include <stdatomic.h>
#include <stddef.h>

/* One line of at most 1023 bytes; the newline is added. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, once for each place in the code that says it. */
#define log_once(...)                                                                                                  \
	do {                                                                                                           \
		static atomic_flag log_said = ATOMIC_FLAG_INIT;                                                        \
		if (!atomic_flag_test_and_set(&log_said))                                                              \
			log_line(__VA_ARGS__);                                                                         \
	} while (0)

/* Descriptor 2 is standard error as it is now. It is at load by itself; for tests. */
void log_begin(void);

/* The process ends: from now on lines wait for room, for that long all together. */
void log_patience(unsigned ms);

/* Bytes for people: "512 B", "1.5 MiB", "12.0 GiB". Returns buffer. */
char *log_bytes(char *buffer, size_t room, unsigned long long bytes);

#endif
