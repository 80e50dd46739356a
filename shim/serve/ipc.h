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

/* ---- protocol ---- */

#define IPC_MAGIC   "SPILLIPC"
#define IPC_VERSION 1
#define IPC_FILES   64 /* descriptors in one packet; the kernel takes 253 */

/*
 * Contents of a CUipcMemHandle. It names the giver's socket and the block, and is valid for one version of this
 * header.
 */
struct ipc_handle {
	char magic[8];
	uint32_t version;
	int32_t pid;
	uint64_t start;  /* start time of the process, as in /proc/PID/stat: pids are used again */
	uint32_t nonce;  /* of the socket's name */
	int32_t device;  /* ordinal in the giver; for messages */
	uint64_t id;     /* of the block: an address may be allocated again */
	uint64_t base;   /* its address in the giver */
	uint64_t bytes;  /* as the program asked */
	uint64_t offset; /* of the block in the exported memory */
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "a handle fills CUDA's");

/*
 * The request is the handle. Answers follow until n_all files have come; `here` of them come with this one
 * (SCM_RIGHTS).
 */
struct ipc_answer {
	uint32_t good; /* 0: the block no longer exists */
	uint32_t n_all, here;
	uint32_t reserved;
	uint64_t bytes_all;
	uint64_t bytes[IPC_FILES];
};

/* Makes the name of a giver's socket. */
void ipc_socket_name(const struct ipc_handle *handle, char ret_name[48]);
/* Returns true if the handle is one of Spillway, of this or another process. */
bool ipc_is_ours(const CUipcMemHandle *handle);

/* ---- giving ---- */

/*
 * cuIpcGetMemHandle for a heap block. If that is impossible, logs once why, with the setting that helps. Writes
 * *ret_handle on success alone.
 */
CUresult ipc_give(struct heap *heap, const struct ledger_row *row, CUipcMemHandle *ret_handle);
/* Returns true if this is a handle of our own process. */
bool ipc_is_own(const struct ipc_handle *handle);
/* At the end of the process, and in the child of a fork (socket_server.h). */
void ipc_stop(void);
void ipc_child(void);

/* ---- taking ---- */

/* cuIpcOpenMemHandle for a handle of ours (ipc_is_ours()), in the current context. */
CUresult ipc_open(const CUipcMemHandle *handle, CUdeviceptr *ret_address);
/* cuIpcCloseMemHandle. Returns false if we opened nothing there. Unmaps it when the context's work is complete. */
bool ipc_close(CUdeviceptr address, CUresult *ret_result);

#endif
