// SPDX-License-Identifier: Apache-2.0
/*
 * sim_uvm.c: the stand-in for /dev/nvidia-uvm-tools, behind the table that shim/faults/faults_uvm.h describes. Written
 * from the open driver's uvm_tools.c (515 to 575), not from the library: where the parameters lie, what is refused, who
 * is counted where, and that the queue drops what it has no room for.
 *
 * The descriptors are real ones (of memory files), so that /proc/self/fd lists them and closing them is seen. Trackers
 * are kept by descriptor. The pages are the caller's and are written to while the model's lock is held: a caller closes
 * first and unmaps then. sim_managed.c says what happens.
 *
 * SIM_DRIVER is the version that /proc/driver/nvidia/version tells, SIM_UVM_DRIVER the one whose layout is spoken, for
 * a text that is not true. SIM_UVM is what is wrong: missing, denied, readonly (O_RDWR is denied), refused (a status),
 * unknown (no such ioctl), silent (answers nothing), overwrites (writes elsewhere in the page), no-file (the process
 * has no /dev/nvidia-uvm), no-version.
 */
#include "sim_managed.h"

#include "shim/faults/faults_uvm.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

enum {
	INVALID_ARGUMENT = 0x1f,
	ILLEGAL_ACTION = 0x16,
	INSUFFICIENT_PERMISSIONS = 0x1b,
	TRACKERS = 64,
	COUNTERS = 10,
	ENTRY_BYTES = 64,
};

struct tracker {
	bool open, ready, queue, all;
	int fd;
	unsigned char processor[16];
	uint64_t *counters;
	uint64_t wants; /* bits: counters, or types of events */
	unsigned char *entries;
	uint32_t n;
	struct control {
		uint32_t get_ahead, get_behind, put_ahead, put_behind;
		uint64_t dropped[64];
	} * control;
};
static struct tracker trackers[TRACKERS];
static int uvm_file = -1, uvm_second = -1; /* as the driver opens them: one for the process, one for its end */
static unsigned opened;

static bool wrong(const char *what)
{
	const char *text = getenv("SIM_UVM");

	return text && !strcmp(text, what);
}

static const char *version(void)
{
	const char *text = getenv("SIM_DRIVER");

	return text ? text : "580.159.03";
}

static int spoken(void)
{
	const char *text = getenv("SIM_UVM_DRIVER");

	return atoi(text ? text : version());
}

/* ---- descriptors ---- */

static int text_file(void)
{
	int fd = memfd_create("simulated version", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	dprintf(fd, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (builder@host)\n",
		version());
	dprintf(fd, "GCC version:  gcc version 13.2.0 (Debian 13.2.0-1) \n");
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static struct tracker *tracker_of(int fd)
{
	for (int i = 0; i < TRACKERS; i++)
		if (trackers[i].open && trackers[i].fd == fd)
			return &trackers[i];
	return NULL;
}

static int open_tools(void)
{
	for (int i = 0; i < TRACKERS; i++) {
		if (trackers[i].open)
			continue;
		int fd = memfd_create("simulated uvm-tools", MFD_CLOEXEC);
		if (fd >= 0)
			trackers[i] = (struct tracker){.open = true, .fd = fd};
		return fd;
	}
	errno = EMFILE;
	return -1;
}

/* The real driver has them from cuInit on. Here they come when they are looked for: other tests count descriptors. */
static void open_files(void)
{
	if (uvm_file >= 0 || wrong("no-file"))
		return;
	uvm_second = memfd_create("simulated uvm, second", MFD_CLOEXEC);
	uvm_file = memfd_create("simulated uvm", MFD_CLOEXEC);
}

static int sim_uvm_open(const char *path, int flags)
{
	int fd = -1;

	sim_lock();
	opened++;
	if (!(flags & O_CLOEXEC))
		sim_break_rule("%s is opened without O_CLOEXEC", path);
	if (!strcmp(path, FAULTS_VERSION)) {
		fd = wrong("no-version") ? (errno = ENOENT, -1) : text_file();
	} else if (strcmp(path, FAULTS_TOOLS) || wrong("missing")) {
		errno = ENOENT;
	} else if (wrong("denied") || (wrong("readonly") && (flags & O_ACCMODE) != O_RDONLY)) {
		errno = EACCES;
	} else {
		open_files();
		fd = open_tools();
	}
	sim_unlock();
	return fd;
}

static int sim_uvm_close(int fd)
{
	sim_lock();
	struct tracker *tracker = tracker_of(fd);
	if (tracker)
		tracker->open = false;
	sim_unlock();
	return close(fd);
}

/* Two descriptors of one file are told by the file. */
static bool same_file(int a, int b)
{
	char path[2][64], text[2][128];
	ssize_t n[2];

	snprintf(path[0], sizeof(path[0]), "/proc/self/fd/%d", a);
	snprintf(path[1], sizeof(path[1]), "/proc/self/fd/%d", b);
	for (int i = 0; i < 2; i++)
		n[i] = readlink(path[i], text[i], sizeof(text[i]));
	return a >= 0 && b >= 0 && n[0] > 0 && n[0] == n[1] && !memcmp(text[0], text[1], (size_t)n[0]);
}

static ssize_t sim_uvm_link(int fd, char *buffer, size_t room)
{
	size_t n = strlen(FAULTS_UVM);

	if (same_file(fd, uvm_file) || same_file(fd, uvm_second)) {
		memcpy(buffer, FAULTS_UVM, n < room ? n : room);
		return (ssize_t)(n < room ? n : room);
	}
	errno = EINVAL;
	return -1;
}

/* ---- ioctls ---- */

static uint32_t word(const unsigned char *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint64_t long_word(const unsigned char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void put(unsigned char *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

/* The format of the queue, which two lines of drivers want to be told. */
static uint32_t check_format(unsigned char *p)
{
	int driver = spoken();
	uint32_t format = 1;

	if (driver >= 555 && driver < 560)
		format = word(p + 52);
	if (driver >= 560 && driver < 565)
		format = word(p + 48);
	return format == 1 ? 0 : INVALID_ARGUMENT;
}

static uint32_t init_queue(struct tracker *tracker, const unsigned char *p)
{
	uint64_t n = long_word(p + 8);

	if (n > UINT32_MAX || n < 2 || n & (n - 1))
		return INVALID_ARGUMENT;
	tracker->n = (uint32_t)n;
	tracker->entries = (unsigned char *)(uintptr_t)long_word(p);
	tracker->control = (struct control *)(uintptr_t)long_word(p + 16);
	if (!tracker->entries || !tracker->control || long_word(p) % 4096 || long_word(p + 16) % 4096)
		return INVALID_ARGUMENT;
	return 0;
}

static uint32_t init(struct tracker *tracker, unsigned char *p)
{
	int file = (int)word(p + 44);
	uint32_t status = check_format(p);

	if (status)
		return status;
	if (!same_file(file, uvm_file) && !same_file(file, uvm_second))
		return INSUFFICIENT_PERMISSIONS;
	if (!same_file(file, uvm_file))
		return ILLEGAL_ACTION;
	if (tracker->ready)
		return INVALID_ARGUMENT;
	tracker->queue = long_word(p + 8) != 0;
	tracker->all = word(p + 40) != 0;
	memcpy(tracker->processor, p + 24, 16);
	tracker->counters = (uint64_t *)(uintptr_t)long_word(p + 16);
	if (tracker->queue)
		status = init_queue(tracker, p);
	else if (!tracker->counters || long_word(p + 16) % 4096)
		status = INVALID_ARGUMENT;
	if (!status && spoken() >= 555 && spoken() < 560)
		put(p + 56, word(p + 52));
	tracker->ready = !status;
	return status;
}

static uint32_t enable(struct tracker *tracker, unsigned char *p, bool queue)
{
	if (!tracker->ready || tracker->queue != queue)
		return INVALID_ARGUMENT;
	if (queue && (!long_word(p) || long_word(p) & ~UINT64_C(0x7ffe)))
		return INVALID_ARGUMENT;
	tracker->wants |= long_word(p);
	if (wrong("overwrites") && !queue)
		tracker->counters[5] = 1;
	return 0;
}

static void cpu_uuid(unsigned char *ret)
{
	memset(ret, 0xc9, 16);
}

static void device_uuid(int device, unsigned char *ret)
{
	CUuuid uuid;

	sim_uuid(&uuid, device);
	memcpy(ret, uuid.bytes, 16);
	if (wrong("strange-uuids"))
		ret[0] ^= 0xff;
}

static uint32_t processor_table(unsigned char *p)
{
	unsigned char *table = (unsigned char *)(uintptr_t)long_word(p);

	if (spoken() >= 560 && spoken() < 565 && word(p + 8) != 1)
		return INVALID_ARGUMENT;
	memset(table, 0, (size_t)33 * 16);
	cpu_uuid(table);
	/* As the driver numbers them: in no order that CUDA knows of. */
	for (int d = 0; d < sim.set.devices; d++)
		device_uuid(d, table + (size_t)16 * (unsigned)(sim.set.devices - d));
	if (spoken() < 560)
		put(p + 8, (uint32_t)sim.set.devices + 1);
	if (spoken() >= 555 && spoken() < 560)
		put(p + 16, 1);
	return 0;
}

static unsigned answer_at(unsigned long request)
{
	int driver = spoken();

	if (request == 56)
		return driver >= 560 && driver < 565 ? 52 : 48;
	if (request == 64)
		return driver >= 565 ? 8 : 12;
	return 8;
}

static int unknown_ioctl(void)
{
	errno = EINVAL;
	return -1;
}

static int uvm_ioctl_locked(int fd, unsigned long request, unsigned char *p)
{
	struct tracker *tracker = tracker_of(fd);
	uint32_t status;

	if (wrong("unknown") || (!tracker && request != 64) || (tracker && request == 64))
		return unknown_ioctl();
	if (wrong("silent"))
		return 0;
	if (wrong("refused"))
		status = INSUFFICIENT_PERMISSIONS;
	else if (request == 56)
		status = init(tracker, p);
	else if (request == 60 || request == 58)
		status = enable(tracker, p, request == 58);
	else if (request == 64 && same_file(fd, uvm_file))
		status = processor_table(p);
	else
		return unknown_ioctl();
	put(p + answer_at(request), status);
	return 0;
}

static int sim_uvm_ioctl(int fd, unsigned long request, void *parameters)
{
	sim_lock();
	int result = uvm_ioctl_locked(fd, request, parameters);
	sim_unlock();
	return result;
}

static bool is_half_full(const struct tracker *tracker)
{
	uint32_t put_at = __atomic_load_n(&tracker->control->put_behind, __ATOMIC_RELAXED);
	uint32_t get_at = __atomic_load_n(&tracker->control->get_ahead, __ATOMIC_RELAXED);

	return ((tracker->n + put_at - get_at) & (tracker->n - 1)) >= tracker->n / 2;
}

static int sim_uvm_wait(int fd, int wait_ms)
{
	for (int i = 0;; i++) {
		sim_lock();
		struct tracker *tracker = tracker_of(fd);
		int n = !tracker || !tracker->queue ? -1 : is_half_full(tracker);
		sim_unlock();
		if (n || i >= wait_ms)
			return n;
		usleep(1000);
	}
}

SIM_EXPORT extern const struct faults_seam spillway_sim_uvm;
SIM_EXPORT const struct faults_seam spillway_sim_uvm = {
    sizeof(struct faults_seam), sim_uvm_open, sim_uvm_close, sim_uvm_ioctl, sim_uvm_link, sim_uvm_wait};

/* ---- what happens ---- */

/* The processor of a tracker: SIM_ON_CPU or a device's bit; 0 nobody's. */
static bool is_about(const struct tracker *tracker, unsigned where)
{
	unsigned char uuid[16];

	if (where == SIM_ON_CPU)
		cpu_uuid(uuid);
	else
		device_uuid(__builtin_ctz(where) - 1, uuid);
	return !memcmp(tracker->processor, uuid, 16);
}

void sim_uvm_count(enum sim_uvm_counter counter, unsigned where, uint64_t amount)
{
	for (int i = 0; i < TRACKERS; i++) {
		struct tracker *tracker = &trackers[i];
		bool all = tracker->all && (counter != SIM_UVM_CPU_FAULTS || where == SIM_ON_CPU);

		if (!tracker->open || tracker->queue || !(tracker->wants >> counter & 1))
			continue;
		if (all || is_about(tracker, where))
			__atomic_fetch_add(&tracker->counters[counter], amount, __ATOMIC_RELAXED);
	}
}

static void enqueue(struct tracker *tracker, const unsigned char *entry)
{
	uint32_t mask = tracker->n - 1,
		 get_at = __atomic_load_n(&tracker->control->get_behind, __ATOMIC_ACQUIRE) & mask;
	uint32_t put_at = __atomic_load_n(&tracker->control->put_behind, __ATOMIC_RELAXED) & mask;

	if (((tracker->n + get_at - put_at) & mask) == 1) {
		__atomic_fetch_add(&tracker->control->dropped[entry[0] % 64], 1, __ATOMIC_RELAXED);
		return;
	}
	memcpy(tracker->entries + (size_t)put_at * ENTRY_BYTES, entry, ENTRY_BYTES);
	__atomic_store_n(&tracker->control->put_ahead, (put_at + 1) & mask, __ATOMIC_RELEASE);
	__atomic_store_n(&tracker->control->put_behind, (put_at + 1) & mask, __ATOMIC_RELEASE);
}

static unsigned char number_of(unsigned where)
{
	return where == SIM_ON_CPU ? 0 : (unsigned char)(sim.set.devices - (__builtin_ctz(where) - 1));
}

static void send(const unsigned char *entry)
{
	for (int i = 0; i < TRACKERS; i++)
		if (trackers[i].open && trackers[i].queue && trackers[i].wants >> entry[0] & 1)
			enqueue(&trackers[i], entry);
}

static void put_long(unsigned char *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

void sim_uvm_fault(unsigned where, uintptr_t address, bool write)
{
	unsigned char entry[ENTRY_BYTES] = {where == SIM_ON_CPU ? 1 : 3};

	entry[where == SIM_ON_CPU ? 1 : 2] = write ? 2 : 1;
	if (where != SIM_ON_CPU)
		entry[3] = number_of(where);
	put_long(entry + 8, address);
	send(entry);
}

void sim_uvm_migration(unsigned from, unsigned to, uintptr_t address, size_t bytes, unsigned cause)
{
	unsigned char entry[ENTRY_BYTES] = {2, (unsigned char)cause, number_of(from), number_of(to)};

	put_long(entry + 8, address);
	put_long(entry + 16, bytes);
	send(entry);
}

void sim_uvm_eviction(unsigned from, uintptr_t out, uintptr_t in, size_t bytes)
{
	unsigned char entry[ENTRY_BYTES] = {14, number_of(from), 0};

	put_long(entry + 8, out);
	put_long(entry + 16, in);
	put_long(entry + 24, bytes);
	send(entry);
}

void sim_uvm_region(unsigned type, unsigned where, uintptr_t address, size_t bytes)
{
	unsigned char entry[ENTRY_BYTES] = {(unsigned char)type};
	uint64_t processors = 0;

	for (int d = -1; d < sim.set.devices; d++) {
		unsigned bit = d < 0 ? SIM_ON_CPU : SIM_ON_DEVICE(d);

		if (where & bit)
			processors |= UINT64_C(1) << number_of(bit);
	}
	put_long(entry + 8, processors);
	put_long(entry + 16, address);
	put_long(entry + 24, bytes);
	send(entry);
}

/* ---- controls ---- */

SIM_EXPORT unsigned sim_uvm_opened(void)
{
	sim_lock();
	unsigned n = opened;
	sim_unlock();
	return n;
}

SIM_EXPORT unsigned sim_uvm_trackers(void)
{
	unsigned n = 0;

	sim_lock();
	for (int i = 0; i < TRACKERS; i++)
		n += trackers[i].open;
	sim_unlock();
	return n;
}

SIM_EXPORT void sim_uvm_scribble(void)
{
	sim_lock();
	for (int i = 0; i < TRACKERS; i++)
		if (trackers[i].open && trackers[i].ready && !trackers[i].queue)
			trackers[i].counters[20] ^= 1;
	sim_unlock();
}

SIM_EXPORT int sim_uvm_descriptor(void)
{
	int fd = -1;

	sim_lock();
	for (int i = 0; i < TRACKERS && fd < 0; i++)
		fd = trackers[i].open && trackers[i].ready ? trackers[i].fd : -1;
	sim_unlock();
	return fd;
}

SIM_EXPORT uint64_t sim_uvm_slot(unsigned slot)
{
	uint64_t value = UINT64_MAX;

	sim_lock();
	for (int i = TRACKERS; i-- > 0;)
		if (trackers[i].open && trackers[i].ready && !trackers[i].queue)
			value = __atomic_load_n(&trackers[i].counters[slot], __ATOMIC_RELAXED);
	sim_unlock();
	return value;
}

SIM_EXPORT void sim_uvm_send(const void *entry)
{
	sim_lock();
	for (int i = 0; i < TRACKERS; i++)
		if (trackers[i].open && trackers[i].queue && trackers[i].wants)
			enqueue(&trackers[i], entry);
	sim_unlock();
}

SIM_EXPORT void sim_uvm_put(uint32_t put_at)
{
	sim_lock();
	for (int i = 0; i < TRACKERS; i++)
		if (trackers[i].open && trackers[i].queue && trackers[i].wants)
			__atomic_store_n(&trackers[i].control->put_behind, put_at, __ATOMIC_RELEASE);
	sim_unlock();
}
