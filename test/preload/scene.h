// SPDX-License-Identifier: Apache-2.0
/*
 * scene.h: a small job that needs twice its budget and repeats itself, for tests of what goes on beside its moves. A
 * round touches every block, a word in each 16 KiB, by one kernel a block: it adds 1 in the lane that is given, so that
 * rounds in different lanes may run at once, and what every word must hold is known.
 */
#ifndef PRELOAD_SCENE_H
#define PRELOAD_SCENE_H

#include "test/preload/child.h"

enum { SCENE_BLOCKS_MOST = 6, SCENE_LANES = 8, SCENE_STRIDE = 4096 };
#define SCENE_BYTES (5 * MIB)
/*
 * Blocks, and bytes of the budget and of the host's budget. SCENE_SMALL is for tests that make many scenes: what a
 * round moves, clears and compares takes two thirds of the time. Blocks are not smaller: one of 5 MiB has chunks of two
 * sizes, and a move may find no spare of the size that it needs.
 */
struct scene_size {
	unsigned blocks;
	size_t budget, host;
};
extern struct scene_size scene_size; /* set before the first scene */
#define SCENE_SMALL  ((struct scene_size){4, 10 * MIB, 48 * MIB})
#define SCENE_BLOCKS (scene_size.blocks)
#define SCENE_BUDGET (scene_size.budget)
#define SCENE_HOST   (scene_size.host)

struct scene {
	CUcontext context;
	CUdeviceptr block[SCENE_BLOCKS_MOST];
	unsigned count[SCENE_BLOCKS_MOST][SCENE_LANES]; /* touches submitted; a lane is one thread's */
	CUfunction touch, spin, store;
};

/* Settings of a child process (child_run) in the mode of SPILL_MODE; "native" does without the library. */
#define SCENE_SETTINGS(...)                                                                                            \
	((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_MAP_WAITS=3",         \
			       scene_set(), ##__VA_ARGS__, NULL})
const char *scene_set(void);
const char *scene_mode(void);
/* A child process in that mode with room for blocks of its own: 512 MiB of host memory, and that budget. Its status. */
int scene_run(size_t budget, void (*program)(void));
bool scene_moves(void); /* does this mode move memory? */

/* Makes the device's context current and loads the kernels; allocates and sets to 0; both. */
void scene_load(struct scene *scene, int device);
void scene_allocate(struct scene *scene);
void scene_open(struct scene *scene, int device);
/*
 * Rounds in lane 0; in the modes that move until something has moved: the library takes some milliseconds to be sure
 * that it pays. False when nothing ever did.
 */
bool scene_warm_up(struct scene *scene);
/* The same for so many rounds at most. */
bool scene_moves_within(struct scene *scene, unsigned n_rounds);
/* Both, on device 0. */
void scene_open_warm(struct scene *scene);
CUresult scene_round(struct scene *scene, CUstream stream, unsigned lane);
/* After all work is done: do all words hold what they must? Says which does not. */
bool scene_holds(struct scene *scene);
void scene_close(struct scene *scene);

/* Runs until the word is at least the value, then touches the block in the lane as a round does. */
CUresult scene_spin(struct scene *scene, CUstream stream, CUdeviceptr word, unsigned value, unsigned block,
		    unsigned lane);
/* Stores the value into the word. */
CUresult scene_store(struct scene *scene, CUstream stream, CUdeviceptr word, unsigned value);
/* A pinned word that is 0. */
unsigned *scene_word(void);

#endif
