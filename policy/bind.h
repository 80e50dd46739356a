/* bind.h: prepares a policy that was read for deciding. Private to this folder. */
#ifndef POLICY_BIND_H
#define POLICY_BIND_H

#include "policy/model.h"

/*
 * Completes a policy after everything has been read: rules inherit values of the file for keys that they leave out,
 * and the tests are packed. Returns false if there is no memory. Afterwards the policy is not bound to a process.
 */
bool policy_finish(struct policy *policy);

#endif
