// SPDX-License-Identifier: Apache-2.0
/* rules_kernel.c: the kernels of rules_kernel.h, as PTX and for the simulated GPU, and how a call goes beside one. */
#include "rules_kernel.h"
#include "sim.h"

#define HOLD_NS   20000000000ull /* on the simulated GPU, which may get little of the processor */
#define STANDS_MS 2000           /* a kernel that has not moved for so long stands */
/* A call waits that has not returned for so long, while the kernel has moved so often. */
#define WAITS_MS    300u
#define WAITS_BEATS 1000u

/* ---- on a real GPU ---- */

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
			  ".visible .entry hold(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)\n"
			  "{\n"
			  ".reg .pred %p<4>;\n.reg .u32 %r<10>;\n.reg .u64 %d<12>;\n"
			  "ld.param.u64 %d1, [p0];\nld.param.u64 %d2, [p1];\n"
			  "ld.param.u32 %r1, [p2];\nld.param.u32 %r2, [p3];\n"
			  "mov.u64 %d3, %globaltimer;\nmov.u32 %r3, 0;\n"
			  "AGAIN:\n"
			  "add.u32 %r3, %r3, 1;\n"
			  "st.volatile.global.u32 [%d1+4], %r3;\n"
			  "ld.volatile.global.u32 %r5, [%d2];\n"
			  "ld.volatile.global.u32 %r4, [%d1];\n"
			  "setp.ne.u32 %p1, %r4, 0;\n@%p1 bra WRITE;\n"
			  "nanosleep.u32 2000;\n"
			  "mov.u64 %d4, %globaltimer;\nsub.u64 %d5, %d4, %d3;\n"
			  "setp.lt.u64 %p2, %d5, 4000000000;\n@%p2 bra AGAIN;\n"
			  "WRITE:\n"
			  "mov.u32 %r6, 0;\n"
			  "NEXT:\n"
			  "setp.ge.u32 %p3, %r6, %r2;\n@%p3 bra DONE;\n"
			  "mul.wide.u32 %d6, %r6, 4;\nadd.u64 %d7, %d2, %d6;\n"
			  "st.volatile.global.u32 [%d7], %r1;\n"
			  "add.u32 %r6, %r6, 1;\nbra NEXT;\n"
			  "DONE:\n"
			  "membar.sys;\nmov.u32 %r7, 1;\nst.volatile.global.u32 [%d1+8], %r7;\n"
			  "ret;\n}\n"
#define FIRST_AND_STEP                                                                                                 \
	"mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\nmov.u32 %r5, %tid.x;\nmad.lo.u32 %r6, %r3, %r4, %r5;\n"        \
	"mov.u32 %r7, %nctaid.x;\nmul.lo.u32 %r8, %r7, %r4;\n"                                                         \
	"NEXT:\n"                                                                                                      \
	"setp.ge.u32 %p1, %r6, %r2;\n@%p1 bra DONE;\n"                                                                 \
	"mul.wide.u32 %d3, %r6, 4;\nadd.u64 %d4, %d1, %d3;\nadd.u32 %r6, %r6, %r8;\n"
			  ".visible .entry fill(.param .u64 p0, .param .u32 p1, .param .u32 p2)\n"
			  "{\n"
			  ".reg .pred %p<4>;\n.reg .u32 %r<10>;\n.reg .u64 %d<12>;\n"
			  "ld.param.u64 %d1, [p0];\nld.param.u32 %r1, [p1];\nld.param.u32 %r2, [p2];\n" FIRST_AND_STEP
			  "st.global.u32 [%d4], %r1;\nbra NEXT;\n"
			  "DONE:\nret;\n}\n"
			  ".visible .entry differ(.param .u64 p0, .param .u32 p1, .param .u32 p2, .param .u64 p3)\n"
			  "{\n"
			  ".reg .pred %p<4>;\n.reg .u32 %r<12>;\n.reg .u64 %d<12>;\n"
			  "ld.param.u64 %d1, [p0];\nld.param.u32 %r1, [p1];\nld.param.u32 %r2, [p2];\n"
			  "ld.param.u64 %d2, [p3];\n" FIRST_AND_STEP "ld.global.u32 %r9, [%d4];\n"
			  "setp.eq.u32 %p2, %r9, %r1;\n@%p2 bra NEXT;\n"
			  "mov.u32 %r10, 1;\nred.sys.global.add.u32 [%d2], %r10;\nbra NEXT;\n"
			  "DONE:\nret;\n}\n";

/* ---- on the simulated GPU ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void hold_body(const struct sim_launch *launch, void **args)
{
	struct rules_hold *hold = *(struct rules_hold **)args[0];
	volatile uint32_t *at = *(volatile uint32_t **)args[1];
	uint64_t began = now_ns();

	do {
		__atomic_add_fetch(&hold->beats, 1, __ATOMIC_RELAXED);
		(void)at[0];
		usleep(200);
	} while (!__atomic_load_n(&hold->go, __ATOMIC_RELAXED) && now_ns() - began < HOLD_NS);
	for (uint32_t i = 0; i < *(uint32_t *)args[3]; i++)
		at[i] = *(uint32_t *)args[2];
	__atomic_store_n(&hold->ended, 1, __ATOMIC_RELEASE);
}

static void fill_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = *(uint32_t **)args[0];

	for (uint32_t i = 0; i < *(uint32_t *)args[2]; i++)
		at[i] = *(uint32_t *)args[1];
}

static void differ_body(const struct sim_launch *launch, void **args)
{
	const uint32_t *at = *(uint32_t **)args[0];

	for (uint32_t i = 0; i < *(uint32_t *)args[2]; i++)
		**(uint32_t **)args[3] += at[i] != *(uint32_t *)args[1];
}

SIM_MODULE(image, SIM_KERNEL("hold", hold_body, 8, 8, 4, 4), SIM_KERNEL("fill", fill_body, 8, 4, 4),
	   SIM_KERNEL("differ", differ_body, 8, 4, 4, 8));

/* ---- on both ---- */

void rules_kernels_load(struct rules_kernels *ret_kernels)
{
	const struct rules_kernels *loaded = ret_kernels;
	struct rules_hold *words = rules_hold_new();
	CUmodule module;

	if (cu.cuModuleLoadData(&module, rules_simulated ? (const void *)&image : ptx)) {
		fprintf(stderr, "the driver takes no PTX: skipped\n");
		exit(77);
	}
	ok(cu.cuModuleGetFunction(&ret_kernels->hold, module, "hold"));
	ok(cu.cuModuleGetFunction(&ret_kernels->fill, module, "fill"));
	ok(cu.cuModuleGetFunction(&ret_kernels->differ, module, "differ"));
	/* A first launch may load code, which waits for kernels that run. */
	CUdeviceptr at = rules_alloc(4 * RULES_WORDS);
	words->go = 1;
	rules_fill(loaded, at, 1, RULES_WORDS, NULL);
	rules_differ(loaded, at, 1, RULES_WORDS, &words->beats, NULL);
	ok(cu.cuLaunchKernel(loaded->hold, 1, 1, 1, 1, 1, 1, 0, NULL,
			     (void *[]){&words, &at, &(uint32_t){7}, &(uint32_t){RULES_WORDS}}, NULL));
	ok(cu.cuCtxSynchronize());
	assert_int_equal(rules_count(at, 7), RULES_WORDS);
	ok(cu.cuMemFree(at));
	ok(cu.cuMemFreeHost(words));
}

struct rules_hold *rules_hold_new(void)
{
	void *words;

	ok(cu.cuMemHostAlloc(&words, sizeof(struct rules_hold), CU_MEMHOSTALLOC_PORTABLE));
	memset(words, 0, sizeof(struct rules_hold));
	return words;
}

static uint32_t beats_of(const struct rules_hold *hold)
{
	return __atomic_load_n(&hold->beats, __ATOMIC_RELAXED);
}

/* Waits until there are others, but not for long, nor for a kernel that has ended. */
static bool beats_after(const struct rules_hold *hold, uint32_t before, unsigned ms)
{
	for (unsigned i = 0; i < ms && beats_of(hold) == before && !rules_has_ended(hold); i++)
		usleep(1000);
	return beats_of(hold) != before;
}

void rules_hold_start(const struct rules_kernels *loaded, struct rules_hold *hold, CUdeviceptr at, uint32_t value,
		      CUstream stream)
{
	memset(hold, 0, sizeof(*hold));
	ok(cu.cuLaunchKernel(loaded->hold, 1, 1, 1, 1, 1, 1, 0, stream,
			     (void *[]){&hold, &at, &value, &(uint32_t){RULES_WORDS}}, NULL));
	assert_true(beats_after(hold, 0, 2000));
}

bool rules_has_ended(const struct rules_hold *hold)
{
	return __atomic_load_n(&hold->ended, __ATOMIC_ACQUIRE);
}

bool rules_is_running(const struct rules_hold *hold)
{
	return beats_after(hold, beats_of(hold), STANDS_MS) && !rules_has_ended(hold);
}

void rules_let_go(struct rules_hold *hold)
{
	__atomic_store_n(&hold->go, 1, __ATOMIC_RELEASE);
}

struct beside {
	CUcontext context;
	CUresult (*call)(void *argument);
	void *argument;
	CUresult result;
	int returned;
};

static void *call_beside(void *argument)
{
	struct beside *beside = argument;

	if (beside->context)
		cu.cuCtxSetCurrent(beside->context);
	beside->result = beside->call(beside->argument);
	__atomic_store_n(&beside->returned, 1, __ATOMIC_RELEASE);
	return NULL;
}

static bool has_waited(const struct rules_hold *hold, unsigned *ms, uint32_t before)
{
	return ++*ms > WAITS_MS && (beats_of(hold) - before >= WAITS_BEATS || *ms > STANDS_MS);
}

const char *rules_how(CUcontext context, CUresult (*call)(void *argument), void *argument, struct rules_hold *hold)
{
	struct beside beside = {.context = context, .call = call, .argument = argument};
	const char *found = RULES_WAITS;
	uint32_t before = beats_of(hold);
	unsigned ms = 0;

	assert_true(rules_is_running(hold));
	pthread_t thread = test_thread(call_beside, &beside);
	while (!__atomic_load_n(&beside.returned, __ATOMIC_ACQUIRE) && !has_waited(hold, &ms, before))
		usleep(1000);
	if (__atomic_load_n(&beside.returned, __ATOMIC_ACQUIRE))
		found = rules_is_running(hold) ? RULES_RETURNS : RULES_ENDS;
	else
		rules_let_go(hold);
	pthread_join(thread, NULL);
	if (beside.result)
		print_message("the call answers %d\n", beside.result);
	return beside.result ? RULES_REFUSED : found;
}

void rules_fill(const struct rules_kernels *loaded, CUdeviceptr at, uint32_t value, size_t n, CUstream stream)
{
	ok(cu.cuLaunchKernel(loaded->fill, 256, 1, 1, 256, 1, 1, 0, stream,
			     (void *[]){&at, &value, &(uint32_t){(uint32_t)n}}, NULL));
}

void rules_differ(const struct rules_kernels *loaded, CUdeviceptr at, uint32_t value, size_t n, uint32_t *count,
		  CUstream stream)
{
	ok(cu.cuLaunchKernel(loaded->differ, 256, 1, 1, 256, 1, 1, 0, stream,
			     (void *[]){&at, &value, &(uint32_t){(uint32_t)n}, &count}, NULL));
}

unsigned rules_count(CUdeviceptr at, uint32_t value)
{
	uint32_t words[RULES_WORDS];
	unsigned n = 0;

	ok(cu.cuMemcpyDtoH(words, at, sizeof(words)));
	for (size_t i = 0; i < RULES_WORDS; i++)
		n += words[i] == value;
	return n;
}
