/* How the processes that share one GPU divide what they may have together. See gpu_share.h. */
#include "shim/plan/gpu_share.h"

#define UNIT     ((uint64_t)2 << 20)
#define NEWCOMER 8                   /* a newcomer needs this part of an equal part at least */
#define MOST     ((uint64_t)1 << 52) /* more bytes than any machine has: no sum of 64 of them overflows */

static uint64_t gpu_share_smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t needs_of(const struct gpu_share_member *member, uint64_t least)
{
	uint64_t needs = gpu_share_smaller(member->needs, MOST);

	return needs > least ? needs : least;
}

/* Returns what the member gets where nobody gets more than `level`, but for what cannot leave. */
static uint64_t at_level(const struct gpu_share_member *member, uint64_t least, uint64_t level)
{
	uint64_t gets = gpu_share_smaller(needs_of(member, least), level);
	uint64_t stuck = gpu_share_smaller(member->stuck, MOST);

	return gets > stuck ? gets : stuck;
}

static uint64_t sum_at(const struct gpu_share_member *members, unsigned n, uint64_t least, uint64_t level)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += at_level(&members[i], least, level);
	return sum;
}

uint64_t gpu_share_of(uint64_t total, const struct gpu_share_member *members, unsigned n, unsigned self)
{
	uint64_t least = total / n / NEWCOMER, low = 0, high = MOST, spare;

	/* The highest level at which all of it fits. */
	while (low < high) {
		uint64_t middle = low + (high - low + 1) / 2;

		if (sum_at(members, n, least, middle) <= total)
			low = middle;
		else
			high = middle - 1;
	}
	uint64_t sum = sum_at(members, n, least, low);
	spare = sum < total ? (total - sum) / n : 0;
	return (at_level(&members[self], least, low) + spare) / UNIT * UNIT;
}

bool gpu_share_admits(uint64_t total, const struct gpu_share_member *members, unsigned n, uint64_t host)
{
	uint64_t sum = 0, most = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t needs = gpu_share_smaller(members[i].needs, MOST);

		sum += needs;
		most = needs > most ? needs : most;
	}
	/* As gpu_turn_keep() has it, which leaves a 32nd part free. */
	uint64_t stays = total - total / 32, beside = stays > most ? stays - most : 0;

	sum += most;
	return sum <= total || sum - gpu_share_smaller(sum, beside) <= host;
}
