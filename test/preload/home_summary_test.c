// SPDX-License-Identifier: Apache-2.0
/*
 * What a program that ends is told about memory outside the heap, and what is said about a device that lacks something:
 * once, and with the name of what it lacks.
 */
#include "test/preload/run.h"
#include "test/test.h"

#define BUDGETS "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,report.summary=full"

#define ENDS(act, ...) RUN(SET("SIM_MEMORY=64MiB", __VA_ARGS__), ACTOR, act)

/* The actor has four blocks of 12 MiB, one of 100 bytes, and ends with them. */
TEST(the_summary_counts_managed_memory)
{
	SAYS(ENDS("ends_from_main", "SPILLWAY_POLICY=managed", BUDGETS), 7, "", 0, {1, "policy managed (built in)"},
	     {1, "  managed    48.0 MiB live at exit,    48.0 MiB at most"},
	     {1, "  5 allocations, 0 frees, 0 refused, 0 left to the driver"}, {1, "  nothing was spilled"},
	     {1, "page faults"}, {1 + 3 + 7, ""});
}

TEST(the_summary_counts_pages_of_the_process)
{
	const char *const reached[] = {"SIM_PAGEABLE=1", "SIM_PAGEABLE=0"};

	for (int i = 0; i < 2; i++)
		SAYS(ENDS("ends_from_main", reached[i], "SPILLWAY_POLICY=system", BUDGETS), 7, "", 0,
		     {1, "  system     48.0 MiB live at exit,    48.0 MiB at most"},
		     {1, "  5 allocations, 0 frees, 0 refused, 0 left to the driver"}, {1, "page faults"},
		     {1 + 3 + 7, ""});
}

/* It is what the policy wants: neither the budgets nor the program need to change because of it. */
TEST(what_spill_limit_refuses_is_said_once_and_counted)
{
	SAYS(ENDS("asks_beyond_the_limit", BUDGETS ",spill.limit=25%"), 7, "", 0,
	     {1, "out of memory by spill.limit: 12.0 MiB asked for; device budget "}, {1, "out of memory by"},
	     {1, "  refused by spill.limit: 3 allocations, 36.0 MiB"}, {0, "what to raise"});
}

TEST(frees_after_the_end_do_no_harm)
{
	SAYS(ENDS("frees_in_a_destructor", "SPILLWAY_POLICY=managed", BUDGETS), 7, "", 0, {0});
	SAYS(ENDS("frees_in_a_destructor", "SPILLWAY_POLICY=system", BUDGETS), 7, "", 0, {0});
}

TEST(what_the_device_lacks_is_said_once)
{
	SAYS(ENDS("ends_from_main", "SIM_CONCURRENT_MANAGED=0", "SPILLWAY_POLICY=managed", BUDGETS), 7, "", 0,
	     {1, "concurrentManagedAccess is 0"}, {0, "  managed "});
	SAYS(ENDS("ends_from_main", "SPILLWAY_POLICY=system", BUDGETS ",system.register=no"), 7, "", 0,
	     {1, "pageableMemoryAccess is 0"}, {1, "  managed    48.0 MiB live at exit"});
	SAYS(ENDS("ends_from_main", "SIM_SAME_POINTER=0", "SPILLWAY_POLICY=system", BUDGETS), 7, "", 0,
	     {1, "registered memory has another address on device 0"});
}
