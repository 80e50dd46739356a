// SPDX-License-Identifier: Apache-2.0
/*
 * blocks_job: a program that cuts a few large blocks itself, as karpathy's llm.c does. It submits what a training step of
 * GPT-2 (124M, bf16, attention of its own) names there: the same tensors at the same places of as many blocks, in the same
 * order. The kernels compute nothing of it, but each reads every byte that it names, writes every byte of its results, and
 * takes the time given, or longer where memory allows no less.
 *
 *   blocks_job [BATCH [STEPS [SCALE]]]     8, 10 and 0 where nothing is given; BATCH 0: a tiny shape, for tests
 *
 * SCALE is for the simulated GPU alone: kernels take so many times their time, and touch a word in each 64 KiB; 0: they take
 * none, and touch each word. Printed are "need BYTES", "each STEP MS DIGEST" and "check sum SUM" of all parameters.
 *
 * A real GPU: nvcc -x cu -arch native -O2 -I. -o blocks_job_gpu test/bench/blocks_job.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/portable.h"

#define NAMED 7 /* pointers of a kernel at most */

struct range {
	char *at;
	size_t bytes;
};

struct lengths {
	size_t words[NAMED]; /* of 4 bytes; those of pointers that the kernel has not are 0 */
	unsigned written;    /* the first so many pointers are results */
	unsigned apart;      /* of the words that are touched */
	double us;
};

static double scale; /* see above */

#ifdef __CUDACC__
#define BLOCKS 256 /* all of them run at once, so that each takes the whole time */
static __device__ double clock_us(void)
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return (double)ns / 1e3;
}
#define BEGIN() double begun = clock_us()
#define TAKE(us)                                                                                                       \
	while (clock_us() - begun < (us))                                                                              \
	continue
#else
#define BLOCKS   1
static void nap(double us)
{
	double ns = us * scale * 1e3;
	struct timespec time = {(time_t)(ns / 1e9), (long)(ns - (double)(time_t)(ns / 1e9) * 1e9)};

	if (ns > 0)
		nanosleep(&time, NULL);
}
#define BEGIN()  ((void)0)
#define TAKE(us) nap(us)
#endif

/* What a thread writes depends on all that it reads; its own words of a result may be among those. */
KERNEL8(work, uint32_t *, a, uint32_t *, b, uint32_t *, c, uint32_t *, d, uint32_t *, e, uint32_t *, f, uint32_t *, g,
	struct lengths, lengths)
{
	uint32_t *named[NAMED] = {a, b, c, d, e, f, g}, sum = 1;
	size_t first = KERNEL_FIRST * lengths.apart, step = KERNEL_STEP * lengths.apart;

	BEGIN();
	for (unsigned n = lengths.written; n < NAMED; n++)
		for (size_t i = first; i < lengths.words[n]; i += step)
			sum = ((sum << 5 | sum >> 27) ^ named[n][i]) * 16777619;
	for (unsigned n = 0; n < lengths.written; n++)
		for (size_t i = first; i < lengths.words[n]; i += step)
			named[n][i] = named[n][i] * 3 + sum + (uint32_t)i;
	TAKE(lengths.us);
}

static void check(cudaError_t result, const char *what)
{
	if (result == cudaSuccess)
		return;
	fprintf(stderr, "blocks_job: %s: error %d%s\n", what, (int)result,
		result == cudaErrorMemoryAllocation ? ": out of memory" : "");
	exit(1);
}
#define CHECK(call) check(call, #call)

static double speed = 1; /* of the kernels' times, by the batch */

static void submit(double us, unsigned written, const struct range *named, size_t count)
{
	struct lengths lengths = {{0}, written, scale > 0 ? 16384u : 1u, us * speed};
	uint32_t *at[NAMED] = {NULL};

	for (size_t i = 0; i < count; i++) {
		at[i] = (uint32_t *)named[i].at;
		lengths.words[i] = named[i].bytes / 4;
	}
	CHECK(LAUNCH(work, BLOCKS, 512, 0, at[0], at[1], at[2], at[3], at[4], at[5], at[6], lengths));
}

/* A kernel of so many microseconds with so many results: they come first, then what it only reads. */
#define RUN(us, written, ...)                                                                                          \
	do {                                                                                                           \
		const struct range named[] = {__VA_ARGS__};                                                            \
		submit(us, written, named, sizeof(named) / sizeof(named[0]));                                          \
	} while (0)

static size_t need;

static char *block(size_t bytes)
{
	void *at;

	CHECK(cudaMalloc(&at, bytes));
	need += bytes;
	return (char *)at;
}

static struct range part(struct range of, size_t offset, size_t bytes)
{
	struct range range = {of.at + offset, bytes};

	return range;
}

static void clear(struct range range)
{
	CHECK(cudaMemsetAsync(range.at, 0, range.bytes, 0));
}

/* Parameters, and activations, in the order in which they lie in their blocks. */
enum { WTE, WPE, L1W, L1B, QW, QB, AW, AB, L2W, L2B, FW, FB, PW, PB, LFW, LFB, PARAMS };
enum {
	ENC,
	LN1,
	LN1M,
	LN1R,
	ATTY,
	ATT,
	RES2,
	LN2,
	LN2M,
	LN2R,
	FCH,
	GELU,
	RES3,
	LNF,
	LNFM,
	LNFR,
	LOSS,
	QKVR,
	OUT,
	S4C,
	SC,
	ACTS
};

struct tensor {
	size_t bytes; /* of a layer */
	size_t layers;
	size_t offset;
};
static struct tensor param[PARAMS], act[ACTS];
static char *params, *grads, *acts;

static void tensor(struct tensor *tensor, size_t layers, size_t bytes, size_t *end)
{
	tensor->bytes = bytes;
	tensor->layers = layers;
	tensor->offset = *end;
	*end += bytes * layers;
}

static struct range layer_of(char *base, const struct tensor *tensor, size_t layer)
{
	struct range range = {base + tensor->offset + layer * tensor->bytes, tensor->bytes};

	return range;
}
#define P(name) layer_of(params, &param[name], param[name].layers > 1 ? l : 0)
#define G(name) layer_of(grads, &param[name], param[name].layers > 1 ? l : 0)
#define A(name) layer_of(acts, &act[name], act[name].layers > 1 ? l : 0)

static double milliseconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	size_t batch = argc > 1 ? strtoul(argv[1], NULL, 10) : 8, steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
	int tiny = batch == 0;
	size_t B = tiny ? 4 : batch, T = tiny ? 256 : 1024, C = tiny ? 64 : 768, L = tiny ? 2 : 12,
	       heads = tiny ? 4 : 12;
	size_t V = tiny ? 2048 : 50304, BT = B * T, BTC = 2 * BT * C, all = 0, weights = 0, l = 0;

	scale = argc > 3 ? atof(argv[3]) : 0;
	speed = (double)B / 8;
	for (int i = 0; i < PARAMS; i++) {
		const size_t elements[PARAMS] = {V * C, T * C, C,         C,     3 * C * C, 3 * C, C * C, C,
						 C,     C,     4 * C * C, 4 * C, 4 * C * C, C,     C,     C};

		tensor(&param[i], i >= L1W && i <= PB ? L : 1, 2 * elements[i], &weights);
	}
	for (int i = 0; i < ACTS; i++) {
		const size_t bytes[ACTS] = {BTC,        BTC,     4 * BT, 4 * BT, BTC,     2 * B * heads * T * T,
					    BTC,        BTC,     4 * BT, 4 * BT, 4 * BTC, 4 * BTC,
					    BTC,        BTC,     4 * BT, 4 * BT, 4 * BT,  3 * BTC,
					    2 * BT * V, 4 * BTC, BTC};

		tensor(&act[i], (i >= LN1 && i <= FCH) || i == RES3 || i == QKVR ? L : 1, bytes[i], &all);
	}
	params = block(weights);
	grads = block(weights);
	acts = block(all);
	struct range inputs = {block(4 * BT), 4 * BT}, targets = {block(4 * BT), 4 * BT}, mean = {block(4), 4};
	struct range m = {block(2 * weights), 2 * weights}, v = {block(2 * weights), 2 * weights};
	struct range master = {block(2 * weights), 2 * weights}, ws = {NULL, (size_t)(tiny ? 1 : 32) << 20};
	struct range whole_params = {params, weights}, whole_grads = {grads, weights}, whole_acts = {acts, all};
	void *host;

	ws.at = block(ws.bytes);
	CHECK(cudaMallocHost(&host, 4 * BT));
	memset(host, 1, 4 * BT);
	clear(whole_params);
	clear(whole_acts);
	clear(ws);
	printf("need %zu\n", need);
	for (size_t step = 0; step < steps; step++) {
		double begun = milliseconds();
		struct range dres = A(SC), d4 = A(S4C), out = A(OUT), few = part(out, 0, 4096);
		struct range scratch = part(out, 0, BTC), scratch3 = part(out, 0, 3 * BTC),
			     attention = part(out, 0, A(ATT).bytes);

		CHECK(cudaMemcpy(inputs.at, host, 4 * BT, cudaMemcpyHostToDevice));
		RUN(20, 1, A(ENC), inputs, P(WTE), P(WPE));
		RUN(15, 3, A(LN1), A(LN1M), A(LN1R), A(ENC), P(L1W), P(L1B));
		for (l = 0; l < L; l++) {
			struct range q = part(A(QKVR), 0, BTC), k = part(q, BTC, BTC), value = part(k, BTC, BTC),
				     res2 = A(RES2);
			struct range before = l ? layer_of(acts, &act[RES3], l - 1) : A(ENC), res3 = A(RES3);

			RUN(60, 2, scratch3, ws, A(LN1), P(QW), P(QB));
			RUN(20, 3, q, k, value, scratch3);
			RUN(90, 2, attention, ws, k, q);
			RUN(160, 1, A(ATT), attention);
			RUN(80, 2, scratch, ws, value, A(ATT));
			RUN(10, 1, A(ATTY), scratch);
			RUN(25, 2, scratch, ws, A(ATTY), P(AW), P(AB));
			RUN(25, 3, A(RES2), A(LN2), A(LN2M), before, scratch, P(L2W), P(L2B));
			RUN(80, 2, A(FCH), ws, A(LN2), P(FW), P(FB));
			RUN(30, 1, A(GELU), A(FCH));
			RUN(80, 2, scratch, ws, A(GELU), P(PW), P(PB));
			if (l + 1 == L) {
				RUN(25, 3, res3, A(LNF), A(LNFM), res2, scratch, P(LFW), P(LFB));
				continue;
			}
			l++; /* the next one's norm */
			RUN(25, 3, res3, A(LN1), A(LN1M), res2, scratch, P(L1W), P(L1B));
			l--;
		}
		RUN(1300, 2, out, ws, A(LNF), P(WTE));
		CHECK(cudaDeviceSynchronize());
		clear(A(LOSS));
		clear(whole_grads);
		CHECK(cudaMemcpy(targets.at, host, 4 * BT, cudaMemcpyHostToDevice));
		RUN(500, 2, out, A(LOSS), targets);
		clear(dres);
		RUN(1300, 2, part(d4, 0, BTC), ws, out, P(WTE));
		RUN(1300, 2, G(WTE), ws, out, A(LNF));
		l = L - 1;
		struct range last = A(RES3); /* what comes back through a layer lies there from here on */
		clear(part(out, 0, 4));
		RUN(30, 4, dres, G(LFW), G(LFB), few, part(d4, 0, BTC), last, A(LNFM));
		for (l = L; l-- > 0;) {
			struct range q = part(A(QKVR), 0, BTC), k = part(q, BTC, BTC), value = part(k, BTC, BTC);
			struct range dq = part(A(FCH), 0, BTC), dk = part(dq, BTC, BTC), dv = part(dk, BTC, BTC);
			struct range before = l ? layer_of(acts, &act[RES3], l - 1) : A(ENC);

			RUN(30, 1, A(GELU), A(FCH));
			RUN(10, 1, few, dres);
			RUN(5, 1, G(PB), few);
			RUN(80, 2, d4, ws, P(PW), dres);
			RUN(40, 1, d4, A(FCH));
			RUN(80, 2, G(PW), ws, A(GELU), dres);
			RUN(15, 1, few, d4);
			RUN(5, 1, G(FB), few);
			RUN(80, 2, last, ws, P(FW), d4);
			RUN(80, 2, G(FW), ws, A(LN2), d4);
			clear(part(out, 0, 4));
			RUN(30, 4, dres, G(L2W), G(L2B), few, last, A(RES2), A(LN2M));
			RUN(10, 1, few, dres);
			RUN(5, 1, G(AB), few);
			RUN(25, 2, last, ws, P(AW), dres);
			RUN(25, 2, G(AW), ws, A(ATTY), dres);
			RUN(10, 1, A(ATTY), last);
			RUN(90, 2, attention, ws, value, A(ATTY));
			RUN(90, 2, dv, ws, A(ATTY), A(ATT));
			RUN(200, 1, attention, A(ATT));
			RUN(80, 2, dq, ws, k, attention);
			RUN(80, 2, dk, ws, q, attention);
			RUN(20, 1, part(d4, 0, 3 * BTC), dq, dk, dv);
			RUN(15, 1, few, part(d4, 0, 3 * BTC));
			RUN(5, 1, G(QB), few);
			RUN(60, 2, last, ws, P(QW), part(d4, 0, 3 * BTC));
			RUN(60, 2, G(QW), ws, A(LN1), part(d4, 0, 3 * BTC));
			clear(part(out, 0, 4));
			RUN(30, 4, dres, G(L1W), G(L1B), few, last, before, A(LN1M));
		}
		RUN(30, 1, G(WPE), dres, inputs);
		CHECK(cudaMemcpyAsync(out.at, host, 4096, cudaMemcpyHostToDevice, 0));
		RUN(60, 1, G(WTE), few, dres, inputs);
		RUN(5, 1, mean, A(LOSS));
		CHECK(cudaMemcpyAsync(host, mean.at, 4, cudaMemcpyDeviceToHost, 0));
		CHECK(cudaDeviceSynchronize());
		clear(few);
		RUN(100, 1, few, whole_grads);
		RUN(5, 1, part(few, 0, 4));
		CHECK(cudaMemcpy(host, out.at, 4, cudaMemcpyDeviceToHost));
		if (!step) {
			clear(m);
			clear(v);
			clear(master);
		}
		for (int i = 0; i < PARAMS; i++) {
			size_t bytes = param[i].bytes * param[i].layers, at = param[i].offset;
			struct range weight = part(whole_params, at, bytes), own = part(master, 2 * at, 2 * bytes);

			if (!step)
				RUN(20, 1, own, weight);
			RUN(1500 * 8. / (double)B * (double)bytes / (double)weights + 3, 4, weight, own,
			    part(m, 2 * at, 2 * bytes), part(v, 2 * at, 2 * bytes), part(whole_grads, at, bytes));
		}
		CHECK(cudaDeviceSynchronize());
		printf("each %zu %.2f %08x\n", step + 1, (milliseconds() - begun) / (scale > 0 ? scale : 1),
		       *(uint32_t *)host);
		fflush(stdout);
	}
	uint32_t *words = (uint32_t *)malloc(weights), sum = 0;
	CHECK(words ? cudaMemcpy(words, params, weights, cudaMemcpyDeviceToHost) : cudaErrorMemoryAllocation);
	for (size_t i = 0; i < weights / 4; i++)
		sum = ((sum << 5 | sum >> 27) ^ words[i]) * 16777619;
	free(words);
	printf("check sum %08x\n", sum);
	return 0;
}
