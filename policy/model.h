// SPDX-License-Identifier: Apache-2.0
/*
 * model.h: a policy after it was read, and what reads, checks and completes one. Private to this folder.
 *
 * The caller of policy_read() owns the policy. Nothing in it changes after policy_bind(), so no lock guards it.
 */
#ifndef POLICY_MODEL_H
#define POLICY_MODEL_H

#include "policy/policy.h"

/* ---- problems: policy.c ---- */

/* A place in a text. Line 0 means the file as a whole. */
struct policy_place {
	unsigned line, column;
};

/*
 * Adds a problem. Problems of one file are kept in the order of its lines, in whatever order they are found; those of
 * another file come after, also together. At most 100 are kept; when the list is full, an error replaces the last
 * warning. Without memory the text is lost, but not the count.
 */
__attribute__((format(printf, 5, 6))) void policy_problem_add(struct policy_errors *errors, bool warning,
							      const char *file, struct policy_place place,
							      const char *format, ...);
#define policy_error_add(errors, ...)   policy_problem_add(errors, false, __VA_ARGS__)
#define policy_warning_add(errors, ...) policy_problem_add(errors, true, __VA_ARGS__)
#define POLICY_WHOLE                    ((struct policy_place){0}) /* the file as a whole */
#define POLICY_NO_MEMORY                "out of memory while reading; try again"

/* ---- the policy ---- */

enum {
	POLICY_MAX_RULES = 10000,  /* a longer list was surely made by a faulty program */
	POLICY_MAX_NAME = 64,      /* bytes of a rule's name */
	POLICY_MAX_FILE = 1 << 20, /* bytes of a policy file; 10,000 rules of 100 bytes fit */
	POLICY_MAX_SET = 1 << 16,  /* bytes of SPILLWAY_SET */
	POLICY_MAX_DEPTH = 16,     /* depth of nested lists and maps; 4 suffice to write any policy */
	POLICY_MAX_MAP = 256,      /* keys of one map; bounds the search for duplicate keys */
	POLICY_MAX_ERRORS = 100,   /* problems that are kept; more are only counted */
	POLICY_MAX_WHY = 256,      /* bytes of a reason, before the key is put in front */
	POLICY_MAX_KEY = 64,       /* bytes of a dotted key; longer ones are unknown anyway */
	POLICY_MAX_GLOB = 255,     /* bytes of one pattern */
	POLICY_MAX_GLOBS = 64,     /* patterns of one condition */
	POLICY_MAX_DEVICES = 63,   /* bits of a word; the last bit means any device, known or not */
	POLICY_MAX_RANKS = 1024,   /* ranges of ranks of one condition */
	POLICY_MAX_INCLUDE = 8,    /* files that include one another, the first one not counted */
	POLICY_MAX_FILES = 64,     /* files of one policy */
	POLICY_MAX_KEYS = 48,      /* keys of one table of keys.h; checked at compile time */
};

/* A range, lo and hi included. Never empty in a policy that was read. */
struct policy_range {
	uint64_t lo, hi;
};

/* Patterns, one of which must match: n terminated texts, one behind the other. text is owned; NULL = no condition. */
struct policy_globs {
	char *text;
	unsigned n, bytes;
};

/* Ranks in rising order; no two ranges touch. range is owned; NULL = no condition. */
struct policy_ranks {
	struct policy_range *range;
	unsigned n;
};

/* Uses in the order in which they are tried. */
struct policy_uses {
	unsigned n;
	unsigned char use[POLICY_MAX_USES];
};

/* Conditions that few rules have: on numbers other than the size, and on texts of a request. */
enum { POLICY_NUMBER_ORDER, POLICY_NUMBER_LIVE, POLICY_NUMBER_FREE, POLICY_N_NUMBERS };
enum { POLICY_TEXT_LIBRARY, POLICY_TEXT_THREAD, POLICY_TEXT_CALLER, POLICY_N_TEXTS };

/* What policy_bind() found out about a rule. A rule with any value but OURS matches nothing. */
enum policy_process {
	POLICY_PROCESS_OURS,         /* no condition, or it holds */
	POLICY_PROCESS_NO_NAME,      /* not bound yet, or the text was NULL */
	POLICY_PROCESS_NAME,         /* the name does not match */
	POLICY_PROCESS_NO_ARGUMENTS, /* not bound yet, or the text was NULL */
	POLICY_PROCESS_ARGUMENTS,    /* the arguments do not match */
	POLICY_PROCESS_NO_RANK,      /* not bound yet, or the process has no rank */
	POLICY_PROCESS_RANK,         /* the rank does not match */
};

/*
 * One rule as written. use and place are enumerations stored as int, so that one parser can store all of them. A
 * condition that was not written is empty (no bits, no text) or the full range (size, numbers).
 */
struct policy_rule {
	char name[POLICY_MAX_NAME + 1];
	struct policy_range size, number[POLICY_N_NUMBERS];
	int apis; /* bits */
	uint64_t devices;
	struct policy_ranks ranks;
	struct policy_globs process, arguments, text[POLICY_N_TEXTS];
	int use, place, movable, vmm_spill;
	struct policy_uses fallback;
	struct policy_size cap, spill_limit; /* auto: none */
	struct policy_managed managed;
	struct policy_system system;
	uint32_t given;                 /* bits: keys of the rule table that were written */
	struct policy_place written;    /* where the rule stands, for warnings, and ... */
	unsigned file;                  /* ... in which file */
	unsigned number_in_file;        /* number of the rule in messages */
	uint16_t library;               /* number of its patterns in policy.libraries, 0 = none */
	enum policy_process process_is; /* whether the rule is for this process */
};

/* Returns the APIs that the rule decides about, as bits. */
static inline unsigned policy_rule_apis(const struct policy_rule *rule)
{
	return rule->apis ? (unsigned)rule->apis : POLICY_APIS_ANY;
}

static inline uint64_t policy_cap(const struct policy_rule *rule)
{
	return rule->cap.kind == POLICY_SIZE_AUTO ? POLICY_NO_CAP : rule->cap.value;
}

/* The conditions that every request is tested against, 32 bytes for each rule: 1,000 rules are 32 KiB. */
struct policy_test {
	uint64_t lo, hi; /* bytes; a test with lo > hi matches nothing */
	uint64_t devices;
	uint16_t apis;
	uint16_t more; /* bits of enum policy_more_of: which further conditions exist */
	uint16_t memo; /* number of one text condition, 0 = none; if it is known not to match, the rest is skipped */
	uint16_t
	    library; /* number of the library patterns, a bit of policy_library; 0 = none, and bit 0 is always set */
};
enum policy_more_of {
	POLICY_MORE_LIBRARY = 1, /* decided by policy_library if the request has one */
	POLICY_MORE_OTHER = 2,
	POLICY_MORE_NUMBER = 4, /* multiplied by the index of the number that policy.numbers holds */
};
_Static_assert(POLICY_N_NUMBERS < 4, "which of them has two bits");

/* The other conditions of a rule, tested only if its policy_test holds. */
struct policy_more {
	struct policy_range number[POLICY_N_NUMBERS];
	const struct policy_globs *text[POLICY_N_TEXTS]; /* NULL = any */
	unsigned char memo[POLICY_N_TEXTS]; /* by text; equal patterns have equal numbers; 0 = none, tested each time */
	unsigned char known;                /* bits of enum policy_need: numbers that the request must know */
	unsigned char texts;                /* bits: which texts have a condition */
};

/* Which patterns match the path of one library. path is terminated and stored behind the bits. */
struct policy_library {
	const char *path;
	uint64_t bits[]; /* bits by number in policy.libraries; bit 0 is always set */
};

/* Where the value of a key was written. */
enum policy_from { POLICY_FROM_NOWHERE, POLICY_FROM_FILE, POLICY_FROM_SET };
struct policy_origin {
	enum policy_from from;
	unsigned file; /* index in policy.files, if from a file */
	struct policy_place place;
};

/* What a policy limits has a key each: the sizes, and the mode. */
enum { POLICY_N_LIMITED = POLICY_LIMIT_COUNT + 1 };

struct policy {
	char *name;
	uint64_t hash; /* hash of the texts read so far */
	char hash_text[17];
	/*
	 * While a text is read its limits are its own; afterwards those of the machine, whichever text the policy is.
	 */
	struct policy_settings settings;
	struct policy_origin origins[POLICY_MAX_KEYS]; /* by key of policy_file_keys */
	/* By key of policy_limit_keys: the value as it was written, if a limit has cut it; "" otherwise. */
	char before_cut[POLICY_N_LIMITED][POLICY_SETTING_BYTES];
	struct policy_rule *rules;
	struct policy_test *tests; /* packed from rules, one for each */
	struct policy_range
	    *numbers; /* by rule: range of its first number condition, or the full range; tested before the rest */
	struct policy_more *more;
	size_t n_rules, n_rules_room;
	/* The distinct library patterns, from index 1. The array is owned; the patterns belong to the rules. */
	const struct policy_globs **libraries;
	unsigned n_libraries;
	unsigned needs;
	int64_t rank;     /* rank of the process that the policy is bound to */
	uint32_t decided; /* bits: APIs that some rule can match */
	bool rules_bad;   /* while reading: a rule has an error, so unreachable rules are not looked for */
	/* Names of the files in messages, and their real paths (NULL if a text has none); owned. */
	char *files[POLICY_MAX_FILES], *real_paths[POLICY_MAX_FILES];
	unsigned n_files;
};

/* Adds a text to the hash of the policy, for policy_hash(). */
void policy_hash_add(struct policy *policy, const char *text, size_t bytes);

/* ---- the built-in policies: policy.c ---- */

/* Returns the text of a built-in policy (static, not terminated), or NULL if none has that name. */
const char *policy_builtin_find(const char *name, size_t *ret_bytes);

/* ---- after reading: decide.c, check.c ---- */

/*
 * Completes a policy after everything has been read: rules inherit values of the file for keys that they leave out,
 * and the tests are packed. Returns false if there is no memory. Afterwards the policy is not bound to a process.
 */
bool policy_finish(struct policy *policy);

/*
 * Checks a policy that was read without an error, including the settings on top. A combination without a meaning is
 * an error; one that is harmless but does not do what it says is a warning.
 */
void policy_check_whole(const struct policy *policy, struct policy_errors *errors);

/*
 * Warns about every rule that can never be the first to match. Without memory it gives no warnings and does no other
 * harm.
 */
void policy_warn_unreachable(const struct policy *policy, struct policy_errors *errors);

/*
 * ---- the policy of the machine: machine.c ----
 * /etc/spillway/policy.yaml: the policy of who names none, and limits that no policy can exceed. The limits keep order
 * among those who want it. They are no security boundary: who owns a process can start it without the library.
 */

/* No limit on anything. */
extern const struct policy_limits policy_no_limits;

/* Returns true if the name is that of the machine's policy. */
bool policy_machine_is(const char *file);

/*
 * Reads the machine's policy. Returns its text, which the caller frees, or NULL if there is none; also if it is
 * refused, because it or its folder is not its owner's (policy_machine_owner) alone to write, or cannot be read: then a
 * warning is added to errors.
 */
char *policy_machine_read(size_t *ret_bytes, struct policy_errors *errors);

/*
 * Gets the limits of the text of the machine's policy. Errors in it, wherever they are, are added to errors: a limit
 * that cannot be read must not be taken for none. Its warnings are not.
 */
void policy_machine_limits(const char *text, size_t bytes, struct policy_limits *ret_limits,
			   struct policy_errors *errors);

/*
 * Gives the policy these limits, and cuts the settings that are known to exceed one; a setting that was written and cut
 * is a warning. The policy must have been read without an error.
 */
void policy_limits_apply(struct policy *policy, const struct policy_limits *limits, struct policy_errors *errors);

#endif
