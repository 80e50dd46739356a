/*
 * The trace of a program whose allocator reports what is alive (torch_traced.c): every birth and death is in it, once, in
 * the order in which they happened among submissions, whether or not anything has spilled by then.
 */
#include "test/preload/run.h"
#include "tools/trace/trace_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/torch_trace_test.XXXXXX", path[64], setting[96];
static struct trace trace;
static struct outcome outcome;

static const char *mode(void)
{
	return getenv("SPILL_MODE") ? getenv("SPILL_MODE") : "static";
}

static bool moves(void)
{
	return strcmp(mode(), "static") != 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	trace_free(&trace);
	run_free(&outcome);
	outcome = (struct outcome){0};
	return 0;
}

/* The program keeps 52 MiB. */
static void record(unsigned budget_mib, const char *steps)
{
	char set[200];

	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%uMiB,host.budget=256MiB,report.summary=no", mode(),
		 budget_mib);
	outcome =
	    RUN(SET(setting, set, "SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB"), TORCH_TRACED, steps);
	if (outcome.status || trace_read_file(path, &trace) || trace.damaged || trace.n_lost)
		fail_msg("status %d, %s, %llu lost\n%s\n%s", outcome.status, trace.problem,
			 (unsigned long long)trace.n_lost, outcome.out, outcome.err);
}

static unsigned long told(const char *word)
{
	const char *line = strstr(outcome.out, word);

	if (!line)
		fail_msg("no '%s' in\n%s\n%s", word, outcome.out, outcome.err);
	return strtoul(line + strlen(word), NULL, 10);
}

static bool is_birth_of(const struct trace_event *event, const struct trace_event *of)
{
	return event->kind == TRACE_born && event->born.address == of->died.address &&
	       event->born.bytes == of->died.bytes;
}

/* Since its birth a submission has named it. */
static void check_death(size_t row)
{
	const struct trace_event *died = &trace.rows[row].event;
	bool named = false;

	while (row-- > 0) {
		const struct trace_event *event = &trace.rows[row].event;

		if (is_birth_of(event, died)) {
			assert_true(named);
			return;
		}
		assert_false(event->kind == TRACE_died && event->died.address == died->died.address);
		for (uint64_t i = 0; event->kind == TRACE_submit && i < event->submit.n; i++)
			named |= event->named[i].address == died->died.address;
	}
	fail_msg("what died at %#llx was never born", (unsigned long long)died->died.address);
}

static void check_all(void)
{
	unsigned long births = 0, deaths = 0, kept = 0;

	for (size_t i = 0; i < trace.n_rows; i++) {
		const struct trace_event *event = &trace.rows[i].event;
		uint32_t block;

		switch (event->kind) {
		case TRACE_kept:
			block = trace_block_at(&trace, event->kept.address, event->time);
			assert_true(block != TRACE_NONE && trace.blocks[block].bytes == event->kept.bytes);
			kept += event->kept.bytes;
			break;
		case TRACE_born:
			block = trace_block_at(&trace, event->born.address, event->time);
			assert_true(block != TRACE_NONE && event->born.device == 0);
			births++;
			break;
		case TRACE_died:
			check_death(i);
			deaths++;
			break;
		case TRACE_doubted:
			fail_msg("row %zu: doubted", i);
		}
	}
	assert_int_equal(births, told("births "));
	assert_int_equal(deaths, told("deaths "));
	assert_int_equal(kept, told("kept "));
}

static void births_and_deaths_are_there_though_nothing_spills(void **state)
{
	(void)state;
	record(128, "5");
	check_all();
}

static void they_are_there_while_memory_moves(void **state)
{
	uint64_t uncopied = 0, bytes = 0;

	(void)state;
	record(32, "60");
	check_all();
	for (size_t i = 0; i < trace.n_rows; i++) {
		bytes += trace.rows[i].event.kind == TRACE_move ? trace.rows[i].event.move.bytes : 0;
		uncopied += trace.rows[i].event.kind == TRACE_moved ? trace.rows[i].event.moved.uncopied : 0;
	}
	/* What the steps compute is dead between them: of the 52 MiB, 16 hold weights. */
	assert_true(moves() == (uncopied > 0) && uncopied <= bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(births_and_deaths_are_there_though_nothing_spills, teardown),
	    cmocka_unit_test_teardown(they_are_there_while_memory_moves, teardown),
	};
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/t", folder);
	snprintf(setting, sizeof(setting), "SPILLWAY_TRACE=%s", path);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
