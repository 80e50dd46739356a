// SPDX-License-Identifier: Apache-2.0
/*
 * trace_help.h: what the tests of the trace's reader share: a file in the making and what was read of it, new for each
 * test.
 */
#ifndef UNIT_TRACE_HELP_H
#define UNIT_TRACE_HELP_H

#include "test/unit/temporary.h"
#include "test/unit/trace_file.h"
#include "tools/trace/trace_read.h"

#define HEAD_TEXT "version=1\nstart=1000\nclock=50\ncommand=a b=c\npolicy=\n"

static struct trace_file file;
static struct trace trace;

static inline int setup(void **state)
{
	file = file_new(HEAD_TEXT);
	return 0;
}

static inline int teardown(void **state)
{
	file_free(&file);
	trace_free(&trace);
	return 0;
}

static inline int read_again(void)
{
	trace_free(&trace);
	return trace_read_file(temporary, &trace);
}

static inline int save_and_read(void)
{
	file_save(&file, temporary);
	return read_again();
}

#endif
