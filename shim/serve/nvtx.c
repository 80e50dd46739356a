/*
 * nvtx.c: the NVTX ranges of each thread. Each thread has one stack of names, of all domains: a pop takes the
 * innermost range of its domain. Names are copied when pushed, up to the length that a pattern can have; a range
 * deeper than the stack has no name, and while it is pushed none is known. Registered strings are kept for good, as
 * NVTX keeps their handles.
 *
 * The layout of what NVTX passes to us is its binary interface, the same since version 3.0: nvtxDetail/nvtxTypes.h.
 */
#include "shim/serve/nvtx.h"
#include "shim/serve/types.h"
#include "shim/base/log.h"
#include "shim/trace/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { DEPTH = 64, NAME_BYTES = 256 };

struct ranges {
	unsigned n; /* ranges pushed; those beyond DEPTH have no name */
	struct {
		void *domain;
		bool traced; /* its push is in the trace */
		char name[NAME_BYTES];
	} range[DEPTH];
};

static __thread struct ranges *mine __attribute__((tls_model("initial-exec")));

/* ---- the stack of this thread ---- */

static void end_thread(void *ranges)
{
	mine = NULL;
	free(ranges);
}

static void make_key(void)
{
	pthread_key_create(&serve_state.nvtx.at_end, end_thread);
}

static int nvtx_push(void *domain, const char *name)
{
	int level = 0, saved = errno;

	if (!mine) {
		mine = calloc(1, sizeof(*mine));
		if (mine)
			pthread_setspecific(serve_state.nvtx.at_end, mine);
	}
	errno = saved;
	if (!mine || mine->n++ >= DEPTH)
		return 0;
	for (unsigned i = 0; i + 1 < mine->n; i++)
		level += mine->range[i].domain == domain;
	mine->range[mine->n - 1].domain = domain;
	strncpy(mine->range[mine->n - 1].name, name ? name : "", NAME_BYTES - 1);
	mine->range[mine->n - 1].traced = trace_is_on();
	if (trace_is_on())
		trace_event(push, trace_range(mine->range[mine->n - 1].name));
	return level;
}

/* -2 is what NVTX returns if nothing was pushed. */
static int nvtx_pop(void *domain)
{
	unsigned at = mine ? mine->n : 0;
	int level = 0;

	if (at > DEPTH)
		return (int)--mine->n;
	while (at && mine->range[at - 1].domain != domain)
		at--;
	if (!at)
		return -2;
	for (unsigned i = 0; i + 1 < at; i++)
		level += mine->range[i].domain == domain;
	if (mine->range[at - 1].traced)
		trace_event(pop, 0);
	memmove(&mine->range[at - 1], &mine->range[at], (mine->n - at) * sizeof(mine->range[0]));
	mine->n--;
	return level;
}

const char *nvtx_range(void)
{
	return mine && mine->n && mine->n <= DEPTH ? mine->range[mine->n - 1].name : NULL;
}

/* ---- functions that NVTX calls ---- */

/* nvtxEventAttributes_t; only the fields of its first version are read. */
struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message;
};
enum { MESSAGE_ASCII = 1, MESSAGE_WIDE, MESSAGE_REGISTERED };

/* Non-ASCII characters become '?', which patterns can match. */
static void nvtx_narrow(const wchar_t *wide, char name[NAME_BYTES])
{
	size_t n = 0;

	for (; wide && wide[n] && n < NAME_BYTES - 1; n++)
		name[n] = wide[n] < 0x80 ? (char)wide[n] : '?';
	name[n] = '\0';
}

static int push_wide(const wchar_t *wide)
{
	char name[NAME_BYTES];

	nvtx_narrow(wide, name);
	return nvtx_push(NULL, name);
}

static int push_plain(const char *name)
{
	return nvtx_push(NULL, name);
}

static int push_in(void *domain, const struct attributes *attributes)
{
	char name[NAME_BYTES] = "";

	if (!attributes || attributes->size < sizeof(*attributes))
		return nvtx_push(domain, name);
	if (attributes->message_type == MESSAGE_WIDE)
		nvtx_narrow(attributes->message, name);
	else if (attributes->message_type == MESSAGE_ASCII || attributes->message_type == MESSAGE_REGISTERED)
		return nvtx_push(domain, attributes->message);
	return nvtx_push(domain, name);
}

static int push_attributes(const struct attributes *attributes)
{
	return push_in(NULL, attributes);
}

static int pop_plain(void)
{
	return nvtx_pop(NULL);
}

/* Different domains have different handles; the name of a domain is never needed. */
static void *make_domain(const void *name)
{
	(void)name;
	return (void *)(atomic_fetch_add(&serve_state.nvtx.n_domains, 1) + 1);
}

static void *register_plain(void *domain, const char *name)
{
	(void)domain;
	return name ? strdup(name) : NULL;
}

static void *register_wide(void *domain, const wchar_t *wide)
{
	char name[NAME_BYTES];

	nvtx_narrow(wide, name);
	return register_plain(domain, name);
}

/* ---- attaching ---- */

typedef void any_function(void);
struct callbacks {
	size_t struct_size;
	int (*table)(int module, any_function ***ret_table, unsigned *ret_n);
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

void nvtx_say(void)
{
	const char *tool = secure_getenv("NVTX_INJECTION64_PATH");

	if (!tool)
		log_once("rules look at NVTX ranges, and none will be known: set NVTX_INJECTION64_PATH to the path of "
			 "this library");
	else if (!strstr(tool, "libspillway"))
		log_once("rules look at NVTX ranges, and none will be known: %s gets them (NVTX_INJECTION64_PATH)",
			 tool);
}

int nvtx_attach(const void *(*export_table)(uint32_t id), bool wanted)
{
	const struct callbacks *callbacks = export_table(EXPORT_CALLBACKS);

	if (!wanted || !callbacks || callbacks->struct_size < sizeof(*callbacks))
		return 0;
	pthread_once(&serve_state.nvtx.key_once, make_key);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		any_function ***table;
		unsigned n = 0;

		/* The table has pointers to the places of NVTX's own pointers. */
		if (callbacks->table(rows[i].module, (any_function ***)&table, &n) && rows[i].id < n &&
		    table[rows[i].id])
			*table[rows[i].id] = rows[i].function;
	}
	return 1;
}
