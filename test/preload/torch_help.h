// SPDX-License-Identifier: Apache-2.0
/*
 * torch_help.h: what the tests of births and deaths share: tensors of the simulated allocator (fake_torch.h), with
 * known contents, beside a job whose memory moves (typed_alloc_help.h).
 */
#ifndef PRELOAD_TORCH_HELP_H
#define PRELOAD_TORCH_HELP_H

#include "shim/stats/stats_page.h"
#include "test/preload/fake_torch.h"
#include "test/preload/folder.h"
#include "test/preload/typed_alloc_help.h"

/* A child's settings: those of the scene, and figures in the test's own folder (folder.h). */
#define TORCH_SETTINGS SCENE_SETTINGS(runtime)

struct tensor {
	CUdeviceptr at;
	size_t bytes;  /* as reported: all of them are filled */
	uint32_t salt; /* of its contents */
	CUstream stream;
};

extern const struct fake_torch_functions *torch;
extern struct fake_torch *torch_cache; /* of device 0 */

/* Runs a part of a test in a process of its own. */
void torch_run(void (*part)(void));
void torch_run_bare(void (*part)(void)); /* child_run_bare() */
/*
 * Makes device 0 ready; moving: and allocates what the job beside the tensors uses, whose memory moves by now, in the
 * modes that move.
 */
void torch_begin(void);
void torch_begin_moving(void);

struct tensor tensor_new(size_t bytes, CUstream stream);
/* The same in a pool of its own (fake_torch.h). */
struct tensor tensor_new_in(unsigned pool, size_t bytes, CUstream stream);
void tensor_free(const struct tensor *tensor);
/* Fills it with other contents than it ever had, by a kernel on this stream. */
void tensor_fill(struct tensor *tensor, CUstream stream);
/* After all work is done: are all bytes as they were filled? Says which word is not. */
bool tensor_holds(const struct tensor *tensor);
/* Returns how many words are. */
size_t tensor_same(const struct tensor *tensor);
/* Waits for `us`, then copies. The kernel names the beginnings of both. */
void tensor_copy_late(struct tensor *to, const struct tensor *from, unsigned us, CUstream stream);

/* Is all of it on the device, with what shares its first and last pages? */
bool tensor_is_there(const struct tensor *tensor);
/* All of it is on the device when the device is emptied: it is filled until it is. */
void tensor_bring(struct tensor *tensor);

/* Captures the stream; what is born until torch_end_capture() is in this pool. */
void torch_capture(CUstream stream, unsigned pool);
CUgraphExec torch_end_capture(CUstream stream);

/* Contents by themselves: n words at an address. */
void words_fill(CUdeviceptr at, uint32_t salt, size_t n, CUstream stream);
/* The same by a kernel that finds the address in device memory: nothing announces what it writes to. */
void words_fill_hidden(CUdeviceptr table, uint32_t salt, size_t n, CUstream stream);
size_t words_same(CUdeviceptr at, uint32_t salt, size_t n);

/* In the modes that move: all memory of the device leaves it, and comes back as it is used. */
void torch_evict(void);
/* The same without waiting for what was submitted before. */
void torch_leave(void);
/* Submits something and reports: from now on the deaths that this thread has reported count. */
void torch_go_on(void);
/* Bytes so far that moved, and did not have to be copied because nothing was alive there. */
uint64_t torch_dead_bytes(void);
/* Those that moved to the device. */
uint64_t torch_dead_in_bytes(void);
/* Bytes so far that moved to the host. */
uint64_t torch_bytes_out(void);

#endif
