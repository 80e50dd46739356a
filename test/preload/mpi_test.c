// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA-aware MPI (mpi.h) under the library: two processes, each with a GPU of its own and half of the device memory
 * that it uses, send each other the contents of blocks of all sizes and add them up, while kernels beside it use
 * everything else. Natively first: what it expects is what the driver does. Every byte is looked at; a watchdog ends
 * what hangs.
 */
#include "test/preload/folder.h"
#include "test/preload/child.h"
#include "test/preload/mpi.h"
#include "test/test.h"

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* Half of what each of the two uses; so the first blocks get the device where nothing moves. */
#define SET "SPILLWAY_SET=report.summary=no,device.budget=24MiB,host.budget=160MiB,heap.chunk=2MiB,spill.mode=%s%s"
enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 60 };

static int rank;

static bool is_native(void)
{
	return !strcmp(getenv("SPILL_MODE"), "native") || (rank && getenv("RANK_1"));
}

static bool moves(void)
{
	return !is_native() && strcmp(getenv("SPILL_MODE"), "static") != 0;
}

/* ---- two ranks ---- */

static void (*part_of_both)(void);

/* Rank 1 is a process that was made before either has used the driver. */
static void both(void)
{
	unsigned left = alarm(0);
	int status = 0;

	alarm(left);
	mpi_share();
	pid_t pid = fork();
	if (!pid) {
		alarm(left);
		rank = 1;
		if (getenv("RANK_1"))
			setenv("SPILLWAY", getenv("RANK_1"), 1);
	}
	part_of_both();
	if (pid)
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run_both(void (*part)(void), const char *more, const char *setting)
{
	char set[256];

	snprintf(set, sizeof(set), SET, getenv("SPILL_MODE"), more);
	if (is_native())
		snprintf(set, sizeof(set), "NOTHING=1");
	const char *const settings[] = {
	    "SIM_DEVICES=2", "SIM_MEMORY=128MiB", "SIM_HOST_MEMORY=512MiB", "SIM_FILL=0", set, setting, NULL};
	part_of_both = part;
	child_passes(settings, both);
}

/* ---- what is sent ---- */

static unsigned word_of(unsigned value, size_t k)
{
	return value ^ (unsigned)k * 0x9E3779B1u;
}

static void ramp_body(const struct sim_launch *launch, void **args)
{
	unsigned *at = *(unsigned **)args[0], value = *(unsigned *)args[1];
	size_t n = *(size_t *)args[2];

	for (size_t k = 0; k < n; k++)
		at[k] = word_of(value, k);
}

SIM_MODULE(image, SIM_KERNEL("ramp", ramp_body, sizeof(CUdeviceptr), sizeof(unsigned), sizeof(size_t)));
static CUfunction ramp_kernel;

static void ramp(void *at, unsigned value, size_t n)
{
	void *params[] = {&at, &value, &n};

	MUST(cu.cuLaunchKernel(ramp_kernel, 64, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
}

static void is_ramp(const void *at, unsigned value, size_t n, unsigned factor)
{
	unsigned *words = malloc(n * 4);

	/* Of any kind of memory. */
	MUST(cuMemcpy((CUdeviceptr)(uintptr_t)words, (CUdeviceptr)(uintptr_t)at, n * 4));
	for (size_t k = 0; k < n; k++)
		CHECK(words[k] == word_of(value, k) * factor);
	free(words);
}

/* ---- the blocks ---- */

enum home { DEVICE, HOST, PINNED, MANAGED };

static struct mail {
	enum home home;
	size_t bytes;
	size_t front; /* what lies before it in its block, and behind it */
	char *send, *receive;
} mail[] = {
    {DEVICE, 512, 0, NULL, NULL},      {DEVICE, 3000, 0, NULL, NULL},          {DEVICE, 96 << 10, 4, NULL, NULL},
    {DEVICE, 2 * MIB, 0, NULL, NULL},  {DEVICE, 3 * MIB + 4, 256, NULL, NULL}, {DEVICE, 9 * MIB, 0, NULL, NULL},
    {HOST, 100 << 10, 12, NULL, NULL}, {PINNED, 300 << 10, 0, NULL, NULL},     {MANAGED, 300 << 10, 8, NULL, NULL},
};
enum { MAIL = sizeof(mail) / sizeof(mail[0]), BALLAST = 4 };
#define BALLAST_BYTES (5 * MIB)

static CUdeviceptr ballast[BALLAST];

static char *allocate(enum home home, size_t bytes)
{
	CUdeviceptr block;
	void *host;

	switch (home) {
	case DEVICE:
		return (char *)(uintptr_t)child_alloc(bytes);
	case HOST:
		return malloc(bytes);
	case PINNED:
		MUST(cu.cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE));
		return host;
	default:
		MUST(cu.cuMemAllocManaged(&block, bytes, CU_MEM_ATTACH_GLOBAL));
		return (char *)(uintptr_t)block;
	}
}

static void release(enum home home, char *at)
{
	if (home == HOST)
		free(at);
	else if (home == PINNED)
		MUST(cu.cuMemFreeHost(at));
	else
		MUST(cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)at));
}

static void allocate_ballast(void)
{
	for (int i = 0; i < BALLAST; i++)
		ballast[i] = child_alloc(BALLAST_BYTES);
}

static void begin(void)
{
	driver_start(rank);
	ramp_kernel = driver_function(&image, "ramp");
	mpi_start(rank);
	if (getenv("SPILLWAY_POLICY"))
		allocate_ballast();
	for (struct mail *m = mail; m < mail + MAIL; m++) {
		m->send = allocate(m->home, m->bytes + 2 * m->front) + m->front;
		m->receive = allocate(m->home, m->bytes + 2 * m->front) + m->front;
	}
	if (!getenv("SPILLWAY_POLICY"))
		allocate_ballast();
}

static void end(void)
{
	for (struct mail *m = mail; m < mail + MAIL; m++) {
		release(m->home, m->send - m->front);
		release(m->home, m->receive - m->front);
	}
	for (int i = 0; i < BALLAST; i++)
		MUST(cu.cuMemFree_v2(ballast[i]));
	mpi_end();
	MUST(cu.cuCtxSynchronize());
	CHECK(sim_broken_rules() == 0);
}

/* Where the memory of the blocks lies now, as letters. */
static void look(char *ret, size_t room)
{
	size_t n = 0;

	for (int i = 0; i < BALLAST; i++)
		for (size_t at = 0; at < BALLAST_BYTES && n < room; at += MIB)
			ret[n++] = sim_where(ballast[i] + at);
	for (struct mail *m = mail; m < mail + MAIL; m++)
		for (size_t at = 0; m->home == DEVICE && at < m->bytes && n < room; at += MIB) {
			ret[n++] = sim_where((CUdeviceptr)(uintptr_t)m->send + at);
			ret[n++] = sim_where((CUdeviceptr)(uintptr_t)m->receive + at);
		}
	while (n < room)
		ret[n++] = 0;
}

/* ---- rounds ---- */

static unsigned value_of(int of_rank, unsigned round, int i)
{
	return (unsigned)of_rank << 30 | round << 16 | (unsigned)i << 8;
}

static void write_mail(struct mail *m, unsigned value)
{
	if (m->home == DEVICE || m->home == MANAGED) {
		ramp(m->send, value, m->bytes / 4);
		ramp(m->receive, ~value, m->bytes / 4);
		return;
	}
	for (size_t k = 0; k < m->bytes / 4; k++)
		((unsigned *)m->send)[k] = word_of(value, k);
	memset(m->receive, 0x55, m->bytes);
}

static void use_ballast(unsigned round)
{
	for (int i = 0; i < BALLAST; i++)
		MUST(driver_fill(NULL, ballast[i], round * BALLAST + (unsigned)i, BALLAST_BYTES / 4));
}

static void mail_round(unsigned round)
{
	struct mpi_request *sends[MAIL], *receives[MAIL];

	for (int i = 0; i < MAIL; i++)
		write_mail(&mail[i], value_of(rank, round, i));
	/* A program waits for what it sends. */
	MUST(cu.cuStreamSynchronize(NULL));
	for (int i = 0; i < MAIL; i++) {
		sends[i] = mpi_send(mail[i].send, mail[i].bytes, (unsigned)i);
		receives[i] = mpi_receive(mail[i].receive, mail[i].bytes, (unsigned)i);
	}
	for (int i = 0; i < 3; i++)
		use_ballast(round);
	for (int i = 0; i < MAIL; i++) {
		mpi_wait(receives[i]);
		mpi_wait(sends[i]);
	}
	for (int i = 0; i < MAIL; i++) {
		is_ramp(mail[i].receive, value_of(1 - rank, round, i), mail[i].bytes / 4, 1);
		is_ramp(mail[i].send, value_of(rank, round, i), mail[i].bytes / 4, 1);
	}
	for (int i = 0; i < BALLAST; i++)
		CHECK(driver_holds(ballast[i], round * BALLAST + (unsigned)i, BALLAST_BYTES / 4));
}

static void sum_round(unsigned round)
{
	for (int i = 0; i < MAIL; i++) {
		write_mail(&mail[i], round);
		MUST(cu.cuStreamSynchronize(NULL));
		if (mail[i].home == DEVICE && (i + (int)round) % 2)
			mpi_sum_on_device((CUdeviceptr)(uintptr_t)mail[i].send, mail[i].bytes / 4);
		else
			mpi_sum(mail[i].send, mail[i].bytes / 4);
		is_ramp(mail[i].send, round, mail[i].bytes / 4, 2);
	}
}

/* A block ends and another begins, where it lay as a rule: nobody may take one for the other. */
static void replace_one(unsigned round)
{
	struct mail *m = &mail[round % 6];
	uint64_t id = driver_attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)m->send);
	release(m->home, m->send - m->front);
	m->send = allocate(m->home, m->bytes + 2 * m->front) + m->front;
	CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)m->send) != id);
}

/* Both go on until both have seen something move. */
static bool both_have(bool seen)
{
	unsigned n = seen;

	mpi_sum(&n, 1);
	return n == 2;
}

static struct mpi_counts exchanges(void)
{
	static char before[128], now[sizeof(before)];
	bool moved = !moves();

	begin();
	look(before, sizeof(before));
	if (!is_native())
		CHECK(memchr(before, 'H', sizeof(before)) && memchr(before, 'D', sizeof(before)));
	for (unsigned round = 0; round < MOST_ROUNDS; round++) {
		mail_round(round);
		sum_round(round);
		if (getenv("REPLACES"))
			replace_one(round);
		else
			look(now, sizeof(now));
		moved = moved || getenv("REPLACES") || memcmp(now, before, sizeof(now)) != 0;
		if (round + 1 >= LEAST_ROUNDS && both_have(moved))
			break;
	}
	CHECK(moved);
	end();
	return mpi_counts();
}

/* ---- what a test expects of the way it went ---- */

static void goes_in_two_copies(void)
{
	struct mpi_counts n = exchanges();

	CHECK(n.one_copy == 0 && n.two_copies > 6 * LEAST_ROUNDS && n.host > 2 * LEAST_ROUNDS);
	/*
	 * What cannot be given does not say that it can; natively it can, and the model has no process that can take
	 * it.
	 */
	CHECK(is_native() ? n.gave && n.capable && n.opened_not : !n.gave && n.gave_not && !n.capable);
}

static void goes_in_one_copy(void)
{
	struct mpi_counts n = exchanges();

	if (is_native())
		return;
	CHECK(n.one_copy > 6 * LEAST_ROUNDS && n.opened && !n.opened_not);
	CHECK(n.gave && n.capable);
}

/*
 * What never moves: some of it on the device, and some that found no room there. Such memory can be retained as a
 * handle, and says that it is on the device whose memory it was asked for.
 */
PART_TEST(what_never_moves_goes_in_one_without_it, if (!is_native()) run_both(part, "", "SPILLWAY_POLICY=" MPI_POLICY))
{
	struct mpi_counts n = exchanges();

	CHECK(n.one_copy && n.two_copies && n.gave && n.gave_not && n.opened && !n.opened_not && n.retained);
}

static void is_refused_and_arrives(void)
{
	struct mpi_counts n = exchanges();

	CHECK(n.two_copies && n.opened_not);
}

TEST(without_ipc_everything_arrives_in_two_copies)
{
	run_both(goes_in_two_copies, "", "NOTHING=");
	run_both(goes_in_two_copies, "", "REPLACES=1");
}

TEST(with_ipc_in_one)
{
	run_both(goes_in_one_copy, ",ipc=yes", "NOTHING=");
	run_both(goes_in_one_copy, ",ipc=yes", "REPLACES=1");
}

TEST(where_gpus_do_not_reach_each_other_it_arrives_too)
{
	if (!is_native())
		run_both(is_refused_and_arrives, ",ipc=yes", "SIM_PEERS=none");
}

TEST(one_side_without_spillway_does_no_harm)
{
	if (!is_native())
		run_both(is_refused_and_arrives, ",ipc=yes", "RANK_1=0");
}

GROUP(folder_make_for_all, folder_remove)

int main(void)
{
	if (!getenv("SPILL_MODE"))
		setenv("SPILL_MODE", "static", 1);
	return test_run();
}
