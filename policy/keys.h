/*
 * keys.h: the tables of keys.def, and reading one value. Private to this folder, but for the help of the tool.
 */
#ifndef POLICY_KEYS_H
#define POLICY_KEYS_H

#include "policy/model.h"

/* What a key's value may be; each type is read by one function in keys.c. */
enum policy_type {
	POLICY_TYPE_SIZE,      /* struct policy_size */
	POLICY_TYPE_ENUM,      /* int, one of the named values of the key's set */
	POLICY_TYPE_TEXT,      /* char[POLICY_MAX_NAME + 1] */
	POLICY_TYPE_CONDITION, /* struct policy_range */
	POLICY_TYPE_RULES,     /* the list of rules: not a single value, see parse.c */
};

/* The sets of named values. */
enum policy_set {
	POLICY_SET_NONE,
	POLICY_SET_VERSION,
	POLICY_SET_USE,
	POLICY_SET_SPILL,
	POLICY_SET_CAPACITY,
	POLICY_SET_BOOL, /* yes, no, true, false, on, off; never 0 or 1 */
};

struct policy_key {
	const char *name; /* dotted */
	enum policy_type type;
	enum policy_set set;
	size_t offset;        /* of the value in what the table describes */
	const char *standard; /* value when absent, as written; NULL = none */
	const char *help;
};

/* A table of keys: those of a file (offsets into struct policy) or of a rule (struct policy_rule). */
struct policy_keys {
	const struct policy_key *keys;
	size_t n;
};
enum { POLICY_MAX_KEYS = 32 }; /* in one table; checked when compiled */
extern const struct policy_keys policy_file_keys, policy_rule_keys;

/* One named value. */
struct policy_value {
	enum policy_set set;
	int value;
	const char *name, *help;
};
/* The values of a set in order: start with NULL, stop at NULL. */
const struct policy_value *policy_value_next(enum policy_set set, const struct policy_value *before);

/* Index of the key of that name, or -1. */
int policy_key_find(const struct policy_keys *keys, const char *name);

/*
 * Read text as the value of key and store it in target, the struct that the table describes. False: nothing is stored
 * and ret_why (POLICY_MAX_WHY bytes) says what is wrong and what to write instead. Not for POLICY_TYPE_RULES.
 */
bool policy_value_parse(const struct policy_key *key, const char *text, void *target, char *ret_why);

/* Store the standard value of every key of a table that has one. */
void policy_keys_standard(const struct policy_keys *keys, void *target);

/*
 * What to write instead of an unknown key, "did you mean ...?" or the list of what there is, into ret_hint
 * (POLICY_MAX_WHY bytes). name: dotted, in full; prefix: the dotted part of it that is known ("device." or "").
 */
void policy_key_hint(const struct policy_keys *keys, const char *prefix, const char *name, char *ret_hint);

/* Is name, without its last dot, the beginning of some key ("device" of "device.budget")? */
bool policy_key_is_section(const struct policy_keys *keys, const char *name);

#endif
