// SPDX-License-Identifier: Apache-2.0
/*
 * managed_pages_test.c: managed memory on the heap that the CPU touches between submissions, and what else a process does
 * with its pages and threads.
 */
#include "shim/spillway.h"
#include "test/preload/managed_heap_help.h"

#include <dirent.h>
#include <dlfcn.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void take_turns(CUdeviceptr a)
{
	for (uint32_t i = 0; i < 5; i++) {
		MUST(driver_fill(NULL, a, i, 1));
		CHECK(*words(a) == i);
		words(a)[1] = i + 7;
		CHECK(read_back(a + 4) == i + 7);
	}
}

/* Nobody can close what is not there. */
PART_TEST(the_process_has_no_descriptor_of_it, assert_int_equal(run(part), 0))
{
	char target[256], path[300];
	struct dirent *entry;

	driver_start(0);
	CUdeviceptr a = used_by_gpu(MIB, 3);
	CHECK(*words(a) == 3);
	DIR *files = opendir("/proc/self/fd");
	CHECK(files);
	while ((entry = readdir(files))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = 0;
		CHECK(!strstr(target, "userfaultfd") && !strstr(target, "pagemap"));
	}
	closedir(files);
	end_of(a);
}

PART_TEST(all_memory_was_locked_before, assert_int_equal(run(part), 0))
{
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return;
	driver_start(0);
	CUdeviceptr a = used_by_gpu(3 * MIB, 3);
	take_turns(a);
	end_of(a);
}

PART_TEST(all_memory_is_locked_later, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = used_by_gpu(3 * MIB, 3);
	CHECK(*words(a) == 3);
	if (mlockall(MCL_CURRENT))
		return;
	take_turns(a);
	end_of(a);
}

/* The kernel keeps it in several parts then, and serves one at a time. */
PART_TEST(a_part_has_advice_of_its_own, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = driver_managed(3 * MIB);
	CHECK(!madvise(words(a + 12288), 4096, MADV_NOHUGEPAGE) &&
	      !madvise(words(a + 2 * MIB - 4096), 8192, MADV_NOHUGEPAGE));
	take_turns(a);
	for (size_t i = 0; i < 3 * MIB; i += 4096) {
		CHECK(*words(a + i + 8) == 0);
		words(a + i)[2] = (uint32_t)i;
	}
	for (size_t i = 0; i < 3 * MIB; i += 4096)
		CHECK(read_back(a + i + 8) == i);
	end_of(a);
}

/* ---- the kernel has no memory for all of what is given ---- */

static atomic_int copies = -1; /* of a page that succeed before one fails; -1: all succeed, as large as they are */

int ioctl(int file, unsigned long request, ...)
{
	va_list arguments;

	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	struct uffdio_copy *copy = argument;
	if (request != UFFDIO_COPY || copies < 0)
		return (int)syscall(SYS_ioctl, file, request, argument);
	errno = ENOMEM;
	copy->copy = -ENOMEM;
	if (!copies--)
		return -1;
	copy->len = 4096;
	return (int)syscall(SYS_ioctl, file, request, argument);
}

static sigjmp_buf before_touch;

static void leave_touch(int number)
{
	(void)number;
	siglongjmp(before_touch, 1);
}

PART_TEST(what_was_given_before_an_error_may_be_written, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr a = used_by_gpu(MIB, 3);
	signal(SIGSEGV, leave_touch);
	CHECK(*words(a + MIB / 2) == 0);
	copies = 2;
	if (!sigsetjmp(before_touch, 1)) {
		words(a + 5 * 4096)[0] = 1;
		CHECK(false);
	}
	CHECK(copies == -1);
	words(a)[1] = 5;
	CHECK(read_back(a + 4) == 5 && read_back(a) == 3);
	MUST(cu.cuMemFree_v2(a));
	end();
}

/* ---- slow threads of the library ---- */

static CUdeviceptr shared;
static atomic_bool over, library_is_slow;
static __thread bool is_mine;

/* For everybody: threads of the library rest where they have given a lock back, each time for another time. */
int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*_Atomic real)(pthread_mutex_t *);
	static __thread unsigned n;

	if (!real)
		real =
		    (int (*)(pthread_mutex_t *))driver_dlsym()(dlopen("libc.so.6", RTLD_NOW), "pthread_mutex_unlock");
	int result = real(mutex);

	if (library_is_slow && !is_mine)
		nanosleep(&(struct timespec){.tv_nsec = (++n * 7 + (unsigned)(uintptr_t)&n / 4096) % 5 * 1000000},
			  NULL);
	return result;
}

static volatile uint32_t n_written;

static void *write_until_over(void *unused)
{
	is_mine = true;
	write_until(&over, &words(shared)[MIB], &n_written);
	return unused;
}

/* Its page is the CPU's again before the thread that serves touches looks at it. */
PART_TEST(a_touch_that_has_been_settled_is_not_refused,
	  assert_int_equal(run_as("device.budget=16MiB,host.budget=16MiB", NULL, part), 0))
{
	pthread_t thread;

	is_mine = true;
	signal(SIGSEGV, SIG_DFL);
	driver_start(0);
	CUdeviceptr full = child_alloc(12 * MIB), a = driver_managed(MIB);
	shared = driver_managed(28 * MIB);
	*(uint64_t *)words(a) = shared;
	library_is_slow = true;
	CHECK(!pthread_create(&thread, NULL, write_until_over, NULL));
	for (int i = 0; i < 30; i++) {
		CHECK(driver_fill(NULL, a + 64, 1, 1) == CUDA_ERROR_OUT_OF_MEMORY);
		for (uint32_t before = n_written; n_written == before;)
			;
	}
	over = true;
	library_is_slow = false;
	CHECK(!pthread_join(thread, NULL));
	MUST(cu.cuMemFree_v2(full));
	MUST(cu.cuMemFree_v2(a));
	end_of(shared);
}

/* ---- the end of the process ---- */

static ssize_t write_slowly(void *unused, const char *bytes, size_t n)
{
	(void)unused;
	(void)bytes;
	usleep(300000);
	return (ssize_t)n;
}

static void *touch_for_ever(void *unused)
{
	for (size_t i = 0;; i = (i + 37) % 1024)
		(void)*(volatile uint32_t *)words(shared + i * MIB / 16);
	return unused;
}

/* Threads may still run, and the C library writes its files after all destructors. */
PART_TEST(a_thread_that_touches_does_not_change_how_the_process_ends,
	  assert_int_equal(run_as("device.budget=128MiB,host.budget=384MiB", NULL, part), 9))
{
	pthread_t thread;

	signal(SIGSEGV, SIG_DFL);
	driver_start(0);
	shared = used_by_gpu(64 * MIB, 5);
	FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_slowly});
	CHECK(file && fputc(1, file) == 1);
	CHECK(!pthread_create(&thread, NULL, touch_for_ever, NULL));
	while (!counted(STAT_managed_touches))
		;
	/* All of it has to be touched anew. */
	MUST(driver_fill(NULL, shared, 1, 1));
	exit(9);
}

static ssize_t look_for_calls(void *unused, const char *bytes, size_t n)
{
	(void)unused;
	(void)bytes;
	if (sim_stalled())
		_exit(3);
	return (ssize_t)n;
}

static void *touch_once(void *unused)
{
	(void)*(volatile uint32_t *)words(shared);
	return unused;
}

static void *let_go_on(void *us)
{
	usleep((useconds_t)(uintptr_t)us);
	sim_go_on();
	return NULL;
}

/* The driver ends with the process. */
PART_TEST(no_touch_is_inside_the_driver_when_the_process_ends, assert_int_equal(run(part), 9))
{
	pthread_t thread;

	driver_start(0);
	shared = used_by_gpu(MIB, 5);
	FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = look_for_calls});
	CHECK(file && fputc(1, file) == 1);
	sim_stall_at("cuMemcpyDtoHAsync_v2", 1);
	CHECK(!pthread_create(&thread, NULL, touch_once, NULL));
	while (!sim_stalled())
		;
	CHECK(!pthread_create(&thread, NULL, let_go_on, (void *)100000));
	exit(9);
}

static void *suspend_and_resume(void *unused)
{
	CHECK(!spillway_suspend() && !spillway_resume());
	return unused;
}

/* A suspension of many GiB takes longer than a launch waits at once for what a pointer leads to. */
PART_TEST(a_launch_waits_for_memory_that_leaves_for_long, assert_int_equal(run(part), 0))
{
	pthread_t suspends, goes_on;

	if (!strcmp(getenv("SPILL_MODE"), "static"))
		return; /* nothing leaves */
	driver_start(0);
	CUdeviceptr far = used_by_gpu(2 * MIB, 3), table = driver_managed(4096);
	*(CUdeviceptr *)(uintptr_t)table = far;
	sim_stall_at("cuMemcpyDtoDAsync_v2", 1);
	CHECK(!pthread_create(&suspends, NULL, suspend_and_resume, NULL));
	while (!sim_stalled())
		;
	CHECK(!pthread_create(&goes_on, NULL, let_go_on, (void *)1300000));
	MUST(driver_fill(NULL, table + 8, 5, 1));
	CHECK(!pthread_join(suspends, NULL) && !pthread_join(goes_on, NULL));
	MUST(cu.cuCtxSynchronize());
	CHECK(driver_holds(table + 8, 5, 1));
}

EACH_TEST(folder_make, folder_remove)
