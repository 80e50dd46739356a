// SPDX-License-Identifier: Apache-2.0
/*
 * Sites of the program. See call_site.h.
 *
 * Native callers are found by the unwinder that the program has loaded for its exceptions (libgcc_s), which stays
 * loaded from then on, as it does once the program calls backtrace(). It is asked only where the caller is plumbing,
 * and stops at the first frame that is none, so it only goes through code of compilers.
 */
#include "shim/base/call_site.h"
#include "shim/base/base_state.h"
#include "shim/base/clock.h"
#include "shim/base/libc.h"
#include "shim/base/python.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unwind.h>

#define TRIES       64  /* slots that are searched for a site */
#define FRAMES_MOST 128 /* native frames that are looked at */
#define BACKWARD    "backward"
#define RUNTIME     "libcudart"
/* Sites with callers: half of the table, so that there is room for others. */
#define WITH_CALLERS_MOST (CALL_SITE_SLOTS / 2)

/* What is saved is for the start, when everything is named for the first time. */
static const struct time_share share = {.one_in = 100, .most = 20000000};

static struct call_site_state *const sites = &base_state.call_site;
static struct autograd_state *const autograd = &base_state.autograd;

/* ---- plumbing ---- */

/* Beginnings of the names of files. */
static const char *const plumbing_names[] = {
    "libcuda.so",  "libcudart",   "libcublas",  "libcudnn",      "libcufft", "libcurand",          "libcusparse",
    "libcusolver", "libcutensor", "libcutlass", "libnccl",       "libnvrtc", "libnvJitLink",       "libnvshmem",
    "libucp",      "libuct",      "libucm",     "librmm",        "libc10",   "libtorch",           "libtensorflow",
    "libjax",      "libxla",      "libpjrt",    "xla_extension", "xla_cuda", "_pywrap_tensorflow", "libonnxruntime",
    "libtriton",   "libpython",   "python",     "_ctypes.",      "libffi",   "libstdc++",          "libgcc_s",
    "libc.so",     "libpthread",  "ld-linux"};
/* Parts of paths: folders of packages whose libraries have names that say nothing ("runtime.cpython-311.so"). */
static const char *const plumbing_folders[] = {"/cupy/",   "/cupy_backends/", "/jaxlib/",      "/jax_plugins/",
					       "/torch/",  "/tensorflow/",    "/numba/",       "/numba_cuda/",
					       "/triton/", "/cuda/bindings/", "/onnxruntime/", "/pycuda/"};

static const char *file_name(const char *path)
{
	const char *name = strrchr(path, '/');

	return name ? name + 1 : path;
}

static bool is_plumbing(const void *address)
{
	const char *path = caller_name_library(address), *name = path ? file_name(path) : NULL;

	if (!path)
		return false;
	for (size_t i = 0; i < sizeof(plumbing_names) / sizeof(plumbing_names[0]); i++)
		if (!strncmp(name, plumbing_names[i], strlen(plumbing_names[i])))
			return true;
	for (size_t i = 0; strstr(path, "-packages/") && i < sizeof(plumbing_folders) / sizeof(plumbing_folders[0]);
	     i++)
		if (strstr(path, plumbing_folders[i]))
			return true;
	return false;
}

static bool is_runtime(const void *address)
{
	const char *path = caller_name_library(address);

	return path && !strncmp(file_name(path), RUNTIME, sizeof(RUNTIME) - 1);
}

/* ---- native callers ---- */

typedef _Unwind_Reason_Code backtrace_function(_Unwind_Trace_Fn visit, void *argument);
typedef _Unwind_Ptr address_function(struct _Unwind_Context *context);

struct walk {
	const void *caller, *found; /* found: NULL: none yet */
	bool (*passes)(const void *address);
	address_function *address_of;
	unsigned n;
	bool behind; /* the frame of the caller has been passed */
};

static _Unwind_Reason_Code visit_frame(struct _Unwind_Context *context, void *argument)
{
	struct walk *walk = argument;
	const void *address = (const void *)walk->address_of(context);

	if (walk->n++ == FRAMES_MOST || !address)
		return _URC_END_OF_STACK;
	if (walk->behind && !walk->passes(address)) {
		/* Code that no object has is made at run time; what called it is not known either. */
		walk->found = caller_name_library(address) ? address : NULL;
		return _URC_END_OF_STACK;
	}
	walk->behind |= address == walk->caller;
	return _URC_NO_REASON;
}

/* Returns the innermost caller behind this one that `passes` does not pass; NULL: none is known. */
static const void *native_caller(const void *caller, bool (*passes)(const void *address))
{
	backtrace_function *backtrace = (backtrace_function *)atomic_load(&sites->backtrace);
	struct walk walk = {
	    .caller = caller, .passes = passes, .address_of = (address_function *)atomic_load(&sites->address_of)};

	if (backtrace)
		backtrace(visit_frame, &walk);
	return walk.found;
}

/* ---- objects that are closed ---- another may be opened in their place, and an address mean other code */

/* What is at the address of a site. */
enum at_address {
	AT_THE_SAME,
	AT_NOT_KNOWN, /* since its object was closed */
	AT_OTHER_CODE,
};

/* watched: the object's place in the list. Of other code, too, it is not known any more what is there. */
static void forget_object(void *watched)
{
	const void *object = atomic_exchange((_Atomic(const void *) *)watched, NULL);

	for (unsigned i = 0; i < CALL_SITE_SLOTS; i++) {
		struct call_site *site = atomic_load(&sites->slot[i]);

		if (site && site->object && (site->object == object || atomic_load(&site->at_address) == AT_OTHER_CODE))
			atomic_store(&site->at_address, AT_NOT_KNOWN);
	}
}

/* Returns the object that contains the address. *ret_hears: it will be known when that is closed. */
static const void *watch_object(const void *address, bool *ret_hears)
{
	const void *object = caller_name_object(address);
	_Atomic(const void *) *watched = sites->watched;

	*ret_hears = false;
	for (unsigned i = 0; object && i < WATCHED_OBJECTS && !*ret_hears; i++)
		*ret_hears = atomic_load(&watched[i]) == object;
	for (unsigned i = 0; object && i < WATCHED_OBJECTS && !*ret_hears; i++) {
		const void *none = NULL;

		if (!atomic_compare_exchange_strong(&watched[i], &none, object))
			continue;
		*ret_hears = closing_hear(address, forget_object, (void *)&watched[i]);
		if (!*ret_hears) {
			atomic_store(&watched[i], NULL);
			break;
		}
	}
	return object;
}

/* ---- the table ---- */

static uint32_t hash_of(const void *address, const char *text)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return (uint32_t)(((uintptr_t)address ^ (uint64_t)hash << 32) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

/* Returns the library that the trace adds to the name, or "". */
static const char *library_of(const void *caller)
{
	const char *path = caller_name_library(caller), *name = path ? file_name(path) : "";

	return !strncmp(name, RUNTIME, sizeof(RUNTIME) - 1) || !strncmp(name, "libcuda.so", 10) ? "" : name;
}

/* text: "" makes the site of an address. callers: NULL if they are not known. */
static struct call_site *make_site(const void *address, const char *text, const char *callers, uint32_t hash)
{
	const char *library = *text ? library_of(address) : "";
	char room[320];
	bool hears;

	if (!*text)
		caller_name_text(address, room, sizeof(room));
	const char *name = *text ? text : room;
	size_t n = strlen(name) + 1, m = strlen(library) + 1, k = callers ? strlen(callers) + 1 : 0;
	const void *object = watch_object(address, &hears);
	const char *path = !*text && hears ? caller_name_library(address) : NULL;
	size_t p = path ? strlen(path) + 1 : 0;
	struct call_site *site = malloc(sizeof(*site) + n + m + k + p);
	if (!site)
		return NULL;
	*site = (struct call_site){.address = address, .object = object, .hash = hash, .is_named = *text != 0};
	site->is_plumbing = !*text && is_plumbing(address);
	site->is_backward = !strcmp(name, BACKWARD);
	memcpy(site->text, name, n);
	memcpy(site->text + n, library, m);
	site->library = *library ? site->text + n : NULL;
	if (callers)
		site->callers = memcpy(site->text + n + m, callers, k);
	if (path)
		site->path = memcpy(site->text + n + m + k, path, p);
	site->is_runtime = path && !strncmp(file_name(path), RUNTIME, sizeof(RUNTIME) - 1);
	return site;
}

/* Its object was closed: is the code that is there now the one that was named? */
static bool look_again(struct call_site *site)
{
	uint8_t known = atomic_load(&site->at_address);
	const char *path;
	char room[320];
	bool hears;

	if (known != AT_NOT_KNOWN)
		return known == AT_THE_SAME;
	bool same = watch_object(site->address, &hears) == site->object;
	if (same && site->path)
		same = hears && (path = caller_name_library(site->address)) && !strcmp(path, site->path);
	if (same && site->is_named)
		same = !strcmp(library_of(site->address), site->library ? site->library : "");
	else if (same)
		same = !strcmp(caller_name_text(site->address, room, sizeof(room)), site->text);
	atomic_compare_exchange_strong(&site->at_address, &known, same ? AT_THE_SAME : AT_OTHER_CODE);
	return same;
}

static bool is_it(struct call_site *site, const void *address, const char *text, const char *callers, uint32_t hash)
{
	if (!site->callers != !callers || (callers && strcmp(site->callers, callers) != 0))
		return false;
	return site->hash == hash && site->address == address && site->is_named == (*text != 0) &&
	       (!*text || !strcmp(site->text, text)) &&
	       (atomic_load_explicit(&site->at_address, memory_order_relaxed) == AT_THE_SAME || look_again(site));
}

static const struct call_site *site_of(const void *address, const char *text, const char *callers)
{
	const uint32_t hash = hash_of(address, text), place = callers ? hash ^ hash_of(NULL, callers) : hash;
	struct call_site *made = NULL;

	for (unsigned i = 0; i < TRIES; i++) {
		const uint32_t at = (place + i) % CALL_SITE_SLOTS;
		_Atomic(struct call_site *) *slot = &sites->slot[at];
		struct call_site *there = atomic_load_explicit(slot, memory_order_acquire);

		if (!there && !made && !(made = make_site(address, text, callers, hash)))
			return NULL;
		if (made)
			made->number = (uint16_t)(at + 1);
		if (!there && atomic_compare_exchange_strong(slot, &there, made)) {
			atomic_fetch_add_explicit(&sites->n_with_callers, callers != NULL, memory_order_relaxed);
			return made;
		}
		/* It is there, or another thread was faster, with this site or another one. */
		if (is_it(there, address, text, callers, hash)) {
			free(made);
			return there;
		}
	}
	free(made);
	return NULL;
}

/* ---- naming ---- */

/* PyTorch names the threads of its autograd "pt_autograd_0". */
static bool is_backward(void)
{
	char name[16] = "";

	return prctl(PR_GET_NAME, name) == 0 && !strncmp(name, "pt_autograd", 11);
}

/*
 * Names the place in Python that this thread is at, or the backward pass. Returns false if it is in neither; *ret_site
 * is NULL without memory, or room. deep: callers are wanted.
 */
static bool name_in_python(const void *caller, bool deep, const struct call_site **ret_site)
{
	char text[PYTHON_NAME], callers[PYTHON_CALLERS];
	enum python_found found = python_process_name(text, deep ? callers : NULL);

	*ret_site = NULL;
	if (found == PYTHON_OF_USER && deep)
		*ret_site = site_of(caller, text, callers);
	if (*ret_site)
		return true;
	if (found < PYTHON_OF_PACKAGE && !is_backward())
		return false;
	*ret_site = site_of(caller, found >= PYTHON_OF_PACKAGE ? text : BACKWARD, NULL);
	return true;
}

/* plain: the site of the caller's address; deep: its callers are wanted. */
static const struct call_site *name_site(const struct call_site *plain, bool deep)
{
	const struct call_site *site;

	if (python_process_is_here() && name_in_python(plain->address, deep, &site))
		return site;
	const void *caller = plain->is_plumbing ? native_caller(plain->address, is_plumbing) : NULL;
	return caller ? site_of(caller, "", NULL) : plain;
}

/* Returns true if callers are wanted, and there is room for them. */
static bool wants_callers(void)
{
	return atomic_load_explicit(&sites->callers, memory_order_relaxed) &&
	       atomic_load_explicit(&sites->n_with_callers, memory_order_relaxed) < WITH_CALLERS_MOST;
}

const struct call_site *call_site_find(const void *caller)
{
	int saved = errno;

	if (!caller)
		return NULL;
	const struct call_site *site = site_of(caller, "", NULL);
	/* Most programs need no more: no Python, and the caller is their own code. */
	if (site && (site->is_plumbing || python_process_is_here())) {
		uint64_t now = clock_now(), left = time_share_left(share, &sites->paid, now);

		if (left || atomic_load_explicit(&sites->always, memory_order_relaxed)) {
			uint64_t begin = clock_thread();
			/* Names are worth more than callers: half of what is saved is kept for them. */
			const struct call_site *named = name_site(site, wants_callers() && left > share.most / 2);

			if (named)
				site = named;
			time_share_spend(share, &sites->paid, now, clock_thread() - begin);
		}
	}
	errno = saved;
	return site;
}

const struct call_site *call_site_of_tensor(bool deep)
{
	const struct call_site *site = NULL;
	int saved = errno;

	if (python_process_is_here())
		name_in_python(NULL, deep && wants_callers(), &site);
	errno = saved;
	return site;
}

const struct call_site *call_site_backward(const struct call_site *line)
{
	_Atomic uint16_t *known = &sites->backward[line->number - 1];
	unsigned number = atomic_load_explicit(known, memory_order_acquire);
	char text[PYTHON_NAME + sizeof(" [" BACKWARD "]")];
	int saved = errno;

	if (number)
		return call_site_numbered(number);
	snprintf(text, sizeof(text), "%.*s [" BACKWARD "]", PYTHON_NAME - 1, line->text);
	const struct call_site *site = site_of(NULL, text, line->callers);
	if (site)
		atomic_store_explicit(known, site->number, memory_order_release);
	errno = saved;
	return site;
}

const struct call_site *call_site_numbered(unsigned number)
{
	if (!number || number > CALL_SITE_SLOTS)
		return NULL;
	return atomic_load_explicit(&sites->slot[number - 1], memory_order_acquire);
}

static void bind_unwinder(void)
{
	static const char *const names[] = {"_Unwind_Backtrace", "_Unwind_GetIP"};
	uintptr_t address[2];

	if (!atomic_load(&sites->backtrace) && elf_symbols_find("libgcc_s", names, 2, address, NULL) && address[1]) {
		atomic_store(&sites->address_of, address[1]);
		atomic_store(&sites->backtrace, address[0]);
	}
}

const char *call_site_path(const void *caller)
{
	int saved = errno;
	const struct call_site *site = caller ? site_of(caller, "", NULL) : NULL;
	const char *path = site && site->path ? site->path : caller_name_library(caller);

	errno = saved;
	return path;
}

const void *call_site_asker(const void *caller)
{
	int saved = errno;
	const struct call_site *site = caller ? site_of(caller, "", NULL) : NULL;
	bool is_known = site && site->path;

	if (is_known ? site->is_runtime : is_runtime(caller)) {
		bind_unwinder(); /* it may have been loaded since */
		caller = native_caller(caller, is_runtime);
		is_known = false;
	}
	const void *object = is_known ? site->object : caller_name_object(caller);
	errno = saved;
	return object;
}

/* Returns whether the address is this library's, or the CUDA runtime's. */
static bool is_between(const void *address)
{
	return caller_name_object(address) == caller_name_object((const void *)(uintptr_t)is_between) ||
	       is_runtime(address);
}

const char *call_site_launcher(void)
{
	int saved = errno;

	bind_unwinder();
	const void *caller = native_caller(__builtin_return_address(0), is_between);
	const char *path = caller ? caller_name_library(caller) : NULL;
	errno = saved;
	return path;
}

void call_site_bind(void)
{
	caller_name_bind();
	python_process_bind();
	bind_unwinder();
}

void call_site_callers(void)
{
	atomic_store(&sites->callers, true);
}

void call_site_always(void)
{
	atomic_store(&sites->always, true);
}

/* ---- the node of autograd that a thread runs ---- */

enum autograd_layout {
	STATE_NEW,
	STATE_LOOKING,
	STATE_NONE,       /* no PyTorch, or one that is not known */
	STATE_NOT_SEEN,   /* no node has been seen yet */
	STATE_SHARED_PTR, /* the layouts of call_site.h */
	STATE_INTRUSIVE_PTR,
};

enum name { NEXT_NUMBER, THREAD, CURRENT_NODE, NAMES };
static const char *const autograd_names[NAMES] = {
    [NEXT_NUMBER] = "_ZN2at15sequence_number4peekEv",
    [THREAD] = "_ZN2at14RecordFunction15currentThreadIdEv",
    [CURRENT_NODE] = "_ZN5torch8autograd16get_current_nodeEv",
};

/* Words of a node. */
enum {
	SHARED_SELF = 1,
	SHARED_COUNT = 2,
	SHARED_NUMBER = 3,
	SHARED_THREAD = 6,
	INTRUSIVE_COUNT = 1,
	INTRUSIVE_NUMBER = 2,
	INTRUSIVE_THREAD = 5,
	WORDS = 7 /* that are looked at; each kind of node has more */
};
#define COUNT_MOST   (1u << 20)          /* of references that are plausible */
#define THREADS_MOST (UINT64_C(1) << 30) /* of threads */

/*
 * What get_current_node() returns: a class of C++ with a destructor, so the caller passes the address of the room for
 * it, in the register that the ABI has for that. In C only structures of more than 16 bytes are returned so. Of an
 * intrusive_ptr the first word alone is written, of a shared_ptr two.
 */
struct autograd_reference {
	uintptr_t node, control, room;
};
_Static_assert(sizeof(struct autograd_reference) > 16, "it is returned in memory");

/* The count of a shared_ptr is behind the pointer to the functions of its control block. */
static _Atomic uint32_t *shared_count(uintptr_t control)
{
	return (_Atomic uint32_t *)(control + sizeof(void *));
}

/*
 * Gives a reference back. Returns false, and keeps it, if there are fewer than `least`. Of the word of an intrusive
 * count the lower 32 bits are references.
 */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower 32 bits of a word are its first");
static bool give_back(_Atomic uint32_t *count, uint32_t least)
{
	uint32_t was = atomic_load_explicit(count, memory_order_relaxed);

	do {
		if (was < least)
			return false;
	} while (
	    !atomic_compare_exchange_weak_explicit(count, &was, was - 1, memory_order_acq_rel, memory_order_relaxed));
	return true;
}

static bool is_thread(uint64_t thread)
{
	return thread && thread < THREADS_MOST;
}

/* Returns the layout of the node that a reference is to, which may be of any layout; STATE_NONE: not known. */
static enum autograd_layout layout_of(const struct autograd_reference *reference)
{
	uint64_t word[WORDS];
	uint32_t count;

	if (reference->node % sizeof(uint64_t) ||
	    python_read_own(NULL, reference->node, word, sizeof(word)) != sizeof(word))
		return STATE_NONE;
	if (word[SHARED_SELF] == reference->node && word[SHARED_COUNT] == reference->control &&
	    reference->control % sizeof(uint64_t) == 0 && is_thread(word[SHARED_THREAD]) &&
	    python_read_own(NULL, (uintptr_t)shared_count(reference->control), &count, sizeof(count)) ==
		sizeof(count) &&
	    count < COUNT_MOST)
		return STATE_SHARED_PTR;
	/* Beside the references there are weak ones, and one bit (63). */
	count = (uint32_t)word[INTRUSIVE_COUNT];
	uint32_t weak = (uint32_t)(word[INTRUSIVE_COUNT] >> 32) & INT32_MAX;
	if (count > 2 && count < COUNT_MOST && weak && weak < COUNT_MOST && is_thread(word[INTRUSIVE_THREAD]))
		return STATE_INTRUSIVE_PTR;
	return STATE_NONE;
}

static bool read_node(const struct autograd_reference *reference, enum autograd_layout layout,
		      struct autograd_node *ret)
{
	const uint64_t *word = (const uint64_t *)reference->node;

	if (layout == STATE_SHARED_PTR) {
		*ret = (struct autograd_node){word[SHARED_NUMBER], word[SHARED_THREAD]};
		return word[SHARED_SELF] == reference->node && word[SHARED_COUNT] == reference->control &&
		       give_back(shared_count(reference->control), 2);
	}
	*ret = (struct autograd_node){word[INTRUSIVE_NUMBER], word[INTRUSIVE_THREAD]};
	/* From 2 to 1 a reference to Python's object of the node would have to be given back, too. */
	return give_back((_Atomic uint32_t *)&word[INTRUSIVE_COUNT], 3);
}

bool autograd_running(struct autograd_node *ret)
{
	struct autograd_reference reference = autograd->current_node();
	int state = atomic_load_explicit(&autograd->state, memory_order_acquire);

	if (!reference.node)
		return false;
	if (state == STATE_NOT_SEEN) {
		int saved = errno;

		state = (int)layout_of(&reference);
		errno = saved;
		atomic_store_explicit(&autograd->state, state, memory_order_release);
	}
	if (state <= STATE_NOT_SEEN || !read_node(&reference, (enum autograd_layout)state, ret)) {
		atomic_store_explicit(&autograd->state, STATE_NONE, memory_order_release);
		return false;
	}
	return ret->number != UINT64_MAX; /* AccumulateGrad, which no operation has made */
}

struct autograd_node autograd_next(void)
{
	return (struct autograd_node){autograd->next_number(), autograd->own_thread()};
}

bool autograd_is_here(void)
{
	return atomic_load_explicit(&autograd->state, memory_order_acquire) >= STATE_NOT_SEEN;
}

void autograd_bind(void)
{
	int expected = STATE_NEW, found = STATE_NONE, saved = errno;
	uintptr_t address[NAMES] = {0};
	char byte;

	if (!atomic_compare_exchange_strong(&autograd->state, &expected, STATE_LOOKING))
		return;
	/* Without reading, the first node could not be given back. */
	if (elf_symbols_find("libtorch_cpu.so", autograd_names, NAMES, address, NULL) && address[THREAD] &&
	    address[CURRENT_NODE] && python_read_own(NULL, (uintptr_t)&byte, &byte, 1) == 1) {
		autograd->next_number = (autograd_count_function *)address[NEXT_NUMBER];
		autograd->own_thread = (autograd_count_function *)address[THREAD];
		autograd->current_node = (autograd_node_function *)address[CURRENT_NODE];
		found = STATE_NOT_SEEN;
	}
	errno = saved;
	atomic_store_explicit(&autograd->state, found, memory_order_release);
}
