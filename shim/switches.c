#include "shim/switches.h"
#include "shim/enter.h"

struct switches switches;

bool serve_async_to_heap(void)
{
	return switches.async_to_heap || policy_async_use(life_policy()) == POLICY_USE_HEAP;
}

bool serve_vmm_may_spill(void)
{
	return switches.vmm_may_spill;
}
