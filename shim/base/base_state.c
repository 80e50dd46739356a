// SPDX-License-Identifier: Apache-2.0
/* Defines what the room keeps for the process: its object, and the folders of user_dir.h, which serve/ reads. */
#include "shim/base/base_state.h"
#include "shim/base/user_dir.h"

const char *user_dir_fallback = "/tmp", *user_dir_memory = "/dev/shm", *user_dir_run = "/run/user";

struct base_state base_state = {
    .log = {.once = PTHREAD_ONCE_INIT},
    .pager = {.lock = LOCK_INIT(LOCK_PAGER)},
    .user_dir_loss = ATOMIC_FLAG_INIT,
};
