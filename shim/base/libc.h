/*
 * libc.h: what glibc has and other C libraries have not, or not under that name. The children of a program inherit
 * LD_PRELOAD, and one that was built for musl loads us with its own C library in glibc's place (musl answers to the name
 * libc.so.6): whatever is missing there then ends that child before its main(). So nothing that musl lacks is referred to
 * but weakly, no thread-local variable goes through __tls_get_addr, which would make us need glibc's loader by name, and
 * such a child must find its own dlsym() behind ours.
 */
#ifndef SPILLWAY_LIBC_H
#define SPILLWAY_LIBC_H

#include <stdbool.h>

/* pthread_atfork(); without effect where the C library is not glibc: nothing of ours is at work there. */
void libc_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* dlvsym() with RTLD_NEXT and RTLD_DEFAULT, asked by the library; NULL where there is no dlvsym(). */
void *libc_dlvsym_next(const char *name, const char *version);
void *libc_dlvsym_default(const char *name, const char *version);

/* Where it is not glibc: the C library's own function of that name, from its table of symbols; else NULL. */
void *libc_find(const char *name);

#endif
