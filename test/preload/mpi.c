// SPDX-License-Identifier: Apache-2.0
#include "test/preload/mpi_internal.h"

#include "test/check.h"
#include "test/preload/driver.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { PIECE = 256 << 10 };

/* us: between two looks of the thread that makes progress while there is something to do, and of those who wait. */
enum { LOOK_US = 20, WAIT_US = 200 };

/* ---- what both processes have mapped ---- */

/* A message is offered by its sender, taken or refused by its receiver, or goes piece by piece. */
enum channel_state { EMPTY, OFFERED, REFUSED, PIECES, TAKEN };

struct channel {
	_Atomic int state;
	CUipcMemHandle memory;
	CUipcEventHandle after;
	size_t offset;
	_Atomic size_t full[2];
	char piece[2][PIECE];
};

static struct shared {
	struct channel from[2][MPI_TAGS];
} * shared;

/* ---- this side ---- */

enum step { START, ANSWER, COPY, PIECEWISE, END };

struct mpi_request {
	struct mpi_request *next;
	bool sends;
	atomic_bool done;
	enum step step;
	struct channel *channel;
	CUdeviceptr at;
	size_t bytes, moved;
	unsigned n_pieces;
	bool under_way;
	struct mpi_pointer pointer;
	struct mpi_opened *opened;
	CUevent event, after;
};

static int rank;
static CUstream out, in;
static pthread_t progress;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* the list */
static struct mpi_request *requests;
static atomic_bool ending;

void mpi_share(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
}

/* ---- in one copy ---- */

static bool offer(struct mpi_request *request)
{
	struct channel *channel = request->channel;
	const struct mpi_given *entry = mpi_give(&request->pointer);

	if (entry->refused)
		return false;
	MUST(cuEventCreate(&request->after, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
	MUST(cuEventRecord(request->after, out));
	MUST(cuIpcGetEventHandle(&channel->after, request->after));
	channel->memory = entry->handle;
	channel->offset = request->at - request->pointer.base;
	return true;
}

static bool take(struct mpi_request *request)
{
	struct channel *channel = request->channel;

	request->opened = mpi_open(&channel->memory);
	if (!request->opened)
		return false;
	mpi_look_at_opened(request->opened->at, channel->offset, request->bytes);
	MUST(cuIpcOpenEventHandle(&request->after, channel->after));
	MUST(cuStreamWaitEvent(in, request->after, 0));
	CUdeviceptr from = request->opened->at + channel->offset;
	if (request->pointer.on_device)
		MUST(cuMemcpyDtoDAsync_v2(request->at, from, request->bytes, in));
	else
		MUST(cuMemcpyDtoHAsync_v2((void *)(uintptr_t)request->at, from, request->bytes, in));
	MUST(cuEventRecord(request->event, in));
	return true;
}

/* ---- piece by piece ---- */

static bool is_there(struct mpi_request *request)
{
	CUresult result = cuEventQuery(request->event);

	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
	return result == CUDA_SUCCESS;
}

static void copy_piece(struct mpi_request *request, void *piece, size_t bytes)
{
	CUdeviceptr at = request->at + request->moved;
	void *host = (void *)(uintptr_t)at;

	request->under_way = true;
	if (!request->pointer.on_device) {
		memcpy(request->sends ? piece : host, request->sends ? host : piece, bytes);
		return;
	}
	if (request->sends)
		MUST(cuMemcpyDtoHAsync_v2(piece, at, bytes, out));
	else
		MUST(cuMemcpyHtoDAsync_v2(at, piece, bytes, in));
	MUST(cuEventRecord(request->event, request->sends ? out : in));
}

/* True: all of it has gone, or come. */
static bool step_piece(struct mpi_request *request)
{
	unsigned slot = request->n_pieces % 2;
	size_t left = request->bytes - request->moved, bytes = left < PIECE ? left : PIECE;
	_Atomic size_t *full = &request->channel->full[slot];

	if (!request->under_way) {
		if ((*full != 0) != request->sends)
			copy_piece(request, request->channel->piece[slot], bytes);
		return false;
	}
	if (request->pointer.on_device && !is_there(request))
		return false;
	CHECK(request->sends || *full == bytes);
	*full = request->sends ? bytes : 0;
	request->under_way = false;
	request->n_pieces++;
	request->moved += bytes;
	return request->moved == request->bytes;
}

/* ---- what the thread does with each request, again and again ---- */

static bool step_send(struct mpi_request *request)
{
	_Atomic int *state = &request->channel->state;

	switch (request->step) {
	case START:
		if (*state != EMPTY)
			return false;
		bool offered = request->pointer.on_device && offer(request);
		*state = offered ? OFFERED : PIECES;
		request->step = offered ? ANSWER : PIECEWISE;
		return false;
	case ANSWER:
		if (*state == REFUSED) {
			*state = PIECES;
			request->step = PIECEWISE;
		}
		break;
	case PIECEWISE:
		if (step_piece(request))
			request->step = END;
		return false;
	default:
		break;
	}
	if (*state != TAKEN)
		return false;
	*state = EMPTY;
	return true;
}

static bool step_receive(struct mpi_request *request)
{
	_Atomic int *state = &request->channel->state;

	switch (request->step) {
	case START:
		if (*state == PIECES)
			request->step = PIECEWISE;
		else if (*state == OFFERED && take(request))
			request->step = COPY;
		else if (*state == OFFERED)
			*state = REFUSED;
		return false;
	case COPY:
		if (!is_there(request))
			return false;
		request->opened->users--;
		break;
	default:
		if (!step_piece(request))
			return false;
	}
	*(request->step == COPY        ? &mpi_seen.one_copy
	  : request->pointer.on_device ? &mpi_seen.two_copies
				       : &mpi_seen.host) += 1;
	*state = TAKEN;
	return true;
}

static void begin(struct mpi_request *request)
{
	request->pointer = mpi_look_at(request->at);
	MUST(cuCtxPushCurrent_v2(request->pointer.on_device ? request->pointer.context : mpi_own));
	if (request->pointer.on_device)
		mpi_look_closer(&request->pointer, request->at, request->bytes);
	MUST(cuEventCreate(&request->event, CU_EVENT_DISABLE_TIMING));
	MUST(cuCtxPopCurrent_v2(&(CUcontext){NULL}));
}

static bool step(struct mpi_request *request)
{
	MUST(cuCtxPushCurrent_v2(mpi_own));
	bool done = request->sends ? step_send(request) : step_receive(request);
	MUST(cuCtxPopCurrent_v2(&(CUcontext){NULL}));
	return done;
}

static void *run(void *unused)
{
	while (!ending) {
		bool busy = false;

		pthread_mutex_lock(&one);
		for (struct mpi_request *request = requests; request; request = request->next) {
			if (request->done)
				continue;
			busy = true;
			if (!request->event)
				begin(request);
			if (step(request))
				request->done = true;
		}
		pthread_mutex_unlock(&one);
		usleep(busy ? LOOK_US : WAIT_US);
	}
	CUcontext context = driver_current();
	CHECK(!context);
	return unused;
}

/* ---- what the program calls ---- */

void mpi_start(int rank_)
{
	static const CUdevice_attribute asked[] = {
	    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
	    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
	    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
	    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
	};
	int value, peer;

	rank = rank_;
	MUST(cuCtxGetCurrent(&mpi_own));
	MUST(cuCtxGetDevice(&mpi_device));
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
		MUST(cuDeviceGetAttribute(&value, asked[i], mpi_device));
	MUST(cuDeviceCanAccessPeer(&peer, mpi_device, 1 - mpi_device));
	MUST(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
	MUST(cuMemHostRegister_v2(shared, sizeof(*shared), CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(!pthread_create(&progress, NULL, run, NULL));
}

void mpi_end(void)
{
	CHECK(!requests);
	ending = true;
	pthread_join(progress, NULL);
	mpi_close_all();
	MUST(cuMemHostUnregister(shared));
	MUST(cuStreamDestroy_v2(out));
	MUST(cuStreamDestroy_v2(in));
}

struct mpi_counts mpi_counts(void)
{
	return mpi_seen;
}

static struct mpi_request *post(CUdeviceptr at, size_t bytes, unsigned tag, bool sends)
{
	struct mpi_request *request = calloc(1, sizeof(*request));

	*request = (struct mpi_request){
	    .sends = sends, .at = at, .bytes = bytes, .channel = &shared->from[sends ? rank : 1 - rank][tag]};
	pthread_mutex_lock(&one);
	request->next = requests;
	requests = request;
	pthread_mutex_unlock(&one);
	return request;
}

struct mpi_request *mpi_send(const void *from, size_t bytes, unsigned tag)
{
	return post((CUdeviceptr)(uintptr_t)from, bytes, tag, true);
}

struct mpi_request *mpi_receive(void *to, size_t bytes, unsigned tag)
{
	return post((CUdeviceptr)(uintptr_t)to, bytes, tag, false);
}

void mpi_wait(struct mpi_request *request)
{
	struct mpi_request **link = &requests;

	UNTIL(request->done);
	pthread_mutex_lock(&one);
	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	pthread_mutex_unlock(&one);
	MUST(cuEventDestroy_v2(request->event));
	if (request->after)
		MUST(cuEventDestroy_v2(request->after));
	free(request);
}

/* ---- sums ---- */

static void exchange(const void *mine, void *other, size_t bytes)
{
	struct mpi_request *receive = mpi_receive(other, bytes, 0), *send = mpi_send(mine, bytes, 0);

	mpi_wait(send);
	mpi_wait(receive);
}

/* Through ordinary memory, by the copy that finds out itself what its pointers are. */
static void copy_any(void *to, const void *from, size_t bytes)
{
	MUST(cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, out));
	MUST(cuStreamSynchronize(out));
}

void mpi_sum(void *words, size_t n)
{
	unsigned *mine = malloc(n * sizeof(*mine)), *other = malloc(n * sizeof(*other));

	copy_any(mine, words, n * sizeof(*mine));
	exchange(mine, other, n * sizeof(*mine));
	for (size_t i = 0; i < n; i++)
		mine[i] += other[i];
	copy_any(words, mine, n * sizeof(*mine));
	free(mine);
	free(other);
}

static void add_body(const struct sim_launch *launch, void **args)
{
	unsigned *to = *(unsigned **)args[0];
	const unsigned *from = *(const unsigned **)args[1];
	size_t n = *(size_t *)args[2];

	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

SIM_MODULE(image, SIM_KERNEL("add", add_body, sizeof(CUdeviceptr), sizeof(CUdeviceptr), sizeof(size_t)));

void mpi_sum_on_device(CUdeviceptr words, size_t n)
{
	CUdeviceptr other;
	CUmodule module;
	CUfunction add;
	void *params[] = {&words, &other, &n};

	MUST(cuMemAlloc_v2(&other, n * sizeof(unsigned)));
	exchange((const void *)(uintptr_t)words, (void *)(uintptr_t)other, n * sizeof(unsigned));
	MUST(cuModuleLoadData(&module, &image));
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuLaunchKernel(add, 8, 1, 1, 256, 1, 1, 0, out, params, NULL));
	MUST(cuStreamSynchronize(out));
	MUST(cuModuleUnload(module));
	MUST(cuMemFree_v2(other));
}
