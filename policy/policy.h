/*
 * policy.h: what a user asked for, read once, then only looked at.
 *
 * A policy comes from a built-in name or a file (YAML), then from "key=value,..." on top. Reading gathers every error
 * with file, line and column before it gives up, so that one look at the output is enough. Once read a policy is
 * constant: policy_decide() is a pure function, takes no lock and no memory, and may be called from any thread.
 *
 * This folder knows nothing of CUDA and of the shim. It needs libc and libyaml.
 */
#ifndef SPILLWAY_POLICY_H
#define SPILLWAY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which backend serves an allocation. */
enum policy_use {
	POLICY_USE_HEAP,   /* the growable heap, under the budgets */
	POLICY_USE_DRIVER, /* where the driver would have put it */
	POLICY_USE_COUNT,  /* must be last */
};

/* What happens to heap memory over the device budget (design: Spilling). */
enum policy_spill {
	POLICY_SPILL_OFF,    /* out of memory */
	POLICY_SPILL_STATIC, /* host-backed chunks, placed once */
	POLICY_SPILL_EXACT,  /* moved to where they are used, while nothing runs */
	POLICY_SPILL_FAST,   /* moved beside the running kernels; an unforeseen access stops the job */
	POLICY_SPILL_COUNT,  /* must be last */
};

/* What cuMemGetInfo and cuDeviceTotalMem tell the program. */
enum policy_capacity {
	POLICY_CAPACITY_PHYSICAL,    /* the true total; free = what may still be allocated, at most the total */
	POLICY_CAPACITY_BUDGET,      /* total = the device budget */
	POLICY_CAPACITY_DEVICE_HOST, /* total = device budget + host budget */
	POLICY_CAPACITY_COUNT,       /* must be last */
};

/* A number of bytes, a share of a whole that is known later, or "auto". */
struct policy_size {
	enum { POLICY_SIZE_AUTO, POLICY_SIZE_BYTES, POLICY_SIZE_PERCENT } kind;
	uint64_t value; /* bytes, or hundredths of a percent (12.5% = 1250) */
};

/* One request, as far as rules may look at it. */
struct policy_request {
	uint64_t bytes;
};

/* The answer to one request. rule: its index, or -1 when no rule matched and the default holds. */
struct policy_decision {
	enum policy_use use;
	int rule;
	bool movable; /* heap memory: may it be moved between device and host? */
};

struct policy; /* opaque; constant once read */

/* One problem found in a policy. file is the path, the built-in's name, or "SPILLWAY_SET"; line and column from 1,
 * or line 0 when the problem is the file as a whole (it is not there, too large, empty): then no place is printed. */
struct policy_error {
	char file[160];
	unsigned line, column;
	bool warning;
	char text[320]; /* what is wrong, then a suggestion where there is one; no newline */
};

/* Every problem found, in the order of the file. At most 100 are kept; n counts all. */
struct policy_errors {
	size_t n, n_kept, n_errors; /* all, kept, and how many of all are errors and not warnings */
	struct policy_error *kept;  /* owned; policy_errors_free() */
};

/*
 * Read a policy. name: a built-in's name, or a path (anything with a '/' or ending in .yaml or .yml); NULL or "" is
 * the built-in "heap". set: "key=value,key=value" applied on top, or NULL. errors may not be NULL; it is initialised
 * here and holds every error and warning on return. Returns NULL when there was an error: nothing is half applied.
 * The caller owns the result and frees it with policy_free(). Never prints, never exits.
 */
struct policy *policy_read(const char *name, const char *set, struct policy_errors *errors);
void policy_free(struct policy *policy);
void policy_errors_free(struct policy_errors *errors);

/* Print one problem as "file:line:column: error: text" into buffer (always terminated). Returns buffer. */
char *policy_error_format(const struct policy_error *error, char *buffer, size_t bytes);

/* First rule that matches wins; else the policy's default use. Pure; at most a few ns a rule. */
struct policy_decision policy_decide(const struct policy *policy, const struct policy_request *request);

/* What the policy says; valid for its life. */
const char *policy_name(const struct policy *policy);                /* built-in's name or the path */
const char *policy_rule_name(const struct policy *policy, int rule); /* "default" for -1, "rule N" if unnamed */
size_t policy_n_rules(const struct policy *policy);
bool policy_uses(const struct policy *policy, enum policy_use use); /* can any request be decided so? */
struct policy_size policy_device_budget(const struct policy *policy);
struct policy_size policy_host_budget(const struct policy *policy);
enum policy_spill policy_spill_mode(const struct policy *policy);
enum policy_capacity policy_capacity(const struct policy *policy);
bool policy_summary(const struct policy *policy); /* print the end-of-run summary? */
bool policy_control(const struct policy *policy); /* open the control socket (control.h)? */

/* Names of the built-in policies, NULL-terminated. */
const char *const *policy_builtin_names(void);

/* The name of a value, as written in a policy. */
const char *policy_use_name(enum policy_use use);
const char *policy_spill_name(enum policy_spill mode);
const char *policy_capacity_name(enum policy_capacity capacity);

#endif
