// SPDX-License-Identifier: Apache-2.0
/*
 * random_kernel.c: the kernels of spill_random, each as a body on the device and as a function on shadows (random.h).
 */
#include "test/preload/random.h"

CUfunction kernel_function[KERNELS];

void kernel_mix(uint32_t *to, const uint32_t *from, uint32_t words, uint32_t stride, uint32_t salt)
{
	for (uint32_t i = 0; i < words; i++) {
		uint32_t *at = to + (size_t)i * stride;

		*at = *at * 5 + (from ? from[i] * 3 : 0) + salt + i;
	}
}

void kernel_fill(uint32_t *to, uint32_t words, uint32_t salt)
{
	for (uint32_t i = 0; i < words; i++)
		to[i] = (salt + i) * 2654435761u;
}

/* On the device now and then a pause, so that what happens beside a kernel really happens in the middle of it. */
static void mix_slowly(uint32_t *to, const uint32_t *from, uint32_t words, uint32_t stride, uint32_t salt)
{
	const uint32_t piece = salt % 4 ? words : 256;

	for (uint32_t at = 0; at < words; at += piece) {
		uint32_t n = words - at < piece ? words - at : piece;

		kernel_mix(to + (size_t)at * stride, from ? from + at : NULL, n, stride, salt + at);
		if (n < words)
			sched_yield();
	}
}

static void mix_body(const struct sim_launch *launch, void **args)
{
	mix_slowly(*(uint32_t **)args[0], *(const uint32_t **)args[1], *(uint32_t *)args[2], *(uint32_t *)args[3],
		   *(uint32_t *)args[4]);
}

static void struct_body(const struct sim_launch *launch, void **args)
{
	const struct kernel_struct *all = args[1];

	mix_slowly(all->to, all->from, all->words, all->stride, all->salt);
}

/* ---- odd pointers ---- */

#define BITS 57 /* of an address */

CUdeviceptr kernel_odd(const struct block *block, size_t at, uint32_t salt, int32_t *ret_by)
{
	CUdeviceptr tag = salt % 3 ? (CUdeviceptr)(salt >> 20) << BITS : 0, beside = block->at + at;

	if (salt / 3 % 3 == 0)
		beside = block->at + block->bytes + salt / 9 % 512;
	else if (salt / 3 % 3 == 1)
		beside = block->at - 1 - salt / 9 % 511;
	*ret_by = (int32_t)(block->at + at - beside);
	return beside | tag;
}

static void *of_odd(uintptr_t pointer, int64_t by)
{
	return sim_pointer((pointer & (((uintptr_t)1 << BITS) - 1)) + (uintptr_t)by);
}

static void odd_body(const struct sim_launch *launch, void **args)
{
	uintptr_t from = *(uintptr_t *)args[2];

	mix_slowly(of_odd(*(uintptr_t *)args[0], *(int32_t *)args[1]), from ? of_odd(from, *(int32_t *)args[3]) : NULL,
		   *(uint32_t *)args[4], *(uint32_t *)args[5], *(uint32_t *)args[6]);
}

/* The addresses in the table are the program's: the device knows where they are (sim_pointer). */
static void table_body(const struct sim_launch *launch, void **args)
{
	const CUdeviceptr *table = *(const CUdeviceptr **)args[0];
	uint32_t n = *(uint32_t *)args[1], words = *(uint32_t *)args[2], salt = *(uint32_t *)args[3];

	for (uint32_t i = 0; i < n; i++)
		mix_slowly(of_odd(table[i], (int64_t)table[TARGETS_MAX + i]), NULL, words, 1, salt + i);
}

static void list_body(const struct sim_launch *launch, void **args)
{
	struct kernel_node *node = *(struct kernel_node **)args[0];
	uint32_t words = *(uint32_t *)args[1], salt = *(uint32_t *)args[2];

	for (uint32_t i = 0; node; i++) {
		mix_slowly(node->data, NULL, words, 1, salt + i);
		node = node->next ? sim_pointer(node->next) : NULL;
	}
}

SIM_MODULE(image, SIM_KERNEL("mix", mix_body, 8, 8, 4, 4, 4),
	   SIM_KERNEL("mix_struct", struct_body, 4, sizeof(struct kernel_struct)),
	   SIM_KERNEL("mix_odd", odd_body, 8, 4, 8, 4, 4, 4, 4), SIM_KERNEL("mix_table", table_body, 8, 4, 4, 4),
	   SIM_KERNEL("mix_list", list_body, 8, 4, 4));

void kernel_open(CUfunction ret_functions[KERNELS])
{
	for (int i = 0; i < KERNELS; i++)
		ret_functions[i] = made_up_kernel(&image, image.kernels[i].name);
}
