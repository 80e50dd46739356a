/*
 * quota.h: pinned host memory that the processes of one user share. Several of them are one job as a rule, a process for
 * each GPU, and each of them would take half of the machine for itself.
 *
 * Who shares: the processes of one user that see the same private folder (user_dir.h) and live below the same memory limit,
 * that is in the nearest cgroup above them that has one; without a limit, on the machine. There is no daemon: a small file
 * in the folder, made with the first host memory, holds a total and a slot for each process (quota_internal.h). A process
 * without host memory has no slot and no part in anything said here. A file that is in use in another place where such a
 * folder may lie is shared as well: a user who logs out and in again has one budget.
 *
 * What is promised, of processes that have a slot (ranks; n of them, T the total):
 *  - What all ranks have taken is never more than T, whoever takes at the same time. (A total that is lowered while they
 *    run takes nothing away; nothing more is given until the sum is below it.)
 *  - A rank that has no more than T/n with what it asks for is refused only while there is no room for it. One that would
 *    have more is also refused the room that is owed to others: what those below T/n have lately (2 s) been refused.
 *  - What a rank has pinned but does not use (its spare) goes back when another is short: when it next frees something,
 *    else within about a second, by its control thread (not with `control: no`). An allocation that would be out of memory
 *    waits for that, for 2.5 s at most, and only while others have spare, or are ending.
 *  - Memory in use is never taken from anybody. So a rank that comes late may have to wait for what is owed to it until
 *    others free it, and what was taken while n was smaller stays.
 *  - The share of a process that is gone, killed or not, is looked for by who is short of room, every 5 ms at most, and
 *    about once a second by all. One that ends keeps its share until the kernel says that it is gone: its memory is pinned
 *    until then. One that becomes another program by exec() keeps it until it takes host memory again, or ends.
 *
 * Gone means: no such pid, another start time, or nothing left but a zombie. Of a process in another PID namespace the pid
 * says nothing; there a lock on the file decides, which the kernel drops when its holder ends. A process that has closed
 * descriptors which are not its own looks dead from other PID namespaces.
 *
 * A file that is removed or truncated under its processes, as a log-out does it, is made again by the first that notices,
 * with what all of them hold: at once by who takes or joins, else within a second by the control thread. What a process
 * holds that has not come back to a truncated file counts as everything there is. It is said once. What cannot be known:
 * a process that joins in the second after a removal does not see what processes of other PID namespaces (containers that
 * share the folder) hold, nor those without readable descriptors in /proc; and one with `control: no` comes back only when
 * it next takes.
 *
 * A process that is stopped (SIGSTOP, a debugger) at the very point where it joins or leaves keeps the others from joining:
 * they wait 2 s, say so once, and get no host memory until it goes on or ends. No one has a budget of its own for that.
 *
 * A file that another version of this library uses cannot be read, so nobody can tell how much of the total is left. This
 * process then says so once, with both versions, and gets no host memory until those who use it have ended; it changes
 * nothing in that file. Versions up to 2 take a budget of their own when they find a newer file.
 *
 * Whatever else is wrong with the file (nonsense, full, no file system for it) leaves this process its own budget, and is
 * said once. A file that nobody uses is replaced, whatever its version.
 *
 * Locks: two small ones among the threads of this process, the last to be taken, of which one is never held over a wait;
 * others are waited for only while several ask for the last of the room, for microseconds, and for a second where one of
 * them is stopped by a signal just there. The first take opens files. Not on the launch path: a take with its give is some
 * twenty system calls on the file, 10 us, what is spare two to three us. Leaves errno as it is.
 */
#ifndef SPILLWAY_QUOTA_H
#define SPILLWAY_QUOTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct quota_terms {
	uint64_t total;          /* what all may pin, as far as this process knows; the first one's holds */
	bool given;              /* by the policy: it replaces one that was computed */
	uint64_t domain;         /* whose memory limit it is (hostmem.h); 0: the machine's */
	_Atomic uint64_t *limit; /* becomes the total that holds; NULL: the process has a budget of its own as well */
};

/* From now on this process shares, and on these terms. Once, under START; makes no file. */
void quota_arrange(const struct quota_terms *terms);

/* Take bytes of what is shared, if they fit. Always true where nothing is shared. */
bool quota_take(uint64_t bytes);
void quota_give(uint64_t bytes);
/* What could be taken now; UINT64_MAX where nothing is shared, or nothing has been taken yet. */
uint64_t quota_left(void);
/* How often a take has been refused. */
uint64_t quota_refusals(void);

/* Bytes of what was taken became free, kept for the next use; or are used again, or given. */
void quota_spare_add(uint64_t bytes);
void quota_spare_sub(uint64_t bytes);
/* Has any of the ranks been refused lately (2 s)? */
bool quota_is_asked(void);
/* How much of the spare ought to go back because others are short. 0 is cheap. */
uint64_t quota_owed(void);
/* So much went back for that. */
void quota_returned(uint64_t bytes);

/*
 * An allocation that needs at most so many bytes of host memory was refused: say so to the others, and wait a little.
 * *tries: 0 the first time. False: there is nothing to wait for (any more).
 */
bool quota_wait(uint64_t bytes, unsigned *tries);

/* About once a second: look for processes that are gone, and renew the figures (stats.h). */
void quota_tick(void);
/* The process ends. */
void quota_leave(void);
/* In the child of a fork, async-signal-safe: it has no share. */
void quota_child(void);

#endif
