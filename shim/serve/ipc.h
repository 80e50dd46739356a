/*
 * ipc.h: legacy IPC of heap blocks (cuIpcGetMemHandle and related calls), which the driver refuses for VMM memory.
 *
 * The giver's block is pinned for good, and its chunks, made exportable (`movable: no`, or `ipc: yes`), are sent as
 * POSIX file descriptors to any process of the same user that shows the handle at the giver's socket (ipc.c).
 * The taker, which must run under Spillway too, maps them at one range of addresses (ipc.c). The handle is a
 * CUDA one by size alone: the driver of a process without Spillway answers invalid value.
 *
 * The handles of a process end with it; what was opened before stays mapped. The functions are called inside
 * enter_serve(). Locking: the caller must hold no lock.
 *
 * Assumed, not measured: host chunks (HOST_NUMA) can be exported and imported like device chunks.
 */
#ifndef SPILLWAY_IPC_H
#define SPILLWAY_IPC_H

#include "shim/accounting/ledger.h"
#include "shim/base/user_dir.h"

#include <stdint.h>

struct heap;

/* Returns true if the handle is one of Spillway, of this or another process. */
bool ipc_is_ours(const CUipcMemHandle *handle);

/* ---- giving ---- */

/*
 * cuIpcGetMemHandle for a heap block. If that is impossible, logs once why, with the setting that helps. Writes
 * *ret_handle on success alone.
 */
CUresult ipc_give(struct heap *heap, const struct ledger_row *row, CUipcMemHandle *ret_handle);
/* At the end of the process, and in the child of a fork (socket_server.h). */
void ipc_stop(void);
void ipc_child(void);

/* ---- taking ---- */

/* cuIpcOpenMemHandle for a handle of ours (ipc_is_ours()), in the current context. */
CUresult ipc_open(const CUipcMemHandle *handle, CUdeviceptr *ret_address);
/* cuIpcCloseMemHandle. Returns false if we opened nothing there. Unmaps it when the context's work is complete. */
bool ipc_close(CUdeviceptr address, CUresult *ret_result);

#endif
