/*
 * What is alive of what the program's allocator keeps, over time: follows births and deaths (live_map.h). A death
 * counts at once here, whether or not the library may take it for one yet. A bin shows the moment at which most was
 * alive. Of each move it says which lines the tensors were born at that were alive in the piece when it began.
 */
#include "tools/digest/digest_part.h"

#include "shim/plan/live_map.h"
#include "tools/common/grow.h"

#include <stdlib.h>

/* The most address space that the library reserves on a device; larger spans are of a damaged file. */
#define SPAN_MOST (UINT64_C(16) << 40)

static const struct live_report no_report;

enum { SITES_MOST = 64 }; /* of a piece; further ones count for the allocation */

/* Of one device. */
struct follow {
	uint64_t low, high; /* addresses of what is kept, whole units; both 0: nothing is */
	struct live_map *map;
	struct digest_alive now;
	size_t bin;       /* the latest one that has its figures, plus 1 */
	uint64_t written; /* time of the latest moment that is in the digest's list */
	bool is_written;  /* `now` is in it */
	bool any;         /* there is a `now` */
};

static bool is_of_allocator(uint32_t kind)
{
	return kind == TRACE_kept || kind == TRACE_born || kind == TRACE_died || kind == TRACE_doubted;
}

/* Returns false for what no allocation can be. */
static bool range_of(const struct trace_event *event, uint64_t *ret_begin, uint64_t *ret_end)
{
	uint64_t begin = event->kept.address, bytes = event->kept.bytes;

	if (!bytes || bytes > SPAN_MOST || begin > UINT64_MAX - bytes - LIVE_MAP_UNIT)
		return false;
	*ret_begin = begin;
	*ret_end = begin + bytes;
	return true;
}

static uint64_t unit_down(uint64_t address)
{
	return address / LIVE_MAP_UNIT * LIVE_MAP_UNIT;
}

static uint64_t unit_up(uint64_t address)
{
	return unit_down(address + LIVE_MAP_UNIT - 1);
}

/* Finds the address space that is kept on each device. */
static bool spans_find(const struct digest *digest, struct follow *follows)
{
	for (size_t i = 0; i < digest->trace->n_rows; i++) {
		const struct trace_event *event = &digest->trace->rows[i].event;
		uint64_t begin, end;

		if (event->kind != TRACE_kept || event->kept.device >= DIGEST_DEVICES || !range_of(event, &begin, &end))
			continue;
		struct follow *follow = &follows[event->kept.device];
		uint64_t low = follow->high && follow->low < begin ? follow->low : unit_down(begin);
		uint64_t high = follow->high > end ? follow->high : unit_up(end);

		if (high - low > SPAN_MOST)
			continue;
		follow->low = low;
		follow->high = high;
	}
	for (unsigned i = 0; i < DIGEST_DEVICES; i++) {
		if (!follows[i].high)
			continue;
		follows[i].map = live_map_new(follows[i].high - follows[i].low);
		if (!follows[i].map)
			return false;
	}
	return true;
}

/* ---- figures ---- */

static void show(struct digest_bin *bin, const struct digest_alive *now, bool first)
{
	if (!first && now->alive < bin->cache_alive)
		return;
	bin->cache = now->kept;
	bin->cache_alive = now->alive;
	bin->cache_dead = now->dead;
}

/* Fills the bins up to this time with the present state. */
static void fill(struct digest *digest, struct digest_device *device, struct follow *follow, uint64_t time)
{
	size_t last =
	    (size_t)(time / digest->bin_ns) < digest->n_bins ? (size_t)(time / digest->bin_ns) : digest->n_bins - 1;

	for (; device->bins && follow->bin <= last; follow->bin++)
		show(&device->bins[follow->bin], &follow->now, true);
	if (device->bins)
		show(&device->bins[last], &follow->now, false);
}

static void most(uint64_t *peak, uint64_t value)
{
	*peak = value > *peak ? value : *peak;
}

/*
 * Of moments that are closer together than this, the first is in the list, and the last before a pause as long, so that
 * what holds for long is always there.
 */
static uint64_t apart(const struct digest *digest)
{
	return digest->run_ns / DIGEST_MOMENTS + 1;
}

static void write_moment(struct digest *digest, struct follow *follow)
{
	digest->moments[digest->n_moments++] = follow->now;
	follow->written = follow->now.time;
	follow->is_written = true;
}

static void note(struct digest *digest, struct follow *follow, unsigned number, uint64_t time)
{
	struct digest_device *device = &digest->devices[number];
	struct live_map_sums sums = live_map_sums(follow->map);
	bool first = !follow->any;

	follow->any = true;
	if (!follow->is_written && !first && time - follow->now.time >= apart(digest))
		write_moment(digest, follow);
	fill(digest, device, follow, time);
	follow->now = (struct digest_alive){time, number, sums.reported, sums.alive, sums.dead};
	follow->is_written = false;
	fill(digest, device, follow, time);
	most(&device->cache, sums.reported);
	most(&device->cache_alive, sums.alive);
	most(&device->cache_dead, sums.dead);
	if (first || time - follow->written >= apart(digest))
		write_moment(digest, follow);
}

/* ---- events ---- */

static uint16_t site_of(const struct digest *digest, const struct trace_event *event)
{
	uint64_t site = event->kind == TRACE_born ? event->born.site : 0;

	return site < digest->trace->n_names[TRACE_SITES] && site <= UINT16_MAX ? (uint16_t)site : 0;
}

static void take_range(struct follow *follow, uint32_t kind, uint64_t begin, uint64_t end, uint16_t site)
{
	if (!follow->map || begin < follow->low || end > follow->high)
		return;
	begin -= follow->low;
	end -= follow->low;
	switch (kind) {
	case TRACE_kept:
		live_map_report(follow->map, unit_down(begin), unit_up(end));
		break;
	case TRACE_born:
		live_map_birth(follow->map, begin, end, (struct live_report){.site = site});
		break;
	case TRACE_died:
		live_map_death(follow->map, begin, end, no_report);
		break;
	case TRACE_doubted:
		live_map_distrust(follow->map, unit_down(begin), unit_up(end));
		break;
	default:
		live_map_forget(follow->map, unit_down(begin), unit_up(end));
	}
}

static void alive_take(struct digest *digest, struct follow *follows, const struct trace_row *row)
{
	const struct trace_event *event = &row->event;
	uint64_t number = event->kept.device, begin, end;

	if (is_of_allocator(event->kind)) {
		if (number >= DIGEST_DEVICES || !follows[number].map)
			return;
		if (event->kind == TRACE_doubted && !event->doubted.bytes)
			live_map_distrust_reported(follows[number].map);
		else if (range_of(event, &begin, &end))
			take_range(&follows[number], event->kind, begin, end, site_of(digest, event));
	} else {
		const struct trace_block *block = &digest->trace->blocks[row->which];

		number = block->device;
		if (number >= DIGEST_DEVICES || !follows[number].map || block->bytes > SPAN_MOST ||
		    block->address > UINT64_MAX - block->bytes - LIVE_MAP_UNIT ||
		    unit_down(block->address) != block->address)
			return;
		take_range(&follows[number], TRACE_freed, block->address, block->address + block->bytes, 0);
	}
	note(digest, &follows[number], (unsigned)number, digest_since(digest, event->time));
}

/* Returns false without memory. */
static bool share_move(struct digest *digest, const struct follow *follows, uint32_t number)
{
	const struct digest_move *move = &digest->moves[number];
	const struct follow *follow = move->device < DIGEST_DEVICES ? &follows[move->device] : NULL;
	struct live_site sites[SITES_MOST];

	if (!follow || !follow->map || move->end == UINT64_MAX || move->stayed || move->block == TRACE_NONE ||
	    move->address < follow->low || move->address >= follow->high || move->bytes > follow->high - move->address)
		return true;
	uint64_t begin = move->address - follow->low;
	unsigned n = live_map_sites(follow->map, begin, begin + move->bytes, sites, SITES_MOST);
	for (unsigned i = 0; i < n; i++) {
		if (!grow(&digest->shares, digest->n_shares, &digest->shares_room, sizeof(*digest->shares)))
			return false;
		digest->shares[digest->n_shares++] = (struct digest_share){number, sites[i].site, sites[i].bytes};
	}
	return true;
}

bool digest_alive_find(struct digest *digest)
{
	const struct trace *trace = digest->trace;
	struct follow *follows = digest_zeros(DIGEST_DEVICES, sizeof(*follows));
	bool good = follows && spans_find(digest, follows);
	size_t devices = 0;
	uint32_t n_moves = 0; /* digest->moves has them in the order of their events */

	for (unsigned i = 0; good && i < DIGEST_DEVICES; i++) {
		digest->devices[i].tells_alive = follows[i].map != NULL;
		devices += follows[i].map != NULL;
	}
	if (good && devices) {
		/* Two for each pause, and the last one. */
		digest->moments = digest_zeros(devices * (2 * DIGEST_MOMENTS + 4), sizeof(*digest->moments));
		good = digest->moments != NULL;
	}
	for (size_t i = 0; good && devices && i < trace->n_rows; i++)
		if (trace->rows[i].event.kind == TRACE_move)
			good = share_move(digest, follows, n_moves++);
		else if (is_of_allocator(trace->rows[i].event.kind) ||
			 (trace->rows[i].event.kind == TRACE_freed && trace->rows[i].which < trace->n_blocks))
			alive_take(digest, follows, &trace->rows[i]);
	for (unsigned i = 0; follows && i < DIGEST_DEVICES; i++) {
		if (good && follows[i].map) {
			fill(digest, &digest->devices[i], &follows[i], digest->run_ns);
			if (follows[i].any && !follows[i].is_written)
				write_moment(digest, &follows[i]);
		}
		live_map_free(follows[i].map);
	}
	free(follows);
	return good;
}
