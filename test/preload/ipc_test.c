// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of one process in another by cuIpcGetMemHandle and cuIpcOpenMemHandle, with data behind it on both sides. A
 * part is a process that gives, and one that takes and was made before either had used the driver; they speak by two
 * pipes.
 */
#include "test/preload/folder.h"
#include "test/preload/child.h"
#include "test/test.h"

#define SETTINGS(set, ...)                                                                                             \
	((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB",                            \
			       "SPILLWAY_SET=report.summary=no,host.budget=200MiB," set, ##__VA_ARGS__, NULL})
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* ---- two processes ---- */

static int to_taker[2], to_giver[2];

static void tell(int fd, const void *data, size_t bytes)
{
	CHECK(write(fd, data, bytes) == (ssize_t)bytes);
}

static void hear(int fd, void *data, size_t bytes)
{
	CHECK(read(fd, data, bytes) == (ssize_t)bytes);
}

static void give_turn(int fd)
{
	tell(fd, "x", 1);
}

static void take_turn(int fd)
{
	char c;

	hear(fd, &c, 1);
}

/* Before anything of the driver is used. Returns in the giver. */
static pid_t split(void (*taker)(void))
{
	CHECK(pipe(to_taker) == 0 && pipe(to_giver) == 0);
	pid_t pid = fork();
	if (pid) {
		close(to_taker[0]);
		close(to_giver[1]);
		return pid;
	}
	close(to_taker[1]);
	close(to_giver[0]);
	taker();
	fflush(NULL);
	_exit(0);
}

static void join(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static CUipcMemHandle handle_of(CUdeviceptr block)
{
	CUipcMemHandle handle;

	MUST(cu.cuIpcGetMemHandle(&handle, block));
	return handle;
}

static CUipcMemHandle tell_handle(CUdeviceptr block)
{
	CUipcMemHandle handle = handle_of(block);

	tell(to_taker[1], &handle, sizeof(handle));
	return handle;
}

/* A new block of 4 MiB, the first MiB of words of which holds this. */
static CUdeviceptr new_filled(unsigned value)
{
	CUdeviceptr block = child_alloc(4 * MIB);

	MUST(driver_fill(NULL, block, value, MIB));
	MUST(cu.cuCtxSynchronize());
	return block;
}

static CUipcMemHandle hear_handle(void)
{
	CUipcMemHandle handle;

	hear(to_taker[0], &handle, sizeof(handle));
	return handle;
}

static bool is_mapped(CUdeviceptr at)
{
	unsigned type;

	return cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CUDA_SUCCESS;
}

/* Among other calls this one unmaps what was closed, if the GPU has done what was submitted before. */
static void look_for_what_is_done(void)
{
	size_t available, total;

	MUST(cu.cuMemGetInfo_v2(&available, &total));
}

static void is_unmapped_at_last(CUdeviceptr at)
{
	while (is_mapped(at))
		look_for_what_is_done();
}

/* ---- what is written on one side is read on the other ---- */

static const size_t sizes[] = {3 * MIB, 1000, 512, 2 * MIB, 150 * MIB, 3 * MIB + 4};
enum { N = sizeof(sizes) / sizeof(sizes[0]) };

static void takes_all(void)
{
	driver_start(0);
	for (unsigned i = 0; i < N; i++) {
		CUipcMemHandle handle = hear_handle();
		CUdeviceptr at = 0, again = 0;

		MUST(cuIpcOpenMemHandle_v2(&at, handle, LAZY));
		CHECK(driver_holds(at, 0x100 + i, sizes[i] / 4));
		MUST(cuIpcOpenMemHandle(&again, handle, LAZY));
		CHECK(again == at);
		MUST(driver_fill(NULL, at, 0x200 + i, sizes[i] / 4));
		MUST(cuIpcCloseMemHandle(at));
		CHECK(driver_holds(at, 0x200 + i, sizes[i] / 4));
		MUST(cuIpcCloseMemHandle(at));
		is_unmapped_at_last(at);
		CHECK(cuIpcCloseMemHandle(at) == CUDA_ERROR_INVALID_VALUE);
		give_turn(to_giver[1]);
	}
	CHECK(sim_live().device_bytes == 0 && sim_live().host_bytes == 0 && sim_broken_rules() == 0);
}

static void gives_all(void)
{
	pid_t pid = split(takes_all);

	driver_start(0);
	for (unsigned i = 0; i < N; i++) {
		CUdeviceptr block = child_alloc(sizes[i]);

		MUST(driver_fill(NULL, block, 0x100 + i, sizes[i] / 4));
		MUST(cu.cuCtxSynchronize());
		CUipcMemHandle handle = handle_of(block), same = handle_of(block + 4);
		CHECK(sizes[i] < 100 * MIB || sim_where(block + sizes[i] - 1) == *getenv("LIES_ON"));
		CHECK(memcmp(&handle, &same, sizeof(handle)) == 0);
		tell(to_taker[1], &handle, sizeof(handle));
		take_turn(to_giver[0]);
		CHECK(driver_holds(block, 0x200 + i, sizes[i] / 4));
		MUST(cu.cuMemFree_v2(block));
	}
	join(pid);
}

TEST(memory_is_the_same_on_both_sides)
{
	child_passes(SETTINGS("ipc=yes,heap.chunk=2MiB,device.budget=200MiB", "LIES_ON=D"), gives_all);
	child_passes(SETTINGS("ipc=yes,heap.chunk=2MiB,spill.mode=fast,device.budget=200MiB", "LIES_ON=D"), gives_all);
}

TEST(memory_on_the_host_can_be_given_too)
{
	child_passes(SETTINGS("ipc=yes,device.budget=4MiB,spill.mode=static", "LIES_ON=H"), gives_all);
}

/* ---- only what was made for it ---- */

static void takes_one(void)
{
	CUipcMemHandle handle = hear_handle();
	CUdeviceptr at;

	driver_start(0);
	MUST(cuIpcOpenMemHandle_v2(&at, handle, LAZY));
	CHECK(driver_holds(at, 0x77, 3 * MIB / 4));
	give_turn(to_giver[1]);
}

CHILD_TEST(without_the_setting_only_memory_of_a_rule_is_given,
	   SETTINGS("spill.mode=exact", "SPILLWAY_POLICY=" IPC_POLICY))
{
	pid_t pid = split(takes_one);
	CUipcMemHandle handle;

	driver_start(0);
	CUdeviceptr fixed = child_alloc(3 * MIB), other = child_alloc(4 * MIB), native = child_alloc(5 * MIB);
	memset(&handle, 0x55, sizeof(handle));
	CHECK(cu.cuIpcGetMemHandle(&handle, other) == CUDA_ERROR_INVALID_VALUE && handle.reserved[9] == 0x55);
	CHECK(cu.cuIpcGetMemHandle(NULL, fixed) == CUDA_ERROR_INVALID_VALUE);
	/* The driver's own goes there and back as it is. */
	unsigned long gets = sim_calls("cuIpcGetMemHandle"), opens = sim_calls("cuIpcOpenMemHandle_v2");
	handle = handle_of(native);
	CUdeviceptr at;
	CHECK(cuIpcOpenMemHandle_v2(&at, handle, LAZY) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(sim_calls("cuIpcGetMemHandle") == gets + 1 && sim_calls("cuIpcOpenMemHandle_v2") == opens + 1);
	unsigned long closes = sim_calls("cuIpcCloseMemHandle");
	CHECK(cuIpcCloseMemHandle(native) == CUDA_ERROR_INVALID_VALUE);
	CHECK(sim_calls("cuIpcCloseMemHandle") == closes + 1);
	/* In its own process there is nothing to open. */
	MUST(driver_fill(NULL, fixed, 0x77, 3 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	handle = tell_handle(fixed);
	CHECK(cuIpcOpenMemHandle_v2(&at, handle, LAZY) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(sim_calls("cuIpcGetMemHandle") == gets + 1 && sim_calls("cuIpcOpenMemHandle_v2") == opens + 1);
	take_turn(to_giver[0]);
	join(pid);
}

/* ---- who cannot open it ---- */

static CUresult try_to_open(CUipcMemHandle handle)
{
	CUdeviceptr at = 4711;
	CUresult result = cuIpcOpenMemHandle_v2(&at, handle, LAZY);

	CHECK(result == CUDA_SUCCESS || at == 4711);
	return result;
}

static void takes_without_spillway(void)
{
	setenv("SPILLWAY", "0", 1);
	CUipcMemHandle handle = hear_handle();
	driver_start(0);
	CHECK(try_to_open(handle) == CUDA_ERROR_INVALID_VALUE);
}

CHILD_TEST(who_cannot_open_it_is_told_so, SETTINGS("ipc=yes"))
{
	pid_t pid = split(takes_without_spillway);

	driver_start(0);
	tell_handle(child_alloc(MIB));
	join(pid);
}

/* The words of a handle: 3 pid, 4 and 5 start, 6 nonce, 8 id, 10 base. */
static CUipcMemHandle with_word(CUipcMemHandle handle, unsigned word)
{
	unsigned words[sizeof(handle) / 4];

	memcpy(words, &handle, sizeof(words));
	words[word] ^= 1u << 21;
	memcpy(&handle, words, sizeof(words));
	return handle;
}

static void takes_what_is_wrong(void)
{
	CUipcMemHandle handle = hear_handle();
	CUdeviceptr at;

	driver_open();
	MUST(cu.cuInit(0));
	CHECK(try_to_open(handle) == CUDA_ERROR_INVALID_CONTEXT);
	driver_start(0);
	CHECK(cuIpcOpenMemHandle_v2(&at, handle, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(try_to_open(with_word(handle, 2)) == CUDA_ERROR_INVALID_VALUE); /* the version */
	for (unsigned word = 3; word < 12; word++)
		if (word != 7)
			CHECK(try_to_open(with_word(handle, word)) == CUDA_ERROR_INVALID_HANDLE);
	MUST(cuIpcOpenMemHandle_v2(&at, handle, LAZY));
	CHECK(driver_holds(at, 0x31, MIB));
	/* The giver frees it: it cannot be opened any more once it is closed, and lives until then. */
	give_turn(to_giver[1]);
	take_turn(to_taker[0]);
	CHECK(driver_holds(at, 0x31, MIB));
	MUST(cuIpcCloseMemHandle(at));
	CHECK(try_to_open(handle) == CUDA_ERROR_INVALID_HANDLE);
	/* The giver ends. */
	handle = hear_handle();
	MUST(cuIpcOpenMemHandle_v2(&at, handle, LAZY));
	give_turn(to_giver[1]);
	char c;
	CHECK(read(to_taker[0], &c, 1) == 0);
	CHECK(driver_holds(at, 0x32, MIB));
	MUST(cuIpcCloseMemHandle(at));
	CHECK(try_to_open(handle) == CUDA_ERROR_INVALID_HANDLE);
}

CHILD_TEST(what_has_ended_or_is_wrong_is_not_opened, SETTINGS("ipc=yes"))
{
	pid_t pid = split(takes_what_is_wrong), giver;

	close(to_taker[0]);
	giver = fork();
	if (giver) {
		int status;

		close(to_taker[1]);
		CHECK(waitpid(giver, &status, 0) == giver && WIFSIGNALED(status));
		join(pid);
		return;
	}
	driver_start(0);
	CUdeviceptr block = new_filled(0x31);
	tell_handle(block);
	take_turn(to_giver[0]);
	MUST(cu.cuMemFree_v2(block));
	block = new_filled(0x32);
	give_turn(to_taker[1]);
	tell_handle(block);
	take_turn(to_giver[0]);
	kill(getpid(), SIGKILL);
}

/* ---- what fails leaves nothing behind ---- */

static void takes_with_failures(void)
{
	static const char *const calls[] = {"cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap",
					    "cuMemSetAccess"};
	CUipcMemHandle handle = hear_handle();
	CUdeviceptr at;

	driver_start(0);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned n = 1; n <= 2; n++) {
			sim_fail(calls[i], n, CUDA_ERROR_NOT_SUPPORTED);
			CUresult result = cuIpcOpenMemHandle_v2(&at, handle, LAZY);
			if (sim_fail_pending()) {
				sim_fail(calls[i], 0, CUDA_SUCCESS);
				MUST(result);
				MUST(cuIpcCloseMemHandle(at));
				is_unmapped_at_last(at);
			} else {
				CHECK(result != CUDA_SUCCESS);
			}
			CHECK(sim_live().handles == 0 && sim_live().mappings == 0);
		}
	give_turn(to_giver[1]);
}

CHILD_TEST(what_fails_on_the_way_leaves_nothing_behind, SETTINGS("ipc=yes,heap.chunk=2MiB"))
{
	pid_t pid = split(takes_with_failures);
	CUipcMemHandle handle;

	driver_start(0);
	CUdeviceptr block = child_alloc(8 * MIB);
	sim_fail("cuMemExportToShareableHandle", 2, CUDA_ERROR_NOT_SUPPORTED);
	CHECK(cu.cuIpcGetMemHandle(&handle, block) == CUDA_ERROR_INVALID_VALUE);
	tell_handle(block);
	take_turn(to_giver[0]);
	join(pid);
}

/* ---- neither call waits for the GPU ---- */

enum { PATIENCE_S = 10 };

static unsigned *held;
static volatile sig_atomic_t late;

static void let_go(int signal)
{
	late = 1;
	child_release(held);
}

/* From here on a call that waits for that stream is late, but returns. */
static void hold(CUstream stream)
{
	held = child_hold(stream);
	CHECK(signal(SIGALRM, let_go) != SIG_ERR);
	alarm(PATIENCE_S);
}

static void release_in_time(void)
{
	alarm(0);
	CHECK(!late);
	child_release(held);
}

static void (*takes)(void);

static void gives_two(void)
{
	pid_t pid = split(takes);

	driver_start(0);
	for (unsigned i = 0; i < 2; i++)
		tell_handle(new_filled(0x55));
	take_turn(to_giver[0]);
	join(pid);
}

static void gives_two_to(void (*taker)(void), const char *const *settings)
{
	takes = taker;
	child_passes(settings, gives_two);
}
#define EXACT SETTINGS("ipc=yes,spill.mode=exact")
#define FAST  SETTINGS("ipc=yes,spill.mode=fast")

static void close_in_a_capture(CUdeviceptr at)
{
	CUstream stream = child_stream();

	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuIpcCloseMemHandle(at));
	CHECK(is_mapped(at));
	driver_forget_capture(stream);
}

PART_TEST(opening_and_closing_wait_for_no_stream, gives_two_to(part, EXACT); gives_two_to(part, FAST))
{
	CUipcMemHandle handle[2] = {hear_handle(), hear_handle()};
	CUdeviceptr at[2], again;

	driver_start(0);
	CUstream stream = child_stream();
	MUST(cuIpcOpenMemHandle_v2(&at[0], handle[0], LAZY));
	close_in_a_capture(at[0]);
	hold(stream);
	MUST(cuIpcOpenMemHandle_v2(&at[1], handle[1], LAZY));
	release_in_time();
	if (at[1] != at[0])
		is_unmapped_at_last(at[0]);
	/* Work that was submitted before the close still reaches the memory. */
	hold(stream);
	MUST(driver_fill(stream, at[1], 0x99, MIB));
	MUST(cuIpcCloseMemHandle(at[1]));
	CHECK(cuIpcCloseMemHandle(at[1]) == CUDA_ERROR_INVALID_VALUE);
	CHECK(is_mapped(at[1]));
	MUST(cuIpcOpenMemHandle_v2(&again, handle[1], LAZY));
	CHECK(driver_holds(again, 0x55, MIB));
	release_in_time();
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(driver_holds(again, 0x99, MIB));
	is_unmapped_at_last(at[1]);
	CHECK(driver_holds(again, 0x99, MIB));
	/* A refusal is tried again. */
	sim_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
	MUST(cuIpcCloseMemHandle(again));
	is_unmapped_at_last(again);
	CHECK(!sim_fail_pending());
	CHECK(sim_broken_rules() == 0);
	give_turn(to_giver[1]);
}

/* What is opened there is closed when the green context has ended, whose work may go on. */
PART_TEST(what_a_green_context_has_opened_stays_until_its_work_is_done, gives_two_to(part, EXACT))
{
	CUipcMemHandle handle[2] = {hear_handle(), hear_handle()};
	CUcontext context = driver_start(0), part;
	CUgreenCtx green;
	CUdeviceptr at;

	MUST(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	MUST(cuCtxFromGreenCtx(&part, green));
	MUST(cu.cuCtxSetCurrent(part));
	CUstream stream = child_stream();
	MUST(cuIpcOpenMemHandle_v2(&at, handle[0], LAZY));
	hold(stream);
	MUST(driver_fill(stream, at, 0x99, MIB));
	MUST(cu.cuStreamDestroy_v2(stream));
	MUST(cu.cuCtxSetCurrent(context));
	MUST(cuGreenCtxDestroy(green));
	MUST(cuIpcCloseMemHandle(at));
	CHECK(is_mapped(at));
	release_in_time();
	MUST(cu.cuCtxSynchronize());
	is_unmapped_at_last(at);
	CHECK(sim_broken_rules() == 0);
	give_turn(to_giver[1]);
}

/* What waits for a context is unmapped when that ends, or, if the driver refuses it then, later. */
PART_TEST(what_the_driver_refuses_to_unmap_with_a_context_goes_later, gives_two_to(part, EXACT))
{
	CUipcMemHandle handle[2] = {hear_handle(), hear_handle()};
	CUcontext primary = driver_start(0);
	CUdeviceptr at;
	CUcontext context = child_context();
	CUstream stream = child_stream();

	MUST(cuIpcOpenMemHandle_v2(&at, handle[0], LAZY));
	hold(stream);
	MUST(cuIpcCloseMemHandle(at));
	release_in_time();
	MUST(cu.cuStreamSynchronize(stream));
	sim_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
	MUST(cu.cuCtxDestroy_v2(context));
	CHECK(!sim_fail_pending() && is_mapped(at));
	MUST(cu.cuCtxSetCurrent(primary));
	for (unsigned i = 0; i < 100 && is_mapped(at); i++)
		look_for_what_is_done();
	CHECK(!is_mapped(at) && sim_broken_rules() == 0);
	give_turn(to_giver[1]);
}

/* One that was killed leaves its socket, which the next one removes when it is old. */
GROUP(folder_make_for_all, folder_remove)
