// SPDX-License-Identifier: Apache-2.0
/*
 * The file that a process has its figures in: one in the user's private folder, there after a kill, gone after an exit,
 * and none of a child's business. Where there can be none it is said why, and what others have left is removed in time.
 */
#include "shim/base/user_dir.h"
#include "test/preload/figures_help.h"
#include "test/test.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void is_killed(void)
{
	work();
	raise(SIGKILL);
}

TEST(the_last_figures_outlive_a_kill)
{
	assert_int_equal(child_run(SETTINGS(), is_killed), 128 + SIGKILL);
	const struct stats_page *page = page_there();
	assert_int_equal(page->counter[STAT_allocations], N_BLOCKS);
	assert_int_equal(page->state, STATS_RUNNING);
	assert_true(stats_page_get(page, STAT_over_us, page->last_clock) <=
		    (page->last_clock - page->start_clock) / 1000);
}

/* Is there a file of figures that is finished: mapped, and mode 0400 from then on? */
static bool is_there_again(void)
{
	char path[256];
	struct stat status;

	return folder_files(STATS_TAIL, path) == 1 && stat(path, &status) == 0 && (status.st_mode & 0777) == 0400;
}

/* As at a log-out; the file is looked for once a second. */
PART_TEST(the_figures_are_found_again_when_their_folder_was_removed, assert_int_equal(child_run(SETTINGS(), part), 7);
	  assert_int_equal(folder_files(STATS_TAIL, NULL), 0))
{
	char path[256];
	struct stat status;

	work();
	const struct stats_page *before = page_there();
	uint64_t allocations = before->counter[STAT_allocations];
	CHECK(folder_files(STATS_TAIL, path) == 1);
	CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0400);
	CHECK(geteuid() == 0 || truncate(path, 0) != 0);
	folder_clear();
	for (unsigned i = 0; !is_there_again() && i < 2000; i++)
		usleep(10000);
	const struct stats_page *page = page_there();
	CHECK(page->counter[STAT_allocations] == allocations && page->pid == before->pid);
	child_alloc(BLOCK);
	CHECK(page->counter[STAT_allocations] == allocations + 1 && before->counter[STAT_allocations] == allocations);
	exit(7);
}

static void exits(void)
{
	work();
	page_there();
	exit(7);
}

TEST(an_exit_leaves_nothing)
{
	assert_int_equal(child_run(SETTINGS(), exits), 7);
	assert_int_equal(folder_files(STATS_TAIL, NULL), 0);
}

/* With the last figures in a folder of the test's, beside that of the figures of what runs. */
static unsigned left_by(const char *more, struct stats_page *ret_page)
{
	char setting[128], path[128], name[256];
	unsigned n = 0;

	snprintf(setting, sizeof(setting), "SPILLWAY_FIGURES=%s%s", folder, more);
	assert_int_equal(child_run((const char *const[]){"SIM_MEMORY=128MiB", runtime, setting,
							 "SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,"
							 "report.summary=no",
							 NULL},
				   exits),
			 7);
	snprintf(path, sizeof(path), "%s%s/spillway", folder, more);
	DIR *dir = opendir(path);
	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		if (*entry->d_name == '.')
			continue;
		n++;
		snprintf(name, sizeof(name), "%s/%.100s", path, entry->d_name);
		int fd = open(name, O_RDONLY | O_CLOEXEC);
		assert_int_equal(read(fd, (void *)ret_page, sizeof(*ret_page)), (ssize_t)sizeof(*ret_page));
		close(fd);
		unlink(name);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
	snprintf(path, sizeof(path), "%s%s", folder, more);
	rmdir(path);
	return n;
}

static void make_inner(const char *more, mode_t mode)
{
	char path[128];

	snprintf(path, sizeof(path), "%s%s", folder, more);
	assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s%s/spillway", folder, more);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, mode), 0);
}

TEST(the_last_figures_are_left_where_they_are_asked_for)
{
	static struct stats_page page;

	make_inner("/asked", 0700);
	assert_int_equal(left_by("/asked", &page), 1);
	assert_int_equal(page.counter[STAT_allocations], N_BLOCKS);
	assert_int_equal(page.state, STATS_ENDED);
	assert_int_equal(folder_files(STATS_TAIL, NULL), 0);
}

TEST(but_not_in_a_folder_that_is_missing_or_open_to_others)
{
	static struct stats_page page;

	assert_int_equal(left_by("/missing", &page), 0);
	make_inner("/open", 0755);
	assert_int_equal(left_by("/open", &page), 0);
}

CHILD_TEST(a_forked_child_neither_counts_there_nor_removes_it, SETTINGS())
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
}

static bool first_frees;

/* By a way that no handler of fork() is told of. */
static void clones(void)
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
}

TEST(a_cloned_child_neither_counts_there_nor_ends_it)
{
	for (unsigned i = 0; i < 2; i++) {
		first_frees = i;
		child_passes(SETTINGS(), clones);
		folder_clear();
	}
}

static void is_in_memory(void)
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
TEST(without_a_runtime_folder_they_are_in_memory)
{
	if (access("/dev/shm", W_OK) != 0)
		skip();
	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=");
	assert_int_equal(child_run(SETTINGS(), is_in_memory), 7);
}

static void is_unseen(void)
{
	work();
	CHECK(folder_files(STATS_TAIL, NULL) == 0);
}

TEST(in_a_folder_that_others_may_read_there_is_no_file)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/spillway", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chmod(path, 0755), 0);
	child_passes(SETTINGS(), is_unseen);
}

/*
 * What a process says on stderr with its first allocation, which the simulated device may refuse. Run by run_heard() in
 * a program of its own, for the library writes to what was stderr when it was loaded: a pipe, whose end is in HEARD.
 */
static char *said(void)
{
	static char text[4096];
	CUdeviceptr block;

	driver_start(0);
	cu.cuMemAlloc_v2(&block, BLOCK);
	ssize_t n = read(atoi(getenv("HEARD")), text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = 0;
	return text;
}

static void run_heard(const char *part)
{
	char number[16];
	int ends[2];

	CHECK(pipe(ends) == 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	snprintf(number, sizeof(number), "%d", ends[0]);
	setenv("HEARD", number, 1);
	execl("/proc/self/exe", "figures_file_test", part, NULL);
	_exit(1);
}

static void says_that_the_folder_is_open(void)
{
	const char *text = said();

	CHECK(strstr(text, "cannot see process") && strstr(text, strerror(EPERM)) && strstr(text, "open to others"));
	CHECK(!strstr(text, "errno"));
}

static void says_that_files_are_limited(void)
{
	const struct rlimit limit = {4096, 4096};

	signal(SIGXFSZ, SIG_IGN); /* the simulated device's memory is files, too */
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	const char *text = said();
	CHECK(strstr(text, "cannot see process") && strstr(text, strerror(EFBIG)) && strstr(text, "ulimit -f"));
}

static void says_that_the_folder_is_open_heard(void)
{
	run_heard("folder");
}

static void says_that_files_are_limited_heard(void)
{
	run_heard("limit");
}

TEST(why_there_is_no_file_is_said_in_words)
{
	char path[128];

	child_passes(SETTINGS(), says_that_files_are_limited_heard);
	snprintf(path, sizeof(path), "%s/spillway", folder);
	assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
	assert_int_equal(chmod(path, 0755), 0);
	child_passes(SETTINGS(), says_that_the_folder_is_open_heard);
}

static void is_beside(void)
{
	driver_start(0);
	child_alloc(BLOCK);
	CHECK(folder_files(STATS_TAIL, NULL) == 2);
	exit(0);
}

TEST(what_is_left_of_others_goes_after_a_day)
{
	const struct timespec old = {.tv_sec = time(NULL) - 25 * 60 * 60};
	char path[256];

	assert_int_equal(child_run(SETTINGS(), is_killed), 128 + SIGKILL);
	child_passes(SETTINGS(), is_beside);
	assert_int_equal(folder_files(STATS_TAIL, path), 1);
	assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){old, old}, 0), 0);
	assert_int_equal(child_run(SETTINGS(), exits), 7); /* sees its own alone */
	assert_int_equal(folder_files(STATS_TAIL, path), 0);
}

static void made_in_time(void)
{
	driver_start(0);
	child_alloc(BLOCK);
	raise(SIGKILL);
}

/* As of a container with this folder: the number of the process means nothing here, the lock of the file does. */
TEST(what_somebody_holds_is_never_removed)
{
	const struct timespec old = {.tv_sec = time(NULL) - 25 * 60 * 60};
	char path[256], other[300];

	assert_int_equal(child_run(SETTINGS(), made_in_time), 128 + SIGKILL);
	assert_int_equal(folder_files(STATS_TAIL, path), 1);
	/* What the killed process held is free; then it is ours, under a name that no process here has. */
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && !user_dir_is_held(fd));
	snprintf(other, sizeof(other), "%s/spillway/1-1" STATS_TAIL, folder);
	assert_int_equal(rename(path, other), 0);
	user_dir_hold(fd);
	assert_int_equal(utimensat(AT_FDCWD, other, (const struct timespec[]){old, old}, 0), 0);
	/* Held by being mapped, too. */
	void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	close(fd);
	child_passes(SETTINGS(), is_beside);
	assert_int_equal(access(other, F_OK), 0);
	munmap(at, 4096);
	assert_int_equal(child_run(SETTINGS(), exits), 7);
	assert_int_equal(folder_files(STATS_TAIL, path), 0);
}

CHILD_TEST(a_live_process_holds_its_file, SETTINGS())
{
	char path[256];

	work();
	CHECK(folder_files(STATS_TAIL, path) == 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && user_dir_is_held(fd));
}

EACH_TEST(folder_make, folder_remove)

int main(int argc, char **argv)
{
	if (argc == 1)
		return test_run();
	if (strcmp(argv[1], "limit"))
		says_that_the_folder_is_open();
	else
		says_that_files_are_limited();
	return 0;
}
