/*
 * gpu_account.h: the account of one GPU: what the processes of a user that share it (device.total) hold there, need and
 * cannot move, and what each of them may have. There is no daemon: a small file for each GPU in the user's private
 * folder (user_dir.h), gpu-UUID.account, has the total and a slot for each process. A file that is in use in another
 * place where such a folder may lie is shared, as that of the quota is (quota_slots.h).
 *
 * What is promised: the sum of what the processes may have is never more than the total, however many join, grow and
 * die. A process raises what it may have only under a lock of the file, by what is left of the total; it publishes a
 * smaller figure only after its memory has left. (A total that is lowered takes nothing away at once; nothing more is
 * given until the sum is below it.)
 *
 * Each process holds a lock on a byte of the file as long as it lives, which the kernel drops however it ends: a slot
 * without its lock is free, and what its process had can be given to others. Children of a process keep its lock, as
 * they keep its memory on the device, until they end or exec. A process that has ended and is survived by such a child
 * is a member that takes part in nothing, and keeps all that it might have: it may have taken more since it published
 * what it holds. A process that is stopped keeps what it has. The turn (plan/gpu_turn.h) is in the file, too, and
 * changes only under the same lock. It goes with its process: the turn of one that has died is that of another of its
 * job (plan/gpu_job.h), or of none.
 *
 * Times are those of CLOCK_MONOTONIC, which differs between time namespaces: only processes with the same clock take turns,
 * those with the clock that most have.
 *
 * A file that is removed or damaged while it is used is left by each process at its next look: it then enters the file
 * of that time with what it has. After such a loss nobody raises anything for a second, so that all have entered; who
 * makes the file finds those that still use the removed one in /proc, and what they have counts from then on. What is
 * not counted before it has come: what a process has that is stopped for longer, and was in a damaged file, or in
 * another PID namespace. What a process leaves to a child, and dies before it has entered, is not counted at all. A slot
 * without its lock counts while its process lives (quota_file_counts()): a program may close all descriptors. A file
 * that another version of this library uses is not touched. Where a process cannot enter the file, and that lasts, it is
 * alone: it logs that once, and has the budget that it would have if nobody shared; it enters as soon as it can.
 *
 * An account is used by one thread at a time; the caller ensures that. Nothing here waits: if another process just
 * changes the file, the call fails and is to be made again later. If that process is stopped (SIGSTOP) in the midst of
 * it, calls fail for a second or two; when it goes on, it has changed nothing. Leaves errno as it is. Cost: some ten
 * system calls.
 */
#ifndef SPILLWAY_GPU_ACCOUNT_H
#define SPILLWAY_GPU_ACCOUNT_H

#include "shim/plan/gpu_job.h"
#include "shim/plan/gpu_turn.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GPU_ACCOUNT_MOST 64
#define GPU_ACCOUNT_TAIL ".account"
/* Files that are looked at in one folder; those in which no process is alive count only here. */
#define GPU_ACCOUNT_FILES 1024

/* What a process publishes, in bytes. Who it is says job.process. */
struct gpu_account_member {
	uint64_t pid;      /* of its PID namespace: others may have the same. Not 0 */
	uint64_t may_have; /* its budget, or what it holds if that is more */
	uint64_t holds;    /* on the device */
	uint64_t needs;    /* what its heap has, on the device and elsewhere */
	uint64_t stuck;    /* what cannot leave the device */
	uint64_t worked;   /* CLOCK_MONOTONIC, ns: when it was last seen to submit something */
	struct gpu_turn_claim claim;
	struct gpu_job_claim job;
	uint64_t started, space; /* when `pid` started, as in /proc/PID/stat, and identity_space(); 0: not known */
};

/* Whose turn it is (plan/gpu_turn.h). The number grows with each change, so that two processes never make the same. */
struct gpu_account_turn {
	uint64_t number;
	bool on;
	unsigned holder; /* number of the member, or GPU_TURN_NOBODY; its process lives */
	uint64_t since;  /* CLOCK_MONOTONIC, ns */
};

struct gpu_account {
	int fd; /* valid if joined */
	bool joined;
	unsigned slot;
	dev_t device; /* of the file */
	ino_t inode;
	bool keeps_total;    /* set before it enters: the total of those that are there holds, if there are any */
	bool lost;           /* it has left a file that was lost, and has not entered another since */
	const char *lasting; /* why it could not be entered, if that lasts: the process is alone. Else NULL */
	uint64_t total;      /* as in the file when it entered */
	uint64_t lock;       /* as in the file, while this process holds it */
	unsigned busy;       /* tries to take the lock that failed, one after the other */
	uint64_t busy_since; /* ns: the first of them */
	char name[64];
};

struct gpu_account_view {
	uint64_t total;
	unsigned n, self; /* members; the number of this process among them */
	bool other_clock; /* that of this process is not that of the turns: it takes none */
	struct gpu_account_turn turn;
	struct gpu_account_member members[GPU_ACCOUNT_MOST];
	unsigned char slots[GPU_ACCOUNT_MOST]; /* of the members, in the file */
};

/* The place in the line of a process that is not in the account yet. */
struct gpu_account_queue {
	int fd; /* valid if open */
	bool open;
	dev_t device; /* of the file */
	ino_t inode;
};
enum gpu_account_place {
	GPU_ACCOUNT_EMPTY, /* it is the first, and no process is in the account; or that cannot be read */
	GPU_ACCOUNT_WAITS, /* another process is before this one */
	GPU_ACCOUNT_FIRST, /* it is this one's turn to enter, until gpu_account_queue_end() */
};
/*
 * Stands in the line of those that wait to enter the account of that GPU, and reads it; `self` of the view is the
 * process's own number if it has entered already, else GPU_ACCOUNT_MOST. Who is next where the first leaves the line is
 * not defined.
 */
enum gpu_account_place gpu_account_queue(struct gpu_account_queue *queue, const unsigned char uuid[16],
					 struct gpu_account_view *ret_view);
/* Leaves the line. */
void gpu_account_queue_end(struct gpu_account_queue *queue);

/*
 * Enters the account of the GPU with that UUID (16 bytes). total: it replaces that of the file, unless `keeps_total`.
 * member: as this process is now. Returns false if that is impossible now; `lasting` says if it will stay so.
 */
bool gpu_account_join(struct gpu_account *account, const unsigned char uuid[16], uint64_t total,
		      const struct gpu_account_member *member);
/*
 * Enters the account with `used` bytes, and raises what this process may have to `limit`, as far as the total allows.
 * Returns what it may have then; if the account cannot be entered, `used`, or where that lasts what it may have alone.
 */
uint64_t gpu_account_begin(struct gpu_account *account, const unsigned char uuid[16], uint64_t total, uint64_t used,
			   uint64_t limit);
/*
 * Publishes all figures of this process; may_have must not be more than it was. Then reads those of all. Returns false,
 * and leaves the account, if the file is lost.
 */
bool gpu_account_look(struct gpu_account *account, const struct gpu_account_member *member,
		      struct gpu_account_view *ret_view);
/*
 * Raises what this process may have to `wanted`, or as far as the total allows. Returns what it may have then; `now` if
 * nothing could be done.
 */
uint64_t gpu_account_raise(struct gpu_account *account, uint64_t now, uint64_t wanted);
/*
 * Gives the turn to a member of the view, or to none (GPU_TURN_NOBODY), and says whether there are turns. Returns
 * false, and changes nothing, if the turn was changed since the view was read: of several processes that try, one
 * succeeds. A process that has the turn must have stopped before it gives the turn to another.
 */
bool gpu_account_pass(struct gpu_account *account, const struct gpu_account_view *view, bool on, unsigned holder,
		      uint64_t now);
/*
 * Reads the accounts of all GPUs that processes of this user share, in the order of their names: the seats of their
 * living processes, and their turns. The file of a GPU that no living process uses is left out, and so is what there
 * is no room for in the view: accounts from the end, and seats. Stores the seat of
 * `account`, which must be joined, in ret_view->self. Returns false if that is not among them.
 */
bool gpu_account_all(const struct gpu_account *account, uint64_t now, struct gpu_job_view *ret_view);
/* Returns whether a living process of the job of that name (struct gpu_job_claim) is in any of the accounts. */
bool gpu_account_has_job(uint64_t name);
/* Gives up the slot; the last to leave removes the file, unless the process has forked. */
void gpu_account_leave(struct gpu_account *account);
/*
 * In the parent after a fork: the child may keep the slot, and the memory that it stands for, when this process has
 * ended, so the file must stay, and that of the quota. Async-signal-safe.
 */
void gpu_account_forked(void);
/*
 * In the child of a fork: the slot is the parent's. The descriptor stays open, and with it the lock, because the
 * parent's memory on the device is there as long as this process (docs/facts.md, Two processes). Async-signal-safe.
 */
void gpu_account_child(struct gpu_account *account);

#endif
