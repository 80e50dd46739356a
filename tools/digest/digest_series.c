// SPDX-License-Identifier: Apache-2.0
/*
 * Figures over time, in bins. Bytes by place come from the samples in the trace, or for a device without samples from
 * its allocations and moves. A bin shows the moment with the highest total, so that peaks do not vanish between two
 * points.
 */
#include "tools/common/grow.h"
#include "tools/digest/digest_part.h"
#include "shim/plan/live_map.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

static uint64_t need_of(const struct digest_bin *bin)
{
	return bin->device + bin->host + bin->managed + bin->system + bin->driver;
}

static size_t bin_of(const struct digest *digest, uint64_t time)
{
	size_t bin = (size_t)(time / digest->bin_ns);

	return bin < digest->n_bins ? bin : digest->n_bins - 1;
}

/*
 * Finds the devices with samples. In a process with several devices, the samples of one may be sums over all; they are
 * not used if a device with allocations has no samples.
 */
static void samples_find(struct digest *digest)
{
	const struct trace *trace = digest->trace;
	bool has_blocks[DIGEST_DEVICES] = {false}, some = false;

	for (size_t i = 0; i < trace->n_rows; i++)
		if (trace->rows[i].event.kind == TRACE_bytes && trace->rows[i].event.bytes.device < DIGEST_DEVICES)
			digest->devices[trace->rows[i].event.bytes.device].sampled = true;
	for (size_t i = 0; i < trace->n_blocks; i++)
		if (trace->blocks[i].device < DIGEST_DEVICES)
			has_blocks[trace->blocks[i].device] = true;
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		some |= has_blocks[i] && !digest->devices[i].sampled;
	for (unsigned i = 0; some && i < DIGEST_DEVICES; i++)
		digest->devices[i].sampled = false;
}

bool digest_series_begin(struct digest *digest, struct digest_places *places)
{
	memset(places, 0, sizeof(*places));
	samples_find(digest);
	places->on_host = calloc(digest->trace->n_blocks, sizeof(*places->on_host));
	places->on_peers = calloc(digest->trace->n_blocks, sizeof(*places->on_peers));
	places->bytes = calloc(digest->trace->n_blocks, sizeof(*places->bytes));
	return places->on_host && places->on_peers && places->bytes;
}

static struct digest_bin *bins_of(struct digest *digest, struct digest_device *device)
{
	if (!device->bins)
		device->bins = calloc(digest->n_bins, sizeof(*device->bins));
	return device->bins;
}

static void series_most(uint64_t *peak, uint64_t value)
{
	if (value > *peak)
		*peak = value;
}

/* Adds the present state for the time since the last call. */
static void places_until(struct digest *digest, struct digest_places *places, unsigned number, uint64_t time)
{
	struct digest_device *device = &digest->devices[number];
	const struct digest_bin *now = &places->now[number];

	if (!bins_of(digest, device))
		return;
	for (size_t bin = bin_of(digest, places->since[number]); bin <= bin_of(digest, time); bin++)
		if (need_of(now) >= need_of(&device->bins[bin]))
			/* The bytes by place stand first. */
			memcpy(&device->bins[bin], now, offsetof(struct digest_bin, bytes_in));
	if (now->host)
		device->over_ns += time - places->since[number];
	series_most(&device->device, now->device);
	series_most(&device->host, now->host);
	series_most(&device->host_alone, now->host - now->peers);
	series_most(&device->peers, now->peers);
	series_most(&device->lent, now->lent);
	series_most(&device->managed, now->managed);
	series_most(&device->system, now->system);
	series_most(&device->driver, now->driver);
	places->since[number] = time;
}

static void take_sample(struct digest *digest, struct digest_places *places, const struct trace_event *event)
{
	unsigned number = (unsigned)event->bytes.device;

	places_until(digest, places, number, digest_since(digest, event->time));
	places->now[number] = (struct digest_bin){
	    .device = event->bytes.on_device,
	    .host = event->bytes.on_host,
	    .managed = event->bytes.managed,
	    .system = event->bytes.system,
	    .driver = event->bytes.driver,
	    .peers = event->bytes.on_peers < event->bytes.on_host ? event->bytes.on_peers : event->bytes.on_host,
	    .lent = event->bytes.lent,
	    .budget = event->bytes.budget,
	};
	if (event->bytes.budget)
		digest->devices[number].budget = event->bytes.budget;
	/* The sampled state held at this moment, even if the next sample follows at once. */
	places_until(digest, places, number, digest_since(digest, event->time));
}

static uint64_t *place_of(struct digest_bin *now, uint32_t backend)
{
	switch (backend) {
	case POLICY_USE_HEAP:
		return &now->device;
	case POLICY_USE_MANAGED:
		return &now->managed;
	case POLICY_USE_SYSTEM:
		return &now->system;
	default:
		return &now->driver;
	}
}

/* Sets a block's bytes and the part of them on the host; the latter only of a device without samples. */
static void block_becomes(struct digest *digest, struct digest_places *places, uint32_t which, uint64_t time,
			  uint64_t bytes, uint64_t on_host, uint64_t on_peers)
{
	const struct trace_block *block = &digest->trace->blocks[which];
	struct digest_bin *now;

	if (block->device >= DIGEST_DEVICES)
		return;
	if (digest->devices[block->device].sampled) {
		places->bytes[which] = bytes;
		return;
	}
	now = &places->now[block->device];
	uint64_t *place = place_of(now, block->backend);
	on_host = on_host < bytes ? on_host : bytes;
	on_peers = on_peers < on_host ? on_peers : on_host;
	places_until(digest, places, block->device, time);
	*place = *place - (places->bytes[which] - places->on_host[which]) + (bytes - on_host);
	now->host = now->host - places->on_host[which] + on_host;
	now->peers = now->peers - places->on_peers[which] + on_peers;
	places->bytes[which] = bytes;
	places->on_host[which] = on_host;
	places->on_peers[which] = on_peers;
	places_until(digest, places, block->device, time);
}

static void take_faults(struct digest *digest, struct digest_places *places, const struct trace_event *event)
{
	struct digest_device *device = digest_device(digest, event->faults.device);
	const uint64_t now[4] = {event->faults.gpu, event->faults.cpu, event->faults.bytes_in, event->faults.bytes_out};
	uint64_t *base, more[4];

	digest->events_lost = event->faults.lost;
	if (!device || !bins_of(digest, device))
		return;
	base = places->fault_base[event->faults.device];
	for (int i = 0; i < 4; i++) {
		more[i] = now[i] > base[i] ? now[i] - base[i] : 0;
		base[i] = now[i];
	}
	struct digest_bin *bin = &device->bins[bin_of(digest, digest_since(digest, event->time))];
	bin->faults_gpu += more[0];
	bin->faults_cpu += more[1];
	bin->fault_in += more[2];
	bin->fault_out += more[3];
	device->faults_known = true;
	device->faults_gpu = now[0];
	device->faults_cpu = now[1];
	device->fault_in = now[2];
	device->fault_out = now[3];
}

/* Distributes the time from begin to end over the bins that it covers. figure: offset of the sum in a bin. */
static void series_spread(struct digest *digest, struct digest_device *device, uint64_t begin, uint64_t end,
			  size_t figure)
{
	if (!bins_of(digest, device))
		return;
	for (size_t i = bin_of(digest, begin); i <= bin_of(digest, end); i++) {
		uint64_t from = i * digest->bin_ns, to = from + digest->bin_ns;
		uint64_t ns = (end < to ? end : to) - (begin > from ? begin : from);

		if (end > begin && to > begin && end > from)
			*(uint64_t *)(void *)((char *)&device->bins[i] + figure) += ns;
	}
}

/* places: spans of waits, and of waits and gaps, of that device so far; time that they cover was already counted. */
static void take_time(struct digest *digest, struct digest_places *places, const struct trace_event *event)
{
	bool gap = event->kind == TRACE_gap;
	struct digest_cover *lost;
	struct digest_device *device = digest_device(digest, gap ? event->gap.device : event->wait.device);
	uint64_t begin = digest_since(digest, event->time);
	uint64_t end = digest_end(digest, begin, gap ? event->gap.ns : event->wait.ns);

	if (!device)
		return;
	lost = &places->lost[gap ? event->gap.device : event->wait.device];
	if (gap) {
		series_spread(digest, device, begin, end, offsetof(struct digest_bin, gap_ns));
		device->gaps++;
		device->gaps_given_up += event->gap.given_up != 0;
		device->gap_ns += end - begin;
	} else {
		struct digest_cover *waits = &places->waits[event->wait.device];

		series_spread(digest, device, begin, end, offsetof(struct digest_bin, wait_ns));
		series_spread(digest, device, begin > waits->until ? begin : waits->until, end,
			      offsetof(struct digest_bin, waiting_ns));
		digest_cover_add(waits, begin, end);
		device->waits++;
		device->wait_ns += end - begin;
		device->waiting_ns = waits->total;
	}
	series_spread(digest, device, begin > lost->until ? begin : lost->until, end,
		      offsetof(struct digest_bin, lost_ns));
	digest_cover_add(lost, begin, end);
	device->lost_ns = lost->total;
}

void digest_series_event(struct digest *digest, struct digest_places *places, const struct trace_row *row)
{
	const struct trace_event *event = &row->event;
	uint64_t time = digest_since(digest, event->time);
	bool known = row->which < digest->trace->n_blocks;
	struct digest_device *device;

	if (event->kind == TRACE_bytes) {
		if (digest_device(digest, event->bytes.device) && digest->devices[event->bytes.device].sampled)
			take_sample(digest, places, event);
	} else if (event->kind == TRACE_faults) {
		take_faults(digest, places, event);
	} else if (event->kind == TRACE_made) {
		digest_device(digest, event->made.device);
		if (known)
			block_becomes(digest, places, row->which, time, event->made.bytes, event->made.on_host,
				      digest->trace->blocks[row->which].on_peers);
	} else if (event->kind == TRACE_grown) {
		if (known && places->bytes[row->which])
			block_becomes(digest, places, row->which, time, event->grown.bytes, places->on_host[row->which],
				      places->on_peers[row->which]);
	} else if (event->kind == TRACE_freed && known) {
		block_becomes(digest, places, row->which, time, 0, 0, 0);
	} else if (event->kind == TRACE_gap || event->kind == TRACE_wait) {
		take_time(digest, places, event);
	} else if (event->kind == TRACE_submit) {
		device = digest_device(digest, event->submit.device);
		if (device && bins_of(digest, device))
			device->bins[bin_of(digest, time)].submits++;
	}
}

/* Changes a counter of bytes; it never becomes negative. */
static void series_change(uint64_t *bytes, uint64_t more, uint64_t less)
{
	*bytes += more;
	*bytes -= less < *bytes ? less : *bytes;
}

void digest_series_moved(struct digest *digest, struct digest_places *places, const struct digest_move *move)
{
	struct digest_device *device = digest_device(digest, move->device);
	bool away = move->left != DIGEST_HOST, lent = move->lender != DIGEST_HOST;
	uint64_t on_host, on_peers;

	if (!device || !bins_of(digest, device))
		return;
	struct digest_bin *bin = &device->bins[bin_of(digest, move->end)];
	*(move->to_host ? &bin->bytes_out : &bin->bytes_in) += move->bytes;
	*(move->to_host ? &device->bytes_out : &device->bytes_in) += move->bytes;
	*(move->to_host ? &device->moves_out : &device->moves_in) += 1;
	*(move->to_host ? &device->uncopied_out : &device->uncopied_in) += move->uncopied;
	if (lent) {
		*(move->to_host ? &bin->peer_out : &bin->peer_in) += move->bytes;
		*(move->to_host ? &device->peer_out : &device->peer_in) += move->bytes;
	}
	if (move->block == TRACE_NONE || !places->bytes[move->block])
		return;
	on_host = places->on_host[move->block];
	on_peers = places->on_peers[move->block];
	series_change(&on_host, move->to_host && !away ? move->bytes : 0, move->to_host ? 0 : move->bytes);
	series_change(&on_peers, move->to_host && lent ? move->bytes : 0,
		      away || (lent && !move->to_host) ? move->bytes : 0);
	block_becomes(digest, places, move->block, move->end, places->bytes[move->block], on_host, on_peers);
}

void digest_series_end(struct digest *digest, struct digest_places *places)
{
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		if (digest->devices[i].seen)
			places_until(digest, places, i, digest->run_ns);
}

void digest_series_free(struct digest_places *places)
{
	FREE_ALL(places->on_host, places->on_peers, places->bytes);
}

/*
 * What is alive of what the program's allocator keeps, over time: follows births and deaths (live_map.h). A death
 * counts at once here, whether or not the library may take it for one yet. A bin shows the moment at which most was
 * alive. Of each move it says which lines the tensors were born at that were alive in the piece when it began.
 */

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
	size_t last = bin_of(digest, time);

	for (; device->bins && follow->bin <= last; follow->bin++)
		show(&device->bins[follow->bin], &follow->now, true);
	if (device->bins)
		show(&device->bins[last], &follow->now, false);
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
	series_most(&device->cache, sums.reported);
	series_most(&device->cache_alive, sums.alive);
	series_most(&device->cache_dead, sums.dead);
	if (first || time - follow->written >= apart(digest))
		write_moment(digest, follow);
}

/* ---- events ---- */

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
		uint64_t site = event->kind == TRACE_born ? event->born.site : 0;

		if (number >= DIGEST_DEVICES || !follows[number].map)
			return;
		if (site >= digest->trace->n_names[TRACE_SITES] || site > UINT16_MAX)
			site = 0;
		if (event->kind == TRACE_doubted && !event->doubted.bytes)
			live_map_distrust_reported(follows[number].map);
		else if (range_of(event, &begin, &end))
			take_range(&follows[number], event->kind, begin, end, (uint16_t)site);
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
	struct follow *follows = calloc(DIGEST_DEVICES, sizeof(*follows));
	bool good = follows && spans_find(digest, follows);
	size_t devices = 0;
	uint32_t n_moves = 0; /* digest->moves has them in the order of their events */

	for (unsigned i = 0; good && i < DIGEST_DEVICES; i++) {
		digest->devices[i].tells_alive = follows[i].map != NULL;
		devices += follows[i].map != NULL;
	}
	if (good && devices) {
		/* Two for each pause, and the last one. */
		digest->moments = calloc(devices * (2 * DIGEST_MOMENTS + 4), sizeof(*digest->moments));
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
