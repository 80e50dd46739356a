/* error.h: collects the problems of a policy. Private to this folder. */
#ifndef POLICY_ERROR_H
#define POLICY_ERROR_H

#include "policy/policy.h"

/* A place in a text. Line 0 means the file as a whole. */
struct policy_place {
	unsigned line, column;
};

/*
 * Adds a problem. Problems of one file are kept in the order of its lines, in whatever order they are found; those of
 * another file come after, also together. At most 100 are kept; when the list is full, an error replaces the last
 * warning. Without memory the text is lost, but not the count.
 */
__attribute__((format(printf, 4, 5))) void policy_error_add(struct policy_errors *errors, const char *file,
							    struct policy_place place, const char *format, ...);
__attribute__((format(printf, 4, 5))) void policy_warning_add(struct policy_errors *errors, const char *file,
							      struct policy_place place, const char *format, ...);

#endif
