// SPDX-License-Identifier: Apache-2.0
/*
 * sim_physical.c: the window of device addresses, and the physical memory behind it.
 *
 * Physical memory is a range of one memfd: offsets are handed out upwards. A range that was given back is kept with its
 * pages and page tables for the next of the same size, within bounds; else a hole is punched. It is filled with 0xA5 up
 * to 64 MiB (SIM_FILL=0 does not), so that a program that reads what it never wrote is seen. Capacity is counted per
 * device and for the host.
 *
 * Pages are of 2 MiB where the kernel makes them so on request: 64 MiB of small ones took 100 ms to fill and to give
 * back, of large ones 20. MADV_COLLAPSE (Linux 6.1) does so whatever transparent_hugepage/shmem_enabled says.
 *
 * Page tables move. A page fault for each 4 KiB after each cuMemMap would take longer than all else that a test does.
 * So the page tables of a range are made once and then moved by mremap(): from where a device sees the range to a place
 * of the range's own (its parking place) when it is unmapped, and back when it is mapped again. MREMAP_DONTUNMAP leaves
 * no hole behind, where a mapping of another thread could land. What is mapped at a second place takes its page tables
 * there: the first place stays mapped, and faults if it is touched once more. Where the kernel cannot (before Linux
 * 5.13) or where a range came from another process, it is mapped in the plain way.
 */
#include "sim_managed.h"
#include "sim_memory.h"
#include <sys/mman.h>
#include <sys/syscall.h>

static int memory_file = -1;
static off_t memory_end;
static char *parking; /* sim.half bytes: page tables that no device sees */
static bool no_moves; /* the kernel refused once */

/* Ranges that were given back, with their pages; the oldest goes first. */
#define SPARES      64
#define SPARES_MOST ((size_t)128 << 20) /* bytes of all of them */
#define SPARE_MOST  ((size_t)16 << 20)  /* bytes of one */
static struct sim_physical spares[SPARES];
static unsigned n_spares;
static size_t spare_bytes;

/* ---- window ---- */

bool sim_window_open(void)
{
	memory_file = memfd_create("simulated GPU", MFD_CLOEXEC);
	if (memory_file < 0)
		return false;
	/* The views of many devices would fill what a sanitizer leaves of the address space. */
	size_t half = sim.set.devices > 1 ? sim.set.window / 4 : sim.set.window;
	for (; half >= (size_t)1 << 30; half /= 2) {
		char *at = mmap(NULL, (size_t)(2 + sim.set.devices) * half + SIM_GRANULE, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			continue;
		sim.window = (char *)(((uintptr_t)at + SIM_GRANULE - 1) & ~(SIM_GRANULE - 1));
		sim.half = half;
		parking = sim.window + (size_t)(1 + sim.set.devices) * half;
		return true;
	}
	return false;
}

static int protection(int access)
{
	return access == SIM_READWRITE ? PROT_READ | PROT_WRITE : access == SIM_READ ? PROT_READ : PROT_NONE;
}

/*
 * Past the thread sanitizer, which takes a mapping for a write to all of it: memory that goes away under a kernel is a
 * case of the model, not a race in it.
 */
static void *map_at(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
#ifdef __SANITIZE_THREAD__
	return (void *)syscall(SYS_mmap, at, bytes, access, flags | MAP_FIXED, file, offset);
#else
	return mmap(at, bytes, access, flags | MAP_FIXED, file, offset);
#endif
}

static int file_of(const struct sim_physical *physical)
{
	return physical->file ? physical->file : memory_file;
}

static char *parking_place(const struct sim_physical *physical)
{
	if (physical->borrowed || no_moves || (size_t)physical->parked + physical->bytes > sim.half)
		return NULL;
	return parking + physical->parked;
}

/* The old place stays mapped, without page tables. */
static bool move_tables(struct sim_physical *physical, char *to)
{
#ifdef MREMAP_DONTUNMAP
	if (syscall(SYS_mremap, physical->tables, physical->bytes, physical->bytes,
		    MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == (long)to) {
		physical->tables = to;
		return true;
	}
#else
#endif
	no_moves = true;
	physical->tables = NULL;
	return false;
}

static bool hide(int device, uintptr_t address, struct sim_physical *physical)
{
	char *view = sim_view(address, device);

	if (view == physical->tables)
		move_tables(physical, parking_place(physical));
	return map_at(view, physical->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
	       MAP_FAILED;
}

bool sim_alias_map(int device, uintptr_t address, struct sim_physical *physical, int access)
{
	char *view = sim_view(address, device), *place = parking_place(physical);

	if (access == SIM_NONE)
		return hide(device, address, physical);
	if (physical->tables == view || (place && physical->tables && move_tables(physical, view))) {
		if (physical->access != access && mprotect(view, physical->bytes, protection(access)))
			return false;
		physical->access = access;
		return true;
	}
	if (map_at(view, physical->bytes, protection(access), MAP_SHARED, file_of(physical), physical->offset) ==
	    MAP_FAILED)
		return false;
	if (place && !physical->tables) {
		physical->tables = view;
		physical->access = access;
	}
	return true;
}

void sim_alias_unmap(uintptr_t address, struct sim_physical *physical)
{
	for (int device = 0; device < sim.set.devices; device++)
		hide(device, address, physical);
}

/*
 * What a device sees of cuMemAlloc memory of another is what any of its contexts may touch. Where an address enters a
 * kernel it is judged for that kernel's own context: an address that this one may not touch stays as the host knows it,
 * which leads nowhere.
 */
SIM_EXPORT void *sim_pointer(CUdeviceptr address)
{
	int device = sim_running_device;
	bool seen = true;

	if (sim_in_managed(address))
		return (void *)(address + (1 + (size_t)device) * sim.managed_part);
	if (!sim_in_window(address))
		return (void *)address;
	if (sim.set.devices > 1) {
		sim_lock();
		struct sim_block *block = sim_block_at(address);
		if (block && sim_running_context)
			seen = sim_block_access(block, sim_running_context) != SIM_NONE;
		else if (block)
			device = block->device;
		sim_unlock();
	}
	return seen ? sim_view(address, device) : (void *)address;
}

/* ---- physical memory ---- */

/* Ranges up to this size are filled, and have large pages. */
#define WHOLE_MOST ((size_t)64 << 20)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* linux/mman.h */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Mapped for reading and writing. Of a part without any page the kernel makes none. */
static bool enlarge(char *at, size_t bytes)
{
	static bool refused;

	if (!sim.set.large)
		return false;
	for (size_t part = 0; !refused && part < bytes; part += SIM_GRANULE)
		*(volatile char *)(at + part) = 0;
	if (!refused && madvise(at, bytes, MADV_COLLAPSE))
		refused = errno == EINVAL;
	return !refused;
}

/* The page tables that this makes are parked, if they can be. */
static void fill(struct sim_physical *physical)
{
	char *at, *place = parking_place(physical);

	if (physical->bytes > WHOLE_MOST || (!sim.set.fill && !sim.set.large))
		return;
	if (place && physical->tables == place) {
		if (!sim.set.fill)
			return;
		if (physical->access != SIM_READWRITE && mprotect(place, physical->bytes, PROT_READ | PROT_WRITE))
			return;
		physical->access = SIM_READWRITE;
		memset(place, 0xA5, physical->bytes);
		return;
	}
	at = mmap(place, physical->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (place ? MAP_FIXED : 0),
		  file_of(physical), physical->offset);
	if (at == MAP_FAILED)
		return;
	if (!enlarge(at, physical->bytes) && sim.set.fill)
		madvise(at, physical->bytes, MADV_POPULATE_WRITE);
	if (sim.set.fill)
		memset(at, 0xA5, physical->bytes);
	if (!place) {
		munmap(at, physical->bytes);
		return;
	}
	physical->tables = place;
	physical->access = SIM_READWRITE;
}

static void punch(const struct sim_physical *physical)
{
	fallocate(memory_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, physical->offset, (off_t)physical->bytes);
}

static void spare_remove(unsigned i)
{
	spare_bytes -= spares[i].bytes;
	n_spares--;
	memmove(&spares[i], &spares[i + 1], (n_spares - i) * sizeof(spares[0]));
}

/* Returns false if it cannot be kept. */
static bool spare_keep(const struct sim_physical *physical)
{
	if (physical->bytes > SPARE_MOST || !physical->tables || physical->tables != parking_place(physical))
		return false;
	while (n_spares == SPARES || (n_spares && spare_bytes + physical->bytes > SPARES_MOST)) {
		punch(&spares[0]);
		spare_remove(0);
	}
	spares[n_spares++] = *physical;
	spare_bytes += physical->bytes;
	return true;
}

/* The youngest of that size. */
static bool spare_take(struct sim_physical *ret_physical, size_t bytes, int device)
{
	for (unsigned i = n_spares; i--;) {
		if (spares[i].bytes != bytes)
			continue;
		*ret_physical = spares[i];
		ret_physical->device = device;
		spare_remove(i);
		return true;
	}
	return false;
}

/* The name tells an importer where the memory is. */
static bool own_file(struct sim_physical *physical)
{
	char name[32];

	snprintf(name, sizeof(name), SIM_FILE_NAME "%d", physical->device);
	physical->file = memfd_create(name, MFD_CLOEXEC);
	if (physical->file < 0)
		return false;
	if (!ftruncate(physical->file, (off_t)physical->bytes))
		return true;
	close(physical->file);
	return false;
}

static struct sim_together *together;
static unsigned place;

static void tell_together(int device, bool more)
{
	size_t sum = 0, most;

	if (!together || device)
		return;
	atomic_store(&together->now[place], sim.device[0].used);
	for (unsigned i = 0; more && i < SIM_TOGETHER; i++)
		sum += atomic_load(&together->now[i]);
	most = atomic_load(&together->most);
	while (sum > most && !atomic_compare_exchange_weak(&together->most, &most, sum))
		;
}

SIM_EXPORT void sim_together(struct sim_together *all, unsigned self)
{
	sim_start();
	sim_lock();
	together = all;
	place = self;
	tell_together(0, true);
	sim_unlock();
}

CUresult sim_physical_take(struct sim_physical *ret_physical, size_t bytes, int device, bool own)
{
	size_t *used = device < 0 ? &sim.host_used : &sim.device[device].used;
	size_t capacity = device < 0 ? sim.set.host_memory : sim.set.memory;

	if (*used > capacity || bytes > capacity - *used)
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes wanted, %zu of %zu used", bytes, *used, capacity);
	if (own || !spare_take(ret_physical, bytes, device)) {
		*ret_physical = (struct sim_physical){
		    .offset = own ? 0 : memory_end, .bytes = bytes, .device = device, .parked = memory_end};
		if (own ? !own_file(ret_physical) : ftruncate(memory_file, memory_end + (off_t)bytes))
			return sim_why(CUDA_ERROR_OUT_OF_MEMORY, own ? "no memfd" : "the memfd cannot grow");
		memory_end += (off_t)bytes;
	}
	*used += bytes;
	tell_together(device, true);
	if (device >= 0)
		sim_managed_fit(device, 0); /* managed pages give way, as cuda.h says of cuMemAllocManaged */
	fill(ret_physical);
	return CUDA_SUCCESS;
}

void sim_physical_give(struct sim_physical *physical)
{
	if (physical->borrowed) {
		/* counted elsewhere */
	} else if (physical->device < 0) {
		sim.host_used -= physical->bytes;
	} else {
		sim.device[physical->device].used -= physical->bytes;
		tell_together(physical->device, false);
	}
	if (physical->file) {
		if (physical->tables)
			map_at(physical->tables, physical->bytes, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		close(physical->file);
	} else if (!spare_keep(physical)) {
		punch(physical);
	}
	physical->bytes = 0;
}

bool sim_physical_read(const struct sim_physical *physical, size_t offset, void *ret_bytes, size_t bytes)
{
	return pread(file_of(physical), ret_bytes, bytes, physical->offset + (off_t)offset) == (ssize_t)bytes;
}
