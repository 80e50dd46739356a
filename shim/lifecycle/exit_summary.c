/*
 * The summary in the log at the end of the process.
 */
#include "shim/lifecycle/exit_summary.h"
#include "shim/lifecycle/lifecycle_state.h"
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/base/log.h"
#include "shim/lifecycle/sampler.h"
#include "shim/process/process.h"
#include "shim/serve/alloc_decide.h"
#include "shim/stats/stats.h"
#include "shim/stats/summary.h"
#include "shim/trace/trace.h"

/* How long the summary waits for a slow reader of standard error, so that the program still ends. */
#define SUMMARY_MS 1000

void exit_summary_print(void)
{
	struct summary *const summary = &lifecycle_state.summary.text;
	bool full = process_settings()->report == POLICY_REPORT_FULL;
	char names[200];

	/* At exit no lock may be waited for: the thread that held it may have ended. */
	if (!lock_try(&lifecycle_state.summary.lock))
		return;
	sampler_sample();
	if (full)
		summary_make(&stats, clock_now(), *trace_path() ? trace_path() : NULL, summary);
	else
		summary_make_short(&stats, clock_now(), summary);
	for (unsigned i = 0; i < summary->n; i++)
		log_line("%s", summary->line[i].text);
	if (process_settings()->observe)
		alloc_decide_print();
	if (full && stats_get(STAT_unknown_names))
		log_line("  %llu entry points asked for that we do not know: %s",
			 (unsigned long long)stats_get(STAT_unknown_names), stats_unknown_names(names, sizeof(names)));
	lock_drop(&lifecycle_state.summary.lock);
}

void exit_summary_end(void)
{
	if (process_settings()->report == POLICY_REPORT_NONE ||
	    stats_get(STAT_allocations) + stats_get(STAT_refused) == 0)
		return;
	log_patience(SUMMARY_MS);
	exit_summary_print();
}
