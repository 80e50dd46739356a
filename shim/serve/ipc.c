// SPDX-License-Identifier: Apache-2.0
/*
 * ipc.c: gives memory to other processes: the handle, and the socket where it is shown. Descriptors are made
 * when they are asked for, a packet of them at a time, so that a block of any size needs few; a block that was freed
 * meanwhile is detected by its id, which is checked again after its memory was exported.
 */
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/heap/heap.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/serve.h"
#include "shim/serve/types.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	REQUEST_MS = 1000, /* a caller that has connected must send its request within this time */
	SEND_MS = 5000,    /* a caller takes what it is sent, and maps memory in between */
};

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

/* ---- this process ---- */

/* Makes the name of a giver's socket. */
static void ipc_socket_name(const struct ipc_handle *handle, char ret_name[48])
{
	snprintf(ret_name, 48, "%d-%08x" USER_DIR_IPC, (int)handle->pid, (unsigned)handle->nonce);
}

/* Returns true if this is a handle of our own process. */
static bool ipc_is_own(const struct ipc_handle *handle)
{
	const char *own = socket_server_name(&serve_state.ipc_give.server);
	char name[48];

	ipc_socket_name(handle, name);
	return own && handle->version == IPC_VERSION && handle->start == user_dir_process_started(getpid()) &&
	       !strcmp(name, own);
}

bool ipc_is_ours(const CUipcMemHandle *handle)
{
	return memcmp(handle, IPC_MAGIC, sizeof(IPC_MAGIC) - 1) == 0;
}

/* ---- one caller ---- */

static bool is_alive(const struct ipc_handle *handle)
{
	struct ledger_row row;

	return ledger_get(LEDGER_HEAP, handle->base, &row) && row.id == handle->id;
}

/*
 * Exports the next packet of files, which the caller must close. Returns false if the block no longer exists, or was
 * never given.
 */
static bool ipc_give_share(const struct ipc_handle *handle, unsigned first, struct heap_share *ret_share)
{
	struct device *device = device_of(handle->base);
	struct heap *heap = device ? atomic_load_explicit(&device->heap, memory_order_acquire) : NULL;

	if (!heap || !is_alive(handle) || heap_share(heap, handle->base, first, ret_share) != SW_OK)
		return false;
	if (is_alive(handle))
		return true;
	heap_share_end(ret_share);
	return false;
}

static bool send_packet(int fd, const struct ipc_answer *answer, const int *files)
{
	char room[CMSG_SPACE(sizeof(int) * IPC_FILES)] __attribute__((aligned(__alignof__(struct cmsghdr)))) = {0};
	struct iovec data = {(void *)(uintptr_t)answer, sizeof(*answer)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	struct pollfd wait = {.fd = fd, .events = POLLOUT};

	if (answer->here) {
		message.msg_control = room;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * answer->here);
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * answer->here);
		memcpy(CMSG_DATA(head), files, sizeof(int) * answer->here);
	}
	if (poll(&wait, 1, SEND_MS) != 1)
		return false;
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*answer);
}

static void ipc_give_serve(struct socket_server *server, int fd)
{
	struct ipc_answer answer = {.good = 1, .n_all = 1};
	struct ipc_handle handle;

	enter_depth = 1;
	if (!socket_server_wait(server, fd, REQUEST_MS) ||
	    recv(fd, &handle, sizeof(handle), MSG_DONTWAIT) != (ssize_t)sizeof(handle) ||
	    !socket_server_peer_is_owner(fd))
		return;
	for (unsigned sent = 0; sent < answer.n_all; sent += answer.here) {
		struct heap_share part = {0};

		if (!ipc_is_own(&handle) || !ipc_give_share(&handle, sent, &part)) {
			answer = (struct ipc_answer){.good = 0};
			send_packet(fd, &answer, NULL);
			return;
		}
		answer.n_all = part.n_all;
		answer.here = part.n;
		answer.bytes_all = part.bytes_all;
		memcpy(answer.bytes, part.bytes, sizeof(answer.bytes));
		bool gone = !send_packet(fd, &answer, part.file);
		heap_share_end(&part);
		if (gone || !answer.here)
			return;
	}
	/* Waits for the caller to close: the end of the connection must not overtake the packets in it. */
	socket_server_wait(server, fd, SEND_MS);
}

void ipc_stop(void)
{
	socket_server_stop(&serve_state.ipc_give.server);
}

void ipc_child(void)
{
	socket_server_child(&serve_state.ipc_give.server);
}

/* ---- handles ---- */

static bool ipc_give_start(void)
{
	struct ipc_give_state *const give = &serve_state.ipc_give;

	lock_take(&give->lock);
	if (!give->server.serve) /* once: the thread reads it */
		give->server.serve = ipc_give_serve;
	bool started = socket_server_start(&give->server);
	lock_drop(&give->lock);
	return started;
}

CUresult ipc_give(struct heap *heap, const struct ledger_row *row, CUipcMemHandle *ret_handle)
{
	uint64_t offset;

	if (row->heap.on_use) {
		log_once("cuIpcGetMemHandle of an allocation with place: on-use, which can not be handed out: refused");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!heap_pin(heap, row->key, 1)) {
		log_once("cuIpcGetMemHandle: the memory is on its way and does not arrive: refused");
		return CUDA_ERROR_MAP_FAILED;
	}
	enum sw_status status = heap_share_begin(heap, row->key, &offset);
	heap_pin_end(heap, row->key, 1, status == SW_OK ? PIN_LEFT : PIN_OFF);
	if (status != SW_OK) {
		log_once(
		    "cuIpcGetMemHandle of heap memory that was not made to be handed out: set ipc: yes in the policy, "
		    "or write a rule for such allocations with movable: no, both where the other process runs under "
		    "Spillway too, or with use: driver");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!ipc_give_start())
		return CUDA_ERROR_MAP_FAILED;
	log_once(
	    "heap memory is handed out by cuIpcGetMemHandle and stays where it is; processes that open it must run "
	    "under Spillway too, else give such allocations to the driver with a rule (use: driver)");
	struct ipc_handle handle = {
	    .magic = IPC_MAGIC,
	    .version = IPC_VERSION,
	    .pid = serve_state.ipc_give.server.owner,
	    .start = user_dir_process_started(getpid()),
	    .nonce = (uint32_t)strtoul(strchr(serve_state.ipc_give.server.name, '-') + 1, NULL, 16),
	    .device = row->device,
	    .id = row->id,
	    .base = row->key,
	    .bytes = row->bytes,
	    .offset = offset,
	};
	memcpy(ret_handle, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

/* ---- taking ---- */

/*
 * Takes memory of other processes: files come from the giver's socket, are imported and mapped side by
 * side. The files are closed and the handles released at once, so the mapping alone keeps the memory alive, whatever
 * the giver does.
 *
 * There is one mapping for each block and device, however often it is opened. Nothing may be unmapped while submissions
 * that know the address are in flight, and neither call waits for the GPU, which may wait for the calling thread. So
 * the last close defers the unmapping like a free (deferred_free.h); who opens the block meanwhile gets another
 * mapping.
 *
 * For the driver it is a row of mappings, on the host or not; the program has opened one block of device memory. So
 * the ledger has a row of it while it is open, from which its questions are answered (entry_query.c).
 */

enum {
	CONNECT_MS = 5000, /* the giver may have other callers meanwhile */
	ANSWER_MS = 10000, /* the giver exports memory meanwhile */
};

struct taken {
	struct taken *next;
	struct ipc_handle handle;
	CUdevice device;
	CUdeviceptr at;  /* start of the range */
	uint64_t bytes;  /* of the range */
	uint64_t mapped; /* bytes mapped, from the start */
	unsigned count;  /* opens */
};

/* ---- the giver ---- */

/* Returns a connection to the giver, which is of this user, or -1 if it has gone. */
static int connect_to(const struct ipc_handle *handle)
{
	struct user_dir folder;
	char name[48];

	ipc_socket_name(handle, name);
	for (int place = 0; place < 2; place++) {
		if (place == 0 ? user_dir_open_xdg(secure_getenv("XDG_RUNTIME_DIR"), &folder) != 0
			       : user_dir_open_tmp(user_dir_fallback, &folder) != 0)
			continue;
		int fd = user_dir_connect(&folder, name, CONNECT_MS);
		user_dir_close(&folder, false);
		if (fd >= 0 && socket_server_peer_is_owner(fd))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* Receives one answer and its files, which the caller must close. Returns false if none came, or not a whole one. */
static bool ipc_take_receive(int fd, struct ipc_answer *ret_answer, int ret_files[IPC_FILES])
{
	char room[CMSG_SPACE(sizeof(int) * IPC_FILES)] __attribute__((aligned(__alignof__(struct cmsghdr))));
	struct iovec data = {ret_answer, sizeof(*ret_answer)};
	struct msghdr message = {
	    .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	size_t n = 0;
	int ready;

	do
		ready = poll(&wait, 1, ANSWER_MS);
	while (ready < 0 && errno == EINTR);
	if (ready != 1)
		return false;
	ssize_t bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (bytes < 0)
		return false;
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(ret_files, CMSG_DATA(head), n * sizeof(int));
	}
	if (bytes == (ssize_t)sizeof(*ret_answer) && ret_answer->here == n && ret_answer->here <= IPC_FILES)
		return true;
	for (size_t i = 0; i < n; i++)
		close(ret_files[i]);
	return false;
}

/* ---- mapping ---- */

static CUresult map_file(struct taken *taken, int file, uint64_t bytes)
{
	CUmemGenericAllocationHandle handle;

	if (bytes > taken->bytes - taken->mapped)
		return CUDA_ERROR_MAP_FAILED;
	CUresult result = REAL(cuMemImportFromShareableHandle)(&handle, (void *)(uintptr_t)file,
							       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(cuMemMap)(taken->at + taken->mapped, bytes, 0, handle, 0);
	REAL(cuMemRelease)(handle);
	if (result == CUDA_SUCCESS)
		taken->mapped += bytes;
	return result;
}

static CUresult map_answer(struct taken *taken, const struct ipc_answer *answer, const int *files)
{
	CUresult result = CUDA_SUCCESS;

	if (!taken->at) {
		result = REAL(cuMemAddressReserve)(&taken->at, answer->bytes_all, HEAP_UNIT, 0, 0);
		taken->bytes = answer->bytes_all;
	}
	for (unsigned i = 0; i < answer->here; i++) {
		if (result == CUDA_SUCCESS)
			result = map_file(taken, files[i], answer->bytes[i]);
		close(files[i]);
	}
	return result;
}

/* Returns false if the driver refused; then the mapping stays as it is. */
static bool ipc_take_unmap(struct taken *taken)
{
	if (taken->mapped && REAL(cuMemUnmap)(taken->at, taken->mapped) != CUDA_SUCCESS)
		return false;
	taken->mapped = 0;
	return !taken->at || REAL(cuMemAddressFree)(taken->at, taken->bytes) == CUDA_SUCCESS;
}

static CUresult ipc_take_take(struct taken *taken, int fd)
{
	const CUmemAccessDesc access = {
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = taken->device},
	    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUresult result = CUDA_SUCCESS;
	unsigned n = 0, n_all = 1;

	while (n < n_all) {
		int files[IPC_FILES];
		struct ipc_answer answer;

		if (!ipc_take_receive(fd, &answer, files))
			return CUDA_ERROR_MAP_FAILED;
		if (!answer.good || !answer.here)
			return CUDA_ERROR_INVALID_HANDLE;
		n_all = answer.n_all;
		n += answer.here;
		result = map_answer(taken, &answer, files);
		if (result != CUDA_SUCCESS)
			break;
	}
	if (result == CUDA_SUCCESS && taken->mapped != taken->bytes)
		result = CUDA_ERROR_MAP_FAILED;
	if (result == CUDA_SUCCESS)
		result = REAL(cuMemSetAccess)(taken->at, taken->bytes, &access, 1);
	if (result == CUDA_SUCCESS)
		return result;
	log_once("memory of process %d could not be mapped: %s%s", (int)taken->handle.pid, real_error_name(result),
		 result == CUDA_ERROR_INVALID_DEVICE ? ", which is to say that this GPU cannot reach that one" : "");
	/* Programs do not expect the mapping's error from this call. */
	return result == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_MAP_FAILED : result;
}

static CUresult ipc_take_fetch(struct taken *taken)
{
	int fd = connect_to(&taken->handle);
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (fd >= 0) {
		if (send(fd, &taken->handle, sizeof(taken->handle), MSG_NOSIGNAL) == sizeof(taken->handle))
			result = ipc_take_take(taken, fd);
		close(fd);
	}
	if (result == CUDA_ERROR_INVALID_HANDLE)
		log_once("an IPC handle leads nowhere: process %d has ended, has freed the memory, or has another "
			 "XDG_RUNTIME_DIR or /tmp",
			 (int)taken->handle.pid);
	return result;
}

/* ---- opening and closing ---- */

static bool is_for(const struct taken *taken, const struct ipc_handle *handle, CUdevice device)
{
	return taken->device == device && taken->handle.id == handle->id && taken->handle.pid == handle->pid &&
	       taken->handle.start == handle->start && taken->handle.nonce == handle->nonce;
}

/* The driver is asked for the device: this process may number devices otherwise than the giver. */
static bool make_known(struct taken *taken)
{
	struct ledger_row *row = ledger_row_new(LEDGER_TAKEN);

	if (!row)
		return false;
	row->key = taken->at + taken->handle.offset;
	row->bytes = taken->handle.bytes;
	row->context = context_of_memory();
	row->taken = taken;
	if (REAL(cuPointerGetAttribute)(&row->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, row->key) != CUDA_SUCCESS)
		row->device = taken->device;
	if (!ledger_span(row)) {
		ledger_row_free(row);
		return false;
	}
	ledger_commit(row);
	return true;
}

static CUresult open_new(const struct ipc_handle *handle, CUdevice device, struct taken **ret_taken)
{
	struct taken *taken = calloc(1, sizeof(*taken));

	if (!taken)
		return CUDA_ERROR_OUT_OF_MEMORY;
	taken->handle = *handle;
	taken->device = device;
	CUresult result = ipc_take_fetch(taken);
	if (result == CUDA_SUCCESS && !make_known(taken))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		taken->next = serve_state.ipc_take.list;
		serve_state.ipc_take.list = taken;
		*ret_taken = taken;
	} else {
		ipc_take_unmap(taken); /* the program has not seen the address */
		free(taken);
	}
	return result;
}

/*
 * Everything that was submitted before the last close is complete. What the driver refuses is tried again, without the
 * event, which may have ended with its context.
 */
static void taken_release(struct ledger_row *row)
{
	if (!ipc_take_unmap(row->taken)) {
		row->pending.event = NULL;
		deferred_free_add(row);
		return;
	}
	free(row->taken);
	ledger_row_free(row);
}

static const struct backend taken_home = {.release = taken_release};

CUresult ipc_open(const CUipcMemHandle *opaque, CUdeviceptr *ret_address)
{
	CUresult result = CUDA_SUCCESS;
	struct ipc_handle handle;
	CUdevice device;

	memcpy(&handle, opaque, sizeof(handle));
	if (handle.version != IPC_VERSION || !ret_address || handle.pid <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	/*
	 * As CUDA: an allocation's own process cannot open its handle. Which error CUDA returns is from memory, not
	 * measured.
	 */
	if (ipc_is_own(&handle) || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_CONTEXT;
	deferred_free_reap(-1);
	lock_take(&serve_state.ipc_take.lock);
	struct taken *taken = serve_state.ipc_take.list;
	while (taken && !is_for(taken, &handle, device))
		taken = taken->next;
	if (!taken)
		result = open_new(&handle, device, &taken);
	if (result == CUDA_SUCCESS) {
		taken->count++;
		*ret_address = taken->at + handle.offset;
	}
	lock_drop(&serve_state.ipc_take.lock);
	return result;
}

bool ipc_close(CUdeviceptr address, CUresult *ret_result)
{
	struct taken **link = &serve_state.ipc_take.list;
	struct ledger_row *row = NULL;

	lock_take(&serve_state.ipc_take.lock);
	while (*link && (*link)->at + (*link)->handle.offset != address)
		link = &(*link)->next;
	bool found = *link != NULL;
	if (found && !--(*link)->count) {
		*link = (*link)->next;
		row = ledger_take(LEDGER_TAKEN, address);
	}
	lock_drop(&serve_state.ipc_take.lock);
	if (row) {
		row->home = &taken_home;
		row->device = -1;
		deferred_free_add(row);
		deferred_free_reap(-1);
	}
	if (found)
		*ret_result = CUDA_SUCCESS;
	return found;
}
