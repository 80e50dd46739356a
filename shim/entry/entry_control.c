/*
 * Functions of spillway.h that concern the whole process. They are not hooks: they replace no function of the driver,
 * so they have no row in hooks.def.
 */
#define SPILLWAY_API __attribute__((visibility("default")))
#include "shim/spillway.h"

#include "shim/lifecycle/control_request.h"
#include "shim/lifecycle/sampler.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"

#include <errno.h>

int spillway_suspend(void)
{
	int saved = errno, result = status_errno(control_suspend(NULL));

	errno = saved;
	return result;
}

int spillway_resume(void)
{
	int saved = errno, result = status_errno(control_resume(NULL));

	errno = saved;
	return result;
}

const char *spillway_version(void)
{
	return SPILLWAY_VERSION;
}

int spillway_checkpoint_stats(void)
{
	int saved = errno;

	if (process_stage() != STAGE_RUNNING || !stats_get(STAT_allocations))
		return -ENOTSUP;
	exit_summary_print();
	errno = saved;
	return 0;
}
