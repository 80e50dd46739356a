/*
 * Writes a policy file with the budget that was found.
 */
#include "tools/common/units.h"
#include "tools/replay/replay_sweep.h"

#include <stdio.h>
#include <string.h>

#include "policy/text.h"
#include "tools/common/new_file.h"
#include "tools/common/policy_file.h"
#include "tools/common/tool.h"

static bool put_policy(FILE *file, const struct replay_sweep *sweep)
{
	const struct replay_request *request = sweep->request;
	const struct replay_answer *best = sweep->best;
	char name[128], peak[UNITS_TEXT], held[UNITS_TEXT], host[UNITS_TEXT], budget[POLICY_SIZE_BYTES_TEXT];
	const char *slash = strrchr(request->path, '/');
	bool ok = true;

	fprintf(file,
		"# Written by `spillway replay` for %s, which asks for %s at most and takes %s of device memory.\n"
		"# With this budget a step is predicted to take %.1f ms; it takes %.1f ms with all of it in device "
		"memory.\n"
		"# Up to %s of host memory is taken.\n"
		"version: 1\n",
		policy_printable(slash ? slash + 1 : request->path, name, sizeof(name)), units_bytes(sweep->peak, peak),
		units_bytes(sweep->held, held), best->run.step_ms, sweep->full_ms,
		units_bytes(best->run.peak_host, host));
	if (request->policy_name && *request->policy_name)
		ok = policy_file_put_include(file, request->policy_name);
	fprintf(file, "device.budget: %s\nspill.mode: %s\n", policy_size_format(best->budget, budget),
		policy_spill_name(request->mode));
	return ok;
}

int replay_write_policy(const struct replay_sweep *sweep)
{
	const char *path = sweep->request->write;

	if (!sweep->best) {
		tool_say("no policy is written: %s", sweep->full_ms > 0
							 ? "no budget that was tried is within 10 % of full speed"
							 : "no time of a step is known; say --step-time");
		return TOOL_BROKEN;
	}
	FILE *file = new_file_create(path);
	if (!file)
		return TOOL_BROKEN;
	bool named = put_policy(file, sweep);
	if (!named)
		tool_say(
		    "the name of the policy that was replayed has characters that no policy can include; rename it");
	if (new_file_close(file, path, named))
		return TOOL_BROKEN;
	if (sweep->request->set)
		tool_say("what --set says is not in the policy that was written");
	return policy_file_check(path);
}
