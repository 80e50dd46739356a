// SPDX-License-Identifier: Apache-2.0
/*
 * keys.h: the tables of keys.def, and reading and writing values. Private to this folder, except for the help of the
 * tool.
 */
#ifndef POLICY_KEYS_H
#define POLICY_KEYS_H

#include "policy/model.h"

/* The type of a key's value; each type is read by one function in value.c. */
enum policy_type {
	POLICY_TYPE_SIZE,    /* struct policy_size: auto, bytes or a share; with a set: what that says */
	POLICY_TYPE_TIME,    /* uint64_t: ns, or 0 for auto */
	POLICY_TYPE_NUMBER,  /* int, in the range of the set */
	POLICY_TYPE_ENUM,    /* int, one of the named values of the key's set */
	POLICY_TYPE_FLAGS,   /* int, bits of the named values; one or a list */
	POLICY_TYPE_USES,    /* struct policy_uses, named values in order; one or a list */
	POLICY_TYPE_TEXT,    /* char[POLICY_MAX_NAME + 1] */
	POLICY_TYPE_GLOBS,   /* struct policy_globs; one or a list */
	POLICY_TYPE_DEVICES, /* uint64_t, bits; one or a list */
	POLICY_TYPE_RANKS,   /* struct policy_ranks; one or a list */
	POLICY_TYPE_RANGE,   /* struct policy_range, of bytes unless the set says more */
	POLICY_TYPE_PART,    /* a part of the file, not a value: see parse.c */
};

/* Sets of named values; behind BOOL, sets without names: which values of a type are meant. */
enum policy_set {
	POLICY_SET_NONE,
	POLICY_SET_VERSION,
	POLICY_SET_USE,
	POLICY_SET_API,
	POLICY_SET_PLACE,
	POLICY_SET_ADVISE,
	POLICY_SET_PREFETCH,
	POLICY_SET_ASYNC, /* where stream-ordered memory comes from */
	POLICY_SET_SPILL,
	POLICY_SET_CAPACITY,
	POLICY_SET_SHARE,
	POLICY_SET_TURNS,
	POLICY_SET_PDL,
	POLICY_SET_CONTENTS,
	POLICY_SET_REPORT,
	POLICY_SET_SUMMARY, /* yes, no, full, and the spellings of BOOL */
	POLICY_SET_FAULTS,
	POLICY_SET_MOVABLE,  /* yes, no, exact, and the spellings of BOOL */
	POLICY_SET_VMM,      /* no, move, and the spellings of no; never 0 or 1 */
	POLICY_SET_BOOL,     /* yes, no, true, false, on, off; never 0 or 1 */
	POLICY_SET_START,    /* a size: start, auto, bytes or a share */
	POLICY_SET_MOST,     /* a size: none (stored as auto), bytes or a share */
	POLICY_SET_BYTES,    /* a size: auto or bytes */
	POLICY_SET_CHUNK,    /* a size: auto, or bytes that a chunk can have */
	POLICY_SET_CAP,      /* a size: none (stored as auto) or bytes */
	POLICY_SET_WAIT,     /* a time: ns, 0 for no, POLICY_WAIT_ALWAYS for yes */
	POLICY_SET_WEIGHT,   /* a number, 1 to POLICY_WEIGHT_MOST */
	POLICY_SET_NODE,     /* a number, or POLICY_NODE_AUTO */
	POLICY_SET_PRESSURE, /* a range of what is free on the device */
	POLICY_SET_ORDER,    /* a range of allocations */
	POLICY_SET_RULES,
	POLICY_SET_LIMITS,
	POLICY_SET_INCLUDE, /* parts */
};

struct policy_key {
	const char *name; /* dotted */
	enum policy_type type;
	enum policy_set set;
	size_t offset;        /* of the value in the struct that the table describes */
	const char *standard; /* value when absent, as written; NULL = none */
	const char *help;
};

/*
 * A table of keys: those of a file and of its limits (offsets into struct policy_settings), or of a rule (struct
 * policy_rule).
 */
struct policy_keys {
	const struct policy_key *keys;
	size_t n;
};
extern const struct policy_keys policy_file_keys, policy_rule_keys, policy_limit_keys;

/* One named value. */
struct policy_value {
	enum policy_set set;
	int value;
	const char *name, *help;
};
/* Returns the next value of a set. Start with NULL; NULL at the end. */
const struct policy_value *policy_value_next(enum policy_set set, const struct policy_value *before);
/* Returns the first name of a value, "?" if it has none. */
const char *policy_value_name(enum policy_set set, int value);

/* Returns the index of the key of that name, or -1. */
int policy_key_find(const struct policy_keys *keys, const char *name);

/*
 * Reads text as the value of key and stores it in target, the struct that the table describes. Returns false if the
 * text is wrong: ret_why (POLICY_MAX_WHY bytes) says what is wrong and what to write instead, and nothing is stored,
 * except that a value that may be a list is then empty. Not for POLICY_TYPE_PART.
 */
bool policy_value_parse(const struct policy_key *key, const char *text, void *target, char *ret_why);

/*
 * Values that may be lists: policy_value_is_list() returns true for a key with such a value, policy_value_clear()
 * makes it empty, policy_value_add() appends an element and fails as policy_value_parse() does.
 */
bool policy_value_is_list(const struct policy_key *key);
void policy_value_clear(const struct policy_key *key, void *target);
bool policy_value_add(const struct policy_key *key, const char *text, void *target, char *ret_why);

/* Returns an example of the value of a key, for messages: the standard value or a similar one. */
const char *policy_value_example(const struct policy_key *key);

/*
 * policy_values_list() appends the values of a set as "a, b or c" to ret_why, policy_why_append() a text. ret_why has
 * POLICY_MAX_WHY bytes; longer text is cut.
 */
void policy_values_list(enum policy_set set, char *ret_why);
void policy_why_append(char *ret_why, const char *more);

/* Stores the standard value of every key of a table that has one. */
void policy_keys_standard(const struct policy_keys *keys, void *target);

/* Returns a key whose last part is `typed`, ignoring case: "device.budget" for "budget". NULL if there is none. */
const char *policy_key_ending(const struct policy_keys *keys, const char *typed);
/*
 * Writes what to use instead of an unknown key, "did you mean ...?" or the list of keys, into ret_hint
 * (POLICY_MAX_WHY bytes). name: dotted, in full; prefix: the part of it that is known ("device." or "").
 */
void policy_key_hint(const struct policy_keys *keys, const char *prefix, const char *name, char *ret_hint);

/* Returns the first key that begins with name and a dot ("device.budget" for "device"). NULL if there is none. */
const struct policy_key *policy_key_in_section(const struct policy_keys *keys, const char *name);

/* Writes the value of a key as in a policy; "..." for a list. target: as for policy_value_parse(). Returns text. */
char *policy_value_write(const struct policy_key *key, const void *target, char text[POLICY_SETTING_BYTES]);

/*
 * ---- sizes: size.c ----
 * A size is digits, an optional fraction, and a unit: B, KiB, MiB, GiB, TiB (1024) or kB, KB, MB, GB, TB (1000); or
 * N%. Only 0 needs no unit. Reading fails as policy_value_parse() does. No locale, no rounding.
 */

/* Reads ">= SIZE", "> SIZE", "<= SIZE", "< SIZE", "== SIZE" or "SIZE .. SIZE" (both ends included). */
bool policy_condition_parse(const char *text, struct policy_range *ret_range, char *ret_why);

/* Writes a condition as in a policy: ">= 64MiB", "1MiB .. 64MiB". buffer needs POLICY_RANGE_TEXT. Returns buffer. */
#define POLICY_RANGE_TEXT 72
char *policy_range_format(const struct policy_range *range, char buffer[POLICY_RANGE_TEXT]);

/* ---- conditions on the rank of a process in its job ---- */

/* Returns true if the rank is one of them; false for a rank below 0, which means no rank. */
bool policy_ranks_match(const struct policy_ranks *ranks, int64_t rank);

/* Returns true if every rank of inner is surely one of outer. outer may have no condition. */
bool policy_ranks_cover(const struct policy_ranks *outer, const struct policy_ranks *inner);

void policy_ranks_free(struct policy_ranks *ranks);

/* Writes the ranks as in a policy, with "or" between them, cut to the buffer. Returns buffer. */
char *policy_ranks_format(const struct policy_ranks *ranks, char *buffer, size_t bytes);

/*
 * ---- patterns on texts ----
 * '*' stands for any bytes, including slashes, '?' for one byte; every other byte for itself.
 */

bool policy_glob_match(const char *pattern, const char *text);

/* Returns true if any of the patterns matches; false for a text that is NULL. */
bool policy_globs_match(const struct policy_globs *globs, const char *text);

/* Returns true if every text that matches inner surely matches outer. Only literal equality is recognized. */
bool policy_globs_cover(const struct policy_globs *outer, const struct policy_globs *inner);

void policy_globs_free(struct policy_globs *globs);

/* Writes the patterns in quotes with "or" between them, cut to the buffer. Returns buffer. */
char *policy_globs_format(const struct policy_globs *globs, char *buffer, size_t bytes);

#endif
