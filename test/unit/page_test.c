// SPDX-License-Identifier: Apache-2.0
/* page_test.c: files of figures, good, bad and hostile; and what is computed of two readings. */
#include "shim/base/user_dir.h"
#include "test/test.h"
#include "test/unit/page_make.h"
#include "test/unit/seed.h"
#include "tools/common/figures.h"

#include <math.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static struct stats_page *page;
static struct figures figures;
static struct process_name self;
static struct figures_choice choice; /* this process alone: others of this user may run meanwhile */

FIXTURE(begin)
{
	page_make_begin();
	self = (struct process_name){.pid = getpid()};
	choice = (struct figures_choice){.only = (uid_t)-1, .name = &self, .n = 1};
	page = page_make(self.pid);
}

FIXTURE(end)
{
	figures_free(&figures);
	free(page);
	page_make_end();
}

EACH_TEST(begin, end)

/* So many processes are found. */
static void finds(size_t n)
{
	assert_true(figures_read(&figures, &choice));
	assert_int_equal(figures.n, n);
}

static const struct page *read_it(void)
{
	assert_true(figures_read(&figures, &choice));
	assert_true(figures.n <= 1);
	return figures.n ? figures.process[0].page : NULL;
}

/* What is read of the page as it is. */
static const struct page *shown(void)
{
	page_make_write(page, sizeof(*page));
	return read_it();
}

static const char *path_of_it(void)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", page_make_folder(), page_make_name(page));
	return path;
}

TEST(a_good_page_is_read_as_it_is)
{
	const struct page *found = shown();

	assert_non_null(found);
	assert_int_equal(found->kind, PAGE_GOOD);
	assert_true(found->alive);
	assert_int_equal(found->owner, geteuid());
	assert_string_equal(page_state(found), "running");
	assert_memory_equal((const void *)found->copy->counter, (const void *)page->counter, sizeof(page->counter));
	assert_string_equal(found->copy->command, page->command);
	assert_int_equal(page_counter(found, STAT_moves_in), 1000 + STAT_moves_in);
	assert_in_range(page_age(found), 100000000000, 160000000000);
}

TEST(a_page_that_is_cut_anywhere_is_broken_and_no_more)
{
	static const size_t lengths[] = {1, 8, 15, 16, 17, 24, 4095, 4096, sizeof(struct stats_page) - 1};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		page_make_write(page, lengths[i]);
		const struct page *found = read_it();

		assert_non_null(found);
		assert_int_equal(found->kind, PAGE_BROKEN);
		assert_null(found->copy);
		assert_string_equal(page_state(found), "broken");
		assert_true(*found->problem);
	}
}

TEST(a_page_that_is_only_being_made_is_not_there)
{
	page_make_write(page, 0);
	assert_null(read_it());
	page->bytes = page->version = page->magic = 0;
	assert_null(shown());
}

TEST(a_page_that_is_too_long_is_broken)
{
	page_make_write(page, sizeof(*page));
	assert_int_equal(truncate(path_of_it(), (off_t)sizeof(*page) + 1), 0);
	assert_int_equal(read_it()->kind, PAGE_BROKEN);
	/* A file with holes of any size costs nothing to make; it must cost nothing to refuse, too. */
	assert_int_equal(truncate(path_of_it(), (off_t)1 << 40), 0);
	assert_int_equal(read_it()->kind, PAGE_BROKEN);
}

TEST(a_page_of_another_version_is_known_as_such)
{
	page->version = STATS_VERSION + 1;
	const struct page *found = shown();

	assert_int_equal(found->kind, PAGE_OTHER_VERSION);
	assert_int_equal(found->version, STATS_VERSION + 1);
	assert_string_equal(page_state(found), "other version");
	assert_null(found->copy);
	/* Nothing else is promised between versions: it may be of any size, too. */
	page->bytes = 4096;
	page_make_write(page, 4096);
	assert_int_equal(read_it()->kind, PAGE_OTHER_VERSION);
}

TEST(a_wrong_head_is_broken)
{
	static const struct {
		size_t at;
		uint64_t value;
	} wrong[] = {
	    {offsetof(struct stats_page, bytes), 7},
	    {offsetof(struct stats_page, version), 0},
	    {offsetof(struct stats_page, version), UINT64_MAX},
	    {offsetof(struct stats_page, magic), 1},
	    {offsetof(struct stats_page, pid), 1},
	    {offsetof(struct stats_page, started), 1},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		page_make_write(page, sizeof(*page));
		int fd = open(path_of_it(), O_WRONLY | O_CLOEXEC);
		assert_int_equal(pwrite(fd, &wrong[i].value, 8, (off_t)wrong[i].at), 8);
		close(fd);
		assert_int_equal(read_it()->kind, PAGE_BROKEN);
	}
}

/* Is there anything in it that a terminal obeys, or that is no UTF-8? */
static bool is_clean(const char *text, size_t bytes)
{
	if (!memchr(text, 0, bytes))
		return false;
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (*c < 0x20 || *c == 0x7f || *c >= 0xf5 || (*c == 0xc2 && c[1] < 0xa0))
			return false;
	return true;
}

TEST(texts_lose_what_a_terminal_would_obey)
{
	memset(page->command, 'x', sizeof(page->command)); /* no end */
	strcpy(page->policy, "a\033[2J\033]0;title\007b\nc\rd\x7f");
	strcpy(page->mode, "\xc2\x9b"
			   "31m\xff\xc3");
	memset(page->rule[1].name, '\033', STATS_TEXT);
	memset(page->site[9].text, 0xe2, STATS_TEXT);
	memset(page->fault_source, '\033', sizeof(page->fault_source)); /* the longest of all */
	strcpy(page->device[0].name, "GPU \xe2\x82");
	const struct stats_page *copy = shown()->copy;

	assert_non_null(copy);
	assert_int_equal(strlen(copy->command), sizeof(copy->command) - 1);
	assert_string_equal(copy->policy, "a?[2J?]0;title?b?c?d?");
	assert_true(is_clean(copy->mode, sizeof(copy->mode)));
	assert_true(is_clean(copy->rule[1].name, STATS_TEXT));
	assert_true(is_clean(copy->site[9].text, STATS_TEXT));
	assert_int_equal(strlen(copy->fault_source), sizeof(copy->fault_source) - 1);
	assert_true(is_clean(copy->fault_source, sizeof(copy->fault_source)));
	assert_true(is_clean(copy->device[0].name, STATS_TEXT));
}

TEST(any_bytes_behind_a_good_head_are_read_without_harm)
{
	struct seed seed = seed_start("page_test");
	char room[FIGURES_UUID], program[PAGE_PROGRAM];

	for (unsigned round = 0; round < 20; round++) {
		uint64_t *words = (uint64_t *)(void *)page, head[7];

		memcpy(head, words, sizeof(head));
		for (size_t i = 0; i < sizeof(*page) / 8; i++)
			words[i] = seed_next(&seed) >> seed_next(&seed) % 64;
		memcpy(words, head, sizeof(head));
		const struct page *found = shown();
		assert_int_equal(found->kind, PAGE_GOOD);
		assert_true(is_clean(found->copy->command, sizeof(found->copy->command)));
		page_program(found, program);
		for (unsigned i = 0; i < STAT_COUNT; i++)
			page_counter(found, i);
		for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
			figures_percentile(found->copy->histogram[i], 0.5);
		figures_uuid(found->copy->device[0].uuid, found->copy->device[0].name, room);
	}
}

TEST(what_is_not_private_is_left_alone)
{
	char other[300];

	page_make_write(page, sizeof(*page));
	assert_int_equal(chmod(path_of_it(), 0644), 0);
	assert_null(read_it());
	assert_int_equal(chmod(path_of_it(), 0600), 0);
	snprintf(other, sizeof(other), "%s/other", page_make_folder());
	assert_int_equal(link(path_of_it(), other), 0); /* a second name: perhaps somebody else's file */
	assert_null(read_it());
	assert_int_equal(unlink(path_of_it()), 0);
	assert_int_equal(symlink(other, path_of_it()), 0);
	assert_null(read_it());
	assert_int_equal(unlink(path_of_it()), 0);
	assert_int_equal(mkfifo(path_of_it(), 0600), 0); /* does not hold us up, either */
	assert_null(read_it());
	assert_int_equal(unlink(path_of_it()), 0);
	assert_int_equal(mkdir(path_of_it(), 0700), 0);
	assert_null(read_it());
	if (geteuid() != 0)
		return;
	assert_int_equal(rmdir(path_of_it()), 0);
	assert_int_equal(rename(other, path_of_it()), 0);
	assert_int_equal(chown(path_of_it(), 65534, 65534), 0);
	assert_null(read_it());
}

TEST(a_folder_that_is_open_to_others_is_not_looked_into)
{
	page_make_write(page, sizeof(*page));
	assert_int_equal(chmod(page_make_folder(), 0755), 0);
	assert_null(read_it());
	assert_true(figures.n_refused >= 1);
	assert_int_equal(chmod(page_make_folder(), 0700), 0);
	assert_non_null(read_it());
}

TEST(root_sees_the_processes_of_others)
{
	char path[200], from[300], to[300];

	if (geteuid() != 0)
		skip();
	choice.only = 65534;
	page_make_write(page, sizeof(*page));
	finds(0);
	snprintf(path, sizeof(path), "%s/../spillway-65534", page_make_folder());
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(from, sizeof(from), "%s", path_of_it());
	snprintf(to, sizeof(to), "%s/%s", path, page_make_name(page));
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(chown(to, 65534, 65534), 0);
	assert_int_equal(chown(path, 65534, 65534), 0);
	finds(1);
	assert_int_equal(figures.process[0].page->owner, 65534);
	/* This process is root's: who writes such a file does not own it. */
	assert_true(figures.process[0].page->alive);
	assert_int_equal(unlink(to), 0);
}

TEST(what_lies_in_memory_is_seen)
{
	const char *folders[] = {user_dir_memory, user_dir_fallback};
	char path[64], made[128];

	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/spillway-%u", folders[i], (unsigned)geteuid());
		if (mkdir(path, 0700) != 0 && errno != EEXIST)
			skip();
		snprintf(made, sizeof(made), "%s/%s", path, page_make_name(page));
		page_make_write_at(page, made);
		bool read = figures_read(&figures, &choice);
		unlink(made);
		rmdir(path);
		assert_true(read);
		assert_int_equal(figures.n, 1);
	}
}

/* A job with a /tmp of its own, as batch systems make them. */
static void shows_itself_elsewhere(int ready, const char *fallback)
{
	char path[300];

	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", fallback, "tmpfs", 0, NULL) != 0)
		_exit(77);
	snprintf(path, sizeof(path), "%s/spillway-%u", fallback, (unsigned)geteuid());
	mkdir(path, 0700);
	struct stats_page *own = page_make(getpid());
	snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", page_make_name(own));
	page_make_write_at(own, path);
	if (write(ready, "r", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

TEST(a_job_with_another_tmp_is_seen)
{
	int ends[2], status;
	char ready;

	assert_int_equal(pipe(ends), 0);
	pid_t job = fork();
	if (!job) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		shows_itself_elsewhere(ends[1], user_dir_fallback);
	}
	close(ends[1]);
	ssize_t n = read(ends[0], &ready, 1);
	close(ends[0]);
	if (n != 1) {
		waitpid(job, &status, 0);
		assert_int_equal(WEXITSTATUS(status), 77); /* not allowed here */
		skip();
	}
	self.pid = job;
	/* The list of views is made anew every ten readings. */
	for (unsigned i = 0; i < 11 && !figures.n; i++)
		assert_true(figures_read(&figures, &choice));
	kill(job, SIGKILL);
	waitpid(job, &status, 0);
	assert_int_equal(figures.n, 1);
	assert_true(figures.process[0].page->alive);
	assert_int_equal(figures.process[0].page->kind, PAGE_GOOD);
}

/* Two pods: each is process 1, of the same user, started in the same tick. Only what they call themselves differs. */
TEST(processes_alike_but_for_their_ids_are_two)
{
	char path[300], id[IDENTITY_TEXT];

	page_make_write(page, sizeof(*page));
	page->identity++;
	snprintf(path, sizeof(path), "%s/%d-%llu-%s" STATS_TAIL, page_make_folder(), (int)self.pid,
		 (unsigned long long)page->started, identity_text(page->identity, id));
	page_make_write_at(page, path);
	finds(2);
	assert_int_equal(figures.process[0].page->identity + 1, figures.process[1].page->identity);
	/* Each goes on with itself. */
	assert_true(figures_read(&figures, &choice));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(figures.process[i].before->identity, figures.process[i].page->identity);
	self = (struct process_name){.identity = page->identity};
	finds(1);
	assert_int_equal(figures.process[0].page->identity, page->identity);
}

/* The same, of another version: there is no more to tell them by than that the files are two. */
TEST(processes_of_another_version_are_told_by_their_files)
{
	char path[300];

	page->version = STATS_VERSION - 1;
	page_make_write(page, sizeof(*page));
	snprintf(path, sizeof(path), "%s/../spillway-%u", page_make_folder(), (unsigned)geteuid());
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", page_make_name(page));
	page_make_write_at(page, path);
	assert_true(figures_read(&figures, &choice));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(figures.n, 2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(figures.process[i].page->kind, PAGE_OTHER_VERSION);
}

TEST(names_that_are_none_are_left_alone)
{
	static const char *const names[] = {"x.stats",
					    "1.stats",
					    "-1-2.stats",
					    "1-.stats",
					    "1-2x.stats",
					    "0-1.stats",
					    "99999999999-1.stats",
					    "1-99999999999999999999999.stats",
					    " 1-2.stats",
					    "1-2-.stats",
					    "1-2-0123456789ABCDEF.stats",
					    "1-2-0123456789abcdef0.stats"};
	char path[300];

	assert_null(read_it());
	size_t n = figures.n_gone;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", page_make_folder(), names[i]);
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	assert_null(read_it());
	assert_int_equal(figures.n_gone, n);
}

/* Of another PID namespace: its number says nothing here. */
TEST(a_process_that_holds_its_file_is_alive)
{
	page->started -= 1;
	page_make_write(page, sizeof(*page));
	int fd = open(path_of_it(), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	user_dir_hold(fd);
	assert_true(read_it()->alive);
	assert_int_equal(figures.n_gone, 0);
	close(fd);
	assert_false(read_it()->alive);
}

TEST(a_process_that_is_gone_is_known_by_its_start)
{
	page->started -= 1;
	page->counter[STAT_over_us] = 0;
	const struct page *found = shown();

	assert_false(found->alive);
	assert_string_equal(page_state(found), "gone");
	assert_int_equal(figures.n_gone, 1);
	/* As it was at its last sign of life. */
	assert_int_equal(page_age(found), 90000000000);
	assert_int_equal(page_counter(found, STAT_over_us), 90000000);
}

TEST(a_process_of_another_pid_namespace_shows_that_it_lives)
{
	page->started -= 1;
	assert_false(shown()->alive);
	page_make_grow(page, 1);
	assert_true(shown()->alive);
}

TEST(rates_are_differences_over_time)
{
	shown();
	assert_true(isnan(figures_get_rate(&figures.process[0], GROUP_COUNTERS, 0, STAT_moved_in_bytes)));
	assert_true(isnan(figures_ago(&figures.flow[FLOW_IN], 0)));
	page_make_grow(page, 10);
	shown();
	struct figures_process *process = &figures.process[0];
	assert_true(process->seconds > 0);
	double moved = figures_get_rate(process, GROUP_COUNTERS, 0, STAT_moved_in_bytes) * process->seconds;
	assert_true(fabs(moved - 1000 * (double)MIB) < 1);
	assert_true(figures_ago(&process->flow[FLOW_IN], 0) > 0);
	assert_true(isnan(figures_ago(&process->flow[FLOW_IN], 1)));
	assert_true(isnan(figures_ago(&process->flow[FLOW_IN], 2)));
	assert_true(figures_get_rate(process, GROUP_COUNTERS, 0, STAT_frees) == 0);
}

TEST(what_was_not_measured_stays_so)
{
	assert_int_equal(figures_get(shown(), GROUP_FAULTS, 0, FAULT_GPU), STATS_NA);
	page_make_grow(page, 1); /* now they are counted */
	assert_int_equal(figures_get(shown(), GROUP_FAULTS, 0, FAULT_GPU), 0);
	assert_true(isnan(figures_get_rate(&figures.process[0], GROUP_FAULTS, 0, FAULT_GPU)));
	page_make_grow(page, 1);
	shown();
	assert_true(figures_get_rate(&figures.process[0], GROUP_FAULTS, 0, FAULT_GPU) > 0);
	assert_true(isnan(figures_get_rate(&figures.process[0], GROUP_FAULTS, 0, FAULT_CPU)));
	assert_true(isnan(figures_rate(STATS_NA, 1, 1)) && isnan(figures_rate(1, STATS_NA, 1)));
	assert_true(figures_rate(5, 7, 1) == 0); /* a rounding back is no flow */
}

TEST(percentiles_are_the_middles_of_buckets)
{
	_Atomic uint64_t histogram[STATS_BUCKETS] = {0};

	assert_true(isnan(figures_percentile(histogram, 0.5)));
	histogram[page_bucket(5)] = 90;
	histogram[page_bucket(1000000)] = 10;
	assert_int_equal(figures_measured(histogram), 100);
	assert_true(figures_percentile(histogram, 0.5) == 5);
	assert_true(figures_percentile(histogram, 0.9) == 5);
	assert_true(fabs(figures_percentile(histogram, 0.99) - 1e6) <= 1e6 / 16);
	assert_true(fabs(figures_sum(histogram) - (90 * 5 + 10 * 1e6)) <= 1e7 / 16);
}

TEST(a_device_of_several_processes_is_one)
{
	const struct process_name names[2] = {self, {.pid = page_make_process()}};
	struct stats_page *second = page_make(names[1].pid);

	/* There it has another number. */
	memcpy((void *)&second->device[3], (void *)&second->device[0], sizeof(second->device[0]));
	second->device[0].known = 0;
	page_make_write(page, sizeof(*page));
	page_make_write(second, sizeof(*second));
	choice.name = names;
	choice.n = 2;
	finds(2);
	assert_int_equal(figures.n_devices, 1);
	assert_int_equal(figures.device[0].n_processes, 2);
	assert_int_equal(figures.device[0].live[PLACE_HOST], 10 * GIB);
	free(second);
}
