// SPDX-License-Identifier: Apache-2.0
/*
 * turns_soak_job: one of the processes of a soak of turns (turns_soak.c): random work on some blocks, of whose contents
 * it keeps a model; every byte that it reads is compared. Beside the work a thread makes trouble: the host has no
 * memory, calls of the driver fail or stand still, the process suspends itself, or ends in the midst of its work. What
 * befalls all kinds of programs is that of trouble.h.
 *
 *   turns_soak_job FD NUMBER SEED [KINDS]
 *
 * FD: the shared page (turns_soak.h), in which it is job NUMBER. KINDS: as --trouble of other programs.
 * Exit status 0: told to end, all right; 1: it says on standard error what is wrong.
 *
 * While a kernel runs it looks into the account: a process that has published there that its memory is away, and not
 * that it is just coming back, must not run anything.
 */
#include "shim/accounting/gpu_account.h"
#include "shim/spillway.h"
#include "test/preload/driver.h"
#include "test/preload/trouble.h"
#include "test/preload/turns_soak.h"
#include "test/slow.h"
#include "test/unit/seed.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { BLOCKS = 7, PARTS = 16, BATCH = 12 };
#define PART        ((size_t)256 << 10)
#define WORDS       (PART / sizeof(uint32_t))
#define HOST_MEMORY (256 * MIB)

/* A part has the same word everywhere. */
static struct block {
	CUdeviceptr at; /* 0: none */
	unsigned n;
	uint32_t words[PARTS];
} blocks[BLOCKS];

static struct soak *soak;
static struct soak_job *self;
static struct seed dice, trouble_dice;
static uint32_t host[WORDS];
static CUfunction fill, copy;
static CUstream streams[2];
static atomic_bool ending;

static _Noreturn void wrong(const char *what, unsigned long long one, unsigned long long other)
{
	/* The process ends in another thread: what the driver answers then means nothing. */
	while (atomic_load(&ending))
		pause();
	fprintf(trouble_errors, "turns_soak_job %d: %s: %llx %llx\n", (int)getpid(), what, one, other);
	fflush(NULL);
	_exit(1);
}

static void must(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS)
		wrong(call, (unsigned)result, 0);
}

#define NEED(call) must(call, #call)

/* ---- the account, as a kernel sees it ---- */

/* Kernels of both streams may look at the same time. */
static pthread_mutex_t account_lock = PTHREAD_MUTEX_INITIALIZER;
static int account = -1;
static unsigned slot = GPU_ACCOUNT_MOST;

static void open_account(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/spillway", getenv("XDG_RUNTIME_DIR"));
	DIR *dir = opendir(path);
	for (struct dirent *entry; dir && account < 0 && (entry = readdir(dir));)
		if (strstr(entry->d_name, GPU_ACCOUNT_TAIL))
			account = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC);
	if (dir)
		closedir(dir);
	slot = GPU_ACCOUNT_MOST;
}

static bool read_slot(unsigned i, struct gpu_account_member *ret_member)
{
	return pread(account, ret_member, sizeof(*ret_member),
		     (off_t)(offsetof(struct account_page, slot) + i * sizeof(struct gpu_account_member))) ==
		   (ssize_t)sizeof(*ret_member) &&
	       ret_member->pid == (uint64_t)getpid();
}

/* Returns whether this process has published that it is away. */
static bool says_away(struct gpu_account_member *ret_member)
{
	struct stat status;

	if (account >= 0 && (fstat(account, &status) || !status.st_nlink)) {
		close(account);
		account = -1;
	}
	if (account < 0)
		open_account();
	if (account < 0)
		return false;
	if (slot == GPU_ACCOUNT_MOST || !read_slot(slot, ret_member))
		for (slot = 0; slot < GPU_ACCOUNT_MOST && !read_slot(slot, ret_member); slot++)
			;
	return slot < GPU_ACCOUNT_MOST && ret_member->claim.away && !ret_member->claim.moving &&
	       ret_member->claim.kind != GPU_TURN_OFF;
}

/* The slot is still the library's, and nobody has written there for us lately. */
static bool is_trusted(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};
	uint64_t now = test_now();

	return fcntl(account, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
	       now - atomic_load(&soak->damaged) > 3000000000u && now - atomic_load(&self->disturbed) > 3000000000u;
}

static bool look_at_account(struct gpu_account_member *ret_member)
{
	pthread_mutex_lock(&account_lock);
	bool away = says_away(ret_member);
	pthread_mutex_unlock(&account_lock);
	return away;
}

static void begin_kernel(bool *ret_away)
{
	struct gpu_account_member member;

	*ret_away = look_at_account(&member);
	atomic_fetch_add(&self->kernels, 1);
}

static void end_kernel(bool was_away)
{
	struct gpu_account_member member;

	if (was_away && look_at_account(&member) && is_trusted())
		wrong("a kernel runs while this process is away; beat, turns", member.claim.beat, member.claim.n);
}

/* ---- kernels ---- */

static void fill_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = *(uint32_t **)args[0], word = *(uint32_t *)args[1];
	size_t n = *(size_t *)args[2];
	bool away;

	begin_kernel(&away);
	for (size_t i = 0; i < n; i++)
		at[i] = word;
	end_kernel(away);
}

static void copy_body(const struct sim_launch *launch, void **args)
{
	bool away;

	begin_kernel(&away);
	memmove(*(void **)args[0], *(void **)args[1], *(size_t *)args[2] * sizeof(uint32_t));
	end_kernel(away);
}

SIM_MODULE(image, SIM_KERNEL("fill", fill_body, 8, 4, 8), SIM_KERNEL("copy", copy_body, 8, 8, 8));

static void load(void)
{
	fill = driver_function(&image, "fill");
	copy = driver_function(&image, "copy");
	streams[0] = NULL;
	NEED(cu.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
}

/* ---- work ---- */

static unsigned below(unsigned n)
{
	return (unsigned)seed_below(&dice, n);
}

static void fill_parts(CUstream stream, struct block *block, unsigned first, unsigned n)
{
	CUdeviceptr at = block->at + first * PART;
	uint32_t word = (uint32_t)seed_next(&dice);
	size_t words = n * WORDS;
	void *params[] = {&at, &word, &words};

	NEED(cu.cuLaunchKernel(fill, 64, 1, 1, 256, 1, 1, 0, stream, params, NULL));
	for (unsigned i = 0; i < n; i++)
		block->words[first + i] = word;
}

static void copy_part(CUstream stream, struct block *to, unsigned i, const struct block *from, unsigned j)
{
	CUdeviceptr there = to->at + i * PART, here = from->at + j * PART;
	size_t words = WORDS;
	void *params[] = {&there, &here, &words};

	NEED(cu.cuLaunchKernel(copy, 64, 1, 1, 256, 1, 1, 0, stream, params, NULL));
	to->words[i] = from->words[j];
}

/* The next two are not in the order of the stream that the others use. */
static void write_part(struct block *block, unsigned i)
{
	uint32_t word = (uint32_t)seed_next(&dice);

	NEED(cu.cuCtxSynchronize());
	for (size_t j = 0; j < WORDS; j++)
		host[j] = word;
	NEED(cu.cuMemcpyHtoD_v2(block->at + i * PART, host, PART));
	block->words[i] = word;
}

static void set_part(struct block *block, unsigned i)
{
	NEED(cu.cuCtxSynchronize());
	block->words[i] = (uint32_t)seed_next(&dice);
	NEED(cu.cuMemsetD32_v2(block->at + i * PART, block->words[i], WORDS));
	NEED(cu.cuCtxSynchronize());
}

static void check_part(const struct block *block, unsigned i)
{
	NEED(cu.cuMemcpyDtoH_v2(host, block->at + i * PART, PART));
	for (size_t j = 0; j < WORDS; j++)
		if (host[j] != block->words[i])
			wrong("wrong word, and what should be there", host[j], block->words[i]);
	atomic_fetch_add(&self->checks, 1);
}

/* Calls fail by order: an allocation may find no memory. */
static void allocate(struct block *block)
{
	block->n = 8 + below(PARTS - 8 + 1);
	if (cu.cuMemAlloc_v2(&block->at, block->n * PART) != CUDA_SUCCESS) {
		block->at = 0;
		return;
	}
	fill_parts(NULL, block, 0, block->n);
	NEED(cu.cuCtxSynchronize());
}

static void let_go(struct block *block)
{
	if (!block->at)
		return;
	/* A refused free either happened or did not: the second try says which. */
	if (cu.cuMemFree_v2(block->at) != CUDA_SUCCESS)
		cu.cuMemFree_v2(block->at);
	block->at = 0;
}

static void check_all(void)
{
	NEED(cu.cuCtxSynchronize());
	for (unsigned i = 0; i < BLOCKS; i++)
		for (unsigned j = 0; blocks[i].at && j < blocks[i].n; j++)
			check_part(&blocks[i], j);
}

static void operate(CUstream stream)
{
	struct block *block = &blocks[below(BLOCKS)], *other = &blocks[below(BLOCKS)];
	unsigned what = below(16);

	if (!block->at) {
		allocate(block);
		return;
	}
	unsigned part = below(block->n);
	if (what < 7)
		fill_parts(stream, block, part, 1 + below(block->n - part));
	else if (what < 13 && other->at && (other != block || below(2)))
		copy_part(stream, other, below(other->n), block, part);
	else if (what < 14)
		write_part(block, part);
	else
		set_part(block, part);
}

static void batch(void)
{
	CUstream stream = streams[below(2)];

	for (unsigned i = 1 + below(BATCH); i; i--) {
		operate(stream);
		atomic_fetch_add(&self->operations, 1);
		trouble_step();
	}
	NEED(cu.cuStreamSynchronize(stream));
	for (unsigned i = 0; i < 2; i++) {
		struct block *block = &blocks[below(BLOCKS)];

		if (block->at)
			check_part(block, below(block->n));
	}
	if (!below(30))
		let_go(&blocks[below(BLOCKS)]);
	if (!below(60))
		check_all();
	/* Then it ends its turn, if another waits. */
	if (!below(25))
		usleep(below(60000));
}

/* ---- trouble ---- */

static unsigned trouble_below(unsigned n)
{
	return (unsigned)seed_below(&trouble_dice, n);
}

/* All calls of that entry point from now on, so many times; 0: no more of them. */
static void refuse(const char *name, unsigned times)
{
	CUdevice device;

	sim_fail_then("cuDeviceGet", 1, CUDA_ERROR_UNKNOWN, name, times);
	cu.cuDeviceGet(&device, 0);
}

static void pass(unsigned ms)
{
	for (unsigned i = 0; i < ms && !atomic_load(&self->ends); i += 10)
		usleep(10000);
}

/* A try that fails is over; natively there is nothing to suspend. */
static void suspend_for(unsigned ms)
{
	if (spillway_suspend && spillway_suspend() == 0)
		pass(ms);
	if (spillway_resume)
		spillway_resume();
}

static void make_trouble(void)
{
	static const char *const names[] = {"cuMemCreate",          "cuMemMap",     "cuMemUnmap",   "cuMemSetAccess",
					    "cuMemcpyDtoDAsync_v2", "cuMemRelease", "cuEventRecord"};
	const char *name = names[trouble_below(sizeof(names) / sizeof(names[0]))];

	switch (trouble_below(8)) {
	case 0:
		sim_switch("HOST_MEMORY", trouble_below(64) * MIB);
		pass(trouble_below(400));
		sim_switch("HOST_MEMORY", HOST_MEMORY);
		return;
	case 1:
		sim_fail_any(1 + trouble_below(40), CUDA_ERROR_OUT_OF_MEMORY);
		return;
	case 2:
		sim_fail(name, 1 + trouble_below(5), trouble_below(2) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
		return;
	case 3:
		/* For less than the mover goes on trying. */
		refuse(name, 1 + trouble_below(20));
		pass(trouble_below(60));
		refuse(name, 0);
		return;
	case 4:
		/* What does not go back to the driver: the suspension fails. */
		refuse("cuMemRelease", 1000000);
		if (spillway_suspend)
			spillway_suspend();
		refuse("cuMemRelease", 0);
		suspend_for(0);
		return;
	case 5:
		suspend_for(trouble_below(300));
		return;
	case 6:
		sim_switch("PIN_US", trouble_below(4) * 1000);
		return;
	default:
		sim_stall_at(name, 1 + trouble_below(5));
		pass(trouble_below(300));
		sim_go_on();
		return;
	}
}

static void *beside(void *argument)
{
	NEED(cu.cuCtxSetCurrent(argument));
	for (;;) {
		pass(20 + trouble_below(300));
		if (atomic_load(&self->ends) == SOAK_ENDS_AT_ONCE) {
			atomic_store(&ending, true);
			exit(0);
		}
		if (atomic_load(&soak->calm) || atomic_load(&self->ends)) {
			usleep(10000);
			continue;
		}
		make_trouble();
		atomic_fetch_add(&self->troubles, 1);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc < 4 || (argc > 4 && !trouble_read(argv[4])))
		return 2;
	uint64_t number = strtoull(argv[3], NULL, 0);
	soak = mmap(NULL, sizeof(*soak), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
	if (soak == MAP_FAILED)
		return 2;
	self = &soak->jobs[strtoul(argv[2], NULL, 0) % SOAK_MOST];
	dice.state = number;
	trouble_dice.state = ~number;
	trouble_begin(number);
	CUcontext context = driver_start(0);
	load();
	for (unsigned i = 0; i < BLOCKS; i++)
		allocate(&blocks[i]);
	NEED(cu.cuCtxSynchronize());
	if (trouble_thread(&thread, beside, context))
		return 2;
	while (atomic_load(&self->ends) != SOAK_CHECKS_AND_ENDS)
		batch();
	check_all();
	atomic_store(&ending, true);
	return sim_broken_rules() ? 1 : 0;
}
