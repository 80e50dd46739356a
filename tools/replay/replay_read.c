/*
 * Determines the format of a file and calls its reader.
 */
#include "tools/replay/replay_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "tools/trace/trace_read.h"

static int read_trace(struct replay_model *model, const char *path)
{
	struct trace trace;
	int status = trace_read_file(path, &trace);

	if (status) {
		replay_wrong(model, "%s", trace.problem);
	} else {
		status = replay_model_take(model, &trace);
		if (trace.damaged && status)
			replay_wrong(model, "%s", trace.problem);
		else if (trace.cut && status == -EINVAL)
			replay_wrong(model, "it is cut off before the first allocation");
		else if (trace.damaged)
			snprintf(model->broken, sizeof(model->broken), "is damaged, %s", trace.problem);
		else if (trace.cut)
			snprintf(model->broken, sizeof(model->broken), "is cut off at its end");
	}
	trace_free(&trace);
	return status;
}

int replay_model_read(struct replay_model *model, const char *path)
{
	struct replay_lines lines;
	int status;

	*model = (struct replay_model){.rank = POLICY_NO_RANK, .mode = POLICY_SPILL_COUNT};
	status = lines_open(&lines, path);
	if (status) {
		replay_wrong(model, "%s", strerror(-status));
		return status;
	}
	const char *line = lines_peek(&lines);
	if (strncmp(lines.line, TRACE_MAGIC, strlen(TRACE_MAGIC) - 1) == 0) {
		lines_close(&lines);
		return read_trace(model, path);
	}
	if ((unsigned char)lines.line[0] == 0x80) {
		lines_close(&lines);
		return replay_wrong(model, "a pickle is not read here; make a trace of it with torch_snapshot.py");
	}
	if (line && rmm_is_head(line))
		status = rmm_read(model, &lines);
	else if (line && text_is_head(line))
		status = text_read(model, &lines);
	else if (!line && !lines.failed)
		status = replay_wrong(model, "the file is empty");
	else if (!lines.failed)
		status = replay_wrong(
		    model,
		    "this is no trace of Spillway's, and no log of RMM's; `spillway run --trace FILE` makes one");
	if (lines.failed)
		status = replay_wrong(model, "it cannot be read to its end: %s", lines.why);
	lines_close(&lines);
	return status ? status : replay_model_finish(model);
}
