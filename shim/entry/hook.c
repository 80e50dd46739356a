#include "shim/entry/hook.h"

/* clang-format off */
static void *const bodies[HOOK_COUNT] = {
#define HOOK(name, params, args) (void *)name,
#include "shim/driver/hooks.def"
};
/* clang-format on */

void *hook_body(int id)
{
	return bodies[id];
}

int hook_find(const void *body)
{
	for (int id = 0; id < HOOK_COUNT; id++)
		if (bodies[id] == body)
			return id;
	return -1;
}
