/* What the log says about turns. See turn_say.h. */
#include "shim/lifecycle/turn_say.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/lifecycle/turn_account.h"
#include "shim/submit/completion.h"
#include "shim/submit/kernel_params.h"

#include <stdio.h>

void turn_say_refused(const struct gpu_account_view *view, const struct gpu_turn_view *turns)
{
	uint32_t who = view->n > 1 ? gpu_turn_in_the_way(turns) : GPU_TURN_NOBODY;
	char bytes[32];

	if (who == GPU_TURN_NOBODY)
		return;
	const struct gpu_account_member *member = &view->members[turn_account_member(who)];
	uint64_t stays = gpu_turn_takes_part(turns, who) ? turns->members[who].stuck : turns->members[who].may_have;
	log_once("share: there are no turns: %s of process %llu cannot leave the GPU, which leaves others too "
		 "little of device.total",
		 log_bytes(bytes, sizeof(bytes), stays), (unsigned long long)member->pid);
}

void turn_say_turns(const struct device *device, const struct gpu_account_view *view)
{
	char needs[32], total[32], who[32] = "they";
	uint64_t sum = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < view->n; i++) {
		sum += view->members[i].needs;
		n += view->members[i].claim.kind != GPU_TURN_OFF;
	}
	if (n < view->n)
		snprintf(who, sizeof(who), "%u of them", n);
	log_once("share: %u processes need %s of device %d, and have %s together (device.total): %s take turns",
		 view->n, log_bytes(needs, sizeof(needs), sum), device->ordinal,
		 log_bytes(total, sizeof(total), view->total), who);
}

void turn_say_clock(const struct device *device)
{
	log_once("share: this process takes no turns on device %d: its clock is not that of the others there, "
		 "which are in another time namespace",
		 device->ordinal);
}

/* Writes what was submitted last, for a message. */
static const char *latest_work(char name[KERNEL_PARAMS_NAME])
{
	struct completion_what what;
	unsigned row;

	if (!recent_submissions_look(completion_newest(), &what, &row))
		return "not known";
	return kernel_params_name(what.function, name) ? name : real_name((int)what.id);
}

void turn_say_not_gone(enum sw_status status)
{
	char name[KERNEL_PARAMS_NAME];

	if (status == SW_BUSY)
		log_once("share: the GPU does not come to an end with what this process has submitted (the latest: "
			 "%s), or a "
			 "stream capture is open: it keeps its turn, and is asked again",
			 latest_work(name));
	else
		log_once("share: the memory of this process cannot leave the GPU (%s): it keeps its turn, and is asked "
			 "again",
			 status_text(status));
}
