/*
 * ipc_give.c: gives memory to other processes: the handle, and the socket where it is shown. Descriptors are made
 * when they are asked for, a packet of them at a time, so that a block of any size needs few; a block that was freed
 * meanwhile is detected by its id, which is checked again after its memory was exported.
 */
#include "shim/process/process.h"
#include "shim/base/lock.h"
#include "shim/heap/heap.h"
#include "shim/serve/ipc.h"
#include "shim/serve/serve_state.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/base/socket_server.h"

#include "shim/device/device.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	REQUEST_MS = 1000, /* a caller that has connected must send its request within this time */
	SEND_MS = 5000,    /* a caller takes what it is sent, and maps memory in between */
};

/* ---- this process ---- */

/* Returns the 22nd field of /proc/self/stat, or 0 if unknown; the second is in brackets and may contain anything. */
static uint64_t start_time(void)
{
	char text[1024], *at;
	FILE *file = fopen("/proc/self/stat", "re");
	size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file)
		fclose(file);
	text[n] = 0;
	at = strrchr(text, ')');
	for (int i = 0; at && i < 20; i++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

void ipc_socket_name(const struct ipc_handle *handle, char ret_name[48])
{
	snprintf(ret_name, 48, "%d-%08x" USER_DIR_IPC, (int)handle->pid, (unsigned)handle->nonce);
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

bool ipc_is_own(const struct ipc_handle *handle)
{
	const char *own = socket_server_name(&serve_state.ipc_give.server);
	char name[48];

	ipc_socket_name(handle, name);
	return own && handle->version == IPC_VERSION && handle->start == start_time() && !strcmp(name, own);
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
	    .start = start_time(),
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
