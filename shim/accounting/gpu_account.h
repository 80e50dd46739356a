// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_account.h: the account of one GPU: what the processes of a user that share it (device.total) hold there, need and
 * cannot move, and what each of them may have. It is a shared file (shared_file.h) for each GPU, gpu-UUID.account.
 *
 * What is promised: the sum of what the processes may have is never more than the total, however many join, grow and
 * die. A process raises what it may have only under the lock of the file, by what is left of the total; it publishes a
 * smaller figure only after its memory has left. (A total that is lowered takes nothing away at once; nothing more is
 * given until the sum is below it.) After a loss nobody raises anything for a second, so that all have entered. Only
 * the memory of a process that is stopped for longer, and was in a damaged file, or in another PID namespace, is not
 * counted then.
 *
 * A process that has ended and is survived by a child that keeps its memory is a member that takes part in nothing, and
 * keeps all that it might have: it may have taken more since it published what it holds. A process that is stopped
 * keeps what it has. The turn (plan/gpu_turn.h) is in the file, too, and changes only under the lock. It goes with its
 * process: the turn of one that has died is that of another of its job (plan/gpu_job.h), or of none. If a process was
 * stopped while it changed the turn, the last one written holds; a mistake there costs time only.
 *
 * The control threads read all of it each time they look, without the lock. Times are those of CLOCK_MONOTONIC, which
 * differs between time namespaces: only processes with the same clock take turns, those with the clock that most have.
 *
 * Where a process cannot enter the file, and that lasts, it is alone: it logs that once, and has the budget that it
 * would have if nobody shared; it enters as soon as it can.
 *
 * An account is used by one thread at a time; the caller ensures that. Nothing here waits: if another process just
 * changes the file, the call fails and is to be made again later. Changes errno: it is called by threads of the
 * library, and inside enter_serve(), whose end restores it.
 */
#ifndef SPILLWAY_GPU_ACCOUNT_H
#define SPILLWAY_GPU_ACCOUNT_H

#include "shim/accounting/shared_file.h"
#include "shim/plan/gpu_job.h"
#include "shim/plan/gpu_turn.h"

#include <stdbool.h>
#include <stdint.h>

#define GPU_ACCOUNT_VERSION 5
#define GPU_ACCOUNT_MAGIC   0x5753474143430a31u
/* The lock of number 0 (shared_file.h), and the byte of the process that is the first of those that wait to enter. */
#define GPU_ACCOUNT_LOCK  128
#define GPU_ACCOUNT_QUEUE 300

#define GPU_ACCOUNT_MOST 64
#define GPU_ACCOUNT_TAIL ".account"
/* Files that are looked at in one folder; those in which no process is alive count only here. */
#define GPU_ACCOUNT_FILES 1024

/* What a process publishes, in bytes. Who it is says job.process. */
struct gpu_account_member {
	union {
		struct shared_owner owner;
		struct {
			uint64_t pid, started, space, leaving;
		};
	};
	uint64_t may_have; /* its budget, or what it holds if that is more */
	uint64_t holds;    /* on the device */
	uint64_t needs;    /* what its heap has, on the device and elsewhere, and what else is charged to it */
	uint64_t stuck;    /* what cannot leave the device */
	uint64_t worked;   /* CLOCK_MONOTONIC, ns: when it was last seen to submit something */
	struct gpu_turn_claim claim;
	struct gpu_job_claim job;
	uint64_t unused[5]; /* up to whole cache lines */
};

/* Whose turn it is (plan/gpu_turn.h). The number grows with each change, so that two processes never make the same. */
struct gpu_account_turn {
	uint64_t number;
	bool on;
	unsigned holder; /* number of the member, or GPU_TURN_NOBODY; its process lives */
	uint64_t since;  /* CLOCK_MONOTONIC, ns */
};

/* The file. */
struct account_head {
	struct shared_head file;
	/* Written under the lock, all of it at once. */
	struct account_turn {
		uint64_t number; /* grows with each change */
		uint64_t on;
		uint64_t holder; /* number of the slot, and 1; 0: no process has the turn */
		uint64_t since;  /* CLOCK_MONOTONIC, ns */
	} turn;
} __attribute__((aligned(128)));

struct account_page {
	struct account_head head;
	struct gpu_account_member slot[GPU_ACCOUNT_MOST];
};

struct gpu_account {
	struct shared_file file;
	bool keeps_total;    /* set before it enters: the total of those that are there holds, if there are any */
	const char *lasting; /* why it could not be entered, if that lasts: the process is alone. Else NULL */
};

struct gpu_account_view {
	uint64_t total;
	unsigned n, self; /* members; the number of this process among them */
	bool other_clock; /* that of this process is not that of the turns: it takes none */
	struct gpu_account_turn turn;
	struct gpu_account_member members[GPU_ACCOUNT_MOST];
	unsigned char slots[GPU_ACCOUNT_MOST]; /* of the members, in the file */
	bool ended[GPU_ACCOUNT_MOST];          /* a child of the member keeps memory */
};

/* Stores the members as turns and shares know them. */
void gpu_account_members(const struct gpu_account_view *view, struct gpu_turn_member *ret_members);

/* The place in the line of a process that is not in the account yet. */
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
enum gpu_account_place gpu_account_queue(struct shared_file *line, const unsigned char uuid[16],
					 struct gpu_account_view *ret_view);
/* Leaves the line. */
void gpu_account_queue_end(struct shared_file *line);

/*
 * Enters the account of the GPU with that UUID (16 bytes). Does nothing if it has. total: it replaces that of the file,
 * unless `keeps_total`. member: as this process is now. Returns false if that is impossible now; `lasting` says if it
 * will stay so.
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
 * Adds the seats of an account's living processes to those of others, as far as there is room, and stores its turn.
 * The caller must set `now` and `n` of jobs. Stores the seat of this process in `self` if it is in the view.
 */
void gpu_account_seats(const struct gpu_account_view *view, uint32_t device, struct gpu_job_view *jobs);
/*
 * Reads the accounts of all GPUs that processes of this user share, in the order of their names: their seats and
 * turns. The file of a GPU that no living process uses is left out, and so is what there is no room for in the view:
 * accounts from the end, and seats. Stores the seat of `account`, which must be joined, in ret_view->self. Returns
 * false if that is not among them. scratch: too large for the stack; overwritten.
 */
bool gpu_account_all(const struct gpu_account *account, uint64_t now, struct gpu_account_view *scratch,
		     struct gpu_job_view *ret_view);
/* Returns whether a living process of the job of that name (struct gpu_job_claim) is in any of the accounts. */
bool gpu_account_has_job(uint64_t name);
/* Gives up the slot; the last to leave removes the file, unless the process has forked. */
void gpu_account_leave(struct gpu_account *account);
/*
 * In the child of a fork: the slot is the parent's. The descriptor stays open, and with it the lock, because the
 * parent's memory on the device is there as long as this process (docs/facts.md, Two processes). Async-signal-safe.
 */
void gpu_account_child(struct gpu_account *account);

/* ---- for those that read an account and are not in it ---- */

/*
 * Reads all of the open file. Slots of the dead are empty afterwards, or have what a child keeps of them (ret_ended).
 * Returns false if it is none of ours.
 */
bool gpu_account_read(int fd, struct account_page *ret_page, bool ret_ended[GPU_ACCOUNT_MOST]);
/*
 * Returns the clock (user_dir.h) that most members have; of two that as many have, that of the first of these members.
 */
uint64_t gpu_account_clock(const struct gpu_account_member *members, unsigned n);
/* Returns true also if its clock is not known. */
bool gpu_account_has_clock(const struct gpu_account_member *member, uint64_t clock);

#endif
