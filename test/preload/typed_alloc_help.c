// SPDX-License-Identifier: Apache-2.0
#include "test/preload/typed_alloc_help.h"

struct scene own_scene;

void own_run(void (*part)(void))
{
	assert_int_equal(child_run(SCENE_SETTINGS(), part), 0);
}

void own_end(void)
{
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&own_scene));
}

const void *own_pointer(CUdeviceptr address)
{
	return (const void *)(uintptr_t)address;
}

struct spillway_place own_place(CUdeviceptr address)
{
	struct spillway_place place;

	CHECK(spillway_where(own_pointer(address), &place) == 0);
	return place;
}

bool own_is_out(CUdeviceptr block)
{
	return own_place(block).bytes_on_device == 0;
}

void own_rounds(int n)
{
	for (; n; n--) {
		MUST(scene_round(&own_scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
	}
}

void own_empty_device(void)
{
	child_suspend();
	CHECK(spillway_resume() == 0);
}

/* There is no telling when the mover comes to it. */
static bool leaves(CUdeviceptr block)
{
	for (int i = 0; i < 300 && !own_is_out(block); i++)
		own_rounds(1);
	return own_is_out(block);
}

void own_make_leave(CUdeviceptr block)
{
	if (!leaves(block))
		own_empty_device();
}

void own_see_out(CUdeviceptr block)
{
	if (leaves(block))
		return;
	/* When the process goes on, the mover may fetch it at once. */
	child_suspend();
	CHECK(own_is_out(block));
	CHECK(spillway_resume() == 0);
}
