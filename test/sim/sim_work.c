// SPDX-License-Identifier: Apache-2.0
/*
 * sim_work.c: pieces of work, their order, and the threads that do them.
 *
 * Each stream's work is done by a thread of its own, started with the first work. Work is numbered per stream;
 * done(stream, n) is all that order needs: an event is the number of its record, waiting for it adds that pair to the
 * waiter's `after`. A kernel launched with programmatic stream serialization does not wait for the kernel before it:
 * here it is done first where that one has not begun, which is what such overlap may come to at worst. Whatever comes
 * behind waits for both, as it does on an H200 (driver 580; test/gpu/pdl_check.cu). The legacy stream's rules become
 * such pairs at submission: its work comes after everything in the blocking streams of its context, theirs after
 * everything in it.
 *
 * A fault inside the window while a thread runs a kernel or a copy kills the context, not the process: the handler
 * jumps out of the work. One in managed memory is what the page fault of a GPU is: sim_managed.c brings the page. Any
 * other fault is passed to whoever handled SIGSEGV before. Host functions run unguarded: the host touching device
 * memory is the program's death there, too. A mapping that is removed, or whose protection changes, under a piece of
 * work that runs and names it in its arguments kills the context as well, whether the work touches it again or not
 * (docs/facts.md, Changing memory under a kernel); the strict model does not leave that to chance. Addresses that work
 * finds in memory are not known: there the fault decides.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_managed.h"
#include "sim_memory.h"
#include <setjmp.h>
#include <ucontext.h>

static struct sigaction before_segv, before_bus;
static __thread sigjmp_buf *way_out;
static __thread uintptr_t fault_address;
static __thread bool asserted; /* what went wrong was the kernel's own word, not an access */
static __thread const char *running;
static __thread bool passing_on;
__thread int sim_running_device;
__thread CUcontext sim_running_context;

/* ---- faults ---- */

/* What the processor says of the access: 1 a write, 0 a read, -1 we do not know where it says so. */
static int access_of(const void *context)
{
#if defined(__x86_64__)
	return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] >> 1 & 1;
#else
	return -1;
#endif
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	uintptr_t address = (uintptr_t)info->si_addr;
	struct sigaction *before = number == SIGSEGV ? &before_segv : &before_bus;
	uintptr_t managed;
	int device;

	if (way_out && sim_managed_view(address, &managed, &device)) {
		if (sim_managed_fault(managed, device, access_of(context)))
			return;
		fault_address = managed;
		siglongjmp(*way_out, 1);
	}
	if (way_out && address - (uintptr_t)sim.window < (size_t)(1 + sim.set.devices) * sim.half) {
		fault_address = (uintptr_t)sim.window + (address - (uintptr_t)sim.window) % sim.half;
		siglongjmp(*way_out, 1);
	}
	/* Somebody may have saved our handler and be chained behind us and before us: not in circles. */
	if (passing_on ||
	    (!(before->sa_flags & SA_SIGINFO) && (before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN))) {
		signal(number, SIG_DFL); /* and fault again */
		return;
	}
	passing_on = true;
	if (before->sa_flags & SA_SIGINFO)
		before->sa_sigaction(number, info, context);
	else
		before->sa_handler(number);
	passing_on = false;
}

/* Before each piece of work: programs and test frameworks set handlers of their own at any time. */
static void install_handler(int number, struct sigaction *before)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER}, now;

	action.sa_sigaction = on_fault;
	sigemptyset(&action.sa_mask);
	sigaction(number, NULL, &now);
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
		return;
	*before = now;
	sigaction(number, &action, NULL);
}

SIM_EXPORT void sim_assert_fails(void)
{
	asserted = true;
	siglongjmp(*way_out, 1);
}

static void run_for(CUcontext context)
{
	sim_running_context = context;
	sim_running_device = context->device;
}

bool sim_run_guarded(struct sim_work *work)
{
	sigjmp_buf here;

	running = work->name;
	run_for(work->context);
	if (sigsetjmp(here, 0) == 0) {
		way_out = &here;
		work->run(work);
		way_out = NULL;
		return true;
	}
	way_out = NULL;
	/* A real device's driver sees a fault milliseconds later; other streams go on until then. */
	if (sim.set.fault_ms)
		usleep((useconds_t)(sim.set.fault_ms * 1000));
	sim_lock();
	work->context->dead = asserted ? CUDA_ERROR_ASSERT : CUDA_ERROR_ILLEGAL_ADDRESS;
	/* A failed assertion is a program's own affair, and breaks no rule. */
	if (!asserted)
		sim_break_rule("%s touched %#lx, which is not mapped for it: the context is dead", running,
			       (unsigned long)fault_address);
	asserted = false;
	sim_unlock();
	return false;
}

/* ---- mappings that change under work ---- */

static bool has_list(const struct sim_work *work)
{
	return work->type == CU_GRAPH_NODE_TYPE_GRAPH || work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

static bool names(const struct sim_work *work, uintptr_t start, size_t bytes, unsigned devices)
{
	/* That of a part is set when it is run. */
	CUcontext context = __atomic_load_n(&work->context, __ATOMIC_RELAXED);

	if (context && !(devices >> context->device & 1) && !has_list(work) && work->type != CU_GRAPH_NODE_TYPE_MEMCPY)
		return false;
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return sim_kernel_names(work, start, bytes);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return sim_copy_names(work, start, bytes, devices);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return sim_set_names(work, start, bytes);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return sim_values_name(work, start, bytes);
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		for (const struct sim_work *part = work->list; part; part = part->next)
			if (names(part, start, bytes, devices))
				return true;
		return false;
	default:
		return false;
	}
}

bool sim_work_names(const struct sim_work *work, uintptr_t start, size_t bytes)
{
	return names(work, start, bytes, ~0u);
}

void sim_mapping_changes(uintptr_t start, size_t bytes, unsigned devices)
{
	for (CUcontext context = sim.contexts; context; context = context->next) {
		for (CUstream stream = context->streams; stream && !context->dead; stream = stream->next) {
			if (!stream->busy || !names(stream->head, start, bytes, devices))
				continue;
			context->dead = CUDA_ERROR_ILLEGAL_ADDRESS;
			sim_break_rule("the mapping of %#lx changed under %s, which names it: the context is dead",
				       (unsigned long)start, stream->head->name);
			pthread_cond_broadcast(&sim.progress);
		}
	}
}

static _Atomic(void (*)(unsigned us)) pause_passes;

SIM_EXPORT void sim_pauses(void (*pass)(unsigned us))
{
	atomic_store(&pause_passes, pass);
}

/*
 * To give others a turn takes less than 1 us if no other thread is ready to run, and up to 3 ms for each one that is.
 * By that alone a copy of 4 MiB, which is 1 ms of work, took more than half a second beside 14 ready threads, and a
 * program of many copies a minute. So after a turn that took long a thread gives none until as much time has passed.
 * The system gives the others their turns there.
 */
static void give_turn(void)
{
	static _Thread_local uint64_t not_before;
	uint64_t began = sim_now();

	if (began < not_before)
		return;
	sched_yield();
	uint64_t now = sim_now();
	not_before = now + (now - began);
}

/*
 * Short pauses are added up until they are worth a sleep: one takes the system some 60 us whatever is asked for, and
 * two switches of threads. Without pauses somebody else's turn comes after every fourth piece.
 */
#define PAUSE_LEAST_US 200

void sim_pause(void)
{
	static _Thread_local size_t owed, pieces;
	size_t us = atomic_load_explicit(&sim.set.piece_us, memory_order_relaxed);

	owed += us;
	if (us && owed >= PAUSE_LEAST_US) {
		void (*pass)(unsigned us) = atomic_load_explicit(&pause_passes, memory_order_relaxed);

		if (pass)
			pass((unsigned)owed);
		else
			usleep((useconds_t)owed);
		owed = 0;
	} else if (!us && ++pieces % 4 == 0) {
		give_turn();
	}
}

void sim_look_again(unsigned *tries)
{
	usleep(*tries < 4 ? 20u << *tries : 200);
	++*tries;
}

/* ---- what work does ---- */

void sim_run_host(struct sim_work *work)
{
	sigjmp_buf *guarded = way_out;

	sim_lock();
	CUresult dead = work->context->dead;
	sim_unlock();
	way_out = NULL;
	if (work->host.callback)
		work->host.callback(work->host.stream, dead, work->host.data);
	else
		work->host.fn(work->host.data);
	way_out = guarded;
}

void sim_nothing(struct sim_work *work) {}

void sim_run_list(struct sim_work *work)
{
	for (struct sim_work *part = work->list; part; part = part->next) {
		/* A node captured from a stream of another device is that device's. */
		if (!part->context || !part->context->alive)
			__atomic_store_n(&part->context, work->context, __ATOMIC_RELAXED);
		running = part->name;
		run_for(part->context);
		part->run(part);
	}
	run_for(work->context);
}

/* ---- work ---- */

struct sim_work *sim_work_new(const char *name, CUgraphNodeType type, void (*run)(struct sim_work *))
{
	struct sim_work *work = calloc(1, sizeof(*work));

	work->name = name;
	work->type = type;
	work->run = run;
	return work;
}

struct sim_work *sim_work_clone(const struct sim_work *work)
{
	struct sim_work *clone = malloc(sizeof(*clone));

	*clone = *work;
	clone->next = NULL;
	clone->after = NULL;
	clone->n_after = 0;
	if (work->owned) {
		clone->owned = malloc(work->owned_bytes + 1);
		memcpy(clone->owned, work->owned, work->owned_bytes);
	}
	if (has_list(work)) {
		struct sim_work **link = &clone->list;

		for (const struct sim_work *part = work->list; part; part = part->next) {
			*link = sim_work_clone(part);
			link = &(*link)->next;
		}
		*link = NULL;
	}
	return clone;
}

void sim_work_free(struct sim_work *work)
{
	if (!work)
		return;
	if (has_list(work)) {
		for (struct sim_work *part = work->list, *next; part; part = next) {
			next = part->next;
			sim_work_free(part);
		}
	}
	free(work->after);
	free(work->owned);
	free(work);
}

void sim_work_after(struct sim_work *work, CUstream stream, unsigned long seq)
{
	if (stream->done >= seq)
		return;
	work->after = realloc(work->after, (work->n_after + 1) * sizeof(*work->after));
	work->after[work->n_after++] = (struct sim_after){stream, seq};
}

static bool after_done(const struct sim_work *work)
{
	for (size_t i = 0; i < work->n_after; i++)
		if (work->after[i].stream->done < work->after[i].seq)
			return false;
	return true;
}

/* May the first work start? Waits for a change when not. */
static bool may_start(struct sim_work *work)
{
	struct timespec until = {(time_t)(work->not_before / 1000000000), (long)(work->not_before % 1000000000)};

	if (work->context->dead)
		return true;
	if (sim.held || !after_done(work)) {
		sim_wait();
		return false;
	}
	if (work->not_before && sim_now() < work->not_before) {
		pthread_cond_timedwait(&sim.progress, &sim.lock, &until);
		return false;
	}
	return true;
}

static void *stream_thread(void *argument)
{
	CUstream stream = argument;

	sim_lock();
	for (;;) {
		struct sim_work *work = stream->head;

		if (!work) {
			if (!stream->alive)
				break;
			pthread_cond_wait(&stream->arrival, &sim.lock);
			continue;
		}
		if (!may_start(work))
			continue;
		/* On a dead context nothing touches memory any more; frees and callbacks still happen. */
		if (!work->context->dead || work->always) {
			install_handler(SIGSEGV, &before_segv);
			install_handler(SIGBUS, &before_bus);
			sim_pool_touched(stream, work);
			stream->busy = true;
			sim_unlock();
			sim_run_guarded(work);
			sim_lock();
			stream->busy = false;
		}
		stream->head = work->next;
		if (!stream->head)
			stream->tail = NULL;
		stream->done = work->seq;
		sim_work_free(work);
		pthread_cond_broadcast(&sim.progress);
	}
	stream->running = false;
	sim_stream_unlink(stream);
	sim_unlock();
	return NULL;
}

static CUresult start_thread(CUstream stream)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, old;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	/* The program's signals are for the program's threads; faults are synchronous and cannot be blocked. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&thread, &attributes, stream_thread, stream);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	stream->running = !error;
	return error ? sim_why(CUDA_ERROR_OUT_OF_MEMORY, "no thread for the stream") : CUDA_SUCCESS;
}

static uint64_t start_time(void)
{
	uint64_t delay = sim.set.delay_us * 1000;

	if (!delay)
		return 0;
	if (sim.set.seed) {
		sim.set.seed = sim.set.seed * 6364136223846793005u + 1442695040888963407u;
		delay += (sim.set.seed >> 33) % (delay + 1);
	}
	return sim_now() + delay;
}

static bool may_overtake(CUstream stream, const struct sim_work *work)
{
	const struct sim_work *last = stream->tail;

	return last && last->type == CU_GRAPH_NODE_TYPE_KERNEL && !(stream->busy && last == stream->head) &&
	       !work->n_after;
}

/*
 * Puts the work before the last one of the stream. The last one takes over its number, so that whoever waits for either
 * waits for both; done, the work says no more than what is before it says.
 */
static void overtake(CUstream stream, struct sim_work *work)
{
	struct sim_work **link = &stream->head;

	work->seq = stream->done;
	while (*link != stream->tail) {
		work->seq = (*link)->seq;
		link = &(*link)->next;
	}
	work->next = *link;
	*link = work;
	stream->tail->seq = ++stream->last;
	pthread_cond_broadcast(&sim.progress); /* the thread may be waiting for the start of the last one */
}

CUresult sim_work_queue(CUstream stream, struct sim_work *work)
{
	CUcontext context = stream->context;
	CUresult result = stream->running ? CUDA_SUCCESS : start_thread(stream);

	if (result) {
		sim_work_free(work);
		return result;
	}
	work->context = context;
	work->id = sim_next_id();
	work->not_before = start_time();
	if (stream == context->legacy) {
		for (CUstream other = context->streams; other; other = other->next)
			if (other->blocking && other != stream)
				sim_work_after(work, other, other->last);
	} else if (stream->blocking && context->legacy) {
		sim_work_after(work, context->legacy, context->legacy->last);
	}
	if (work->overlaps && may_overtake(stream, work)) {
		overtake(stream, work);
		return CUDA_SUCCESS;
	}
	work->seq = ++stream->last;
	if (stream->tail)
		stream->tail->next = work;
	else
		stream->head = work;
	stream->tail = work;
	pthread_cond_signal(&stream->arrival);
	return CUDA_SUCCESS;
}

CUresult sim_submit(CUstream handle, struct sim_work *work)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream) ?: stream->context->dead;

	if (!result && stream == stream->context->legacy)
		result = sim_capture_legacy(stream->context);
	if (result) {
		sim_work_free(work);
		return result;
	}
	return stream->capture ? sim_capture_work(stream, work) : sim_work_queue(stream, work);
}

CUresult sim_submit_sync(CUstream handle, struct sim_work *work)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (!result && stream->capture) {
		sim_capture_invalidate(stream->capture, "a synchronous call on a capturing stream");
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	result = result ?: sim_unsafe();
	if (result) {
		sim_work_free(work);
		return result;
	}
	result = sim_submit(handle, work);
	if (result)
		return result;
	sim_wait_after((struct sim_after){stream, stream->last});
	return stream->context->dead;
}

/* ---- waiting ---- */

void sim_wait_after(struct sim_after after)
{
	while (after.stream && after.stream->done < after.seq)
		sim_wait();
}

void sim_wait_stream(CUstream stream)
{
	sim_wait_after((struct sim_after){stream, stream->last});
}

CUresult sim_wait_context(CUcontext context)
{
	struct sim_after *all = NULL;
	size_t n = 0;

	/* The lists change while we wait; the streams on them do not go away. */
	for (CUcontext part = sim.contexts; part; part = part->next) {
		if (!sim_is_part(part, context))
			continue;
		for (CUstream stream = part->streams; stream; stream = stream->next) {
			if (stream->done >= stream->last)
				continue;
			all = realloc(all, (n + 1) * sizeof(*all));
			all[n++] = (struct sim_after){stream, stream->last};
		}
	}
	for (size_t i = 0; i < n; i++)
		sim_wait_after(all[i]);
	free(all);
	return context->dead;
}
