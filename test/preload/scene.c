// SPDX-License-Identifier: Apache-2.0
#include "test/preload/scene.h"

struct scene_size scene_size = {.blocks = SCENE_BLOCKS_MOST, .budget = 16 * MIB, .host = 96 * MIB};

/* ---- kernels ---- */

static void touch(uint32_t *at, uint32_t n, uint32_t lane)
{
	for (uint32_t i = 0; i < n; i++)
		at[(size_t)i * SCENE_STRIDE + lane]++;
}

static void touch_body(const struct sim_launch *launch, void **args)
{
	touch(*(uint32_t **)args[0], *(uint32_t *)args[1], *(uint32_t *)args[2]);
}

static void spin_body(const struct sim_launch *launch, void **args)
{
	uint32_t *word = *(uint32_t **)args[0], value = *(uint32_t *)args[1];

	UNTIL(__atomic_load_n(word, __ATOMIC_ACQUIRE) >= value);
	touch(*(uint32_t **)args[2], *(uint32_t *)args[3], *(uint32_t *)args[4]);
}

static void store_body(const struct sim_launch *launch, void **args)
{
	__atomic_store_n(*(uint32_t **)args[0], *(uint32_t *)args[1], __ATOMIC_RELEASE);
}

SIM_MODULE(image, SIM_KERNEL("scene_touch", touch_body, 8, 4, 4), SIM_KERNEL("scene_spin", spin_body, 8, 4, 8, 4, 4),
	   SIM_KERNEL("scene_store", store_body, 8, 4));

/* Not cuLaunchKernel: tests let that one fail for the library, and the program must not notice. */
static CUresult launch(CUfunction function, CUstream stream, void **args)
{
	CUlaunchConfig config = {4, 1, 1, 64, 1, 1, 0, stream, NULL, 0};

	return cuLaunchKernelEx(&config, function, args, NULL);
}

static uint32_t n_words(void)
{
	return SCENE_BYTES / 4 / SCENE_STRIDE;
}

/* ---- the scene ---- */

const char *scene_mode(void)
{
	const char *mode = getenv("SPILL_MODE");

	return mode && *mode ? mode : "static";
}

bool scene_moves(void)
{
	return !strcmp(scene_mode(), "exact") || !strcmp(scene_mode(), "fast");
}

const char *scene_set(void)
{
	static char text[160];
	bool native = !strcmp(scene_mode(), "native");

	snprintf(text, sizeof(text),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%zuMiB,host.budget=%zuMiB,report.summary=no",
		 native ? "static" : scene_mode(), SCENE_BUDGET / MIB, SCENE_HOST / MIB);
	return text;
}

int scene_run(size_t budget, void (*program)(void))
{
	char set[128];
	const char *settings[] = {
	    "SIM_MEMORY=512MiB", "SIM_HOST_MEMORY=1GiB", "SIM_FILL=0", "SIM_PIECE_US=60", set, NULL};

	snprintf(set, sizeof(set), "SPILLWAY_SET=spill.mode=%s,device.budget=%zuMiB,host.budget=512MiB", scene_mode(),
		 budget / MIB);
	return child_run(settings, program);
}

void scene_load(struct scene *scene, int device)
{
	memset(scene, 0, sizeof(*scene));
	scene->context = driver_start(device);
	scene->touch = driver_function(&image, "scene_touch");
	scene->spin = driver_function(&image, "scene_spin");
	scene->store = driver_function(&image, "scene_store");
}

void scene_allocate(struct scene *scene)
{
	memset(scene->count, 0, sizeof(scene->count));
	for (unsigned i = 0; i < SCENE_BLOCKS; i++) {
		scene->block[i] = child_alloc(SCENE_BYTES);
		MUST(cu.cuMemsetD32_v2(scene->block[i], 0, SCENE_BYTES / 4));
	}
	MUST(cu.cuCtxSynchronize());
}

void scene_open(struct scene *scene, int device)
{
	scene_load(scene, device);
	scene_allocate(scene);
}

/* Which 2 MiB are in device memory, a bit each; what is in transit counts as neither. */
static uint64_t places(const struct scene *scene)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		for (size_t at = 0; at < SCENE_BYTES; at += 2 * MIB)
			bits = bits << 1 | (sim_where(scene->block[i] + at) == 'D');
	return bits;
}

static CUresult touch_block(struct scene *scene, unsigned block, CUstream stream, unsigned lane)
{
	uint32_t n = n_words();
	void *args[] = {&scene->block[block], &n, &lane};
	CUresult result = launch(scene->touch, stream, args);

	scene->count[block][lane] += result == CUDA_SUCCESS;
	return result;
}

/*
 * Looks after each launch: memory that moves in step with the rounds, as on a loaded machine, is at the same places at
 * the end of each round.
 */
bool scene_moves_within(struct scene *scene, unsigned n_rounds)
{
	uint64_t before = places(scene);
	bool moved = false;

	for (unsigned i = 0; i < n_rounds && !moved; i++) {
		for (unsigned b = 0; b < SCENE_BLOCKS; b++) {
			MUST(touch_block(scene, b, NULL, 0));
			moved |= scene_moves() && places(scene) != before;
		}
		MUST(cu.cuStreamSynchronize(NULL));
		moved |= scene_moves() && places(scene) != before;
	}
	return !scene_moves() || moved;
}

bool scene_warm_up(struct scene *scene)
{
	return scene_moves_within(scene, scene_moves() ? 20000 : 25);
}

void scene_open_warm(struct scene *scene)
{
	scene_open(scene, 0);
	CHECK(scene_warm_up(scene));
}

CUresult scene_round(struct scene *scene, CUstream stream, unsigned lane)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned i = 0; i < SCENE_BLOCKS && result == CUDA_SUCCESS; i++)
		result = touch_block(scene, i, stream, lane);
	return result;
}

/* Does the row of SCENE_STRIDE words hold what the block's lanes count, and else 0? */
static bool row_holds(const struct scene *scene, unsigned block, const uint32_t *row)
{
	static const uint32_t zero[SCENE_STRIDE];

	return !memcmp(row, scene->count[block], sizeof(scene->count[block])) &&
	       !memcmp(row + SCENE_LANES, zero, (SCENE_STRIDE - SCENE_LANES) * sizeof(*row));
}

static void say_which(const struct scene *scene, unsigned block, const uint32_t *words, size_t row)
{
	for (size_t lane = 0; lane < SCENE_STRIDE; lane++) {
		size_t i = row * SCENE_STRIDE + lane;
		uint32_t expected = lane < SCENE_LANES ? scene->count[block][lane] : 0;

		if (words[i] != expected) {
			printf("word %zu of block %u is %u, not %u (%c)\n", i, block, words[i], expected,
			       sim_where(scene->block[block] + 4 * i));
			return;
		}
	}
}

bool scene_holds(struct scene *scene)
{
	uint32_t *words = malloc(SCENE_BYTES);
	bool right = true;

	for (unsigned b = 0; b < SCENE_BLOCKS && right; b++) {
		MUST(cu.cuMemcpyDtoH_v2(words, scene->block[b], SCENE_BYTES));
		for (size_t row = 0; row < n_words() && right; row++) {
			right = row_holds(scene, b, words + row * SCENE_STRIDE);
			if (!right)
				say_which(scene, b, words, row);
		}
	}
	free(words);
	return right;
}

void scene_close(struct scene *scene)
{
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(scene->block[i]));
}

CUresult scene_spin(struct scene *scene, CUstream stream, CUdeviceptr word, unsigned value, unsigned block,
		    unsigned lane)
{
	uint32_t n = n_words();
	void *args[] = {&word, &value, &scene->block[block], &n, &lane};

	scene->count[block][lane]++;
	return launch(scene->spin, stream, args);
}

CUresult scene_store(struct scene *scene, CUstream stream, CUdeviceptr word, unsigned value)
{
	void *args[] = {&word, &value};

	return launch(scene->store, stream, args);
}

unsigned *scene_word(void)
{
	void *word;

	MUST(cu.cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_PORTABLE));
	memset(word, 0, 4096);
	return word;
}
