/*
 * error.h: gathering the problems of a policy. Private to this folder.
 */
#ifndef POLICY_ERROR_H
#define POLICY_ERROR_H

#include "policy/policy.h"

/* A place in a text. line 0 means "the file as a whole". */
struct policy_place {
	unsigned line, column;
};

/*
 * Note a problem. Those of one file end up in the order of its lines whatever the order they were found in; those of
 * a second file come after, each file's together. When 100 are kept an error drives out the last warning. Lack of memory loses the text, never
 * the count.
 */
__attribute__((format(printf, 4, 5))) void policy_error_add(struct policy_errors *errors, const char *file,
							    struct policy_place place, const char *format, ...);
__attribute__((format(printf, 4, 5))) void policy_warning_add(struct policy_errors *errors, const char *file,
							      struct policy_place place, const char *format, ...);

#endif
