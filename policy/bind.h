/*
 * bind.h: from rules as they were written to what deciding looks at. Private to this folder.
 */
#ifndef POLICY_BIND_H
#define POLICY_BIND_H

#include "policy/model.h"

/*
 * All has been read: rules take what the file says where they say nothing, and the tests are packed. False: no memory.
 * The policy is not bound to a process after it.
 */
bool policy_finish(struct policy *policy);

#endif
