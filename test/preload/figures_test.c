/*
 * The figures of a process as others see them: one file in the user's private folder, with what the program did in it;
 * there after a kill, gone after an exit, and none of a child's business.
 */
#include "shim/rundir.h"
#include "shim/spillway.h"
#include "shim/stats_page.h"
#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "tools/digest.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define N_BLOCKS 12
#define BLOCK    (4 * MIB)
#define N_WORDS  (BLOCK / 4)

#define SETTINGS(more)                                                                                                 \
	((const char *const[]){"SIM_MEMORY=128MiB", runtime,                                                           \
			       "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no" more, NULL})

/* The only page there is, to be read alone. */
static const struct stats_page *page_there(void)
{
	struct stat status;
	char path[256];

	CHECK(folder_files(STATS_TAIL, path) == 1);
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &status) == 0 && (status.st_mode & 0777) == 0600);
	CHECK((size_t)status.st_size == sizeof(struct stats_page));
	const struct stats_page *page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(page != MAP_FAILED);
	close(fd);
	CHECK(page->bytes == sizeof(*page) && page->version == STATS_VERSION && page->magic == STATS_MAGIC);
	return page;
}

static uint64_t sum_of(const struct stats_page *page, enum figure figure)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_SITES; i++)
		sum += page->site[i].figures.figure[figure];
	return sum;
}

static uint64_t measured(const struct stats_page *page, enum histogram histogram)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		sum += page->histogram[histogram][i];
	return sum;
}

static CUdeviceptr blocks[N_BLOCKS];

static void work(void)
{
	driver_start(0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		blocks[i] = child_alloc(BLOCK);
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < N_BLOCKS; i++)
			MUST(driver_fill(NULL, blocks[i], round + i, N_WORDS));
	MUST(cu.cuCtxSynchronize());
}

/* What every table must agree on, whatever has moved. */
static void check_sums(const struct stats_page *page)
{
	static const struct {
		enum figure figure;
		enum stats_counter counter;
	} same[] = {
	    {FIGURE_moves_in, STAT_moves_in},
	    {FIGURE_moves_out, STAT_moves_out},
	    {FIGURE_moved_in_bytes, STAT_moved_in_bytes},
	    {FIGURE_moved_out_bytes, STAT_moved_out_bytes},
	    {FIGURE_refetches, STAT_refetches},
	    {FIGURE_allocations, STAT_allocations},
	    {FIGURE_frees, STAT_frees},
	};

	for (unsigned i = 0; i < sizeof(same) / sizeof(*same); i++) {
		uint64_t counter = page->counter[same[i].counter];

		CHECK(sum_of(page, same[i].figure) == counter);
		CHECK(page->device[0].figures.figure[same[i].figure] == counter);
		CHECK(page->backend[0].figure[same[i].figure] == counter);
	}
	CHECK(measured(page, HISTOGRAM_move_in_ns) == page->counter[STAT_moves_in]);
	CHECK(measured(page, HISTOGRAM_move_out_ns) == page->counter[STAT_moves_out]);
	CHECK(measured(page, HISTOGRAM_wait_ns) == page->counter[STAT_waits]);
	CHECK(measured(page, HISTOGRAM_gap_ns) == page->counter[STAT_gaps]);
	CHECK(measured(page, HISTOGRAM_map_ns) + measured(page, HISTOGRAM_unmap_ns) == page->counter[STAT_maps]);
	CHECK(page->counter[STAT_foreseen] + page->counter[STAT_unforeseen] <= page->counter[STAT_moves_in]);
}

static int counts(void)
{
	work();
	const struct stats_page *page = page_there();

	CHECK(page->pid == (uint64_t)getpid() && page->state == STATS_RUNNING && !page->end_clock);
	CHECK(!strcmp(page->policy, "heap") && strlen(page->policy_hash) == 16 &&
	      strstr(page->command, "figures_test"));
	CHECK(page->device[0].known && page->device[0].total == 128 * MIB && *page->device[0].name);
	CHECK(page->device[0].budget == 32 * MIB && page->device[0].used <= 32 * MIB && page->device[0].used > 0);
	CHECK(page->host_budget == 128 * MIB && page->host_used >= page->live[PLACE_HOST]);
	CHECK(page->live[PLACE_DEVICE] + page->live[PLACE_HOST] >= N_BLOCKS * BLOCK);
	CHECK(page->device[0].live[PLACE_HOST] == page->live[PLACE_HOST] && page->live[PLACE_HOST] > 0);
	CHECK(page->counter[STAT_allocations] == N_BLOCKS);
	CHECK(page->device[0].figures.figure[FIGURE_live] == N_BLOCKS * BLOCK);
	CHECK(page->rule[0].figures.figure[FIGURE_peak] == N_BLOCKS * BLOCK &&
	      !strcmp(page->rule[0].name, "(no rule)"));
	CHECK(page->device[0].fault[FAULT_GPU] == STATS_NA); /* nothing managed, so nothing was counted */
	CHECK(sum_of(page, FIGURE_spilled_bytes) == page->counter[STAT_spilled_bytes]);
	CHECK(page->counter[STAT_rescues] >= page->counter[STAT_spilled_allocations]);
	check_sums(page);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t clock = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	uint64_t over = stats_page_get(page, STAT_over_us, clock);
	CHECK(over > 0 && over <= (clock - page->start_clock) / 1000);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(blocks[i]));
	CHECK(page->device[0].figures.figure[FIGURE_live] == 0);
	CHECK(sum_of(page, FIGURE_frees) == N_BLOCKS && page->counter[STAT_frees] == N_BLOCKS);
	return 0;
}

static void placed_once_nothing_moves(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=static"), counts), 0);
}

/* Whether memory moves at once depends on how soon the mover gets its turn. */
static void work_until_it_moves(const struct stats_page *page)
{
	time_t end = time(NULL) + 30;

	work();
	while ((!page->counter[STAT_refetches] || !page->counter[STAT_unforeseen]) && time(NULL) < end) {
		for (unsigned i = 0; i < N_BLOCKS; i++)
			MUST(driver_fill(NULL, blocks[i], i, N_WORDS));
		MUST(cu.cuCtxSynchronize());
	}
}

static int counts_moves(void)
{
	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(BLOCK)));
	const struct stats_page *page = page_there();

	work_until_it_moves(page);
	CHECK(page->counter[STAT_moves_in] > 0 && page->counter[STAT_moves_out] > 0);
	CHECK(page->counter[STAT_submissions] > 0 && page->counter[STAT_waits] > 0 && page->counter[STAT_maps] > 0);
	CHECK(page->counter[STAT_unforeseen] > 0 && page->counter[STAT_refetches] > 0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(blocks[i]));
	CHECK(sum_of(page, FIGURE_live) == 0);
	return 0;
}

static int counts_gaps(void)
{
	counts_moves();
	const struct stats_page *page = page_there();

	CHECK(page->counter[STAT_gaps] > 0 && page->counter[STAT_gap_us] > 0 && !strcmp(page->mode, "exact"));
	return 0;
}

/* All of the first blocks leave, and are freed; others are made where they were. None of these comes back. */
static int others_come_for_the_first_time(void)
{
	time_t end = time(NULL) + 30;

	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(BLOCK)));
	const struct stats_page *page = page_there();
	work_until_it_moves(page);
	CHECK(spillway_suspend() == 0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(blocks[i]));
	/* The mover obeys, so it has heard. */
	for (unsigned i = 0; i < 2; i++)
		CHECK(spillway_resume() == 0 && spillway_suspend() == 0);
	CHECK(spillway_resume() == 0);
	uint64_t refetches = page->counter[STAT_refetches], moves = page->counter[STAT_moves_in];
	for (unsigned i = 0; i < N_BLOCKS; i++) {
		blocks[i] = child_alloc(BLOCK);
		fprintf(stderr, " %llx\n", blocks[i]);
	}
	while (!child_on_device(blocks[N_BLOCKS - 1], BLOCK) && time(NULL) < end) {
		MUST(driver_fill(NULL, blocks[N_BLOCKS - 1], 1, N_WORDS));
		MUST(cu.cuCtxSynchronize());
	}
	CHECK(page->counter[STAT_moves_in] > moves && page->counter[STAT_refetches] == refetches);
	return 0;
}

static void what_is_made_where_something_had_left_is_no_refetch(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), others_come_for_the_first_time), 0);
}

static void exact_counts_moves_and_gaps(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=exact"), counts_gaps), 0);
}

static void fast_counts_moves(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(",spill.mode=fast"), counts_moves), 0);
}

static int shows_that_it_is_suspended(void)
{
	work();
	const struct stats_page *page = page_there();

	CHECK(spillway_suspend() == 0 && page->state == STATS_SUSPENDED);
	CHECK(page->live[PLACE_DEVICE] == 0 && page->counter[STAT_moved_out_bytes] > 0);
	CHECK(spillway_resume() == 0 && page->state == STATS_RUNNING);
	return 0;
}

static void a_suspended_process_is_seen_to_be_so(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(), shows_that_it_is_suspended), 0);
}

static int is_killed(void)
{
	work();
	raise(SIGKILL);
	return 0;
}

static void the_last_figures_outlive_a_kill(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(), is_killed), 128 + SIGKILL);
	const struct stats_page *page = page_there();
	assert_int_equal(page->counter[STAT_allocations], N_BLOCKS);
	assert_int_equal(page->state, STATS_RUNNING);
	assert_true(stats_page_get(page, STAT_over_us, page->last_clock) <=
		    (page->last_clock - page->start_clock) / 1000);
}

static int exits(void)
{
	work();
	page_there();
	exit(7);
}

static void an_exit_leaves_nothing(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(), exits), 7);
	assert_int_equal(folder_files(STATS_TAIL, NULL), 0);
}

static int forks(void)
{
	work();
	const struct stats_page *page = page_there();
	uint64_t before = page->counter[STAT_foreign_frees], allocations = page->counter[STAT_allocations];
	CUdeviceptr block;
	int status;

	pid_t child = fork();
	if (!child) {
		cu.cuMemAlloc_v2(&block, BLOCK); /* the driver's answer, whatever it is */
		cu.cuMemFree_v2(blocks[0]);
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	CHECK(page_there()->counter[STAT_allocations] == allocations && page->counter[STAT_foreign_frees] == before);
	child_alloc(BLOCK);
	CHECK(page->counter[STAT_allocations] == allocations + 1);
	return 0;
}

static void a_forked_child_neither_counts_there_nor_removes_it(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(), forks), 0);
}

static int is_in_memory(void)
{
	char path[128];

	work();
	snprintf(path, sizeof(path), "/dev/shm/spillway-%u", (unsigned)geteuid());
	DIR *dir = opendir(path);
	CHECK(dir);
	snprintf(path, sizeof(path), "%d-", (int)getpid());
	bool found = false;
	for (struct dirent *entry; (entry = readdir(dir));)
		found |= !strncmp(entry->d_name, path, strlen(path));
	closedir(dir);
	CHECK(found);
	exit(7);
}

/* Not in /tmp, which may be on a disk. */
/* Where nothing spills, too, each once. */
static int traces(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(BLOCK);
	for (unsigned i = 0; i < 10; i++)
		MUST(driver_fill(NULL, block, i, N_WORDS));
	MUST(cu.cuCtxSynchronize());
	CHECK(page_there()->counter[STAT_submissions] == 10);
	exit(7); /* not _exit(): then there is a file, however busy the machine is */
}

static void submissions_of_a_traced_program_are_counted(void **state)
{
	char trace[128];

	(void)state;
	snprintf(trace, sizeof(trace), "SPILLWAY_TRACE=%s/trace", folder);
	assert_int_equal(child_run((const char *const[]){"SIM_MEMORY=128MiB", runtime, trace,
							 "SPILLWAY_SET=report.summary=no", NULL},
				   traces),
			 7);
	assert_int_equal(unlink(strchr(trace, '/')), 0);
}

static uint64_t *shared;

static int moves_and_says_how_busy_it_was(void)
{
	work();
	CHECK(spillway_suspend() == 0);
	*shared = page_there()->counter[STAT_link_us];
	exit(7);
}

static uint64_t link_busy_us(const char *path)
{
	struct trace trace;
	struct digest digest;

	assert_int_equal(trace_read_file(path, &trace), 0);
	assert_int_equal(trace.n_lost, 0);
	assert_int_equal(digest_make(&trace, NULL, &digest), 0);
	uint64_t ns = digest.link_ns;
	assert_int_equal(digest.moves_open, 0);
	digest_free(&digest);
	trace_free(&trace);
	return ns / 1000;
}

/* The summary has it from the counter, the report from the trace. */
static void counter_and_trace_agree_on_how_busy_the_link_was(void **state)
{
	char trace[128];

	(void)state;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	snprintf(trace, sizeof(trace), "SPILLWAY_TRACE=%s/trace", folder);
	for (unsigned fast = 0; fast < 2; fast++) {
		const char *const settings[] = {
		    "SIM_MEMORY=128MiB", runtime, trace,
		    fast ? "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no,spill.mode=fast"
			 : "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no,spill.mode=exact",
		    NULL};

		assert_int_equal(child_run(settings, moves_and_says_how_busy_it_was), 7);
		uint64_t us = link_busy_us(strchr(trace, '/'));
		assert_true(us > 0);
		/* But for what is rounded off at the end. */
		assert_in_range(*shared, us > 0 ? us - 1 : 0, us + 1);
		assert_int_equal(unlink(strchr(trace, '/')), 0);
	}
	munmap(shared, 4096);
}

/* By a way that no handler of fork() is told of. */
static bool first_frees;

static int clones(void)
{
	int status;

	work();
	const struct stats_page *page = page_there();
	uint64_t allocations = page->counter[STAT_allocations], frees = page->counter[STAT_frees];
	uint64_t live = page->live[PLACE_DEVICE] + page->live[PLACE_HOST];
	pid_t child = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, NULL);
	if (!child) {
		CUdeviceptr block;

		/* The driver's answers, whatever they are. */
		if (first_frees)
			cu.cuMemFree_v2(blocks[0]);
		cu.cuMemAlloc_v2(&block, BLOCK);
		cu.cuMemFree_v2(blocks[1]);
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	CHECK(page->counter[STAT_allocations] == allocations && page->counter[STAT_frees] == frees);
	CHECK(page->live[PLACE_DEVICE] + page->live[PLACE_HOST] == live);
	CHECK(page_there()->state == STATS_RUNNING && !page->end_clock);
	return 0;
}

static void a_cloned_child_neither_counts_there_nor_ends_it(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		first_frees = i;
		assert_int_equal(child_run(SETTINGS(), clones), 0);
		folder_clear();
	}
}

static void without_a_runtime_folder_they_are_in_memory(void **state)
{
	(void)state;
	if (access("/dev/shm", W_OK) != 0)
		skip();
	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=");
	assert_int_equal(child_run(SETTINGS(), is_in_memory), 7);
}

static int is_unseen(void)
{
	work();
	CHECK(folder_files(STATS_TAIL, NULL) == 0);
	return 0;
}

static void in_a_folder_that_others_may_read_there_is_no_file(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/spillway", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(child_run(SETTINGS(), is_unseen), 0);
}

/* What a process says on stderr with its first allocation, which the simulated device may refuse. */
static char *said(void)
{
	static char text[4096];
	CUdeviceptr block;
	int ends[2];

	CHECK(pipe(ends) == 0);
	int before = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	driver_start(0);
	cu.cuMemAlloc_v2(&block, BLOCK);
	dup2(before, STDERR_FILENO);
	ssize_t n = read(ends[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = 0;
	close(before);
	close(ends[0]);
	return text;
}

static int says_that_the_folder_is_open(void)
{
	const char *text = said();

	CHECK(strstr(text, "cannot see process") && strstr(text, strerror(EPERM)) && strstr(text, "open to others"));
	CHECK(!strstr(text, "errno"));
	return 0;
}

static int says_that_files_are_limited(void)
{
	const struct rlimit limit = {4096, 4096};

	signal(SIGXFSZ, SIG_IGN); /* the simulated device's memory is files, too */
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	const char *text = said();
	CHECK(strstr(text, "cannot see process") && strstr(text, strerror(EFBIG)) && strstr(text, "ulimit -f"));
	return 0;
}

static void why_there_is_no_file_is_said_in_words(void **state)
{
	char path[128];

	(void)state;
	assert_int_equal(child_run(SETTINGS(), says_that_files_are_limited), 0);
	snprintf(path, sizeof(path), "%s/spillway", folder);
	assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(child_run(SETTINGS(), says_that_the_folder_is_open), 0);
}

#define RULES                                                                                                          \
	"version: 1\n"                                                                                                 \
	"rules:\n"                                                                                                     \
	"  - {name: big ones, match: {size: \">= 4MiB\"}, use: heap, movable: no, place: host}\n"                      \
	"  - {name: never, match: {size: \"== 3MiB\"}, use: heap}\n"

static int counts_by_rule(void)
{
	work();
	child_alloc(MIB);
	const struct stats_page *page = page_there();

	CHECK(!strcmp(page->rule[1].name, "big ones") && !strcmp(page->rule[2].name, "never"));
	CHECK(page->rule[1].figures.figure[FIGURE_allocations] == N_BLOCKS);
	CHECK(page->rule[1].figures.figure[FIGURE_spilled_bytes] == N_BLOCKS * BLOCK);
	CHECK(page->rule[2].figures.figure[FIGURE_allocations] == 0);
	CHECK(page->rule[0].figures.figure[FIGURE_live] == MIB);
	return 0;
}

static void rules_have_figures_of_their_own(void **state)
{
	char path[256], setting[320];

	(void)state;
	snprintf(path, sizeof(path), "%s/rules.yaml", folder);
	FILE *file = fopen(path, "w");
	fputs(RULES, file);
	fclose(file);
	snprintf(setting, sizeof(setting), "SPILLWAY_POLICY=%s", path);
	const char *const settings[] = {"SIM_MEMORY=128MiB", runtime, setting,
					"SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,report.summary=no", NULL};
	int status = child_run(settings, counts_by_rule);
	unlink(path);
	assert_int_equal(status, 0);
}

static int is_beside(void)
{
	driver_start(0);
	child_alloc(BLOCK);
	CHECK(folder_files(STATS_TAIL, NULL) == 2);
	exit(0);
}

static void what_is_left_of_others_goes_after_a_day(void **state)
{
	const struct timespec old = {.tv_sec = time(NULL) - 25 * 60 * 60};
	char path[256];

	(void)state;
	assert_int_equal(child_run(SETTINGS(), is_killed), 128 + SIGKILL);
	assert_int_equal(child_run(SETTINGS(), is_beside), 0);
	assert_int_equal(folder_files(STATS_TAIL, path), 1);
	assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){old, old}, 0), 0);
	assert_int_equal(child_run(SETTINGS(), exits), 7); /* sees its own alone */
	assert_int_equal(folder_files(STATS_TAIL, path), 0);
}

static int made_in_time(void)
{
	driver_start(0);
	child_alloc(BLOCK);
	raise(SIGKILL);
	return 0;
}

/* As of a container with this folder: the number of the process means nothing here, the lock of the file does. */
static void what_somebody_holds_is_never_removed(void **state)
{
	const struct timespec old = {.tv_sec = time(NULL) - 25 * 60 * 60};
	char path[256], other[300];

	(void)state;
	assert_int_equal(child_run(SETTINGS(), made_in_time), 128 + SIGKILL);
	assert_int_equal(folder_files(STATS_TAIL, path), 1);
	/* What the killed process held is free; then it is ours, under a name that no process here has. */
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && !rundir_is_held(fd));
	snprintf(other, sizeof(other), "%s/spillway/1-1" STATS_TAIL, folder);
	assert_int_equal(rename(path, other), 0);
	rundir_hold(fd);
	assert_int_equal(utimensat(AT_FDCWD, other, (const struct timespec[]){old, old}, 0), 0);
	/* Held by being mapped, too. */
	void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	close(fd);
	assert_int_equal(child_run(SETTINGS(), is_beside), 0);
	assert_int_equal(access(other, F_OK), 0);
	munmap(at, 4096);
	assert_int_equal(child_run(SETTINGS(), exits), 7);
	assert_int_equal(folder_files(STATS_TAIL, path), 0);
}

static int is_held_while_it_lives(void)
{
	char path[256];

	work();
	CHECK(folder_files(STATS_TAIL, path) == 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && rundir_is_held(fd));
	return 0;
}

static void a_live_process_holds_its_file(void **state)
{
	(void)state;
	assert_int_equal(child_run(SETTINGS(), is_held_while_it_lives), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_make, folder_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(placed_once_nothing_moves),
	    TEST(what_is_made_where_something_had_left_is_no_refetch),
	    TEST(exact_counts_moves_and_gaps),
	    TEST(fast_counts_moves),
	    TEST(a_suspended_process_is_seen_to_be_so),
	    TEST(the_last_figures_outlive_a_kill),
	    TEST(an_exit_leaves_nothing),
	    TEST(a_forked_child_neither_counts_there_nor_removes_it),
	    TEST(counter_and_trace_agree_on_how_busy_the_link_was),
	    TEST(a_cloned_child_neither_counts_there_nor_ends_it),
	    TEST(submissions_of_a_traced_program_are_counted),
	    TEST(without_a_runtime_folder_they_are_in_memory),
	    TEST(in_a_folder_that_others_may_read_there_is_no_file),
	    TEST(why_there_is_no_file_is_said_in_words),
	    TEST(rules_have_figures_of_their_own),
	    TEST(what_is_left_of_others_goes_after_a_day),
	    TEST(what_somebody_holds_is_never_removed),
	    TEST(a_live_process_holds_its_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
