// SPDX-License-Identifier: Apache-2.0
#include "test/core/core.h"
#include "test/ledger_check.h"

#include "shim/context/context.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/mover/mover.h"
#include "shim/serve/deferred_free.h"

#ifdef __SANITIZE_THREAD__
/* A child of core_in_child() ends by _exit(); the sanitizer would sleep a second in each. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "atexit_sleep_ms=0";
}
#endif

void core_fail(const char *file, int line, const char *what)
{
	printf("%s:%d: failed: %s\n", file, line, what);
	fflush(NULL);
	_exit(1);
}

void core_driver(void)
{
	CUcontext context;
	CUdevice device;

	CHECK(cuInit(0) == CUDA_SUCCESS);
	CHECK(cuDeviceGet(&device, 0) == CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CHECK(real_bind());
}

CUcontext core_context(void)
{
	CUcontext context;

	CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
	context_known(context, 0);
	return context;
}

CUcontext core_current(void)
{
	CUcontext context;

	CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
	return context;
}

CUcontext core_new_context(void)
{
	CUcontext context;

	CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	return context;
}

CUdeviceptr core_alloc(size_t bytes)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, bytes) == CUDA_SUCCESS);
	return at;
}

CUdeviceptr core_block(size_t bytes)
{
	CUdeviceptr at = core_alloc(bytes);

	CHECK(device_of(at));
	return at;
}

static CUstream streams[2048];
static _Atomic unsigned n_streams;

CUstream core_stream(void)
{
	unsigned i = n_streams++;

	CHECK(i < sizeof(streams) / sizeof(*streams));
	CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	return streams[i];
}

void core_streams_end(void (*end)(CUstream stream))
{
	for (; n_streams; n_streams--) {
		CUstream stream = streams[n_streams - 1];

		if (!sim_is_stream(stream))
			continue;
		if (end)
			end(stream);
		else
			assert_ok(cuStreamDestroy_v2(stream));
	}
}

CUgraphExec core_instance(CUgraph graph)
{
	CUgraphExec instance;

	CHECK(cuGraphInstantiateWithFlags(&instance, graph, 0) == CUDA_SUCCESS);
	return instance;
}

void core_settings(const char *const *settings)
{
	for (; *settings; settings++) {
		char name[64];
		const char *value = strchr(*settings, '=');

		CHECK(value && (size_t)(value - *settings) < sizeof(name));
		memcpy(name, *settings, (size_t)(value - *settings));
		name[value - *settings] = 0;
		setenv(name, value + 1, 1);
	}
}

void core_start(const char *const *settings)
{
	core_settings(settings);
	core_driver();
	CHECK(lifecycle_start() == STAGE_RUNNING);
}

int core_in_child(const char *const *settings, int (*run)(void *argument), void *argument)
{
	int status = 0;

	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		/* What the library says about refusals and failures is expected here. */
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		core_settings(settings);
		status = run(argument);
		fflush(NULL);
		_exit(status);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status))
		fail_msg("the child died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static struct core_heap *is_open;

static struct heap_config config_of(struct core_heap *own, uint64_t keep)
{
	*own = (struct core_heap){.before = sim_live()};
	return (struct heap_config){
	    .host_usable = true,
	    .host_location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
	    .device_budget = &own->device,
	    .host_budget = &own->host,
	    .arena_hint = 0,
	    .arena_bytes = (uint64_t)8 << 30,
	    .keep_device = keep,
	    .keep_host = keep,
	};
}

static void open_as(struct core_heap *own, const struct heap_config *config, uint64_t device_bytes, uint64_t host_bytes)
{
	own->device.limit = device_bytes;
	own->host.limit = host_bytes;
	assert_int_equal(heap_create(config, &own->heap), SW_OK);
	own->heap->ticked = 0; /* no ticks come unless the test calls heap_tick() */
	is_open = own;
}

void core_heap_open(struct core_heap *own, uint64_t device_bytes, uint64_t host_bytes, uint64_t keep)
{
	core_heap_open_lent(own, device_bytes, host_bytes, keep, 0, 0);
}

void core_heap_open_lent(struct core_heap *own, uint64_t device_bytes, uint64_t host_bytes, uint64_t keep,
			 unsigned n_peers, uint64_t lent)
{
	struct heap_config config = config_of(own, keep);

	config.n_lenders = n_peers;
	for (unsigned i = 0; i < n_peers; i++) {
		own->peer[i].limit = UINT64_MAX;
		own->lender[i] =
		    (struct lender){.device = (CUdevice)i + 1, .own = &own->peer[i], .lent = {.limit = lent}};
		config.lenders[i] = &own->lender[i];
	}
	open_as(own, &config, device_bytes, host_bytes);
}

void core_heap_open_shared(struct core_heap *own, uint64_t device_bytes, uint64_t host_bytes, uint64_t keep)
{
	struct heap_config config = config_of(own, keep);

	config.exportable = config.share = true;
	open_as(own, &config, device_bytes, host_bytes);
}

enum sw_status core_try(struct core_heap *own, size_t bytes, enum chunk_kind kind, enum heap_from from,
			struct heap_grant *ret_grant)
{
	enum sw_status status = heap_alloc(own->heap, bytes, kind, from, ret_grant);

	assert_true(heap_is_valid(own->heap));
	assert_true(own->n_held < sizeof(own->held) / sizeof(*own->held));
	if (status == SW_OK)
		own->held[own->n_held++] = *ret_grant;
	return status;
}

struct heap_grant core_take(struct core_heap *own, size_t bytes, enum chunk_kind kind, enum heap_from from)
{
	struct heap_grant grant;

	assert_int_equal(core_try(own, bytes, kind, from, &grant), SW_OK);
	return grant;
}

void core_give(struct core_heap *own, const struct heap_grant *grant)
{
	unsigned i = 0;

	while (i < own->n_held && own->held[i].address != grant->address)
		i++;
	assert_true(i < own->n_held);
	own->held[i] = own->held[--own->n_held];
	heap_free(own->heap, grant->block, grant->address);
	assert_true(heap_is_valid(own->heap));
}

void core_heap_close(struct core_heap *own)
{
	is_open = NULL;
	assert_true(heap_is_valid(own->heap));
	while (own->n_held)
		core_give(own, &own->held[own->n_held - 1]);
	heap_destroy(own->heap);
	assert_int_equal(own->device.used, 0);
	assert_int_equal(own->host.used, 0);
	for (unsigned i = 0; i < HEAP_LENDERS; i++)
		assert_int_equal(own->peer[i].used, 0);

	struct sim_live live = sim_live();
	if (memcmp(&live, &own->before, sizeof(live)) != 0)
		sim_leaks(stderr);
	assert_memory_equal(&live, &own->before, sizeof(live));
	assert_int_equal(sim_broken_rules(), 0);
}

int core_heap_end(void **state)
{
	if (is_open)
		core_heap_close(is_open);
	return 0;
}

struct engine *core_engine(struct core_heap *own, struct device *device, bool exact)
{
	static struct engine *engines[64]; /* known here, or the leak checker counts them */
	static unsigned n;

	assert_true(n < sizeof(engines) / sizeof(*engines));
	engines[n] = mover_new(device, own->heap, exact);
	assert_non_null(engines[n]);
	return engines[n++];
}

struct migration core_begin_move(struct heap *heap, CUdeviceptr address, enum chunk_place to, bool in_place)
{
	struct arena *arena = heap_arena(heap);
	uint32_t piece = arena_unit(arena, address);
	unsigned units = arena->states[piece].units_of_piece;
	struct migration transit;
	enum sw_status status = migration_begin(heap, piece, to, in_place, &transit);

	if (status == SW_NO_MEMORY) {
		if (!arena->states[piece].to_host || to == CHUNK_DEVICE ||
		    heap_make_spare(heap, CHUNK_HOST, units, false) != SW_OK)
			assert_ok(heap_make_spare(heap, to, units, true));
		status = migration_begin(heap, piece, to, in_place, &transit);
	}
	assert_ok(status);
	return transit;
}

void core_copy(const struct migration *transit)
{
	for (uint64_t at = 0, from_bytes, to_bytes; at < migration_bytes(transit);) {
		CUdeviceptr from = migration_at(transit, false, at, &from_bytes);
		CUdeviceptr to = migration_at(transit, true, at, &to_bytes);
		uint64_t bytes = from_bytes < to_bytes ? from_bytes : to_bytes;

		assert_ok(REAL(cuMemcpyDtoDAsync_v2)(to, from, bytes, NULL));
		at += bytes;
	}
	assert_ok(REAL(cuCtxSynchronize)());
}

void core_move(struct heap *heap, CUdeviceptr address, enum chunk_place to)
{
	struct migration transit = core_begin_move(heap, address, to, false);

	assert_ok(migration_unmap(&transit));
	core_copy(&transit);
	migration_exchange(heap, &transit, false);
	assert_ok(migration_map(heap, &transit, false));
	migration_end(heap, &transit);
	assert_true(heap_is_valid(heap));
}

bool core_leaves(struct core_heap *own, CUdeviceptr address)
{
	uint32_t piece = arena_unit(heap_arena(own->heap), address);
	struct migration transit;

	if (migration_begin(own->heap, piece, CHUNK_HOST, true, &transit) != SW_OK)
		return false;
	assert_ok(migration_unmap(&transit));
	migration_exchange(own->heap, &transit, false);
	assert_ok(migration_map(own->heap, &transit, false));
	migration_end(own->heap, &transit);
	return true;
}

unsigned long core_vmm_calls(void)
{
	return sim_calls("cuMemCreate") + sim_calls("cuMemMap") + sim_calls("cuMemSetAccess") +
	       sim_calls("cuMemUnmap") + sim_calls("cuMemRelease");
}

/* A word that depends on where it lies, so that a page in another's place is noticed. */
static uint64_t word_of(uint64_t seed, size_t at)
{
	return (seed + at) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Large ranges are filled and looked at in pieces: the first and last 4 KiB, and 4 KiB at every 2 MiB. */
#define PIECE 4096

static size_t next_piece(size_t at, size_t bytes)
{
	size_t next = at / HEAP_UNIT * HEAP_UNIT + HEAP_UNIT;

	if (at + PIECE >= bytes)
		return bytes;
	return next + PIECE < bytes ? next : bytes - PIECE;
}

static void make_piece(unsigned char *piece, size_t at, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		piece[i] = (unsigned char)(word_of(seed, (at + i) / 8) >> 8 * ((at + i) % 8));
}

void core_fill(CUdeviceptr address, size_t bytes, uint64_t seed)
{
	unsigned char piece[PIECE];

	for (size_t at = 0; at < bytes; at = next_piece(at, bytes)) {
		size_t n = bytes - at < PIECE ? bytes - at : PIECE;

		make_piece(piece, at, n, seed);
		CHECK(REAL(cuMemcpyHtoD_v2)(address + at, piece, n) == CUDA_SUCCESS);
	}
}

bool core_is_filled(CUdeviceptr address, size_t bytes, uint64_t seed)
{
	unsigned char piece[PIECE], found[PIECE];

	for (size_t at = 0; at < bytes; at = next_piece(at, bytes)) {
		size_t n = bytes - at < PIECE ? bytes - at : PIECE;

		make_piece(piece, at, n, seed);
		if (REAL(cuMemcpyDtoH_v2)(found, address + at, n) != CUDA_SUCCESS || memcmp(piece, found, n) != 0)
			return false;
	}
	return true;
}

size_t core_pages_at(CUdeviceptr address, size_t bytes, char place)
{
	size_t n = 0;

	for (size_t at = 0; at < bytes; at += HEAP_UNIT)
		n += sim_where(address + at) == place;
	return n;
}

void core_drain(void)
{
	CUcontext context = NULL;

	/*
	 * What has an event is reaped, what has none goes with an idle context. A row that never leaves is a failure.
	 */
	for (unsigned i = 0; i < 1000 && deferred_free_any(); i++) {
		uint64_t before = deferred_free_mark();

		CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
		deferred_free_context_idle(context, before);
		deferred_free_reap(0);
		sched_yield();
	}
	CHECK(!deferred_free_any());
}

int core_check(void **state)
{
	struct heap *heap = atomic_load(&device_get(0)->heap);

	core_streams_end(NULL);
	core_drain();
	assert_false(deferred_free_any() || capture_is_open());
	assert_int_equal(ledger_n_rows(), 0);
	assert_true(ledger_is_valid() && heap_is_valid(heap));
	heap_trim(heap, 0, 0);
	assert_int_equal(device_get(0)->budget.used + host_budget.used, 0);
	assert_int_equal(sim_broken_rules(), 0);
	return 0;
}
