/*
 * recent_submissions.h: what the latest submissions were, for messages. Noted behind every submission that is counted (completion.c), over
 * the oldest, by any thread and without a lock; looked at when something has gone wrong, so it makes no driver call.
 */
#ifndef SPILLWAY_RECENT_SUBMISSIONS_H
#define SPILLWAY_RECENT_SUBMISSIONS_H

#include "shim/submit/completion.h"

/* row: of its stream, below COMPLETION_STREAMS. */
void recent_submissions_note(uint64_t number, const struct completion_what *what, unsigned row);
/* The oldest of which it may be known, when `newest` is the latest. */
uint64_t recent_submissions_oldest(uint64_t newest);
/* False, and nothing is returned: it is forgotten, being written over just now, or not noted yet. */
bool recent_submissions_look(uint64_t number, struct completion_what *ret_what, unsigned *ret_row);

#endif
