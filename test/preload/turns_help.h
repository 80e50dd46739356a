/*
 * turns_help.h: what the account of a shared GPU says of ranks that take turns, read from its file as `spillway list`
 * reads it.
 */
#ifndef PRELOAD_TURNS_HELP_H
#define PRELOAD_TURNS_HELP_H

#include "shim/accounting/gpu_account.h"
#include "test/rank.h"

/*
 * Reads it, without the slots of the dead, or with what their children keep in them. Returns false if it is not whole
 * now.
 */
bool account_read(struct account_page *ret_page);
/* The same of one of several: this part of its name is that of no other. */
bool account_read_of(const char *part, struct account_page *ret_page);
uint64_t account_sum(const struct account_page *page);
/* What is read while it changes may be of two moments; what is wrong stays wrong. */
void account_check(void);
const struct gpu_account_member *account_member(const struct account_page *page, const struct rank *rank);
uint64_t account_turns(const struct rank *rank);
/* Returns the number of the rank whose turn it is and who is not just moving, or n. */
unsigned account_holder(const struct rank *ranks, unsigned n);

/* In a rank: closes the file, as by close_range(). Returns false if it is not open. */
bool account_close(void);

/*
 * In a rank: forks a child that does not exec, as a worker of a data loader; clone: by a call that the library does not
 * hear of. Each ends when it has read a byte of the pipe, which the test must have made before its ranks.
 */
extern int turns_child_waits[2];
uint64_t turns_leave_a_child(bool clone);

/* ---- ranks that obey 's' N: N steps, and 'c': whether all contents are right ---- */

/* For struct rank_part: the settings that all of them have, and those of one. */
void turns_begin(const void *settings);
/* All of them make steps at the same time, until each has had so many turns more. */
void turns_run(const struct rank *ranks, unsigned n, uint64_t turns);
/* Checks contents and account, and ends all of them. */
void turns_end(const struct rank *ranks, unsigned n);

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
int turns_main(char **argv, int (*run)(void));

#endif
