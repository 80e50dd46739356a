// SPDX-License-Identifier: Apache-2.0
/*
 * The drainer: a thread that empties the rings into the file. It wakes some 20 times a second, or when a ring is half
 * full, and turns the new records of each ring into one frame, which it writes by one write(2). It first notes how far
 * each ring is filled and then writes the new names, so that the name of every number precedes the records that use it.
 *
 * Functions are numbered here in the order of their first appearance. Once a module is unloaded, the driver may reuse a
 * handle for another kernel; function_generation() changes then, and all functions get new numbers.
 *
 * Locking: TRACE_FILE protects the writer and the file. The drainer takes it, and the exiting thread that empties the
 * rings a last time. Under it names and figures are looked up, which takes no other lock.
 */
#include "policy/policy.h"
#include "shim/base/array.h"
#include "shim/base/call_site.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/driver/real.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- what the trace keeps, and what switches it on and off ---- */

/* Read by an inline function of trace.h in all rooms, so it is apart. */
_Atomic bool trace_on;
struct trace_state trace_state = {
    .rings.none = {.busy = true},
    .start.lock = LOCK_INIT(LOCK_TRACE_START),
};

void state_stop(void)
{
	trace_state.start.sources->submissions(false);
	atomic_store(&trace_on, false);
}

void trace_fail(const char *why)
{
	state_stop();
	log_once("the trace ends here, the program goes on: %s", why);
}

void trace_child(void)
{
	atomic_store(&trace_on, false);
}

uint64_t trace_lost(void)
{
	uint64_t sum = atomic_load(&trace_state.rings.none.lost);

	for (struct ring *ring = atomic_load(&trace_state.rings.first); ring; ring = ring->next)
		sum += atomic_load_explicit(&ring->lost, memory_order_relaxed);
	return sum;
}

/* ---- names ---- */

/*
 * The numbers of call sites and of range names: two tables of fixed size, read and extended without a lock. A slot is
 * claimed by exchanging its pointer, and its index is the number. Texts are made once and kept for the life of the
 * process. A name that finds no slot has number 0.
 */

#define TRIED 64 /* slots that are searched for a name */

#define TRACE_NAMES_SLOTS 4096 /* call sites, or names of ranges; numbers 1 ... TRACE_NAMES_SLOTS - 1 */

struct trace_name {
	const struct call_site *site; /* NULL: of a range */
	char text[];
};

/* Numbers of names: read and extended without a lock. */
struct trace_names {
	_Atomic(struct trace_name *) slot[TRACE_NAMES_SLOTS];
	/*
	 * Upper bound of the slots in use; counted before a slot is taken. Another thread may find a name and use its
	 * number before the thread that stored it continues; the drainer must see then that there is a new name.
	 */
	atomic_uint n;
	bool told[TRACE_NAMES_SLOTS]; /* this and the next: drainer only */
	unsigned n_told;
};

static struct trace_names site_names, range_names;

/* Stores a name in a slot. Returns false if another thread was faster; *there is the name that it stored. */
static bool take_slot(struct trace_names *table, uint64_t at, struct trace_name *made, struct trace_name **there)
{
	atomic_fetch_add_explicit(&table->n, 1, memory_order_relaxed);
	if (atomic_compare_exchange_strong(&table->slot[at], there, made))
		return true;
	atomic_fetch_sub_explicit(&table->n, 1, memory_order_relaxed);
	return false;
}

/*
 * Makes the name of a range, or of a call site: "train.py:57 in forward [libcublasLt.so.13]". Returns NULL if there is
 * no memory.
 */
static struct trace_name *name_of(const struct call_site *site, const char *range)
{
	char text[512];

	if (!site || !site->library)
		snprintf(text, sizeof(text), "%s", !site ? range : *site->text ? site->text : "?");
	else
		snprintf(text, sizeof(text), "%s [%s]", site->text, site->library);
	struct trace_name *name = malloc(sizeof(*name) + strlen(text) + 1);

	if (name) {
		name->site = site;
		strcpy(name->text, text);
	}
	return name;
}

/* Returns the number of the call site, or of the range, whose name it makes if necessary. Leaves errno as it is. */
static uint64_t number_of_name(struct trace_names *table, const struct call_site *site, const char *range)
{
	struct trace_name *made = NULL;
	uint64_t hash = site ? (uintptr_t)site : rank_hash(0, range), number = 0;
	int saved = errno;
	uint64_t first = (hash ^ hash >> 29) * UINT64_C(0x9fb21c651e98df25) >> 40;
	for (unsigned i = 0; i < TRIED && !number; i++) {
		uint64_t at = (first + i) % (TRACE_NAMES_SLOTS - 1) + 1;
		struct trace_name *there = atomic_load_explicit(&table->slot[at], memory_order_acquire);

		if (!there && !made && !(made = name_of(site, range)))
			break;
		if (!there && take_slot(table, at, made, &there)) {
			made = NULL;
			number = at;
		} else if (site ? there->site == site : !strcmp(there->text, range)) {
			/* The slot was in use, or another thread has just filled it, with this name. */
			number = at;
		}
	}
	free(made);
	errno = saved;
	return number;
}

uint64_t trace_site(const struct call_site *site)
{
	return site && trace_is_on() ? number_of_name(&site_names, site, NULL) : 0;
}

uint64_t trace_range(const char *name)
{
	return trace_is_on() ? number_of_name(&range_names, NULL, name) : 0;
}

void names_each_new(enum trace_list list, void (*visit)(enum trace_list list, uint64_t number, const char *text))
{
	struct trace_names *table = list == TRACE_SITES ? &site_names : &range_names;

	if (atomic_load_explicit(&table->n, memory_order_relaxed) == table->n_told)
		return;
	for (unsigned i = 1; i < TRACE_NAMES_SLOTS; i++) {
		const struct trace_name *name = atomic_load_explicit(&table->slot[i], memory_order_acquire);

		if (!name || table->told[i])
			continue;
		table->told[i] = true;
		table->n_told++;
		visit(list, i, name->text);
		if (name->site && name->site->callers)
			visit(TRACE_CALLERS, i, name->site->callers);
	}
}

/* ---- the file ---- */

/*
 * The file of a trace: expands its name, creates it, composes its head, and writes to it.
 */

/* How many further names are tried if the name exists already. */
#define TRIES 1000

/* ---- the name ---- */

static const char *value_of(char letter, char room[256])
{
	room[0] = 0;
	switch (letter) {
	case 'p':
		snprintf(room, 256, "%d", (int)getpid());
		return room;
	case 'h':
		if (gethostname(room, 255) == 0)
			room[255] = 0;
		return room;
	case 'e':
		return program_invocation_short_name;
	case 'r':
		return rank_text() ? rank_text() : "0";
	case '%':
		return "%";
	default:
		return NULL;
	}
}

bool file_expand(const char *pattern, char *ret_name, size_t bytes, bool *ret_unique)
{
	char room[256];
	size_t at = 0;

	*ret_unique = false;
	ret_name[0] = 0;
	while (*pattern) {
		const char *value = *pattern == '%' && pattern[1] ? value_of(pattern[1], room) : NULL;

		*ret_unique |= value && pattern[1] == 'p';
		const char *text = value ? value : pattern;
		size_t n = value ? strlen(value) : 1;
		if (n >= bytes - at)
			return false;
		/* A '/' in a value never adds a folder to the path. */
		for (size_t i = 0; i < n; i++)
			ret_name[at++] = value && text[i] == '/' ? '_' : text[i];
		ret_name[at] = 0;
		pattern += value ? 2 : 1;
	}
	return at > 0;
}

/* ---- the file ---- */

static int trace_file_make(struct trace_file *file)
{
	struct stat status;

	file->fd = open(file->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file->fd < 0)
		return errno;
	/* If the program has closed standard input, output or error, its later output must not reach the trace. */
	if (file->fd <= STDERR_FILENO) {
		int low = file->fd;

		file->fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		int error = errno;
		close(low);
		if (file->fd < 0) {
			unlink(file->name);
			return error;
		}
	}
	if (fstat(file->fd, &status) == 0) {
		file->device = status.st_dev;
		file->inode = status.st_ino;
	}
	return 0;
}

/*
 * If the name exists already, appends the process ID, and then further numbers: other ranks and child processes of one
 * command use the same pattern.
 */
int file_make(struct trace_file *file, const char *pattern)
{
	bool unique;

	file->fd = -1;
	/* Leaves room for the suffix. */
	if (!file_expand(pattern, file->name, sizeof(file->name) - 32, &unique))
		return ENAMETOOLONG;
	size_t n = strlen(file->name);
	int error = trace_file_make(file);
	for (unsigned i = unique; error == EEXIST && i < TRIES; i++) {
		if (unique)
			snprintf(file->name + n, 32, ".%u", i);
		else
			snprintf(file->name + n, 32, i ? ".%d.%u" : ".%d", (int)getpid(), i);
		error = trace_file_make(file);
	}
	return error;
}

static bool is_ours(const struct trace_file *file)
{
	struct stat status;

	return file->fd >= 0 && fstat(file->fd, &status) == 0 && status.st_dev == file->device &&
	       status.st_ino == file->inode;
}

int file_write(const struct trace_file *file, const void *bytes, size_t n)
{
	const char *at = bytes;

	if (!is_ours(file))
		return EBADF;
	while (n) {
		ssize_t written = write(file->fd, at, n);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written ? errno : ENOSPC;
		at += written;
		n -= (size_t)written;
	}
	return 0;
}

void file_close(struct trace_file *file)
{
	if (is_ours(file))
		close(file->fd);
	file->fd = -1;
}

/* ---- the head ---- */

struct text {
	char *at;
	size_t left; /* bytes, with the terminating zero */
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int n = vsnprintf(text->at, text->left, format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= text->left) {
		*text->at = 0; /* a line is added whole or not at all */
		return;
	}
	text->at += n;
	text->left -= (size_t)n;
}

static void add_device(const struct trace_source_device *device, void *argument)
{
	add(argument, "%d:%llu ", device->ordinal, (unsigned long long)device->total);
}

static void head_name(const struct trace_source_device *device, void *argument)
{
	if (device->ordinal < STATS_DEVICES)
		add(argument, "gpu%d=%s\n", device->ordinal, stats.device[device->ordinal].name);
}

/* Makes the text of the head, cut if it does not fit. */
static void file_head(const struct policy *policy, const struct trace_sources *sources, char *ret_text, size_t bytes)
{
	struct text text = {ret_text, bytes};
	char host[256] = "", command[2048], job[RANK_JOB_BYTES];

	gethostname(host, sizeof(host) - 1);
	add(&text, "version=%d\nstart=%llu\nclock=%llu\n", TRACE_VERSION, (unsigned long long)clock_wall(),
	    (unsigned long long)clock_now());
	add(&text, "pid=%d\nhost=%s\n", (int)getpid(), host);
	if (rank_text())
		add(&text, "rank=%s\n", rank_text());
	if (rank_local())
		add(&text, "local_rank=%s\n", rank_local());
	if (rank_world())
		add(&text, "ranks=%s\n", rank_world());
	if (*rank_job(job))
		add(&text, "job=%s\n", job);
	stats_read_command(command, sizeof(command));
	add(&text, "command=%s\n", command);
	add(&text, "spillway=%s\n", SPILLWAY_VERSION);
	if (policy)
		add(&text, "policy=%s\npolicy_hash=%s\nmode=%s\n", policy_name(policy), policy_hash(policy),
		    policy_spill_name(process_spill_mode()));
	add(&text, "devices=");
	sources->each_device(add_device, &text);
	add(&text, "\n");
	sources->each_device(head_name, &text);
}

/* ---- the drainer ---- */

#define EVERY_NS  50000000
#define SAMPLE_NS 100000000
/* How long the end of the process waits for the drainer, which a busy machine gives little processor time. */
#define LAST_MS     2000
#define NICE        10
#define STACK_BYTES (1 << 20)

#define NUMBERS_MOST (1u << 20) /* the limit of readers; functions beyond it have number 0, which never gets a name */

/* The drainer and its file. Locking: from `writer` on, under `lock`, unless the field says otherwise. */
static struct {
	struct lock lock;       /* TRACE_FILE: protects the writer and the file */
	_Atomic uint32_t hurry; /* a futex: 1 if a ring is half full; without the lock */
	struct trace_writer *writer;
	struct trace_file file;
	_Atomic bool has_path; /* file.name is complete and does not change any more; read without the lock */
	bool failed, closed;
	struct trace_named *named; /* the addresses of one submission, reused */
	uint32_t named_room;       /* entries that `named` has room for */
} drainer = {.lock = LOCK_INIT(LOCK_TRACE_FILE), .file = {.fd = -1}};

#define TRACE_FUNCTIONS_MOST (1u << 15) /* remembered at a time; beyond that all are forgotten */

struct trace_known_function {
	uint64_t function; /* 0: the slot is free */
	uint64_t number;
};

/* The numbers of functions. Locking: under the drainer's lock. */
static struct {
	struct trace_known_function slots[2 * TRACE_FUNCTIONS_MOST];
	unsigned n;          /* slots in use */
	uint64_t latest;     /* the number that was given last; 0: none */
	uint64_t generation; /* function_generation() when the slots were emptied */
} functions;

/* The samples of devices that were written last. Locking: under the drainer's lock. */
static struct {
	uint64_t time;                          /* of the latest samples, ns; 0: none */
	struct trace_event last[STATS_DEVICES]; /* by ordinal */
	bool is_told[STATS_DEVICES];            /* `last` of the device is set */
} samples;

/* The head of the file and its text, made once; too large for the drainer's frame. Under the drainer's lock. */
static char head_room[16384], text_room[12288];

const char *trace_path(void)
{
	return atomic_load_explicit(&drainer.has_path, memory_order_acquire) ? drainer.file.name : "";
}

/* ---- writing ---- */

static void trace_drain_fail(int error)
{
	char why[FILE_NAME_MOST + 160];

	drainer.failed = true;
	snprintf(why, sizeof(why), "%s: %s", drainer.file.name,
		 error == EBADF ? "the program has closed it; what was written can be read" : strerror(error));
	trace_fail(why);
}

static void trace_drain_add(const struct trace_event *event)
{
	if (!trace_frame_add(drainer.writer, event) && !drainer.failed)
		trace_drain_fail(ENOMEM);
}

static void end_frame(void)
{
	size_t n;
	const void *frame = trace_frame_end(drainer.writer, &n);
	int error = n && !drainer.failed ? file_write(&drainer.file, frame, n) : 0;

	if (error)
		trace_drain_fail(error);
}

static void add_name(enum trace_list list, uint64_t number, const char *text)
{
	trace_drain_add(&(struct trace_event){
	    .kind = TRACE_name, .time = clock_now(), .name = {list, number}, .text = text, .text_bytes = strlen(text)});
}

/* Opens the file at the first event. Returns false if there is no file. */
static bool is_open(void)
{
	if (drainer.failed || drainer.closed)
		return false;
	if (drainer.file.fd >= 0)
		return true;
	const char *pattern = secure_getenv("SPILLWAY_TRACE");
	drainer.writer = trace_writer_new();
	int error = drainer.writer && pattern ? file_make(&drainer.file, pattern) : ENOMEM;
	if (!error) {
		atomic_store_explicit(&drainer.has_path, true, memory_order_release);
		file_head(trace_state.start.policy, trace_state.start.sources, text_room, sizeof(text_room));
		error = file_write(&drainer.file, head_room, trace_head(text_room, head_room, sizeof(head_room)));
	}
	if (error) {
		trace_drain_fail(error);
		return false;
	}
	if (strcmp(pattern, drainer.file.name) != 0 && !strchr(pattern, '%'))
		log_line("the trace goes to %s", drainer.file.name);
	trace_frame_begin(drainer.writer, 0, clock_now());
	for (size_t i = 0; trace_state.start.policy && i < policy_n_rules(trace_state.start.policy); i++)
		add_name(TRACE_RULES, i + 1, policy_rule_name(trace_state.start.policy, (int)i));
	add_name(TRACE_THREADS, 0, "spillway");
	end_frame();
	return !drainer.failed;
}

/* ---- functions ---- */

static void tell_function(uint64_t number, uint64_t function, uint32_t id)
{
	char text[TRACE_FUNCTION_NAME + 8];

	if (function < REAL_COUNT)
		snprintf(text, sizeof(text), "%s", real_name((int)function));
	else if (!trace_state.start.sources->function_name(function, text))
		snprintf(text, sizeof(text), "%s 0x%llx",
			 !strncmp(real_name((int)id), "cuGraphLaunch", 13) ? "graph" : "kernel",
			 (unsigned long long)function);
	add_name(TRACE_FUNCTIONS, number, text);
}

static struct trace_known_function *slot_of(uint64_t function)
{
	uint64_t at = (function ^ function >> 32) * UINT64_C(0x9fb21c651e98df25) >> 32;

	while (functions.slots[at % (2 * TRACE_FUNCTIONS_MOST)].function &&
	       functions.slots[at % (2 * TRACE_FUNCTIONS_MOST)].function != function)
		at++;
	return &functions.slots[at % (2 * TRACE_FUNCTIONS_MOST)];
}

/* Returns 0 for function 0, which means none. */
static uint64_t number_of(uint64_t function, uint32_t id)
{
	if (!function)
		return 0;
	if (functions.generation != trace_state.start.sources->function_generation() ||
	    functions.n == TRACE_FUNCTIONS_MOST) {
		memset(functions.slots, 0, sizeof(functions.slots));
		functions.n = 0;
		functions.generation = trace_state.start.sources->function_generation();
	}
	struct trace_known_function *slot = slot_of(function);
	if (slot->function)
		return slot->number;
	if (functions.latest + 1 == NUMBERS_MOST)
		return 0;
	*slot = (struct trace_known_function){function, ++functions.latest};
	functions.n++;
	tell_function(slot->number, function, id);
	return slot->number;
}

/* ---- records ---- */

static uint64_t word_at(const struct ring *ring, uint64_t at)
{
	return ring->words[at % RING_WORDS];
}

/* Reads the addresses of a submission into `named`. Returns false without memory. */
static bool read_named(const struct ring *ring, uint64_t at, uint64_t end, size_t *ret_n)
{
	size_t n = 0;

	while (at < end) {
		uint64_t word = word_at(ring, at++);

		if (!ARRAY_ROOM(drainer.named, (uint32_t)n, drainer.named_room, ARRAY_MOST))
			return false;
		drainer.named[n++] =
		    (struct trace_named){word & ~(uint64_t)1, word & 1 && at < end ? word_at(ring, at++) : 0};
	}
	*ret_n = n;
	return true;
}

/* Adds the record at `at` to the frame. Returns the position of the next record. */
static uint64_t write_record(const struct ring *ring, uint64_t at)
{
	uint64_t head = word_at(ring, at), end = at + RECORD_WORDS(head);
	struct trace_event event = {.kind = RECORD_KIND(head), .time = word_at(ring, at + 1)};
	size_t n = 0;

	at += 2;
	for (unsigned i = 0; i < TRACE_FIELDS && at + i < end; i++)
		event.field[i] = word_at(ring, at + i);
	if (event.kind == TRACE_submit) {
		if (!read_named(ring, at + 2, end, &n)) {
			trace_drain_fail(ENOMEM);
			return end;
		}
		event.submit.function = number_of(word_at(ring, at), RECORD_ID(head));
		event.submit.device = word_at(ring, at + 1);
		event.submit.n = n;
		event.named = drainer.named;
	}
	if (event.kind == TRACE_wait)
		event.wait.function = number_of(event.wait.function, 0);
	trace_drain_add(&event);
	return end;
}

static void drain_ring(struct ring *ring)
{
	uint64_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed),
		 lost = atomic_load_explicit(&ring->lost, memory_order_relaxed) - ring->lost_told;

	if (at == ring->until && !lost)
		return;
	trace_frame_begin(drainer.writer, ring->number, at != ring->until ? word_at(ring, at + 1) : clock_now());
	if (ring->number_told != ring->number)
		add_name(TRACE_THREADS, ring->number, ring->number ? ring->name : "threads without a ring");
	ring->number_told = ring->number;
	while (at != ring->until)
		at = write_record(ring, at);
	if (lost)
		trace_drain_add(&(struct trace_event){.kind = TRACE_lost, .time = clock_now(), .lost = {lost}});
	ring->lost_told += lost;
	end_frame();
	atomic_store_explicit(&ring->tail, at, memory_order_release);
}

/* ---- figures ---- */

/*
 * Adds a sample of a device if it differs from the previous one. Devices that have no figures are left out; a reader
 * finds no samples of them. Once a device has been sampled, it continues to be, with zeros.
 */
static void sample_one(const struct trace_source_device *device, void *argument)
{
	struct trace_event event = device->sample;

	if ((unsigned)device->ordinal >= STATS_DEVICES)
		return;
	struct trace_event *last = &samples.last[device->ordinal];
	bool *told = &samples.is_told[device->ordinal];
	if (!device->any && !*told)
		return;
	event.time = *(const uint64_t *)argument;
	if (!*told || memcmp(last->field, event.field, sizeof(event.field)) != 0)
		trace_drain_add(&event);
	*told = true;
	*last = event;
}

/* Samples all devices at most every SAMPLE_NS. The last sample is always taken, however short the run. */
static void trace_drain_sample(uint64_t now, bool last)
{
	if (samples.time && !last && now - samples.time < SAMPLE_NS)
		return;
	samples.time = now;
	trace_state.start.sources->each_device(sample_one, &now);
}

/* ---- one pass over the rings ---- */

static void trace_drain_turn(void)
{
	uint64_t now = clock_now();

	/* How far this pass reads. Rings that are added to the list later wait for the next one. */
	for (struct ring *ring = atomic_load(&trace_state.rings.first); ring; ring = ring->next) {
		ring->seen = atomic_load_explicit(&ring->state, memory_order_acquire);
		ring->until = atomic_load_explicit(&ring->head, memory_order_acquire);
	}
	if (!is_open())
		return;
	/* Names and figures belong to no thread of the program: they are written as events of the drainer, number 0. */
	trace_frame_begin(drainer.writer, 0, now);
	names_each_new(TRACE_SITES, add_name);
	names_each_new(TRACE_RANGES, add_name);
	trace_drain_sample(now, false);
	end_frame();
	for (struct ring *ring = atomic_load(&trace_state.rings.first); ring && !drainer.failed; ring = ring->next) {
		if (ring->seen != RING_USED && ring->seen != RING_LEFT)
			continue;
		drain_ring(ring);
		/* No thread writes to it any more, and it is empty now. */
		if (ring->seen == RING_LEFT)
			atomic_store_explicit(&ring->state, RING_FREE, memory_order_release);
	}
	drain_ring(&trace_state.rings.none);
}

/* ---- the thread ---- */

void drain_hurry(void)
{
	int saved = errno;

	if (!atomic_exchange(&drainer.hurry, 1))
		syscall(SYS_futex, &drainer.hurry, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

static void *trace_drain_run(void *argument)
{
	const struct sched_param parameter = {0};
	const struct timespec every = {.tv_nsec = EVERY_NS};

	(void)argument;
	enter_depth = 1;
	prctl(PR_SET_NAME, "spillway-trace");
	pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameter);
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	while (trace_is_on()) {
		lock_take(&drainer.lock);
		atomic_store(&drainer.hurry, 0);
		if (trace_is_on())
			trace_drain_turn();
		lock_drop(&drainer.lock);
		syscall(SYS_futex, &drainer.hurry, FUTEX_WAIT_PRIVATE, 0, &every, NULL, 0);
	}
	return NULL;
}

bool drain_start(void)
{
	return thread_start(trace_drain_run, NULL, STACK_BYTES, false, NULL) == 0;
}

/* ---- the end ---- */

/*
 * Blocks SIGXFSZ meanwhile: a write beyond the limit on the size of files raises it, which would change the exit
 * status of the process.
 */
static void write_last(void)
{
	const struct timespec now = {0};
	sigset_t ours, before, pending;

	sigemptyset(&ours);
	sigaddset(&ours, SIGXFSZ);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &ours, &before);
	trace_drain_turn();
	if (!drainer.failed && drainer.file.fd >= 0) {
		uint64_t time = clock_now();

		trace_frame_begin(drainer.writer, 0, time);
		trace_drain_sample(time, true);
		trace_drain_add(&(struct trace_event){.kind = TRACE_end, .time = time, .end = {time}});
		end_frame();
	}
	while (!sigismember(&pending, SIGXFSZ) && sigtimedwait(&ours, NULL, &now) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void drain_last(void)
{
	const struct timespec step = {.tv_nsec = 500000};
	uint64_t until = clock_now() + LAST_MS * UINT64_C(1000000);

	while (!lock_try(&drainer.lock)) {
		if (clock_now() > until) {
			log_line("  the trace lacks its end: its thread was still writing after %d s", LAST_MS / 1000);
			return;
		}
		syscall(SYS_nanosleep, &step, NULL); /* no cancellation point, unlike nanosleep() */
	}
	write_last();
	drainer.closed = true;
	file_close(&drainer.file);
	lock_drop(&drainer.lock);
}
