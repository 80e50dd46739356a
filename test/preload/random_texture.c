// SPDX-License-Identifier: Apache-2.0
/*
 * random_texture.c: textures and tensor maps of spill_random (random.h): the GPU reads and writes blocks by an address
 * that it keeps itself, which no launch names. They are made while the blocks may be moving, also while a driver takes
 * a second to map; they are used beside whatever moves then; and when one is gone, so is its block.
 */
#include "test/preload/random.h"

#include <stdatomic.h>

/* What the GPU keeps: textures of all threads, by their number. */
static CUdeviceptr kept[THREADS_MAX * TEXTURES_MAX];
static CUfunction function;

static void texture_body(const struct sim_launch *launch, void **args)
{
	uint32_t *to = *(uint32_t **)args[0], *texture = sim_pointer(kept[*(uint32_t *)args[1]]);
	uint32_t words = *(uint32_t *)args[2], salt = *(uint32_t *)args[3];

	if (to)
		kernel_mix(to, texture, words, 1, salt);
	else
		kernel_mix(texture, NULL, words, 1, salt);
}

SIM_MODULE(image, SIM_KERNEL("texture", texture_body, 8, 4, 4, 4));

void texture_open(void)
{
	function = made_up_kernel(&image, "texture");
}

/* ---- making ---- */

static unsigned number_of(const struct worker *worker, const struct texture *texture)
{
	return worker->id * TEXTURES_MAX + (unsigned)(texture - worker->texture);
}

static void encode(struct worker *worker, struct texture *texture)
{
	CUdeviceptr at = texture->block->at + texture->at;
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear.devPtr = at};
	CUDA_TEXTURE_DESC description = {0};
	cuuint64_t dim[1] = {texture->words}, strides[1] = {0};
	cuuint32_t box[1] = {64}, step[1] = {1};
	CUtensorMap map;

	texture->is_map = random_one_in(worker, 2);
	if (texture->is_map)
		GO(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, (void *)at, dim, strides, box, step,
					  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
					  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
	else
		GO(cuTexObjectCreate(&texture->object, &resource, &description, NULL));
	kept[number_of(worker, texture)] = at;
}

/* A block stays where it is as long as it lives, once it has had one: some must be left that move. */
static bool has_enough(const struct worker *worker)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < worker->n_blocks; i++)
		bytes += worker->block[i]->is_kept ? worker->block[i]->bytes : 0;
	return bytes > worker->share / 8;
}

static void make(struct worker *worker)
{
	struct texture *texture = worker->texture;
	struct block *block = worker->block[1 + random_below(worker, worker->n_blocks - 1)];

	while (texture < worker->texture + TEXTURES_MAX && texture->block)
		texture++;
	if (texture == worker->texture + TEXTURES_MAX || block->addresses || block->bytes < 4096 ||
	    (!block->is_kept && has_enough(worker)))
		return;
	texture->block = block;
	texture->words = 1 + random_below(worker, block->bytes / 8 < 8192 ? (uint32_t)block->bytes / 8 : 8192);
	texture->at = random_below(worker, (uint32_t)((block->bytes - 4 * texture->words) / 16 + 1)) * (size_t)16;
	block->is_kept = true;
	block->pins++;
	encode(worker, texture);
}

/* The mapping ends, too, if who makes textures must wait for it. */
static void *map_at_last(void *done)
{
	for (unsigned ms = 0; ms < 1300 && !atomic_load((_Atomic bool *)done); ms++)
		usleep(1000);
	sim_go_on();
	return NULL;
}

/* At times the next mapping takes a second: what is on its way does not arrive in the time that anybody waits. */
static void make_some(struct worker *worker)
{
	_Atomic bool done = false;
	pthread_t thread;

	if (!random_one_in(worker, 6)) {
		make(worker);
		return;
	}
	sim_stall_at("cuMemMap", 1);
	for (unsigned ms = 0; ms < 20 && !sim_stalled(); ms++)
		usleep(1000);
	if (pthread_create(&thread, NULL, map_at_last, &done))
		made_up_fail("no thread");
	for (unsigned n = 3; n; n--)
		make(worker);
	atomic_store(&done, true);
	pthread_join(thread, NULL);
}

/* With its block, if nothing else names it. */
void texture_drop(struct worker *worker, struct texture *texture)
{
	struct block *block = texture->block;
	unsigned index = 0;

	if (!block)
		return;
	/* No launch may use one that has gone, or the next one of its number. */
	for (unsigned slot = 0; slot < SLOTS; slot++)
		slot_wait(worker, slot);
	if (!texture->is_map)
		GO(cuTexObjectDestroy(texture->object));
	texture->block = NULL;
	block->pins--;
	while (worker->block[index] != block)
		index++;
	if (!block->pins && worker->n_blocks > 6)
		block_free(worker, index);
}

/* ---- using ---- */

/* A block of the thread's own gets what the texture has; or the texture's memory is changed by it. */
static void use(struct worker *worker, const struct texture *texture)
{
	struct block *block = worker->block[1 + random_below(worker, worker->n_blocks - 1)];
	bool reads = block != texture->block && !block->addresses && block->bytes >= 4 * (size_t)texture->words;
	unsigned slot = random_below(worker, SLOTS), number = number_of(worker, texture);
	uint32_t words = texture->words, salt = random_next(worker);
	uint32_t *shadow = (uint32_t *)(texture->block->shadow + texture->at);
	CUdeviceptr to = reads ? block->at : 0;
	void *params[] = {&to, &number, &words, &salt};

	block_use(worker, slot, texture->block, !reads, "a launch with a texture");
	if (reads)
		block_use(worker, slot, block, true, "a launch with a texture");
	GO(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, worker->slot[slot].handle, params, NULL));
	if (reads)
		kernel_mix((uint32_t *)block->shadow, shadow, words, 1, salt);
	else
		kernel_mix(shadow, NULL, words, 1, salt);
	worker->slot[slot].n++;
	op_submitted(worker);
}

void texture_play(struct worker *worker)
{
	struct texture *texture = &worker->texture[random_below(worker, TEXTURES_MAX)];

	if (!texture->block)
		make_some(worker);
	else if (random_one_in(worker, 4))
		texture_drop(worker, texture);
	else
		for (unsigned n = 1 + random_below(worker, 8); n; n--)
			use(worker, texture);
}
