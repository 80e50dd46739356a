/*
 * serve_state.c: defines what the room keeps for the process. It names no function of the room, so that a test can
 * link one file of the room with it.
 */
#include "shim/serve/serve_state.h"

struct serve_state serve_state = {
    .control.server =
	{
	    .tail = USER_DIR_SOCKET,
	    .is_identified = true,
	    .thread_name = "spillway-ctl",
	    .cannot = "`spillway suspend` cannot reach",
	},
    .deferred_free = {.lock = LOCK_INIT(LOCK_DEFERRED_FREE), .tail = &serve_state.deferred_free.list},
    .graph_mend.lock = LOCK_INIT(LOCK_MEND),
    .ipc_give =
	{
	    .lock = LOCK_INIT(LOCK_IPC_SERVER),
	    .server =
		{
		    .tail = USER_DIR_IPC,
		    .thread_name = "spillway-ipc",
		    .cannot = "memory cannot be handed out by",
		},
	},
    .ipc_take.lock = LOCK_INIT(LOCK_IPC_OPENED),
    .vmm.lock = LOCK_INIT(LOCK_VMM),
};
