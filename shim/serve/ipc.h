/*
 * ipc.h: legacy IPC of heap blocks (cuIpcGetMemHandle and its like), which the driver refuses for VMM memory.
 *
 * The giver's block is pinned for good, and its chunks, made exportable (`movable: no`, or `ipc: yes`), are handed as
 * POSIX file descriptors to whoever shows the handle at the giver's socket and is of the same user (ipc_give.c). The
 * taker, which must run under Spillway too, maps them at one range of addresses (ipc_take.c). The handle is a CUDA one
 * by size alone: the driver of a process without Spillway answers invalid value.
 *
 * A process that has gone takes its handles with it; what was opened before stays mapped. Functions are called inside
 * enter_serve(), with no lock held.
 *
 * Assumed, not measured: host chunks (HOST_NUMA) can be exported and imported like device chunks.
 */
#ifndef SPILLWAY_IPC_H
#define SPILLWAY_IPC_H

#include "shim/accounting/ledger.h"
#include "shim/base/user_dir.h"

#include <stdint.h>

struct heap;

/* ---- what both sides say ---- */

#define IPC_MAGIC   "SPILLIPC"
#define IPC_VERSION 1
#define IPC_FILES   64 /* descriptors in one packet; the kernel takes 253 */

/* What lies in a CUipcMemHandle. It names the giver's socket and the block, and is made for one version of this. */
struct ipc_handle {
	char magic[8];
	uint32_t version;
	int32_t pid;
	uint64_t start;  /* of the process, as in /proc/PID/stat: numbers of processes are used again */
	uint32_t nonce;  /* of the socket's name */
	int32_t device;  /* ordinal in the giver; for messages */
	uint64_t id;     /* of the block: an address may be allocated again */
	uint64_t base;   /* its address in the giver */
	uint64_t bytes;  /* as the program asked */
	uint64_t offset; /* of the block in the memory that is handed out */
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "a handle fills CUDA's");

/* The request is the handle. Answers, until n_all files have come; `here` of them with this one (SCM_RIGHTS). */
struct ipc_answer {
	uint32_t good; /* 0: there is no such block any more */
	uint32_t n_all, here;
	uint32_t reserved;
	uint64_t bytes_all;
	uint64_t bytes[IPC_FILES];
};

/* The name of a giver's socket. */
void ipc_socket_name(const struct ipc_handle *handle, char ret_name[48]);
bool ipc_is_ours(const CUipcMemHandle *handle);

/* ---- giving ---- */

/*
 * cuIpcGetMemHandle for a heap block. Why it cannot be is said once, with the setting that helps. *ret_handle is written on
 * success alone.
 */
CUresult ipc_give(struct heap *heap, const struct ledger_row *row, CUipcMemHandle *ret_handle);
/* Is this a handle of our own process? */
bool ipc_is_own(const struct ipc_handle *handle);
/* At the end of the process, and in the child of a fork (socket_server.h). */
void ipc_stop(void);
void ipc_child(void);

/* ---- taking ---- */

/* cuIpcOpenMemHandle for a handle that is ours, in the current context. */
CUresult ipc_open(const CUipcMemHandle *handle, CUdeviceptr *ret_address);
/* cuIpcCloseMemHandle. False: nothing of ours was opened there. Waits for the context's work before it unmaps. */
bool ipc_close(CUdeviceptr address, CUresult *ret_result);

#endif
