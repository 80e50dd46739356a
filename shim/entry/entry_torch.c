/*
 * The function by which PyTorch's allocator reports each tensor that is born or dies, to its profiler. libc10.so
 * defines it, libc10_cuda.so calls it through its procedure linkage table, whether or not a profiler is on, so this one
 * is called in its place. It writes one record (lifetimes.h), and calls PyTorch's own.
 *
 * It runs under the lock of PyTorch's allocator, perhaps in a stream capture: it takes no lock of the library, and
 * calls no function of the driver. Only the first call asks the loader, for functions of PyTorch's. RTLD_NEXT does not
 * find it: Python opens PyTorch's libraries locally. If a trace is recorded, the first event of a thread makes the
 * thread's ring (trace.h); the drainer runs by then, since the trace has the block that is reported about.
 *
 * Measured (PyTorch 2.7.1, 2.11 and 2.15): the same name; in 2.11 13,094 births and 12,699 deaths in nine steps of a
 * GPT, also with expandable segments.
 */
#include "shim/base/autograd.h"
#include "shim/base/modules.h"
#include "shim/context/capture.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/entry/entry.h"
#include "shim/heap/arena.h"
#include "shim/heap/migration.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/submit/completion.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TORCH_CUDA 1                   /* c10::DeviceType */
#define BYTES_MOST (UINT64_C(1) << 44) /* of a tensor: as much as a heap has addresses (births.c) */

/* c10::Device */
struct torch_device {
	int8_t type, index;
};

/* void c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device) */
#define TORCH_REPORT  _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

typedef void torch_report_function(void *address, int64_t bytes, size_t allocated, size_t reserved,
				   struct torch_device device);

torch_report_function TORCH_REPORT;

/* Returns PyTorch's own function; NULL if its library is not loaded, or has none. */
static torch_report_function *torch_own(void)
{
	static torch_report_function *_Atomic own; /* TORCH_REPORT: there is none */
	torch_report_function *found = atomic_load_explicit(&own, memory_order_acquire);

	if (!found) {
		void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
		real_dlsym_function *c_dlsym = real_dlsym();

		if (library && c_dlsym)
			found = (torch_report_function *)c_dlsym(library, NAME_OF(TORCH_REPORT));
		dlerror(); /* the program must not find an error of ours */
		autograd_bind();
		if (!found)
			found = TORCH_REPORT;
		atomic_store_explicit(&own, found, memory_order_release);
	}
	return found != TORCH_REPORT ? found : NULL;
}

/*
 * Returns the object that was the first to report of a GPU (caller_name_object). PyTorch's libraries for the CPU
 * report, too, perhaps earlier: of files that they map, and all that they do while memory is profiled.
 */
static const void *torch_reporter(const void *caller)
{
	static _Atomic(const void *) reporter;
	const void *known = atomic_load_explicit(&reporter, memory_order_relaxed);

	if (!known) {
		known = caller_name_object(caller);
		atomic_store_explicit(&reporter, known, memory_order_relaxed);
	}
	return known;
}

static void torch_tell(uint64_t address, int64_t bytes, uint64_t allocated, uint64_t reserved, int device,
		       const void *caller)
{
	uint64_t size = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;
	/* What is cut is not what the sum of all says, so nothing is trusted any more (lifetimes_tell). */
	struct lifetimes_report report = {
	    .device = device,
	    .address = address,
	    .bytes = size < BYTES_MOST ? size : BYTES_MOST,
	    .born = bytes > 0,
	    .reserved = reserved,
	    .allocated = allocated,
	    .reporter = torch_reporter(caller),
	    .number = completion_newest(),
	    .own = completion_own(),
	};
	struct device *owner = capture_is_open() ? device_of(address) : NULL;
	CUdeviceptr block;

	if (owner && arena_bounds(heap_arena(atomic_load(&owner->heap)), address, &block, &report.block_bytes))
		report.block = block;
	if (report.born)
		spill_reused(address, report.bytes);
	lifetimes_tell(&report);
}

HOOK_EXPORT void TORCH_REPORT(void *address, int64_t bytes, size_t allocated, size_t reserved,
			      struct torch_device device)
{
	torch_report_function *own = torch_own();

	if (process_stage() == STAGE_RUNNING && device.type == TORCH_CUDA && bytes)
		torch_tell((uintptr_t)address, bytes, allocated, reserved, device.index, __builtin_return_address(0));
	if (own)
		own(address, bytes, allocated, reserved, device);
}
