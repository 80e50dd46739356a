// SPDX-License-Identifier: Apache-2.0
/* Waiting before the first allocation on a device that is shared. See device.h. */
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/base/user_dir.h"
#include "shim/device/device.h"
#include "shim/plan/gpu_turn.h"
#include "shim/process/process.h"

#include <pthread.h>
#include <stdlib.h>

/* ns between two looks. */
#define QUEUE_LOOK_NS 50000000
/*
 * ns: who was admitted stays the first in the line until it has needed the same for so long, but at most for so long,
 * so that the next one is not admitted before it is seen what this one needs. One that grows later may have to keep its
 * memory.
 */
#define QUEUE_SETTLE_NS 2000000000u
#define QUEUE_MOST_NS   30000000000u
/*
 * ns: if there is room for so long, and nobody enters, the first in the line is stopped (SIGSTOP): otherwise it would
 * have entered, and have left the line within QUEUE_MOST_NS. Those behind it do not wait for it. They differ by
 * QUEUE_STEP_NS, so that one of them enters first, and the others see what it needs.
 */
#define QUEUE_PASSED_NS 40000000000u
#define QUEUE_STEP_NS   5000000000u
#define QUEUE_STEPS     16

struct seen {
	struct gpu_account_view view;
	struct gpu_turn_member members[GPU_ACCOUNT_MOST];
};

static bool admits(struct seen *seen, uint64_t host)
{
	unsigned n = 0;

	for (unsigned i = 0; i < seen->view.n; i++)
		if (i != seen->view.self)
			seen->members[n++] = (struct gpu_turn_member){.needs = seen->view.members[i].needs};
	return gpu_share_admits(seen->view.total, seen->members, n, host);
}

/* Since when a process that is not the first has seen room, and the same others. */
struct passed {
	uint64_t since; /* ns; 0: there is no room */
	uint64_t others;
};

/* Returns whether the process goes on though it is not the first, because the first is stopped. */
static bool may_pass(struct passed *passed, struct seen *seen, uint64_t host)
{
	uint64_t others = seen->view.n, now = clock_now();

	for (unsigned i = 0; i < seen->view.n; i++)
		others = others * 31 + seen->view.members[i].job.process;
	if (!admits(seen, host)) {
		passed->since = 0;
	} else if (!passed->since || others != passed->others) {
		passed->since = now;
		passed->others = others;
	}
	return passed->since && now - passed->since >= QUEUE_PASSED_NS + identity_get() % QUEUE_STEPS * QUEUE_STEP_NS;
}

static bool is_over(uint64_t began, uint64_t most)
{
	return process_stage() != STAGE_RUNNING || (most != POLICY_WAIT_ALWAYS && clock_now() - began >= most);
}

static void tell(const struct device *device, const struct seen *seen, uint64_t host)
{
	char text[32];

	log_once(
	    "share.queue: this process waits at its first allocation: host.total (%s) does not hold what %u processes "
	    "that share device %d, and this one, may need",
	    log_bytes(text, sizeof(text), host), seen->view.n, device->ordinal);
}

/* Returns whether the process shares another device already, where others may wait for it. */
static bool has_other_device(const struct device *device)
{
	for (const struct device *other = device_next(NULL); other; other = device_next(other))
		if (other != device && atomic_load(&other->heap) && atomic_load(&other->shared_total))
			return true;
	return false;
}

static void wait_in_line(struct device *device, struct seen *seen, uint64_t most, uint64_t host)
{
	uint64_t began = clock_now(), job = rank_together_as(process_settings()->turns.job);
	struct passed passed = {0};
	bool told = false;

	for (;;) {
		enum gpu_account_place place = gpu_account_queue(&device->admission.line, device->uuid, &seen->view);
		bool fits = admits(seen, host);

		if (place == GPU_ACCOUNT_EMPTY || (place == GPU_ACCOUNT_FIRST && fits))
			break;
		if (place == GPU_ACCOUNT_WAITS && may_pass(&passed, seen, host))
			break;
		/*
		 * The others of its job, or who shares another GPU with this process, may wait for it, and keep what it
		 * would wait for.
		 */
		if (gpu_account_has_job(job) || has_other_device(device))
			break;
		if (is_over(began, most)) {
			if (!fits)
				log_once(
				    "share.queue: there is still no room in host.total: this process goes on. If its "
				    "memory cannot leave the device, it keeps it, and the others go on in what is "
				    "left");
			break;
		}
		/* Else it only waits until it is known what the one before it needs. */
		if (!fits) {
			told = true;
			tell(device, seen, host);
		}
		clock_sleep(QUEUE_LOOK_NS);
	}
	if (told)
		log_once("share.queue: this process has waited for %llu s, and goes on",
			 (unsigned long long)((clock_now() - began) / 1000000000));
	device->admission.until = clock_now() + QUEUE_SETTLE_NS;
	device->admission.most = clock_now() + QUEUE_MOST_NS;
}

/* Returns how long the process may wait, in ns; 0: it does not. */
static uint64_t may_wait(const struct policy *policy)
{
	const struct policy_turns *turns = &policy_settings(policy)->turns;

	return turns->mode != POLICY_TURNS_OFF && policy_settings(policy)->control ? turns->queue : 0;
}

/* Without a total of all processes nobody knows what the others leave on the host. */
static uint64_t host_total(const struct policy *policy)
{
	struct hostmem memory = hostmem_read("");

	return sizes_host_total(policy, &memory);
}

void admission_wait(struct device *device)
{
	const struct policy *policy = process_policy();
	uint64_t most = sizes_shares_host(policy) ? may_wait(policy) : 0;
	struct seen *seen = most ? calloc(1, sizeof(*seen)) : NULL;
	int before;

	/* clock_sleep() is a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	if (!seen) {
		atomic_store(&device->admission.over, true);
	} else if (!atomic_exchange(&device->admission.waits, true)) {
		wait_in_line(device, seen, most, host_total(policy));
		atomic_store(&device->admission.over, true);
	}
	while (!atomic_load(&device->admission.over) && process_stage() == STAGE_RUNNING)
		clock_sleep(QUEUE_LOOK_NS);
	pthread_setcancelstate(before, NULL);
	free(seen);
}

void admission_look(struct device *device)
{
	struct heap *heap = atomic_load(&device->heap);
	uint64_t now = clock_now(), needs;

	if (!atomic_load(&device->admission.over) || !device->admission.line.open)
		return;
	needs = heap ? heap_block_bytes(heap) : 0;
	if (needs != device->admission.needs)
		device->admission.until = now + QUEUE_SETTLE_NS;
	device->admission.needs = needs;
	if (now >= device->admission.until || now >= device->admission.most)
		gpu_account_queue_end(&device->admission.line);
}
