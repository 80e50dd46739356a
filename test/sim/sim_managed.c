// SPDX-License-Identifier: Apache-2.0
/*
 * sim_managed.c: managed memory, page by page.
 *
 * A managed block is one memfd, mapped once for the CPU at the address that programs see, and once more for each
 * device, (1 + d) * managed_part further up. The bytes are always the same, so nothing here can lose any; what is
 * modelled is where each page of 64 KiB is said to be. A device's view has the protection that its page tables would
 * give: a kernel or copy that touches more takes a real fault, which sim_work.c brings here, and that is a GPU fault.
 *
 * Rules. From cuda.h 13.0 (cuMemAllocManaged, cuMemAdvise, cuMemPrefetchAsync):
 *   - a page is nowhere until it is first touched or prefetched, and then where that happened
 *   - it migrates to who touches it, unless it is where it is preferred and can be mapped from there, or the toucher is
 *     in accessed-by: then it is mapped over the link, in the second case without a fault. The CPU maps no device's memory,
 *     and a device another one's where the two are wired (SIM_PEERS), whoever has enabled peer access; else it migrates
 *   - read-mostly pages are duplicated by reads, a write leaves the writer's copy alone; this advice beats the others,
 *     and takes down what is mapped over the link, so that who reads next has a copy
 *   - managed pages give way to each other and to what is allocated on a device; that never gives way to them
 * From the open UVM driver (uvm_va_policy, uvm_pmm_gpu): a page touched first by a device goes where it is preferred,
 * and where there is neither room nor anything to evict the device maps the page in host memory. Victims are those that
 * came longest ago, not those touched longest ago: mapped pages fault no more, so nobody knows. Of the model: an
 * evicted page is copied out whether it was written or not, unless the CPU has a copy. No prefetching by the driver
 * itself, no access counters. A page that faults bring to a device three times is said to be thrashing, and nothing is
 * done about it. Bytes between two devices count as neither in nor out, as with the driver.
 *
 * What happens is told to sim_uvm.c where it is counted here.
 */
#include "sim_context.h"
#include "sim_managed.h"
#include "sim_memory.h"
#include <sys/mman.h>

/* No more addresses than this, whatever SIM_WINDOW is. */
#define PART_MOST ((size_t)64 << 30)

static struct sim_ranges addresses;
static struct sim_page *oldest[SIM_DEVICES_MAX], *newest[SIM_DEVICES_MAX];
static struct sim_managed counts, of[SIM_DEVICES_MAX];

bool sim_managed_open(void)
{
	for (size_t part = sim.half < PART_MOST ? sim.half : PART_MOST; part >= (size_t)1 << 30; part /= 2) {
		char *at = mmap(NULL, (size_t)(1 + sim.set.devices) * part + SIM_PAGE, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			continue;
		sim.managed = (char *)(((uintptr_t)at + SIM_PAGE - 1) & ~(SIM_PAGE - 1));
		sim.managed_part = part;
		return true;
	}
	return false;
}

bool sim_managed_view(uintptr_t address, uintptr_t *ret_address, int *ret_device)
{
	size_t at = address - (uintptr_t)sim.managed;

	if (!sim.managed_part || at < sim.managed_part || at >= (size_t)(1 + sim.set.devices) * sim.managed_part)
		return false;
	*ret_address = (uintptr_t)sim.managed + at % sim.managed_part;
	*ret_device = (int)(at / sim.managed_part) - 1;
	return true;
}

static void *view(uintptr_t address, int device)
{
	return (void *)(address + (size_t)(1 + device) * sim.managed_part);
}

/* ---- what is counted, here and by the driver's device ---- */

static void count_gpu_fault(const struct sim_page *page, int device, bool write)
{
	counts.gpu_faults++;
	of[device].gpu_faults++;
	sim_uvm_count(SIM_UVM_GPU_FAULTS, SIM_ON_DEVICE(device), 1);
	sim_uvm_fault(SIM_ON_DEVICE(device), page->address, write);
}

/* The driver counts it for the CPU, and once more for the device that the page prefers. */
static void count_cpu_fault(const struct sim_page *page, bool write)
{
	counts.cpu_faults++;
	sim_uvm_count(SIM_UVM_CPU_FAULTS, SIM_ON_CPU, 1);
	if (page->preferred.type == CU_MEM_LOCATION_TYPE_DEVICE)
		sim_uvm_count(SIM_UVM_CPU_FAULTS, SIM_ON_DEVICE(page->preferred.id), 1);
	sim_uvm_fault(SIM_ON_CPU, page->address, write);
}

static void count_in(const struct sim_page *page, int device, unsigned cause)
{
	unsigned from = page->on & SIM_ON_CPU ? SIM_ON_CPU : page->on & -page->on;

	if (from == SIM_ON_CPU) {
		counts.bytes_in += SIM_PAGE;
		of[device].bytes_in += SIM_PAGE;
		sim_uvm_count(SIM_UVM_IN, SIM_ON_DEVICE(device), SIM_PAGE);
	}
	if (from)
		sim_uvm_migration(from, SIM_ON_DEVICE(device), page->address, SIM_PAGE, cause);
}

static void count_out(const struct sim_page *page, int device, unsigned cause)
{
	counts.bytes_out += SIM_PAGE;
	of[device].bytes_out += SIM_PAGE;
	sim_uvm_count(SIM_UVM_OUT, SIM_ON_DEVICE(device), SIM_PAGE);
	sim_uvm_migration(SIM_ON_DEVICE(device), SIM_ON_CPU, page->address, SIM_PAGE, cause);
}

static void count_duplicate(const struct sim_page *page)
{
	if (!(page->on & (page->on - 1)))
		return;
	counts.duplicates++;
	sim_uvm_region(SIM_UVM_DUPLICATE, page->on, page->address, SIM_PAGE);
}

/* A fault has brought it from somewhere. */
static void count_return(struct sim_page *page, int device, unsigned from)
{
	if (!from || ++page->returns % 3)
		return;
	counts.thrashing++;
	of[device].thrashing++;
	sim_uvm_region(SIM_UVM_THRASHING, from | SIM_ON_DEVICE(device), page->address, SIM_PAGE);
}

/* ---- who has what mapped ---- */

/* A page is writable where it has been written: so the first write is seen. */
static void protect(const struct sim_page *page, int device)
{
	bool here = page->on & SIM_ON_DEVICE(device);
	int access = PROT_NONE;

	if (page->remote & SIM_ON_DEVICE(device) || (here && page->dirty && page->on == SIM_ON_DEVICE(device)))
		access = PROT_READ | PROT_WRITE;
	else if (here)
		access = PROT_READ;
	/* Left as it was the page would fault for ever. */
	if (mprotect(view(page->address, device), SIM_PAGE, access)) {
		perror("sim: mprotect of a managed page (vm.max_map_count?)");
		abort();
	}
}

static void protect_all(const struct sim_page *page)
{
	for (int d = 0; d < sim.set.devices; d++)
		protect(page, d);
}

static void enlist(struct sim_page *page, int device)
{
	page->on |= SIM_ON_DEVICE(device);
	page->older[device] = newest[device];
	page->newer[device] = NULL;
	*(newest[device] ? &newest[device]->newer[device] : &oldest[device]) = page;
	newest[device] = page;
	sim.device[device].managed += SIM_PAGE;
	counts.resident += SIM_PAGE;
	of[device].resident += SIM_PAGE;
}

static void delist(struct sim_page *page, int device)
{
	struct sim_page *older = page->older[device], *newer = page->newer[device];

	page->on &= ~SIM_ON_DEVICE(device);
	*(older ? &older->newer[device] : &oldest[device]) = newer;
	*(newer ? &newer->older[device] : &newest[device]) = older;
	sim.device[device].managed -= SIM_PAGE;
	counts.resident -= SIM_PAGE;
	of[device].resident -= SIM_PAGE;
}

/* It is here, and nowhere else; or nowhere at all. */
static void leave_all_but(struct sim_page *page, unsigned here)
{
	for (int d = 0; d < sim.set.devices; d++)
		if (page->on & SIM_ON_DEVICE(d) & ~here)
			delist(page, d);
	page->on &= here;
	page->remote = 0;
}

static unsigned bit_of(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_INVALID)
		return 0;
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? SIM_ON_DEVICE(location->id) : SIM_ON_CPU;
}

void sim_managed_collapse(struct sim_page *page)
{
	unsigned preferred = bit_of(&page->preferred) & page->on;

	leave_all_but(page, preferred ? preferred : page->on & -page->on);
	protect_all(page);
}

void sim_managed_unmap(struct sim_page *page, int device)
{
	page->remote &= ~SIM_ON_DEVICE(device);
	protect(page, device);
}

/* ---- room ---- */

static void evict(struct sim_page *page, int device, uintptr_t because)
{
	delist(page, device);
	counts.evictions++;
	of[device].evictions++;
	sim_uvm_eviction(SIM_ON_DEVICE(device), page->address, because, SIM_PAGE);
	if (!page->on) {
		count_out(page, device, SIM_UVM_EVICTED);
		page->on = SIM_ON_CPU;
	}
	page->dirty = false;
	page->remote = 0;
	protect_all(page);
}

static bool fit(int device, size_t more, uintptr_t because)
{
	const struct sim_device *d = &sim.device[device];

	while (d->used + d->managed + more > sim.set.memory) {
		if (!oldest[device])
			return false;
		evict(oldest[device], device, because);
	}
	return true;
}

bool sim_managed_fit(int device, size_t more)
{
	return fit(device, more, 0);
}

/* ---- moving ---- */

static void populate(struct sim_page *page)
{
	if (!page->on)
		page->on = SIM_ON_CPU;
}

/* To a device that does not have it. keep: beside the copies there are. False: no room. */
static bool bring(struct sim_page *page, int device, bool keep, unsigned cause)
{
	if (!fit(device, SIM_PAGE, page->address))
		return false;
	count_in(page, device, cause);
	if (!keep)
		leave_all_but(page, 0);
	page->dirty = false;
	enlist(page, device);
	count_duplicate(page);
	protect_all(page);
	return true;
}

/* From a device to the CPU, or wherever it is not. */
static void bring_home(struct sim_page *page, bool keep, unsigned cause)
{
	if (page->on)
		count_out(page, __builtin_ctz(page->on) - 1, cause);
	if (!keep)
		leave_all_but(page, 0);
	page->dirty = false;
	page->on |= SIM_ON_CPU;
	count_duplicate(page);
	protect_all(page);
}

/* Some copy of it is where the device can read it. */
static bool is_in_reach(const struct sim_page *page, int device)
{
	bool reached = page->on & SIM_ON_CPU;

	for (int d = 0; d < sim.set.devices; d++)
		reached = reached || (page->on & SIM_ON_DEVICE(d) && sim_can_reach(device, d));
	return reached;
}

static void map_remote(struct sim_page *page, int device)
{
	populate(page);
	if (!is_in_reach(page, device))
		bring_home(page, false, SIM_UVM_TOUCHED);
	page->remote |= SIM_ON_DEVICE(device);
	protect(page, device);
}

/* A write where the page is, and maybe elsewhere too. */
static void write_here(struct sim_page *page, int device)
{
	if (page->on != SIM_ON_DEVICE(device)) {
		count_gpu_fault(page, device, true);
		leave_all_but(page, SIM_ON_DEVICE(device));
	}
	page->dirty = true;
	protect_all(page);
}

/* Where it is preferred, if that is elsewhere and can be mapped from here. A first touch makes it there. */
static bool is_preferred_elsewhere(struct sim_page *page, int device, unsigned preferred)
{
	int other = preferred && preferred != SIM_ON_CPU ? __builtin_ctz(preferred) - 1 : -1;

	if (!preferred || preferred == SIM_ON_DEVICE(device) || (other >= 0 && !sim_can_reach(device, other)))
		return false;
	if (!page->on)
		return other < 0 || bring(page, other, false, SIM_UVM_TOUCHED);
	return page->on & preferred;
}

static void fault(struct sim_page *page, int device, int access)
{
	unsigned here = SIM_ON_DEVICE(device), preferred = page->read_mostly ? 0 : bit_of(&page->preferred);
	bool write = access > 0;
	unsigned from = page->on;

	if (page->on & here) {
		if (access) /* a read: another thread's fault has brought it meanwhile */
			write_here(page, device);
		return;
	}
	if (page->accessed_by & here && !page->read_mostly && preferred != here && is_in_reach(page, device)) {
		map_remote(page, device);
		return;
	}
	count_gpu_fault(page, device, write);
	if (is_preferred_elsewhere(page, device, preferred)) {
		map_remote(page, device);
		return;
	}
	if (!bring(page, device, page->read_mostly && !write, SIM_UVM_TOUCHED)) {
		if (write) /* through the link it is written where it stays */
			sim_managed_collapse(page);
		map_remote(page, device);
		return;
	}
	count_return(page, device, from);
	if (write) {
		page->dirty = true;
		protect(page, device);
	}
}

bool sim_managed_fault(uintptr_t address, int device, int access)
{
	size_t n;

	sim_lock();
	struct sim_page *page = sim_managed_pages(address, 1, &n);
	if (page)
		fault(page, device, access);
	sim_unlock();
	return page != NULL;
}

void sim_managed_touch(uintptr_t start, size_t bytes, bool write)
{
	size_t n;
	struct sim_page *page = sim_managed_pages(start, bytes, &n);

	if (!page || !sim.set.concurrent_managed)
		return;
	for (; n--; page++) {
		if (page->on & SIM_ON_CPU && (!write || page->on == SIM_ON_CPU))
			continue;
		count_cpu_fault(page, write);
		if (page->on & SIM_ON_CPU) {
			leave_all_but(page, SIM_ON_CPU);
			protect_all(page);
		} else {
			bring_home(page, page->read_mostly && !write, SIM_UVM_TOUCHED);
		}
	}
}

/* Preferred elsewhere or not: a prefetch moves it. Without room it stays. */
void sim_managed_prefetch(struct sim_page *page, const CUmemLocation *to)
{
	unsigned there = bit_of(to);

	if (page->on & there) {
		if (there == SIM_ON_CPU || page->read_mostly || page->on == there)
			return;
		leave_all_but(page, there);
		protect_all(page);
	} else if (there == SIM_ON_CPU) {
		bring_home(page, page->read_mostly, SIM_UVM_ASKED);
	} else {
		bring(page, to->id, page->read_mostly, SIM_UVM_ASKED);
	}
}

/* ---- blocks ---- */

struct sim_page *sim_managed_pages(uintptr_t address, size_t bytes, size_t *ret_n)
{
	struct sim_block *block = sim_in_managed(address) ? sim_block_at(address) : NULL;

	/* What lies behind the last byte in its page belongs to nobody, but can be reached as on a GPU. */
	if (!block && sim_in_managed(address)) {
		block = (struct sim_block *)sim_block_at(address & ~(SIM_PAGE - 1));
		if (bytes > SIM_PAGE - address % SIM_PAGE)
			return NULL;
	}
	if (!block || !block->pages || !bytes || bytes > block->addresses->bytes ||
	    address + bytes > block->addresses->start + block->addresses->bytes)
		return NULL;
	size_t first = (address - block->range.start) / SIM_PAGE;
	*ret_n = (address + bytes - 1 - block->range.start) / SIM_PAGE + 1 - first;
	return &block->pages[first];
}

/* First fit from below, as everything of the model is. */
static struct sim_range *take_addresses(size_t bytes)
{
	uintptr_t start = (uintptr_t)sim.managed;
	struct sim_range *range;

	for (size_t i = 0; i < addresses.n && addresses.at[i]->start < start + bytes; i++)
		start = addresses.at[i]->start + addresses.at[i]->bytes;
	if (bytes > sim.managed_part || start + bytes > (uintptr_t)sim.managed + sim.managed_part)
		return NULL;
	range = calloc(1, sizeof(*range));
	*range = (struct sim_range){start, bytes};
	sim_range_add(&addresses, range);
	return range;
}

static void unmap_all(const struct sim_range *range)
{
	for (int d = -1; d < sim.set.devices; d++)
		mmap(view(range->start, d), range->bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static bool map_all(const struct sim_range *range)
{
	int file = memfd_create("simulated managed memory", MFD_CLOEXEC);
	bool ok = file >= 0 && !ftruncate(file, (off_t)range->bytes);

	for (int d = -1; ok && d < sim.set.devices; d++) {
		bool open = d < 0 || !sim.set.concurrent_managed;

		ok = mmap(view(range->start, d), range->bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE,
			  MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0) != MAP_FAILED;
	}
	if (file >= 0)
		close(file);
	if (!ok)
		unmap_all(range);
	return ok;
}

/* Without concurrent access it is device memory, and there must be enough (cuda.h: no oversubscription there). */
CUresult sim_managed_make(struct sim_block *block, size_t bytes)
{
	size_t whole = (bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	struct sim_device *device = &sim.device[block->device];

	if (!sim.set.concurrent_managed) {
		if (device->used > sim.set.memory || whole > sim.set.memory - device->used)
			return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "managed memory of this device is device memory");
		block->physical = (struct sim_physical){.bytes = whole, .device = block->device};
	}
	block->addresses = take_addresses(whole);
	if (!block->addresses || !map_all(block->addresses)) {
		if (block->addresses)
			sim_range_remove(&addresses, block->addresses);
		free(block->addresses);
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "no addresses or mappings left for managed memory");
	}
	block->range = (struct sim_range){block->addresses->start, bytes};
	device->used += block->physical.bytes;
	block->pages = calloc(whole / SIM_PAGE, sizeof(*block->pages));
	for (size_t i = 0; i < whole / SIM_PAGE; i++)
		block->pages[i].address = block->range.start + i * SIM_PAGE;
	return CUDA_SUCCESS;
}

void sim_managed_drop(struct sim_block *block)
{
	for (size_t i = 0; i < block->addresses->bytes / SIM_PAGE; i++)
		leave_all_but(&block->pages[i], 0);
	unmap_all(block->addresses);
	sim.device[block->device].used -= block->physical.bytes;
	sim_range_remove(&addresses, block->addresses);
	free(block->addresses);
	free(block->pages);
}

/* ---- controls ---- */

SIM_EXPORT struct sim_managed sim_managed(void)
{
	sim_lock();
	struct sim_managed now = counts;
	sim_unlock();
	return now;
}

SIM_EXPORT struct sim_managed sim_managed_of(int device)
{
	sim_lock();
	struct sim_managed now = of[device];
	sim_unlock();
	return now;
}

static struct sim_page page_now(CUdeviceptr address)
{
	struct sim_page copy = {0}, *page;
	size_t n;

	sim_lock();
	page = sim_managed_pages(address, 1, &n);
	if (page)
		copy = *page;
	sim_unlock();
	return copy;
}

SIM_EXPORT unsigned sim_managed_where(CUdeviceptr address)
{
	return page_now(address).on;
}

SIM_EXPORT bool sim_managed_is_dirty(CUdeviceptr address)
{
	return page_now(address).dirty;
}
