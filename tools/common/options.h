/*
 * options.h: the options of a command as one table: it is parsed, and it is what --help prints.
 */
#ifndef SPILLWAY_OPTIONS_H
#define SPILLWAY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum { OPTIONS_GO_ON = -1 };

/* text is NULL where an optional value is absent. Returns false after filling why (POLICY_EXPLAIN_BYTES), or leaving it empty if it has said why. */
typedef bool option_reader(void *request, int code, const char *text, char *why);

struct option_row {
	const char *name;
	const char *value;   /* its name in the help; NULL: none; "[=N]": it may be absent */
	const char *help;    /* a line end in it goes on below */
	void (*more)(void);  /* prints what follows the help; NULL: nothing */
	option_reader *read; /* NULL: `at` is the place in the request of a bool, or of a text if there is a value */
	int code;            /* for the reader */
	size_t at;
	char letter; /* a short form; 0: none */
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
	void (*more)(void);                /* prints what follows the tail; NULL: nothing */
	const struct option_row *rows;
	size_t n;
	int column;   /* of the help, where the texts of the options begin */
	bool program; /* what follows the first argument that is none is not ours */
};

/*
 * Fills the request. Returns OPTIONS_GO_ON, optind then being the first argument that is no option; else the status to end
 * with: --help was printed, or it has been said what is wrong.
 */
int options_read(const struct options *options, int argc, char **argv, void *request);

#endif
