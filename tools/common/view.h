// SPDX-License-Identifier: Apache-2.0
/*
 * view.h: finds processes of other namespaces that this process's /proc shows: containers, and jobs with a /tmp of
 * their own. Reads only /proc.
 */
#ifndef TOOLS_VIEW_H
#define TOOLS_VIEW_H

#include "shim/base/user_dir.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Calls visit() once for each other mount namespace that may be entered. root is the path of its "/", pid a process in
 * it. The list is rebuilt at the first call and at every tenth, because this examines all processes.
 */
typedef void view_visit(const char *root, pid_t pid, void *argument);
void view_each(view_visit *visit, void *argument);

/*
 * The folders in which processes publish figures and sockets. A process uses the one that its own environment named
 * (user_dir.h), which may differ from the tool's: it may have been started by ssh, cron or a batch system. So every
 * folder that the library may use is visited: below the tool's XDG_RUNTIME_DIR and in /run/user/UID,
 * /dev/shm/spillway-UID and /tmp/spillway-UID; for root, the last three of every user. Only those are that their owner
 * alone can enter; others are counted.
 */
struct folders {
	uid_t only; /* (uid_t)-1: all users that are visible */
	void (*visit)(const struct user_dir *folder, uid_t owner, void *argument);
	void *argument;
	size_t n_refused; /* folders whose owner or mode is wrong */
	bool other_view;  /* user ids in names may be of a user namespace: the folder's owner counts */
};
void folders_own(struct folders *folders);
/*
 * Does the same in other mount namespaces, by /proc/PID/root: a job in a container, or with a /tmp of its own as batch
 * systems create them, is in one.
 */
void folders_of_views(struct folders *folders);

/* Returns the user id that the text is; (uid_t)-1 if it is none. */
uid_t view_user(const char *text);

/* Returns the number of this process's PID namespace; 0 if it is not known. */
uint64_t view_own_space(void);

/*
 * Returns the id, in the tool's PID namespace, of the process with id `pid` in the PID namespace `space`; 0 if it is
 * not visible from here. fresh: examine all processes again; otherwise the result of the last fresh call is used.
 */
pid_t view_process(uint64_t space, pid_t pid, bool fresh);

/*
 * Returns the contents of a file of /proc/PID, at most `most` bytes, as a text; NULL if it cannot be read. The caller
 * must free it.
 */
char *view_read(pid_t pid, const char *file, size_t most, size_t *ret_bytes);

/* Returns 1 if a file whose path has this part is mapped in the process, 0 if not, -1 if that cannot be read. */
int view_maps(pid_t pid, const char *part);

#endif
