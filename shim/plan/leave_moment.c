/* When the memory of a process should leave. See leave_moment.h. */
#include "shim/plan/leave_moment.h"

#define NEAR 20 /* a twentieth more than the least is as good: small tensors come and go at the end of a step, too */

void leave_moment_see(struct leave_moment *moment, uint64_t now, uint64_t alive)
{
	if (!moment->began) {
		moment->least[0] = moment->least[1] = UINT64_MAX;
		moment->began = now;
	} else if (now - moment->began >= LEAVE_MOMENT_WINDOW) {
		moment->least[1] = moment->least[0];
		moment->least[0] = UINT64_MAX;
		moment->began = now;
	}
	if (alive < moment->least[0])
		moment->least[0] = alive;
}

bool leave_moment_is_now(struct leave_moment *moment, uint64_t now, uint64_t alive, uint64_t bound)
{
	uint64_t least = moment->least[0] < moment->least[1] ? moment->least[0] : moment->least[1];

	if (!moment->due)
		moment->due = now;
	return !moment->began || alive <= least || alive - least <= least / NEAR || now - moment->due >= bound;
}

void leave_moment_off(struct leave_moment *moment)
{
	moment->due = 0;
}
