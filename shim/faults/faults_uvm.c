// SPDX-License-Identifier: Apache-2.0
/*
 * Opens trackers on the driver's tools device. To make one: open the device; by ioctl 56, pass the address of our page,
 * the processor and the process (a descriptor of its /dev/nvidia-uvm); by ioctl 60 (58 for a queue), pass what is
 * wanted. From then on the driver adds to our page, and reading it needs no call. The driver pins the page and holds a
 * reference to the descriptor.
 *
 * A process has two descriptors of /dev/nvidia-uvm. One exists only for an orderly shutdown and is refused, so each is
 * tried.
 *
 * Layouts: the numbers of the ioctls never changed, the place of the answer did (open kernel modules, uvm_ioctl.h, from
 * 515 to 575): 555 wants a version of the queue's format behind the answer, 560 in front of it, all others have none.
 * The driver's version selects the row, and the self-test decides: the place of the answer is filled with a value that
 * is no answer, and everything else must come back unchanged. A driver with another layout refuses that value as a
 * version, or leaves it where it is. The driver never clears counters, so a page that is 0, with a pattern behind the
 * counters, shows what has been written since.
 */
#include "shim/faults/faults_uvm.h"
#include "shim/stats/stats_page.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	INIT_TRACKER = 56,
	ENABLE_EVENTS = 58,
	ENABLE_COUNTERS = 60,
	PROCESSOR_TABLE = 64, /* on /dev/nvidia-uvm itself */
	PARAMETERS = 256,     /* more than any driver reads or writes */
	FILES_MOST = 65536,   /* most descriptors that are examined */
	NO_ANSWER = 0xffffff, /* not a status of the driver; its format versions are 1 and 2 */
	FORMAT = 1,           /* format of events that every driver supports */
};
#define PATTERN UINT64_C(0x5157494c4c574159)

struct uvm_layout {
	unsigned from, to;                          /* major versions, both included */
	unsigned init_word, init_answer, init_echo; /* offsets in bytes; 0: the field does not exist */
	unsigned table_word, table_answer;
};
static const struct uvm_layout layouts[] = {
    {0, 554, 0, 48, 0, 0, 12},
    {555, 559, 52, 48, 56, 0, 12},
    {560, 564, 48, 52, 0, 8, 12},
    {565, 9999, 0, 48, 0, 0, 8},
};
#define NEWEST (&layouts[sizeof(layouts) / sizeof(layouts[0]) - 1])

/* ---- the system ---- */

static int system_open(const char *path, int flags)
{
	return open(path, flags);
}

static int system_ioctl(int fd, unsigned long request, void *parameters)
{
	return ioctl(fd, request, parameters);
}

static ssize_t system_link(int fd, char *buffer, size_t room)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, buffer, room);
}

static int system_wait(int fd, int wait_ms)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	int n = poll(&wait, 1, wait_ms);

	return n > 0 && !(wait.revents & POLLIN) ? -1 : n;
}

const struct faults_seam uvm_system = {
    .size = sizeof(struct faults_seam),
    .open = system_open,
    .close = close,
    .ioctl = system_ioctl,
    .link = system_link,
    .wait = system_wait,
};

/* ---- descriptors ---- */

static bool faults_uvm_hold(struct uvm_held *held, int fd)
{
	struct stat status;

	if (fd < 0 || fstat(fd, &status))
		return false;
	*held = (struct uvm_held){fd, status.st_dev, status.st_ino};
	return true;
}

bool uvm_is_ours(const struct uvm_held *held)
{
	struct stat status;

	return held->fd >= 0 && !fstat(held->fd, &status) && status.st_dev == held->device &&
	       status.st_ino == held->inode;
}

static void let_go(const struct uvm *uvm, struct uvm_held *held)
{
	if (uvm_is_ours(held))
		uvm->seam->close(held->fd);
	held->fd = -1;
}

static int open_tools(const struct uvm *uvm, char *ret_why)
{
	int fd = uvm->seam->open(FAULTS_TOOLS, O_RDWR | O_CLOEXEC);

	/* The ioctls do not check the mode in which it was opened. */
	if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
		fd = uvm->seam->open(FAULTS_TOOLS, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	if (errno == ENOENT || errno == ENXIO || errno == ENODEV)
		snprintf(ret_why, UVM_WHY, "%s is not there; a container has to be given it", FAULTS_TOOLS);
	else
		snprintf(ret_why, UVM_WHY, "%s: %s", FAULTS_TOOLS, strerror(errno));
	return -1;
}

/* ---- the version ---- */

bool uvm_parse_version(const char *text, char ret_version[24], unsigned *ret_major)
{
	for (const char *at = text; *at; at += strcspn(at, " \t\n")) {
		size_t blanks = strspn(at, " \t\n"), digits, length;

		at += blanks;
		digits = strspn(at, "0123456789");
		length = strspn(at, "0123456789.");
		if (at != text && !blanks)
			break;
		if (digits < 2 || digits > 4 || length >= 24 || at[digits] != '.' ||
		    !isdigit((unsigned char)at[digits + 1]) || (at[length] && !strchr(" \t\n", at[length])))
			continue;
		snprintf(ret_version, 24, "%.*s", (int)length, at);
		*ret_major = (unsigned)strtoul(at, NULL, 10);
		return true;
	}
	return false;
}

static bool read_version(const struct faults_seam *seam, char ret_version[24], unsigned *ret_major)
{
	int fd = seam->open(FAULTS_VERSION, O_RDONLY | O_CLOEXEC);
	char text[512];

	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	seam->close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	return uvm_parse_version(text, ret_version, ret_major);
}

bool uvm_open(const struct faults_seam *seam, struct uvm *ret_uvm, char *ret_why)
{
	unsigned major = 0;

	*ret_uvm = (struct uvm){.seam = seam, .version = "unknown", .layout = NEWEST, .file = {.fd = -1}};
	/* Not every container shows the version; for most drivers the self-test then verifies the layout. */
	if (!read_version(seam, ret_uvm->version, &major))
		return true;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		if (major < layouts[i].from || major > layouts[i].to)
			continue;
		ret_uvm->layout = &layouts[i];
		return true;
	}
	snprintf(ret_why, UVM_WHY, "driver %s is not known", ret_uvm->version);
	return false;
}

void uvm_close(struct uvm *uvm)
{
	let_go(uvm, &uvm->file);
}

/* ---- ioctls ---- */

static uint32_t word_at(const unsigned char *parameters, unsigned at)
{
	uint32_t word;

	memcpy(&word, parameters + at, sizeof(word));
	return word;
}

static void faults_uvm_put(unsigned char *parameters, unsigned at, uint32_t word)
{
	memcpy(parameters + at, &word, sizeof(word));
}

static void put_long(unsigned char *parameters, unsigned at, uint64_t value)
{
	memcpy(parameters + at, &value, sizeof(value));
}

/* Result of an ioctl. */
enum outcome { DONE, REFUSED, ODD };

/* Issues an ioctl and checks the answer. echo: offset of another word that the driver may write, 0 for none. */
static enum outcome faults_uvm_ask(const struct uvm *uvm, int fd, unsigned request, unsigned char *parameters,
				   unsigned answer, unsigned echo, char *ret_why)
{
	unsigned char sent[PARAMETERS];

	faults_uvm_put(parameters, answer, NO_ANSWER);
	memcpy(sent, parameters, sizeof(sent));
	if (uvm->seam->ioctl(fd, request, parameters)) {
		snprintf(ret_why, UVM_WHY, "driver %s does not take ioctl %u: %s", uvm->version, request,
			 strerror(errno));
		return REFUSED;
	}
	uint32_t status = word_at(parameters, answer);
	if (echo)
		faults_uvm_put(sent, echo, word_at(parameters, echo));
	faults_uvm_put(sent, answer, status);
	if (status == NO_ANSWER || memcmp(sent, parameters, sizeof(sent))) {
		snprintf(ret_why, UVM_WHY, "driver %s answers ioctl %u in a form that is not known", uvm->version,
			 request);
		return ODD;
	}
	if (status) {
		snprintf(ret_why, UVM_WHY, "driver %s refuses ioctl %u with status 0x%x", uvm->version, request,
			 status);
		return REFUSED;
	}
	return DONE;
}

/* What a tracker is opened for: counters (queue NULL) or a queue of n entries; and which of them to enable. */
struct wish {
	unsigned enable; /* ENABLE_COUNTERS or ENABLE_EVENTS, which take the same parameters */
	uint64_t which;  /* bits */
	void *queue, *control;
	uint32_t n;
	const unsigned char *uuid;
};

static enum outcome init_with(const struct uvm *uvm, int tools, int file, const struct wish *wish, char *ret_why)
{
	const struct uvm_layout *layout = uvm->layout;
	unsigned char parameters[PARAMETERS] = {0};

	put_long(parameters, 0, (uintptr_t)wish->queue);
	put_long(parameters, 8, wish->n);
	put_long(parameters, 16, (uintptr_t)wish->control);
	if (wish->uuid)
		memcpy(parameters + 24, wish->uuid, 16);
	faults_uvm_put(parameters, 40, !wish->uuid);
	faults_uvm_put(parameters, 44, (uint32_t)file);
	if (layout->init_word)
		faults_uvm_put(parameters, layout->init_word, FORMAT);
	return faults_uvm_ask(uvm, tools, INIT_TRACKER, parameters, layout->init_answer, layout->init_echo, ret_why);
}

static bool is_uvm(const struct uvm *uvm, int fd)
{
	char text[sizeof(FAULTS_UVM) + 1];
	ssize_t n = uvm->seam->link(fd, text, sizeof(text));

	return n == (ssize_t)strlen(FAULTS_UVM) && !memcmp(text, FAULTS_UVM, (size_t)n);
}

/* Tries one descriptor of the program, through a copy that cannot be closed and reused meanwhile. */
static enum outcome try_file(struct uvm *uvm, int tools, int fd, const struct wish *wish, char *ret_why)
{
	struct uvm_held copy = {.fd = -1};
	int duplicate = is_uvm(uvm, fd) ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
	enum outcome outcome = REFUSED;

	if (!faults_uvm_hold(&copy, duplicate))
		return REFUSED;
	if (is_uvm(uvm, duplicate))
		outcome = init_with(uvm, tools, duplicate, wish, ret_why);
	if (outcome == DONE)
		uvm->file = copy;
	else
		close(duplicate);
	return outcome;
}

static enum outcome find_file(struct uvm *uvm, int tools, const struct wish *wish, char *ret_why)
{
	DIR *folder = opendir("/proc/self/fd");
	enum outcome outcome = REFUSED;
	struct dirent *entry;

	snprintf(ret_why, UVM_WHY, "the process has not opened %s", FAULTS_UVM);
	if (!folder)
		return REFUSED;
	for (unsigned i = 0; i < FILES_MOST && outcome == REFUSED && (entry = readdir(folder)); i++) {
		int fd = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : -1;

		/* The list includes the copies made here; each exists only within one iteration. */
		if (fd >= 0 && fd != dirfd(folder))
			outcome = try_file(uvm, tools, fd, wish, ret_why);
	}
	closedir(folder);
	return outcome;
}

static bool faults_uvm_init(struct uvm *uvm, int tools, const struct wish *wish, char *ret_why)
{
	if (uvm->file.fd < 0)
		return find_file(uvm, tools, wish, ret_why) == DONE;
	if (uvm_is_ours(&uvm->file))
		return init_with(uvm, tools, uvm->file.fd, wish, ret_why) == DONE;
	snprintf(ret_why, UVM_WHY, "the program closed our descriptor of %s", FAULTS_UVM);
	return false;
}

/* ---- pages that the driver writes to ---- */

/*
 * Maps pages that a child of a fork does not inherit: otherwise the parent's next write would copy them, and the driver
 * would go on in the old pages.
 */
static void *map_pages(size_t bytes, char *ret_why)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (at == MAP_FAILED || madvise(at, bytes, MADV_DONTFORK)) {
		snprintf(ret_why, UVM_WHY, "no memory for the driver's counters: %s", strerror(errno));
		if (at != MAP_FAILED)
			munmap(at, bytes);
		return NULL;
	}
	return at;
}

/*
 * Opens the tools device, makes a tracker on it and enables it. Returns false, with nothing left open, if that fails.
 */
static bool open_tracker(struct uvm *uvm, const struct wish *wish, struct uvm_held *ret_held, char *ret_why)
{
	unsigned char parameters[PARAMETERS] = {0};
	int fd = open_tools(uvm, ret_why);

	if (fd < 0)
		return false;
	put_long(parameters, 0, wish->which);
	if (!faults_uvm_hold(ret_held, fd))
		snprintf(ret_why, UVM_WHY, "%s: %s", FAULTS_TOOLS, strerror(errno));
	else if (faults_uvm_init(uvm, fd, wish, ret_why) &&
		 faults_uvm_ask(uvm, fd, wish->enable, parameters, 8, 0, ret_why) == DONE)
		return true;
	uvm->seam->close(fd);
	return false;
}

bool uvm_counter_open(struct uvm *uvm, const unsigned char *uuid, struct uvm_counter *ret_counter, char *ret_why)
{
	const uint64_t wanted = 1u << UVM_BYTES_IN | 1u << UVM_BYTES_OUT | 1u << UVM_CPU_FAULTS | 1u << UVM_GPU_FAULTS;
	struct uvm_counter counter = {.bytes = (size_t)sysconf(_SC_PAGESIZE)};

	counter.slots = map_pages(counter.bytes, ret_why);
	if (!counter.slots)
		return false;
	for (size_t i = UVM_SLOTS; i < counter.bytes / sizeof(uint64_t); i++)
		counter.slots[i] = PATTERN;
	struct wish wish = {.enable = ENABLE_COUNTERS, .which = wanted, .control = counter.slots, .uuid = uuid};
	bool is_open = open_tracker(uvm, &wish, &counter.held, ret_why);
	if (is_open && uvm_counter_is_sound(&counter)) {
		*ret_counter = counter;
		return true;
	}
	if (is_open) {
		snprintf(ret_why, UVM_WHY, "driver %s writes what was not asked for", uvm->version);
		let_go(uvm, &counter.held);
	}
	munmap(counter.slots, counter.bytes);
	return false;
}

uint64_t uvm_counter_read(const struct uvm_counter *counter, enum uvm_slot slot)
{
	return __atomic_load_n(&counter->slots[slot], __ATOMIC_RELAXED);
}

bool uvm_counter_is_sound(const struct uvm_counter *counter)
{
	uint64_t wrong = 0;

	for (int i = UVM_CPU_FAULTS + 1; i < UVM_GPU_FAULTS; i++)
		wrong |= uvm_counter_read(counter, (enum uvm_slot)i);
	for (size_t i = UVM_SLOTS; i < counter->bytes / sizeof(uint64_t); i++)
		wrong |= __atomic_load_n(&counter->slots[i], __ATOMIC_RELAXED) ^ PATTERN;
	return !wrong;
}

/* ---- the queue ---- */

/* Words of the control block. "Behind" is how far a side has finished, "ahead" how far it has begun. */
enum { GET_AHEAD, GET_BEHIND, PUT_AHEAD, PUT_BEHIND, CONTROL_WORDS };
#define EVENT_TYPES 64

bool uvm_queue_open(struct uvm *uvm, uint32_t n, uint64_t types, struct uvm_queue *ret_queue, char *ret_why)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), entries = ((size_t)n * UVM_ENTRY + page - 1) / page * page;
	/* The control block has 16 + 64 * 8 bytes, less than a page. */
	struct uvm_queue queue = {.n = n, .bytes = entries + page};

	queue.entries = map_pages(queue.bytes, ret_why);
	if (!queue.entries)
		return false;
	queue.control = (uint32_t *)(queue.entries + entries);
	struct wish wish = {
	    .enable = ENABLE_EVENTS, .which = types, .queue = queue.entries, .n = n, .control = queue.control};
	if (!open_tracker(uvm, &wish, &queue.held, ret_why)) {
		munmap(queue.entries, queue.bytes);
		return false;
	}
	*ret_queue = queue;
	return true;
}

bool uvm_queue_read(struct uvm_queue *queue, unsigned char *ret_entry)
{
	uint32_t put = __atomic_load_n(&queue->control[PUT_BEHIND], __ATOMIC_ACQUIRE) & (queue->n - 1);

	if (put == queue->get)
		return false;
	memcpy(ret_entry, queue->entries + (size_t)queue->get * UVM_ENTRY, UVM_ENTRY);
	queue->get = (queue->get + 1) & (queue->n - 1);
	__atomic_store_n(&queue->control[GET_AHEAD], queue->get, __ATOMIC_RELEASE);
	__atomic_store_n(&queue->control[GET_BEHIND], queue->get, __ATOMIC_RELEASE);
	return true;
}

uint64_t uvm_queue_lost(const struct uvm_queue *queue)
{
	const uint64_t *dropped = (const uint64_t *)(queue->control + CONTROL_WORDS); /* by type of event */
	uint64_t n = 0;

	if (!uvm_is_ours(&queue->held))
		return STATS_NA;
	for (unsigned i = 0; i < EVENT_TYPES; i++)
		n += __atomic_load_n(&dropped[i], __ATOMIC_RELAXED);
	return n;
}

void uvm_queue_wait(const struct uvm *uvm, const struct uvm_queue *queue, int wait_ms)
{
	/* An error, or a descriptor that is no longer ours, must not make the caller spin. */
	if (!uvm_is_ours(&queue->held) || uvm->seam->wait(queue->held.fd, wait_ms) < 0)
		usleep((useconds_t)wait_ms * 1000);
}

/* ---- processors ---- */

void uvm_processors(struct uvm *uvm, unsigned char ret_uuids[UVM_PROCESSORS][16])
{
	/* More than any driver writes: some have a row for each part of each GPU. */
	static const size_t room = (size_t)1 << 16;
	unsigned char parameters[PARAMETERS] = {0}, *table = calloc(1, room);
	const struct uvm_layout *layout = uvm->layout;

	put_long(parameters, 0, (uintptr_t)table);
	if (layout->table_word)
		faults_uvm_put(parameters, layout->table_word, FORMAT);
	faults_uvm_put(parameters, layout->table_answer, NO_ANSWER);
	if (table && uvm_is_ours(&uvm->file) && !uvm->seam->ioctl(uvm->file.fd, PROCESSOR_TABLE, parameters) &&
	    !word_at(parameters, layout->table_answer))
		memcpy(ret_uuids, table, (size_t)UVM_PROCESSORS * 16);
	free(table);
}
