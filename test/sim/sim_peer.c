// SPDX-License-Identifier: Apache-2.0
/*
 * sim_peer.c: who may touch the memory of another device.
 *
 * Which devices can reach each other is a matter of how they are wired: SIM_PEERS, over NVLink but for SIM_PCIE. What
 * of that is open:
 *   cuMemAlloc memory   by context and one way: cuCtxEnablePeerAccess gives the current context all that the peer context
 *                       has allocated and will allocate, until it is disabled or one of the two contexts ends
 *   cuMemMap memory     by device: where cuMemSetAccess named it (sim_memory.c); enabling peer access does nothing
 *   memory of pools     by device: cuMemPoolSetAccess (sim_pool.c); enabling peer access does nothing
 * The error codes are those of cuda.h. SIM_MAX_PEERS is the limit of a device: how many other devices its contexts may
 * have enabled; what cuMemSetAccess opens is not counted, no documentation says that it is.
 */
#include "sim_context.h"
#include "sim_memory.h"

/* ---- the wires ---- */

bool sim_can_reach(int device, int owner)
{
	return device == owner || (sim.set.peers[device] >> owner & 1);
}

/* Some pairs, all or none of them; text NULL or "": as otherwise says. */
static void wires_read(const char *name, const char *otherwise, unsigned wires[SIM_DEVICES_MAX])
{
	const char *text = getenv(name);
	int a, b, used;

	memset(wires, 0, SIM_DEVICES_MAX * sizeof(*wires));
	if (!text || !*text)
		text = otherwise;
	if (!strcmp(text, "none"))
		return;
	if (!strcmp(text, "all")) {
		for (a = 0; a < SIM_DEVICES_MAX; a++)
			wires[a] = ((1u << SIM_DEVICES_MAX) - 1) & ~(1u << a);
		return;
	}
	while (sscanf(text, "%d-%d%n", &a, &b, &used) == 2 && a >= 0 && b >= 0 && a < SIM_DEVICES_MAX &&
	       b < SIM_DEVICES_MAX && a != b) {
		wires[a] |= 1u << b;
		wires[b] |= 1u << a;
		text += used;
		if (*text != ',')
			break;
		text++;
	}
	if (*text)
		fprintf(stderr, "sim: cannot read %s from \"%s\" on\n", name, text);
}

void sim_peers_read(void)
{
	sim.set.max_peers = (unsigned)sim_parse_size(getenv("SIM_MAX_PEERS"), 8);
	wires_read("SIM_PEERS", "all", sim.set.peers);
	wires_read("SIM_PCIE", "none", sim.set.pcie);
}

static CUresult can_access(int *ret_can, CUdevice device, CUdevice owner)
{
	if (!sim_is_device(device) || !sim_is_device(owner))
		return CUDA_ERROR_INVALID_DEVICE;
	return SIM_ANSWER(ret_can, device != owner && sim_can_reach(device, owner));
}

static CUresult link_attribute(int *ret_value, CUdevice_P2PAttribute which, CUdevice from, CUdevice to)
{
	if (!sim_is_device(from) || !sim_is_device(to) || from == to)
		return CUDA_ERROR_INVALID_DEVICE;
	bool reaches = sim_can_reach(from, to), fast = reaches && !(sim.set.pcie[from] >> to & 1);
	switch (which) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
		return SIM_ANSWER(ret_value, !fast); /* 0 is the best */
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
		return SIM_ANSWER(ret_value, fast);
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
		return SIM_ANSWER(ret_value, reaches);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- what is open ---- */

static size_t place_of(CUcontext context, CUcontext owner)
{
	size_t i = 0;

	while (i < context->n_peers && context->peers[i] != owner)
		i++;
	return i;
}

bool sim_is_peer(CUcontext context, CUcontext owner)
{
	return context->device == owner->device || place_of(context, owner) < context->n_peers;
}

unsigned sim_peers_of(CUcontext owner)
{
	unsigned devices = 0;

	for (CUcontext context = sim.contexts; context; context = context->next)
		if (context->alive && place_of(context, owner) < context->n_peers)
			devices |= 1u << context->device;
	return devices;
}

/* The other devices whose memory contexts of this one have opened. */
static unsigned opened_by(int device)
{
	unsigned devices = 0;

	for (CUcontext context = sim.contexts; context; context = context->next)
		for (size_t i = 0; context->alive && context->device == device && i < context->n_peers; i++)
			devices |= 1u << context->peers[i]->device;
	return devices;
}

static CUresult enable(CUcontext owner, unsigned flags)
{
	CUcontext context = sim_context();

	if (flags)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	if (!sim_is_context(owner) || !owner->alive)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "not a living context");
	if (context->device == owner->device || !sim_can_reach(context->device, owner->device))
		return sim_why(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "device %d cannot reach device %d", context->device,
			       owner->device);
	if (place_of(context, owner) < context->n_peers)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	unsigned opened = opened_by(context->device) | 1u << owner->device;
	if ((unsigned)__builtin_popcount(opened) > sim.set.max_peers)
		return sim_why(CUDA_ERROR_TOO_MANY_PEERS, "SIM_MAX_PEERS is %u", sim.set.max_peers);
	context->peers = realloc(context->peers, (context->n_peers + 1) * sizeof(*context->peers));
	context->peers[context->n_peers++] = owner;
	sim_alloc_views();
	return CUDA_SUCCESS;
}

static CUresult disable(CUcontext owner)
{
	CUcontext context = sim_context();

	if (!sim_is_context(owner) || !owner->alive)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "not a living context");
	size_t i = place_of(context, owner);
	if (i == context->n_peers)
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	context->peers[i] = context->peers[--context->n_peers];
	sim_alloc_views();
	return CUDA_SUCCESS;
}

void sim_peers_forget_context(CUcontext context)
{
	for (CUcontext other = sim.contexts; other; other = other->next) {
		size_t i = place_of(other, context);

		if (i < other->n_peers)
			other->peers[i] = other->peers[--other->n_peers];
	}
	context->n_peers = 0;
	sim_alloc_views();
}

SPELL_FREE(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice owner), can_access(can, device, owner))
SPELL_FREE(cuDeviceGetP2PAttribute, (int *value, CUdevice_P2PAttribute which, CUdevice from, CUdevice to),
	   link_attribute(value, which, from, to))
SPELL(cuCtxEnablePeerAccess, (CUcontext owner, unsigned flags), enable(owner, flags))
SPELL(cuCtxDisablePeerAccess, (CUcontext owner), disable(owner))
