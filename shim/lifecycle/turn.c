// SPDX-License-Identifier: Apache-2.0
/*
 * Turns: what is published, and what is decided. See types.h. A process looks at the account every few ms while there
 * are turns: that is how soon it sees that another waits, that it has nothing to do, or that it is its turn. A step of
 * a job takes some looks of all its processes, so they look often while there are steps.
 */
#include "policy/policy.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/number.h"
#include "shim/base/rank.h"
#include "shim/base/user_dir.h"
#include "shim/lifecycle/types.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

#include <stdio.h>
#include <unistd.h>

/* ns: over which it is measured what spilling costs. */
#define LOSS_NS 2000000000u
/* ms between looks: while there are steps or it enters turns, while it waits or they begin or end, and otherwise. */
#define LOOK_STEPS 1
#define LOOK_WAITS 2
#define LOOK_RUNS  5
/*
 * After this many failed tries to stop it, the job takes no part in turns for a while: 2 s at first, twice as long each
 * time, 64 s at most. A kernel that never ends cannot be stopped. Ranks that wait for each other on the GPU can be
 * stopped at another moment, so before their first rest they get more tries.
 */
#define TURN_TRIES       3
#define TURN_TRIES_RANKS 8
#define TURN_REST(times) (UINT64_C(1000000000) << smaller(times, 6))
/* ns: after the file of the account was lost, so that all have entered the new one before anybody gets more. */
#define TURN_LOST 1000000000u
/* ns: between two looks at the accounts of other devices while no process names a job. */
#define JOBS_SELDOM 100000000u
/* ns: between two signs of life while memory moves, by which others go (GPU_TURN_SILENT). */
#define BEAT_NS 100000000u

/* Sets what this process publishes about its job, but for its phase and its state. */
static void claim_job(const struct device *device, struct gpu_account_member *member, uint64_t now)
{
	struct turn_state *const turn = turn_of(device);
	struct gpu_job_claim *claim = &turn->job_claim;

	if (!claim->process) {
		claim->process = identity_get();
		lifecycle_state.jobs.started = user_dir_process_started(getpid());
		lifecycle_state.jobs.space = identity_space();
		claim->name = rank_together_as(process_settings()->turns.job);
		lifecycle_state.jobs.is_spread = rank_is_spread();
		if (lifecycle_state.jobs.is_spread && process_settings()->turns.mode != POLICY_TURNS_OFF)
			log_once("share: this job runs on several machines, and takes no turns");
	}
	if (!turn_is_away(device) || !gate_n_waiting() || now < turn->waits_after)
		claim->wants = 0;
	else if (!claim->wants)
		claim->wants = now;
	claim->refuses_until =
	    now < lifecycle_state.turn_common.refuses_until ? lifecycle_state.turn_common.refuses_until : 0;
	claim->state = spill_residence(device);
	member->job = *claim;
	member->claim.away = turn_is_away(device) && claim->state == RESIDENCE_AWAY;
	member->started = lifecycle_state.jobs.started;
	member->space = lifecycle_state.jobs.space;
}

/* ---- units ---- */

/* Returns whether this process is in the accounts of several devices: then it is a job by itself. */
static bool is_in_several(void)
{
	unsigned n = 0;

	for (const struct device *device = device_next(NULL); device; device = device_next(device))
		n += atomic_load(&device->heap) && device->account.file.open;
	return n > 1;
}

static bool any_names_a_job(const struct gpu_account_view *view)
{
	for (unsigned i = 0; i < view->n; i++)
		if (view->members[i].job.name)
			return true;
	return false;
}

static void read_jobs(const struct device *device, const struct gpu_account_view *view,
		      const struct gpu_turn_view *turns)
{
	struct turn_state *const turn = turn_of(device);
	struct gpu_job_view *jobs = &lifecycle_state.jobs.view;
	bool all = turn->many || is_in_several() || any_names_a_job(view) || turns->now - turn->looked >= JOBS_SELDOM;

	if (all)
		turn->looked = turns->now;
	if (!all || !gpu_account_all(&device->account, turns->now, &lifecycle_state.jobs.other, jobs)) {
		jobs->now = turns->now;
		jobs->n = 0;
		gpu_account_seats(view, 0, jobs);
	}
	gpu_job_find(jobs);
	turn->many = gpu_job_is_many(jobs);
}

/* Returns the number of the job of that member; of one that has just come, a number of its own. */
static uint32_t job_of(const struct gpu_job_view *jobs, uint32_t slot)
{
	for (uint32_t i = 0; i < jobs->n; i++)
		if (jobs->seats[i].device == jobs->seats[jobs->self].device && jobs->seats[i].slot == slot)
			return jobs->seats[i].job;
	return GPU_JOB_SEATS + slot;
}

uint32_t turn_account_units(struct device *device, const struct gpu_account_view *view, struct gpu_turn_view *ret_turns)
{
	struct jobs_state *const state = &lifecycle_state.jobs;
	const struct turn_state *const turn = turn_of(device);
	uint32_t numbers[GPU_ACCOUNT_MOST];

	gpu_account_members(view, state->members);
	struct gpu_turn_view each = {
	    .now = clock_now(),
	    .total = view->total,
	    .members = state->members,
	    .n = view->n,
	    .on = view->turn.on,
	    .holder = view->turn.holder,
	    .since = turn->holds ? turn->began : view->turn.since,
	};
	read_jobs(device, view, &each);
	for (unsigned i = 0; i < view->n; i++)
		numbers[i] = job_of(&state->view, view->slots[i]);
	*ret_turns = each;
	ret_turns->members = lifecycle_state.turn_common.members;
	ret_turns->n = gpu_job_fold(&each, numbers, lifecycle_state.turn_common.members, state->units);
	state->n = view->n;
	if (view->turn.holder < view->n)
		ret_turns->holder = state->units[view->turn.holder];
	uint32_t self = state->units[view->self];
	/* It is idle if all of it is, on all devices. */
	if (turn->many)
		lifecycle_state.turn_common.members[self].claim.idle = gpu_job_idle(&state->view);
	return self;
}

uint32_t turn_account_member(uint32_t unit)
{
	const struct jobs_state *state = &lifecycle_state.jobs;

	for (uint32_t i = 0; i < state->n; i++)
		if (state->units[i] == unit)
			return i;
	return GPU_TURN_NOBODY;
}

/* Returns the part of so many bytes of the unit of this process that is for this process, by what each needs. */
static uint64_t part_of(const struct gpu_account_view *view, uint64_t bytes)
{
	const struct jobs_state *state = &lifecycle_state.jobs;
	struct gpu_turn_member *const members = lifecycle_state.shared.members;
	unsigned n = 0, self = 0;

	for (unsigned i = 0; i < view->n; i++) {
		if (state->units[i] != state->units[view->self])
			continue;
		if (i == view->self)
			self = n;
		members[n++] = state->members[i];
	}
	return n == 1 ? bytes : gpu_share_of(bytes, members, n, self);
}

/* ---- publishing ---- */

bool turn_account_publish(struct device *device, bool moving)
{
	struct turn_state *const turn = turn_of(device);
	struct gpu_account_member *member = &turn->member;
	uint64_t used = atomic_load(&device->budget.used), limit = atomic_load(&device->budget.limit);

	/* Of a device that was not looked at yet nothing is known. */
	if (!device->account.file.open || !member->pid)
		return false;
	member->holds = used;
	member->may_have = used > limit ? used : limit;
	member->claim = turn->claim;
	member->claim.beat = clock_now();
	member->claim.moving = moving;
	claim_job(device, member, member->claim.beat);
	bool good = gpu_account_look(&device->account, member, &lifecycle_state.shared.view);
	if (!good)
		turn_lost(device);
	return good;
}

void turn_account_beat(void)
{
	uint64_t now = clock_now();

	if (now - lifecycle_state.turn_common.beat < BEAT_NS)
		return;
	lifecycle_state.turn_common.beat = now;
	/* Before it has a heap, another thread may just be entering its account. */
	for (struct device *device = device_next(NULL); device; device = device_next(device))
		if (atomic_load(&device->heap) && device->account.file.open)
			turn_account_publish(device, turn_of(device)->moves != GPU_JOB_STAYS);
}

void turn_lost(const struct device *device)
{
	struct turn_state *const turn = turn_of(device);

	if (turn->claim.kind != GPU_TURN_OFF || turn_is_away(device))
		turn->lost_until = clock_now() + TURN_LOST;
	turn->holds = false;
	/* Tries to enter the next account are counted. */
	turn->look_ms = 0;
}

uint64_t turn_account_room(const struct device *device, const struct gpu_account_view *view,
			   const struct gpu_turn_view *turns, uint32_t self)
{
	return smaller(part_of(view, gpu_turn_room(turns, self)), turn_of(device)->most);
}

bool turn_account_give_on(struct device *device, const struct gpu_account_view *view, struct gpu_turn_view *turns,
			  uint32_t self)
{
	lifecycle_state.turn_common.members[self].claim.waits = 0;
	turns->holder = GPU_TURN_NOBODY;
	uint32_t next = turn_account_member(gpu_turn_next(turns));
	if (!gpu_account_pass(&device->account, view, true, next, turns->now))
		return false;
	gpu_job_given(&lifecycle_state.jobs.view, next < view->n ? view->slots[next] : GPU_TURN_NOBODY);
	return true;
}

/* ---- what the log says, once each ---- */

/* Names the process whose memory leaves no room for turns, if there is one. */
static void say_refused(const struct gpu_account_view *view, const struct gpu_turn_view *turns)
{
	uint32_t who = view->n > 1 ? gpu_turn_in_the_way(turns) : GPU_TURN_NOBODY;
	char bytes[32];

	if (who == GPU_TURN_NOBODY)
		return;
	const struct gpu_account_member *member = &view->members[turn_account_member(who)];
	uint64_t stays = gpu_turn_takes_part(turns, who) ? turns->members[who].stuck : turns->members[who].may_have;
	log_once("share: there are no turns: %s of process %llu cannot leave the GPU, which leaves others too "
		 "little of device.total",
		 log_bytes(bytes, sizeof(bytes), stays), (unsigned long long)member->pid);
}

static void say_turns(const struct device *device, const struct gpu_account_view *view)
{
	char needs[32], total[32], who[32] = "they";
	uint64_t sum = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < view->n; i++) {
		sum += view->members[i].needs;
		n += view->members[i].claim.kind != GPU_TURN_OFF;
	}
	if (n < view->n)
		snprintf(who, sizeof(who), "%u of them", n);
	log_once("share: %u processes need %s of device %d, and have %s together (device.total): %s take turns",
		 view->n, log_bytes(needs, sizeof(needs), sum), device->ordinal,
		 log_bytes(total, sizeof(total), view->total), who);
}

/* ---- what this process publishes ---- */

/* Returns whether there are turns on any device of the job. */
static bool is_on(void)
{
	const struct gpu_job_view *view = &lifecycle_state.jobs.view;

	for (uint32_t i = 0; i < view->n; i++)
		if (view->seats[i].takes_part && view->seats[i].job == view->seats[view->self].job &&
		    view->turns[view->seats[i].device].on)
			return true;
	return false;
}

/* The process has no part in a job that takes turns. */
static void be_alone(const struct device *device)
{
	struct turn_state *const turn = turn_of(device);
	struct gpu_job_claim *claim = &turn->job_claim;

	claim->phase = turn_is_away(device) ? GPU_JOB_LEAVE : GPU_JOB_RUN;
	claim->over = 0;
	turn->step = GPU_JOB_STAYS;
}

/* Returns whether the process is suspended on request, also while its memory still leaves for that. */
static bool is_suspended_by_user(void)
{
	if (spill_held_by(NULL) & RESIDENCE_USER)
		return true;
	const struct device *device = spill_any_held() ? device_next(NULL) : NULL;
	while (device && (spill_residence(device) == RESIDENCE_RUNS || turn_is_away(device)))
		device = device_next(device);
	return device != NULL;
}

bool turn_is_possible(void)
{
	return process_settings()->turns.mode != POLICY_TURNS_OFF && process_settings()->spill >= POLICY_SPILL_EXACT &&
	       !lifecycle_state.jobs.is_spread;
}

/* Who takes no turns on one device takes none on the others. */
static bool has_other_clock(void)
{
	bool other = false;

	for (unsigned i = 0; i < DEVICE_MOST; i++)
		other |= lifecycle_state.turn[i].other_clock;
	return other;
}

static enum gpu_turn_kind kind_now(uint64_t now)
{
	int mode = process_settings()->turns.mode;

	if (!turn_is_possible() || spill_is_ending() || has_other_clock() || is_suspended_by_user() ||
	    now < lifecycle_state.turn_common.refuses_until)
		return GPU_TURN_OFF;
	return mode == POLICY_TURNS_ON ? GPU_TURN_ON : GPU_TURN_AUTO;
}

static void measure_loss(uint64_t now)
{
	struct turn_common_state *const state = &lifecycle_state.turn_common;
	uint64_t lost = (stats_get(STAT_waiting_us) + stats_get(STAT_gap_us)) * 1000;

	if (state->loss_since && now - state->loss_since < LOSS_NS)
		return;
	if (state->loss_since) {
		uint64_t loss = (lost - state->lost) * 1000 / (now - state->loss_since);

		state->loss = loss < 1000 ? loss : 1000;
	}
	state->loss_since = now;
	state->lost = lost;
}

void turn_claim(struct device *device, struct gpu_account_member *member)
{
	struct turn_state *const turn = turn_of(device);
	const struct policy_turns *turns = &process_settings()->turns;
	struct gpu_turn_claim *claim = &turn->claim;
	uint64_t now = clock_now();

	/* The mover has died: it runs. */
	if (turn->job_claim.state != RESIDENCE_RUNS && spill_residence(device) == RESIDENCE_RUNS)
		be_alone(device);
	enum gpu_turn_kind kind = kind_now(now);
	turn->enters = claim->kind == GPU_TURN_OFF && kind != GPU_TURN_OFF;
	claim->kind = kind;
	claim->weight =
	    (uint64_t)(lifecycle_state.turn_common.weight ? lifecycle_state.turn_common.weight : turns->weight);
	claim->quantum = turns->quantum;
	claim->patience = turns->patience;
	claim->beat = now;
	claim->moving = 0;
	if (claim->kind == GPU_TURN_AUTO)
		measure_loss(now);
	claim->loss = lifecycle_state.turn_common.loss;
	if (claim->kind == GPU_TURN_OFF)
		turn->holds = false;
	if (turn->holds) {
		/* A process that was stopped for longer had no turn meanwhile. */
		uint64_t ns = now - turn->counted < GPU_TURN_SILENT ? now - turn->counted : GPU_TURN_SILENT;

		claim->served = gpu_turn_serve(claim->served, claim->weight, ns);
		claim->got += ns;
		stats_add(STAT_turn_us, ns / 1000);
		turn->counted = now;
	}
	/* A job that runs has to be idle on all its devices, also where it needs no turn. */
	bool runs = turn->holds || (turn->many && spill_residence(device) == RESIDENCE_RUNS);
	if (!runs || gate_n_waiting() || !spill_is_idle(device))
		claim->idle = 0;
	else if (!claim->idle)
		claim->idle = now;
	/* A job waits together. */
	if (!turn_is_away(device) || (!gate_n_waiting() && !turn->many))
		claim->waits = 0;
	/* As long as nothing else is known. */
	turn->lacks = claim->kind != GPU_TURN_OFF || turn_is_away(device);
	member->claim = *claim;
	claim_job(device, member, now);
}

/* ---- looking as a job ---- */

/* Returns the bytes of the heap that would be copied if they left now, as far as the program's allocator has said. */
static uint64_t alive_bytes(const struct device *device, const struct gpu_account_member *member)
{
	const struct stats_device *figures = &stats.device[device->ordinal];
	uint64_t reported = atomic_load_explicit(&figures->cache, memory_order_relaxed);
	uint64_t alive = atomic_load_explicit(&figures->cache_alive, memory_order_relaxed);

	return beyond(member->needs, member->stuck + beyond(reported, alive));
}

/*
 * Another is to have the turn: returns whether it ends now. While the process works, it goes on until as much host
 * memory is pinned as would be copied: after the end, the GPU would have nothing to do meanwhile. Of a job, what the
 * process that speaks for it pins counts. Then a process alone goes on until little of it is alive, within a bound;
 * those of a job have no such moment in common.
 */
static bool ends_now(const struct device *device, const struct gpu_account_member *member,
		     const struct gpu_turn_view *turns)
{
	struct turn_state *const turn = turn_of(device);
	uint64_t alive = alive_bytes(device, member), may_wait = gpu_turn_may_wait(turns);

	if (may_wait && spill_pins_ahead(device) && turns->now - turn->began < GPU_TURN_QUANTUM_MOST &&
	    heap_idle(atomic_load(&device->heap), CHUNK_HOST) < alive)
		return false;
	return turn->many ||
	       (turns->now >= turn->lead.not_before && leave_moment_is_now(&turn->moment, turns->now, alive, may_wait));
}

/*
 * It runs in its turn: has host memory pinned for what is going to leave, whatever is alive then. A turn may have to
 * end where much is, and pinning takes 0.2 s for each GiB, for which the others would wait.
 */
static void pin_ahead(struct device *device, const struct gpu_account_member *member)
{
	struct turn_state *const turn = turn_of(device);
	uint64_t movable = beyond(member->needs, member->stuck);

	if (turn->kept < movable)
		heap_keep_host(atomic_load(&device->heap), turn->kept = movable);
	spill_leaves_soon(device, beyond(member->needs, turn->keep));
}

/*
 * The turn of this device: gives it on where nobody has it, or the job is done with it, and says when it is over.
 * Returns whether it is to end, now or in a moment.
 */
static bool look_at_turn(struct device *device, const struct gpu_account_member *member,
			 const struct gpu_account_view *view, struct gpu_turn_view *turns, uint32_t self)
{
	struct turn_state *const turn = turn_of(device);
	struct gpu_job_view *jobs = &lifecycle_state.jobs.view;
	struct gpu_job_claim *claim = &turn->job_claim;
	uint32_t holder = turns->holder, next;
	bool ends = false;

	claim->over = 0;
	if (!turns->on)
		return false;
	if (holder == GPU_TURN_NOBODY || !gpu_turn_takes_part(turns, holder)) {
		next = gpu_turn_next(turns);
		if (next != holder && next != GPU_TURN_NOBODY &&
		    gpu_account_pass(&device->account, view, true, turn_account_member(next), turns->now))
			turns->holder = next;
	} else if (holder == self && gpu_job_speaks(jobs) && gpu_job_is_done(jobs)) {
		turn_account_give_on(device, view, turns, self);
	} else if (holder == self && gpu_job_speaks(jobs) && claim->state == RESIDENCE_RUNS) {
		if (!turn->many)
			leave_moment_see(&turn->moment, turns->now, alive_bytes(device, member));
		ends = gpu_turn_next(turns) != self;
		if (ends)
			claim->over = ends_now(device, member, turns);
		else
			leave_moment_off(&turn->moment);
	}
	return ends;
}

/* Chooses the phase, or takes that of the one that leads. */
static void look_at_phase(const struct device *device)
{
	struct turn_state *const turn = turn_of(device);
	const struct gpu_job_view *jobs = &lifecycle_state.jobs.view;

	if (!gpu_job_leads(jobs)) {
		gpu_job_follow(jobs, &turn->job_claim);
	} else if (gpu_job_choose(jobs, &turn->lead, &turn->job_claim)) {
		if (turn->many)
			log_once("share: a process of the job of this one cannot be stopped: the job keeps its turn, "
				 "and is asked again");
		/* The pause before the next try is once, twice, then four times GPU_JOB_PAUSE. */
		unsigned tries = turn->many && !turn->rests ? TURN_TRIES_RANKS : TURN_TRIES;
		turn->lead.not_before = jobs->now + (GPU_JOB_PAUSE << smaller(turn->failures, 2));
		if (++turn->failures >= tries) {
			log_once("share: %sthis process keeps its memory, and the others go on in what is left; it is "
				 "asked again in 2 seconds, and then ever more seldom",
				 turn->many ? "the job of " : "");
			turn->failures = 0;
			lifecycle_state.turn_common.refuses_until = jobs->now + TURN_REST(++turn->rests);
		}
	}
	/* It has been stopped. */
	if (turn->job_claim.phase == GPU_JOB_LEAVE)
		turn->failures = turn->rests = 0;
}

/* Returns the budget of the process, whose job has the turn, and which is to come back or runs. */
static uint64_t raise(struct device *device, const struct gpu_account_member *member,
		      const struct gpu_account_view *view, const struct gpu_turn_view *turns, uint32_t self)
{
	struct turn_state *const turn = turn_of(device);
	uint64_t room = turn_account_room(device, view, turns, self);
	uint64_t limit = gpu_account_raise(&device->account, member->may_have, room);
	if (turn->given != view->turn.number) {
		turn->given = view->turn.number;
		turn->seen = turns->now;
	}
	bool begins = turns->now - turn->seen < TURN_BEGIN;
	turn->lacks = turn_is_away(device) || (limit < room && begins);
	return limit;
}

/* The time of a turn counts while the process runs in one, also in one that began while it ran. number: of the turn. */
static void count_turn(const struct device *device, const struct gpu_turn_view *turns, uint64_t number, bool runs)
{
	struct turn_state *const turn = turn_of(device);

	if (runs)
		turn->job_claim.ran = number;
	if (runs && !turn->holds) {
		turn->began = turn->counted = turns->now;
		turn->claim.n++;
		stats_add(STAT_turns, 1);
	}
	turn->holds = runs;
}

static void look_at_waits(const struct device *device, const struct gpu_turn_view *turns, uint32_t self)
{
	struct gpu_turn_claim *claim = &turn_of(device)->claim;
	uint64_t since = gpu_job_waits(&lifecycle_state.jobs.view);

	if (since && !claim->waits)
		claim->served = gpu_turn_enter(turns, self);
	claim->waits = since;
}

static bool has_other_processes(const struct gpu_job_view *jobs)
{
	const struct gpu_job_seat *self = &jobs->seats[jobs->self];

	for (uint32_t i = 0; i < jobs->n; i++)
		if (jobs->seats[i].job == self->job && jobs->seats[i].claim.process != self->claim.process)
			return true;
	return false;
}

/*
 * Decides what this process does next (turn_act(), turn_move()), of the account that was read and its units, of which
 * `self` is that of this process. Returns false if its share of the device is for the caller to find; otherwise
 * *ret_limit is set.
 */
static bool look_as_job(struct device *device, const struct gpu_account_member *member,
			const struct gpu_account_view *view, struct gpu_turn_view *turns, uint32_t self,
			uint64_t *ret_limit)
{
	struct turn_state *const turn = turn_of(device);
	const struct gpu_job_view *jobs = &lifecycle_state.jobs.view;

	turn->decided = jobs->now;
	turn->idle = gpu_job_idle(jobs);
	if (turn->many && has_other_processes(jobs))
		log_once("share: this process takes turns together with the others of its job");
	else if (turn->many)
		log_once("share: this process takes turns on all its GPUs together");
	bool ends = look_at_turn(device, member, view, turns, self);
	uint64_t before = turn->job_claim.phase;
	look_at_phase(device);
	bool holds = gpu_job_holds(jobs),
	     comes = turn->job_claim.phase == GPU_JOB_RUN || turn->job_claim.phase == GPU_JOB_RETURN,
	     runs = turns->on && holds && turn->job_claim.state == RESIDENCE_RUNS;
	count_turn(device, turns, view->turn.number, runs);
	look_at_waits(device, turns, self);
	turn->number = view->turn.number;
	turn->lacks = turns->on || turn_is_away(device);
	turn->keep = part_of(view, gpu_turn_keep(turns, self));
	if (runs)
		pin_ahead(device, member);
	*ret_limit = turn_is_away(device) ? member->holds : member->may_have;
	if (turns->on && holds && comes)
		*ret_limit = raise(device, member, view, turns, self);
	turn->step = gpu_job_next(jobs, &turn->job_claim);
	/* Another needs more than when this process left. */
	if (turn->job_claim.phase == GPU_JOB_LEAVE && turn->job_claim.state == RESIDENCE_AWAY && !holds &&
	    turns->holder != self && member->holds > larger(turn->keep, member->stuck) + view->total / TURN_KEEP_PART &&
	    turns->now >= turn->not_before)
		turn->step = GPU_JOB_LEAVES;
	/* Memory of the other devices is to move at the same time: their seats must have read the phase. */
	turn->tells = gpu_job_leads(jobs) && turn->job_claim.phase != before;
	if (turn->tells && turn->many && (turn->step == GPU_JOB_LEAVES || turn->step == GPU_JOB_RETURNS))
		turn->step = GPU_JOB_STAYS;
	bool steps = turn->job_claim.phase != GPU_JOB_RUN && (turn->job_claim.state != RESIDENCE_AWAY || holds);
	bool waits = turn->job_claim.state == RESIDENCE_AWAY && (turn->many || turn->job_claim.wants);
	turn->look_ms = steps || ends ? LOOK_STEPS : waits ? LOOK_WAITS : LOOK_RUNS;
	/* Where there are no turns, the share of the device is that of all. */
	return turns->on || (turn_is_away(device) && !comes);
}

/* ---- looking ---- */

/*
 * Returns whether a process has entered the account and has not published yet whether it takes turns: it does with its
 * first look, a second after its start. What is decided before that may not last.
 */
static bool any_is_new(const struct gpu_account_view *view)
{
	for (uint32_t i = 0; i < view->n; i++)
		if (!view->members[i].claim.beat)
			return true;
	return false;
}

/*
 * A rest counts for all of the job, from the moment at which it is read. Its processes leave it one after the other, so
 * none is told to stop before all of them take part again. Returns whether this one is in it.
 */
static bool look_at_rest(const struct device *device, const struct gpu_turn_view *turns)
{
	uint64_t *until = &lifecycle_state.turn_common.refuses_until;
	struct gpu_job_lead *lead = &turn_of(device)->lead;

	*until = larger(*until, gpu_job_refuses_until(&lifecycle_state.jobs.view));
	if (*until)
		lead->not_before = larger(lead->not_before, *until + GPU_JOB_PAUSE);
	return turns->now < *until;
}

/* It takes no turns: it goes on if it is away because of them. */
static void goes_on(const struct device *device)
{
	struct turn_state *const turn = turn_of(device);

	be_alone(device);
	turn->decided = clock_now();
	turn->step = turn_is_away(device) && !is_suspended_by_user() ? GPU_JOB_OPENS : GPU_JOB_STAYS;
	turn->holds = turn->lacks = false;
}

void turn_alone(const struct device *device)
{
	struct turn_state *const turn = turn_of(device);

	turn->other_clock = false;
	turn->look_ms = 0;
	turn->many = false;
	goes_on(device);
}

static bool look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
		 uint64_t most, uint64_t *ret_limit)
{
	struct turn_state *const turn = turn_of(device);
	struct gpu_turn_view turns;

	turn->most = most;
	turn->step = GPU_JOB_STAYS;
	turn->look_ms = 0;
	turn->member = *member;
	turn->other_clock = view->other_clock;
	if (view->other_clock && turn_is_possible())
		log_once("share: this process takes no turns on device %d: its clock is not that of the others there, "
			 "which are in another time namespace",
			 device->ordinal);
	if (member->claim.kind == GPU_TURN_OFF && !turn_is_away(device) && !turn->holds)
		return false;
	/*
	 * When it enters turns, its other devices have not said yet that it takes part: it would be alone on this one,
	 * and leave it while it goes on on the others. They have when it looks again.
	 */
	bool is_lost = clock_now() < turn->lost_until;
	if (is_lost || (turn->enters && is_in_several())) {
		turn->look_ms = is_lost ? LOOK_RUNS : LOOK_STEPS;
		*ret_limit = turn_is_away(device) ? member->holds : member->may_have;
		return true;
	}
	uint32_t self = turn_account_units(device, view, &turns);
	bool is_resting = look_at_rest(device, &turns), wanted = gpu_turn_wanted(&turns);
	bool takes_part = !is_resting && gpu_turn_takes_part(&turns, self);
	if (takes_part && !wanted && !turns.on && !any_is_new(view))
		say_refused(view, &turns);
	if (takes_part && wanted != turns.on) {
		/* The process that begins with it is running, so it has the first turn. */
		gpu_account_pass(&device->account, view, wanted,
				 wanted && !turn_is_away(device) ? view->self : GPU_TURN_NOBODY, turns.now);
		turn->look_ms = LOOK_WAITS;
		*ret_limit = member->may_have;
		return true;
	}
	if (!takes_part || !(turns.on || is_on())) {
		goes_on(device);
		spill_leaves_soon(device, 0);
		*ret_limit = turn_is_away(device) ? member->holds : member->may_have;
		return is_suspended_by_user() || (turns.on && is_resting);
	}
	if (turns.on)
		say_turns(device, view);
	spill_prepare(device, true);
	return look_as_job(device, member, view, &turns, self, ret_limit);
}

bool turn_look(struct device *device, const struct gpu_account_member *member, const struct gpu_account_view *view,
	       uint64_t most, uint64_t *ret_limit)
{
	bool sets = look(device, member, view, most, ret_limit);

	turn_of(device)->lacks &= sets;
	turn_of(device)->lacks |= turn_of(device)->claim.kind != GPU_TURN_OFF && any_is_new(view);
	return sets;
}

void turn_suspended(struct device *device)
{
	struct turn_state *const turn = turn_of(device);

	turn->holds = false;
	turn->step = GPU_JOB_STAYS;
	turn->look_ms = 0;
}

unsigned turn_look_ms(void)
{
	unsigned least = 0;

	for (unsigned i = 0; i < DEVICE_MOST; i++) {
		unsigned ms = lifecycle_state.turn[i].look_ms;

		if (ms && (!least || ms < least))
			least = ms;
	}
	return least;
}
