// SPDX-License-Identifier: Apache-2.0
/*
 * A suspended program: when what is on the host is mapped there. Everybody who waits for the device waits for what
 * comes before it is given back.
 */
#include "test/preload/torch_help.h"

/* Is there a call of the first function before the last one of the second, from this byte of the log (SIM_LOG) on? */
static bool comes_before(long from, const char *first, const char *last)
{
	FILE *log = fopen(getenv("SIM_LOG"), "re");
	bool seen = false, before = false;
	char line[256];

	CHECK(log && fseek(log, from, SEEK_SET) == 0);
	while (fgets(line, sizeof(line), log)) {
		seen |= strstr(line, first) != NULL;
		before |= seen && strstr(line, last);
	}
	fclose(log);
	return before;
}

static long log_end(void)
{
	FILE *log = fopen(getenv("SIM_LOG"), "re");

	CHECK(log && fseek(log, 0, SEEK_END) == 0);
	long end = ftell(log);
	fclose(log);
	return end;
}

/* What is alive is mapped on the host when the device's memory has been given back. */
static void mapping_later(void)
{
	torch_begin();
	struct tensor alive = tensor_new(6 * MIB, NULL);

	for (unsigned i = 0; i < 2; i++) {
		for (int tries = 0; tries < 300 && (!tries || !child_on_device(alive.at, alive.bytes)); tries++) {
			tensor_fill(&alive, NULL);
			MUST(cu.cuStreamSynchronize(NULL));
		}
		CHECK(child_on_device(alive.at, alive.bytes));
		long from = log_end();
		own_empty_device();
		/* The first time, aliases are mapped, too. */
		CHECK(!i || !comes_before(from, " cuMemMap ", " cuMemRelease "));
		CHECK(tensor_holds(&alive));
	}
}

TEST(what_is_alive_is_mapped_on_the_host_after_all_is_given_back)
{
	char setting[] = "SIM_LOG=/tmp/suspend_map_test.XXXXXX", *path = setting + sizeof("SIM_LOG=") - 1;
	int file = mkstemp(path);

	assert_true(file >= 0 && close(file) == 0);
	folder_clear();
	assert_int_equal(child_run(SCENE_SETTINGS(runtime, setting), mapping_later), 0);
	assert_int_equal(unlink(path), 0);
}

EACH_TEST(folder_make, folder_remove)
