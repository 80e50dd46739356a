// SPDX-License-Identifier: Apache-2.0
#include "test/unit/lifetimes_help.h"

struct lifetimes *lifetimes;
_Atomic size_t position;
const char allocator, other;

/* The allocator's: its reports of one device come one after another. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t in_use;

int lifetimes_begin(void **state)
{
	lifetimes = lifetimes_new(0, BASE, BYTES);
	assert_non_null(lifetimes);
	atomic_store(&position, 0);
	in_use = 0;
	return 0;
}

int lifetimes_end(void **state)
{
	lifetimes_free(lifetimes);
	return 0;
}

void allocated_for(const void *object, uint64_t address, uint64_t bytes, uint64_t space)
{
	lifetimes_allocated(lifetimes, address, bytes, space, object);
}

void allocated(uint64_t address, uint64_t bytes, uint64_t space)
{
	allocated_for(&allocator, address, bytes, space);
}

void tell(uint64_t at, uint64_t bytes, bool born, uint64_t reserved)
{
	pthread_mutex_lock(&lock);
	in_use += born ? bytes : -bytes;
	lifetimes_tell(&(struct lifetimes_report){.device = 0,
						  .address = BASE + at,
						  .bytes = bytes,
						  .born = born,
						  .reserved = reserved,
						  .allocated = in_use,
						  .reporter = &allocator,
						  .number = 3,
						  .own = 3});
	pthread_mutex_unlock(&lock);
}

void tell_both(uint64_t at, uint64_t bytes, uint64_t reserved)
{
	tell(at, bytes, true, reserved);
	tell(at, bytes, false, reserved);
}

void allocated_and_told(uint64_t at, uint64_t bytes, uint64_t reserved)
{
	allocated(BASE + at, bytes, 0);
	tell(at, MIB, true, reserved);
}

void hide(uint64_t bytes, bool born)
{
	in_use += born ? bytes : -bytes;
}

void read_all(void)
{
	struct lifetimes_event event;

	while (lifetimes_read(lifetimes, atomic_load(&position), &event))
		;
}

bool is_reported_at(uint64_t at)
{
	read_all();
	return live_map_is_reported(lifetimes_map(lifetimes), at);
}
