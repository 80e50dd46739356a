// SPDX-License-Identifier: Apache-2.0
/*
 * site_user.c: the library of site_test.sh's programs, which they call by ctypes, that is without the GIL. It allocates
 * through the runtime, on the thread of Python or on one of its own, which has no frames of Python.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>

int runtime_start(void);
int runtime_current(void);
unsigned long long runtime_alloc(size_t bytes);

int site_start(void);
unsigned long long site_alloc(size_t bytes);
int site_thread(const char *name, size_t bytes);
void *site_run(void *argument);

int site_start(void)
{
	return runtime_start();
}

unsigned long long site_alloc(size_t bytes)
{
	return runtime_alloc(bytes);
}

struct thread {
	const char *name;
	size_t bytes;
};

void *site_run(void *argument)
{
	const struct thread *thread = argument;

	prctl(PR_SET_NAME, thread->name);
	return (void *)(uintptr_t)(!runtime_current() && site_alloc(thread->bytes));
}

int site_thread(const char *name, size_t bytes)
{
	struct thread argument = {name, bytes};
	pthread_t thread;
	void *result = NULL;

	return pthread_create(&thread, NULL, site_run, &argument) || pthread_join(thread, &result) || !result;
}
