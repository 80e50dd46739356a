// SPDX-License-Identifier: Apache-2.0
/*
 * lifetimes_help.h: the lifetimes of one heap, and what an allocator does in it. Ranges of tell() are in bytes from
 * BASE.
 */
#ifndef UNIT_LIFETIMES_HELP_H
#define UNIT_LIFETIMES_HELP_H

#include "shim/lifetimes/types.h"
#include "test/test.h"

#define BASE  (UINT64_C(1) << 40)
#define BYTES (UINT64_C(1) << 30)

extern struct lifetimes *lifetimes;
extern _Atomic size_t position;
/* Objects that ask for memory; the first one reports. */
extern const char allocator, other;

/* Setup and teardown. */
int lifetimes_begin(void **state);
int lifetimes_end(void **state);

void allocated_for(const void *object, uint64_t address, uint64_t bytes, uint64_t space);
void allocated(uint64_t address, uint64_t bytes, uint64_t space);
void tell(uint64_t at, uint64_t bytes, bool born, uint64_t reserved);
/* It is born, and dies. */
void tell_both(uint64_t at, uint64_t bytes, uint64_t reserved);
/* The allocator gets a block, and reports of its first MiB: it has reserved so many bytes then. */
void allocated_and_told(uint64_t at, uint64_t bytes, uint64_t reserved);
/* Something is born, or dies, and is not reported. */
void hide(uint64_t bytes, bool born);
void read_all(void);
bool is_reported_at(uint64_t at);

#endif
