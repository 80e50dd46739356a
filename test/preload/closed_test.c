// SPDX-License-Identifier: Apache-2.0
/*
 * A program closes what the library has found in it: an interpreter of Python, PyTorch's autograd, the unwinder. It is
 * closed as without the library, and the program goes on; what is opened in its place is not taken for it. "closed_test
 * real" does so with each libpython of this machine.
 */
#include "test/preload/child.h"
#include "test/preload/fake_torch.h"
#include "test/test.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdatomic.h>

/* ---- parts ---- */

static const char *path; /* of the library that a part opens */
static atomic_uint n_asked, n_ended;
static atomic_bool is_inside, is_closing;

static void count_asked(void)
{
	atomic_fetch_add(&n_asked, 1);
}

static void count_ended(void)
{
	atomic_fetch_add(&n_ended, 1);
}

/* The thread stays in the interpreter until another begins to close it, and a while longer. */
static void stay(void)
{
	if (atomic_exchange(&is_inside, true))
		return;
	UNTIL(atomic_load(&is_closing));
	usleep(50000);
}

static void *open_fake(void (*asked)(void))
{
	void *fake = dlopen(FAKE_PYTHON, RTLD_NOW | RTLD_LOCAL);

	CHECK(fake);
	*(void (**)(void))dlsym(fake, "fake_python_asked") = asked;
	*(void (**)(void))dlsym(fake, "fake_python_ended") = count_ended;
	return fake;
}

static bool is_loaded(const char *library)
{
	return dlopen(library, RTLD_NOW | RTLD_NOLOAD) != NULL;
}

/* In every mode the library finds out who asks. */
static void run_in_all_modes(void (*part)(void))
{
	static const char *const modes[] = {"exact", "fast", "static", "off"};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		char mode[128];

		snprintf(mode, sizeof(mode), "SPILLWAY_SET=device.budget=64MiB,report.summary=no,spill.mode=%s",
			 modes[i]);
		const char *const settings[] = {"SIM_MEMORY=128MiB", mode, NULL};
		child_passes(settings, part);
	}
}

PART_TEST(an_interpreter_is_closed_and_asked_no_more, run_in_all_modes(part))
{
	void *fake = open_fake(count_asked);

	driver_start(0);
	child_alloc(3 * MIB);
	unsigned before = atomic_load(&n_asked);
	CHECK(before);
	child_alloc(3 * MIB);
	CHECK(atomic_load(&n_asked) > before);
	CHECK(dlclose(fake) == 0 && atomic_load(&n_ended) == 1);
	CHECK(!is_loaded(FAKE_PYTHON));
	child_alloc(3 * MIB);
	open_fake(count_asked);
	child_alloc(3 * MIB);
}

static void *ask(void *unused)
{
	driver_start(0);
	child_alloc(3 * MIB);
	return NULL;
}

static pthread_t thread_inside(void)
{
	pthread_t thread = test_thread(ask, NULL);

	UNTIL(atomic_load(&is_inside));
	return thread;
}

PART_TEST(it_is_closed_once_no_thread_is_asking_it, run_in_all_modes(part))
{
	void *fake = open_fake(stay);

	driver_start(0);
	pthread_t thread = thread_inside();
	atomic_store(&is_closing, true);
	CHECK(dlclose(fake) == 0 && atomic_load(&n_ended) == 1 && !is_loaded(FAKE_PYTHON));
	pthread_join(thread, NULL);
	child_alloc(3 * MIB);
}

/* The thread that is inside is not in the child. */
CHILD_TEST(a_fork_while_a_thread_asks_leaves_a_child_that_can_end, ((const char *const[]){CHILD_BUDGETS, NULL}))
{
	int status;

	open_fake(stay);
	driver_start(0);
	pthread_t thread = thread_inside();
	pid_t child = fork();
	if (!child)
		exit(7);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	atomic_store(&is_closing, true);
	pthread_join(thread, NULL);
}

/* While it is open, an allocation by way of the runtime asks it which code is behind that. */
PART_TEST(the_unwinder_may_be_closed, run_in_all_modes(part))
{
	if (is_loaded("libgcc_s.so.1"))
		return; /* by a sanitizer: it is never unloaded */
	void *unwinder = dlopen("libgcc_s.so.1", RTLD_NOW), *runtime = dlopen(RUNTIME, RTLD_NOW | RTLD_LOCAL);
	CHECK(unwinder && runtime);
	unsigned long long (*alloc)(size_t) = (unsigned long long (*)(size_t))dlsym(runtime, "runtime_alloc");
	driver_start(0);
	CHECK(alloc(3 * MIB));
	CHECK(dlclose(unwinder) == 0);
	CHECK(alloc(3 * MIB));
}

PART_TEST(autograd_may_be_closed, run_in_all_modes(part))
{
	const struct fake_torch_functions *torch = fake_torch_open();
	void *autograd = dlopen(FAKE_TORCH_CPU, RTLD_NOW | RTLD_LOCAL);

	CHECK(autograd);
	open_fake(count_asked);
	driver_start(0);
	struct fake_torch *cache = torch->open(0);
	for (int i = 0; i < 4; i++)
		CHECK(torch->allocate(cache, 3 * MIB, NULL, NULL));
	uint64_t (*threads)(void) = (uint64_t(*)(void))dlsym(autograd, "_ZN2at14RecordFunction15currentThreadIdEv");
	CHECK(threads() == 1);
	CHECK(dlclose(autograd) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(torch->allocate(cache, 3 * MIB, NULL, NULL));
}

/* Is what the plugin allocates of the driver, as the rule for the first one has it? */
static int is_of_driver(const char *plugin, const void **ret_address)
{
	void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);

	CHECK(library);
	CUresult (*take)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(library, "plug_take");
	CUdeviceptr block;
	CHECK(take && take(&block, 4 * MIB) == CUDA_SUCCESS);
	int ret = !driver_is_heap(block);
	MUST(cu.cuMemFree_v2(block));
	*ret_address = (const void *)(uintptr_t)take;
	CHECK(dlclose(library) == 0 && !is_loaded(plugin));
	return ret;
}

/* More often than there is room for sites of an address: those that are the same are one. */
CHILD_TEST(a_plugin_that_is_opened_where_another_was_has_its_own_rule,
	   ((const char *const[]){CHILD_BUDGETS, "SPILLWAY_POLICY=" PLUG_POLICY, NULL}))
{
	const void *one, *other;

	driver_start(0);
	for (int i = 0; i < 200; i++) {
		CHECK(is_of_driver(PLUG_ONE, &one) == 1);
		CHECK(is_of_driver(PLUG_OTHER, &other) == 0);
		CHECK(one == other); /* else it is no test */
	}
}

/* The status is 1 if it is no library that can be used. */
static void close_real(void)
{
	void *python = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void (*begin)(int) = python ? (void (*)(int))dlsym(python, "Py_InitializeEx") : NULL;
	int (*end)(void) = python ? (int (*)(void))dlsym(python, "Py_FinalizeEx") : NULL;

	if (!begin || !end)
		_exit(1);
	begin(0);
	driver_start(0);
	child_alloc(3 * MIB);
	CHECK(end() == 0);
	CHECK(dlclose(python) == 0);
	CHECK(!is_loaded(path));
	child_alloc(3 * MIB);
	child_alloc(5 * MIB);
}

/* ---- promises ---- */

/* ---- libpythons of this machine ---- */

static int close_all_real(void)
{
	static const char *const patterns[] = {"/usr/lib/*/libpython3.*.so.1.0", "/usr/lib64/libpython3.*.so.1.0",
					       "/usr/local/lib/libpython3.*.so.1.0",
					       "~/.pyenv/versions/*/lib/libpython3.*.so.1.0"};
	const char *const settings[] = {CHILD_BUDGETS, NULL};
	int n = 0, n_failed = 0;
	glob_t found = {0};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		glob(patterns[i], GLOB_TILDE | (i ? GLOB_APPEND : 0), NULL, &found);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		path = found.gl_pathv[i];
		int status = child_run(settings, close_real);
		printf("%s: %s\n", path, status == 0 ? "closed" : status == 1 ? "not usable" : "FAILED");
		n += status != 1;
		n_failed += status > 1 || status < 0;
	}
	globfree(&found);
	if (!n)
		puts("there is no libpython on this machine");
	return n_failed ? 1 : n ? 0 : 77;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "real"))
		return close_all_real();
	return test_run();
}
