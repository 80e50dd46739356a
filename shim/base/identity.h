/*
 * identity.h: a number that identifies this process on the machine.
 *
 * A process id is unique only in its PID namespace: in every pod the program is process 1, and two of them may have
 * started in the same tick. So each process draws a random number when it is first needed; after exec and in the child
 * of a fork a new one is drawn. The number is neither secret nor a credential.
 *
 * Locking: takes no lock; any thread may call these. identity_get() preserves errno.
 */
#ifndef SPILLWAY_IDENTITY_H
#define SPILLWAY_IDENTITY_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Never 0. */
uint64_t identity_get(void);
/*
 * Returns the number of the space in which this process's id and times are counted; 0 if /proc is not mounted or
 * belongs to another PID namespace. Processes with the same number mean the same by an id and by a time of
 * CLOCK_MONOTONIC.
 */
uint64_t identity_space(void);
/*
 * The parts of such a number: the inode of the PID namespace; and of the time namespace, 0: the first one of the
 * machine.
 */
static inline uint64_t identity_space_pids(uint64_t space)
{
	return (uint32_t)space;
}
static inline uint64_t identity_space_clock(uint64_t space)
{
	return space >> 32;
}

/* Writes the number as 16 hexadecimal digits to room. Returns room. */
#define IDENTITY_DIGITS 16
#define IDENTITY_TEXT   (IDENTITY_DIGITS + 1)
static inline const char *identity_text(uint64_t identity, char room[IDENTITY_TEXT])
{
	snprintf(room, IDENTITY_TEXT, "%016" PRIx64, identity);
	return room;
}

/* Parses the output of identity_text(), which must end at `end`. Returns false if it is anything else. */
static inline bool identity_read(const char *text, const char *end, uint64_t *ret_identity)
{
	uint64_t value = 0;

	if (end - text != IDENTITY_DIGITS)
		return false;
	for (; text < end; text++) {
		bool digit = *text >= '0' && *text <= '9';

		if (!digit && (*text < 'a' || *text > 'f'))
			return false;
		value = value << 4 | (uint64_t)(digit ? *text - '0' : *text - 'a' + 10);
	}
	*ret_identity = value;
	return true;
}

#endif
