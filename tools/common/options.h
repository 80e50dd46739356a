// SPDX-License-Identifier: Apache-2.0
/*
 * options.h: describes the options of a command in one table, which is used for parsing and for --help.
 */
#ifndef SPILLWAY_OPTIONS_H
#define SPILLWAY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OPTIONS_GO_ON = -1 };

/*
 * Reads one option. text is NULL if an optional value is absent. Returns false on an error: the reader must have
 * written the reason into why (POLICY_EXPLAIN_BYTES), or left why empty if it has printed the reason.
 */
typedef bool option_reader(void *request, int code, const char *text, char *why);

struct option_row {
	const char *name;
	const char
	    *value; /* the value's name in the help; NULL: the option takes no value; "[=N]": the value is optional */
	const char *help;   /* a line end in it continues on the next line */
	void (*more)(void); /* prints what follows the help of this option; may be NULL */
	option_reader
	    *read; /* NULL: `at` is the offset in the request of a bool, or of a text if the option takes a value */
	int code;  /* passed to the reader */
	size_t at;
	char letter; /* the short form; 0: none */
};
#define OPTION_FLAG(called, type, member, says)                                                                        \
	{                                                                                                              \
		.name = called, .help = says, .at = offsetof(struct type, member)                                      \
	}
#define OPTION_TEXT(called, takes, type, member, says)                                                                 \
	{                                                                                                              \
		.name = called, .value = takes, .help = says, .at = offsetof(struct type, member)                      \
	}
#define OPTION_READ(called, takes, reader, number, says)                                                               \
	{                                                                                                              \
		.name = called, .value = takes, .help = says, .read = reader, .code = number                           \
	}

struct options {
	const char *command, *head, *tail; /* the help before and after the options */
	void (*more)(void);                /* prints what follows the tail; may be NULL */
	const struct option_row *rows;
	size_t n;
	int column;   /* of the help, where the texts of the options begin */
	bool program; /* arguments after the first one that is not an option belong to another program */
};

/*
 * Fills the request. Returns OPTIONS_GO_ON, with optind at the first argument that is no option; otherwise the exit
 * status: --help was printed, or the error was.
 */
int options_read(const struct options *options, int argc, char **argv, void *request);

/* For the initialiser of struct options: an array of rows. */
#define OPTION_ROWS(list) .rows = list, .n = sizeof(list) / sizeof(*(list))

/* For `read`: reads a whole number within these bounds, or fills in why. */
bool options_whole(const char *text, uint64_t least, uint64_t most, uint64_t *ret_number, char *why);

#endif
