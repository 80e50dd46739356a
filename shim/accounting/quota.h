/*
 * quota.h: the quota: pinned host memory that the processes of one user share. Several processes are one job as a
 * rule, one for each GPU, and each of them would take half of the machine for itself.
 *
 * Who shares: the processes of one user that see the same private folder (user_dir.h) and live below the same memory
 * limit, which is that of the nearest cgroup above them that has one; without a limit, the machine's. There is no
 * daemon: a small file in the folder, made with the first host memory, holds a total and a slot for each process
 * (quota_internal.h). A process without host memory has no slot, and nothing said here applies to it. A file that is
 * in use in another place where such a folder may lie is shared as well: a user who logs out and in again has one
 * budget.
 *
 * What is promised, of processes that have a slot (ranks; n is their number, T the total):
 *  - The ranks together never take more than T, however many take at the same time. (A total that is lowered while
 *    they run takes nothing away; nothing more is given until the sum is below it.)
 *  - A rank that has no more than T/n, including what it asks for, is refused only while the bytes are not free. A
 *    rank that would have more is also refused the bytes that are owed to others: what they have lately (2 s) been
 *    refused, and with which they would have no more than T/n.
 *  - What a rank has pinned but does not use (its spare) goes back when another rank is short: at its next free, else
 *    within about a second, by its control thread (not with `control: no`). An allocation that would be out of memory
 *    waits for that, for 2.5 s at most, and only while others have spare, or are ending.
 *  - Memory in use is never taken away. So a rank that comes late may have to wait for what is owed to it until
 *    others free it, and what was taken while n was smaller stays.
 *  - The share of a process that is gone, killed or not, is looked for by ranks that are short, every 5 ms at most,
 *    and about once a second by all. A process that ends keeps its share until the kernel says that it is gone: its
 *    memory is pinned until then. A process that becomes another program by exec() keeps it until it takes host
 *    memory again, or ends.
 *
 * Gone means that its lock on the file is, which the kernel drops when the process has ended, and with it all children
 * that it forked since and that did not exec: until then its memory is pinned. A process that has closed descriptors
 * which are not its own has no lock; it is gone when there is no such pid, or another start time, or only a zombie. The
 * pid of a process in another PID namespace says nothing; from there such a process looks dead.
 *
 * A file that is removed or truncated under its processes, as by a log-out, is made again by the first that notices,
 * with what all of them hold: at once by a process that takes or joins, else within a second by the control thread.
 * What a process holds that has not come back to a truncated file counts as the whole total. This is logged once.
 * What cannot be known: a process that joins in the second after a removal does not see what processes of other PID
 * namespaces (containers that share the folder) hold, nor those without readable descriptors in /proc; and a process
 * with `control: no` comes back only when it next takes.
 *
 * Processes join one after the other, and each waits until those before it have joined. One that is stopped (SIGSTOP,
 * a debugger) at the very point where it joins or leaves keeps the others out: they wait 2 s, log it once, and get no
 * host memory until it goes on or ends. None of them takes a budget of its own then.
 *
 * A file that another version of this library uses cannot be read, so it is unknown how much of the total is left.
 * This process then logs both versions once, and gets no host memory until the processes that use the file have
 * ended; it changes nothing in that file. Versions up to 2 take a budget of their own when they find a newer file.
 *
 * Any other fault of the file (nonsense, full, no file system for it) leaves this process its own budget, and is
 * logged once. A file that no process uses is replaced, whatever its version.
 *
 * The first take opens files. Not on the launch path. Leaves errno as it is. Cost: a take with its give is about
 * twenty system calls on the file, 10 us; changing the spare 2 to 3 us.
 *
 * Locking: takes QUOTA_TAKE and QUOTA_SEAT, among the threads of this process; QUOTA_SEAT is never held over a wait.
 * Other processes are waited for only while several ask for the last bytes, for microseconds, and for a second if one
 * of them is stopped by a signal just there.
 */
#ifndef SPILLWAY_QUOTA_H
#define SPILLWAY_QUOTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct quota_terms {
	uint64_t total;          /* what all may pin, as far as this process knows; that of the first process holds */
	bool given;              /* by the policy: it replaces a total that was computed */
	uint64_t domain;         /* domain of the memory limit (hostmem.h); 0: the machine's */
	_Atomic uint64_t *limit; /* set to the total that holds; NULL: the process has a budget of its own as well */
};

/* Makes this process share on these terms from now on. Makes no file. Locking: called once, under START. */
void quota_arrange(const struct quota_terms *terms);

/*
 * Leaves terms.limit as it is from now on, because the process gets a budget of its own. Locking: takes QUOTA_TAKE.
 */
void quota_keep_limit(void);

/* Takes bytes of what is shared. Returns false if they do not fit; always true where nothing is shared. */
bool quota_take(uint64_t bytes);
void quota_give(uint64_t bytes);
/* Returns what could be taken now; UINT64_MAX where nothing is shared, or nothing has been taken yet. */
uint64_t quota_left(void);
/*
 * Returns the total with which that many bytes more would be given to this process, beside what others have and have
 * lately been refused; 0 if they would be given now, or nothing is shared.
 */
uint64_t quota_enough(uint64_t bytes);
/* Returns how often a take has been refused. */
uint64_t quota_refusals(void);

/*
 * Bytes of what was taken became free and are kept for the next use (add); or they are used again, or given back
 * (sub).
 */
void quota_spare_add(uint64_t bytes);
void quota_spare_sub(uint64_t bytes);
/* Returns true if any rank has been refused lately (2 s). */
bool quota_is_asked(void);
/* Returns how much of the spare ought to go back because others are short. Cheap where that is 0. */
uint64_t quota_owed(void);
/* Counts bytes that went back for quota_owed(). */
void quota_returned(uint64_t bytes);

/*
 * An allocation that needs this many bytes of host memory in all was refused: publishes that to the others, and waits
 * a little. *tries: 0 the first time. Returns false if waiting (longer) is useless.
 */
bool quota_wait(uint64_t bytes, unsigned *tries);

/* About once a second: looks for processes that are gone, and renews the figures (stats.h). */
void quota_tick(void);
/* Gives up the share at the end of the process. */
void quota_leave(void);
/*
 * In the child of a fork: drops the share, which is the parent's. The descriptor stays open, and with it the lock,
 * because the parent's pinned memory is there as long as this process (docs/facts.md, Two processes).
 * Async-signal-safe.
 */
void quota_child(void);

#endif
