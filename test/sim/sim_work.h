// SPDX-License-Identifier: Apache-2.0
/*
 * sim_work.h: streams and events, and the work that goes to them: what it is, its order, its kinds. Under sim.lock but
 * for the work itself, which runs on its stream's thread without it.
 */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include "sim_internal.h"

/* ---- sim_stream.c, sim_event.c: streams, events; and what work is ---- */

struct sim_after { /* done when that stream has done its work up to seq */
	CUstream stream;
	unsigned long seq;
};
struct sim_work {
	struct sim_work *next;
	unsigned long seq;
	unsigned long long id; /* grows with what is submitted (sim_next_id()), as those of blocks */
	const char *name;
	CUgraphNodeType type;
	void (*run)(struct sim_work *work); /* on the stream's thread, lock not held */
	bool always;                        /* also when the context is dead */
	bool
	    overlaps; /* a kernel that may start before the one before it has ended (programmatic stream serialization) */
	CUcontext context;
	struct sim_after *after;
	size_t n_after;
	uint64_t not_before;
	void *owned; /* freed with the work, copied with it: kernel parameters, staged host bytes */
	size_t owned_bytes;
	union {
		struct {
			CUfunction function;
			struct sim_launch launch;
		} kernel;
		struct {
			CUDA_MEMCPY3D copy, given;          /* what is done, and what was asked for */
			int src_device, dst_device;         /* who sees either side */
			unsigned char src_class, dst_class; /* what was mapped there when it was given, sim_copy.c */
		};
		CUDA_MEMSET_NODE_PARAMS set;
		struct {
			CUhostFn fn;
			CUstreamCallback callback;
			CUstream stream;
			void *data;
		} host;
		struct {
			CUevent event;
			unsigned long generation;
			struct sim_shared *shared; /* and the number of the record in it */
			uint64_t number;
		} event;
		struct sim_work *list; /* types GRAPH and CONDITIONAL: its parts in order, owned */
		struct sim_block *block;
		struct sim_graph_memory *memory; /* types MEM_ALLOC and MEM_FREE */
	};
};
struct CUstream_st {
	CUstream next; /* of its context */
	CUcontext context;
	bool alive, blocking, running;
	bool busy;      /* its first work runs just now */
	bool orphan;    /* ended with its context, not by itself */
	unsigned owner; /* thread id of a per-thread default stream */
	unsigned flags;
	int priority;
	unsigned long long id;
	unsigned long last, done; /* numbers of the last work submitted and done */
	struct sim_work *head, *tail;
	pthread_cond_t arrival;
	struct sim_capture *capture; /* and where in it this stream stands */
	CUgraphNode *tips;
	size_t n_tips;
};
struct CUevent_st {
	CUevent next;
	bool alive, recorded;
	unsigned flags;
	CUcontext context;
	unsigned ends; /* its context's when it was made */
	struct sim_after at;
	unsigned long generation;
	uint64_t time;
	struct sim_capture *capture; /* recorded into a capture */
	unsigned long capture_id;
	CUgraphNode *tips;
	size_t n_tips;
	struct sim_shared *shared; /* made for other processes (sim_ipc.c), or of another one */
	int shared_file;
};

/* Handle to stream: 0 and CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or a living stream. */
CUresult sim_stream(CUstream handle, CUstream *ret_stream);
CUstream sim_own_stream(CUstream handle); /* the _ptsz meaning of a handle */
/* A spelling and its per-thread-default-stream twin. */
#define SPELL_STREAM(name, params, stream, ...)                                                                        \
	SPELL(name, params, __VA_ARGS__)                                                                               \
	SPELL(name##_ptsz, params, (stream = sim_own_stream(stream), (__VA_ARGS__)))
#define SPELL_STREAM_2(name, params, stream, ...)                                                                      \
	SPELL_STREAM(name, params, stream, __VA_ARGS__)                                                                \
	SPELL_STREAM(name##_v2, params, stream, __VA_ARGS__)
void sim_streams_forget_context(CUcontext context);
void sim_stream_unlink(CUstream stream); /* from its context, when it is dead and its thread has ended */
/* A place in the order of work that comes after all that the context has been given so far. */
CUresult sim_mark_context(CUcontext context, struct sim_after *ret_at);
CUevent sim_event(CUevent event); /* NULL when it is none */
/* The error of what is no event, or one of a context that has ended. */
CUresult sim_event_usable(CUevent event);
CUresult sim_event_new(CUevent *ret_event, unsigned flags);
/* Waits for values and writes of them, one after the other; its `owned` is the operations. */
CUresult sim_values_work(struct sim_work **ret_work, unsigned n, const CUstreamBatchMemOpParams *ops);

/* ---- sim_ipc.c: events that several processes know ---- */

struct sim_shared {
	uint64_t recorded, reached;
};
CUresult sim_shared_make(CUevent event); /* if its flags say so */
void sim_shared_drop(CUevent event);
void sim_shared_reach(struct sim_shared *shared, uint64_t number);
bool sim_shared_is_reached(const struct sim_shared *shared, uint64_t number);
/* As cuStreamWaitEvent, for its last record by anybody. */
CUresult sim_shared_wait(CUstream stream, CUevent event);

/* ---- sim_work.c: pieces of work, their order, the threads that do them ---- */

struct sim_work *sim_work_new(const char *name, CUgraphNodeType type, void (*run)(struct sim_work *));
struct sim_work *sim_work_clone(const struct sim_work *work);
void sim_work_free(struct sim_work *work);
void sim_work_after(struct sim_work *work, CUstream stream, unsigned long seq); /* adds to what it waits for */
/* Queues work whatever the stream is doing. Takes the work over, also on failure; so do the next two. */
CUresult sim_work_queue(CUstream stream, struct sim_work *work);
CUresult sim_submit(CUstream handle, struct sim_work *work);      /* or captures it when the stream captures */
CUresult sim_submit_sync(CUstream handle, struct sim_work *work); /* and waits until it is done */
void sim_wait_after(struct sim_after after);
void sim_wait_stream(CUstream stream);
CUresult sim_wait_context(CUcontext context);
extern __thread int sim_running_device; /* on whose behalf this thread works */
extern __thread CUcontext sim_running_context;
/* Run one piece of work guarded against faults in the window; false when the context died of it. */
bool sim_run_guarded(struct sim_work *work);
/* Between two pieces of a copy: somebody else's turn, and SIM_PIECE_US. */
void sim_pause(void);
/* Between two looks at a word that somebody else changes: 20 us at first, later 200. tries: 0 before the first. */
void sim_look_again(unsigned *tries);
/* The mapping of these addresses goes or changes for these devices (bits): their contexts with work that runs just now
 * and names them die of it. */
void sim_mapping_changes(uintptr_t start, size_t bytes, unsigned devices);
bool sim_work_names(const struct sim_work *work, uintptr_t start, size_t bytes); /* as operands of its own */
/* What work may do, its `run`: nothing, a host function, the parts of a graph. */
void sim_nothing(struct sim_work *work);
void sim_run_host(struct sim_work *work);
void sim_run_list(struct sim_work *work);

/* ---- sim_launch.c, sim_copy.c: kernels, copies ---- */

struct CUmod_st {
	CUmodule next;
	bool alive, library;
	CUcontext context;
	struct sim_function *functions;
	unsigned n_functions;
};
/* What a CUfunction and a CUkernel are, see sim_launch.c; either may be launched, as the driver allows. */
struct sim_function {
	bool alive;
	const struct sim_kernel *kernel;
	CUmodule module;
	size_t *offsets, params_bytes;
};
struct sim_function *sim_function(CUfunction function);
CUresult sim_kernel_work(struct sim_work **ret_work, CUfunction function, const struct sim_launch *launch,
			 void **params, void **extra);
void sim_modules_forget_context(CUcontext context);
/* Does the work name any of these addresses? For work of that type. */
bool sim_values_name(const struct sim_work *work, uintptr_t start, size_t bytes);
bool sim_kernel_names(const struct sim_work *work, uintptr_t start, size_t bytes);
bool sim_copy_names(const struct sim_work *work, uintptr_t start, size_t bytes, unsigned devices);
/* On behalf of whom the sides of a copy are touched: the stream's context, or what a peer copy says. */
struct sim_sides {
	CUcontext src, dst;
};
/* What of the source is read when the call is made, rather than when the copy's turn comes. */
enum sim_stage { SIM_STAGE_NOTHING, SIM_STAGE_PAGEABLE, SIM_STAGE_ALL };
/* Breaks a rule if the driver would end the process for this copy. sides: NULL, or two contexts. Takes no lock. */
void sim_copy_check_sides(const struct sim_work *work, const struct sim_sides *sides);
CUresult sim_copy_work(struct sim_work **ret_work, const CUDA_MEMCPY3D *copy, struct sim_sides sides,
		       enum sim_stage stage);
/* May a node of an instance that makes the one copy be changed so that it makes the other? */
bool sim_copy_may_become(const struct sim_work *work, const struct sim_work *other);

/* ---- sim_set.c: sets ---- */

CUresult sim_set_work(struct sim_work **ret_work, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context);
/* Is what a set writes mapped? */
bool sim_set_is_mapped(const struct sim_work *work);
bool sim_set_names(const struct sim_work *work, uintptr_t start, size_t bytes); /* as above */

#endif
