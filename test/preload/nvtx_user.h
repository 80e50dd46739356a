// SPDX-License-Identifier: Apache-2.0
/*
 * nvtx_user.h: NVTX as one library has it. What the functions return is what NVTX does.
 */
#ifndef PRELOAD_NVTX_USER_H
#define PRELOAD_NVTX_USER_H

#include <wchar.h>

int user_push(const char *name);
int user_push_wide(const wchar_t *name);
int user_pop(void);
void *user_domain(const char *name);
int user_push_in(void *domain, const char *name, int registered);
int user_pop_in(void *domain);

#endif
