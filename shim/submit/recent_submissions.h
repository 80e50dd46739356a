/*
 * recent_submissions.h: a ring of the latest submissions, for messages. completion.c notes each submission that it
 * counts over the oldest one, from any thread and without a lock. It is read when something has gone wrong, so reading
 * makes no driver call.
 */
#ifndef SPILLWAY_RECENT_SUBMISSIONS_H
#define SPILLWAY_RECENT_SUBMISSIONS_H

#include "shim/submit/completion.h"

/* row: the row of the stream, below COMPLETION_STREAMS. */
void recent_submissions_note(uint64_t number, const struct completion_what *what, unsigned row);
/* Returns the oldest number that the ring may still have when `newest` is the latest. */
uint64_t recent_submissions_oldest(uint64_t newest);
/* Returns false, and sets nothing, if the submission is overwritten, being overwritten, or not noted yet. */
bool recent_submissions_look(uint64_t number, struct completion_what *ret_what, unsigned *ret_row);

#endif
