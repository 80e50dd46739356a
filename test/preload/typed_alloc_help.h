// SPDX-License-Identifier: Apache-2.0
/*
 * typed_alloc_help.h: what the tests of spillway.h share: one job whose memory moves (scene.h) in the process, where
 * its blocks are, and how to have them leave the device.
 */
#ifndef PRELOAD_TYPED_ALLOC_HELP_H
#define PRELOAD_TYPED_ALLOC_HELP_H

#include "shim/spillway.h"
#include "test/preload/scene.h"
#include "test/test.h"

extern struct scene own_scene;

/* Run a part of a test in a process of its own, in the mode of SPILL_MODE. */
void own_run(void (*part)(void));
/* Such a part's last word: what the job wrote is there. */
void own_end(void);

const void *own_pointer(CUdeviceptr address);
struct spillway_place own_place(CUdeviceptr address);
/* Is nothing of the block on the device? */
bool own_is_out(CUdeviceptr block);

/* n rounds of the job, to their end. */
void own_rounds(int n);
/* Everything that can leaves the device; it comes back as it is used. */
void own_empty_device(void);
/* Rounds until the block has left. Where moving does not pay just now, nothing leaves by itself: then it is made to. */
void own_see_out(CUdeviceptr block);
/* The same for a block that may be discarded: if it had to be made to leave, it may be back, with other contents. */
void own_make_leave(CUdeviceptr block);

#endif
