/* Resolves sizes of the policy. See sizes.h. */
#include "shim/device/sizes.h"
#include "shim/base/log.h"
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
	return process_settings()->limits.most[limit].kind != POLICY_SIZE_AUTO;
}

uint64_t sizes_within(enum policy_limit limit, uint64_t bytes, uint64_t whole)
{
	uint64_t most = sizes_resolve(process_settings()->limits.most[limit], whole, UINT64_MAX);

	return bytes < most ? bytes : most;
}

uint64_t sizes_device_budget(struct policy_size size, uint64_t whole, uint64_t automatic)
{
	uint64_t limit = sizes_within(POLICY_LIMIT_DEVICE_BUDGET, sizes_resolve(size, whole, automatic), whole);
	char asked[32], has[32];

	if (limit <= whole)
		return limit;
	log_once("device.budget: %s is more than the GPU has (%s): the budget is what it has",
		 log_bytes(asked, sizeof(asked), limit), log_bytes(has, sizeof(has), whole));
	return whole;
}

uint64_t sizes_host_total(const struct policy *policy, const struct hostmem *memory)
{
	uint64_t total =
	    sizes_resolve(policy_settings(policy)->host_total, memory->total, hostmem_default_budget(memory));

	return sizes_within(POLICY_LIMIT_HOST_TOTAL, total, memory->total);
}

bool sizes_gives_host_total(const struct policy *policy)
{
	return policy_settings(policy)->host_total.kind != POLICY_SIZE_AUTO || sizes_limited(POLICY_LIMIT_HOST_TOTAL);
}

/* A size set for each process is used alone, unless the policy also sets the total of all processes. */
bool sizes_shares_host(const struct policy *policy)
{
	bool has_own = policy_settings(policy)->host_budget.kind != POLICY_SIZE_AUTO;

	return sizes_limited(POLICY_LIMIT_HOST_TOTAL) || (policy_settings(policy)->host_share == POLICY_SHARE_USER &&
							  (sizes_gives_host_total(policy) || !has_own));
}

/* Of the device: what is left for contexts, libraries, and what programs take beside the heap. */
#define TOTAL_SPARES 10

uint64_t sizes_device_total(const struct policy *policy, uint64_t whole, uint64_t mine)
{
	struct policy_size size = policy_settings(policy)->device_total;
	/* If others that share have the rest, the total of their account holds, which is not known here. */
	uint64_t spare = whole / TOTAL_SPARES, automatic = mine > 2 * spare ? mine - spare : spare;

	if (size.kind == POLICY_SIZE_AUTO &&
	    (policy_settings(policy)->turns.mode == POLICY_TURNS_OFF || !policy_settings(policy)->control ||
	     policy_settings(policy)->spill < POLICY_SPILL_EXACT))
		return 0;
	return sizes_within(POLICY_LIMIT_DEVICE_TOTAL, sizes_resolve(size, whole, automatic), whole);
}
