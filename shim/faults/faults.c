/*
 * Chooses the source of page fault counts, opens it, and reads the counters.
 *
 * One tracker counts for the whole process, and where the process sees several devices, one more for each. On a machine
 * with one device the first serves for both, because its UUID cannot be wrong (a part of a GPU, MIG, has one UUID for
 * CUDA and another for the driver). If a device's UUID is wrong, its tracker stays at 0 while that of the process does
 * not; the device's numbers are then not measured.
 *
 * States: NONE -> STARTING -> COUNTING or OVER. Everything that is read is written before COUNTING is, and constant
 * from then on. OVER is final: there is no source, and `line` says why.
 */

#include "shim/faults/faults_internal.h"
#include "shim/process/process.h"
#include "shim/driver/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What the room keeps for the process: its object, and beside it what inline functions read. */
atomic_bool faults_queue_on;
struct faults_state faults_state = {.events = {.lock = LOCK_INIT(LOCK_FAULTS)}};

enum { NONE, STARTING, COUNTING, OVER };

/* Returns the system's table, unless libcuda.so.1 has one (faults_seam.h says why). */
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
		return FAULTS_NA;
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

static void find_devices(struct faults_devices *devices)
{
	CUuuid uuid;

	if (REAL(cuDeviceGetCount)(&devices->n) != CUDA_SUCCESS || devices->n < 0)
		devices->n = 0;
	if (devices->n > DEVICE_MOST)
		devices->n = DEVICE_MOST;
	for (int i = 0; i < devices->n; i++) {
		devices->known[i] = REAL(cuDeviceGetUuid)(&uuid, i) == CUDA_SUCCESS;
		if (devices->known[i])
			memcpy(devices->uuid[i], uuid.bytes, sizeof(devices->uuid[i]));
	}
}

static void count_by_device(void)
{
	struct faults_counters *const s = &faults_state.counters;
	char why[UVM_WHY] = "";
	int n = 0;

	if (s->devices.n < 2)
		return;
	for (int i = 0; i < s->devices.n; i++) {
		s->counts_device[i] =
		    s->devices.known[i] && uvm_counter_open(&s->uvm, s->devices.uuid[i], &s->device[i], why);
		n += s->counts_device[i];
	}
	if (n < s->devices.n)
		say("; %d of %d devices have none of their own%s%s", s->devices.n - n, s->devices.n, *why ? ": " : "",
		    why);
}

static bool faults_count(enum policy_faults how)
{
	struct faults_counters *const s = &faults_state.counters;
	char why[UVM_WHY] = "";

	find_devices(&s->devices);
	if (!uvm_open(find_seam(), &s->uvm, why) || !uvm_counter_open(&s->uvm, NULL, &s->all, why)) {
		say("none: %s", why);
		return false;
	}
	say("the driver's counters (%s, driver %s)", FAULTS_TOOLS, s->uvm.version);
	count_by_device();
	if (how == POLICY_FAULTS_EVENTS) {
		if (faults_queue_start(&s->uvm, &s->devices, policy_n_rules(process_policy()), why)) {
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

	for (int i = 0; i < s->devices.n; i++)
		any = any && !(s->counts_device[i] && faults_anything(&s->device[i]));
	return !any;
}

static const struct uvm_counter *counter_of(int device)
{
	struct faults_counters *const s = &faults_state.counters;

	if (device == -1 || (device == 0 && s->devices.n == 1))
		return &s->all;
	if (device < 0 || device >= s->devices.n || !s->counts_device[device] || !tells_devices())
		return NULL;
	return &s->device[device];
}

void faults_read(int device, uint64_t ret[FAULTS_NUMBERS])
{
	int saved = errno;

	for (int i = 0; i < FAULTS_NUMBERS; i++)
		ret[i] = FAULTS_NA;
	if (!is_counting() || atomic_load(&faults_state.counters.lost))
		return;
	const struct uvm_counter *counter = counter_of(device);
	if (counter && is_sound(counter)) {
		ret[FAULTS_GPU] = uvm_counter_read(counter, UVM_GPU_FAULTS);
		ret[FAULTS_BYTES_IN] = uvm_counter_read(counter, UVM_BYTES_IN);
		ret[FAULTS_BYTES_OUT] = uvm_counter_read(counter, UVM_BYTES_OUT);
		if (counter == &faults_state.counters.all)
			ret[FAULTS_CPU] = uvm_counter_read(counter, UVM_CPU_FAULTS);
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
		for (int i = 0; i < s->devices.n; i++)
			if (s->counts_device[i])
				child_lets_go(&s->device[i].held);
	}
	faults_queue_child();
	errno = saved;
}
