/*
 * gpu_share.h: how the processes that share one GPU divide what they may have together. Pure: every process computes
 * the same from the same figures.
 */
#ifndef SPILLWAY_GPU_SHARE_H
#define SPILLWAY_GPU_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct gpu_share_member {
	uint64_t needs; /* bytes that its heap has, on the device and elsewhere */
	uint64_t stuck; /* bytes that cannot leave the device */
};

/*
 * Returns the share of member number `self`. Who needs less than an equal part gets what it needs, the others divide
 * the rest equally; nobody gets less than what cannot leave. What nobody needs is divided equally, too, so that a
 * process can grow at once. A newcomer counts as if it needed an eighth of an equal part. The sum of all shares is at
 * most `total`, unless what cannot leave is more.
 */
uint64_t gpu_share_of(uint64_t total, const struct gpu_share_member *members, unsigned n, unsigned self);
/*
 * Returns whether one more process can take turns with the members (gpu_turn.h): whether `host` bytes of host memory
 * hold what is away while the turn changes, when one has left and the next has not come back. That is all but what fits
 * beside the one that needs most. The new one counts as if it needed as much as that one, because nobody knows what it
 * will need.
 */
bool gpu_share_admits(uint64_t total, const struct gpu_share_member *members, unsigned n, uint64_t host);

#endif
