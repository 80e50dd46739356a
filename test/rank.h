// SPDX-License-Identifier: Apache-2.0
/*
 * rank.h: processes that are there at the same time, and do one thing after the other as the test tells them. A rank is
 * a fork of the test; an order comes to it through a pipe, and its answer goes back through another.
 *
 * What is told here fails as an assertion of cmocka's does.
 */
#ifndef TEST_RANK_H
#define TEST_RANK_H

#include <stdint.h>
#include <sys/types.h>

struct rank {
	pid_t pid;
	int to, from;
};

/* In the rank: what it is before its first order, and its answer to each. */
struct rank_part {
	void (*begin)(const void *how);
	uint64_t (*obey)(char what, unsigned n);
};

/* how: for begin(). An order ends it; where the pipe ends first, its status is 3. */
struct rank rank_start(const struct rank_part *part, const void *how);

/* Tell, and hear the answer, at once or later: answers come in the order of what was told. */
void rank_tell(const struct rank *rank, char what, unsigned n);
uint64_t rank_hear(const struct rank *rank);
uint64_t rank_ask(const struct rank *rank, char what, unsigned n);

/* It ends by itself, with that wait status. */
void rank_gone(const struct rank *rank, int expected);
/* By the order 'e', with status 0. */
void rank_end(const struct rank *rank);
#define ranks_end(...) ranks_end_all((const struct rank *const[]){__VA_ARGS__, NULL}) /* several, one after the other */
void ranks_end_all(const struct rank *const *ranks);
void ranks_end_rest(void); /* a tear-down: those that are left, in the order of their start */
void rank_kill(const struct rank *rank);

#endif
