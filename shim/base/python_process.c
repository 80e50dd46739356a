/*
 * The interpreter of this process. See python_process.h.
 *
 * The thread's state is found by PyGILState_GetThisThreadState(), which reads a thread-local variable and nothing else,
 * in all versions that are known. Its library may be closed by any thread: who closes it waits until no thread is in
 * there, and no other calls it from then on. Nothing is locked for that, since a call may be made under any lock of the
 * program, such as the GIL. Py_Version exists since 3.11; before, functions that a version has added tell it.
 */
#include "shim/base/python_process.h"
#include "shim/base/base_state.h"
#include "shim/base/closing.h"
#include "shim/base/elf_symbols.h"
#include "shim/base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

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

/* Two parts, because what is behind the end of a page may be missing. */
static size_t read_own(void *context, uint64_t address, void *room, size_t bytes)
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
	struct python_process_state *process = &base_state.python_process;
	const struct timespec ms = {.tv_nsec = 1000000};

	(void)unused;
	atomic_store(&process->state, STATE_NONE);
	for (unsigned i = 0; i < CALL_MS_MOST && atomic_load(&process->n_calls); i++)
		nanosleep(&ms, NULL);
}

/* Either closed() sees that this thread calls, or this thread that it was closed: both write, then read. */
static void *thread_of(struct python_process_state *process)
{
	void *thread = NULL;

	atomic_fetch_add(&process->n_calls, 1);
	if (atomic_load(&process->state) == STATE_KNOWN)
		thread = process->thread();
	atomic_fetch_sub(&process->n_calls, 1);
	return thread;
}

static enum state look(struct python_process_state *process)
{
	const struct python_memory memory = {read_own, NULL};
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
	struct python_process_state *process = &base_state.python_process;
	int saved = errno, expected = STATE_NEW;

	if (atomic_compare_exchange_strong(&process->state, &expected, STATE_LOOKING)) {
		expected = STATE_LOOKING; /* unless it was closed meanwhile */
		atomic_compare_exchange_strong(&process->state, &expected, (int)look(process));
	}
	errno = saved;
}

bool python_process_is_here(void)
{
	return atomic_load_explicit(&base_state.python_process.state, memory_order_acquire) > STATE_NONE;
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
	struct python_process_state *process = &base_state.python_process;
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
	void *thread = thread_of(process);
	if (!thread)
		return PYTHON_NO_FRAMES;
	return python_frames_find(&process->python, (uintptr_t)thread, (uintptr_t)pthread_self(), room, callers);
}
