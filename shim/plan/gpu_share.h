/*
 * gpu_share.h: how the processes that share one GPU divide what they may have together. Pure: every process computes the
 * same from the same figures.
 */
#ifndef SPILLWAY_GPU_SHARE_H
#define SPILLWAY_GPU_SHARE_H

#include <stdint.h>

struct gpu_share_member {
	uint64_t needs; /* bytes that its heap has, on the device and elsewhere */
	uint64_t stuck; /* bytes that cannot leave the device */
};

/*
 * Returns the share of member number `self`. Who needs less than an equal part gets what it needs, the others divide the
 * rest equally; nobody gets less than what cannot leave. What nobody needs is divided equally, too, so that a process
 * can grow at once. A newcomer counts as if it needed an eighth of an equal part. The sum of all shares is at most
 * `total`, unless what cannot leave is more.
 */
uint64_t gpu_share_of(uint64_t total, const struct gpu_share_member *members, unsigned n, unsigned self);

#endif
