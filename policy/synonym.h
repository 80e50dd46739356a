/* synonym.h: words that users of CUDA are likely to write for a value. Private to this folder. */
#ifndef POLICY_SYNONYM_H
#define POLICY_SYNONYM_H

#include "policy/keys.h"

/* Returns the value that was meant, or what to write instead of it; NULL if the word is not known. Case is ignored. */
const char *policy_synonym(enum policy_set set, const char *text);

#endif
