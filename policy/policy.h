// SPDX-License-Identifier: Apache-2.0
/*
 * policy.h: the policy of a user: rules that decide where each allocation goes, and settings.
 *
 * A policy is read from a built-in name or a file (YAML), then from "key=value,..." on top. Reading collects every
 * error with file, line and column before it fails, so that the user sees all of them at once. Once read and bound, a
 * policy is constant: policy_decide() is a pure function, takes no lock and no memory, and may be called from any
 * thread.
 *
 * This folder does not depend on CUDA or the shim. It needs libc and libyaml.
 */
#ifndef SPILLWAY_POLICY_H
#define SPILLWAY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which backend serves an allocation. */
enum policy_use {
	POLICY_USE_HEAP,    /* the growable heap, under the budgets */
	POLICY_USE_MANAGED, /* managed memory, allocated by the library */
	POLICY_USE_SYSTEM,  /* pages of the operating system */
	POLICY_USE_DRIVER,  /* where the driver would have put it */
	POLICY_USE_DENY,    /* none: out of memory */
	POLICY_USE_COUNT,   /* must be last */
};

/* The kind of call that the program allocates with. */
enum policy_api {
	POLICY_API_MALLOC,
	POLICY_API_PITCH,
	POLICY_API_MANAGED,
	POLICY_API_ASYNC,
	POLICY_API_POOL,
	POLICY_API_HOST,
	POLICY_API_VMM,
	POLICY_API_COUNT, /* must be last */
};
/*
 * Bits of enum policy_api. A rule without match.api decides about these. For the others the program has chosen the
 * kind of memory itself: only rules that name them decide, otherwise the driver serves them.
 */
#define POLICY_APIS_ANY (1 << POLICY_API_MALLOC | 1 << POLICY_API_PITCH | 1 << POLICY_API_ASYNC | 1 << POLICY_API_POOL)

/* Where heap memory is placed when it is allocated. */
enum policy_place_of {
	POLICY_PLACE_AUTO, /* the device while its budget has room */
	POLICY_PLACE_DEVICE,
	POLICY_PLACE_HOST,
	POLICY_PLACE_ON_USE, /* as AUTO, part by part, when each is used */
	POLICY_PLACE_STRIPE, /* the device and its peers in turn; the memory stays there for life */
};

/* Whether heap memory may be moved between device and host. */
enum policy_movable {
	POLICY_MOVABLE_NO,
	POLICY_MOVABLE_YES,
	POLICY_MOVABLE_EXACT, /* in `fast` it stays on the device, as far as there is room for such memory */
};

/* Bits of policy_managed.advise: 1 << value. */
enum policy_advise {
	POLICY_ADVISE_PREFERRED_DEVICE,
	POLICY_ADVISE_PREFERRED_HOST,
	POLICY_ADVISE_ACCESSED_BY,
	POLICY_ADVISE_READ_MOSTLY,
};

enum policy_prefetch {
	POLICY_PREFETCH_NONE,
	POLICY_PREFETCH_ON_ALLOC,
};

/* What happens to heap memory over the device budget (docs/design.md, Moving). */
enum policy_spill {
	POLICY_SPILL_OFF,    /* out of memory */
	POLICY_SPILL_STATIC, /* host-backed chunks, placed once */
	POLICY_SPILL_EXACT,  /* moved to where they are used, while the GPU is quiesced */
	POLICY_SPILL_FAST,   /* moved while kernels run; an unforeseen access stops the job */
	POLICY_SPILL_COUNT,  /* must be last */
};

/* Who serves stream-ordered allocations (shim/serve/serve.h). */
enum policy_async {
	POLICY_ASYNC_DRIVER, /* the driver's pools */
	POLICY_ASYNC_HEAP,
	POLICY_ASYNC_AUTO,  /* the pools while they have memory and the device budget has room, then the heap */
	POLICY_ASYNC_COUNT, /* must be last */
};

/* Which processes share the host's memory (quota.h). */
enum policy_share {
	POLICY_SHARE_OFF,  /* each process has a separate budget */
	POLICY_SHARE_USER, /* the processes of the user share one budget */
};

/* Whether the processes that share a device take turns (shim/plan/gpu_turn.h). */
enum policy_turns_mode {
	POLICY_TURNS_OFF,
	POLICY_TURNS_AUTO,
	POLICY_TURNS_ON,
};

#define POLICY_JOB_BYTES 65 /* of the name of a job */
/* How a process takes turns; constant, inside the policy. */
struct policy_turns {
	int mode;          /* enum policy_turns_mode */
	int weight;        /* 1 to POLICY_WEIGHT_MOST */
	uint64_t quantum;  /* ns; 0: auto */
	uint64_t patience; /* ns that a submission should wait at most; 0: no limit */
	uint64_t queue; /* ns that the first allocation waits at most; 0: it does not; POLICY_WAIT_ALWAYS: no limit */
	char job[POLICY_JOB_BYTES]; /* the name of its job; "": the launcher says it (shim/base/rank.h) */
};
#define POLICY_WEIGHT_MOST 100
#define POLICY_WAIT_ALWAYS UINT64_MAX

/*
 * Programmatic dependent launch (shim/submit/arguments.h): whether a kernel may start before its predecessor in the
 * stream has ended.
 */
enum policy_pdl {
	POLICY_PDL_AUTO,  /* as the program asks, until something has spilled */
	POLICY_PDL_KEEP,  /* as the program asks */
	POLICY_PDL_OFF,   /* never */
	POLICY_PDL_COUNT, /* must be last */
};

/* What the library prints about a run: at the first allocation, and at the end. */
enum policy_report {
	POLICY_REPORT_NONE,
	POLICY_REPORT_SHORT,
	POLICY_REPORT_FULL,
	POLICY_REPORT_COUNT, /* must be last */
};

/* Which contents are kept when memory moves (shim/mover/alive.c). */
enum policy_contents {
	POLICY_CONTENTS_ALIVE,  /* what is alive, as far as is known */
	POLICY_CONTENTS_ALL,    /* everything */
	POLICY_CONTENTS_POISON, /* what is alive; the rest is overwritten */
	POLICY_CONTENTS_COUNT,  /* must be last */
};

/* How page faults are counted (shim/faults/faults.h). */
enum policy_faults {
	POLICY_FAULTS_AUTO,   /* the driver's counters */
	POLICY_FAULTS_OFF,    /* not at all */
	POLICY_FAULTS_EVENTS, /* the counters, and the driver's queue of events */
	POLICY_FAULTS_CUPTI,  /* the counters; CUPTI is not available in this version, and a message says so */
	POLICY_FAULTS_COUNT,  /* must be last */
};

/* The capacity that cuMemGetInfo and cuDeviceTotalMem return to the program. */
enum policy_capacity {
	POLICY_CAPACITY_PHYSICAL,    /* total = true or shared one; free = what may be allocated still, at most total */
	POLICY_CAPACITY_BUDGET,      /* total = the device budget */
	POLICY_CAPACITY_DEVICE_HOST, /* total = both budgets and what spill.peers lend, limited by spill.limit */
	POLICY_CAPACITY_COUNT,       /* must be last */
};

/* A number of bytes, a share of a total that is known later, or "auto"; of the device budget also "start". */
struct policy_size {
	enum { POLICY_SIZE_AUTO, POLICY_SIZE_BYTES, POLICY_SIZE_PERCENT, POLICY_SIZE_START } kind;
	uint64_t value; /* bytes, or hundredths of a percent (12.5% = 1250) */
};

/*
 * How managed memory is allocated; constant, inside the policy. Enumerations are stored as int, so that one parser
 * can store all of them.
 */
struct policy_managed {
	int advise;   /* bits: 1 << enum policy_advise */
	int prefetch; /* enum policy_prefetch */
};

/* How system memory is allocated; constant, inside the policy. */
struct policy_system {
	int register_pages; /* with the driver, where the device lacks access to pageable memory */
	int huge_pages;
	int numa_node; /* POLICY_NODE_AUTO = nearest the device */
};
#define POLICY_NODE_AUTO (-1)

/*
 * Limits of the machine's policy (machine.c), on the sizes of these settings. Whatever sets a size, the caller must
 * take at most the limit; where both are bytes or both are shares, policy_read() has done that already.
 */
enum policy_limit {
	POLICY_LIMIT_DEVICE_BUDGET,
	POLICY_LIMIT_DEVICE_TOTAL,
	POLICY_LIMIT_HOST_BUDGET,
	POLICY_LIMIT_HOST_TOTAL,
	POLICY_LIMIT_COUNT, /* must be last */
};
struct policy_limits {
	struct policy_size most[POLICY_LIMIT_COUNT]; /* bytes or a share; auto: no limit */
	int spill;                                   /* enum policy_spill: the last mode that may be used */
};

/* The keys of a file that hold one value, as spillway-policy(5) says. Enumerations and bools are stored as int. */
struct policy_settings {
	int version, observe, control, ipc;
	int use;        /* enum policy_use: who serves what no rule matches */
	int spill;      /* enum policy_spill */
	int capacity;   /* enum policy_capacity */
	int report;     /* enum policy_report: what to print at the start and at the end */
	int async_use;  /* enum policy_async */
	int faults;     /* enum policy_faults */
	int contents;   /* enum policy_contents */
	int vmm_spill;  /* enum policy_vmm; the library asks policy_vmm_spill() */
	int pdl;        /* enum policy_pdl; the library asks policy_pdl() */
	int host_share; /* enum policy_share */
	uint64_t peers; /* devices that lend memory, as bits; each of them lends peer_budget */
	struct policy_size device_budget, host_budget, peer_budget;
	struct policy_size spill_limit;  /* beyond the device budget; auto: none */
	struct policy_size device_total; /* that the processes of the user may have together; auto: nothing is shared */
	struct policy_size device_reserve; /* that a budget which follows what is free leaves free: auto or bytes */
	struct policy_size host_total;     /* for all processes that share it */
	struct policy_size host_pin_ahead; /* to be kept pinned for what lies on a device; auto: for all of it */
	struct policy_size heap_chunk, heap_release_threshold, async_release_threshold; /* auto or bytes */
	struct policy_turns turns;                                                      /* how it shares a device */
	struct policy_managed managed;
	struct policy_system system;
	struct policy_limits limits;
};

/*
 * Bits: properties of a request that rules may test and that cost time to find out. The caller must ask
 * policy_needs() which are needed.
 */
enum policy_need {
	POLICY_NEED_ORDER = 1 << 0,
	POLICY_NEED_LIVE = 1 << 1,
	POLICY_NEED_FREE = 1 << 2,
	POLICY_NEED_LIBRARY = 1 << 3,
	POLICY_NEED_THREAD = 1 << 4,
	POLICY_NEED_CALLER = 1 << 5,
	POLICY_NEED_PROCESS = 1 << 6, /* name, arguments or rank: policy_bind() */
};

/*
 * One request, with the properties that rules may test. An unknown property matches no rule that tests it: a text
 * that is NULL, a device below 0, a number whose bit is not in known.
 */
struct policy_request {
	uint64_t bytes;
	enum policy_api api;
	int device;
	unsigned known;       /* which of the numbers are known: POLICY_NEED_ORDER, _LIVE, _FREE */
	uint64_t order;       /* ordinal of the allocation in the process, from 1 */
	uint64_t live;        /* live bytes of the process */
	uint64_t device_free; /* bytes that may still be allocated on the device */
	const char *library;  /* path of the object that called */
	const char *thread;
	const char *caller;                         /* place in the program that asked, as reports name it */
	const struct policy_library *library_known; /* for that path; NULL: its patterns are tested one by one */
};

/* Limits of heap.chunk: from one unit of device memory to the largest piece of a heap. */
#define POLICY_CHUNK_LEAST ((uint64_t)2 << 20)
#define POLICY_CHUNK_MOST  ((uint64_t)128 << 20)

/* What happens to device memory that the program makes itself (cuMemCreate). */
enum policy_vmm {
	POLICY_VMM_DRIVER, /* memory of the driver, whatever the budget says */
	POLICY_VMM_MOVES,  /* memory of the heap, mapped where the program wants it */
};

/* No limit. */
#define POLICY_NO_CAP UINT64_MAX

enum { POLICY_MAX_USES = 5 }; /* the first choice and four fallbacks: each use once */

/* The answer to one request. rule: its index, or -1 if no rule matched and the default holds. */
struct policy_decision {
	enum policy_use use; /* the first of uses */
	int rule;
	bool movable; /* heap memory: may it be moved between device and host? */
	bool keep;    /* movable memory that in `fast` should not leave the device (POLICY_MOVABLE_EXACT) */
	enum policy_place_of place;
	unsigned n_uses;
	unsigned char uses[POLICY_MAX_USES]; /* in the order in which they must be tried */
	uint64_t cap;                        /* bytes that may be live by the first use under this rule */
	enum policy_vmm vmm_spill;           /* for device memory that the program makes itself (cuMemCreate) */
	struct policy_size spill_limit;      /* for heap memory; auto: none */
	const struct policy_managed *managed;
	const struct policy_system *system;
};

struct policy; /* opaque; constant once read */

/*
 * One problem of a policy. file is the path, the built-in's name, "SPILLWAY_SET" or "environment". line and column
 * start at 1; line 0: the problem is the file as a whole (missing, too large, empty), and no place is printed.
 */
struct policy_error {
	char file[160];
	unsigned line, column;
	bool warning;
	char text[320]; /* what is wrong, then a suggestion if one exists; no newline */
};

/* The problems of a policy, in the order of the file. At most 100 are kept; n counts all. */
struct policy_errors {
	size_t n, n_kept, n_errors; /* all problems, those kept, and the errors (not warnings) among all */
	struct policy_error *kept;  /* owned; policy_errors_free() */
};

/*
 * Reads a policy. name: a built-in's name, or a path (a text that contains '/' or ends in .yaml or .yml); NULL or ""
 * means the policy of the machine (policy_machine_path), or the built-in "heap" if there is none. Its limits hold for
 * every policy. set: "key=value,key=value" applied on top, or NULL. errors must not be NULL; it is initialised here and
 * holds every error and warning on return, and the caller must free it with policy_errors_free(). Returns NULL if there
 * was an error. The caller owns the result and frees it with policy_free(). Never prints, never exits.
 */
struct policy *policy_read(const char *name, const char *set, struct policy_errors *errors);
void policy_free(struct policy *policy);
void policy_errors_free(struct policy_errors *errors);

/* Writes one problem as "file:line:column: error: text" into buffer (always terminated). Returns buffer. */
char *policy_error_format(const struct policy_error *error, char *buffer, size_t bytes);

/*
 * Adds a warning for each variable SPILLWAY_... of the environment that nobody reads. errors: as policy_read() left it.
 */
void policy_warn_environment(char *const *environment, struct policy_errors *errors);

/* Abilities of a device that uses depend on. */
struct policy_device {
	bool heap;         /* virtual memory management */
	bool heap_on_host; /* virtual memory management of host memory too */
	bool managed;      /* managed memory that device and host may access at once */
	bool pageable;     /* it can access all memory of the process */
	bool registers;    /* registered pages have the same address on it */
};
/*
 * Adds a warning if none of these n devices can serve the default use, and for each rule that none can serve or that
 * is about other devices. If n is 0, the devices are unknown and no warning is given.
 */
void policy_warn_devices(const struct policy *policy, const struct policy_device *devices, int n,
			 struct policy_errors *errors);

/*
 * Binds a policy to the process that it decides for. Must be called once, before the policy is shared between
 * threads. Until then, and for a text that is NULL, rules that test the process match nothing. arguments: of the
 * command line, separated by blanks. rank: in the job of several processes that it is part of; POLICY_NO_RANK, or any
 * number below 0, if it is part of none.
 */
#define POLICY_NO_RANK (-1)
void policy_bind(struct policy *policy, const char *process, const char *arguments, int64_t rank);

/*
 * Returns bits of enum policy_need: what the rules test. Those of another process count for POLICY_NEED_PROCESS only.
 */
unsigned policy_needs(const struct policy *policy);

/*
 * Tests all patterns against the path of a library, once, for policy_request.library_known, so that deciding need
 * not. Returns NULL if there is no memory. The caller owns the result and frees it with free(). It is valid for this
 * policy only.
 */
struct policy_library;
struct policy_library *policy_library_new(const struct policy *policy, const char *path);
/* Returns true if it was made for that path. */
bool policy_library_is(const struct policy_library *library, const char *path);

/* Returns true if a rule can match requests of this API, of the process that the policy is bound to (policy_bind). */
bool policy_decides(const struct policy *policy, enum policy_api api);
/* Returns vmm.spill of the file, for device memory that the program makes itself and no rule names. */
enum policy_vmm policy_vmm_spill(const struct policy *policy);
/* Returns true if any of that memory may be memory of the heap. */
bool policy_vmm_moves(const struct policy *policy);

/*
 * Returns the decision of the first rule that matches. If none does, it is the policy's default use, or the driver
 * for the APIs that are not in POLICY_APIS_ANY. Pure: no lock, no memory; a few ns for each rule.
 */
struct policy_decision policy_decide(const struct policy *policy, const struct policy_request *request);

/*
 * Returns true if this rule matches. If not, ret_text (POLICY_EXPLAIN_BYTES) gets the first condition that fails, for
 * people to read; otherwise "".
 */
#define POLICY_EXPLAIN_BYTES 512
bool policy_explain(const struct policy *policy, int rule, const struct policy_request *request, char *ret_text);

/* Settings of the policy; pointers are valid for its life. */
const char *policy_name(const struct policy *policy); /* name of the built-in, or path */
bool policy_is_builtin(const struct policy *policy);
/* Returns whether policy_read() takes the name for that of a file. */
bool policy_is_path(const char *name);
/* Returns true if it includes others that are no built-in ones. */
bool policy_includes_files(const struct policy *policy);
/*
 * 16 hexadecimal digits, equal for equal texts of all files and settings, to tell runs apart; not proof against
 * malice.
 */
const char *policy_hash(const struct policy *policy);
/*
 * Printed in place of a rule's name if none matched. It is not "default": memory that only rules decide about goes to
 * the driver then, whatever `default` says, and a rule may have that name.
 */
#define POLICY_NO_RULE "(no rule)"
/* Returns POLICY_NO_RULE for -1, "rule N" for a rule without a name. */
const char *policy_rule_name(const struct policy *policy, int rule);
size_t policy_n_rules(const struct policy *policy);
bool policy_uses(const struct policy *policy, enum policy_use use); /* whether any request can be decided so */
const struct policy_settings *policy_settings(const struct policy *policy);
enum policy_pdl policy_pdl(const struct policy *policy); /* KEEP if the policy only observes */
uint64_t policy_rule_cap(const struct policy *policy, int rule);

/* Names of the built-in policies, NULL-terminated. */
const char *const *policy_builtin_names(void);

/* Names of values, as written in a policy. */
const char *policy_use_name(enum policy_use use);
const char *policy_spill_name(enum policy_spill mode);
const char *policy_api_name(enum policy_api api);
const char *policy_place_name(enum policy_place_of place);
const char *policy_movable_name(enum policy_movable movable);
const char *policy_prefetch_name(enum policy_prefetch prefetch);
const char *policy_advise_name(enum policy_advise advise);

/* One setting of the file, as it holds, and where it comes from. */
#define POLICY_SETTING_BYTES 40
struct policy_setting {
	const char *key;
	char value[POLICY_SETTING_BYTES]; /* as in a policy; "..." for a list */
	const char *file; /* where it was written, "SPILLWAY_SET"; NULL: nowhere, it is the value when absent */
	unsigned line;    /* from 1; 0 if it is in no file */
	char limit[POLICY_SETTING_BYTES]; /* the machine's limit on it; "" if there is none */
	char cut[POLICY_SETTING_BYTES];   /* the value as written, if the limit has cut it; "" otherwise */
};
/* Gets the setting with this number, from 0. Returns false if there are fewer. */
bool policy_setting(const struct policy *policy, unsigned number, struct policy_setting *ret_setting);

/*
 * Path of the machine's policy, and whose the file must be: /etc/spillway/policy.yaml, root. Tests write others here.
 */
extern const char *policy_machine_path;
extern unsigned policy_machine_owner;

/*
 * Reads one of their names, or a size as written in a policy ("1.5GiB"). Returns false if it is neither; ret_why has
 * POLICY_EXPLAIN_BYTES.
 */
bool policy_api_read(const char *text, enum policy_api *ret_api, char *ret_why);
bool policy_bytes_read(const char *text, uint64_t *ret_bytes, char *ret_why);
/* Reads auto, a size or a percentage as policy_bytes_read() does. */
bool policy_size_read(const char *text, struct policy_size *ret_size, char *ret_why);
/* Reads a number from 1 to POLICY_WEIGHT_MOST; likewise. */
bool policy_weight_read(const char *text, int *ret_weight, char *ret_why);
/*
 * Writes bytes as in a policy, with the largest unit that leaves a whole number. buffer needs POLICY_SIZE_BYTES_TEXT.
 * Returns buffer.
 */
#define POLICY_SIZE_BYTES_TEXT 32
char *policy_size_format(uint64_t bytes, char buffer[POLICY_SIZE_BYTES_TEXT]);
/* The same as a text that lives until the end of the block. */
#define policy_size_text(bytes) policy_size_format(bytes, (char[POLICY_SIZE_BYTES_TEXT]){0})

#endif
