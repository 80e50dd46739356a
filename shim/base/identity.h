/*
 * identity.h: a number for this process that no other process of the machine has.
 *
 * A process id is unique in its PID namespace alone: in every pod the program is process 1, and two of them may have been
 * started in the same tick. So each process draws a number at random when it is first asked for; another program in the
 * same process (exec) draws a new one, and so does the child of a fork. It is no secret and proves nothing.
 *
 * Locking: none; any thread. identity_get() leaves errno as it is.
 */
#ifndef SPILLWAY_BASE_IDENTITY_H
#define SPILLWAY_BASE_IDENTITY_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Never 0. */
uint64_t identity_get(void);
/* The PID namespace of this process: the number of its inode. 0: not known, /proc is not mounted or of another one. */
uint64_t identity_space(void);

/* As people see it: 16 hexadecimal digits. */
#define IDENTITY_DIGITS 16
#define IDENTITY_TEXT   (IDENTITY_DIGITS + 1)
static inline const char *identity_text(uint64_t identity, char room[IDENTITY_TEXT])
{
	snprintf(room, IDENTITY_TEXT, "%016" PRIx64, identity);
	return room;
}

/* Read what identity_text() wrote, up to `end` of the text. Returns false if it is anything else. */
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
