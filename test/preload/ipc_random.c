// SPDX-License-Identifier: Apache-2.0
/*
 * ipc_random: a program that is made up from a seed (made_up.h): a process gives blocks, and another one opens them,
 * uses them on several streams and in green contexts that end, and closes them while work is under way and streams wait
 * for values that this very thread is to write. What every word must be is known on both sides.
 *
 * Natively no process can open what cuMemAlloc of another one gave, in the simulation: then it does nothing.
 */
#include "test/preload/made_up.h"
#include "test/sim/sim.h"

enum { BLOCKS = 6, STREAMS = 3, PER_ROUND = 60 };

struct made_up made_up = {.operations = 600, .threads = 1, .deadline = 100, .seed = 1};
static uint64_t chance;
static CUcontext context;
static uint32_t words[5 * MIB / 4];

static uint32_t below(uint32_t n)
{
	return made_up_next(&chance) % n;
}

static void tell(int fd, const void *data, size_t bytes)
{
	if (write(fd, data, bytes) != (ssize_t)bytes)
		made_up_fail("the other one has gone");
}

static void hear(int fd, void *data, size_t bytes)
{
	for (ssize_t n; bytes; data = (char *)data + n, bytes -= (size_t)n)
		if ((n = read(fd, data, bytes)) <= 0)
			made_up_fail("the other one has gone");
}

static void start(void)
{
	GO(cuInit(0));
	GO(cuDevicePrimaryCtxRetain(&context, 0));
	GO(cuCtxSetCurrent(context));
}

static void check(CUdeviceptr at, size_t bytes, uint32_t value, CUstream stream)
{
	GO(cuMemcpyDtoHAsync_v2(words, at, bytes, stream));
	GO(cuStreamSynchronize(stream));
	for (size_t i = 0; i < bytes / 4; i++)
		if (words[i] != value)
			made_up_fail("word %zu of %zu bytes is %#x, not %#x", i, bytes, words[i], value);
}

/* What the giver says of a block in each round. */
struct gift {
	CUipcMemHandle handle;
	size_t bytes;
	uint32_t value;
};

/* ---- who takes ---- */

static struct taken {
	struct gift gift;
	CUdeviceptr at;  /* 0: it is not open */
	unsigned stream; /* of its last use */
} taken[BLOCKS];
static CUstream streams[STREAMS];
static CUevent event;
static uint32_t *held; /* a word for each stream, 0 while that waits */

static void let_go(void)
{
	for (unsigned i = 0; i < STREAMS; i++)
		__atomic_store_n(&held[i], 1, __ATOMIC_RELEASE);
}

static void hold(unsigned stream)
{
	let_go();
	GO(cuStreamSynchronize(streams[stream])); /* nothing waits for the word from before */
	__atomic_store_n(&held[stream], 0, __ATOMIC_RELEASE);
	GO(cuStreamWaitValue32_v2(streams[stream], (CUdeviceptr)&held[stream], 1, CU_STREAM_WAIT_VALUE_GEQ));
}

/* From now on the stream comes after all that was done with the block. */
static void order(struct taken *block, CUstream stream)
{
	GO(cuEventRecord(event, streams[block->stream]));
	GO(cuStreamWaitEvent(stream, event, 0));
}

static void open_or_close(struct taken *block)
{
	if (block->at) {
		GO(cuIpcCloseMemHandle(block->at));
		block->at = 0;
		return;
	}
	GO(cuIpcOpenMemHandle_v2(&block->at, block->gift.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static void set(struct taken *block, CUstream stream)
{
	block->gift.value = below(1u << 30);
	GO(cuMemsetD32Async(block->at, block->gift.value, block->gift.bytes / 4, stream));
}

static void use(struct taken *block)
{
	unsigned stream = below(STREAMS);

	if (!block->at)
		return;
	order(block, streams[stream]);
	set(block, streams[stream]);
	block->stream = stream;
}

/* A green context ends with its work under way; what it has opened may be closed after that, or before. */
static void use_in_green(struct taken *block)
{
	unsigned stream = below(STREAMS);
	CUgreenCtx green;
	CUcontext part;
	CUstream own;
	CUevent done;

	GO(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	GO(cuCtxFromGreenCtx(&part, green));
	GO(cuCtxSetCurrent(part));
	GO(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	GO(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	if (!block->at)
		open_or_close(block);
	order(block, own);
	set(block, own);
	GO(cuEventRecord(done, own));
	GO(cuStreamWaitEvent(streams[stream], done, 0));
	block->stream = stream;
	if (below(2))
		open_or_close(block);
	GO(cuStreamDestroy_v2(own));
	GO(cuEventDestroy_v2(done));
	GO(cuCtxSetCurrent(context));
	GO(cuGreenCtxDestroy(green));
}

static void look(struct taken *block)
{
	if (!block->at)
		return;
	let_go();
	check(block->at, block->gift.bytes, block->gift.value, streams[block->stream]);
}

static void play(void)
{
	struct taken *block = &taken[below(BLOCKS)];

	switch (below(10)) {
	case 0:
		let_go();
		break;
	case 1:
		hold(below(STREAMS));
		break;
	case 2:
		look(block);
		break;
	case 3:
		use_in_green(block);
		break;
	case 4:
	case 5:
	case 6:
		open_or_close(block);
		break;
	default:
		use(block);
		break;
	}
}

static bool can_open(const struct gift *gift)
{
	CUdeviceptr at;
	CUresult result = cuIpcOpenMemHandle_v2(&at, gift->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

	if (result == CUDA_SUCCESS)
		GO(cuIpcCloseMemHandle(at));
	return result != CUDA_ERROR_INVALID_CONTEXT;
}

static void settle(void)
{
	let_go();
	GO(cuCtxSynchronize());
	for (unsigned i = 0; i < BLOCKS; i++)
		if (taken[i].at)
			open_or_close(&taken[i]);
}

static void take(int in, int out)
{
	start();
	GO(cuMemHostAlloc((void **)&held, STREAMS * sizeof(*held), CU_MEMHOSTALLOC_DEVICEMAP));
	let_go();
	GO(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < STREAMS; i++)
		GO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (unsigned long done = 0; done < made_up.operations; done += PER_ROUND) {
		for (unsigned i = 0; i < BLOCKS; i++)
			hear(in, &taken[i].gift, sizeof(taken[i].gift));
		for (unsigned i = can_open(&taken[0].gift) ? PER_ROUND : 0; i; i--)
			play();
		settle();
		for (unsigned i = 0; i < BLOCKS; i++)
			tell(out, &taken[i].gift.value, sizeof(taken[i].gift.value));
	}
	made_up_check();
}

/* ---- who gives ---- */

static void give(int in, int out)
{
	static const size_t sizes[BLOCKS] = {3 * MIB, 64 * KIB, 64 * KIB, 2 * MIB, 5 * MIB, MIB / 2};
	struct gift gift[BLOCKS];
	CUdeviceptr at[BLOCKS];

	start();
	for (unsigned long done = 0; done < made_up.operations; done += PER_ROUND) {
		for (unsigned i = 0; i < BLOCKS; i++) {
			gift[i].bytes = sizes[i];
			gift[i].value = below(1u << 30);
			GO(cuMemAlloc_v2(&at[i], sizes[i]));
			GO(cuMemsetD32_v2(at[i], gift[i].value, sizes[i] / 4));
			GO(cuCtxSynchronize());
			GO(cuIpcGetMemHandle(&gift[i].handle, at[i]));
			tell(out, &gift[i], sizeof(gift[i]));
		}
		for (unsigned i = 0; i < BLOCKS; i++) {
			hear(in, &gift[i].value, sizeof(gift[i].value));
			check(at[i], sizes[i], gift[i].value, NULL);
		}
		for (unsigned i = 0; i < BLOCKS; i++)
			GO(cuMemFree_v2(at[i]));
	}
	made_up_check();
}

int main(int argc, char **argv)
{
	int to_taker[2], to_giver[2], status = 1;

	made_up.name = "ipc_random";
	made_up_begin(argc, argv, &(struct made_up_option){0}, 1, 0);
	if (pipe(to_taker) || pipe(to_giver))
		return 1;
	/* Before either uses the driver. */
	pid_t taker = fork();
	chance = made_up_chance(!taker);
	if (!taker) {
		made_up.name = "ipc_random, who takes";
		alarm(made_up.deadline);
		close(to_taker[1]);
		close(to_giver[0]);
		take(to_taker[0], to_giver[1]);
		return 0;
	}
	close(to_taker[0]);
	close(to_giver[1]);
	give(to_giver[0], to_taker[1]);
	if (waitpid(taker, &status, 0) != taker || status)
		return 1;
	printf("ipc_random: seed %lu, %lu operations\n", (unsigned long)made_up.seed, made_up.operations);
	return 0;
}
