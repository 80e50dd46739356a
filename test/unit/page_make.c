// SPDX-License-Identifier: Apache-2.0
#include "test/unit/page_make.h"

#include "policy/policy.h"
#include "shim/accounting/gpu_account.h"
#include "shim/base/user_dir.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static char folder[64], inner[96];
static pid_t processes[128];
static unsigned n_processes;
static int account = -1;

static void must(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	abort();
}

void page_make_begin(void)
{
	snprintf(folder, sizeof(folder), "/tmp/page-test-XXXXXX");
	must(mkdtemp(folder) != NULL, "mkdtemp");
	snprintf(inner, sizeof(inner), "%s/spillway", folder);
	must(mkdir(inner, 0700) == 0, "mkdir");
	setenv("XDG_RUNTIME_DIR", folder, 1);
	user_dir_fallback = folder;
}

static void empty(const char *path)
{
	DIR *dir = opendir(path);

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		    unlinkat(dirfd(dir), entry->d_name, 0) != 0)
			unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
}

void page_make_end(void)
{
	for (; n_processes; n_processes--) {
		kill(processes[n_processes - 1], SIGKILL);
		waitpid(processes[n_processes - 1], NULL, 0);
	}
	if (account >= 0)
		close(account);
	account = -1;
	empty(inner);
	empty(folder);
	rmdir(folder);
}

const char *page_make_folder(void)
{
	return inner;
}

static void add(struct stats_figures *figures, uint64_t n)
{
	for (unsigned i = 0; i < FIGURE_COUNT; i++)
		figures->figure[i] += n * MIB;
	figures->figure[FIGURE_allocations] = n;
	figures->figure[FIGURE_refused] = 0;
	figures->figure[FIGURE_wait_us] = n * 1000000;
}

static void make_device(struct stats_device *device)
{
	strcpy(device->name, "Test GPU");
	memcpy(device->uuid, "0123456789abcdef", 16);
	device->total = 16 * GIB;
	device->budget = 12 * GIB;
	device->used = 9 * GIB;
	device->live[PLACE_DEVICE] = 8 * GIB;
	device->live[PLACE_HOST] = 5 * GIB;
	device->live[PLACE_DRIVER] = GIB;
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		device->fault[i] = STATS_NA;
	add(&device->figures, 30);
	device->known = 1;
}

static void make_site(struct stats_site *site, uint64_t rule, uint64_t n)
{
	site->caller = 0x1000 + n;
	site->rule = rule;
	site->least_bytes = n * MIB;
	snprintf(site->text, sizeof(site->text), "libtest.so+0x%llx", (unsigned long long)n);
	add(&site->figures, n);
	site->known = 2;
}

struct stats_page *page_make(pid_t pid)
{
	struct stats_page *page = aligned_alloc(STATS_ALIGN, sizeof(*page));

	memset((void *)page, 0, sizeof(*page));
	page->bytes = sizeof(*page);
	page->version = STATS_VERSION;
	page->magic = STATS_MAGIC;
	page->pid = (uint64_t)pid;
	page->started = user_dir_process_started(pid);
	page->identity = (uint64_t)pid << 32 | (uint32_t)page->started | 1;
	page->start_ns = 1700000000000000000;
	page->start_clock = test_now() - 100000000000;
	page->last_clock = page->start_clock + 90000000000;
	strcpy(page->command, "/usr/bin/python3 /home/u/train.py --token secret");
	strcpy(page->policy, "job.yaml");
	strcpy(page->policy_hash, "0123456789abcdef");
	strcpy(page->mode, "exact");
	strcpy(page->spillway, "1.2.3");
	page->host_budget = 64 * GIB;
	page->host_used = 6 * GIB;
	page->live[PLACE_DEVICE] = page->peak[PLACE_DEVICE] = 8 * GIB;
	page->live[PLACE_HOST] = page->peak[PLACE_HOST] = 5 * GIB;
	page->live[PLACE_DRIVER] = page->peak[PLACE_DRIVER] = GIB;
	for (unsigned i = 0; i < STAT_COUNT; i++)
		page->counter[i] = 1000 + i;
	/* These two are sums from which the share of what is there is missing (stats_page_get). */
	page->counter[STAT_over_us] = page->counter[STAT_host_time] = 0;
	for (unsigned i = 0; i < HISTOGRAM_COUNT; i++)
		page->histogram[i][page_bucket(1500)] = 4;
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		page->fault[i] = STATS_NA;
	make_device(&page->device[0]);
	add(&page->backend[0], 30);
	strcpy(page->rule[0].name, POLICY_NO_RULE);
	strcpy(page->rule[1].name, "optimizer");
	add(&page->rule[0].figures, 10);
	add(&page->rule[1].figures, 20);
	make_site(&page->site[7], 0, 10);
	make_site(&page->site[9], 1, 20);
	return page;
}

void page_make_lender(struct stats_page *page)
{
	struct stats_device *lender = &page->device[1];

	strcpy(lender->name, "Test GPU");
	memcpy(lender->uuid, "fedcba9876543210", 16);
	lender->total = 16 * GIB;
	lender->lent = 3 * GIB;
	lender->most_lent = 4 * GIB;
	for (unsigned i = 0; i < FAULT_COUNT; i++)
		lender->fault[i] = STATS_NA;
	lender->known = 1;
	page->device[0].live[PLACE_PEER] = page->live[PLACE_PEER] = 2 * GIB;
	page->device[0].link[1].kind = STATS_LINK_NVLINK;
	page->device[0].link[1].figure[LINK_IN] = 7 * GIB;
	page->device[0].link[1].figure[LINK_OUT] = 9 * GIB;
}

void page_make_grow(struct stats_page *page, unsigned seconds)
{
	if (page->device[1].known) {
		page->device[0].link[1].figure[LINK_IN] += seconds * 60 * MIB;
		page->device[0].link[1].figure[LINK_OUT] += seconds * 30 * MIB;
	}
	page->counter[STAT_moved_in_bytes] += seconds * 100 * MIB;
	page->counter[STAT_moved_out_bytes] += seconds * 50 * MIB;
	/* Three threads that wait at the same time, each for half of it. */
	page->counter[STAT_wait_us] += seconds * 1500000;
	page->counter[STAT_waiting_us] += seconds * 500000;
	page->rule[1].figures.figure[FIGURE_moved_in_bytes] += seconds * 100 * MIB;
	page->fault[FAULT_GPU] = page->fault[FAULT_GPU] == STATS_NA ? 0 : page->fault[FAULT_GPU] + seconds * 7;
	page->device[0].fault[FAULT_GPU] = page->fault[FAULT_GPU];
}

const char *page_make_name(const struct stats_page *page)
{
	static char name[64];

	snprintf(name, sizeof(name), "%llu-%llu" STATS_TAIL, (unsigned long long)page->pid,
		 (unsigned long long)page->started);
	return name;
}

static void write_bytes(const void *from, size_t bytes, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, from, bytes) == (ssize_t)bytes, path);
	close(fd);
}

void page_make_write_at(const struct stats_page *page, const char *path)
{
	write_bytes((const void *)page, sizeof(*page), path);
}

void page_make_write(const struct stats_page *page, size_t bytes)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", inner, page_make_name(page));
	write_bytes((const void *)page, bytes, path);
}

pid_t page_make_process(void)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	must(pid > 0 && n_processes < 128, "fork");
	processes[n_processes++] = pid;
	return pid;
}

void page_make_account(void)
{
	static struct account_page made;
	uint64_t now = test_now();
	char path[192];

	made.head = (struct account_head){.file = {.bytes = sizeof(made),
						   .version = GPU_ACCOUNT_VERSION,
						   .magic = GPU_ACCOUNT_MAGIC,
						   .total = 32 * GIB},
					  .turn = {.number = 7, .on = 1, .holder = 1, .since = now - 2000000000}};
	for (unsigned i = 0; i < 4; i++)
		made.slot[i] = (struct gpu_account_member){
		    .pid = 4000001 + i,
		    .may_have = i ? 3 * GIB : 26 * GIB,
		    .holds = i ? GIB : 20 * GIB,
		    .needs = 24 * GIB,
		    .claim = {.kind = i < 2 ? GPU_TURN_ON : GPU_TURN_OFF,
			      .weight = i ? 1 : 3,
			      .beat = now,
			      .away = i == 1,
			      .waits = i == 1 ? now - 5000000000 : 0,
			      .got = i ? 20000000000 : 30000000000,
			      .cost = 1500000000,
			      .n = 11 + i},
		};
	snprintf(path, sizeof(path), "%s/gpu-abcdefabcdefabcdefabcdefabcdefab.account", inner);
	account = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(account >= 0 && write(account, &made, sizeof(made)) == (ssize_t)sizeof(made), "account");
	/* Those of the first three slots are alive. */
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 3};
	must(fcntl(account, F_OFD_SETLK, &lock) == 0, "lock");
}
