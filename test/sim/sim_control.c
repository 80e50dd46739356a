// SPDX-License-Identifier: Apache-2.0
/*
 * sim_control.c: what every call passes through on its way in and out, and the controls of sim.h.
 *
 * In: count, fail when that is wanted (sim_fail.c), refuse before cuInit and without a context. Out: one line in the
 * log.
 *
 * A child of fork after cuInit is lost, as with the real driver: its calls return at once, before any lock. So is one
 * that no handler of fork is told of (clone() without CLONE_VM).
 */
#include "sim_context.h"
#include "sim_memory.h"
#include <stdarg.h>
#include <sys/mman.h>

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t started = PTHREAD_ONCE_INIT;
static atomic_bool lost; /* child of a process that had called cuInit */
static const unsigned always = 1;
static const volatile unsigned *own = &always; /* 0 in a child with an address space of its own */
static FILE *call_log;
static const char *report_path;
static __thread struct sim_thread this_thread;
static atomic_uint threads;

size_t sim_parse_size(const char *text, size_t otherwise)
{
	static const struct {
		const char *suffix;
		unsigned shift;
	} units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"K", 10}, {"M", 20}, {"G", 30}};
	char *end;

	if (!text || !*text)
		return otherwise;
	unsigned long long value = strtoull(text, &end, 0);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(end, units[i].suffix))
			return (size_t)value << units[i].shift;
	fprintf(stderr, "sim: cannot read the size \"%s\"\n", text);
	return otherwise;
}

/* Those that are one number: of the environment, or sim_switch(). */
static const struct {
	const char *name;
	size_t otherwise;
	_Atomic size_t *value;
} settings[] = {
    {"MEMORY", (size_t)256 << 20, &sim.set.memory},
    {"HOST_MEMORY", (size_t)1 << 30, &sim.set.host_memory},
    {"WINDOW", (size_t)512 << 30, &sim.set.window},
    {"VMM", 1, &sim.set.vmm},
    {"HOST_VMM", 1, &sim.set.host_vmm},
    {"FILL", 1, &sim.set.fill},
    {"LARGE", 1, &sim.set.large},
    {"STREAM_VALUES", 1, &sim.set.stream_values},
    {"RUN", 1, &sim.set.run},
    {"PAGEABLE", 0, &sim.set.pageable},
    {"CONCURRENT_MANAGED", 1, &sim.set.concurrent_managed},
    {"DEAD_HANDLES", 0, &sim.set.dead_handles},
    {"REUSE", 0, &sim.set.reuse},
    {"SAME_POINTER", 1, &sim.set.same_pointer},
    {"DELAY_US", 0, &sim.set.delay_us},
    {"FAULT_MS", 0, &sim.set.fault_ms},
    {"PIECE_US", 0, &sim.set.piece_us},
    {"PIN_US", 0, &sim.set.pin_us},
    {"MAP_WAITS", 0, &sim.set.map_waits},
    {"POOL_WASTE", 0, &sim.set.pool_waste},
    {"DECOMPRESS", 0, &sim.set.decompress},
};

static void before_fork(void)
{
	pthread_mutex_lock(&sim.lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&sim.lock);
}

static void after_fork_in_child(void)
{
	pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	sim.lock = fresh;
	if (sim.initialised)
		atomic_store(&lost, true);
	report_path = NULL;
}

static void mark_process(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	unsigned *mark = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mark == MAP_FAILED || madvise(mark, bytes, MADV_WIPEONFORK))
		return;
	*mark = 1;
	own = mark;
}

static void start(void)
{
	pthread_condattr_t attributes;

	sim.set.devices = (int)sim_parse_size(getenv("SIM_DEVICES"), 1);
	if (sim.set.devices > SIM_DEVICES_MAX)
		sim.set.devices = SIM_DEVICES_MAX;
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		char name[40];

		snprintf(name, sizeof(name), "SIM_%s", settings[i].name);
		*settings[i].value = sim_parse_size(getenv(name), settings[i].otherwise);
	}
	sim_peers_read();
	sim.set.seed = sim_parse_size(getenv("SIM_SEED"), 0);
	const char *text = getenv("SIM_LOG");
	if (text && *text)
		call_log = fopen(text, "ae");
	if (call_log)
		setvbuf(call_log, NULL, _IOLBF, 0);
	text = getenv("SIM_REPORT");
	if (text && *text)
		report_path = strdup(text);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&sim.progress, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	mark_process();
}

void sim_start(void)
{
	pthread_once(&started, start);
}

static void start_once(void)
{
	static atomic_bool failures_read;

	sim_start();
	if (!atomic_exchange(&failures_read, true))
		sim_fail_read();
}

void sim_lock(void)
{
	pthread_mutex_lock(&sim.lock);
}

void sim_unlock(void)
{
	pthread_mutex_unlock(&sim.lock);
}

void sim_wait(void)
{
	pthread_cond_wait(&sim.progress, &sim.lock);
}

uint64_t sim_now(void)
{
	return test_now();
}

struct sim_thread *sim_thread(void)
{
	if (!this_thread.id)
		this_thread.id = atomic_fetch_add(&threads, 1) + 1;
	return &this_thread;
}

struct sim_origin sim_origin(void)
{
	return this_thread.origin;
}

CUresult sim_why(CUresult error, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(this_thread.why, sizeof(this_thread.why), format, list);
	va_end(list);
	return error;
}

void sim_break_rule(const char *format, ...)
{
	va_list list;
	char text[256];

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	sim.broken_rules++;
	if (call_log)
		fprintf(call_log, "%u BROKEN RULE in %s: %s\n", sim_thread()->id,
			this_thread.origin.name ? this_thread.origin.name : "a stream", text);
}

bool sim_enter(struct sim_call *call, struct sim_entry *entry)
{
	CUcontext context;

	call->entry = entry;
	call->locked = false;
	call->result = CUDA_ERROR_NOT_INITIALIZED;
	if (atomic_load(&lost) || (!*own && sim.initialised))
		return false;
	start_once();
	sim_lock();
	call->locked = true;
	struct sim_thread *thread = sim_thread();
	thread->why[0] = '\0';
	call->outer = thread->origin;
	call->number = ++sim.calls;
	thread->origin = (struct sim_origin){call->number, entry->name};
	entry->calls++;
	if (sim_fails(entry, &call->result)) {
		sim_why(call->result, "failed by order");
		return false;
	}
	if ((entry->need & SIM_INIT) && !sim.initialised)
		return false;
	if (entry->need & SIM_CONTEXT) {
		call->result = sim_current(&context);
		if (call->result)
			return false;
	}
	return true;
}

CUresult sim_leave(struct sim_call *call)
{
	if (!call->locked)
		return call->result;
	if (call_log)
		fprintf(call_log, "%lu %u %s %d%s%s\n", call->number, this_thread.id, call->entry->name, call->result,
			this_thread.why[0] ? " " : "", this_thread.why);
	this_thread.origin = call->outer;
	sim_unlock();
	return call->result;
}

/* ---- the controls ---- */

SIM_EXPORT unsigned long sim_calls(const char *name)
{
	unsigned long calls = 0;

	sim_lock();
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries; row++)
		if (!strcmp((*row)->name, name))
			calls += (*row)->calls;
	sim_unlock();
	return calls;
}

SIM_EXPORT unsigned long sim_broken_rules(void)
{
	sim_lock();
	unsigned long n = sim.broken_rules;
	sim_unlock();
	return n;
}

SIM_EXPORT struct sim_live sim_live(void)
{
	struct sim_live live = {0};

	sim_lock();
	sim_memory_live(&live, NULL);
	sim_alloc_live(&live, NULL);
	sim_arrays_live(&live, NULL);
	for (int i = 0; i < SIM_DEVICES_MAX; i++)
		live.device_bytes += sim.device[i].used;
	live.host_bytes = sim.host_used;
	sim_unlock();
	return live;
}

SIM_EXPORT size_t sim_leaks(FILE *out)
{
	struct sim_live live = {0};

	sim_lock();
	size_t n = sim_memory_live(&live, out) + sim_alloc_live(&live, out) + sim_arrays_live(&live, out);
	sim_unlock();
	return n;
}

SIM_EXPORT void sim_hold(void)
{
	sim_start();
	sim_lock();
	sim.held = true;
	sim_unlock();
}

SIM_EXPORT bool sim_is_held(void)
{
	sim_lock();
	bool held = sim.held;
	sim_unlock();
	return held;
}

SIM_EXPORT void sim_release(void)
{
	sim_lock();
	sim.held = false;
	pthread_cond_broadcast(&sim.progress);
	sim_unlock();
}

SIM_EXPORT void sim_switch(const char *name, size_t value)
{
	size_t i = 0, n = sizeof(settings) / sizeof(settings[0]);

	sim_start();
	while (i < n && strcmp(name, settings[i].name))
		i++;
	sim_lock();
	if (i < n)
		*settings[i].value = value;
	else
		fprintf(stderr, "sim_switch: no switch is called \"%s\"\n", name);
	sim_unlock();
}

/*
 * At exit, in the process that started the driver: calls, broken rules, leaks. Written whole, for readers that watch.
 */
__attribute__((destructor)) static void report(void)
{
	struct sim_live live = {0};

	if (!report_path || atomic_load(&lost) || !*own)
		return;
	FILE *out = fopen(report_path, "we");
	if (!out)
		return;
	sim_lock();
	for (struct sim_entry *const *row = __start_sim_entries; row < __stop_sim_entries; row++)
		if ((*row)->calls)
			fprintf(out, "call %s %lu\n", (*row)->name, (*row)->calls);
	fprintf(out, "broken_rules %lu\n", sim.broken_rules);
	sim_memory_live(&live, out);
	sim_alloc_live(&live, out);
	sim_arrays_live(&live, out);
	sim_unlock();
	fclose(out);
}
