// SPDX-License-Identifier: Apache-2.0
/*
 * stacks.c: stacks of all threads at an alarm. The library's threads block all signals that can be blocked, so each
 * thread is asked by a signal that the C library keeps for itself and never lets a thread block. A thread that was
 * asked stays in its handler: what is written is one moment of the process, and it ends by the alarm in any case.
 */
#include "test/preload/stacks.h"
#include "test/libc.h"

#include <dirent.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* The second of the signals that pthread_sigmask() leaves out (nptl(7)); for setuid() in processes with threads. */
#define ASK 33
/* The kernel's struct sigaction on 64-bit x86 and Arm. */
struct kernel_action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

enum { FRAMES = 64, ANSWER_MS = 1000, LAST_SECONDS = 20 };

static atomic_uint n_written;
static struct kernel_action on_ask_action;

__attribute__((unused)) static long action(int signal, const struct kernel_action *set,
					   struct kernel_action *ret_before)
{
	return syscall(SYS_rt_sigaction, signal, set, ret_before, sizeof(set->mask));
}

static void say(const char *text)
{
	ssize_t ignored = write(2, text, strlen(text));
	(void)ignored;
}

static void write_own(void)
{
	void *frames[FRAMES];

	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), 2);
	atomic_fetch_add(&n_written, 1);
}

__attribute__((unused)) static void on_ask(int signal)
{
	write_own();
	for (;;)
		pause();
}

/* The name of a thread, with the end of its line. */
static void say_name(const char *thread)
{
	char path[sizeof("/proc/self/task//comm") + 255], name[64] = "?\n";

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", thread);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		ssize_t n = read(file, name, sizeof(name) - 1);

		name[n > 0 ? n : 0] = 0;
		close(file);
	}
	say("---- thread ");
	say(thread);
	say(" ");
	say(name);
}

static void ask(pid_t thread)
{
	unsigned before = atomic_load(&n_written);

	if (thread == gettid()) {
		write_own();
		return;
	}
	if (syscall(SYS_tgkill, getpid(), thread, ASK))
		return;
	for (unsigned ms = 0; atomic_load(&n_written) == before && ms < ANSWER_MS; ms++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (atomic_load(&n_written) == before)
		say("does not answer\n");
}

/* In the order of their ids, so that the main thread is first. No allocation: a thread may be inside malloc(). */
static void ask_all(void)
{
	char entries[4096] __attribute__((aligned(8)));
	int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	while (folder >= 0 && (n = getdents64(folder, entries, sizeof(entries))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *entry = (const struct dirent64 *)(entries + at);

			at += entry->d_reclen;
			if (entry->d_name[0] == '.')
				continue;
			say_name(entry->d_name);
			ask((pid_t)atoi(entry->d_name));
		}
}

/* The first backtrace() of a process loads a library: if that cannot end now, the next alarm ends the process. */
__attribute__((unused)) static void on_alarm(int signal)
{
	alarm(LAST_SECONDS);
	/* Not before: the C library sets its own with the first thread. */
	action(ASK, &on_ask_action, NULL);
	say("==== the alarm ends this process; its threads:\n");
	ask_all();
	raise(SIGALRM);
}

/*
 * By the kernel's own call: the C library refuses ASK, and a sanitizer puts handlers off. What the kernel returns from
 * a handler to, and the unwinder knows, is taken from an action that the C library has set.
 */
void stacks_on_alarm(void)
{
#ifndef __SANITIZE_THREAD__ /* has a thread of its own, in which nothing of the program may run */
	const struct sigaction plain = {.sa_handler = on_alarm};
	struct kernel_action act;

	if (sigaction(SIGALRM, &plain, NULL) || action(SIGALRM, NULL, &act))
		return;
	act.mask = 0;
	act.handler = on_ask;
	on_ask_action = act;
	act.handler = on_alarm;
	act.flags |= SA_RESETHAND | SA_NODEFER;
	action(SIGALRM, &act, NULL);
#endif
}
