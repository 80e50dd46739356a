/*
 * log.h: what the library says, always on stderr, one line at a time by a single write(2), no lock, no memory.
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

/* Bytes for people: "512 B", "1.5 MiB", "12.0 GiB". Returns buffer. */
char *log_bytes(char *buffer, size_t room, unsigned long long bytes);

#endif
