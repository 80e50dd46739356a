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
};

/* lo <= bytes <= hi. Never empty in a policy that was read. */
struct policy_range {
	uint64_t lo, hi;
};

/* One rule as written. use is an enum policy_use; enumerations are kept as int so that one parser can store all. */
struct policy_rule {
	char name[POLICY_MAX_NAME + 1];
	struct policy_range size;
	int use, movable;
	unsigned line, column; /* where it was written; for warnings about later rules */
};

struct policy {
	char *name;
	int version, spill, capacity, summary, control, use;
	struct policy_size device_budget, host_budget;
	struct policy_rule *rules;
	/* rules[i].size again, packed, so that 1,000 rules are 16 KiB to look through. */
	struct policy_range *ranges;
	size_t n_rules;
};

#endif
