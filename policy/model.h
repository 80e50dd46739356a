/*
 * model.h: what a policy is once read. Private to this folder.
 *
 * Owner: whoever called policy_read(). Nothing in it changes after that, so no lock guards it.
 */
#ifndef POLICY_MODEL_H
#define POLICY_MODEL_H

#include "policy/policy.h"

enum {
	POLICY_MAX_RULES = 10000,  /* a list this long was made by a program that went wrong */
	POLICY_MAX_NAME = 64,      /* bytes of a rule's name */
	POLICY_MAX_FILE = 1 << 20, /* bytes of a policy file; 10,000 rules of 100 bytes fit */
	POLICY_MAX_SET = 1 << 16,  /* bytes of SPILLWAY_SET */
	POLICY_MAX_DEPTH = 16,     /* nested lists and maps; a valid policy needs 4 */
	POLICY_MAX_MAP = 256,      /* keys of one map; bounds the search for keys given twice */
	POLICY_MAX_ERRORS = 100,   /* kept of all that are counted */
	POLICY_MAX_WHY = 256,      /* bytes of a reason, before the key is put in front */
	POLICY_MAX_KEY = 64,       /* bytes of a dotted key; longer ones are unknown anyway */
	POLICY_MAX_GLOB = 255,     /* bytes of one pattern */
	POLICY_MAX_GLOBS = 64,     /* patterns of one condition */
	POLICY_MAX_DEVICES = 63,   /* bits of a word; the last one means any, known or not */
	POLICY_MAX_RANKS = 1024,   /* ranges of ranks of one condition */
	POLICY_MAX_INCLUDE = 8,    /* files that include one another, the first one not counted */
	POLICY_MAX_FILES = 64,     /* files of one policy */
};

/* lo <= bytes <= hi. Never empty in a policy that was read. */
struct policy_range {
	uint64_t lo, hi;
};

/* Patterns, any of which may match: n texts one behind the other, each terminated. text is owned; NULL = no condition. */
struct policy_globs {
	char *text;
	unsigned n, bytes;
};

/* Ranks in rising order, no two of the ranges touch. range is owned; NULL = no condition. */
struct policy_ranks {
	struct policy_range *range;
	unsigned n;
};

/* Some uses, in order. */
struct policy_uses {
	unsigned n;
	unsigned char use[POLICY_MAX_USES];
};

/* Conditions that few rules have: numbers beside the size, and texts of a request. */
enum { POLICY_NUMBER_ORDER, POLICY_NUMBER_LIVE, POLICY_NUMBER_FREE, POLICY_N_NUMBERS };
enum { POLICY_TEXT_LIBRARY, POLICY_TEXT_THREAD, POLICY_TEXT_NVTX, POLICY_N_TEXTS };

/* What binding found out about a rule. Anything but OURS: it matches nothing. */
enum policy_process {
	POLICY_PROCESS_OURS,         /* no condition, or it holds */
	POLICY_PROCESS_NO_NAME,      /* not bound yet, or the text was NULL */
	POLICY_PROCESS_NAME,         /* the name does not match */
	POLICY_PROCESS_NO_ARGUMENTS, /* as with the name */
	POLICY_PROCESS_ARGUMENTS,    /* the arguments do not match */
	POLICY_PROCESS_NO_RANK,      /* not bound yet, or it has none */
	POLICY_PROCESS_RANK,         /* the rank is another one */
};

/*
 * One rule as written. use and place are enumerations kept as int so that one parser can store all. A condition that was
 * not written is empty (no bits, no text) or everything there is (size, numbers).
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
	uint64_t cap;
	struct policy_managed managed;
	struct policy_system system;
	uint32_t given;                 /* bits: the keys of the rule table that were written */
	unsigned file, line, column;    /* where it was written; for warnings about later rules */
	unsigned number_in_file;        /* as messages call it */
	uint16_t library;               /* its patterns among policy.libraries, 0 = none */
	enum policy_process process_is; /* does the process match? */
};

/* Bits: the requests it is about. */
static inline unsigned policy_rule_apis(const struct policy_rule *rule)
{
	return rule->apis ? (unsigned)rule->apis : POLICY_APIS_ANY;
}

/* What every request is held against, 32 bytes a rule: 1,000 rules are 32 KiB to look through. */
struct policy_test {
	uint64_t lo, hi; /* bytes; lo > hi: matches nothing */
	uint64_t devices;
	uint16_t apis;
	uint16_t more; /* bits of enum policy_more_of: are there conditions in policy_more? */
	uint16_t memo; /* a text among them, by policy_more.memo, 0 = none: known not to match, the rest can wait */
	uint16_t
	    library; /* which patterns of the library it has: a bit of policy_library; 0 = none, and that bit is set */
};
enum policy_more_of {
	POLICY_MORE_LIBRARY = 1, /* settled by policy_library where the request has one */
	POLICY_MORE_OTHER = 2,
	POLICY_MORE_NUMBER = 4, /* times which: the number that policy.numbers is about */
};
_Static_assert(POLICY_N_NUMBERS < 4, "which of them has two bits");

/* The rest of a rule's conditions, looked at when its policy_test holds. */
struct policy_more {
	struct policy_range number[POLICY_N_NUMBERS];
	const struct policy_globs *text[POLICY_N_TEXTS]; /* NULL = any */
	unsigned char memo[POLICY_N_TEXTS]; /* equal patterns have equal numbers; 0 = none, tried each time */
	unsigned char known;                /* bits of enum policy_need that the request must know */
	unsigned char texts;                /* bits: which of text there are */
};

/* What was found out about the path of one library. path: it, terminated, behind the bits. */
struct policy_library {
	const char *path;
	uint64_t bits[]; /* which of policy.libraries match; bit 0 is set */
};

struct policy {
	char *name;
	uint64_t hash; /* of the texts read so far */
	char hash_text[17];
	int version, spill, capacity, summary, control, ipc, use, observe, async_use, vmm_spill, faults, host_share,
	    pdl;
	uint64_t peers; /* bits, by number of the device */
	struct policy_size device_budget, host_budget, host_total, peer_budget, heap_chunk, heap_release_threshold,
	    async_release_threshold;
	struct policy_managed managed;
	struct policy_system system;
	struct policy_rule *rules;
	struct policy_test *tests; /* packed from rules, one each */
	struct policy_range
	    *numbers; /* the first number each asks for, or everything: known not to hold, the rest can wait */
	struct policy_more *more;
	size_t n_rules, n_rules_room;
	/* The patterns of libraries that differ, from 1 on; owned, and what it points to is the rules'. */
	const struct policy_globs **libraries;
	unsigned n_libraries;
	unsigned needs;
	int64_t rank;     /* that the policy is bound to */
	uint32_t decided; /* bits: apis that some rule can match */
	bool rules_bad;   /* while reading: a rule has an error, so nothing can be said about what it covers */
	/* What messages call the files, and their real paths (NULL: none; a built-in, a text in memory); owned. */
	char *files[POLICY_MAX_FILES], *real_paths[POLICY_MAX_FILES];
	unsigned n_files;
};

/* One more text that the policy is made of: for policy_hash(). */
void policy_hash_add(struct policy *policy, const char *text, size_t bytes);

#endif
