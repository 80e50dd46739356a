// SPDX-License-Identifier: Apache-2.0
#include "test/core/home.h"
#include "test/ledger_check.h"

static CUfunction fill, slow;
static struct sim_live before;
static size_t rows_before;
static struct sim_managed managed_before;

static void fill_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = *(uint32_t **)args[0], value = *(uint32_t *)args[1];
	size_t n = *(size_t *)args[2];

	for (size_t i = 0; i < n; i++)
		at[i] = value;
}

static void slow_body(const struct sim_launch *launch, void **args)
{
	usleep(20000);
	fill_body(launch, args);
}

SIM_MODULE(image, SIM_KERNEL("fill", fill_body, 8, 4, 8), SIM_KERNEL("slow", slow_body, 8, 4, 8));

void home_start(void)
{
	static const char *const settings[] = {
	    "SIM_MEMORY=64MiB",
	    "SPILLWAY_SET=device.budget=32MiB,host.budget=32MiB,report.summary=no",
	    NULL,
	};
	CUmodule module;

	core_start(settings);
	CHECK(cuModuleLoadData(&module, &image) == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&fill, module, "fill") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&slow, module, "slow") == CUDA_SUCCESS);
}

static void trim(void)
{
	CUdeviceptr block = core_alloc(1);

	assert_ok(cuMemFree_v2(block));
	heap_trim(device_heap(device_get(0)), 0, 0);
}

int home_set_up(void **state)
{
	/* The heap comes with its first block and stays. */
	trim();
	before = sim_live();
	managed_before = sim_managed();
	rows_before = ledger_n_rows();
	return 0;
}

int home_tear_down(void **state)
{
	core_drain();
	assert_false(capture_is_open());
	assert_int_equal(ledger_n_rows(), rows_before);
	assert_true(ledger_is_valid());
	assert_int_equal(stats_live(PLACE_MANAGED) + stats_live(PLACE_SYSTEM), 0);
	trim();
	struct sim_live after = sim_live();
	if (memcmp(&before, &after, sizeof(before)))
		sim_leaks(stderr);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(sim_managed().resident, managed_before.resident);
	assert_int_equal(sim_broken_rules(), 0);
	return 0;
}

enum sw_status home_alloc(const struct backend *home, const struct backend_request *request, CUdeviceptr *ret_address)
{
	struct ledger_row *row = ledger_row_new(LEDGER_HEAP);

	CHECK(row);
	row->bytes = request->bytes;
	row->context = context_of_memory();
	enum sw_status status = home->alloc(device_get(0), request, row);
	if (status != SW_OK) {
		ledger_row_free(row);
		return status;
	}
	*ret_address = row->key;
	ledger_commit(row);
	return SW_OK;
}

CUdeviceptr home_get(const struct backend *home, const struct backend_request *request)
{
	CUdeviceptr address = 0;

	assert_int_equal(home_alloc(home, request, &address), SW_OK);
	return address;
}

unsigned home_ask(CUpointer_attribute attribute, CUdeviceptr address)
{
	unsigned word = 77;

	assert_ok(cuPointerGetAttribute(&word, attribute, address));
	return word;
}

CUstream home_stream(void)
{
	CUstream stream = core_stream();

	return stream;
}

CUstream home_capture(void)
{
	CUstream stream = home_stream();

	assert_ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	return stream;
}

void home_end_capture(CUstream stream)
{
	CUgraph graph;

	assert_ok(cuStreamEndCapture(stream, &graph));
	assert_ok(cuGraphDestroy(graph));
	core_drain();
	assert_ok(cuStreamDestroy_v2(stream));
}

static CUresult launch(CUfunction function, CUdeviceptr at, uint32_t value, size_t n, CUstream stream)
{
	void *args[] = {&at, &value, &n};

	return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL);
}

CUresult home_fill(CUdeviceptr at, uint32_t value, size_t n, CUstream stream)
{
	return launch(fill, at, value, n, stream);
}

CUresult home_fill_slowly(CUdeviceptr at, uint32_t value, size_t n, CUstream stream)
{
	return launch(slow, at, value, n, stream);
}

bool home_holds(CUdeviceptr at, uint32_t value, size_t n)
{
	const uint32_t *word = (const uint32_t *)(uintptr_t)at;

	for (size_t i = 0; i < n; i++)
		if (word[i] != value)
			return false;
	return true;
}
