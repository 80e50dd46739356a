/*
 * Bodies of spillway.h. They are no hooks: nobody stands behind them, so they have no row in hooks.def.
 */
#define SPILLWAY_API __attribute__((visibility("default")))
#include "shim/spillway.h"

#include "shim/control.h"

#include <errno.h>

static int negative_errno(enum sw_status status)
{
	switch (status) {
	case SW_OK:
		return 0;
	case SW_NO_MEMORY:
	case SW_NO_HOST_MEMORY:
		return -ENOMEM;
	case SW_NOT_SUPPORTED:
		return -ENOTSUP;
	case SW_BUSY:
		return -EBUSY;
	case SW_INVALID:
	case SW_CONTEXT:
		return -EINVAL;
	default:
		return -EIO;
	}
}

int spillway_suspend(void)
{
	int saved = errno, result = negative_errno(control_suspend(NULL));

	errno = saved;
	return result;
}

int spillway_resume(void)
{
	int saved = errno, result = negative_errno(control_resume(NULL));

	errno = saved;
	return result;
}

const char *spillway_version(void)
{
	return SPILLWAY_VERSION;
}
