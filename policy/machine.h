/*
 * machine.h: the policy of the machine, /etc/spillway/policy.yaml: the policy of who names none, and limits that no
 * policy can exceed. Private to this folder.
 *
 * The limits keep order among those who want it. They are no security boundary: who owns a process can start it without
 * the library.
 */
#ifndef POLICY_MACHINE_H
#define POLICY_MACHINE_H

#include "policy/error.h"
#include "policy/model.h"

/* No limit on anything. */
extern const struct policy_limits policy_no_limits;

/* Returns true if the name is that of the machine's policy. */
bool policy_machine_is(const char *file);

/*
 * Reads the machine's policy. Returns its text, which the caller frees, or NULL if there is none; also if it is
 * refused, because it or its folder is not its owner's (policy_machine_owner) alone to write, or cannot be read: then a
 * warning is added to errors.
 */
char *policy_machine_read(size_t *ret_bytes, struct policy_errors *errors);

/*
 * Gets the limits of the text of the machine's policy. Errors in it, wherever they are, are added to errors: a limit
 * that cannot be read must not be taken for none. Its warnings are not.
 */
void policy_machine_limits(const char *text, size_t bytes, struct policy_limits *ret_limits,
			   struct policy_errors *errors);

/*
 * Gives the policy these limits, and cuts the settings that are known to exceed one; a setting that was written and cut
 * is a warning. The policy must have been read without an error.
 */
void policy_limits_apply(struct policy *policy, const struct policy_limits *limits, struct policy_errors *errors);

#endif
