/*
 * entry_nvtx.c: the NVTX ranges of each thread, for the trace. NVTX is compiled into its users, and calls the one tool
 * that NVTX_INJECTION64_PATH names; a profiler names itself there. Registered strings are kept for good, as NVTX keeps
 * their handles.
 *
 * The layout of what NVTX passes to us is its binary interface, the same since version 3.0: nvtxDetail/nvtxTypes.h.
 */
#include "shim/entry/entry.h"
#include "shim/trace/trace.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { NAME_BYTES = 256, DOMAINS = 16 };

static __thread struct {
	unsigned n;         /* ranges that are open */
	unsigned early;     /* so many of them, the outermost, began while no trace was on */
	int level[DOMAINS]; /* open ones of each domain; some of more than 15 domains share theirs */
} mine __attribute__((tls_model("initial-exec")));

static int nvtx_push(const void *domain, const char *name)
{
	char copy[NAME_BYTES] = "";

	mine.n++;
	if (trace_is_on())
		trace_event(push, trace_range(name ? strncpy(copy, name, NAME_BYTES - 1) : copy));
	else
		mine.early = mine.n;
	return mine.level[(uintptr_t)domain % DOMAINS]++;
}

/* -2 is what NVTX returns if nothing was pushed. */
static int nvtx_pop(const void *domain)
{
	int *level = &mine.level[(uintptr_t)domain % DOMAINS];

	if (!*level)
		return -2;
	if (mine.n-- > mine.early)
		trace_event(pop, 0);
	else
		mine.early--;
	return --*level;
}

/* ---- functions that NVTX calls ---- */

/* nvtxEventAttributes_t, as far as its first version goes. */
struct attributes {
	uint16_t version, size;
	uint32_t unread[7];
	int32_t message_type;
	const void *message;
};
enum { MESSAGE_ASCII = 1, MESSAGE_WIDE, MESSAGE_REGISTERED };

/* Non-ASCII characters become '?'. */
static const char *nvtx_narrow(const wchar_t *wide, char name[NAME_BYTES])
{
	size_t n = 0;

	for (; wide && wide[n] && n < NAME_BYTES - 1; n++)
		name[n] = wide[n] < 0x80 ? (char)wide[n] : '?';
	name[n] = '\0';
	return name;
}

static int push_wide(const wchar_t *wide)
{
	return nvtx_push(NULL, nvtx_narrow(wide, (char[NAME_BYTES]){0}));
}

static int push_plain(const char *name)
{
	return nvtx_push(NULL, name);
}

static int push_in(const void *domain, const struct attributes *attributes)
{
	int type = attributes && attributes->size >= sizeof(*attributes) ? attributes->message_type : 0;

	if (type == MESSAGE_WIDE)
		return nvtx_push(domain, nvtx_narrow(attributes->message, (char[NAME_BYTES]){0}));
	return nvtx_push(domain, type == MESSAGE_ASCII || type == MESSAGE_REGISTERED ? attributes->message : NULL);
}

static int push_attributes(const struct attributes *attributes)
{
	return push_in(NULL, attributes);
}

static int pop_plain(void)
{
	return nvtx_pop(NULL);
}

/* The name of a domain is never needed. */
static void *make_domain(const void *name)
{
	static _Atomic uintptr_t n;

	(void)name;
	return (void *)(atomic_fetch_add(&n, 1) + 1);
}

static void *register_plain(const void *domain, const char *name)
{
	(void)domain;
	return name ? strdup(name) : NULL;
}

static void *register_wide(const void *domain, const wchar_t *wide)
{
	return register_plain(domain, nvtx_narrow(wide, (char[NAME_BYTES]){0}));
}

/* ---- attaching ---- */

typedef void any_function(void);
struct callbacks {
	size_t struct_size;
	int (*table)(int module, any_function ****ret_table, unsigned *ret_n);
};
enum { EXPORT_CALLBACKS = 1, MODULE_CORE = 1, MODULE_DOMAINS = 5 };

static const struct {
	int module;
	unsigned id; /* NVTX_CBID_CORE_*, NVTX_CBID_CORE2_* */
	any_function *function;
} rows[] = {
    {MODULE_CORE, 8, (any_function *)push_attributes},    {MODULE_CORE, 9, (any_function *)push_plain},
    {MODULE_CORE, 10, (any_function *)push_wide},         {MODULE_CORE, 11, (any_function *)pop_plain},
    {MODULE_DOMAINS, 4, (any_function *)push_in},         {MODULE_DOMAINS, 5, (any_function *)nvtx_pop},
    {MODULE_DOMAINS, 10, (any_function *)register_plain}, {MODULE_DOMAINS, 11, (any_function *)register_wide},
    {MODULE_DOMAINS, 12, (any_function *)make_domain},    {MODULE_DOMAINS, 13, (any_function *)make_domain},
};

/* NvtxInitializeInjectionNvtxFunc_t: called by the NVTX of each library. Returns 0 if no ranges are wanted. */
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id));

HOOK_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
	const struct callbacks *callbacks = trace_is_wanted() ? export_table(EXPORT_CALLBACKS) : NULL;

	if (!callbacks || callbacks->struct_size < sizeof(*callbacks))
		return 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		any_function ***table;
		unsigned n = 0;

		/* The table has the addresses of NVTX's own pointers. */
		if (callbacks->table(rows[i].module, &table, &n) && rows[i].id < n && table[rows[i].id])
			*table[rows[i].id] = rows[i].function;
	}
	return 1;
}
