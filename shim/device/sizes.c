/* Resolves sizes of the policy. See sizes.h. */
#include "shim/device/sizes.h"

uint64_t sizes_resolve(struct policy_size size, uint64_t whole, uint64_t automatic)
{
	if (size.kind == POLICY_SIZE_BYTES)
		return size.value;
	if (size.kind == POLICY_SIZE_PERCENT)
		return (uint64_t)((unsigned __int128)whole * size.value / 10000);
	return automatic;
}
