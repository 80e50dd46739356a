// SPDX-License-Identifier: Apache-2.0
#include "test/preload/turns_help.h"

#include <sys/syscall.h>

/* part: of the file's name, and of that of no other. */
static bool read_of(const char *part, struct account_page *ret_page)
{
	bool ended[GPU_ACCOUNT_MOST];
	char path[256];

	if (folder_files(part, path) != 1)
		return false;
	int fd = open(path, O_RDWR);
	bool good = fd >= 0 && gpu_account_read(fd, ret_page, ended);
	if (fd >= 0)
		close(fd);
	return good;
}

bool account_read(struct account_page *ret_page)
{
	return read_of(GPU_ACCOUNT_TAIL, ret_page);
}

bool account_read_device(unsigned device, struct account_page *ret_page)
{
	/* The UUIDs of simulated GPUs end in "-0" and "-1". */
	return read_of(device ? "2d3100" GPU_ACCOUNT_TAIL : "2d3000" GPU_ACCOUNT_TAIL, ret_page);
}

uint64_t account_sum(const struct account_page *page)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++)
		if (page->slot[i].pid)
			sum += page->slot[i].may_have;
	return sum;
}

void account_check(void)
{
	struct account_page page;

	for (unsigned device = 0, tries = 0; device < 2;)
		if (!account_read_device(device, &page) || account_sum(&page) <= page.head.file.total)
			device++, tries = 0;
		else if (++tries == 5)
			fail_msg("%llu bytes of device %u may be had", (unsigned long long)account_sum(&page), device);
}

const struct gpu_account_member *account_member(const struct account_page *page, const struct rank *rank)
{
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++)
		if (page->slot[i].pid == (uint64_t)rank->pid)
			return &page->slot[i];
	return NULL;
}

uint64_t account_turns(const struct rank *rank)
{
	struct account_page page;
	const struct gpu_account_member *member = account_read(&page) ? account_member(&page, rank) : NULL;

	return member ? member->claim.n : 0;
}

unsigned account_holder(const struct rank *ranks, unsigned n)
{
	struct account_page page;

	if (!account_read(&page) || !page.head.turn.on || !page.head.turn.holder)
		return n;
	const struct gpu_account_member *member = &page.slot[page.head.turn.holder - 1];
	for (unsigned i = 0; i < n; i++)
		if (member->pid == (uint64_t)ranks[i].pid && !member->claim.moving && !member->claim.away)
			return i;
	return n;
}

bool account_close(void)
{
	char path[32], target[256];
	bool any = false;

	for (int fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = 0;
		/* Behind the back of ThreadSanitizer, which knows that a thread of the library uses it. */
		any |= strstr(target, GPU_ACCOUNT_TAIL) && syscall(SYS_close, fd) == 0;
	}
	return any;
}

int turns_child_waits[2];

uint64_t turns_leave_a_child(bool clone)
{
	pid_t pid = clone ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
	char word;

	if (pid)
		return pid > 0;
	alarm(60);
	_exit(read(turns_child_waits[0], &word, 1) == 1 ? 0 : 1);
}

/* ---- ranks that make steps ---- */

CUdeviceptr turns_blocks[TURNS_MOST];
unsigned turns_n_blocks, turns_fills;

void turns_begin(const void *settings)
{
	child_set("SIM_MEMORY=256MiB");
	child_set(runtime);
	child_set(settings);
}

enum { BLOCK_WORDS = 4 * MIB / 4, WORDS_EACH = 65536 / 4 };

static void write_body(const struct sim_launch *launch, void **args)
{
	unsigned *at = *(unsigned **)args[0];

	for (size_t i = 0; i < BLOCK_WORDS; i += WORDS_EACH)
		at[i] = *(unsigned *)args[1];
}

static void rest_body(const struct sim_launch *launch, void **args)
{
	usleep(4000);
}

SIM_MODULE(image, SIM_KERNEL("write", write_body, sizeof(CUdeviceptr), sizeof(unsigned)),
	   SIM_KERNEL("rest", rest_body, sizeof(unsigned)));

static void launch(const char *name, void **params)
{
	MUST(cu.cuLaunchKernel(driver_function(&image, name), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

void turns_new(CUdeviceptr block, unsigned first)
{
	MUST(driver_fill(NULL, block, first, BLOCK_WORDS));
}

void turns_write(CUdeviceptr block, unsigned value)
{
	launch("write", (void *[]){&block, &value});
}

bool turns_holds(CUdeviceptr block, unsigned first, unsigned value)
{
	static unsigned words[BLOCK_WORDS];
	bool right = true;

	MUST(cu.cuMemcpyDtoH_v2(words, block, sizeof(words)));
	for (size_t i = 0; i < BLOCK_WORDS; i += WORDS_EACH) {
		right &= words[i] == value;
		words[i] = first;
	}
	return right && !memcmp(words, words + 1, sizeof(words) - sizeof(*words));
}

void turns_rest(void)
{
	unsigned nothing = 0;

	launch("rest", (void *[]){&nothing});
}

bool turns_until_pinned(void (*step)(void), unsigned n_blocks, unsigned mib)
{
	for (unsigned i = 0; i < TURNS_TRIES; i++) {
		struct sim_live live = sim_live();

		if (live.device_bytes >= n_blocks * 4 * MIB && live.host_bytes >= mib * MIB)
			return true;
		step();
	}
	return false;
}

static uint64_t new_blocks(unsigned from)
{
	for (unsigned i = from; i < turns_n_blocks; i++) {
		turns_new(turns_blocks[i], i);
		turns_write(turns_blocks[i], turns_fills + i);
	}
	MUST(cu.cuCtxSynchronize());
	return 1;
}

static void step(void)
{
	turns_fills++;
	for (unsigned i = 0; i < turns_n_blocks; i++)
		turns_write(turns_blocks[i], turns_fills + i);
	turns_rest();
	MUST(cu.cuCtxSynchronize());
}

uint64_t turns_obey(char what, unsigned n)
{
	unsigned before = turns_n_blocks;

	switch (what) {
	case 'd':
		driver_start((int)n);
		return 1;
	case 'a':
	case 'm':
		for (; n; n--)
			turns_blocks[turns_n_blocks++] = child_alloc(4 * MIB);
		turns_fills += what == 'a';
		return new_blocks(what == 'a' ? 0 : before);
	case 's':
		for (; n; n--)
			step();
		return 1;
	case 'c':
		for (unsigned i = 0; i < turns_n_blocks; i++)
			CHECK(turns_holds(turns_blocks[i], i, turns_fills + i));
		return sim_broken_rules() == 0;
	case 'p':
		return turns_leave_a_child(n);
	default:
		exit(0);
	}
}

struct rank turns_start(const struct rank_part *part, const void *how, unsigned n)
{
	struct rank rank = rank_start(part, how);

	assert_true(rank_ask(&rank, 'd', 0) && rank_ask(&rank, 'a', n));
	return rank;
}

void turns_start_all(struct rank *ranks, unsigned n, const struct rank_part *part, const void *how)
{
	for (unsigned i = 0; i < n; i++)
		ranks[i] = turns_start(part, how, TURNS_NEEDS);
}

void turns_tell(const struct rank *ranks, unsigned n, char what, unsigned argument)
{
	for (unsigned i = 0; i < n; i++)
		rank_tell(&ranks[i], what, argument);
}

void turns_hear(const struct rank *ranks, unsigned n, unsigned but)
{
	for (unsigned i = 0; i < n; i++)
		assert_true(i == but || rank_hear(&ranks[i]));
}

void turns_do(const struct rank *ranks, unsigned n, char what, unsigned argument)
{
	turns_tell(ranks, n, what, argument);
	turns_hear(ranks, n, n);
}

void turns_check(const struct rank *ranks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_true(rank_ask(&ranks[i], 'c', 0));
}

void turns_check_and_end(const struct rank *ranks, unsigned n)
{
	turns_check(ranks, n);
	for (unsigned i = 0; i < n; i++)
		rank_end(&ranks[i]);
}

void turns_run(const struct rank *ranks, unsigned n, uint64_t turns)
{
	uint64_t from[GPU_ACCOUNT_MOST];

	assert_true(n <= GPU_ACCOUNT_MOST);
	for (unsigned i = 0; i < n; i++)
		from[i] = account_turns(&ranks[i]);
	for (unsigned round = 0; round < TURNS_TRIES; round++) {
		bool all = true;

		turns_do(ranks, n, 's', 5);
		account_check();
		for (unsigned i = 0; i < n; i++)
			all = all && account_turns(&ranks[i]) >= from[i] + turns;
		if (all)
			return;
	}
	fail_msg("they did not take turns");
}

void turns_end(const struct rank *ranks, unsigned n)
{
	account_check();
	turns_check_and_end(ranks, n);
}

void turns_run_and_end(const struct rank *ranks, unsigned n, uint64_t turns)
{
	turns_run(ranks, n, turns);
	turns_end(ranks, n);
}

/* ---- the log ---- */

static char log_text[65536];
static off_t log_begin; /* where that of the test which runs now begins in the file */

/* Reads what was logged from there on. Returns how many bytes that are. */
static size_t read_log(off_t from)
{
	ssize_t n = pread(STDERR_FILENO, log_text, sizeof(log_text) - 1, from);

	log_text[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

bool log_has(const char *words)
{
	read_log(log_begin);
	return strstr(log_text, words);
}

bool log_says(const char *words)
{
	bool says = log_has(words);

	if (!says)
		printf("the log:\n%s\n", log_text);
	return says;
}

/* What has failed stands there, too: cmocka writes it to the standard error output. */
static void print_log(void)
{
	off_t from = 0;

	printf("the log of all tests:\n");
	for (size_t n; (n = read_log(from)) > 0; from += (off_t)n)
		fwrite(log_text, 1, n, stdout);
}

/* The library writes to what was the standard error output when it was loaded: a file, for all ranks of a test. */
int begin_log(void **state)
{
	static unsigned n;

	dprintf(STDERR_FILENO, "---- test %u\n", ++n);
	log_begin = lseek(STDERR_FILENO, 0, SEEK_END);
	return log_begin < 0 || folder_make(state);
}

static int again_with_log(void)
{
	char *argv[] = {program_invocation_name, NULL};
	char path[] = "/tmp/turns_test-XXXXXX";
	int fd = mkostemp(path, O_APPEND);

	if (fd < 0 || unlink(path) || dup2(fd, STDERR_FILENO) < 0 || setenv("TURNS_TEST_LOG", "1", 1))
		return 1;
	close(fd);
	execv("/proc/self/exe", argv);
	return 1;
}

int turns_main(int (*run)(void))
{
	if (!getenv("TURNS_TEST_LOG"))
		return again_with_log();
	int failed = run();

	if (failed)
		print_log();
	return failed;
}
