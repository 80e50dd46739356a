/*
 * sim_internal.h: what the files of the simulated driver share.
 *
 * One lock, sim.lock, guards the whole model. The body of every entry point runs under it (SPELL takes and leaves it);
 * kernels, copies, sets and host functions run on the streams' own threads without it. Bodies therefore call each
 * other's sim_ functions, never an exported cu* function. Waiting for work is sim_wait(), which gives the lock up.
 *
 * CUDA's opaque handles are pointers to the structs below. Such a struct is never given back to malloc while the driver
 * lives: a stale handle is recognised by its `alive` field instead of being undefined behaviour.
 */
#ifndef SIM_INTERNAL_H
#define SIM_INTERNAL_H

#include "sim.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define SIM_EXPORT      __attribute__((visibility("default")))
#define SIM_GRANULE     ((size_t)2 << 20) /* granularity of physical memory and of mappings (facts section 2) */
#define SIM_DEVICES_MAX 8
#define SIM_PIECE       ((size_t)64 << 10) /* what a copy or a set does between two pauses */

/* ---- sim_control.c: settings, entering and leaving a call, log, report; sim_fail.c: failures ---- */

enum {
	SIM_INIT = 1,    /* refused before cuInit */
	SIM_CONTEXT = 2, /* refused without a living current context */
};
struct sim_entry {
	const char *name;
	unsigned need;
	unsigned fail_at; /* calls left until the ordered failure, 0 = none */
	CUresult fail_with;
	const char *then; /* what fails from the ordered failure on; NULL: nothing */
	unsigned then_times;
	unsigned refused; /* calls from now on that fail */
	unsigned hold_at; /* calls left until one holds all work, 0 = none */
	unsigned long calls;
};
struct sim_origin {
	unsigned long call;
	const char *name;
};
struct sim_call {
	struct sim_entry *entry;
	struct sim_origin outer; /* host functions may call the driver from inside nothing, but a stack costs nothing */
	unsigned long number;
	CUresult result;
	bool locked;
};

/*
 * One exported spelling of an entry point: counted, failed by order, checked, logged; the expression is its body.
 * The rows of all files meet in one linker section, so that a name can be found before it was ever called.
 */
#define SIM_SPELL(attributes, needs, entry_name, params, ...)                                                          \
	static struct sim_entry entry_##entry_name = {.name = #entry_name, .need = (needs)};                           \
	static struct sim_entry *const row_##entry_name __attribute__((used, section("sim_entries"))) =                \
	    &entry_##entry_name;                                                                                       \
	SIM_EXPORT attributes CUresult entry_name params                                                               \
	{                                                                                                              \
		struct sim_call sim_call_;                                                                             \
		if (sim_enter(&sim_call_, &entry_##entry_name))                                                        \
			sim_call_.result = (__VA_ARGS__);                                                              \
		return sim_leave(&sim_call_);                                                                          \
	}
#define SPELL(name, params, ...)      SIM_SPELL(, SIM_INIT | SIM_CONTEXT, name, params, __VA_ARGS__)
#define SPELL_FREE(name, params, ...) SIM_SPELL(, SIM_INIT, name, params, __VA_ARGS__) /* needs no context */
#define SPELL_RAW(name, params, ...)  SIM_SPELL(, 0, name, params, __VA_ARGS__)        /* not even cuInit */
/* A spelling and its per-thread-default-stream twin. */
#define SPELL_STREAM(name, params, stream, ...)                                                                        \
	SPELL(name, params, __VA_ARGS__)                                                                               \
	SPELL(name##_ptsz, params, (stream = sim_own_stream(stream), (__VA_ARGS__)))

bool sim_enter(struct sim_call *call, struct sim_entry *entry);
CUresult sim_leave(struct sim_call *call);
struct sim_origin sim_origin(void);
/* The reason of a refusal for the log; hands the error through: return sim_why(CUDA_ERROR_..., "..."); */
CUresult sim_why(CUresult error, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_break_rule(const char *format, ...) __attribute__((format(printf, 1, 2)));
size_t sim_parse_size(const char *text, size_t otherwise);

struct sim_settings {
	int devices;
	size_t memory, host_memory, window;
	bool vmm, host_vmm, fill, pageable, concurrent_managed, same_pointer, run;
	unsigned peers[SIM_DEVICES_MAX]; /* bits: the devices whose memory that device can reach */
	unsigned pcie[SIM_DEVICES_MAX];  /* bits: those of them that it reaches over PCIe */
	unsigned max_peers;
	size_t delay_us;
	size_t fault_ms;
	_Atomic size_t piece_us;
	size_t map_waits;  /* bits: 1: for copies to devices, 2: for copies to the host */
	size_t pool_waste; /* % */
	uint64_t seed;
};

struct sim_graph_use {
	size_t made, cached; /* memory of living nodes; kept of ended ones */
	size_t used, used_high, reserved_high;
};
struct sim_device {
	size_t used;              /* physical bytes in use, pools' reserved bytes included */
	size_t managed;           /* bytes of managed pages that are here now, beside those (sim_managed.c) */
	struct CUctx_st *primary; /* made at the first retain, reused ever after */
	unsigned primary_references, primary_flags;
	struct CUmemPoolHandle_st *default_pool, *pool;
	struct sim_graph_use graphs;
};

struct sim {
	pthread_mutex_t lock;
	pthread_cond_t progress; /* some work was done, or something else changed that work may wait for */
	struct sim_settings set;
	bool initialised, held;
	struct sim_device device[SIM_DEVICES_MAX];
	size_t host_used;
	char *window;
	size_t half; /* bytes of device addresses; device d sees p at p + (1 + d) * half */
	char *managed;
	size_t managed_part; /* bytes of managed addresses; device d sees p at p + (1 + d) * managed_part */
	unsigned long calls, broken_rules;
	struct CUctx_st *contexts;
};
extern struct sim sim;

void sim_lock(void);
void sim_unlock(void);
void sim_wait(void);    /* until something changed; the caller looks again */
uint64_t sim_now(void); /* ns, monotonic */

struct sim_thread {
	struct CUctx_st *stack[16];
	unsigned depth, id;
	CUstreamCaptureMode mode; /* cuThreadExchangeStreamCaptureMode */
	struct sim_origin origin;
	char why[256];
};
struct sim_thread *sim_thread(void);
/* Reads the settings, once; but not those of failures: ordering one starts the model itself. */
void sim_start(void);
void sim_fail_read(void);
/* Is this call of it one that is to fail? Under the lock. */
bool sim_fails(struct sim_entry *entry, CUresult *ret_error);

extern struct sim_entry *const __start_sim_entries[] __attribute__((visibility("hidden")));
extern struct sim_entry *const __stop_sim_entries[] __attribute__((visibility("hidden")));

/* ---- sim_range.c: sorted tables of address ranges ---- */

struct sim_range {
	uintptr_t start;
	size_t bytes;
};
struct sim_ranges {
	struct sim_range **at; /* sorted by start, never overlapping */
	size_t n, room;
};
/* The range that holds the address, or NULL. */
struct sim_range *sim_range_at(const struct sim_ranges *set, uintptr_t address);
/* Index of the first range that ends after the address. */
size_t sim_range_index(const struct sim_ranges *set, uintptr_t address);
bool sim_range_free(const struct sim_ranges *set, uintptr_t start, size_t bytes);
void sim_range_add(struct sim_ranges *set, struct sim_range *range);
void sim_range_remove(struct sim_ranges *set, struct sim_range *range);

/* ---- sim_device.c: devices ---- */

CUresult sim_uuid(CUuuid *ret_uuid, CUdevice device);
bool sim_is_device(int device);

/* ---- sim_context.c: contexts ---- */

struct CUctx_st {
	CUcontext next;
	int device;
	bool alive, primary;
	unsigned attached; /* by cuCtxAttach, beside who made it */
	unsigned ends;     /* a primary one lives again under its handle; what was of an earlier life stays dead */
	CUresult dead;     /* sticky error of a context that died, or 0 */
	unsigned flags;
	unsigned long long id;
	struct CUstream_st *legacy, *streams;
	struct CUstream_st *observer; /* of ours: where cuCtxRecordEvent waits for all others */
	struct CUmod_st *modules;
	CUcontext memory; /* whose the memory is that is allocated in it; NULL: its own */
	CUcontext *peers; /* whose memory it may touch: cuCtxEnablePeerAccess */
	size_t n_peers;
};
CUresult sim_current(CUcontext *ret_context);
CUcontext sim_context(void); /* current context, NULL when there is none */
CUcontext sim_memory_context(void);
/* Waiting for a primary context, or an event of it, covers its green ones (cuda.h). */
bool sim_is_part(CUcontext part, CUcontext whole);
CUcontext sim_context_new(int device);
void sim_context_end(CUcontext context); /* waits for its work; the handle stays known */
CUresult sim_primary_retain(CUcontext *ret_context, CUdevice device);
CUresult sim_primary_release(CUdevice device);
bool sim_is_context(CUcontext context); /* alive or not */
void sim_alloc_forget_context(CUcontext context);
void sim_modules_forget_context(CUcontext context);
void sim_streams_forget_context(CUcontext context);

/* ---- sim_physical.c: window, physical memory ---- */

struct sim_physical {
	off_t offset;
	size_t bytes;
	int device;    /* -1: host */
	int file;      /* of its own, so that it can leave the process; 0: the common one */
	bool borrowed; /* it came from another process, where it counts */
};
enum { SIM_NONE = 0, SIM_READ = 1, SIM_READWRITE = 3 }; /* as CUmemAccess_flags */

bool sim_window_open(void);
static inline bool sim_in_window(uintptr_t address)
{
	return address - (uintptr_t)sim.window < sim.half;
}
/* Takes physical memory, contents garbage; CUDA_ERROR_OUT_OF_MEMORY over the device's or the host's capacity. */
CUresult sim_physical_take(struct sim_physical *ret_physical, size_t bytes, int device);
void sim_physical_give(struct sim_physical *physical);
#define SIM_FILE_NAME "sim physical "
/* So that it can leave the process; its contents are garbage again. False: no file can be had, and it stays as it was. */
bool sim_physical_to_own_file(struct sim_physical *physical);
/* Whatever access the mappings of it have. */
bool sim_physical_read(const struct sim_physical *physical, size_t offset, void *ret_bytes, size_t bytes);
/* Where a device sees an address of the window. */
static inline char *sim_view(uintptr_t address, int device)
{
	return (char *)address + (1 + (size_t)device) * sim.half;
}
/* Let a device see physical memory at an address, with that access; SIM_NONE hides it. */
bool sim_alias_map(int device, uintptr_t address, const struct sim_physical *physical, int access);
void sim_alias_unmap(uintptr_t address, size_t bytes); /* from all devices */

/* ---- sim_peer.c: who may touch the memory of another device ---- */

void sim_peers_read(void); /* the settings */
bool sim_can_reach(int device, int owner);
/* Bits: the devices of which some context has been given access to what this one allocates. */
unsigned sim_peers_of(CUcontext owner);
bool sim_is_peer(CUcontext context, CUcontext owner); /* the same device, or access was enabled */
void sim_peers_forget_context(CUcontext context);

/* ---- sim_memory.c: virtual memory management ---- */

/* Free addresses of the window; kept in the same table as the program's reservations. 0: none left. */
struct sim_range *sim_addresses_take(size_t bytes, size_t alignment, uintptr_t hint);
void sim_addresses_give(struct sim_range *range);
/* May work of this context touch all of these bytes? */
bool sim_accessible(uintptr_t address, size_t bytes, CUcontext context, bool write);

struct sim_handle {
	struct sim_handle *next;
	CUmemAllocationProp prop;
	struct sim_physical physical;
	unsigned references, mappings;
	unsigned long long id;
	struct sim_origin origin;
};
struct sim_mapping {
	struct sim_range range;
	struct sim_handle *handle;
	unsigned char access[SIM_DEVICES_MAX];
	bool host_access;
	struct sim_origin origin;
};
struct sim_mapping *sim_mapping_at(uintptr_t address);
struct sim_handle *sim_handle_new(const CUmemAllocationProp *prop, const struct sim_physical *physical);
struct sim_handle *sim_handle_of(CUmemGenericAllocationHandle id); /* NULL: there is none, or it was released */
size_t sim_memory_live(struct sim_live *live, FILE *out);

/* ---- sim_alloc.c, sim_pool.c: blocks ---- */

enum sim_kind { SIM_BLOCK_DEVICE, SIM_BLOCK_ASYNC, SIM_BLOCK_MANAGED, SIM_BLOCK_HOST, SIM_BLOCK_REGISTERED };
struct sim_slab;
struct sim_page;
struct sim_block {
	struct sim_range range; /* what the program asked for */
	enum sim_kind kind;
	CUcontext context;
	int device;
	unsigned flags;
	bool freeing; /* cuMemFreeAsync was submitted */
	struct sim_slab *slab;
	struct sim_backing *backing; /* its own; of a small block the slab has one */
	/* Of a managed block: */
	struct sim_range *addresses;
	struct sim_physical physical;
	struct sim_page *pages;
	CUmemoryPool pool;
	struct sim_graph_memory *graph; /* of an allocation node: not to be dropped by frees */
	bool sync_memops;
	unsigned long long id;
	struct sim_origin origin;
};
struct CUmemPoolHandle_st {
	CUmemoryPool next;
	bool alive, destroyed, is_default;
	int device;
	cuuint64_t threshold;
	size_t used, used_high, reserved, reserved_high;
	int reuse[3];
	unsigned char access[SIM_DEVICES_MAX]; /* of devices other than its own */
};
struct sim_block *sim_block_at(uintptr_t address); /* device, async and managed blocks, and host ones */
unsigned long long sim_next_id(void);
/* Make and drop the memory of a device block; counted by the caller for async ones (pool). */
CUresult sim_block_make(struct sim_block **ret_block, size_t bytes, int device, enum sim_kind kind);
void sim_block_drop(struct sim_block *block);
/* What memory the context's device may do with a block that is not managed, SIM_NONE ... */
int sim_block_access(const struct sim_block *block, CUcontext context);
void sim_alloc_views(void); /* peer access has changed: let devices see, or no longer see, blocks of others */
void sim_pool_trim(void);   /* at synchronisation points: reserved falls to the threshold */
void sim_pool_block_gone(struct sim_block *block);
size_t sim_alloc_live(struct sim_live *live, FILE *out);

/* ---- sim_array.c ---- */
void sim_arrays_forget_context(CUcontext context);
size_t sim_arrays_live(struct sim_live *live, FILE *out);

/* ---- sim_managed.c, sim_advise.c: managed memory, its pages, and what a program may say and ask about them ---- */

#define SIM_PAGE ((size_t)64 << 10)
/* Bits of where a page is: the CPU, or a device. */
#define SIM_ON_CPU       1u
#define SIM_ON_DEVICE(d) (2u << (d))

struct sim_page {
	unsigned on;                       /* where it is, SIM_ON_*; 0: nowhere yet. More than one: read-duplicated */
	unsigned remote;                   /* devices that have it mapped where it is, over the link */
	unsigned accessed_by;              /* CU_MEM_ADVISE_SET_ACCESSED_BY */
	bool read_mostly;                  /* CU_MEM_ADVISE_SET_READ_MOSTLY */
	bool dirty;                        /* written by a device since it came there */
	unsigned returns;                  /* times that a fault of a device brought it from elsewhere */
	CUmemLocation preferred, prefetch; /* type INVALID: none */
	struct sim_page *older[SIM_DEVICES_MAX], *newer[SIM_DEVICES_MAX]; /* of what is on the device, by arrival */
	uintptr_t address;
};
bool sim_managed_open(void); /* with the window */
static inline bool sim_in_managed(uintptr_t address)
{
	return address - (uintptr_t)sim.managed < sim.managed_part;
}
CUresult sim_managed_make(struct sim_block *block, size_t bytes);
void sim_managed_drop(struct sim_block *block);
/* Evict until what is allocated on the device and what is managed there fit together. False: nothing left to evict. */
bool sim_managed_fit(int device, size_t more);
/* An address in a device's view of managed memory, or in its own. */
bool sim_managed_view(uintptr_t address, uintptr_t *ret_address, int *ret_device);
/* A device touched a page it has not mapped so; lock not held. access: 0 reads, 1 writes, -1 nobody knows: then a fault
 * where the page is was a write. False: no memory there. */
bool sim_managed_fault(uintptr_t address, int device, int access);
/* The CPU is about to read or write, in a call of the driver. */
void sim_managed_touch(uintptr_t start, size_t bytes, bool write);
void sim_managed_prefetch(struct sim_page *page, const CUmemLocation *to);
/* Read-duplicated copies become one, where it is preferred if there is one. */
void sim_managed_collapse(struct sim_page *page);
void sim_managed_unmap(struct sim_page *page, int device); /* what it has mapped over the link */
/* The pages of a range; NULL when it is not inside one managed block. */
struct sim_page *sim_managed_pages(uintptr_t address, size_t bytes, size_t *ret_n);
/* ---- sim_uvm.c: what the driver tells about them; lock held. where: SIM_ON_CPU or a device's bit ---- */
enum sim_uvm_counter { SIM_UVM_IN = 0, SIM_UVM_OUT = 1, SIM_UVM_CPU_FAULTS = 2, SIM_UVM_GPU_FAULTS = 9 };
enum { SIM_UVM_DUPLICATE = 7, SIM_UVM_THRASHING = 10 };               /* types of regions */
enum { SIM_UVM_ASKED = 1, SIM_UVM_TOUCHED = 2, SIM_UVM_EVICTED = 4 }; /* causes of migrations */
void sim_uvm_count(enum sim_uvm_counter counter, unsigned where, uint64_t amount);
void sim_uvm_fault(unsigned where, uintptr_t address, bool write);
void sim_uvm_migration(unsigned from, unsigned to, uintptr_t address, size_t bytes, unsigned cause);
void sim_uvm_eviction(unsigned from, uintptr_t out, uintptr_t in, size_t bytes);
void sim_uvm_region(unsigned type, unsigned where, uintptr_t address, size_t bytes);

extern __thread int sim_running_device; /* on whose behalf this thread works */
extern __thread CUcontext sim_running_context;

/* ---- sim_stream.c, sim_event.c: streams, events; and what work is (sim_work.c, below) ---- */

struct sim_after { /* done when that stream has done its work up to seq */
	CUstream stream;
	unsigned long seq;
};
struct sim_work {
	struct sim_work *next;
	unsigned long seq;
	const char *name;
	CUgraphNodeType type;
	void (*run)(struct sim_work *work); /* on the stream's thread, lock not held */
	bool always;                        /* also when the context is dead */
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
void sim_stream_unlink(CUstream stream);  /* from its context, when it is dead and its thread has ended */
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
/* Run one piece of work guarded against faults in the window; false when the context died of it. */
bool sim_run_guarded(struct sim_work *work);
/* Between two pieces of a copy: somebody else's turn, and SIM_PIECE_US. */
void sim_pause(void);
/* The mapping of these addresses goes or changes for these devices (bits): their contexts with work that runs just now
 * and names them die of it. */
void sim_mapping_changes(uintptr_t start, size_t bytes, unsigned devices);
/* What work may do, its `run`: nothing, a host function, the parts of a graph. */
void sim_nothing(struct sim_work *work);
void sim_run_host(struct sim_work *work);
void sim_run_list(struct sim_work *work);

/* ---- sim_capture.c, sim_graph.c, sim_graph_exec.c, sim_graph_ask.c ---- */

struct sim_capture {
	struct sim_capture *next;
	CUgraph graph;
	CUstreamCaptureMode mode;
	CUstream origin;
	CUcontext context;
	unsigned thread;
	unsigned long id;
	bool invalid, to_graph;
};
struct CUgraphNode_st {
	CUgraphNode next;
	CUgraph graph;
	struct sim_work *work;
	CUgraphNode *after;
	size_t n_after;
	bool alive;
	bool updatable; /* from the device, as is said: no kernel of ours does it */
	unsigned long mark;
	CUgraphNode twin; /* while its graph is being copied */
	void **params;    /* handed out by cuGraphKernelNodeGetParams */
	CUgraph *inside;  /* owned: a child graph, or the bodies of a condition */
	unsigned n_inside;
	CUgraphConditionalHandle condition;
};
struct CUgraph_st {
	CUgraph next_dead;
	bool alive;
	CUgraphNode first, last;
	size_t n_nodes;
};

extern struct sim_capture *sim_captures;
/* A call that is unsafe during capture (facts section 3): invalidates the captures it may not meet. */
CUresult sim_unsafe(void);
CUresult sim_capture_stream_touched(CUstream stream); /* query or synchronise of a capturing stream */
CUresult sim_capture_context_touched(CUcontext context);
CUresult sim_capture_work(CUstream stream, struct sim_work *work);
CUresult sim_capture_record(CUstream stream, CUevent event);
CUresult sim_capture_wait(CUstream stream, CUevent event);
void sim_capture_forget_stream(CUstream stream);
CUresult sim_capture_legacy(CUcontext context); /* work for the legacy stream while a blocking stream captures */
void sim_capture_invalidate(struct sim_capture *capture, const char *because);
CUgraph sim_graph_new(void);
void sim_graph_free(CUgraph graph);
CUgraphNode sim_graph_add(CUgraph graph, struct sim_work *work, const CUgraphNode *after, size_t n_after);
CUgraph sim_graph_clone(CUgraph graph);
bool sim_is_node(CUgraphNode node);
/* sim_graph_memory.c: what allocation nodes have. References: nodes and instances, by their work; false: it has none. */
struct sim_graph_memory {
	struct sim_graph_memory *next; /* of all */
	struct sim_block *block;       /* NULL: its context has ended */
	size_t bytes;
	int device;
	unsigned references;
	bool live; /* allocated by a node that ran, and not freed */
};
CUresult sim_graph_alloc_work(struct sim_work **ret_work, size_t bytes);
CUresult sim_graph_free_work(struct sim_work **ret_work, CUdeviceptr address);
bool sim_graph_memory_ref(const struct sim_work *work);
void sim_graph_memory_unref(const struct sim_work *work);
void sim_graph_memory_free(struct sim_graph_memory *memory);
/* Parameters of whatever entry point in the one form for all; good: there were any. */
struct sim_node_form {
	bool good;
	CUgraphNodeParams params;
};
struct sim_node_form sim_node_form(CUgraphNodeType type, const void *params, size_t bytes);
CUresult sim_node_work(struct sim_work **ret_work, const CUgraphNodeParams *params);
CUresult sim_node_set(CUgraphNode node, const CUgraphNodeParams *params);

/* ---- sim_launch.c, sim_copy.c ---- */

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
CUresult sim_copy_work(struct sim_work **ret_work, const CUDA_MEMCPY3D *copy, struct sim_sides sides,
		       enum sim_stage stage);
/* May a node of an instance that makes the one copy be changed so that it makes the other? */
bool sim_copy_may_become(const struct sim_work *work, const struct sim_work *other);

/* ---- sim_set.c ---- */

CUresult sim_set_work(struct sim_work **ret_work, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context);
/* Is what a set writes mapped? */
bool sim_set_is_mapped(const struct sim_work *work);
bool sim_set_names(const struct sim_work *work, uintptr_t start, size_t bytes); /* as above */

/* ---- sim_names.c ---- */
void *sim_export(const char *name); /* the address of an export of ours, or NULL */

#endif
