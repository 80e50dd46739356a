// SPDX-License-Identifier: Apache-2.0
/*
 * train: the demo job. A small but real training program that knows nothing of Spillway: it tells the arms of a noisy
 * spiral apart. A point looks up a row of features in each of six grids of growing fineness; rows and coordinates go
 * through two hidden layers; softmax cross entropy, Adam, a running average of all weights for the evaluation.
 * The grids with their two Adam moments and their average are what makes it large, as embedding tables do in real life:
 * little arithmetic, a lot of memory.
 *
 * One source: gcc builds it for the simulated GPU, nvcc (-x cu -cudart static) for a real one; see test/portable.h.
 * Two runs of one build print the same bits: no atomics, and every sum has a fixed order.
 *
 *   train [width [steps [batch [seed]]]]
 *
 * Exit status: 0 trained, 1 a CUDA call failed ("out of memory" in the text when an allocation did), 2 bad arguments.
 */
#include <math.h>

#include <cuda_runtime_api.h>
#include "test/job/train_kernels.h"

#define TRAINING_SAMPLES 60000
#define TEST_SAMPLES     4000
#define SAMPLES          (TRAINING_SAMPLES + TEST_SAMPLES)

#define PRINT_EVERY    20
#define AVERAGE_EVERY  10
#define EVALUATE_EVERY 100

static const unsigned resolutions[LEVELS] = {32, 64, 128, 256, 512, 800};

/*
 * Device memory: what was asked for, and the plain end of a program whose GPU is too small.
 */

static struct {
	size_t now, peak, allocations;
} asked;

static void fail(const char *what, cudaError_t error)
{
	fprintf(stderr, "train: %s: %s\n", what, cudaGetErrorName(error));
	exit(1);
}

static void check(const char *what, cudaError_t error)
{
	if (error != cudaSuccess)
		fail(what, error);
}

static void count_asked(cudaError_t error, size_t bytes, const char *name, const char *part)
{
	if (error != cudaSuccess) {
		fprintf(stderr, "train: %s: %zu bytes for %s %s after %.1f MiB in %zu allocations (%s)\n",
			error == cudaErrorMemoryAllocation ? "out of memory" : "cannot allocate", bytes, name, part,
			(double)asked.now / 1048576, asked.allocations, cudaGetErrorName(error));
		exit(1);
	}
	asked.now += bytes;
	asked.allocations++;
	if (asked.now > asked.peak)
		asked.peak = asked.now;
}

static void *device_alloc(size_t bytes, const char *name, const char *part)
{
	void *block = NULL;

	count_asked(cudaMalloc(&block, bytes), bytes, name, part);
	return block;
}

static float *floats(size_t n, const char *name, const char *part)
{
	return (float *)device_alloc(n * sizeof(float), name, part);
}

static void device_free(void *block, size_t bytes)
{
	check("cudaFree", cudaFree(block));
	asked.now -= bytes;
}

static unsigned blocks_for(size_t n)
{
	return (unsigned)((n + 255) / 256);
}

/* Launch a kernel with a thread for each of count things. */
#define FOR_EACH(count, name, ...) check(#name, LAUNCH(name, blocks_for(count), 256, 0, __VA_ARGS__))

/*
 * Weights, with all that Adam and the running average keep for them.
 */

struct tensor {
	char name[16];
	size_t n;
	float *value, *gradient, *first, *second, *average;
};

enum { WEIGHT1, BIAS1, WEIGHT2, BIAS2, WEIGHT3, BIAS3, LAYER_TENSORS };

struct model {
	unsigned width;
	struct tensor grids[LEVELS]; /* no gradient: only rows that a batch touched have one, in the batch */
	struct tensor layers[LAYER_TENSORS];
};

static void tensor_init(struct tensor *t, const char *name, size_t n, float scale, unsigned seed, bool dense_gradient)
{
	size_t bytes = n * sizeof(float);

	snprintf(t->name, sizeof(t->name), "%s", name);
	t->n = n;
	t->value = floats(n, name, "weights");
	t->gradient = dense_gradient ? floats(n, name, "gradient") : NULL;
	t->first = floats(n, name, "first moment");
	t->second = floats(n, name, "second moment");
	t->average = floats(n, name, "average");

	FOR_EACH(n, fill_random, t->value, n, seed, scale);
	check("cudaMemset", cudaMemset(t->first, 0, bytes));
	check("cudaMemset", cudaMemset(t->second, 0, bytes));
	check("cudaMemcpy", cudaMemcpy(t->average, t->value, bytes, cudaMemcpyDeviceToDevice));
}

static void tensor_fini(struct tensor *t)
{
	size_t bytes = t->n * sizeof(float);

	device_free(t->value, bytes);
	if (t->gradient)
		device_free(t->gradient, bytes);
	device_free(t->first, bytes);
	device_free(t->second, bytes);
	device_free(t->average, bytes);
}

static void model_init(struct model *m, unsigned width, unsigned seed)
{
	const unsigned in[3] = {INPUTS, width, width}, out[3] = {width, width, CLASSES};
	char name[16];

	m->width = width;
	for (unsigned l = 0; l < LEVELS; l++) {
		snprintf(name, sizeof(name), "grid %u", resolutions[l]);
		tensor_init(&m->grids[l], name, (size_t)resolutions[l] * resolutions[l] * FEATURES, 0.01f, seed + l,
			    false);
	}
	for (unsigned l = 0; l < 3; l++) {
		snprintf(name, sizeof(name), "layer %u", l + 1);
		tensor_init(&m->layers[2 * l], name, (size_t)in[l] * out[l], sqrtf(6.0f / (float)in[l]), seed + 64 + l,
			    true);
		snprintf(name, sizeof(name), "bias %u", l + 1);
		tensor_init(&m->layers[2 * l + 1], name, out[l], 0.0f, 0, true);
	}
}

static void model_fini(struct model *m)
{
	for (unsigned l = 0; l < LEVELS; l++)
		tensor_fini(&m->grids[l]);
	for (unsigned l = 0; l < LAYER_TENSORS; l++)
		tensor_fini(&m->layers[l]);
}

static const float *weights_of(const struct tensor *t, bool averaged)
{
	return averaged ? t->average : t->value;
}

/*
 * The samples: spiral arms, one a class, on the unit square. Made on the host, kept on the device in a pitched block.
 */

struct samples {
	float *data;
	size_t pitch;
};

static uint64_t random_state;

static unsigned random_next(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(random_state >> 33); /* 31 bits */
}

static float random_unit(void)
{
	return (float)(random_next() >> 7) / 16777216.0f;
}

static void samples_init(struct samples *s)
{
	float *host = (float *)malloc(3 * SAMPLES * sizeof(float));

	if (!host) {
		fprintf(stderr, "train: no host memory for the samples\n");
		exit(1);
	}
	for (size_t i = 0; i < SAMPLES; i++) {
		unsigned arm = random_next() % CLASSES;
		float along = random_unit();
		float angle = 6.2831853f * (2.25f * along + (float)arm / CLASSES);
		float radius = 0.05f + 0.4f * along;

		/* The sum of three uniform numbers is near enough to a bell curve. */
		angle += 0.90f * (random_unit() + random_unit() + random_unit() - 1.5f);
		host[i] = 0.5f + radius * cosf(angle);
		host[SAMPLES + i] = 0.5f + radius * sinf(angle);
		host[2 * SAMPLES + i] = (float)arm;
	}
	count_asked(cudaMallocPitch((void **)&s->data, &s->pitch, SAMPLES * sizeof(float), 3),
		    3 * SAMPLES * sizeof(float), "samples", "(pitched)");
	check("cudaMemcpy2D", cudaMemcpy2D(s->data, s->pitch, host, SAMPLES * sizeof(float), SAMPLES * sizeof(float), 3,
					   cudaMemcpyHostToDevice));
	free(host);
}

/*
 * One batch on its way through the model, with all that backward needs.
 */

struct batch {
	size_t n, bytes[14];
	unsigned blocks;
	void *block[14];
	unsigned *chosen, *cells;
	float *labels, *inputs, *hidden1, *hidden2, *logits, *losses, *right;
	float *gradient_inputs, *gradient1, *gradient2, *gradient_logits;
};

static void *batch_part(struct batch *b, size_t bytes, const char *part)
{
	b->bytes[b->blocks] = bytes;
	return b->block[b->blocks++] = device_alloc(bytes, "batch", part);
}

static void batch_init(struct batch *b, size_t n, unsigned width)
{
	memset(b, 0, sizeof(*b));
	b->n = n;
	b->chosen = (unsigned *)batch_part(b, n * sizeof(unsigned), "choice");
	b->cells = (unsigned *)batch_part(b, LEVELS * n * sizeof(unsigned), "cells");
	b->labels = (float *)batch_part(b, n * sizeof(float), "labels");
	b->inputs = (float *)batch_part(b, n * INPUTS * sizeof(float), "inputs");
	b->hidden1 = (float *)batch_part(b, n * width * sizeof(float), "hidden 1");
	b->hidden2 = (float *)batch_part(b, n * width * sizeof(float), "hidden 2");
	b->logits = (float *)batch_part(b, n * CLASSES * sizeof(float), "logits");
	b->losses = (float *)batch_part(b, n * sizeof(float), "losses");
	b->right = (float *)batch_part(b, n * sizeof(float), "right");
	b->gradient_inputs = (float *)batch_part(b, n * INPUTS * sizeof(float), "gradient of inputs");
	b->gradient1 = (float *)batch_part(b, n * width * sizeof(float), "gradient of hidden 1");
	b->gradient2 = (float *)batch_part(b, n * width * sizeof(float), "gradient of hidden 2");
	b->gradient_logits = (float *)batch_part(b, n * CLASSES * sizeof(float), "gradient of logits");
}

static void batch_fini(struct batch *b)
{
	for (unsigned i = 0; i < b->blocks; i++)
		device_free(b->block[i], b->bytes[i]);
}

/* Choose n samples: at random from the training samples, or the test samples in order. */
static void batch_choose(struct batch *b, bool test)
{
	unsigned *chosen = (unsigned *)malloc(b->n * sizeof(unsigned));

	if (!chosen) {
		fprintf(stderr, "train: no host memory for a batch\n");
		exit(1);
	}
	for (size_t i = 0; i < b->n; i++)
		chosen[i] = test ? TRAINING_SAMPLES + (unsigned)i : random_next() % TRAINING_SAMPLES;
	check("cudaMemcpy", cudaMemcpy(b->chosen, chosen, b->n * sizeof(unsigned), cudaMemcpyHostToDevice));
	free(chosen);
}

static double batch_mean(const struct batch *b, const float *of)
{
	float *host = (float *)malloc(b->n * sizeof(float));
	double sum = 0;

	if (!host) {
		fprintf(stderr, "train: no host memory for a batch\n");
		exit(1);
	}
	check("cudaMemcpy", cudaMemcpy(host, of, b->n * sizeof(float), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < b->n; i++)
		sum += host[i];
	free(host);
	return sum / (double)b->n;
}

static void forward(const struct model *m, const struct samples *s, struct batch *b, bool averaged)
{
	const float *w[LAYER_TENSORS];

	for (unsigned l = 0; l < LAYER_TENSORS; l++)
		w[l] = weights_of(&m->layers[l], averaged);

	FOR_EACH(b->n, gather, b->inputs, b->labels, s->data, s->pitch, b->chosen, b->n);
	for (unsigned l = 0; l < LEVELS; l++)
		FOR_EACH(b->n, look_up, b->inputs, b->cells, weights_of(&m->grids[l], averaged), resolutions[l], l,
			 b->n);
	FOR_EACH(b->n * m->width, dense, b->hidden1, b->inputs, w[WEIGHT1], w[BIAS1], INPUTS, m->width, 1, b->n);
	FOR_EACH(b->n * m->width, dense, b->hidden2, b->hidden1, w[WEIGHT2], w[BIAS2], m->width, m->width, 1, b->n);
	FOR_EACH(b->n * CLASSES, dense, b->logits, b->hidden2, w[WEIGHT3], w[BIAS3], m->width, CLASSES, 0, b->n);
	FOR_EACH(b->n, cross_entropy, b->losses, b->right, b->gradient_logits, b->logits, b->labels, b->n);
}

static void backward(struct model *m, struct batch *b)
{
	struct tensor *t = m->layers;
	unsigned width = m->width;
	size_t n = b->n;

	FOR_EACH(width * CLASSES, dense_weight_gradient, t[WEIGHT3].gradient, b->gradient_logits, b->hidden2, width,
		 CLASSES, n);
	FOR_EACH(CLASSES, dense_bias_gradient, t[BIAS3].gradient, b->gradient_logits, CLASSES, n);
	FOR_EACH(n * width, dense_back, b->gradient2, b->gradient_logits, t[WEIGHT3].value, b->hidden2, width, CLASSES,
		 n);

	FOR_EACH(width * width, dense_weight_gradient, t[WEIGHT2].gradient, b->gradient2, b->hidden1, width, width, n);
	FOR_EACH(width, dense_bias_gradient, t[BIAS2].gradient, b->gradient2, width, n);
	FOR_EACH(n * width, dense_back, b->gradient1, b->gradient2, t[WEIGHT2].value, b->hidden1, width, width, n);

	FOR_EACH(INPUTS * width, dense_weight_gradient, t[WEIGHT1].gradient, b->gradient1, b->inputs, INPUTS, width, n);
	FOR_EACH(width, dense_bias_gradient, t[BIAS1].gradient, b->gradient1, width, n);
	FOR_EACH(n * INPUTS, dense_back, b->gradient_inputs, b->gradient1, t[WEIGHT1].value, NULL, INPUTS, width, n);
}

static void update(struct model *m, struct batch *b, unsigned step)
{
	struct adam how;

	how.correct_first = 1.0f / (1.0f - powf(0.9f, (float)step));
	how.correct_second = 1.0f / (1.0f - powf(0.99f, (float)step));
	how.rate = 0.001f;
	for (unsigned l = 0; l < LAYER_TENSORS; l++) {
		struct tensor *t = &m->layers[l];

		FOR_EACH(t->n, adam_all, t->value, t->gradient, t->first, t->second, t->n, how);
	}
	how.rate = 0.003f;
	for (unsigned l = 0; l < LEVELS; l++) {
		struct tensor *t = &m->grids[l];

		FOR_EACH(b->n, adam_rows, t->value, t->first, t->second, b->cells, b->gradient_inputs, l, b->n, how);
	}
}

static void average(struct model *m)
{
	for (unsigned l = 0; l < LEVELS; l++)
		FOR_EACH(m->grids[l].n, average_in, m->grids[l].average, m->grids[l].value, m->grids[l].n, 0.8f);
	for (unsigned l = 0; l < LAYER_TENSORS; l++)
		FOR_EACH(m->layers[l].n, average_in, m->layers[l].average, m->layers[l].value, m->layers[l].n, 0.8f);
}

/* As real programs do, evaluation takes its own activations and gives them back. */
static double evaluate(const struct model *m, const struct samples *s)
{
	struct batch b;

	batch_init(&b, TEST_SAMPLES, m->width);
	batch_choose(&b, true);
	forward(m, s, &b, true);
	double accuracy = batch_mean(&b, b.right);
	batch_fini(&b);
	return accuracy;
}

static void print_loss(unsigned step, const struct batch *b)
{
	float loss = (float)batch_mean(b, b->losses);
	uint32_t bits;

	memcpy(&bits, &loss, sizeof(bits));
	printf("step %5u  loss %-14.9g bits %08x\n", step, (double)loss, bits);
	fflush(stdout);
}

static unsigned number(char **argv, int argc, int i, unsigned standard, unsigned most)
{
	char *end;

	if (i >= argc)
		return standard;
	unsigned long value = strtoul(argv[i], &end, 10);
	if (*end || value == 0 || value > most) {
		fprintf(stderr, "usage: train [width [steps [batch [seed]]]]: numbers from 1\n");
		exit(2);
	}
	return (unsigned)value;
}

int main(int argc, char **argv)
{
	unsigned width = number(argv, argc, 1, 64, 4096), steps = number(argv, argc, 2, 300, 1000000);
	unsigned batch = number(argv, argc, 3, 256, 65536), seed = number(argv, argc, 4, 1, 1000000);
	struct samples samples;
	struct model model;
	struct batch b;

	random_state = seed;
	samples_init(&samples);
	model_init(&model, width, seed * 1000);
	batch_init(&b, batch, width);
	printf("device memory asked for: %.1f MiB in %zu allocations\n", (double)asked.now / 1048576,
	       asked.allocations);
	fflush(stdout);

	for (unsigned step = 1; step <= steps; step++) {
		batch_choose(&b, false);
		forward(&model, &samples, &b, false);
		backward(&model, &b);
		update(&model, &b, step);
		if (step % AVERAGE_EVERY == 0)
			average(&model);
		if (step == 1 || step % PRINT_EVERY == 0 || step == steps)
			print_loss(step, &b);
		if (step % EVALUATE_EVERY == 0 && step < steps)
			printf("step %5u  accuracy on unseen points %.9g\n", step, evaluate(&model, &samples));
	}
	printf("final accuracy on unseen points %.9g\n", evaluate(&model, &samples));
	check("the kernels", cudaGetLastError());

	batch_fini(&b);
	model_fini(&model);
	device_free(samples.data, 3 * SAMPLES * sizeof(float));
	printf("need %zu bytes\n", asked.peak);
	return 0;
}
