// SPDX-License-Identifier: Apache-2.0
/*
 * train_kernels.h: the kernels of train.c, and the shape of what they work on. Included once. Each thread owns what it
 * writes, so nothing depends on the order of threads.
 */
#ifndef SPILLWAY_TRAIN_KERNELS_H
#define SPILLWAY_TRAIN_KERNELS_H

#include <math.h>

#include "test/portable.h"

#define LEVELS   6
#define FEATURES 8 /* of one grid cell */
#define CLASSES  3
#define INPUTS   (2 + LEVELS * FEATURES) /* what the first layer sees: x, y, one row of each grid */

struct adam {
	float rate, correct_first, correct_second; /* the learning rate; 1 / (1 - beta^step) of both moments */
};

/* Uniform in [-scale, scale), from a hash of the place: the same on every device. */
KERNEL4(fill_random, float *, value, size_t, n, unsigned, seed, float, scale)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP) {
		unsigned x = (unsigned)i * 2654435761u + seed;

		x = (x ^ (x >> 16)) * 0x7feb352du;
		x = (x ^ (x >> 15)) * 0x846ca68bu;
		x ^= x >> 16;
		value[i] = ((float)(x >> 8) / 8388608.0f - 1.0f) * scale;
	}
}

/* Bring the chosen samples' coordinates into the first two inputs. Rows of data: x, y, class; pitch in bytes. */
KERNEL6(gather, float *, inputs, float *, labels, const float *, data, size_t, pitch, const unsigned *, chosen, size_t,
	n)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP) {
		size_t row = pitch / sizeof(float), sample = chosen[i];

		inputs[i * INPUTS] = data[sample];
		inputs[i * INPUTS + 1] = data[row + sample];
		labels[i] = data[2 * row + sample];
	}
}

/* Bring each sample's row of one grid into its inputs, and note which row that was. */
KERNEL6(look_up, float *, inputs, unsigned *, cells, const float *, grid, unsigned, resolution, unsigned, level, size_t,
	n)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP) {
		float *input = inputs + i * INPUTS;
		unsigned column = (unsigned)(input[0] * (float)resolution);
		unsigned row = (unsigned)(input[1] * (float)resolution);
		unsigned cell = row * resolution + column;

		cells[level * n + i] = cell;
		for (unsigned f = 0; f < FEATURES; f++)
			input[2 + level * FEATURES + f] = grid[(size_t)cell * FEATURES + f];
	}
}

KERNEL8(dense, float *, out, const float *, in, const float *, weight, const float *, bias, unsigned, n_in, unsigned,
	n_out, int, rectify, size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < n * n_out; i += KERNEL_STEP) {
		size_t sample = i / n_out, o = i % n_out;
		float sum = bias[o];

		for (unsigned k = 0; k < n_in; k++)
			sum += in[sample * n_in + k] * weight[o * n_in + k];
		out[i] = rectify && sum < 0.0f ? 0.0f : sum;
	}
}

/* Softmax cross entropy: each sample's loss, whether it was right, and the gradient of the mean loss. */
KERNEL6(cross_entropy, float *, losses, float *, right, float *, gradient, const float *, logits, const float *, labels,
	size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP) {
		const float *logit = logits + i * CLASSES;
		int label = (int)labels[i], best = 0;
		float sum = 0.0f;

		for (int c = 1; c < CLASSES; c++)
			if (logit[c] > logit[best])
				best = c;
		for (int c = 0; c < CLASSES; c++)
			sum += expf(logit[c] - logit[best]);
		losses[i] = logf(sum) - (logit[label] - logit[best]);
		right[i] = best == label ? 1.0f : 0.0f;
		for (int c = 0; c < CLASSES; c++)
			gradient[i * CLASSES + c] =
			    (expf(logit[c] - logit[best]) / sum - (c == label ? 1.0f : 0.0f)) / (float)n;
	}
}

/* Gradient of a layer's input; in is that input where a rectifier made it, else NULL. */
KERNEL7(dense_back, float *, gradient_in, const float *, gradient_out, const float *, weight, const float *, in,
	unsigned, n_in, unsigned, n_out, size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < n * n_in; i += KERNEL_STEP) {
		size_t sample = i / n_in, k = i % n_in;
		float sum = 0.0f;

		for (unsigned o = 0; o < n_out; o++)
			sum += gradient_out[sample * n_out + o] * weight[o * n_in + k];
		gradient_in[i] = in && in[i] <= 0.0f ? 0.0f : sum;
	}
}

KERNEL6(dense_weight_gradient, float *, gradient, const float *, gradient_out, const float *, in, unsigned, n_in,
	unsigned, n_out, size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < (size_t)n_in * n_out; i += KERNEL_STEP) {
		size_t o = i / n_in, k = i % n_in;
		float sum = 0.0f;

		for (size_t sample = 0; sample < n; sample++)
			sum += gradient_out[sample * n_out + o] * in[sample * n_in + k];
		gradient[i] = sum;
	}
}

KERNEL4(dense_bias_gradient, float *, gradient, const float *, gradient_out, unsigned, n_out, size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < n_out; i += KERNEL_STEP) {
		float sum = 0.0f;

		for (size_t sample = 0; sample < n; sample++)
			sum += gradient_out[sample * n_out + i];
		gradient[i] = sum;
	}
}

#define ADAM_STEP(value, first, second, g, how)                                                                        \
	do {                                                                                                           \
		first = 0.9f * (first) + 0.1f * (g);                                                                   \
		second = 0.99f * (second) + 0.01f * (g) * (g);                                                         \
		value -=                                                                                               \
		    (how).rate * ((first) * (how).correct_first) / (sqrtf((second) * (how).correct_second) + 1e-8f);   \
	} while (0)

KERNEL6(adam_all, float *, value, const float *, gradient, float *, first, float *, second, size_t, n, struct adam, how)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		ADAM_STEP(value[i], first[i], second[i], gradient[i], how);
}

/* The rows of a grid that this batch looked up. The first sample in a cell acts for all that share it, in order. */
KERNEL8(adam_rows, float *, grid, float *, first, float *, second, const unsigned *, cells, const float *, gradient_in,
	unsigned, level, size_t, n, struct adam, how)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP) {
		const unsigned *cell = cells + level * n;
		float sum[FEATURES] = {0};
		size_t place = (size_t)cell[i] * FEATURES, j;

		for (j = 0; j < i && cell[j] != cell[i]; j++)
			;
		if (j < i)
			continue;
		for (j = i; j < n; j++)
			if (cell[j] == cell[i])
				for (unsigned f = 0; f < FEATURES; f++)
					sum[f] += gradient_in[j * INPUTS + 2 + level * FEATURES + f];
		for (unsigned f = 0; f < FEATURES; f++)
			ADAM_STEP(grid[place + f], first[place + f], second[place + f], sum[f], how);
	}
}

KERNEL4(average_in, float *, average, const float *, value, size_t, n, float, keep)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		average[i] = keep * average[i] + (1.0f - keep) * value[i];
}

#endif
