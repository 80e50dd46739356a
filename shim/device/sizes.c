/* Resolves sizes of the policy. See sizes.h. */
#include "shim/device/sizes.h"
#include "shim/process/process.h"

uint64_t sizes_resolve(struct policy_size size, uint64_t whole, uint64_t automatic)
{
	if (size.kind == POLICY_SIZE_BYTES)
		return size.value;
	if (size.kind == POLICY_SIZE_PERCENT)
		return (uint64_t)((unsigned __int128)whole * size.value / 10000);
	return automatic;
}

bool sizes_limited(enum policy_limit limit)
{
	return policy_limit(process_policy(), limit).kind != POLICY_SIZE_AUTO;
}

uint64_t sizes_within(enum policy_limit limit, uint64_t bytes, uint64_t whole)
{
	uint64_t most = sizes_resolve(policy_limit(process_policy(), limit), whole, UINT64_MAX);

	return bytes < most ? bytes : most;
}
