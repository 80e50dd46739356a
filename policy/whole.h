/*
 * whole.h: values that are each right, and together are not. Private to this folder.
 */
#ifndef POLICY_WHOLE_H
#define POLICY_WHOLE_H

#include "policy/error.h"
#include "policy/model.h"

/*
 * Looks at a policy that was read without an error, with what is set on top of it. What cannot mean anything is an error;
 * what is harmless, but does not do what it says, a warning.
 */
void policy_check_whole(const struct policy *policy, struct policy_errors *errors);

#endif
