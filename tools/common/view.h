/*
 * view.h: finds processes of other namespaces that this process's /proc shows: containers, and jobs with a /tmp of
 * their own. Reads only /proc.
 */
#ifndef TOOLS_VIEW_H
#define TOOLS_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Calls visit() once for each other mount namespace that may be entered. root is the path of its "/", pid a process in
 * it. The list is rebuilt at the first call and at every tenth, because this examines all processes.
 */
typedef void view_visit(const char *root, pid_t pid, void *argument);
void view_each(view_visit *visit, void *argument);

/* Returns the number of this process's PID namespace; 0 if it is not known. */
uint64_t view_own_space(void);

/*
 * Returns the id, in the tool's PID namespace, of the process with id `pid` in the PID namespace `space`; 0 if it is
 * not visible from here. fresh: examine all processes again; otherwise the result of the last fresh call is used.
 */
pid_t view_process(uint64_t space, pid_t pid, bool fresh);

#endif
