// SPDX-License-Identifier: Apache-2.0
/*
 * managed_late_test.c: managed memory on the heap, which the CPU uses after the GPU's first use or beside it, where the
 * kernel refuses userfaultfd(): what the program's signal handlers see, which are behind the library's. Each part in a
 * process of its own.
 */
#include "test/preload/managed_heap_help.h"

#include <sys/mman.h>
#include <sys/syscall.h>

/* ---- signals ---- */

static sigjmp_buf out;
static volatile int n_faults;
static volatile uintptr_t fault_at;

static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	n_faults++;
	fault_at = (uintptr_t)info->si_addr;
	siglongjmp(out, 1);
}

static void on_plain_fault(int number)
{
	n_faults += number == SIGSEGV;
	siglongjmp(out, 1);
}

/* Returns whether the access faults, and the program's handler is called. */
static bool faults(CUdeviceptr at, bool write)
{
	int before = n_faults;

	if (!sigsetjmp(out, 1)) {
		volatile uint32_t *word = words(at);

		if (write)
			*word = 1;
		else
			(void)*word;
	}
	return n_faults == before + 1;
}

static void catch (int flags)
{
	struct sigaction action = {.sa_flags = flags};

	if (flags & SA_SIGINFO)
		action.sa_sigaction = on_fault;
	else
		action.sa_handler = on_plain_fault;
	CHECK(!sigaction(SIGSEGV, &action, NULL));
}

static CUdeviceptr used(void)
{
	CUdeviceptr at = driver_managed(4096);

	*words(at) = 3;
	MUST(driver_fill(NULL, at + 4, 4, 1));
	MUST(cu.cuCtxSynchronize());
	return at;
}

/* The simulated driver puts a handler of its own in front with each piece of work; after one jump it passes no more on. */
PART_TEST(the_programs_handler_from_before_is_called, assert_int_equal(run(part), 0))
{
	driver_start(0);
	catch (SA_SIGINFO);
	CUdeviceptr at = used();
	CHECK(faults(at + 8, false) && fault_at == at + 8);
	CHECK(read_back(at) == 3 && read_back(at + 4) == 4);
}

PART_TEST(the_programs_handler_from_after_is_called, assert_int_equal(run(part), 0))
{
	struct sigaction now;

	driver_start(0);
	CUdeviceptr at = used();
	catch (SA_SIGINFO);
	CHECK(faults(at, false) && faults(at + 4, true));
	CHECK(signal(SIGSEGV, on_plain_fault) == (sighandler_t)(void *)on_fault);
	CHECK(faults(at, false));
	CHECK(signal(SIGSEGV, SIG_DFL) == on_plain_fault);
	CHECK(!sigaction(SIGSEGV, NULL, &now) && now.sa_handler == SIG_DFL);
	/* It is called once, and the default is back. */
	catch (SA_SIGINFO | SA_RESETHAND | SA_NODEFER);
	CHECK(faults(at, false));
	CHECK(!sigaction(SIGSEGV, NULL, &now) && now.sa_flags & SA_SIGINFO && now.sa_handler == SIG_DFL);
	/* Faults of the program's own are as they were. */
	catch (SA_SIGINFO);
	CHECK(faults(64, true) && fault_at == 64);
}

/* A constructor of a library of the program is called before the one of a preloaded library. */
int early_signal_failures(void);

TEST(signals_may_be_set_before_the_library_begins)
{
	assert_int_equal(early_signal_failures(), 0);
}

static void raw_handler(int number)
{
	(void)number;
}

/* Other languages' runtimes set it so. */
PART_TEST(what_the_system_call_has_set_is_the_programs, assert_int_equal(run(part), 0))
{
	/* As the kernel has it. */
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} raw = {.handler = raw_handler};

	driver_start(0);
	CUdeviceptr at = used();
	catch (SA_SIGINFO);
	CHECK(!syscall(SYS_rt_sigaction, SIGSEGV, &raw, NULL, sizeof(raw.mask)));
	CHECK(signal(SIGSEGV, on_plain_fault) == raw_handler);
	CHECK(faults(at, false));
	CHECK(signal(SIGSEGV, SIG_DFL) == on_plain_fault);
}

/* What the child of a vfork() sets is its own, and it is told what it would be natively. */
PART_TEST(a_child_of_vfork_leaves_the_handler_alone, assert_int_equal(run(part), 0))
{
	static sighandler_t was;
	static struct sigaction now;
	int status;

	driver_start(0);
	CUdeviceptr at = used();
	catch (SA_SIGINFO);
	pid_t pid = vfork(); /* NOLINT: that is the subject */
	if (!pid) {
		was = signal(SIGSEGV, SIG_DFL);
		sigaction(SIGSEGV, NULL, &now);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(was == (sighandler_t)(void *)on_fault && now.sa_handler == SIG_DFL);
	CHECK(faults(at, false));
	catch (SA_SIGINFO | SA_RESETHAND | SA_NODEFER);
	pid = vfork(); /* NOLINT: that is the subject */
	if (!pid)
		_exit(!faults(at, false));
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(faults(at, false));
}

static bool is_ignored_by_the_kernel(void)
{
	char line[256];
	unsigned long long set = 0;
	FILE *file = fopen("/proc/self/status", "r");

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "SigIgn: %llx", &set);
	fclose(file);
	return set >> (SIGSEGV - 1) & 1;
}

/* Programs that are executed inherit it. */
PART_TEST(an_ignored_signal_is_ignored_by_the_kernel, assert_int_equal(run(part), 0))
{
	driver_start(0);
	CUdeviceptr at = used();
	CHECK(signal(SIGSEGV, SIG_IGN) != SIG_ERR);
	CHECK(is_ignored_by_the_kernel() && signal(SIGSEGV, SIG_IGN) == SIG_IGN);
	raise(SIGSEGV);
	struct sigaction ignore = {.sa_handler = SIG_IGN, .sa_flags = SA_SIGINFO};
	CHECK(!sigaction(SIGSEGV, &ignore, NULL));
	raise(SIGSEGV);
	catch (SA_SIGINFO);
	CHECK(!is_ignored_by_the_kernel() && faults(at, false));
}

/* What ends the program natively ends it here, by the same signal. */
static void ends(void (*prepare)(void))
{
	driver_start(0);
	CUdeviceptr at = used();

	prepare();
	*words(at) = 1;
}

static void by_default(void)
{
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
}

static void ignored(void)
{
	CHECK(signal(SIGSEGV, SIG_IGN) != SIG_ERR);
	/* One that is sent is ignored. */
	raise(SIGSEGV);
}

static void blocked(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	catch (SA_SIGINFO);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

static void on_stack(int number, siginfo_t *info, void *context)
{
	static int here;
	stack_t stack;

	(void)number;
	(void)info;
	(void)context;
	_exit(!sigaltstack(NULL, &stack) && stack.ss_flags & SS_ONSTACK && (uintptr_t)&here ? 42 : 43);
}

/* No larger than a handler needs that does nothing; with a sanitizer's checks in its functions it needs more. */
#ifdef __SANITIZE_ADDRESS__
#define SMALL_STACK 65536
#else
#define SMALL_STACK 4096
#endif

static void on_small_stack(void)
{
	size_t bytes = (size_t)sysconf(_SC_MINSIGSTKSZ) + SMALL_STACK;
	stack_t stack = {.ss_sp = malloc(bytes), .ss_size = bytes};
	struct sigaction action = {.sa_sigaction = on_stack, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	CHECK(!sigaltstack(&stack, NULL) && !sigaction(SIGSEGV, &action, NULL));
}

static void sent(void)
{
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
	raise(SIGSEGV);
}

/* Like a fault at a page that another thread maps meanwhile. */
static void not_again(void)
{
	siginfo_t info = {.si_signo = SIGSEGV, .si_code = SEGV_MAPERR};

	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
	CHECK(!syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGSEGV, &info));
	_exit(7);
}

#define ENDS(name, prepare, status)                                                                                    \
	PART_TEST(name, assert_int_equal(run(part), status))                                                           \
	{                                                                                                              \
		ends(prepare);                                                                                         \
	}
ENDS(by_default_the_program_ends, by_default, 128 + SIGSEGV)
ENDS(a_fault_that_is_ignored_ends_the_program, ignored, 128 + SIGSEGV)
ENDS(a_fault_while_the_signal_is_blocked_ends_the_program, blocked, 128 + SIGSEGV)
ENDS(a_signal_that_is_sent_ends_the_program, sent, 128 + SIGSEGV)
ENDS(a_fault_that_does_not_come_again_ends_the_program, not_again, 128 + SIGSEGV)
ENDS(the_handler_runs_on_its_small_stack, on_small_stack, 42)

/* The line says which memory that was. Standard error is what it is when a program is loaded. */
TEST(one_line_says_whose_memory_it_was)
{
	char text[4096] = "", *line;
	FILE *file = tmpfile();
	pid_t pid = fork();

	if (!pid) {
		dup2(fileno(file), STDERR_FILENO);
		setenv("TEST_ONLY", "by_default_the_program_ends", 1);
		execl("/proc/self/exe", "managed_late_test", (char *)NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	rewind(file);
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	line = strstr(text, "spillway: THE CPU USED MANAGED MEMORY THAT THE GPU HAS: address 0x");
	assert_non_null(line);
	assert_non_null(strstr(line, "by rule managed to heap, made at "));
	assert_null(strstr(line + 20, "THE CPU USED"));
}

/* ---- beside the first use ---- */

static CUdeviceptr shared;
static volatile uint32_t n_written;

static void *write_words(void *unused)
{
	(void)unused;
	if (!sigsetjmp(out, 1))
		for (uint32_t i = 0; i < MIB / 4; i++) {
			words(shared)[i] = i + 1;
			n_written = i + 1;
		}
	return NULL;
}

/* Each write of the CPU is in the copy, or faults. */
PART_TEST(no_write_is_lost_beside_the_first_use, assert_int_equal(run(part), 0))
{
	static uint32_t back[MIB / 4];

	driver_start(0);
	catch (SA_SIGINFO);
	for (int round = 0; round < 30; round++) {
		pthread_t thread;

		shared = driver_managed(MIB);
		n_written = 0;
		CHECK(!pthread_create(&thread, NULL, write_words, NULL));
		while (n_written < (uint32_t)round * 500)
			;
		MUST(cu.cuMemcpyDtoH_v2(back, shared, MIB));
		pthread_join(thread, NULL);
		for (uint32_t i = 0; i < n_written; i++)
			CHECK(back[i] == i + 1);
		MUST(cu.cuMemFree_v2(shared));
	}
	end();
}

/* ---- fork ---- */

PART_TEST(a_child_of_a_fork_has_no_access, assert_int_equal(run(part), 0))
{
	int status;

	driver_start(0);
	CUdeviceptr cpus = driver_managed(4096), gpus = used();
	*words(cpus) = 8;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (!pid) {
			signal(SIGSEGV, SIG_DFL);
			_exit((int)*words(i ? gpus : cpus));
		}
		CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	*words(cpus) += 1;
	MUST(driver_fill(NULL, cpus + 4, 1, 1));
	CHECK(read_back(cpus) == 9);
	MUST(cu.cuMemFree_v2(cpus));
	MUST(cu.cuMemFree_v2(gpus));
	end();
}

/* ---- in the worst moment ---- */

static bool no_mapping;

/* The kernel has no room for one more. */
void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
	if (no_mapping && flags & MAP_FIXED && access == PROT_NONE) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}

static CUdeviceptr read_by_two;
static atomic_uint n_reads, n_wrong;

static void *read_until_it_faults(void *unused)
{
	if (!sigsetjmp(out, 1))
		for (;; n_reads++)
			n_wrong += *(volatile uint32_t *)words(read_by_two) != 42;
	return unused;
}

/* The access goes before the memory, so nobody reads zeros. */
PART_TEST(it_goes_without_one_more_mapping, assert_int_equal(run(part), 0))
{
	pthread_t thread;

	driver_start(0);
	CUdeviceptr other = used();
	catch (SA_SIGINFO);
	read_by_two = driver_managed(32 * MIB);
	for (size_t i = 0; i < 32 * MIB; i += 4096)
		*words(read_by_two + i) = 42;
	CHECK(!pthread_create(&thread, NULL, read_until_it_faults, NULL));
	while (!n_reads)
		sched_yield();
	no_mapping = true;
	MUST(driver_fill(NULL, read_by_two + 4, 1, 1));
	no_mapping = false;
	CHECK(!pthread_join(thread, NULL) && !n_wrong && n_faults == 1);
	CHECK(read_back(read_by_two) == 42 && read_back(read_by_two + 31 * MIB) == 42);
	MUST(cu.cuMemFree_v2(read_by_two));
	MUST(cu.cuMemFree_v2(other));
}

static CUcontext cancelled_in;
static CUresult copied = CUDA_ERROR_UNKNOWN;

static void *use_cancelled(void *at)
{
	int old;

	MUST(cu.cuCtxSetCurrent(cancelled_in));
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	copied = cu.cuMemsetD32_v2(*(CUdeviceptr *)at + 4, 4, 1);
	return NULL;
}

/* What natively is no point of cancellation is none. */
PART_TEST(a_thread_is_not_cancelled_in_a_first_use, assert_int_equal(run(part), 0))
{
	pthread_t thread;

	cancelled_in = driver_start(0);
	CUdeviceptr at = driver_managed(MIB);
	*words(at) = 3;
	CHECK(!pthread_create(&thread, NULL, use_cancelled, &at) && !pthread_join(thread, NULL));
	CHECK(copied == CUDA_SUCCESS && read_back(at) == 3 && read_back(at + 4) == 4);
	MUST(cu.cuMemFree_v2(at));
}

static int refuse_and_make_folder(void **state)
{
	refuse_userfaultfd();
	return folder_make(state);
}

EACH_TEST(refuse_and_make_folder, folder_remove)
