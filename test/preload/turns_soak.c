// SPDX-License-Identifier: Apache-2.0
/*
 * turns_soak: processes that take turns on one GPU (share), for as long as one likes, while everything happens to them
 * that may happen: they are killed, stopped and go on, end in the midst of their work or when told to; the file of
 * their account is cut off, removed or overwritten; and what turns_soak_job.c does to itself. Each has a simulated GPU
 * of its own, so only the account limits them.
 *
 *   turns_soak [--seconds N] [--jobs N] [--seed N]
 *
 * What must hold:
 *  - every byte that a job reads is what it has written (turns_soak_job.c)
 *  - who has given its memory away runs nothing (turns_soak_job.c), and where there are turns, nobody else than the holder
 *    stays on the GPU for longer than it takes to leave, unless it has said that it takes no part: no two turns at once
 *  - all together may have no more than the total, unless the account was just damaged
 *  - every job that is not stopped goes on within a bounded time; at last, when nothing happens any more, each gets turns
 *  - who is told to end ends within a bounded time
 *
 * The seed is printed, and decides what happens; when it happens to a job, the machine decides. Exit status 0: all
 * held; 1: it says what did not. Jobs are started with TEST_PRELOAD as LD_PRELOAD.
 */
#include "shim/accounting/gpu_account.h"
#include "test/preload/turns_soak.h"
#include "test/slow.h"
#include "test/unit/seed.h"

#include <dirent.h>
#include <getopt.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TOTAL "48MiB"

/* ns: a job that does nothing for so long, or does not end, never does; one that stays beside the turn of another. */
#define STUCK  (60000 * MS * TEST_SLOWNESS)
#define BESIDE (10000 * MS * TEST_SLOWNESS)
/*
 * After the account was damaged: a process that was stopped for 4 s meanwhile enters the new one then, and has to
 * leave.
 */
#define SETTLED (12000 * MS * TEST_SLOWNESS)
#define LOOK_US 5000

static struct job {
	pid_t pid;
	unsigned ends;              /* as told to it */
	uint64_t told;              /* when it was told to end */
	uint64_t stopped_until;     /* 0: it is not stopped */
	uint64_t seen, since;       /* operations, and when there were more of them last */
	uint64_t beside, of_beside; /* since when it runs beside the turn of another; kernels then */
	uint64_t turns;             /* at the beginning of the calm */
	bool closes;                /* files of the library's: the account is lost to it, without being damaged */
} jobs[SOAK_MOST];

static struct {
	uint64_t kills, stops, ends, damages, looks, over;
	uint64_t longest_end, longest_pause;
} counts;

static unsigned n_jobs = 4, seconds = 20;
static struct seed dice;
static struct soak *soak;
static int soak_fd;
static char folder[] = "/tmp/turns_soak-XXXXXX";
static char program[512];

static unsigned below(unsigned n)
{
	return (unsigned)seed_below(&dice, n);
}

/* ---- the account ---- */

static int open_account(char ret_path[512])
{
	char path[256];
	int fd = -1;

	snprintf(path, sizeof(path), "%s/spillway", folder);
	DIR *dir = opendir(path);
	for (struct dirent *entry; dir && fd < 0 && (entry = readdir(dir));)
		if (strstr(entry->d_name, GPU_ACCOUNT_TAIL)) {
			snprintf(ret_path, 512, "%s/%.200s", path, entry->d_name);
			fd = open(ret_path, O_RDWR | O_CLOEXEC);
		}
	if (dir)
		closedir(dir);
	return fd;
}

static bool is_alive(int fd, unsigned slot)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool read_account(struct account_page *ret_page)
{
	char path[512];
	int fd = open_account(path);
	bool good = fd >= 0 && pread(fd, ret_page, sizeof(*ret_page), 0) == (ssize_t)sizeof(*ret_page) &&
		    ret_page->head.file.bytes == sizeof(*ret_page) &&
		    ret_page->head.file.version == GPU_ACCOUNT_VERSION &&
		    ret_page->head.file.magic == GPU_ACCOUNT_MAGIC && ret_page->head.file.total;

	for (unsigned i = 0; good && i < GPU_ACCOUNT_MOST; i++)
		if (ret_page->slot[i].pid && !is_alive(fd, i))
			ret_page->slot[i].pid = 0;
	if (fd >= 0)
		close(fd);
	return good;
}

static void print_account(void)
{
	static struct account_page page;
	uint64_t now = test_now();

	if (!read_account(&page)) {
		printf("there is no account\n");
		return;
	}
	printf("total %llu, turn %llu: on %llu, slot %lld\n", (unsigned long long)page.head.file.total,
	       (unsigned long long)page.head.turn.number, (unsigned long long)page.head.turn.on,
	       (long long)page.head.turn.holder - 1);
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		const struct gpu_account_member *member = &page.slot[i];
		const struct gpu_turn_claim *claim = &member->claim;

		if (member->pid)
			printf(
			    "slot %u: process %llu may have %llu, holds %llu, needs %llu, stuck %llu; kind %llu, beat "
			    "%lld ms ago, moving %llu, away %llu, waits for %lld ms, turns %llu\n",
			    i, (unsigned long long)member->pid, (unsigned long long)member->may_have,
			    (unsigned long long)member->holds, (unsigned long long)member->needs,
			    (unsigned long long)member->stuck, (unsigned long long)claim->kind,
			    (long long)(now - claim->beat) / 1000000, (unsigned long long)claim->moving,
			    (unsigned long long)claim->away,
			    claim->waits ? (long long)(now - claim->waits) / 1000000 : 0, (unsigned long long)claim->n);
	}
}

static _Noreturn __attribute__((format(printf, 1, 2))) void wrong(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	printf("turns_soak: ");
	vprintf(format, list);
	printf("\n");
	va_end(list);
	print_account();
	for (unsigned i = 0; i < n_jobs; i++)
		printf("job %u: process %d, %llu operations, the last %lld ms ago\n", i, (int)jobs[i].pid,
		       (unsigned long long)atomic_load(&soak->jobs[i].operations),
		       (long long)(test_now() - jobs[i].since) / 1000000);
	printf("what the jobs said is in %s\n", folder);
	fflush(NULL);
	/* They are left to be looked at, if that is asked for. */
	for (unsigned i = 0; i < n_jobs && !getenv("SOAK_KEEP"); i++)
		if (jobs[i].pid)
			kill(jobs[i].pid, SIGKILL);
	_exit(1);
}

/* ---- jobs ---- */

static void start(unsigned i)
{
	static const char *const modes[] = {"exact", "fast"};
	static const char *const kinds[] = {"",     "", "", "", "clock", "clock,stall", "stall,refuse", "clock,stack",
					    "files"};
	char number[24], fd[16], seed[32], set[256], fails[64], log[256], runtime[128];
	unsigned failing = below(8), mode = below(2), kind = below(17) / 2, keeps = below(4);
	uint64_t own = seed_next(&dice);

	snprintf(number, sizeof(number), "%u", i);
	snprintf(fd, sizeof(fd), "%d", soak_fd);
	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)own);
	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=device.total=" TOTAL ",host.budget=%s,report.summary=no,share=turns,share.quantum=20ms,"
		 "host.share=off,spill.mode=%s",
		 keeps ? "256MiB" : "24MiB", modes[mode]);
	snprintf(fails, sizeof(fails), "SIM_FAIL_THREAD=spillway-mover:%u", failing ? 200 * failing : 20);
	snprintf(log, sizeof(log), "%s/log.%u", folder, i);
	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", folder);
	atomic_store(&soak->jobs[i].ends, SOAK_RUNS);
	atomic_store(&soak->jobs[i].disturbed, 0);
	jobs[i] = (struct job){.since = test_now(), .closes = kind == 8};
	fflush(NULL);
	jobs[i].pid = fork();
	if (jobs[i].pid)
		return;
	int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	dprintf(out, "-- %d: %s %s %s\n", (int)getpid(), set, fails, kinds[kind]);
	setenv("LD_PRELOAD", getenv("TEST_PRELOAD") ? getenv("TEST_PRELOAD") : "", 1);
	setenv("SIM_MEMORY", "256MiB", 1);
	setenv("SIM_HOST_MEMORY", "256MiB", 1);
	setenv("SIM_SEED", seed, 1);
	putenv(set);
	putenv(runtime);
	if (failing < 3)
		putenv(fails);
	execl(program, program, fd, number, seed, *kinds[kind] ? kinds[kind] : NULL, (char *)NULL);
	_exit(127);
}

static void told_to_end(unsigned i, unsigned how)
{
	jobs[i].ends = how;
	jobs[i].told = test_now();
	atomic_store(&soak->jobs[i].ends, how);
}

static void ended(unsigned i, int status)
{
	uint64_t took = test_now() - jobs[i].told;

	if (!jobs[i].ends || !WIFEXITED(status) || WEXITSTATUS(status))
		wrong("job %u, process %d, ended with status %#x", i, (int)jobs[i].pid, (unsigned)status);
	jobs[i].pid = 0;
	if (took > counts.longest_end)
		counts.longest_end = took;
}

/* ---- what must hold ---- */

static void check_progress(unsigned i, uint64_t now)
{
	struct job *job = &jobs[i];
	uint64_t operations = atomic_load(&soak->jobs[i].operations);

	if (operations != job->seen || job->stopped_until) {
		if (now - job->since > counts.longest_pause && !job->stopped_until)
			counts.longest_pause = now - job->since;
		job->seen = operations;
		job->since = now;
	}
	if (job->ends && now - job->told > STUCK && !job->stopped_until)
		wrong("job %u, process %d, does not end", i, (int)job->pid);
	if (now - job->since > STUCK)
		wrong("job %u, process %d, does not go on", i, (int)job->pid);
}

static const struct gpu_account_member *member_of(const struct account_page *page, unsigned i)
{
	for (unsigned j = 0; j < GPU_ACCOUNT_MOST; j++)
		if (page->slot[j].pid == (uint64_t)jobs[i].pid)
			return &page->slot[j];
	return NULL;
}

static void check_beside(const struct account_page *page, unsigned i, uint64_t now)
{
	const struct gpu_account_member *member = member_of(page, i);
	uint64_t holder = page->head.turn.holder; /* slot, and 1 */
	bool others =
	    holder && holder <= GPU_ACCOUNT_MOST && page->slot[holder - 1].pid && member != &page->slot[holder - 1];

	if (!member || !page->head.turn.on || !others || member->claim.away || member->claim.moving ||
	    member->claim.kind == GPU_TURN_OFF || now - member->claim.beat > GPU_TURN_SILENT / 2 ||
	    jobs[i].stopped_until) {
		jobs[i].beside = 0;
		return;
	}
	if (!jobs[i].beside) {
		jobs[i].beside = now;
		jobs[i].of_beside = atomic_load(&soak->jobs[i].kernels);
	}
	if (now - jobs[i].beside > BESIDE)
		wrong("job %u, process %d, runs beside the turn of another: %llu kernels", i, (int)jobs[i].pid,
		      (unsigned long long)(atomic_load(&soak->jobs[i].kernels) - jobs[i].of_beside));
}

/* What is read while it changes may be of two moments; what is wrong stays wrong. */
static void check_account(uint64_t now)
{
	static struct account_page page;
	bool holds = now - atomic_load(&soak->damaged) > SETTLED;

	counts.looks++;
	for (unsigned tries = 0; tries < 5; tries++) {
		uint64_t sum = 0;

		if (!read_account(&page))
			return;
		for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++)
			sum += page.slot[i].pid ? page.slot[i].may_have : 0;
		if (sum <= page.head.file.total)
			break;
		if (tries == 4 && holds)
			wrong("%llu bytes may be had", (unsigned long long)sum);
	}
	for (unsigned i = 0; i < n_jobs && holds; i++)
		check_beside(&page, i, now);
}

static void look(void)
{
	static uint64_t next_look;
	uint64_t now = test_now();

	for (unsigned i = 0; i < n_jobs; i++) {
		int status;

		if (!jobs[i].pid)
			continue;
		if (jobs[i].closes)
			atomic_store(&soak->damaged, now);
		if (jobs[i].stopped_until && now >= jobs[i].stopped_until) {
			atomic_store(&soak->jobs[i].disturbed, now);
			kill(jobs[i].pid, SIGCONT);
			jobs[i].stopped_until = 0;
			jobs[i].since = now;
		}
		if (waitpid(jobs[i].pid, &status, WNOHANG) == jobs[i].pid)
			ended(i, status);
		else
			check_progress(i, now);
	}
	if (now >= next_look) {
		check_account(now);
		next_look = now + 20 * MS;
	}
}

/* ---- what happens ---- */

static void kill_one(unsigned i)
{
	int status;

	kill(jobs[i].pid, SIGKILL);
	if (waitpid(jobs[i].pid, &status, 0) == jobs[i].pid && (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL))
		ended(i, status);
	jobs[i].pid = 0;
	counts.kills++;
}

/* Mostly short, at times longer than a process may be silent. */
static void stop_one(unsigned i)
{
	uint64_t ms = below(12) ? 1 + below(200) : 1500 + below(2500);

	atomic_store(&soak->jobs[i].disturbed, test_now());
	kill(jobs[i].pid, SIGSTOP);
	jobs[i].stopped_until = test_now() + ms * MS;
	counts.stops++;
}

static void damage(void)
{
	uint64_t words[4] = {seed_next(&dice), below(3), seed_next(&dice) >> below(64), UINT64_MAX};
	char path[512];
	int fd = open_account(path);
	unsigned how = below(8);

	if (fd < 0)
		return;
	atomic_store(&soak->damaged, test_now());
	if (how == 0)
		unlink(path);
	else if (how == 1)
		counts.over += ftruncate(fd, (off_t)below(2 * sizeof(struct account_page))) == 0;
	else if (how == 2)
		counts.over += pwrite(fd, words, sizeof(words), 0) > 0;
	else if (how < 5)
		counts.over += pwrite(fd, &words[below(4)], sizeof(*words),
				      (off_t)(offsetof(struct account_head, turn) + 8 * below(4))) > 0;
	else
		counts.over +=
		    pwrite(fd, &words[below(4)], sizeof(*words),
			   (off_t)(offsetof(struct account_page, slot) + below(4) * sizeof(struct gpu_account_member) +
				   8 * below(sizeof(struct gpu_account_member) / 8))) > 0;
	close(fd);
	atomic_store(&soak->damaged, test_now());
	counts.damages++;
}

static void happen(void)
{
	unsigned i = below(n_jobs), what = below(20);

	if (!jobs[i].pid) {
		start(i);
		return;
	}
	if (jobs[i].ends)
		return;
	if (what < 4)
		kill_one(i);
	else if (what < 12 && !jobs[i].stopped_until)
		stop_one(i);
	else if (what == 12 && !below(4))
		damage();
	else if (what < 15 && !jobs[i].stopped_until) {
		told_to_end(i, what == 13 ? SOAK_CHECKS_AND_ENDS : SOAK_ENDS_AT_ONCE);
		counts.ends++;
	}
}

/* Until the time is up, or all that is asked for holds. Returns whether it does. */
static bool look_until(uint64_t until, bool (*holds)(void))
{
	while (test_now() < until && !(holds && holds())) {
		look();
		usleep(LOOK_US);
	}
	return holds && holds();
}

static uint64_t turns_of(unsigned i)
{
	static struct account_page page;
	const struct gpu_account_member *member = read_account(&page) ? member_of(&page, i) : NULL;

	return member ? member->claim.n : 0;
}

/* A job whose driver has refused too much takes no part, and runs beside the others. */
static bool all_had_turns(void)
{
	static struct account_page page;

	if (!read_account(&page))
		return false;
	for (unsigned i = 0; i < n_jobs; i++) {
		const struct gpu_account_member *member = member_of(&page, i);

		if (!member || (member->claim.kind != GPU_TURN_OFF && member->claim.n < jobs[i].turns + 2))
			return false;
	}
	return true;
}

static bool all_have_ended(void)
{
	for (unsigned i = 0; i < n_jobs; i++)
		if (jobs[i].pid)
			return false;
	return true;
}

static void soak_for(uint64_t ns)
{
	uint64_t until = test_now() + ns;

	for (unsigned i = 0; i < n_jobs; i++)
		start(i);
	while (test_now() < until) {
		look_until(test_now() + (50 + below(500)) * MS, NULL);
		happen();
	}
}

/* Nothing happens any more, and all end: the trouble may have left some without turns for a minute, or for good. */
static void calm_down(void)
{
	atomic_store(&soak->calm, true);
	for (unsigned i = 0; i < n_jobs; i++)
		if (jobs[i].pid && !jobs[i].ends)
			told_to_end(i, SOAK_CHECKS_AND_ENDS);
	if (!look_until(test_now() + 2 * STUCK, all_have_ended))
		wrong("not all jobs end");
}

static void take_turns_at_last(void)
{
	for (unsigned i = 0; i < n_jobs; i++)
		start(i);
	for (unsigned i = 0; i < n_jobs; i++)
		jobs[i].turns = turns_of(i);
	if (!look_until(test_now() + 2 * STUCK, all_had_turns))
		wrong("not all jobs get turns");
	for (unsigned i = 0; i < n_jobs; i++)
		told_to_end(i, SOAK_CHECKS_AND_ENDS);
	if (!look_until(test_now() + 2 * STUCK, all_have_ended))
		wrong("not all jobs end");
}

static bool read_options(int argc, char **argv)
{
	static const struct option options[] = {{"seconds", required_argument, NULL, 't'},
						{"jobs", required_argument, NULL, 'j'},
						{"seed", required_argument, NULL, 's'},
						{NULL, 0, NULL, 0}};

	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
		if (option == 't')
			seconds = (unsigned)strtoul(optarg, NULL, 0);
		else if (option == 'j')
			n_jobs = (unsigned)strtoul(optarg, NULL, 0);
		else if (option != 's' || setenv("TEST_SEED", optarg, 1))
			return false;
	}
	return optind == argc && n_jobs && n_jobs <= SOAK_MOST;
}

static bool prepare(void)
{
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 8);

	if (n < 0)
		return false;
	snprintf(program + n, sizeof(program) - (size_t)n, "_job");
	soak_fd = memfd_create("soak", 0);
	/* GPUs of its own: an account that is in use is found in any place. */
	if (soak_fd < 0 || ftruncate(soak_fd, sizeof(*soak)) || !mkdtemp(folder) ||
	    setenv("SIM_UUID", folder + strlen(folder) - 6, 1))
		return false;
	soak = mmap(NULL, sizeof(*soak), PROT_READ | PROT_WRITE, MAP_SHARED, soak_fd, 0);
	return soak != MAP_FAILED;
}

static void remove_folder(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (system(command))
		printf("%s stays\n", folder);
}

int main(int argc, char **argv)
{
	uint64_t operations = 0, checks = 0, kernels = 0, troubles = 0;

	if (!read_options(argc, argv) || !prepare())
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	dice = seed_start("turns_soak");
	soak_for(seconds * 1000 * MS);
	calm_down();
	take_turns_at_last();
	for (unsigned i = 0; i < n_jobs; i++) {
		operations += atomic_load(&soak->jobs[i].operations);
		checks += atomic_load(&soak->jobs[i].checks);
		kernels += atomic_load(&soak->jobs[i].kernels);
		troubles += atomic_load(&soak->jobs[i].troubles);
	}
	printf("%u jobs, %llu operations, %llu kernels, %llu parts checked; %llu killed, %llu stopped, %llu ended, "
	       "account "
	       "damaged %llu times, %llu troubles of their own; longest without an operation %llu ms, longest end %llu "
	       "ms\n",
	       n_jobs, (unsigned long long)operations, (unsigned long long)kernels, (unsigned long long)checks,
	       (unsigned long long)counts.kills, (unsigned long long)counts.stops, (unsigned long long)counts.ends,
	       (unsigned long long)counts.damages, (unsigned long long)troubles,
	       (unsigned long long)(counts.longest_pause / MS), (unsigned long long)(counts.longest_end / MS));
	remove_folder();
	return 0;
}
