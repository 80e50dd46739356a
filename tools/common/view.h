/*
 * view.h: processes of other namespaces, as far as this one's /proc shows them: containers, and jobs with a /tmp of their
 * own. Reads /proc alone.
 */
#ifndef TOOLS_VIEW_H
#define TOOLS_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Call visit() once for each other view of the file system (mount namespace) that may be entered; root: the path of its
 * "/"; pid: a process that has it. The list is made anew every ten calls, and at the first: it looks at all processes.
 */
typedef void view_visit(const char *root, pid_t pid, void *argument);
void view_each(view_visit *visit, void *argument);

/* The number of this process's PID namespace. 0: not known. */
uint64_t view_own_space(void);

/*
 * The id, here, of the process whose id is `pid` in the PID namespace `space`. 0: it is not seen from here. fresh: look at
 * all processes anew; else what the last call with fresh found is good enough.
 */
pid_t view_process(uint64_t space, pid_t pid, bool fresh);

#endif
