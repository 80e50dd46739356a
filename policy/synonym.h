/*
 * synonym.h: what people who come from CUDA write for a value. Private to this folder.
 */
#ifndef POLICY_SYNONYM_H
#define POLICY_SYNONYM_H

#include "policy/keys.h"

/* The value that was meant, or what to write instead of it; NULL: the word is not known. Case does not count. */
const char *policy_synonym(enum policy_set set, const char *text);

#endif
