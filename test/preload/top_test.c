// SPDX-License-Identifier: Apache-2.0
/*
 * A program that spills, as `spillway top` and `spillway prom` see it from outside: the numbers they print are those of
 * the program's own page, and of what it did.
 */
#include "test/preload/figures_help.h"
#include "test/preload/tool.h"
#include "test/test.h"

#include <inttypes.h>
#include <spawn.h>
#include <sys/stat.h>

#define N_ROUNDS 4

extern char **environ;

static char output[128];

static int begin(void **state)
{
	int error = folder_make(state);

	snprintf(output, sizeof(output), "%s/figures.prom", folder);
	return error;
}

static int end(void **state)
{
	unlink(output);
	return folder_remove(state);
}

EACH_TEST(begin, end)

/* What `spillway top` shows of this process. */
static const char *top(void)
{
	int status;
	const char *text = tool(&status, "top --once --json %d", (int)getpid());

	CHECK(status == 0);
	return text;
}

static bool writes_the_file(void)
{
	return tool_tells("", "prom '%s'", output);
}

/* The number behind "name": in the part of the text that begins with part; UINT64_MAX: null. */
static uint64_t number(const char *text, const char *part, const char *name)
{
	char wanted[96];
	const char *at = strstr(text, part);

	CHECK(at);
	snprintf(wanted, sizeof(wanted), "\"%s\": ", name);
	at = strstr(at, wanted);
	CHECK(at);
	at += strlen(wanted);
	return strncmp(at, "null", 4) == 0 ? UINT64_MAX : strtoull(at, NULL, 10);
}

static bool has_moved(const struct stats_page *page)
{
	return page->counter[STAT_moved_in_bytes] && page->counter[STAT_moved_out_bytes];
}

/* moves: go on until something has; the library takes some milliseconds to be sure that it pays. */
static void work_until(bool moves)
{
	driver_start(0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		blocks[i] = child_alloc(BLOCK);
	const struct stats_page *page = page_there();
	for (unsigned round = 0; round < N_ROUNDS || (moves && !has_moved(page) && round < 20000); round++) {
		for (unsigned i = 0; i < N_BLOCKS; i++)
			MUST(driver_fill(NULL, blocks[i], round + i, N_WORDS));
		MUST(cu.cuCtxSynchronize());
	}
	/* What is not there cannot move: from here on nothing of the figures that are compared changes. */
	for (unsigned i = 1; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(blocks[i]));
}

CHILD_TEST(a_program_that_spills_is_seen_with_its_own_numbers, SETTINGS(""))
{
	static const struct {
		const char *name;
		enum stats_counter counter;
	} same[] = {
#define STAT(name, unit, text) {#name, STAT_##name},
#include "shim/stats/stats.def"
	};
	char self[32];

	work_until(false);
	const struct stats_page *page = page_there();
	const char *text = top();
	snprintf(self, sizeof(self), "{\"pid\": %d,", (int)getpid());
	CHECK(strstr(text, self) && strstr(text, "\"state\": \"running\"") && strstr(text, "top_test"));
	CHECK(number(text, "\"counters\"", "allocations") == N_BLOCKS);
	CHECK(number(text, "\"counters\"", "frees") == N_BLOCKS - 1);
	CHECK(number(text, "\"counters\"", "spilled_bytes") > 0);
	for (unsigned i = 0; i < sizeof(same) / sizeof(*same); i++) {
		/* These grow with time alone, or as the heap tidies up. */
		if (!strncmp(same[i].name, "over", 4) || !strncmp(same[i].name, "host_time", 9) ||
		    !strncmp(same[i].name, "chunks", 6) || !strcmp(same[i].name, "maps"))
			continue;
		CHECK(number(text, "\"counters\"", same[i].name) == page->counter[same[i].counter]);
	}
	CHECK(number(text, "\"devices\": [{\"number\": 0, \"name\": \"", "total") == 128 * MIB);
	CHECK(number(strstr(text, "\"host_budget\""), "\"devices\"", "budget") == 32 * MIB);
	CHECK(number(strstr(text, "\"host_budget\""), "\"devices\"", "gpu_faults") == UINT64_MAX);
	CHECK(number(text, "\"name\": \"(no rule)\"", "live") == BLOCK);
	CHECK(number(text, "\"name\": \"(no rule)\"", "peak") == N_BLOCKS * BLOCK);
}

/* ---- several devices ---- */

/* What is on its way may still arrive: what is read first is no more than what is read later. */
static void check_order(uint64_t before, uint64_t shown, uint64_t after)
{
	CHECK(before > 0 && before <= shown && shown <= after);
}

static void lending_is_seen(void)
{
	const char *kind = getenv("SIM_PCIE") ? "\"kind\": \"pcie\"" : "\"kind\": \"nvlink\"";
	uint64_t moved[2];

	work_until(true);
	const struct stats_page *page = page_there();
	const struct stats_link *link = &page->device[0].link[1];
	/* All that moves does so between the two devices; the link's figure is counted first. */
	moved[LINK_IN] = page->counter[STAT_moved_in_bytes];
	moved[LINK_OUT] = page->counter[STAT_moved_out_bytes];
	const char *text = top();
	const char *device = strstr(strstr(text, "\"host_budget\""), "\"devices\""), *second;
	CHECK(device && (second = strstr(device, "{\"number\": 1, ")));
	const char *links = strstr(device, "\"links\": [{\"lender\": 1, ");
	CHECK(links && links < second && strstr(links, kind) && strstr(links, kind) < second);
	CHECK(!strncmp(strstr(second, "\"links\": "), "\"links\": []", 11));
	for (unsigned i = 0; i < LINK_COUNT; i++)
		check_order(moved[i], number(links, "{", i == LINK_IN ? "in_bytes" : "out_bytes"), link->figure[i]);
	check_order(16 * MIB, number(second, "{", "most_lent"), page->device[1].most_lent);
	CHECK(number(device, "{", "most_lent") == 0);
}

#define LENDING                                                                                                        \
	"SIM_MEMORY=128MiB", "SIM_DEVICES=2", runtime,                                                                 \
	    "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no,spill.peers=1,spill.peer_budget="   \
	    "64MiB"

TEST(what_moves_over_which_link_is_seen)
{
	assert_int_equal(child_run(((const char *const[]){LENDING, NULL}), lending_is_seen), 0);
}

TEST(a_link_without_native_atomics_is_called_pcie)
{
	assert_int_equal(child_run(((const char *const[]){LENDING, "SIM_PCIE=all", NULL}), lending_is_seen), 0);
}

CHILD_TEST(a_device_that_is_not_reached_has_no_link, ((const char *const[]){LENDING, "SIM_PEERS=none", NULL}))
{
	work_until(false);
	const struct stats_page *page = page_there();
	const char *text = top();
	CHECK(page->device[0].link[1].kind == STATS_LINK_NONE && !page->device[1].most_lent);
	CHECK(strstr(text, "\"links\": [{\"lender\": 1, \"kind\": \"none\", \"figures\": {\"in_bytes\": 0, "));
}

/* ---- Prometheus ---- */

static char *file_text(void)
{
	static char text[1 << 18];
	int fd = open(output, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	CHECK(n > 0);
	close(fd);
	text[n] = 0;
	return text;
}

CHILD_TEST(the_file_for_prometheus_is_made_anew_each_time, SETTINGS(""))
{
	struct stat status;
	char sample[160];

	work_until(false);
	const struct stats_page *page = page_there();
	CHECK(writes_the_file());
	CHECK(lstat(output, &status) == 0 && (status.st_mode & 0777) == 0644);
	snprintf(sample, sizeof(sample),
		 "\nspillway_moved_in_bytes_total{id=\"%016" PRIx64
		 "\",uid=\"%u\",pid=\"%d\",command=\"top_test\"} %" PRIu64 "\n",
		 page->identity, (unsigned)geteuid(), (int)getpid(), (uint64_t)page->counter[STAT_moved_in_bytes]);
	CHECK(strstr(file_text(), sample));
	/* Again, over the one that is there. */
	ino_t first = status.st_ino;
	CHECK(writes_the_file());
	CHECK(lstat(output, &status) == 0 && status.st_ino != first);
}

CHILD_TEST(in_a_loop_the_file_goes_with_its_writer, SETTINGS(""))
{
	struct stat status;
	pid_t child;

	work_until(false);
	char *argv[] = {TOOL, "prom", "--interval", "0.1", output, NULL};
	CHECK(posix_spawn(&child, TOOL, NULL, NULL, argv, environ) == 0);
	ino_t first = 0;
	/* Until it has been written twice. */
	for (;;) {
		if (lstat(output, &status) == 0) {
			if (first && status.st_ino != first)
				break;
			first = status.st_ino;
		}
		usleep(1000);
	}
	kill(child, SIGTERM);
	int ended;
	CHECK(waitpid(child, &ended, 0) == child && ended == 0);
	CHECK(lstat(output, &status) != 0);
}
