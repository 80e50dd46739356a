/*
 * sizes.h: sizes of the policy in bytes.
 */
#ifndef SPILLWAY_SIZES_H
#define SPILLWAY_SIZES_H

#include "policy/policy.h"

/* Resolves a size of the policy: absolute, a percentage of `whole`, or `automatic`. */
uint64_t sizes_resolve(struct policy_size size, uint64_t whole, uint64_t automatic);

#endif
