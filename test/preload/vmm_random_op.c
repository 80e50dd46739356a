// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_random_op.c: operations on spans of memory, and the shadow that says what every word must be.
 */
#include "test/preload/vmm_random.h"
#include "test/preload/trouble.h"
#include "test/sim/sim.h"

uint32_t worker_below(struct worker *worker, uint32_t n)
{
	return made_up_next(&worker->random) % n;
}

/* ---- the kernel ---- */

static void mix(uint32_t *to, const uint32_t *from, size_t n, uint32_t salt)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (from ? from[i] : to[i] * 2654435761u) + salt + (uint32_t)i;
}

static void mix_body(const struct sim_launch *launch, void **args)
{
	mix(*(uint32_t **)args[0], *(const uint32_t **)args[1], *(size_t *)args[2], *(uint32_t *)args[3]);
}

SIM_MODULE(image, SIM_KERNEL("mix", mix_body, 8, 8, 8, 4));
static CUfunction mix_function;

void op_prepare(void)
{
	mix_function = made_up_kernel(&image, "mix");
}

/* ---- spans: what of which memory ---- */

static CUdeviceptr address(const struct span *span)
{
	return span->segment->at + span->start * 4;
}

/* Calls for every piece of memory that the span lies in: the memory, the word of it, the word of the span, how many. */
static unsigned pieces(const struct span *span, struct memory *ret_memory[PIECES], size_t ret_at[PIECES],
		       size_t ret_words[PIECES])
{
	size_t per = span->segment->piece / 4;
	unsigned n = 0;

	for (size_t word = span->start, left = span->words; left; n++) {
		size_t in = word % per, some = per - in < left ? per - in : left;

		ret_memory[n] = span->segment->slot[word / per];
		ret_at[n] = in;
		ret_words[n] = some;
		word += some;
		left -= some;
	}
	return n;
}

static void gather(const struct span *span, uint32_t *ret_words)
{
	struct memory *memory[PIECES];
	size_t at[PIECES], words[PIECES];

	for (unsigned i = 0, n = pieces(span, memory, at, words); i < n; ret_words += words[i++])
		memcpy(ret_words, memory[i]->shadow + at[i], words[i] * 4);
}

static void scatter(const struct span *span, const uint32_t *from)
{
	struct memory *memory[PIECES];
	size_t at[PIECES], words[PIECES];

	for (unsigned i = 0, n = pieces(span, memory, at, words); i < n; from += words[i++])
		memcpy(memory[i]->shadow + at[i], from, words[i] * 4);
}

static bool span_meet(const struct span *a, const struct span *b)
{
	struct memory *of_a[PIECES], *of_b[PIECES];
	size_t at[PIECES], words[PIECES];
	unsigned n = pieces(a, of_a, at, words), m = pieces(b, of_b, at, words);

	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < m; j++)
			if (of_a[i] == of_b[j])
				return true;
	return false;
}

/* Does it name one memory at two addresses? */
static bool span_has_alias(const struct span *span)
{
	struct memory *memory[PIECES];
	size_t at[PIECES], words[PIECES];
	unsigned n = pieces(span, memory, at, words);

	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < i; j++)
			if (memory[i] == memory[j])
				return true;
	return false;
}

bool span_is_mapped(const struct span *span)
{
	size_t per = span->segment->piece / 4;

	for (size_t slot = span->start / per; slot <= (span->start + span->words - 1) / per; slot++)
		if (!span->segment->slot[slot])
			return false;
	return true;
}

/* The span's memory is used by the stream from now on: after all that was submitted to it. */
static void order(struct worker *worker, const struct span *span, unsigned stream)
{
	struct memory *memory[PIECES];
	size_t at[PIECES], words[PIECES];
	bool waits[STREAMS] = {false};

	for (unsigned i = 0, n = pieces(span, memory, at, words); i < n; i++) {
		waits[memory[i]->stream] = true;
		memory[i]->stream = stream;
	}
	for (unsigned s = 0; s < STREAMS; s++) {
		if (!waits[s] || s == stream)
			continue;
		GO(cuEventRecord(worker->event, worker->stream[s]));
		GO(cuStreamWaitEvent(worker->stream[stream], worker->event, 0));
	}
}

bool span_make(struct worker *worker, struct span *ret_span, size_t words)
{
	struct segment *segment = &worker->segment[worker_below(worker, SEGMENTS)];
	unsigned first = worker_below(worker, SLOTS), last;
	size_t per = segment->piece / 4, room;

	while (first < SLOTS && !segment->slot[first])
		first++;
	if (first == SLOTS)
		return false;
	for (last = first; last < SLOTS && segment->slot[last];)
		last++;
	room = (last - first) * per;
	size_t start = worker_below(worker, (uint32_t)per);
	if (!words)
		words = 1 + worker_below(worker, (uint32_t)(worker_below(worker, 4) ? room - start : 1000));
	if (words > room - start)
		words = room - start;
	*ret_span = (struct span){segment, first * per + start, words};
	return true;
}

/* ---- operations ---- */

/*
 * Are the words after the operation known? They are not if it reads what it has itself written through another address:
 * a copy between aliases, or MIX over a span with the same memory at two addresses.
 */
bool op_is_defined(const struct op *op)
{
	return !(op->from.words && span_meet(&op->to, &op->from)) && !(op->kind == MIX && span_has_alias(&op->to));
}

bool op_make(struct worker *worker, struct op *ret_op)
{
	struct op op = {.kind = worker_below(worker, KINDS),
			.stream = worker_below(worker, STREAMS),
			.salt = worker_below(worker, 1u << 30)};

	if (!span_make(worker, &op.to, 0))
		return false;
	if (op.kind == UPLOAD && op.to.words > MIB / 4)
		op.to.words = MIB / 4;
	if (op.kind == COPY_KERNEL || op.kind == COPY) {
		if (!span_make(worker, &op.from, op.to.words) || span_meet(&op.to, &op.from))
			return false;
		if (op.from.words < op.to.words)
			op.to.words = op.from.words;
		op.from.words = op.to.words;
	}
	*ret_op = op;
	return op_is_defined(&op);
}

void op_submit(const struct op *op, CUstream stream, const uint32_t *host)
{
	CUdeviceptr to = address(&op->to), from = op->from.words ? address(&op->from) : 0;
	size_t words = op->to.words;
	uint32_t salt = op->salt;
	void *args[] = {&to, &from, &words, &salt};

	switch (op->kind) {
	case MIX:
	case COPY_KERNEL:
		GO(cuLaunchKernel(mix_function, 4, 1, 1, 64, 1, 1, 0, stream, args, NULL));
		break;
	case SET32:
		GO(cuMemsetD32Async(to, salt, words, stream));
		break;
	case SET8:
		GO(cuMemsetD8Async(to, (unsigned char)salt, words * 4, stream));
		break;
	case COPY:
		GO(cuMemcpyDtoDAsync_v2(to, from, words * 4, stream));
		break;
	default:
		GO(cuMemcpyHtoDAsync_v2(to, host, words * 4, stream));
		break;
	}
}

void op_apply(struct worker *worker, const struct op *op, const uint32_t *host)
{
	uint32_t *words = worker->buffer;

	switch (op->kind) {
	case MIX:
		gather(&op->to, words);
		mix(words, NULL, op->to.words, op->salt);
		break;
	case COPY_KERNEL:
		gather(&op->from, worker->other);
		mix(words, worker->other, op->to.words, op->salt);
		break;
	case SET32:
		for (size_t i = 0; i < op->to.words; i++)
			words[i] = op->salt;
		break;
	case SET8:
		memset(words, (int)(op->salt & 255), op->to.words * 4);
		break;
	case COPY:
		gather(&op->from, words);
		break;
	default:
		memcpy(words, host, op->to.words * 4);
		break;
	}
	scatter(&op->to, words);
}

void op_order(struct worker *worker, const struct op *op, unsigned stream)
{
	order(worker, &op->to, stream);
	if (op->from.words)
		order(worker, &op->from, stream);
}

void op_run(struct worker *worker, const struct op *op)
{
	trouble_step();
	op_order(worker, op, op->stream);
	if (op->kind == UPLOAD) {
		GO(cuStreamSynchronize(worker->stream[op->stream])); /* who may still read the buffer */
		for (size_t i = 0; i < op->to.words; i++)
			worker->pinned[i] = op->salt * 7 + (uint32_t)i;
	}
	op_submit(op, worker->stream[op->stream], worker->pinned);
	op_apply(worker, op, worker->pinned);
	if (op->kind == UPLOAD)
		GO(cuStreamSynchronize(worker->stream[op->stream]));
}

void span_check(struct worker *worker, const struct span *span)
{
	gather(span, worker->buffer);
	order(worker, span, 0);
	GO(cuMemcpyDtoHAsync_v2(worker->other, address(span), span->words * 4, worker->stream[0]));
	GO(cuStreamSynchronize(worker->stream[0]));
	for (size_t i = 0; i < span->words; i++)
		if (worker->other[i] != worker->buffer[i])
			made_up_fail("worker %u: word %zu of segment %zu (slot %zu) is %#x, not %#x", worker->id,
				     span->start + i, (size_t)(span->segment - worker->segment),
				     (span->start + i) * 4 / span->segment->piece, worker->other[i], worker->buffer[i]);
}

void worker_check(struct worker *worker)
{
	for (unsigned s = 0; s < SEGMENTS; s++)
		for (unsigned i = 0; i < SLOTS; i++) {
			struct segment *segment = &worker->segment[s];
			struct span span = {segment, i * (segment->piece / 4), segment->piece / 4};

			if (segment->slot[i])
				span_check(worker, &span);
		}
}
