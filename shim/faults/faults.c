/*
 * Chooses the source of page fault counts, opens it, and reads the counters and the events.
 *
 * One tracker counts for the whole process, and where the process sees several devices, one more for each. On a machine
 * with one device the first serves for both, because its UUID cannot be wrong (a part of a GPU, MIG, has one UUID for
 * CUDA and another for the driver). If a device's UUID is wrong, its tracker stays at 0 while that of the process does
 * not; the device's numbers are then not measured.
 *
 * States: NONE -> STARTING -> COUNTING or OVER. Everything that is read is written before COUNTING is, and constant
 * from then on. OVER is final: there is no source, and `line` says why.
 */
#include "shim/faults/faults.h"
#include "shim/base/array.h"
#include "shim/base/libc.h"
#include "shim/base/lock.h"
#include "shim/driver/real.h"
#include "shim/faults/faults_uvm.h"
#include "shim/process/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- what the room keeps for the process ---- */

/* Beside the object, because inline functions read it. */
atomic_bool faults_queue_on;

enum { NONE, STARTING, COUNTING, OVER };

/*
 * The counters. Everything that is read is written before `state` becomes COUNTING, and is constant from then on,
 * except `lost`. No lock protects it.
 */
struct faults_counters {
	_Atomic int state; /* NONE, STARTING, COUNTING or OVER */
	struct uvm uvm;
	/* The devices that the process sees, by ordinal. */
	int n_devices;
	unsigned char uuid[DEVICE_MOST][16];
	bool knows_uuid[DEVICE_MOST];
	struct uvm_counter all, device[DEVICE_MOST];
	bool counts_device[DEVICE_MOST];
	uint64_t major; /* major faults of the process at the start */
	char line[STATS_LINE];
	pid_t owner; /* the process of the pages: a child not made by fork() has them in its tables, not in memory */
	_Atomic(const char *) lost; /* why counting has stopped */
};

struct faults_events {
	struct lock lock; /* FAULTS, over the reading end of the queue and the listener */
	struct uvm_queue queue;
	unsigned char processors[UVM_PROCESSORS][16]; /* UUIDs, by the number that the driver's events use */
	unsigned looks;                               /* how often that table was read */
	_Atomic bool over;                            /* the thread shall end */
	void (*visit)(const struct fault_event *event, void *argument);
	void *argument;
};

static struct faults_state {
	struct faults_counters counters;
	struct faults_events events;
} faults_state = {.events = {.lock = LOCK_INIT(LOCK_FAULTS)}};

/* ---- events ---- */

/*
 * The driver's queue of events. A thread of low priority drains it: it waits until the queue is half full, or for 50
 * ms, and reads everything. A thread that reads numbers, or is about to free a block, drains it first, so that whoever
 * listens hears of events while the allocation is live in which they happened. The driver reports migrations when they
 * are done, so some come too late.
 *
 * Locking: FAULTS, over the reading end of the queue.
 */

enum {
	ENTRIES = 1 << 15, /* 2 MiB; at a million faults a second, half of it lasts 16 ms */
	WAIT_MS = 50,
	STACK_BYTES = 1 << 18,
	LOOKS_MOST = 8, /* how often the table of processors is read again when a number is new */
};

/* Types of the driver's events. */
enum {
	TYPE_CPU_FAULT = 1,
	TYPE_MIGRATION = 2,
	TYPE_GPU_FAULT = 3,
	TYPE_READ_DUPLICATE = 7,
	TYPE_THRASHING = 10,
	TYPE_EVICTION = 14,
};
#define TYPES                                                                                                          \
	(1u << TYPE_CPU_FAULT | 1u << TYPE_MIGRATION | 1u << TYPE_GPU_FAULT | 1u << TYPE_READ_DUPLICATE |              \
	 1u << TYPE_THRASHING | 1u << TYPE_EVICTION)

/* The pages are in the memory of this process only, even if another shares its tables. */
static bool is_open(void)
{
	return atomic_load_explicit(&faults_queue_on, memory_order_relaxed) && faults_state.counters.owner == getpid();
}

/* ---- decoding entries ---- */

static uint64_t long_at(const unsigned char *entry, unsigned at)
{
	uint64_t value;

	memcpy(&value, entry + at, sizeof(value));
	return value;
}

static bool is_nothing(const unsigned char *uuid)
{
	static const unsigned char zero[16];

	return !memcmp(uuid, zero, sizeof(zero));
}

/* Returns the ordinal of a processor by the driver's number. The only GPU of a process needs no UUID. */
static int device_of_processor(unsigned number)
{
	struct faults_events *const events = &faults_state.events;
	struct faults_counters *const s = &faults_state.counters;

	if (number == 0)
		return FAULT_HOST;
	if (s->n_devices == 1)
		return 0;
	if (number >= UVM_PROCESSORS)
		return FAULT_SOMEWHERE;
	/* The driver knows a GPU only from its first context on. */
	if (is_nothing(events->processors[number]) && events->looks < LOOKS_MOST) {
		events->looks++;
		uvm_processors(&s->uvm, events->processors);
	}
	for (int i = 0; i < s->n_devices; i++)
		if (s->knows_uuid[i] && !memcmp(s->uuid[i], events->processors[number], 16))
			return i;
	return FAULT_SOMEWHERE;
}

static enum fault_cause access_of(unsigned type)
{
	static const enum fault_cause causes[] = {FAULT_CAUSE_UNKNOWN, FAULT_BY_READ, FAULT_BY_WRITE, FAULT_BY_ATOMIC,
						  FAULT_BY_PREFETCH};

	return type < sizeof(causes) / sizeof(causes[0]) ? causes[type] : FAULT_CAUSE_UNKNOWN;
}

static enum fault_cause purpose_of(unsigned cause)
{
	static const enum fault_cause causes[] = {FAULT_CAUSE_UNKNOWN, FAULT_FOR_PROGRAM, FAULT_FOR_ACCESS,
						  FAULT_FOR_NEIGHBOUR, FAULT_FOR_ROOM,    FAULT_FOR_REMOTE_ACCESSES};

	return cause < sizeof(causes) / sizeof(causes[0]) ? causes[cause] : FAULT_CAUSE_UNKNOWN;
}

static void faults_queue_moved(const unsigned char *entry, unsigned from, unsigned to, unsigned bytes, unsigned time,
			       struct fault_event *ret)
{
	ret->from = device_of_processor(entry[from]);
	ret->device = device_of_processor(entry[to]);
	ret->address = long_at(entry, 8);
	ret->bytes = long_at(entry, bytes);
	ret->time = long_at(entry, time);
}

static void faults_queue_region(const unsigned char *entry, enum fault_kind kind, struct fault_event *ret)
{
	ret->kind = kind;
	ret->address = long_at(entry, 16);
	ret->bytes = long_at(entry, 24);
	ret->time = long_at(entry, 32);
}

/*
 * Decodes an entry; returns false for a type that was not requested. The offsets are those of the first format of
 * uvm_types.h, which all drivers support.
 */
static bool read_entry(const unsigned char *entry, struct fault_event *ret)
{
	*ret = (struct fault_event){.device = FAULT_SOMEWHERE, .from = FAULT_SOMEWHERE};
	switch (entry[0]) {
	case TYPE_CPU_FAULT:
		ret->kind = FAULT_OF_CPU;
		ret->cause = access_of(entry[1]);
		ret->device = ret->from = FAULT_HOST;
		ret->address = long_at(entry, 8);
		ret->time = long_at(entry, 16);
		return true;
	case TYPE_GPU_FAULT:
		ret->kind = FAULT_OF_GPU;
		ret->cause = access_of(entry[2]);
		ret->device = ret->from = device_of_processor(entry[3]);
		ret->address = long_at(entry, 8);
		ret->time = long_at(entry, 16);
		return true;
	case TYPE_MIGRATION:
		ret->kind = FAULT_MIGRATION;
		ret->cause = purpose_of(entry[1]);
		faults_queue_moved(entry, 2, 3, 16, 24, ret);
		return true;
	case TYPE_EVICTION:
		ret->kind = FAULT_EVICTION;
		ret->cause = FAULT_FOR_ROOM;
		faults_queue_moved(entry, 1, 2, 24, 32, ret);
		return true;
	case TYPE_THRASHING:
		faults_queue_region(entry, FAULT_THRASHING, ret);
		return true;
	case TYPE_READ_DUPLICATE:
		faults_queue_region(entry, FAULT_READ_DUPLICATE, ret);
		return true;
	default:
		return false;
	}
}

/*
 * Reads at most as many entries as the queue holds, so that a driver that fills it faster than they are read cannot
 * keep the caller here.
 */
static void faults_queue_drain(void)
{
	struct faults_events *const s = &faults_state.events;
	unsigned char entry[UVM_ENTRY];
	struct fault_event event;

	lock_take(&s->lock);
	for (unsigned i = 0; i < ENTRIES && uvm_queue_read(&s->queue, entry); i++) {
		if (!read_entry(entry, &event))
			continue;
		if (s->visit)
			s->visit(&event, s->argument);
	}
	lock_drop(&s->lock);
}

void faults_poll(void)
{
	if (is_open())
		faults_queue_drain();
}

uint64_t faults_dropped(void)
{
	uint64_t n = 0;

	if (!is_open())
		return STATS_NA;
	for (int i = 0; i < UVM_EVENT_TYPES; i++)
		n += __atomic_load_n(&faults_state.events.queue.dropped[i], __ATOMIC_RELAXED);
	return n;
}

void faults_listen(void (*visit)(const struct fault_event *event, void *argument), void *argument)
{
	struct faults_events *const s = &faults_state.events;

	lock_take(&s->lock);
	s->visit = visit;
	s->argument = argument;
	lock_drop(&s->lock);
}

/* ---- the thread ---- */

static void *faults_queue_run(void *argument)
{
	struct faults_events *const s = &faults_state.events;

	(void)argument;
	enter_depth = 1;
	prctl(PR_SET_NAME, "spillway-faults");
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
	while (!atomic_load(&s->over)) {
		uvm_queue_wait(&faults_state.counters.uvm, &s->queue, WAIT_MS);
		if (!atomic_load(&s->over))
			faults_queue_drain();
	}
	return NULL;
}

/* Opens the queue and starts its thread; must be called once. Returns false if there is no queue; *ret_why says why. */
static bool faults_queue_start(char *ret_why)
{
	if (!uvm_queue_open(&faults_state.counters.uvm, ENTRIES, TYPES, &faults_state.events.queue, ret_why))
		return false;
	/* Without the thread, readers drain the queue, and it may overflow meanwhile; that is counted. */
	atomic_store(&faults_queue_on, true);
	thread_start(faults_queue_run, NULL, STACK_BYTES, false, NULL);
	return true;
}

/* Reads the last events and makes the thread end. Locking: takes FAULTS. */
static void faults_queue_end(void)
{
	faults_poll();
	atomic_store(&faults_state.events.over, true);
}

/* In the child of a fork: closes the parent's descriptor. Async-signal-safe. */
static void faults_queue_child(void)
{
	struct faults_events *const s = &faults_state.events;

	if (!atomic_exchange(&faults_queue_on, false))
		return;
	if (uvm_is_ours(&s->queue.held))
		close(s->queue.held.fd);
	s->queue.held.fd = -1;
}

/* ---- where the counts come from ---- */

/* Returns the system's table, unless libcuda.so.1 has one (faults_uvm.h says why). */
static const struct faults_seam *find_seam(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	real_dlsym_function *c_dlsym = real_dlsym();
	const struct faults_seam *seam = library && c_dlsym ? c_dlsym(library, FAULTS_SEAM) : NULL;

	if (library)
		dlclose(library);
	dlerror(); /* NVIDIA's has none; clear that error, so that the program does not find it */
	return seam && seam->size == sizeof(*seam) ? seam : &uvm_system;
}

/* ---- the line ---- */

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	struct faults_counters *const s = &faults_state.counters;
	size_t length = strlen(s->line);
	va_list list;

	va_start(list, format);
	vsnprintf(s->line + length, sizeof(s->line) - length, format, list);
	va_end(list);
}

uint64_t faults_major(void)
{
	struct rusage usage;
	int state = atomic_load_explicit(&faults_state.counters.state, memory_order_acquire);

	if ((state != COUNTING && state != OVER) || getrusage(RUSAGE_SELF, &usage))
		return STATS_NA;
	return (uint64_t)usage.ru_majflt - faults_state.counters.major;
}

char *faults_source(char *buffer, size_t room)
{
	struct faults_counters *const s = &faults_state.counters;
	int state = atomic_load_explicit(&s->state, memory_order_acquire);
	const char *lost = atomic_load(&s->lost), *line = lost ? lost : s->line;

	if (state == NONE || state == STARTING)
		snprintf(buffer, room, "none: nothing that the GPU could fault on has been allocated");
	else if (state == COUNTING && !lost)
		snprintf(buffer, room, "%s", line);
	else
		snprintf(buffer, room, "%s; the kernel has counted %llu major faults of the process", line,
			 (unsigned long long)faults_major());
	return buffer;
}

/* ---- starting ---- */

static void find_devices(struct faults_counters *s)
{
	CUuuid uuid;

	if (REAL(cuDeviceGetCount)(&s->n_devices) != CUDA_SUCCESS || s->n_devices < 0)
		s->n_devices = 0;
	if (s->n_devices > DEVICE_MOST)
		s->n_devices = DEVICE_MOST;
	for (int i = 0; i < s->n_devices; i++) {
		s->knows_uuid[i] = REAL(cuDeviceGetUuid)(&uuid, i) == CUDA_SUCCESS;
		if (s->knows_uuid[i])
			memcpy(s->uuid[i], uuid.bytes, sizeof(s->uuid[i]));
	}
}

static void count_by_device(void)
{
	struct faults_counters *const s = &faults_state.counters;
	char why[UVM_WHY] = "";
	int n = 0;

	if (s->n_devices < 2)
		return;
	for (int i = 0; i < s->n_devices; i++) {
		s->counts_device[i] = s->knows_uuid[i] && uvm_counter_open(&s->uvm, s->uuid[i], &s->device[i], why);
		n += s->counts_device[i];
	}
	if (n < s->n_devices)
		say("; %d of %d devices have none of their own%s%s", s->n_devices - n, s->n_devices, *why ? ": " : "",
		    why);
}

static bool faults_count(enum policy_faults how)
{
	struct faults_counters *const s = &faults_state.counters;
	char why[UVM_WHY] = "";

	find_devices(s);
	if (!uvm_open(find_seam(), &s->uvm, why) || !uvm_counter_open(&s->uvm, NULL, &s->all, why)) {
		say("none: %s", why);
		return false;
	}
	say("the driver's counters (%s, driver %s)", FAULTS_TOOLS, s->uvm.version);
	count_by_device();
	if (how == POLICY_FAULTS_EVENTS) {
		if (faults_queue_start(why)) {
			say(" and its events");
			return true;
		}
		say("; no events: %s", why);
	}
	uvm_close(&s->uvm);
	return true;
}

static bool faults_start_source(void)
{
	enum policy_faults how = process_settings()->faults;
	struct rusage usage;
	bool counts;

	if (!getrusage(RUSAGE_SELF, &usage))
		faults_state.counters.major = (uint64_t)usage.ru_majflt;
	if (how == POLICY_FAULTS_OFF) {
		say("none: the policy says faults: off");
		return false;
	}
	counts = faults_count(how);
	if (how == POLICY_FAULTS_CUPTI)
		say("; CUPTI is not available in this version");
	return counts;
}

void faults_start(void)
{
	struct faults_counters *const s = &faults_state.counters;
	int saved = errno, none = NONE, starting = STARTING, cancel;

	if (atomic_load_explicit(&s->state, memory_order_relaxed) != NONE || process_stage() != STAGE_RUNNING ||
	    !atomic_compare_exchange_strong(&s->state, &none, STARTING))
		return;
	/* A thread that is cancelled here would leave the state at STARTING for good. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	s->owner = getpid();
	bool counts = faults_start_source();
	pthread_setcancelstate(cancel, NULL);
	atomic_compare_exchange_strong(&s->state, &starting, counts ? COUNTING : OVER);
	errno = saved;
}

/* ---- reading ---- */

static bool is_counting(void)
{
	return atomic_load_explicit(&faults_state.counters.state, memory_order_acquire) == COUNTING &&
	       faults_state.counters.owner == getpid();
}

/* Returns whether this tracker's numbers are still valid. If not, counting stops for all trackers. */
static bool is_sound(const struct uvm_counter *counter)
{
	const char *lost = NULL;

	if (!uvm_is_ours(&counter->held))
		lost = "none any more: the program closed our descriptor of " FAULTS_TOOLS;
	else if (!uvm_counter_is_sound(counter))
		lost = "none any more: the driver's counters have been written over";
	if (lost)
		atomic_store(&faults_state.counters.lost, lost);
	return !lost;
}

static uint64_t faults_anything(const struct uvm_counter *counter)
{
	return uvm_counter_read(counter, UVM_GPU_FAULTS) | uvm_counter_read(counter, UVM_BYTES_IN) |
	       uvm_counter_read(counter, UVM_BYTES_OUT);
}

/* Returns whether the driver's UUIDs and CUDA's stand for the same devices. */
static bool tells_devices(void)
{
	struct faults_counters *const s = &faults_state.counters;
	bool any = faults_anything(&s->all);

	for (int i = 0; i < s->n_devices; i++)
		any = any && !(s->counts_device[i] && faults_anything(&s->device[i]));
	return !any;
}

static const struct uvm_counter *counter_of(int device)
{
	struct faults_counters *const s = &faults_state.counters;

	if (device == -1 || (device == 0 && s->n_devices == 1))
		return &s->all;
	if (device < 0 || device >= s->n_devices || !s->counts_device[device] || !tells_devices())
		return NULL;
	return &s->device[device];
}

void faults_read(int device, uint64_t ret[FAULT_COUNT])
{
	int saved = errno;

	for (int i = 0; i < FAULT_COUNT; i++)
		ret[i] = STATS_NA;
	if (!is_counting() || atomic_load(&faults_state.counters.lost))
		return;
	const struct uvm_counter *counter = counter_of(device);
	if (counter && is_sound(counter)) {
		ret[FAULT_GPU] = uvm_counter_read(counter, UVM_GPU_FAULTS);
		ret[FAULT_IN_BYTES] = uvm_counter_read(counter, UVM_BYTES_IN);
		ret[FAULT_OUT_BYTES] = uvm_counter_read(counter, UVM_BYTES_OUT);
		if (counter == &faults_state.counters.all)
			ret[FAULT_CPU] = uvm_counter_read(counter, UVM_CPU_FAULTS);
	}
	errno = saved;
}

/* ---- the end ---- */

void faults_end(void)
{
	if (is_counting())
		faults_queue_end();
}

static void child_lets_go(struct uvm_held *held)
{
	if (uvm_is_ours(held))
		close(held->fd); /* not through the seam, whose locks the parent may hold */
	held->fd = -1;
}

void faults_child(void)
{
	struct faults_counters *const s = &faults_state.counters;
	int saved = errno, before = atomic_exchange(&s->state, OVER);

	if (before == NONE) {
		/* Nothing was used: the child starts from the beginning. */
		atomic_store(&s->state, NONE);
		return;
	}
	s->major = 0;
	atomic_store(&s->lost, "none: the child of a process that used CUDA");
	/* A child made during the start keeps what was open, if anything, until it ends or calls exec. */
	if (before == COUNTING) {
		child_lets_go(&s->uvm.file);
		child_lets_go(&s->all.held);
		for (int i = 0; i < s->n_devices; i++)
			if (s->counts_device[i])
				child_lets_go(&s->device[i].held);
	}
	faults_queue_child();
	errno = saved;
}
