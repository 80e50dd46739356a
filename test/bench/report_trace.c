// SPDX-License-Identifier: Apache-2.0
/*
 * report_trace: writes the trace of a training job that never ran, to try `spillway report` on something large.
 *
 *   report_trace FILE [EVENTS [SEED]]
 *
 * A network of LAYERS layers goes forwards and backwards, then its optimizer runs; there is less device memory than it
 * needs. What is missing comes in when it is named, and what was used last goes out, which is near the best for a job
 * that goes round. Now and then something else happens: gaps, faults, a suspension, an allocation that is refused.
 * Events are written until there are that many (1,000,000). The figures mean nothing; their shape is that of a real
 * trace.
 */
#include "test/unit/seed.h"
#include "test/unit/trace_file.h"

#define US UINT64_C(1000)

enum {
	LAYERS = 24,
	KERNELS = 14, /* of a layer, each way */
	BLOCKS = LAYERS * 4 + 2,
	THREAD = 1,
	WORKER = 2,
};
#define BUDGET (9216 * MIB)

enum rule { WEIGHTS = 1, OPTIM, ACTIVATIONS, REST, NEVER };

struct block {
	uint64_t address, bytes, last;
	bool here;
};

static struct block blocks[BLOCKS];
static struct trace_file file;
static struct seed seed;
static uint64_t now = 5000 * MS, here, n_events, most, n_moves, sampled;
static uint64_t faults_gpu, faults_cpu;

static uint64_t pace_ns(uint64_t bytes)
{
	return bytes / 48; /* 48 GB/s */
}

/* Frames of 4000 events, or when the thread changes. */
static void frame(uint32_t thread)
{
	static uint32_t now_thread;
	static uint64_t in_frame;

	if (now_thread != thread || ++in_frame > 4000 || !file.open) {
		file_frame(&file, thread, now);
		now_thread = thread;
		in_frame = 0;
	}
	n_events++;
}

#define ADD(thread, what, when, ...) (frame(thread), FILE_ADD(&file, what, when, __VA_ARGS__))

static void name(uint64_t list, uint64_t number, const char *text)
{
	struct trace_event event = {
	    .kind = TRACE_name, .time = now, .field = {list, number}, .text = text, .text_bytes = strlen(text)};

	frame(THREAD);
	trace_frame_add(file.writer, &event);
}

static void sample(uint64_t managed)
{
	uint64_t on_host = 0;

	if (now < sampled + 100 * MS)
		return;
	sampled = now;
	for (int i = 0; i < BLOCKS; i++)
		on_host += blocks[i].here || !blocks[i].bytes ? 0 : blocks[i].bytes;
	ADD(WORKER, bytes, now, 0, here, on_host, managed, 0, 620 * MIB, BUDGET);
	faults_gpu += seed_below(&seed, 900);
	faults_cpu += seed_below(&seed, 40);
	ADD(WORKER, faults, now, 0, faults_gpu, faults_cpu, faults_gpu * 65536, faults_cpu * 4096);
}

static void move(struct block *block, bool out, uint64_t begin, uint64_t why)
{
	uint64_t at = begin;

	for (uint64_t done = 0; done < block->bytes; done += 64 * MIB) {
		uint64_t bytes = block->bytes - done < 64 * MIB ? block->bytes - done : 64 * MIB;

		ADD(WORKER, move, at, n_moves, 0, block->address + done, bytes, out, why);
		at += pace_ns(bytes);
		ADD(WORKER, moved, at, n_moves++, 0);
	}
	block->here = !out;
	here += out ? -block->bytes : block->bytes;
}

static void make_room(uint64_t bytes, const struct block *keep)
{
	while (here + bytes > BUDGET) {
		struct block *victim = NULL;

		for (int i = 0; i < BLOCKS; i++)
			if (blocks[i].here && &blocks[i] != keep && blocks[i].last + 30 < n_moves + n_events / 4 &&
			    (!victim || blocks[i].last > victim->last))
				victim = &blocks[i];
		if (!victim)
			for (int i = 0; i < BLOCKS && !victim; i++)
				victim = blocks[i].here && &blocks[i] != keep ? &blocks[i] : NULL;
		move(victim, true, now, seed_below(&seed, 3) ? TRACE_WHY_AHEAD : TRACE_WHY_ROOM);
	}
}

static void need(struct block *block, uint64_t function)
{
	uint64_t ns = pace_ns(block->bytes), begin = now;
	bool ahead = seed_below(&seed, 10) < 6;

	block->last = n_moves + n_events / 4;
	if (block->here)
		return;
	make_room(block->bytes, block);
	if (ahead) {
		move(block, false, begin, TRACE_WHY_AHEAD);
		ns = ns / 5 + seed_below(&seed, ns / 5 + 1);
	} else
		move(block, false, begin, TRACE_WHY_WAITED);
	ADD(THREAD, wait, begin, 0, ns, function);
	now = begin + ns;
}

static void submit(uint64_t function, struct block *const *named, unsigned n)
{
	struct trace_named addresses[4];

	for (unsigned i = 0; i < n; i++)
		need(named[i], function);
	for (unsigned i = 0; i < n; i++)
		addresses[i] = (struct trace_named){.address = named[i]->address};
	frame(THREAD);
	file_submit(&file, now, function, addresses, n);
	now += 60 * US + seed_below(&seed, 60 * US);
}

static void layer(int i, bool back)
{
	struct block *named[3] = {&blocks[i * 4], &blocks[i * 4 + 2], &blocks[i ? i * 4 - 2 : BLOCKS - 2]};

	for (int k = 0; k < KERNELS; k++)
		submit((uint64_t)(1 + k % 5 + (back ? 5 : 0)), named, 3);
}

static void step(uint64_t number)
{
	ADD(THREAD, step, now, 0, LAYERS * KERNELS * 2);
	ADD(THREAD, push, now, 0);
	for (int i = 0; i < LAYERS; i++)
		layer(i, false);
	ADD(THREAD, pop, now, 0);
	ADD(THREAD, push, now, 1);
	for (int i = LAYERS; i-- > 0;)
		layer(i, true);
	ADD(THREAD, pop, now, 0);
	ADD(THREAD, push, now, 2);
	for (int i = 0; i < LAYERS; i++) {
		struct block *named[3] = {&blocks[i * 4], &blocks[i * 4 + 1], &blocks[i * 4 + 3]};

		submit(11, named, 3);
	}
	ADD(THREAD, pop, now, 0);
	if (number % 7 == 3) {
		ADD(WORKER, gap, now, 0, 2 * MS, 64 * MIB, 64 * MIB, number % 35 == 3);
		now += 2 * MS;
	}
	sample(number > 20 ? 512 * MIB : 0);
}

static void allocate(int i, uint64_t bytes, uint64_t rule, uint64_t site, uint64_t backend)
{
	static uint64_t next = UINT64_C(0x7f2000000000);

	blocks[i] = (struct block){.address = next, .bytes = bytes, .here = backend == 0 && here + bytes <= BUDGET};
	ADD(THREAD, ask, now, bytes, 0, 0, site);
	now += blocks[i].here ? 60 * US : 180 * US * bytes / MIB; /* pinning takes its time */
	ADD(THREAD, made, now, (uint64_t)i + 1, next, bytes, 0, 0, backend, rule, site,
	    blocks[i].here || backend ? 0 : bytes);
	here += blocks[i].here ? bytes : 0;
	next += (bytes + 64 * MIB - 1) / (64 * MIB) * 64 * MIB;
}

static void begin(void)
{
	static const char *const functions[] = {
	    "cuMemcpyHtoDAsync_v2", "gemm_bf16_128x256_tn",  "layer_norm_kernel",
	    "softmax_warp_forward", "gelu_kernel",           "add_bias_kernel",
	    "gemm_bf16_128x128_nt", "layer_norm_backward",   "softmax_warp_backward",
	    "gelu_backward",        "reduce_kernel<512, 1>", "multi_tensor_apply_kernel<AdamFunctor>"};

	for (uint64_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		name(TRACE_FUNCTIONS, i, functions[i]);
	name(TRACE_SITES, 1, "libc10_cuda.so+0x2fa10");
	name(TRACE_SITES, 2, "libtorch_cuda.so+0x81c3e0");
	name(TRACE_SITES, 3, "libcublasLt.so.13+0x99b04");
	name(TRACE_RULES, WEIGHTS, "weights");
	name(TRACE_RULES, OPTIM, "optim");
	name(TRACE_RULES, ACTIVATIONS, "activations");
	name(TRACE_RULES, REST, "everything else");
	name(TRACE_RULES, NEVER, "embedding tables");
	name(TRACE_THREADS, THREAD, "python");
	name(TRACE_THREADS, WORKER, "spillway-mover");
	name(TRACE_RANGES, 0, "forward");
	name(TRACE_RANGES, 1, "backward");
	name(TRACE_RANGES, 2, "optimizer");
	for (int i = 0; i < LAYERS; i++) {
		allocate(i * 4, 108 * MIB, WEIGHTS, 1, 0);
		allocate(i * 4 + 1, 108 * MIB, WEIGHTS, 1, 0);
		allocate(i * 4 + 2, 162 * MIB, ACTIVATIONS, 2, 0);
		allocate(i * 4 + 3, 216 * MIB, OPTIM, 1, 0);
	}
	allocate(BLOCKS - 2, 32 * MIB, REST, 3, 0);
	allocate(BLOCKS - 1, 512 * MIB, REST, 0, 1);
}

/* Once: what a job may go through that is not its daily work. */
static void interrupt(void)
{
	ADD(THREAD, refused, now, 24576 * MIB, 0, 0, REST, 2, 2);
	ADD(WORKER, state, now, 1);
	now += 800 * MS;
	ADD(WORKER, state, now, 0);
}

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 4) {
		fprintf(stderr, "usage: report_trace FILE [EVENTS [SEED]]\n");
		return 2;
	}
	most = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
	seed.state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	file = file_new("version=1\nstart=1795291697123456789\nclock=4900000000\npid=4711\nhost=node17\n"
			"command=python train.py --layers 24\npolicy=training.yaml\npolicy_hash=9f3ac211\nmode=exact\n"
			"spillway=0.1.0\ndevices=0:10737418240 \n");
	begin();
	for (uint64_t i = 0; n_events < most; i++) {
		step(i);
		if (i == 60)
			interrupt();
	}
	ADD(THREAD, end, now, 0);
	file_save(&file, argv[1]);
	file_free(&file);
	printf("%llu events, %llu moves, %.1f s\n", (unsigned long long)n_events, (unsigned long long)n_moves,
	       (double)now / 1e9);
	return 0;
}
