// SPDX-License-Identifier: Apache-2.0
/*
 * peer_reach.c: the contexts and pools of peer_random, and who may reach whose memory (peers.h).
 *
 * Memory of cuMemAlloc is open to other devices by context (cuCtxEnablePeerAccess), that of pools by device
 * (cuMemPoolSetAccess). A guest has its own rights: of memory of primary contexts of other devices where it enabled
 * access to them, and its memory is open to those of them that enabled access to it. Kernels of one device stay out of
 * memory of another context of that device, for what a program may do there is not documented.
 */
#include "test/preload/peers.h"

void reach_open(void)
{
	CUmemPoolProps props = form_pool(0, 0);
	pthread_rwlockattr_t fair; /* who wants it for writing has his turn */

	pthread_rwlockattr_init(&fair);
	pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&world.lock, &fair);
	GO(cuInit(0));
	GO(cuDeviceGetCount(&world.devices));
	for (int i = 0; i < world.devices; i++) {
		GO(cuDevicePrimaryCtxRetain(&world.context[i], i));
		GO(cuCtxSetCurrent(world.context[i]));
		kernel_load(&world.functions[i]);
		GO(cuDeviceGetDefaultMemPool(&world.pool[i][0], i));
		props.location.id = i;
		GO(cuMemPoolCreate(&world.pool[i][1], &props));
		world.open[i][i] = true;
		for (int j = 0; j < world.devices; j++)
			GO(cuDeviceCanAccessPeer(&world.wired[i][j], i, j));
	}
}

bool reach_may(const struct worker *worker, unsigned lane, const struct block *block, bool write)
{
	const struct guest *guest = &worker->guest;
	int device = worker->lane[lane].device;

	switch (block->kind) {
	case BLOCK_HOST:
		return true;
	case BLOCK_POOLED:
		return device == block->device ||
		       world.pool_open[device][block->device][block->pool] >= (write ? ACCESS_WRITE : ACCESS_READ);
	default:
		if (block->guest)
			return lane == LANE_GUEST || guest->reached[device];
		return lane == LANE_GUEST ? guest->reaches[block->device] : world.open[device][block->device];
	}
}

/* Whatever may still need the access that is about to be taken away: a graph runs kernels on any device. */
static void finish_all(void)
{
	for (int i = 0; i < world.devices; i++) {
		GO(cuCtxSetCurrent(world.context[i]));
		GO(cuCtxSynchronize());
	}
	for (unsigned i = 0; i < made_up.threads; i++) {
		if (!workers[i].guest.context)
			continue;
		GO(cuCtxSetCurrent(workers[i].guest.context));
		GO(cuCtxSynchronize());
	}
}

static void change_open(int device, int owner)
{
	if (world.open[device][owner])
		finish_all();
	GO(cuCtxSetCurrent(world.context[device]));
	GO(world.open[device][owner] ? cuCtxDisablePeerAccess(world.context[owner])
				     : cuCtxEnablePeerAccess(world.context[owner], 0));
	world.open[device][owner] ^= 1;
}

static void change_pool(int device, int owner, int pool, enum access access)
{
	static const CUmemAccess_flags flags[] = {CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
						  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemAccessDesc desc = form_access(device, flags[access]);

	if (access < world.pool_open[device][owner][pool])
		finish_all();
	GO(cuMemPoolSetAccess(world.pool[owner][pool], &desc, 1));
	world.pool_open[device][owner][pool] = access;
}

void reach_change(struct worker *worker)
{
	int device = (int)peers_below(worker, (size_t)world.devices),
	    owner = (int)peers_below(worker, (size_t)world.devices);
	int pool = (int)peers_below(worker, POOLS);
	enum access access = (enum access)peers_below(worker, 3);
	bool plain = peers_one_in(worker, 2);

	if (device == owner || !world.wired[device][owner])
		return;
	pthread_rwlock_wrlock(&world.lock);
	if (plain)
		change_open(device, owner);
	else
		change_pool(device, owner, pool, access);
	pthread_rwlock_unlock(&world.lock);
}

/* ---- guests ---- */

static void guest_begin(struct worker *worker)
{
	struct guest *guest = &worker->guest;
	int device = (int)peers_below(worker, (size_t)world.devices);

	*guest = (struct guest){.device = device};
	GO(cuCtxCreate_v2(&guest->context, 0, device));
	GO(cuCtxPopCurrent_v2(NULL));
	lane_make(worker, LANE_GUEST, guest->context, device, NULL);
	kernel_load(&guest->functions);
	for (int i = 0; i < world.devices; i++) {
		guest->reaches[i] = i != device && world.wired[device][i] && peers_one_in(worker, 2);
		guest->reached[i] = i != device && world.wired[i][device] && peers_one_in(worker, 2);
		GO(cuCtxSetCurrent(guest->context));
		if (guest->reaches[i])
			GO(cuCtxEnablePeerAccess(world.context[i], 0));
		GO(cuCtxSetCurrent(world.context[i]));
		if (guest->reached[i])
			GO(cuCtxEnablePeerAccess(guest->context, 0));
	}
}

void guest_end(struct worker *worker)
{
	struct guest *guest = &worker->guest;
	struct lane *lane = &worker->lane[LANE_GUEST];
	uint64_t bit = (uint64_t)1 << LANE_GUEST;

	if (!guest->context)
		return;
	for (unsigned i = worker->n_blocks; i-- > 0;) {
		if (!worker->block[i]->guest)
			continue;
		block_check(worker, worker->block[i]);
		if (peers_one_in(worker, 2))
			block_free(worker, i);
		else
			block_forget(worker, i);
	}
	lane_be(worker, LANE_GUEST);
	GO(cuStreamSynchronize(lane->stream));
	for (unsigned i = 0; i < worker->n_blocks; i++) {
		worker->block[i]->writer &= ~bit;
		worker->block[i]->readers &= ~bit;
	}
	lane->exists = false;
	lane->dirty = false;
	GO(cuCtxSetCurrent(world.context[guest->device]));
	GO(cuCtxDestroy_v2(guest->context));
	guest->context = NULL;
}

/* For writing: whoever waits for all contexts must know which there are. */
void guest_change(struct worker *worker)
{
	pthread_rwlock_wrlock(&world.lock);
	if (worker->guest.context)
		guest_end(worker);
	else
		guest_begin(worker);
	pthread_rwlock_unlock(&world.lock);
}
