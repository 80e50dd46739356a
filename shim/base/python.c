// SPDX-License-Identifier: Apache-2.0
/*
 * Where a Python thread is, and the interpreter of this process. See python.h.
 */
#include "shim/base/python.h"
#include "shim/base/base_state.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/base/number.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	FRAMES_MOST = 256, /* frames that are read; of a deep recursion the innermost ones */
	FILE_MOST = 512,   /* characters of a path that are read; a file with a longer one counts as the user's */
	NAME_MOST = 96,    /* characters of the name of a function */
	PART = 256, /* bytes that are read of a frame, a code object or a thread state at once; each is smaller */
};

static bool read_all(const struct python *python, uint64_t address, void *room, size_t bytes)
{
	return address && python->memory.read(python->memory.context, address, room, bytes) == bytes;
}

static uint64_t word_at(const unsigned char *part, unsigned offset)
{
	uint64_t word;

	memcpy(&word, part + offset, sizeof(word));
	return word;
}

static bool word_of(const struct python *python, uint64_t address, unsigned offset, uint64_t *ret_word)
{
	return address && read_all(python, address + offset, ret_word, sizeof(*ret_word));
}

/* ---- texts ---- */

/* Appends a character as UTF-8; a control character, and a byte of a file name that is not UTF-8 (PEP 383), as '?'. */
static size_t put(char *room, size_t n, uint32_t c)
{
	static const uint8_t heads[] = {0, 0xc0, 0xe0, 0xf0};

	if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		c = '?';
	unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes behind the first */
	room[n++] = (char)(heads[more] | c >> 6 * more);
	while (more--)
		room[n++] = (char)(0x80 | (c >> 6 * more & 63));
	return n;
}

/*
 * Reads a str object as UTF-8, at most `most` characters (512) of it. Returns false if it is none, or empty.
 */
static bool read_text(const struct python *python, uint64_t address, size_t most, char *room, size_t bytes)
{
	unsigned char part[72 + 4 * FILE_MOST];
	const size_t got =
	    address ? python->memory.read(python->memory.context, address, part, python->layout.text_other_head + most)
		    : 0;

	if (got < PYTHON_TEXT_STATE + 4 || word_at(part, PYTHON_TYPE) != python->text_type)
		return false;
	uint64_t length = word_at(part, PYTHON_TEXT_LENGTH);
	/* Bits of the state: 2 interned, 3 kind (bytes of a character), 1 compact, 1 ascii. */
	unsigned state = part[PYTHON_TEXT_STATE], width = state >> 2 & 7;
	size_t head = state & 0x40 ? python->layout.text_ascii_head : python->layout.text_other_head, n = 0;
	if (!length || !(state & 0x20) || (width != 1 && width != 2 && width != 4))
		return false;
	if (length > most)
		length = most;
	size_t size = head + length * width;
	if (got < size && !read_all(python, address, part, size))
		return false;
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a shorter character is the lower part of a word");
	for (size_t i = 0; i < length && n + 5 <= bytes; i++) {
		uint32_t c = 0;

		memcpy(&c, part + head + i * width, width);
		n = put(room, n, c);
	}
	room[n] = 0;
	return true;
}

/* ---- whose file it is ---- */

/* Packages whose frames say nothing about what asked for memory: their caller does. */
static const char *const frameworks[] = {"torch",      "torchvision", "cupy",  "cupyx",      "cupy_backends",
					 "jax",        "jaxlib",      "numba", "numba_cuda", "numpy",
					 "tensorflow", "triton",      "cuda",  "pycuda",     "accelerate"};

/* Returns what follows "/site-packages/" or "/dist-packages/" in the path, or NULL. */
static const char *in_packages(const char *path)
{
	const char *at = strstr(path, "/site-packages/");

	if (!at)
		at = strstr(path, "/dist-packages/");
	return at ? at + strlen("/site-packages/") : NULL;
}

static bool is_framework(const char *package)
{
	size_t n = strcspn(package, "/.");

	for (size_t i = 0; i < sizeof(frameworks) / sizeof(frameworks[0]); i++)
		if (strlen(frameworks[i]) == n && !memcmp(frameworks[i], package, n))
			return true;
	return false;
}

/* The standard library: ".../lib/python3.11/...", and its archive ".../lib/python311.zip/...". */
static bool is_standard(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/python3")); at++)
		if ((at[8] == '.' || (at[8] >= '0' && at[8] <= '9')) &&
		    ((at - path >= 4 && !memcmp(at - 4, "/lib", 4)) ||
		     (at - path >= 6 && !memcmp(at - 6, "/lib64", 6))))
			return true;
	return false;
}

static enum python_found kind_of(const char *path)
{
	const char *package = in_packages(path);

	if (!strcmp(path, "<stdin>") || !strncmp(path, "<ipython-", 9))
		return PYTHON_OF_USER;
	/* A command line (python -c), but also what is made at run time: __init__() of a data class. */
	if (!strcmp(path, "<string>"))
		return PYTHON_OF_PACKAGE;
	if (*path == '<')
		return PYTHON_NOT_NAMED;
	if (package)
		return is_framework(package) ? PYTHON_NOT_NAMED : PYTHON_OF_PACKAGE;
	/* What torch.compile() writes: its caller is the user's. */
	return is_standard(path) || strstr(path, "/torchinductor_") ? PYTHON_NOT_NAMED : PYTHON_OF_USER;
}

/* Returns the name of the file, with its folder where all packages have a file of that name. */
static const char *short_name(const char *path)
{
	const char *name = strrchr(path, '/');

	if (!name)
		return path;
	if (strncmp(name, "/__", 3) != 0)
		return name + 1;
	while (name > path && name[-1] != '/')
		name--;
	return name;
}

/* ---- frames ---- */

struct frame {
	uint64_t code, back, instruction;
	bool is_python;
};

static bool read_frame(const struct python *python, uint64_t address, struct frame *ret_frame)
{
	const struct python_layout *layout = &python->layout;
	unsigned char part[PART];
	bool has_owner = layout->frame_owner != PYTHON_NONE;
	size_t bytes = larger(layout->frame_instruction + 8u, layout->frame_code + 8u);

	bytes = larger(larger(bytes, layout->frame_back + 8u), has_owner ? layout->frame_owner + 1u : 0);
	if (bytes > sizeof(part) || address % 8 || !read_all(python, address, part, bytes))
		return false;
	/* From 3.14 on the lowest bits of the pointer to the code say who holds a reference. */
	ret_frame->code = word_at(part, layout->frame_code) & ~(uint64_t)7;
	ret_frame->back = word_at(part, layout->frame_back);
	ret_frame->instruction = word_at(part, layout->frame_instruction);
	ret_frame->is_python = !has_owner || part[layout->frame_owner] < PYTHON_OWNER_NONE;
	return true;
}

/* Returns the line that the frame is at, or 0. code: the start of its code object. */
static unsigned line_of(const struct python *python, const struct frame *frame, const unsigned char *code)
{
	const struct python_layout *layout = &python->layout;
	uint64_t table = word_at(code, layout->code_lines), type, size, offset;
	uint32_t first;

	memcpy(&first, code + layout->code_first_line, sizeof(first));
	if (!word_of(python, table, PYTHON_TYPE, &type) || type != python->bytes_type ||
	    !word_of(python, table, PYTHON_BYTES_SIZE, &size))
		return 0;
	if (layout->code_instructions != PYTHON_NONE) {
		offset = frame->instruction - (frame->code + layout->code_instructions);
	} else {
		int32_t index = (int32_t)frame->instruction;

		offset = (uint64_t)index * (layout->lines == PYTHON_LINES_LINETABLE ? 2 : 1);
	}
	/* A frame that has not begun is before its first instruction. */
	if (offset > UINT32_MAX)
		return first;
	return python_lines_find(&python->memory, layout->lines, table + PYTHON_BYTES_HEAD, size, first, offset);
}

/* Writes the name of a frame. Returns PYTHON_NO_FRAMES if it is none. */
static enum python_found name_frame(const struct python *python, const struct frame *frame, char *room)
{
	const struct python_layout *layout = &python->layout;
	char path[2 * FILE_MOST], name[2 * NAME_MOST];
	unsigned char code[PART];
	size_t bytes = larger(layout->code_lines + 8u, layout->code_name + 8u);

	if (bytes > sizeof(code) || layout->code_file + 8u > bytes || layout->code_first_line + 4u > bytes ||
	    !read_all(python, frame->code, code, bytes) || word_at(code, PYTHON_TYPE) != python->code_type ||
	    !read_text(python, word_at(code, layout->code_file), FILE_MOST, path, sizeof(path)))
		return PYTHON_NO_FRAMES;
	enum python_found kind = kind_of(path);
	if (kind < PYTHON_OF_PACKAGE)
		return kind;
	if (!read_text(python, word_at(code, layout->code_name), NAME_MOST, name, sizeof(name)))
		strcpy(name, "?");
	unsigned line = line_of(python, frame, code);
	if (line)
		snprintf(room, PYTHON_NAME, "%s:%u in %.100s", short_name(path), line, name);
	else
		snprintf(room, PYTHON_NAME, "%s in %.100s", short_name(path), name);
	return kind;
}

static bool first_frame(const struct python *python, uint64_t thread, uint64_t self, uint64_t *ret_frame)
{
	const struct python_layout *layout = &python->layout;
	uint64_t id;

	return word_of(python, thread, layout->thread_id, &id) && id == self &&
	       word_of(python, thread, layout->thread_frame, ret_frame) &&
	       (layout->cframe_frame == PYTHON_NONE || word_of(python, *ret_frame, layout->cframe_frame, ret_frame));
}

static void add_caller(char *callers, size_t *n, const char *name)
{
	*n += (size_t)snprintf(callers + *n, PYTHON_CALLERS - *n, "%s%s", *n ? PYTHON_CALLED_BY : "", name);
}

enum python_found python_frames_find(const struct python *python, uint64_t thread, uint64_t self, char *room,
				     char *callers)
{
	enum python_found found = PYTHON_NO_FRAMES;
	unsigned n_callers = 0, i = 0;
	size_t n = 0;
	char name[PYTHON_NAME];
	uint64_t at;

	room[0] = 0;
	if (callers)
		callers[0] = 0;
	if (!first_frame(python, thread, self, &at))
		return PYTHON_NO_FRAMES;
	for (; at && i < FRAMES_MOST; i++) {
		struct frame frame;

		if (!read_frame(python, at, &frame))
			break;
		if (frame.is_python) {
			enum python_found kind = name_frame(python, &frame, name);

			if (kind == PYTHON_NO_FRAMES || (kind == PYTHON_OF_USER && n_callers == PYTHON_CALLERS_MOST))
				break;
			if (found == PYTHON_OF_USER && kind == PYTHON_OF_USER) {
				add_caller(callers, &n, name);
				n_callers++;
			}
			/* The innermost of a kind. */
			if (kind > found) {
				found = kind;
				memcpy(room, kind >= PYTHON_OF_PACKAGE ? name : "",
				       kind >= PYTHON_OF_PACKAGE ? sizeof(name) : 1);
			}
			if (found == PYTHON_OF_USER && !callers)
				return found;
		}
		at = frame.back;
	}
	/* It did not come to the outermost frame. */
	if (at && callers && found == PYTHON_OF_USER)
		add_caller(callers, &n, PYTHON_FURTHER);
	return found;
}

/* ---- where CPython keeps what is read ---- */

/*
 * Of 3.13 and later the row has which of the words of _Py_DebugOffsets is the offset, and those that prove the table.
 */
static const struct version {
	uint16_t version; /* the upper bits of Py_Version */
	struct python_layout layout;
	uint8_t object_type, bytes_size, bytes_head, text_state, text_length; /* words; 0: the offsets are constant */
} versions[] = {
#define N PYTHON_NONE
    /* clang-format off */
    /*                                 thread        frame           code                   text
     *                                 frame cf id   back cd in own  file name first lines in  ascii other */
    {0x0309, {PYTHON_LINES_LNOTAB,    {{24, N, 176,  24, 32, 104, N, 104, 112, 40, 120, N,   48, 72}}}, 0, 0, 0, 0, 0},
    {0x030a, {PYTHON_LINES_LINETABLE, {{24, N, 176,  24, 32, 96, N,  104, 112, 40, 120, N,   48, 72}}}, 0, 0, 0, 0, 0},
    {0x030b, {PYTHON_LINES_LOCATIONS, {{56, 8, 152,  48, 32, 56, 69, 112, 120, 72, 136, 184, 48, 72}}}, 0, 0, 0, 0, 0},
    {0x030c, {PYTHON_LINES_LOCATIONS, {{56, 0, 136,  8, 0, 56, 70,   112, 120, 68, 136, 192, 40, 56}}}, 0, 0, 0, 0, 0},
    {0x030d, {PYTHON_LINES_LOCATIONS, {{23, N, 24, 29, 30, 31, 33, 35, 36, 39, 38, 43, 70, N}}}, 45, 65, 66, 68, 69},
    {0x030e, {PYTHON_LINES_LOCATIONS, {{26, N, 27, 32, 33, 34, 36, 40, 41, 44, 43, 48, 80, N}}}, 51, 75, 76, 78, 79},
/* clang-format on */
#undef N
};

/*
 * Makes offsets of numbers of words. Returns false if one cannot be the offset of something of its size in a small
 * structure: then the table is another one than is known. Its first words: "xdebugpy", the version, 1 if without the
 * GIL.
 */
static bool from_words(const uint64_t *words, const struct version *row, struct python_layout *layout)
{
	static const uint8_t sizes[PYTHON_OFFSETS] = {8, 0, 8, 8, 8, 8, 1, 8, 8, 4, 8, 2, 8, 0};

	/* What is the same in all versions proves that the table is the expected one. */
	if (memcmp(words, "xdebugpy", 8) != 0 || words[1] >> 16 != row->version || words[2] != 0 ||
	    words[row->object_type] != PYTHON_TYPE || words[row->bytes_size] != PYTHON_BYTES_SIZE ||
	    words[row->bytes_head] != PYTHON_BYTES_HEAD || words[row->text_state] != PYTHON_TEXT_STATE ||
	    words[row->text_length] != PYTHON_TEXT_LENGTH)
		return false;
	for (unsigned i = 0; i < PYTHON_OFFSETS; i++) {
		if (layout->offset[i] == PYTHON_NONE)
			continue;
		uint64_t offset = words[layout->offset[i]];
		if (offset > 4096 || offset % sizes[i])
			return false;
		layout->offset[i] = (uint16_t)offset;
	}
	layout->text_other_head = layout->text_ascii_head + 16; /* utf8_length, utf8 */
	return true;
}

bool python_layout_find(uint64_t version, const uint64_t words[PYTHON_WORDS], struct python_layout *ret_layout)
{
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		if (versions[i].version != version >> 16)
			continue;
		*ret_layout = versions[i].layout;
		return !versions[i].object_type || (words && from_words(words, &versions[i], ret_layout));
	}
	return false;
}

/* ---- lines of a code object ---- */

/* A table that is read forward, a piece at a time. */
struct reader {
	const struct python_memory *memory;
	uint64_t at; /* of the next piece */
	size_t left; /* bytes behind the piece */
	size_t n, next;
	unsigned char piece[256];
};

/* Returns the next byte without taking it, or -1 at the end. */
static int peek(struct reader *reader)
{
	if (reader->next == reader->n) {
		size_t want = reader->left < sizeof(reader->piece) ? reader->left : sizeof(reader->piece);

		if (!want)
			return -1;
		size_t n = reader->memory->read(reader->memory->context, reader->at, reader->piece, want);
		reader->at += n;
		reader->left = n ? reader->left - n : 0;
		reader->n = n;
		reader->next = 0;
		if (!n)
			return -1;
	}
	return reader->piece[reader->next];
}

static int next_byte(struct reader *reader)
{
	int byte = peek(reader);

	if (byte >= 0)
		reader->next++;
	return byte;
}

/* The result, which is a line only if it can be one. */
static unsigned line_in_range(int64_t line)
{
	return line > 0 && line <= INT32_MAX ? (unsigned)line : 0;
}

/*
 * 3.9 and 3.10: pairs of (bytes of instructions, lines). In 3.9 the line counts from the end of the bytes on; in 3.10
 * it is that of these bytes, and -128 says that they have none.
 */
static unsigned pairs(struct reader *reader, int64_t line, uint64_t offset, bool of_these)
{
	uint64_t at = 0;

	for (;;) {
		int bytes = next_byte(reader), lines = next_byte(reader);
		bool has_line = !of_these || (int8_t)lines != -128;

		if (lines < 0)
			return of_these ? 0 : line_in_range(line);
		at += (unsigned)bytes;
		if (at > offset && !of_these)
			return line_in_range(line);
		line += has_line ? (int8_t)lines : 0;
		if (at > offset)
			return has_line ? line_in_range(line) : 0;
	}
}

/* A number of 6 bits a byte, the lowest first; bit 6 says that another byte follows. */
static int64_t variable(struct reader *reader)
{
	uint64_t value = 0;
	unsigned shift = 0;
	int byte;

	do {
		byte = next_byte(reader);
		if (byte < 0)
			return 0;
		if (shift < 36)
			value |= (uint64_t)(byte & 63) << shift;
		shift += 6;
	} while (byte & 64);
	/* The lowest bit is the sign. */
	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/*
 * From 3.11: entries of a first byte with bit 7 set (kind, and number of units of two bytes less 1) and bytes without
 * it, of which only the first number, of some kinds, is about lines.
 */
static unsigned locations(struct reader *reader, int64_t line, uint64_t offset)
{
	enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG, NONE };
	uint64_t at = 0;

	for (;;) {
		int head = next_byte(reader);

		if (head < 0x80)
			return 0; /* the end, or no table of this kind */
		unsigned kind = (unsigned)head >> 3 & 15;
		if (kind >= ONE_LINE && kind < NO_COLUMNS)
			line += kind - ONE_LINE;
		else if (kind == NO_COLUMNS || kind == LONG)
			line += variable(reader);
		at += 2 * (((unsigned)head & 7) + 1);
		if (at > offset)
			return kind == NONE ? 0 : line_in_range(line);
		for (int byte = peek(reader); byte >= 0 && byte < 0x80; byte = peek(reader))
			next_byte(reader);
	}
}

unsigned python_lines_find(const struct python_memory *memory, enum python_lines_kind kind, uint64_t table,
			   size_t bytes, unsigned first, uint64_t offset)
{
	struct reader reader = {
	    .memory = memory, .at = table, .left = bytes < PYTHON_LINES_MOST ? bytes : PYTHON_LINES_MOST};

	return kind == PYTHON_LINES_LOCATIONS ? locations(&reader, first, offset)
					      : pairs(&reader, first, offset, kind == PYTHON_LINES_LINETABLE);
}

/* ---- the interpreter of this process ---- */

/*
 * The thread's state is found by PyGILState_GetThisThreadState(), which reads a thread-local variable and nothing else,
 * in all versions that are known. Its library may be closed by any thread: who closes it waits until no thread is in
 * there, and no other calls it from then on. Nothing is locked for that, since a call may be made under any lock of the
 * program, such as the GIL. Py_Version exists since 3.11; before, functions that a version has added tell it.
 */

enum { PAGE = 4096 };         /* the smallest there is */
enum { CALL_MS_MOST = 1000 }; /* closed() waits no longer */

enum state {
	STATE_NEW,
	STATE_LOOKING,
	STATE_NONE,
	STATE_NOT_KNOWN, /* of a version that is not known */
	STATE_CLOSED,    /* memory cannot be read */
	STATE_KNOWN,
};

static struct python_process_state *const process = &base_state.python_process;

/* Two parts, because what is behind the end of a page may be missing. */
size_t python_read_own(void *context, uint64_t address, void *room, size_t bytes)
{
	size_t first = PAGE - address % PAGE;
	struct iovec to = {room, bytes}, from[2];

	(void)context;
	if (first > bytes)
		first = bytes;
	from[0] = (struct iovec){(void *)(uintptr_t)address, first};
	from[1] = (struct iovec){(void *)(uintptr_t)(address + first), bytes - first};
	ssize_t n = process_vm_readv(getpid(), &to, 1, from, first < bytes ? 2 : 1, 0);
	return n > 0 ? (size_t)n : 0;
}

enum name { STATE_OF_THREAD, RUNTIME, CODE_TYPE, TEXT_TYPE, BYTES_TYPE, VERSION, SINCE_3_10, SINCE_3_9, NAMES };
static const char *const names[NAMES] = {
    [STATE_OF_THREAD] = "PyGILState_GetThisThreadState",
    [RUNTIME] = "_PyRuntime",
    [CODE_TYPE] = "PyCode_Type",
    [TEXT_TYPE] = "PyUnicode_Type",
    [BYTES_TYPE] = "PyBytes_Type",
    [VERSION] = "Py_Version",
    [SINCE_3_10] = "PyModule_AddObjectRef",
    [SINCE_3_9] = "PyObject_CallNoArgs",
};

static uint64_t version_of(const struct python_memory *memory, const uintptr_t address[NAMES])
{
	unsigned long version;

	if (address[VERSION])
		return memory->read(memory->context, address[VERSION], &version, sizeof(version)) == sizeof(version)
			   ? version
			   : 0;
	return address[SINCE_3_10] ? 0x030a0000 : address[SINCE_3_9] ? 0x03090000 : 0;
}

/*
 * The interpreter's library is closed, with or without the end of the interpreter; its code is there until this
 * returns. A call that takes a second is one that another process had begun when it forked this one.
 */
static void closed(void *unused)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	(void)unused;
	atomic_store(&process->state, STATE_NONE);
	for (unsigned i = 0; i < CALL_MS_MOST && atomic_load(&process->n_calls); i++)
		nanosleep(&ms, NULL);
}

/* Either closed() sees that this thread calls, or this thread that it was closed: both write, then read. */
static void *thread_of(void)
{
	void *thread = NULL;

	atomic_fetch_add(&process->n_calls, 1);
	if (atomic_load(&process->state) == STATE_KNOWN)
		thread = process->thread();
	atomic_fetch_sub(&process->n_calls, 1);
	return thread;
}

static enum state look(void)
{
	const struct python_memory memory = {python_read_own, NULL};
	uint64_t words[PYTHON_WORDS];
	uintptr_t address[NAMES] = {0};
	unsigned char byte;
	void *held;

	if (!elf_symbols_find(NULL, names, NAMES, address, &held))
		return STATE_NONE;
	bool may_call = closing_hear((const void *)address[STATE_OF_THREAD], closed, NULL);
	dlclose(held);
	if (!may_call)
		return STATE_NONE;
	process->thread = (python_thread_function *)address[STATE_OF_THREAD];
	if (memory.read(NULL, (uintptr_t)&byte, &byte, 1) != 1)
		return STATE_CLOSED;
	process->version = version_of(&memory, address);
	process->python = (struct python){.memory = memory,
					  .code_type = address[CODE_TYPE],
					  .text_type = address[TEXT_TYPE],
					  .bytes_type = address[BYTES_TYPE]};
	bool is_readable =
	    address[RUNTIME] && memory.read(NULL, address[RUNTIME], words, sizeof(words)) == sizeof(words);
	if (!address[CODE_TYPE] || !address[TEXT_TYPE] || !address[BYTES_TYPE] ||
	    !python_layout_find(process->version, is_readable ? words : NULL, &process->python.layout))
		return STATE_NOT_KNOWN;
	return STATE_KNOWN;
}

void python_process_bind(void)
{
	int saved = errno, expected = STATE_NEW;

	if (atomic_compare_exchange_strong(&process->state, &expected, STATE_LOOKING)) {
		expected = STATE_LOOKING; /* unless it was closed meanwhile */
		atomic_compare_exchange_strong(&process->state, &expected, (int)look());
	}
	errno = saved;
}

bool python_process_is_here(void)
{
	return atomic_load_explicit(&process->state, memory_order_acquire) > STATE_NONE;
}

static void say_not_known(uint64_t version)
{
	unsigned minor = (unsigned)(version >> 16 & 255);

	if (!version)
		log_once("Python before 3.9 is not known: what asks for memory is named by native code, not by lines");
	else
		log_once("this Python 3.%u%s is not known: what asks for memory is named by native code, not by lines",
			 minor, minor == 13 || minor == 14 ? " (without the GIL, or changed)" : "");
}

enum python_found python_process_name(char *room, char *callers)
{
	int state = atomic_load_explicit(&process->state, memory_order_acquire);

	room[0] = 0;
	if (callers)
		callers[0] = 0;
	if (state == STATE_NOT_KNOWN)
		say_not_known(process->version);
	else if (state == STATE_CLOSED)
		log_once(
		    "the system does not let a process read its own memory (process_vm_readv): what asks for memory is "
		    "named by native code, not by lines of Python");
	if (state != STATE_KNOWN)
		return PYTHON_NO_FRAMES;
	void *thread = thread_of();
	if (!thread)
		return PYTHON_NO_FRAMES;
	return python_frames_find(&process->python, (uintptr_t)thread, (uintptr_t)pthread_self(), room, callers);
}
