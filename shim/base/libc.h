/*
 * libc.h: functions that glibc has and other C libraries lack or name differently, and threads. The children of a
 * program inherit LD_PRELOAD, and a child built for musl loads the library with musl in glibc's place (musl accepts the
 * name libc.so.6); a missing symbol then ends that child before its main(). So symbols that musl lacks are only
 * referenced weakly, no thread-local variable uses __tls_get_addr, which would require glibc's loader by name, and such
 * a child must find musl's dlsym() behind the library's.
 */
#ifndef SPILLWAY_LIBC_H
#define SPILLWAY_LIBC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Does what pthread_atfork() does. Has no effect if the C library is not glibc: the library does no work there. */
void libc_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* Call dlvsym() with RTLD_NEXT or RTLD_DEFAULT, as the library. Return NULL if the C library has no dlvsym(). */
void *libc_dlvsym_next(const char *name, const char *version);
void *libc_dlvsym_default(const char *name, const char *version);

/* Do what gettid() and getdents64() do, which glibc has from 2.30 on. */
static inline pid_t libc_gettid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static inline ssize_t libc_getdents64(int folder, void *buffer, size_t bytes)
{
	return syscall(SYS_getdents64, folder, buffer, bytes);
}

/* Returns the C library's function of that name from its symbol table. Returns NULL under glibc, or if it has none. */
void *libc_find(const char *name);

/* ---- threads ---- */

/*
 * Starts a thread of the library, which blocks all signals: they belong to the program. It has a stack of `stack`
 * bytes, of which only touched pages use memory, or of 8 MiB if the thread-local memory of all libraries does not fit.
 * joined: the caller will join it. Returns 0 or an errno. ret_thread may be NULL.
 */
int thread_start(void *(*run)(void *), void *argument, size_t stack, bool joined, pthread_t *ret_thread);

#endif
