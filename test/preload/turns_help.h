// SPDX-License-Identifier: Apache-2.0
/*
 * turns_help.h: what the account of a shared GPU says of ranks that take turns, read from its file as `spillway list`
 * reads it.
 */
#ifndef PRELOAD_TURNS_HELP_H
#define PRELOAD_TURNS_HELP_H

#include "shim/accounting/gpu_account.h"
#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "test/rank.h"
#include "test/test.h"

/*
 * Reads it, without the slots of the dead, or with what their children keep in them. Returns false if it is not whole
 * now.
 */
bool account_read(struct account_page *ret_page);
/* The same of one of two devices. */
bool account_read_device(unsigned device, struct account_page *ret_page);
uint64_t account_sum(const struct account_page *page);
/* Of both devices. What is read while it changes may be of two moments; what is wrong stays wrong. */
void account_check(void);
const struct gpu_account_member *account_member(const struct account_page *page, const struct rank *rank);
uint64_t account_turns(const struct rank *rank);
/* Returns the number of the rank whose turn it is and which is neither moving nor away; n if there is none. */
unsigned account_holder(const struct rank *ranks, unsigned n);

/* In a rank: closes the file, as by close_range(). Returns false if it is not open. */
bool account_close(void);

/*
 * In a rank: forks a child that does not exec, as a worker of a data loader; clone: by a call that the library does not
 * hear of. Each ends when it has read a byte of the pipe, which the test must have made before its ranks.
 */
extern int turns_child_waits[2];
uint64_t turns_leave_a_child(bool clone);

/* ---- ranks that make steps ---- */

/* The settings of all of them, and more; those of most, where what leaves for the turns of others fits the host. */
#define TURNS_SET(more) "SPILLWAY_SET=device.total=32MiB,report.summary=no,share.quantum=20ms" more
#define TURNS(more)     TURNS_SET(",host.budget=256MiB,share=turns" more)
enum { TURNS_MIB = 32 };     /* device.total */
enum { TURNS_NEEDS = 6 };    /* blocks of 4 MiB: more than half of it */
enum { TURNS_MOST = 64 };    /* blocks of a rank */
enum { TURNS_TRIES = 3000 }; /* what has not happened by then never does */

/* Of a rank: block i holds `fills` + i, and i where no step writes (turns_holds()). */
extern CUdeviceptr turns_blocks[TURNS_MOST];
extern unsigned turns_n_blocks, turns_fills;

/*
 * In a rank: what a block of 4 MiB holds. A step writes one word of each 64 KiB; what it does not write holds what was
 * written once, when the block was new. So a step costs the processor little, and every byte can be checked.
 */
void turns_new(CUdeviceptr block, unsigned first);
void turns_write(CUdeviceptr block, unsigned value);
bool turns_holds(CUdeviceptr block, unsigned first, unsigned value);
/* At the end of a step: the simulated GPU works for some milliseconds without a processor, as real ones do. */
void turns_rest(void);
/* Makes steps until so many blocks are on the GPU, and `mib` of host memory for what leaves. Returns if that comes. */
bool turns_until_pinned(void (*step)(void), unsigned n_blocks, unsigned mib);

/* For struct rank_part: the settings that all of them have, and those of one. */
void turns_begin(const void *settings);
/*
 * 'd' N: begin with device N; 'a' N: allocate N blocks, and fill all anew; 'm' N: allocate N blocks, and fill them alone;
 * 's' N: N steps, each writes to all blocks; 'c': whether all contents are right; 'p' N: turns_leave_a_child(N); 'e': end.
 */
uint64_t turns_obey(char what, unsigned n);
/* One that has begun with device 0, and has allocated n blocks; so many of them, each with TURNS_NEEDS. */
struct rank turns_start(const struct rank_part *part, const void *how, unsigned n);
void turns_start_all(struct rank *ranks, unsigned n, const struct rank_part *part, const void *how);

/* All of them do that at the same time, and all but one do it right. `but` is n where none is left out. */
void turns_tell(const struct rank *ranks, unsigned n, char what, unsigned argument);
void turns_hear(const struct rank *ranks, unsigned n, unsigned but);
void turns_do(const struct rank *ranks, unsigned n, char what, unsigned argument);
/* One after the other: are all contents right? */
void turns_check(const struct rank *ranks, unsigned n);
void turns_check_and_end(const struct rank *ranks, unsigned n);
/* All of them make steps at the same time, until each has had so many turns more. */
void turns_run(const struct rank *ranks, unsigned n, uint64_t turns);
/* Checks contents and account, and ends all of them; after so many turns more. */
void turns_end(const struct rank *ranks, unsigned n);
void turns_run_and_end(const struct rank *ranks, unsigned n, uint64_t turns);

/* Return whether these words were logged since begin_log(). The second prints what was logged if not. */
bool log_has(const char *words);
bool log_says(const char *words);
/* A test's setup: a log of its own, and a folder (folder.h). */
int begin_log(void **state);
#define TURNS_TEST(name) cmocka_unit_test_setup_teardown(name, begin_log, folder_remove)
/*
 * All of main() of such a test. The library writes to what was the standard error output when it was loaded: the test
 * is started again with a file for that, for all ranks, and TURNS_TEST_LOG set, and calls run() then, which returns how
 * many tests have failed. If any has, prints the log of all of them. Returns the exit status.
 */
int turns_main(int (*run)(void));

#endif
