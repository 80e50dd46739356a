// SPDX-License-Identifier: Apache-2.0
/*
 * managed_random_test.c: a made-up program in which CPU and GPU take turns on many blocks of managed memory that is on
 * the heap. Where the kernel refuses userfaultfd() the CPU has a block until the GPU's first use of it, or of one that
 * points to it; else it touches them at any time. Two threads, linked blocks, graphs, functions of the host, frees,
 * prefetches, forks, suspensions, blocked signals, calls that fail, touches that come too late. Every byte is checked
 * against a copy. And chains of blocks that two threads use first, while a third one takes memory and launches are
 * refused. The seed is printed; MANAGED_SEED sets it, MANAGED_STEPS how many steps.
 */
#include "shim/spillway.h"
#include "test/preload/managed_heap_help.h"

#include <sys/mman.h>

#define BLOCKS_EACH 14
#define HEAD        64 /* bytes that hold the link and a counter, and are written by no fill */

struct block_of {
	CUdeviceptr at;
	size_t bytes;
	unsigned char *copy; /* what it must hold */
	bool gpus;
	struct block_of *link; /* that the first word points to; NULL: none, or one that was freed */
	uint64_t number, link_number;
};

struct player {
	uint64_t random;
	unsigned number;
	CUstream stream;
	CUfunction follow;
	struct block_of block[BLOCKS_EACH];
	uint64_t n_made;
	CUgraphExec graph; /* writes the first word of this block behind its head; NULL: there is none */
	struct block_of *of_graph;
	uint64_t number_of_graph;
	uint32_t by_graph;
	bool deaf; /* all signals are blocked */
};

static unsigned n_steps = 250;
static bool touches; /* the CPU has access to what the GPU has used */
static pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
#define PAGE ((uintptr_t)sysconf(_SC_PAGESIZE))
static volatile uintptr_t late_page;
static volatile int n_late;

static uint64_t draw(struct player *player, uint64_t below)
{
	player->random = player->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (player->random >> 33) % below;
}

/* Two of them make no address. */
static uint32_t value(struct player *player)
{
	return 0x7f000000u | (uint32_t)draw(player, 1 << 24);
}

/* Adds one to the counter of the block that the first word points to. */
static void follow_body(const struct sim_launch *launch, void **args)
{
	const uint64_t *head = *(const uint64_t **)args[0];
	uint64_t *target = sim_pointer(head[0]);

	target[1]++;
}

static const size_t follow_params[] = {8};
static const struct sim_kernel follow_kernel = {"follow", follow_body, 1, follow_params};
static const struct sim_module follow_module = {SIM_MODULE_MAGIC, 1, &follow_kernel};

static struct block_of *linked(struct block_of *block)
{
	return block->link && block->link->at && block->link->number == block->link_number ? block->link : NULL;
}

/*
 * The first use takes along what the first word points to, whatever is there now.
 */
static void use(struct player *player, struct block_of *block)
{
	while (block && !block->gpus) {
		uint64_t word;

		block->gpus = true;
		memcpy(&word, block->copy, sizeof(word));
		block = NULL;
		for (int i = 0; i < BLOCKS_EACH; i++)
			if (word && player->block[i].at == word)
				block = &player->block[i];
	}
}

static struct block_of *any(struct player *player)
{
	return &player->block[draw(player, BLOCKS_EACH)];
}

static void make(struct player *player, struct block_of *block)
{
	static const size_t sizes[] = {4096, 70000, MIB, 2 * MIB, 2 * MIB + 8, 5 * MIB};

	*block = (struct block_of){.bytes = sizes[draw(player, 6)], .number = ++player->n_made};
	block->at = driver_managed(block->bytes);
	block->copy = calloc(1, block->bytes);
	CHECK(block->copy);
	/* All of it, so that nothing has to be known of pages that were never written. */
	memset((void *)block->at, 0, block->bytes);
}

static void range(struct player *player, const struct block_of *block, size_t *begin, size_t *n)
{
	size_t all = (block->bytes - HEAD) / 4;

	*begin = draw(player, all);
	*n = 1 + draw(player, all - *begin < 300000 ? all - *begin : 300000);
}

static void put(struct block_of *block, size_t begin, size_t n, uint32_t word)
{
	for (size_t i = begin; i < begin + n; i++)
		memcpy(block->copy + HEAD + i * 4, &word, 4);
}

static void check_by_gpu(struct player *player, struct block_of *block)
{
	unsigned char *back = malloc(block->bytes);

	CHECK(back);
	MUST(cu.cuStreamSynchronize(player->stream));
	MUST(cu.cuMemcpyDtoH_v2(back, block->at, block->bytes));
	use(player, block);
	CHECK(!memcmp(back, block->copy, block->bytes));
	free(back);
}

static void unlink_from(struct block_of *block)
{
	memset(block->copy, 0, sizeof(block->at));
	memset((void *)block->at, 0, sizeof(block->at));
}

static void end_block(struct player *player, struct block_of *block)
{
	if (draw(player, 2) || !block->gpus) {
		if (block->gpus && !touches)
			check_by_gpu(player, block);
		else
			CHECK(!memcmp((void *)block->at, block->copy, block->bytes));
	}
	/* What was left pointing there would take along a block of the other thread that comes to this address. */
	for (int i = 0; i < BLOCKS_EACH; i++) {
		struct block_of *other = &player->block[i];

		if (other->at && (!other->gpus || touches) && !memcmp(other->copy, &block->at, sizeof(block->at)))
			unlink_from(other);
	}
	MUST(cu.cuMemFree_v2(block->at));
	free(block->copy);
	block->at = 0;
}

/* The handler gives access, as those of programs that keep track of pages do, and returns. */
static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if ((uintptr_t)info->si_addr - late_page >= PAGE)
		_exit(dprintf(2, "fault at %p, code %d, expected at %#lx\n", info->si_addr, info->si_code,
			      (unsigned long)late_page));
	n_late++;
	mprotect((void *)late_page, PAGE, PROT_READ | PROT_WRITE);
}

/* A touch that comes too late faults. */
static void touch_late(const struct block_of *block)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;

	pthread_mutex_lock(&handler_lock);
	late_page = (block->at + block->bytes / 2) / PAGE * PAGE;
	n_late = 0;
	CHECK(!sigaction(SIGSEGV, &action, &before));
	*(volatile char *)late_page = 1;
	CHECK(n_late == 1);
	CHECK(!sigaction(SIGSEGV, &before, NULL));
	CHECK(!mprotect((void *)late_page, PAGE, PROT_NONE));
	pthread_mutex_unlock(&handler_lock);
}

static void fork_once(const struct block_of *block)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(volatile char *)block->at);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* Launches the graph again, or one for this block. */
static void launch_graph(struct player *player, struct block_of *block)
{
	struct block_of *of = player->of_graph;

	if (!player->graph || !of->at || of->number != player->number_of_graph) {
		if (player->graph)
			MUST(cu.cuGraphExecDestroy(player->graph));
		player->of_graph = of = block;
		player->number_of_graph = block->number;
		player->by_graph = value(player);
		MUST(cu.cuStreamBeginCapture_v2(player->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		MUST(driver_fill(player->stream, block->at + HEAD, player->by_graph, 1));
		player->graph = driver_captured(player->stream);
	}
	MUST(cu.cuGraphLaunch(player->graph, player->stream));
	put(of, 0, 1, player->by_graph);
	use(player, of);
}

static void CUDA_CB pause_host(void *unused)
{
	(void)unused;
	usleep(200);
}

/* Nothing of the block has changed. */
static void fail_at(struct player *player, const struct block_of *block)
{
	CHECK(cu.cuMemFree_v2(block->at + 8) != CUDA_SUCCESS);
	CHECK(cuMemPrefetchAsync(block->at, block->bytes, 77, player->stream) != CUDA_SUCCESS);
	CHECK(cuMemAdvise(block->at, block->bytes, (CUmem_advise)77, 0) != CUDA_SUCCESS);
}

/* A fault of the thread itself is a signal, too, but where the pager serves it. */
static void hear_or_not(struct player *player)
{
	sigset_t all;

	sigfillset(&all);
	if (!touches)
		sigdelset(&all, SIGSEGV);
	player->deaf = !player->deaf;
	CHECK(!pthread_sigmask(player->deaf ? SIG_BLOCK : SIG_UNBLOCK, &all, NULL));
}

static void step(struct player *player)
{
	struct block_of *block = any(player), *other = any(player);
	uint64_t word;
	uint32_t with = value(player);
	size_t begin, n;

	if (!block->at) {
		make(player, block);
		return;
	}
	range(player, block, &begin, &n);
	switch (draw(player, 20)) {
	case 0:
	case 1:
		end_block(player, block);
		return;
	case 2:
	case 3:
	case 4:
	case 5:
		if (block->gpus && !touches)
			return;
		for (size_t i = begin; i < begin + n; i++)
			((uint32_t *)(block->at + HEAD))[i] = with;
		put(block, begin, n, with);
		CHECK(!memcmp((void *)block->at, block->copy, block->bytes));
		return;
	case 6:
		if ((block->gpus && !touches) || !other->at)
			return;
		word = other->at;
		memcpy((void *)block->at, &word, sizeof(word));
		memcpy(block->copy, &word, sizeof(word));
		block->link = other;
		block->link_number = other->number;
		return;
	case 7:
	case 8:
		MUST(driver_fill(player->stream, block->at + HEAD + begin * 4, with, n));
		put(block, begin, n, with);
		break;
	case 9:
		if (!other->at || other == block || other->bytes < block->bytes)
			return;
		MUST(driver_copy(player->stream, other->at + HEAD + begin * 4, block->at + HEAD + begin * 4, n));
		memcpy(other->copy + HEAD + begin * 4, block->copy + HEAD + begin * 4, n * 4);
		use(player, other);
		break;
	case 10:
		MUST(cuMemsetD32Async(block->at + HEAD + begin * 4, with, n, player->stream));
		put(block, begin, n, with);
		break;
	case 11:
		if (!linked(block))
			return;
		{
			void *params[] = {&block->at};

			MUST(cu.cuLaunchKernel(player->follow, 1, 1, 1, 1, 1, 1, 0, player->stream, params, NULL));
		}
		use(player, block);
		memcpy(&word, linked(block)->copy + 8, sizeof(word));
		word++;
		memcpy(linked(block)->copy + 8, &word, sizeof(word));
		break;
	case 12:
		if (draw(player, 2))
			MUST(cuMemAdvise(block->at, block->bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
		if (draw(player, 2)) {
			MUST(cuMemPrefetchAsync(block->at, block->bytes, CU_DEVICE_CPU, player->stream));
			return;
		}
		MUST(cuMemPrefetchAsync(block->at, block->bytes, 0, player->stream));
		break;
	case 13:
		check_by_gpu(player, block);
		return;
	case 14:
		if (block->gpus && !touches)
			touch_late(block);
		else if (!draw(player, 4))
			fork_once(block);
		return;
	case 15:
		if (player->number || draw(player, 3))
			return;
		if (!spillway_suspend())
			CHECK(!spillway_resume());
		return;
	case 16:
		launch_graph(player, block);
		return;
	case 17:
		MUST(cuLaunchHostFunc(player->stream, pause_host, NULL));
		return;
	case 18:
		fail_at(player, block);
		return;
	case 19:
		hear_or_not(player);
		return;
	}
	use(player, block);
}

static void *play(void *argument)
{
	struct player *player = argument;

	driver_start(0);
	MUST(cu.cuStreamCreate(&player->stream, CU_STREAM_NON_BLOCKING));
	player->follow = driver_function(&follow_module, "follow");
	for (unsigned i = 0; i < n_steps; i++)
		step(player);
	MUST(cu.cuStreamSynchronize(player->stream));
	for (int i = 0; i < BLOCKS_EACH; i++)
		if (player->block[i].at) {
			check_by_gpu(player, &player->block[i]);
			end_block(player, &player->block[i]);
		}
	return NULL;
}

static void program(void)
{
	static struct player players[2];
	const char *seed = getenv("MANAGED_SEED"), *steps = getenv("MANAGED_STEPS");
	uint64_t number = seed ? (uint64_t)atoll(seed) : (uint64_t)getpid() * 1000003;
	pthread_t thread;

	if (steps)
		n_steps = (unsigned)atoi(steps);
	printf("seed %llu\n", (unsigned long long)number);
	driver_start(0);
	driver_kernel("fill");
	for (unsigned i = 0; i < 2; i++)
		players[i] = (struct player){.random = number + i, .number = i};
	CHECK(!pthread_create(&thread, NULL, play, &players[1]));
	play(&players[0]);
	CHECK(!pthread_join(thread, NULL));
	CHECK(page_there()->live[PLACE_UNUSED] == 0 && page_there()->counter[STAT_managed_moved] > 0);
}

static void program_without_touches(void)
{
	refuse_userfaultfd();
	program();
}

TEST(cpu_and_gpu_take_turns_once)
{
	assert_int_equal(run_as("device.budget=24MiB,host.budget=384MiB", NULL, program_without_touches), 0);
}

static void program_with_touches(void)
{
	touches = true;
	program();
	CHECK(counted(STAT_managed_touches) > 0 && counted(STAT_managed_touches_refused) == 0);
}

TEST(cpu_and_gpu_take_turns)
{
	if (!has_userfaultfd())
		skip();
	assert_int_equal(run_as("device.budget=24MiB,host.budget=384MiB", NULL, program_with_touches), 0);
}

/* ---- chains that two threads use first, while a third one takes memory ---- */

#define NODES_MOST 12
#define HOGS       10

static struct {
	pthread_barrier_t both;
	CUdeviceptr node[NODES_MOST], sum[2];
	uint64_t rest[NODES_MOST]; /* sum from that node on */
	unsigned n, n_rounds;
	volatile bool calm, over; /* the third thread has given all back, or ends */
	volatile unsigned n_refused;
} chains;

static void walk_body(const struct sim_launch *launch, void **args)
{
	const uint64_t *node = *(const uint64_t **)args[0];
	uint64_t *sum = *(uint64_t **)args[1];

	for (*sum = 0; node; node = node[0] ? sim_pointer(node[0]) : NULL)
		*sum += node[1];
}

static const size_t walk_params[] = {8, 8};
static const struct sim_kernel walk_kernel = {"walk", walk_body, 2, walk_params};
static const struct sim_module walk_module = {SIM_MODULE_MAGIC, 1, &walk_kernel};

static void make_chain(struct player *player)
{
	static const size_t sizes[] = {4096, MIB, 2 * MIB, 3 * MIB, 5 * MIB};

	chains.n = 1 + (unsigned)draw(player, NODES_MOST);
	for (unsigned i = 0; i < chains.n; i++) {
		size_t bytes = sizes[draw(player, chains.n > 8 ? 3 : 5)];

		chains.node[i] = driver_managed(bytes);
		for (size_t at = 0; at < bytes; at += MIB)
			*(uint64_t *)(chains.node[i] + at + 64) = 1;
	}
	for (unsigned i = chains.n; i--;) {
		uint64_t *words = (uint64_t *)chains.node[i];

		words[0] = i + 1 < chains.n ? chains.node[i + 1] : 0;
		words[1] = draw(player, 1000);
		words[2] = chains.node[draw(player, chains.n)];
		chains.rest[i] = words[1] + (i + 1 < chains.n ? chains.rest[i + 1] : 0);
	}
}

/* A refused launch is made again, with memory; it finds the whole chain in either case. */
static void walk_from(struct player *player, CUfunction function, unsigned from)
{
	CUdeviceptr sum = chains.sum[player->number];
	void *params[] = {&chains.node[from], &sum};
	CUresult result;
	uint64_t found;

	while ((result = cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, player->stream, params, NULL)) ==
	       CUDA_ERROR_OUT_OF_MEMORY) {
		__atomic_add_fetch(&chains.n_refused, 1, __ATOMIC_RELAXED);
		chains.calm = true;
		usleep(1000);
	}
	MUST(result);
	MUST(cu.cuStreamSynchronize(player->stream));
	MUST(cu.cuMemcpyDtoH_v2(&found, sum, sizeof(found)));
	CHECK(found == chains.rest[from]);
}

static void *share(void *argument)
{
	struct player *player = argument;

	driver_start(0);
	MUST(cu.cuStreamCreate(&player->stream, CU_STREAM_NON_BLOCKING));
	CUfunction function = driver_function(&walk_module, "walk");
	for (unsigned round = 0; round < chains.n_rounds; round++) {
		if (!player->number)
			make_chain(player);
		pthread_barrier_wait(&chains.both);
		for (int i = 0; i < 3; i++)
			walk_from(player, function, (unsigned)draw(player, chains.n));
		pthread_barrier_wait(&chains.both);
		for (unsigned i = 0; i < chains.n && !player->number; i++)
			MUST(cu.cuMemFree_v2(chains.node[i]));
		if (!player->number)
			chains.calm = false;
	}
	return NULL;
}

static void *take_memory(void *argument)
{
	struct player *player = argument;
	CUdeviceptr at[HOGS] = {0};

	driver_start(0);
	while (!chains.over) {
		CUdeviceptr *one = &at[draw(player, HOGS)];

		if (*one) {
			MUST(cu.cuMemFree_v2(*one));
			*one = 0;
		} else if (!chains.calm && cu.cuMemAlloc_v2(one, 4 * MIB) != CUDA_SUCCESS) {
			*one = 0;
		}
		usleep(200);
	}
	for (int i = 0; i < HOGS; i++)
		if (at[i])
			MUST(cu.cuMemFree_v2(at[i]));
	return NULL;
}

static void share_chains(void)
{
	static struct player players[3];
	const char *seed = getenv("MANAGED_SEED"), *steps = getenv("MANAGED_STEPS");
	uint64_t number = seed ? (uint64_t)atoll(seed) : (uint64_t)getpid() * 1000003;
	pthread_t thread[2];

	printf("seed %llu\n", (unsigned long long)number);
	driver_start(0);
	driver_function(&walk_module, "walk");
	chains.n_rounds = (steps ? (unsigned)atoi(steps) : n_steps) / 5;
	pthread_barrier_init(&chains.both, NULL, 2);
	for (unsigned i = 0; i < 3; i++)
		players[i] = (struct player){.random = number + i, .number = i};
	for (int i = 0; i < 2; i++)
		MUST(cu.cuMemAlloc_v2(&chains.sum[i], 4096));
	CHECK(!pthread_create(&thread[0], NULL, share, &players[1]));
	CHECK(!pthread_create(&thread[1], NULL, take_memory, &players[2]));
	share(&players[0]);
	CHECK(!pthread_join(thread[0], NULL));
	chains.over = true;
	CHECK(!pthread_join(thread[1], NULL));
	printf("%u launches refused\n", chains.n_refused);
	CHECK(page_there()->live[PLACE_UNUSED] == 0 && page_there()->counter[STAT_managed_moved] > 0);
}

TEST(two_threads_share_chains_while_memory_is_short)
{
	assert_int_equal(run_as("device.budget=24MiB,host.budget=24MiB", NULL, share_chains), 0);
}

EACH_TEST(folder_make, folder_remove)
