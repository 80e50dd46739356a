// SPDX-License-Identifier: Apache-2.0
/*
 * completion_help.h: what the tests of what is done and of submissions share: streams that can be held, and questions.
 * There is no mover, the test asks in its place.
 */
#ifndef SPILLWAY_TEST_COMPLETION_HELP_H
#define SPILLWAY_TEST_COMPLETION_HELP_H

#include "shim/context/context.h"
#include "test/core/core.h"

CUstream stream_new(void);
void stream_end(CUstream stream);

/* Two words: one to hold streams with, one for work that does not matter. */
unsigned *word_new(void);
/* After each test: everything becomes done, no rule is broken, and what stream_new() and word_new() made goes. */
int completion_check(void **state);
/* What is given to the stream from here on waits until the word is released. */
void stream_hold(CUstream stream, unsigned *word);
void stream_work(CUstream stream, unsigned *word);
void word_release(unsigned *word);

/* Up to which submission everything is done, asked now. */
uint64_t done_ask(void);
bool all_is_done(void);
/* What the question whether all known contexts are idle is answered at once, asked now. */
enum context_idleness idleness(void);
bool all_is_idle(void);
/* Is it so, now or within a generous time? */
bool becomes(bool (*is_so)(void));

#endif
