// SPDX-License-Identifier: Apache-2.0
/*
 * live_map_random_test.c: the map of what is alive, against a naive map of one entry for each 16 KiB.
 */
#include "test/test.h"
#include "test/unit/live_map_check.h"
#include "test/unit/seed.h"

#define GRAIN  ((uint64_t)16 << 10)
#define GRAINS 4096u
#define UNIT   ((unsigned)(LIVE_MAP_UNIT / GRAIN))
#define ALIVE  UINT64_MAX

static struct live_report at_number(uint64_t number)
{
	return (struct live_report){.number = number, .own = number, .thread = 1};
}

/* ---- random events ---- */

/* One entry a grain: the range that it belongs to (0: none), when it was born in dead memory, and when it died. */
struct naive {
	bool reported[GRAINS], distrusted[GRAINS];
	uint32_t range[GRAINS];
	uint64_t born[GRAINS]; /* 0: not known */
	bool touched[GRAINS];  /* a set has named it since */
	uint64_t died[GRAINS];
	uint32_t last;
	uint64_t heard; /* number up to which the thread is known to have submitted */
	uint64_t own;   /* number of its latest report */
};

static bool naive_all_reported(const struct naive *naive, unsigned begin, unsigned end)
{
	for (unsigned i = begin; i < end; i++)
		if (!naive->reported[i])
			return false;
	return true;
}

/* The grains around `at` that belong to the same range, or are fresh like it. */
static void naive_range(const struct naive *naive, unsigned at, unsigned *ret_begin, unsigned *ret_end)
{
	unsigned begin = at, end = at + 1;

	while (begin && naive->reported[begin - 1] && naive->range[begin - 1] == naive->range[at])
		begin--;
	while (end < GRAINS && naive->reported[end] && naive->range[end] == naive->range[at])
		end++;
	*ret_begin = begin;
	*ret_end = end;
}

static void naive_set(struct naive *naive, unsigned begin, unsigned end, uint32_t range, uint64_t died)
{
	for (unsigned i = begin; i < end; i++) {
		naive->range[i] = range;
		naive->born[i] = 0;
		naive->touched[i] = false;
		naive->died[i] = died;
	}
}

static void naive_distrust(struct naive *naive, unsigned begin, unsigned end)
{
	for (unsigned i = begin / UNIT * UNIT; i < (end + UNIT - 1) / UNIT * UNIT; i++)
		if (naive->reported[i]) {
			naive->reported[i] = false;
			naive->distrusted[i] = true;
			naive_set(naive, i, i + 1, 0, 0);
		}
}

static bool naive_alive(const struct naive *naive, unsigned i, struct live_now now)
{
	if (!naive->reported[i] || !naive->range[i])
		return !naive->reported[i];
	if (naive->died[i] == ALIVE)
		return !now.idle || !naive->born[i] ||
		       (naive->born[i] != now.idle &&
			(!now.named_only || naive->born[i] < now.named_only || naive->touched[i]));
	return naive->died[i] > now.done || (!now.unfinished && naive->heard <= naive->died[i]);
}

static void naive_report(struct naive *naive, uint64_t number)
{
	naive->own = number > naive->own ? number : naive->own;
	naive->heard = number > naive->heard ? number : naive->heard;
}

static void naive_birth(struct naive *naive, unsigned begin, unsigned end, uint64_t number)
{
	bool dead = true;

	naive_report(naive, number);
	if (!naive_all_reported(naive, begin, end)) {
		naive_distrust(naive, begin, end);
		return;
	}
	for (unsigned i = begin; i < end; i++)
		dead &= !naive->range[i] || (naive->died[i] != ALIVE && naive->died[i] < naive->own);
	naive_set(naive, begin, end, ++naive->last, ALIVE);
	for (unsigned i = begin; i < end; i++)
		naive->born[i] = dead ? number : 0;
}

/* What is named, and if that is dead, all dead behind it, comes to life. Returns its end. */
static unsigned naive_name(struct naive *naive, unsigned at)
{
	unsigned begin, end;

	naive_range(naive, at, &begin, &end);
	if (naive->range[begin] && naive->died[begin] == ALIVE)
		return end;
	for (;;) {
		naive_set(naive, begin, end, naive->range[begin] ? naive->range[begin] : ++naive->last, ALIVE);
		if (end == GRAINS || !naive->reported[end] || (naive->range[end] && naive->died[end] == ALIVE))
			return end;
		naive_range(naive, end, &begin, &at);
		end = at;
	}
}

static void naive_death(struct naive *naive, unsigned begin, unsigned end, uint64_t number)
{
	unsigned from, to;

	naive_report(naive, number);
	if (!naive_all_reported(naive, begin, end) || !naive->range[begin])
		return;
	naive_range(naive, begin, &from, &to);
	if (from == begin && to == end)
		naive_set(naive, begin, end, naive->range[begin], number);
}

static void compare(const struct live_map *map, const struct naive *naive, unsigned begin, unsigned end,
		    struct live_now now)
{
	struct live_range parts[GRAINS];
	unsigned n = live_map_alive(map, begin * GRAIN, end * GRAIN, now, 0, parts, GRAINS), k = 0;
	bool dead = true;

	for (unsigned i = begin; i < end; i++) {
		while (k < n && parts[k].end <= i * GRAIN)
			k++;
		bool alive = k < n && parts[k].begin <= i * GRAIN;

		assert_int_equal(alive, naive_alive(naive, i, now));
		dead &= !alive;
	}
	assert_int_equal(live_map_is_dead(map, begin * GRAIN, end * GRAIN, now), dead);
}

static void step(struct seed *seed, struct live_map *map, struct naive *naive, uint64_t number)
{
	unsigned begin = (unsigned)seed_below(seed, GRAINS), most = GRAINS - begin;
	unsigned end = begin + (unsigned)seed_size(seed, most), from, to;
	unsigned unit = begin / UNIT * UNIT, unit_end = (end + UNIT - 1) / UNIT * UNIT;
	struct live_range range;
	bool forget, revived;

	switch (seed_below(seed, 10)) {
	case 0:
		live_map_report(map, unit * GRAIN, unit_end * GRAIN);
		for (unsigned i = unit; i < unit_end; i++)
			naive->reported[i] = !naive->distrusted[i];
		break;
	case 1:
		if (unit_end - unit > 4 * UNIT)
			break;
		forget = seed_below(seed, 3);
		if (forget)
			live_map_forget(map, unit * GRAIN, unit_end * GRAIN);
		else
			live_map_distrust(map, unit * GRAIN, unit_end * GRAIN);
		for (unsigned i = unit; i < unit_end; i++) {
			naive->reported[i] = false;
			naive->distrusted[i] = !forget;
		}
		naive_set(naive, unit, unit_end, 0, 0);
		break;
	case 2:
	case 3:
	case 4:
		assert_true(live_map_birth(map, begin * GRAIN, end * GRAIN, at_number(number)));
		naive_birth(naive, begin, end, number);
		break;
	case 5: /* of anything, also of what begins or ends where something was born */
		naive_range(naive, begin, &from, &to);
		if (seed_below(seed, 2))
			begin = from;
		if (seed_below(seed, 2))
			end = to;
		live_map_death(map, begin * GRAIN, end * GRAIN, at_number(number));
		naive_death(naive, begin, end, number);
		break;
	case 6:
		assert_int_equal(live_map_name(map, begin * GRAIN + 5, &range, &revived), naive->reported[begin]);
		if (!naive->reported[begin])
			break;
		naive_range(naive, begin, &from, &to);
		assert_int_equal(range.begin, from * GRAIN);
		assert_int_equal(revived, !naive->range[begin] || naive->died[begin] != ALIVE);
		assert_int_equal(range.end, naive_name(naive, begin) * GRAIN);
		break;
	case 7:
		live_map_touch(map, begin * GRAIN + 5);
		if (!naive->reported[begin] || !naive->range[begin])
			break;
		naive_range(naive, begin, &from, &to);
		for (unsigned i = from; i < to; i++)
			naive->touched[i] = true;
		break;
	default: /* what was born dies as it was born, and may be born again */
		if (!naive->reported[begin] || !naive->range[begin])
			break;
		naive_range(naive, begin, &from, &to);
		live_map_death(map, from * GRAIN, to * GRAIN, at_number(number));
		naive_death(naive, from, to, number);
		if (seed_below(seed, 2))
			break;
		live_map_birth(map, from * GRAIN, to * GRAIN, at_number(number));
		naive_birth(naive, from, to, number);
	}
}

TEST(random_events_match_a_map_of_grains)
{
	struct seed seed = seed_start("live_map_random_test");

	for (unsigned round = 0; round < 20; round++) {
		struct live_map *map = live_map_new(GRAINS * GRAIN);
		struct naive *naive = calloc(1, sizeof(*naive));

		assert_non_null(map);
		assert_non_null(naive);
		for (uint64_t i = 1; i < 1500; i++) {
			step(&seed, map, naive, i);
			if (seed_below(&seed, 3) == 0) {
				uint64_t known = i + seed_below(&seed, 5);

				live_map_heard(map, at_number(known));
				naive->heard = known > naive->heard ? known : naive->heard;
			}
			unsigned begin = (unsigned)seed_below(&seed, GRAINS);
			compare(map, naive, begin, begin + (unsigned)seed_size(&seed, GRAINS - begin),
				(struct live_now){.done = seed_below(&seed, i + 2),
						  .unfinished = seed_below(&seed, 2),
						  .idle = seed_below(&seed, 2) ? i - seed_below(&seed, i) : 0,
						  .named_only = seed_below(&seed, 2) ? i - seed_below(&seed, i) : 0});
			if (i % 100 == 0)
				assert_true(live_map_is_valid(map));
		}
		live_map_free(map);
		free(naive);
	}
}
