// SPDX-License-Identifier: Apache-2.0
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
#include "shim/base/call_site.h"
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
static struct {
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
} counters;

static struct {
	struct lock lock; /* FAULTS: guards all but `over`; of the queue the reading end */
	struct uvm_queue queue;
	unsigned char processors[UVM_PROCESSORS][16]; /* UUIDs, by the number that the driver's events use */
	unsigned looks;                               /* how often that table was read */
	_Atomic bool over;                            /* the thread shall end */
	void (*visit)(const struct fault_event *event);
} events = {.lock = LOCK_INIT(LOCK_FAULTS)};

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

/* The pages are in the memory of this process only, even if another shares its tables. */
static bool is_open(void)
{
	return atomic_load_explicit(&faults_queue_on, memory_order_relaxed) && counters.owner == getpid();
}

/* ---- decoding entries ---- */

static uint64_t long_at(const unsigned char *entry, unsigned at)
{
	uint64_t value;

	memcpy(&value, entry + at, sizeof(value));
	return value;
}

/* Returns the ordinal of a processor by the driver's number. The only GPU of a process needs no UUID. */
static int device_of_processor(unsigned number)
{
	static const unsigned char none[16];
	if (number == 0)
		return FAULT_HOST;
	if (counters.n_devices == 1)
		return 0;
	if (number >= UVM_PROCESSORS)
		return FAULT_SOMEWHERE;
	/* The driver knows a GPU only from its first context on. */
	if (!memcmp(events.processors[number], none, sizeof(none)) && events.looks < LOOKS_MOST) {
		events.looks++;
		uvm_processors(&counters.uvm, events.processors);
	}
	for (int i = 0; i < counters.n_devices; i++)
		if (counters.knows_uuid[i] && !memcmp(counters.uuid[i], events.processors[number], 16))
			return i;
	return FAULT_SOMEWHERE;
}

/* The driver's numbers of accesses that fault, and of reasons to migrate. */
static const enum fault_cause accesses[] = {FAULT_CAUSE_UNKNOWN, FAULT_BY_READ, FAULT_BY_WRITE, FAULT_BY_ATOMIC,
					    FAULT_BY_PREFETCH};
static const enum fault_cause purposes[] = {FAULT_CAUSE_UNKNOWN, FAULT_FOR_PROGRAM, FAULT_FOR_ACCESS,
					    FAULT_FOR_NEIGHBOUR, FAULT_FOR_ROOM,    FAULT_FOR_REMOTE_ACCESSES};

/*
 * Where an entry has its fields, by the driver's type. The offsets are those of the first format of uvm_types.h, which
 * all drivers support; 0: it has no such field, and the cause and the place are those of the row.
 */
static const struct entry_form {
	unsigned type;
	enum fault_kind kind;
	enum fault_cause cause;
	int place;
	uint8_t at_cause, at_from, at_device, at_address, at_bytes, at_time;
} forms[] = {
    {1, FAULT_OF_CPU, FAULT_CAUSE_UNKNOWN, FAULT_HOST, 1, 0, 0, 8, 0, 16},
    {2, FAULT_MIGRATION, FAULT_CAUSE_UNKNOWN, FAULT_SOMEWHERE, 1, 2, 3, 8, 16, 24},
    {3, FAULT_OF_GPU, FAULT_CAUSE_UNKNOWN, FAULT_SOMEWHERE, 2, 3, 3, 8, 0, 16},
    {7, FAULT_READ_DUPLICATE, FAULT_CAUSE_UNKNOWN, FAULT_SOMEWHERE, 0, 0, 0, 16, 24, 32},
    {10, FAULT_THRASHING, FAULT_CAUSE_UNKNOWN, FAULT_SOMEWHERE, 0, 0, 0, 16, 24, 32},
    {14, FAULT_EVICTION, FAULT_FOR_ROOM, FAULT_SOMEWHERE, 0, 1, 2, 8, 24, 32},
};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

/* Decodes an entry. Returns false for a type that was not requested. */
static bool read_entry(const unsigned char *entry, struct fault_event *ret)
{
	const struct entry_form *form = forms;

	while (form < forms + FORMS && form->type != entry[0])
		form++;
	if (form == forms + FORMS)
		return false;
	bool moves = form->kind == FAULT_MIGRATION;
	unsigned n = moves ? sizeof(purposes) / sizeof(purposes[0]) : sizeof(accesses) / sizeof(accesses[0]);
	unsigned cause = form->at_cause ? entry[form->at_cause] : n;
	*ret = (struct fault_event){
	    .kind = form->kind,
	    .cause = cause < n ? (moves ? purposes : accesses)[cause] : form->cause,
	    .from = form->at_from ? device_of_processor(entry[form->at_from]) : form->place,
	    .device = form->at_device ? device_of_processor(entry[form->at_device]) : form->place,
	    .address = long_at(entry, form->at_address),
	    .bytes = form->at_bytes ? long_at(entry, form->at_bytes) : 0,
	    .time = long_at(entry, form->at_time),
	};
	return true;
}

/*
 * Reads at most as many entries as the queue holds, so that a driver that fills it faster than they are read cannot
 * keep the caller here.
 */
static void faults_queue_drain(void)
{
	unsigned char entry[UVM_ENTRY];
	struct fault_event event;

	lock_take(&events.lock);
	for (unsigned i = 0; i < ENTRIES && uvm_queue_read(&events.queue, entry); i++)
		if (read_entry(entry, &event) && events.visit)
			events.visit(&event);
	lock_drop(&events.lock);
}

void faults_poll(void)
{
	if (is_open())
		faults_queue_drain();
}

void faults_listen(void (*visit)(const struct fault_event *event))
{
	lock_take(&events.lock);
	events.visit = visit;
	lock_drop(&events.lock);
}

/* ---- the thread ---- */

static void *faults_queue_run(void *argument)
{
	(void)argument;
	enter_depth = 1;
	prctl(PR_SET_NAME, "spillway-faults");
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
	while (!atomic_load(&events.over)) {
		uvm_queue_wait(&counters.uvm, &events.queue, WAIT_MS);
		if (!atomic_load(&events.over))
			faults_queue_drain();
	}
	return NULL;
}

/* Opens the queue and starts its thread; must be called once. Returns false if there is no queue; *ret_why says why. */
static bool faults_queue_start(char *ret_why)
{
	uint64_t types = 0;

	for (size_t i = 0; i < FORMS; i++)
		types |= UINT64_C(1) << forms[i].type;
	if (!uvm_queue_open(&counters.uvm, ENTRIES, types, &events.queue, ret_why))
		return false;
	call_site_always(); /* events count for sites; one of several allocations must not count elsewhere */
	/* Without the thread, readers drain the queue, and it may overflow meanwhile. */
	atomic_store(&faults_queue_on, true);
	thread_start(faults_queue_run, NULL, STACK_BYTES, false, NULL);
	return true;
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
	size_t length = strlen(counters.line);
	va_list list;

	va_start(list, format);
	vsnprintf(counters.line + length, sizeof(counters.line) - length, format, list);
	va_end(list);
}

uint64_t faults_major(void)
{
	struct rusage usage;
	int state = atomic_load_explicit(&counters.state, memory_order_acquire);

	if ((state != COUNTING && state != OVER) || getrusage(RUSAGE_SELF, &usage))
		return STATS_NA;
	return (uint64_t)usage.ru_majflt - counters.major;
}

char *faults_source(char *buffer, size_t room)
{
	int state = atomic_load_explicit(&counters.state, memory_order_acquire);
	const char *lost = atomic_load(&counters.lost), *line = lost ? lost : counters.line;

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

static void find_devices(void)
{
	CUuuid uuid;

	if (REAL(cuDeviceGetCount)(&counters.n_devices) != CUDA_SUCCESS || counters.n_devices < 0)
		counters.n_devices = 0;
	if (counters.n_devices > DEVICE_MOST)
		counters.n_devices = DEVICE_MOST;
	for (int i = 0; i < counters.n_devices; i++) {
		counters.knows_uuid[i] = REAL(cuDeviceGetUuid)(&uuid, i) == CUDA_SUCCESS;
		if (counters.knows_uuid[i])
			memcpy(counters.uuid[i], uuid.bytes, sizeof(counters.uuid[i]));
	}
}

static void count_by_device(void)
{
	char why[UVM_WHY] = "";
	int n = 0;

	if (counters.n_devices < 2)
		return;
	for (int i = 0; i < counters.n_devices; i++) {
		counters.counts_device[i] = counters.knows_uuid[i] &&
					    uvm_counter_open(&counters.uvm, counters.uuid[i], &counters.device[i], why);
		n += counters.counts_device[i];
	}
	if (n < counters.n_devices)
		say("; %d of %d devices have none of their own%s%s", counters.n_devices - n, counters.n_devices,
		    *why ? ": " : "", why);
}

static bool faults_count(enum policy_faults how)
{
	char why[UVM_WHY] = "";

	find_devices();
	if (!uvm_open(find_seam(), &counters.uvm, why) || !uvm_counter_open(&counters.uvm, NULL, &counters.all, why)) {
		say("none: %s", why);
		return false;
	}
	say("the driver's counters (%s, driver %s)", FAULTS_TOOLS, counters.uvm.version);
	count_by_device();
	if (how == POLICY_FAULTS_EVENTS) {
		if (faults_queue_start(why)) {
			say(" and its events");
			return true;
		}
		say("; no events: %s", why);
	}
	uvm_close(&counters.uvm);
	return true;
}

static bool faults_start_source(void)
{
	enum policy_faults how = process_settings()->faults;
	struct rusage usage;

	if (!getrusage(RUSAGE_SELF, &usage))
		counters.major = (uint64_t)usage.ru_majflt;
	if (how == POLICY_FAULTS_OFF) {
		say("none: the policy says faults: off");
		return false;
	}
	bool counts = faults_count(how);
	if (how == POLICY_FAULTS_CUPTI)
		say("; CUPTI is not available in this version");
	return counts;
}

void faults_start(void)
{
	int saved = errno, none = NONE, starting = STARTING, cancel;

	if (atomic_load_explicit(&counters.state, memory_order_relaxed) != NONE || process_stage() != STAGE_RUNNING ||
	    !atomic_compare_exchange_strong(&counters.state, &none, STARTING))
		return;
	/* A thread that is cancelled here would leave the state at STARTING for good. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	counters.owner = getpid();
	bool counts = faults_start_source();
	pthread_setcancelstate(cancel, NULL);
	atomic_compare_exchange_strong(&counters.state, &starting, counts ? COUNTING : OVER);
	errno = saved;
}

/* ---- reading ---- */

static bool is_counting(void)
{
	return atomic_load_explicit(&counters.state, memory_order_acquire) == COUNTING && counters.owner == getpid();
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
		atomic_store(&counters.lost, lost);
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
	bool any = faults_anything(&counters.all);

	for (int i = 0; i < counters.n_devices; i++)
		any = any && !(counters.counts_device[i] && faults_anything(&counters.device[i]));
	return !any;
}

static const struct uvm_counter *counter_of(int device)
{
	if (device == -1 || (device == 0 && counters.n_devices == 1))
		return &counters.all;
	if (device < 0 || device >= counters.n_devices || !counters.counts_device[device] || !tells_devices())
		return NULL;
	return &counters.device[device];
}

void faults_read(int device, uint64_t ret[FAULT_COUNT])
{
	int saved = errno;

	for (int i = 0; i < FAULT_COUNT; i++)
		ret[i] = STATS_NA;
	if (!is_counting() || atomic_load(&counters.lost))
		return;
	const struct uvm_counter *counter = counter_of(device);
	if (counter && is_sound(counter)) {
		ret[FAULT_GPU] = uvm_counter_read(counter, UVM_GPU_FAULTS);
		ret[FAULT_IN_BYTES] = uvm_counter_read(counter, UVM_BYTES_IN);
		ret[FAULT_OUT_BYTES] = uvm_counter_read(counter, UVM_BYTES_OUT);
		if (counter == &counters.all)
			ret[FAULT_CPU] = uvm_counter_read(counter, UVM_CPU_FAULTS);
		if (device == -1 && is_open())
			ret[FAULT_LOST] = uvm_queue_lost(&events.queue);
	}
	errno = saved;
}

/* ---- the end ---- */

void faults_end(void)
{
	if (!is_counting())
		return;
	faults_poll();
	atomic_store(&events.over, true); /* the thread ends */
}

static void child_lets_go(struct uvm_held *held)
{
	if (uvm_is_ours(held))
		close(held->fd); /* not through the seam, whose locks the parent may hold */
	held->fd = -1;
}

void faults_child(void)
{
	int saved = errno, before = atomic_exchange(&counters.state, OVER);

	if (before == NONE) {
		/* Nothing was used: the child starts from the beginning. */
		atomic_store(&counters.state, NONE);
		return;
	}
	counters.major = 0;
	atomic_store(&counters.lost, "none: the child of a process that used CUDA");
	/* A child made during the start keeps what was open, if anything, until it ends or calls exec. */
	if (before == COUNTING) {
		child_lets_go(&counters.uvm.file);
		child_lets_go(&counters.all.held);
		for (int i = 0; i < counters.n_devices; i++)
			if (counters.counts_device[i])
				child_lets_go(&counters.device[i].held);
	}
	if (atomic_exchange(&faults_queue_on, false))
		child_lets_go(&events.queue.held);
	errno = saved;
}
