/*
 * The digest as JSON; its keys are described in spillway-report(1), and a test compares the two. The page (report_html.c)
 * reads the same text, so texts are written fit to stand in HTML, too.
 */
#include "tools/common/json.h"
#include "tools/report/report.h"
#include "tools/common/units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_SHOWN = 1000, VALUE_ROOM = 4096 };

/* Nothing has been written behind the last opening bracket: no comma is needed. */
static bool fresh;

static void next(const char *name)
{
	if (!fresh)
		putchar(',');
	fresh = false;
	if (name)
		printf("\n\"%s\": ", name);
}

static void open_with(const char *name, char bracket)
{
	next(name);
	putchar(bracket);
	fresh = true;
}

static void close_with(char bracket)
{
	putchar(bracket);
	fresh = false;
}

static void number(const char *name, uint64_t value)
{
	next(name);
	printf("%" PRIu64, value);
}

static void number_or_null(const char *name, uint64_t value, bool known)
{
	next(name);
	if (known)
		printf("%" PRIu64, value);
	else
		printf("null");
}

static void truth(const char *name, bool value)
{
	next(name);
	printf(value ? "true" : "false");
}

static void text(const char *name, const char *value)
{
	next(name);
	json_script_text(value);
}

static void put_file(const struct trace *trace)
{
	open_with("file", '{');
	text("path", trace->path);
	number("bytes", trace->bytes);
	number("events", trace->n_rows);
	number("lost_events", trace->n_lost);
	truth("ended", trace->ended);
	truth("cut", trace->cut);
	truth("damaged", trace->damaged);
	text("problem", trace->damaged ? trace->problem : NULL);
	close_with('}');
}

static void put_process(const struct trace *trace)
{
	static const char *const keys[] = {"pid",    "host",        "rank", "command",
					   "policy", "policy_hash", "mode", "spillway"};
	char *room = malloc(VALUE_ROOM), date[UNITS_TEXT];

	open_with("process", '{');
	for (size_t i = 0; room && i < sizeof(keys) / sizeof(*keys); i++) {
		trace_value(trace, keys[i], room, VALUE_ROOM);
		text(keys[i], *room ? room : NULL);
	}
	text("start", units_date(trace->start, date));
	number("start_ns", trace->start);
	close_with('}');
	free(room);
}

static void put_answer(const struct digest *digest)
{
	text("verdict", digest->verdict);
	number("run_ns", digest->run_ns);
	number("lost_ns", digest->lost_ns);
	open_with("costs", '[');
	for (unsigned i = 0; i < digest->n_costs; i++) {
		const struct digest_cost *cost = &digest->costs[i];

		open_with(NULL, '{');
		text("kind", digest_cost_name(cost->kind));
		number_or_null("ns", cost->ns, cost->known);
		text("evidence", cost->evidence);
		close_with('}');
	}
	close_with(']');
	open_with("advice", '[');
	for (unsigned i = 0; i < digest->n_advice; i++)
		text(NULL, digest->advice[i]);
	close_with(']');
	open_with("time", '{');
	number("waiting_ns", digest->wait_ns);
	number("gaps_ns", digest->gap_ns);
	number("suspended_ns", digest->suspended_ns);
	number("allocating_ns", digest->ask_ns);
	number("link_ns", digest->link_ns);
	close_with('}');
}

/* ---- devices ---- */

static void put_faults(const struct digest_device *device)
{
	if (!device->faults_known) {
		text("faults", NULL);
		return;
	}
	open_with("faults", '{');
	number("gpu", device->faults_gpu);
	number("cpu", device->faults_cpu);
	number("bytes_in", device->fault_in);
	number("bytes_out", device->fault_out);
	close_with('}');
}

static void put_step_times(const struct digest_device *device)
{
	if (!device->n_steps) {
		text("step_time", NULL);
		return;
	}
	open_with("step_time", '{');
	number("n", device->n_steps);
	number("median_ns", device->step_median);
	number("least_ns", device->step_least);
	number("most_ns", device->step_most);
	close_with('}');
}

static void put_row(const struct digest *digest, const struct digest_device *device, const char *name, size_t at)
{
	open_with(name, '[');
	for (size_t i = 0; i < digest->n_bins; i++)
		number(NULL, *(const uint64_t *)((const char *)&device->bins[i] + at));
	close_with(']');
}

/* Of other devices, which older traces do not tell; what is lent samples alone say. */
static void put_peer_series(const struct digest *digest, const struct digest_device *device)
{
	static const struct {
		const char *name;
		size_t at;
		bool sampled;
	} rows[] = {
	    {"on_peers", offsetof(struct digest_bin, peers), false},
	    {"lent", offsetof(struct digest_bin, lent), true},
	    {"peer_bytes_in", offsetof(struct digest_bin, peer_in), false},
	    {"peer_bytes_out", offsetof(struct digest_bin, peer_out), false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (digest->trace->tells_peers && (!rows[i].sampled || device->sampled))
			put_row(digest, device, rows[i].name, rows[i].at);
		else
			text(rows[i].name, NULL);
}

static void put_series(const struct digest *digest, const struct digest_device *device)
{
	static const struct {
		const char *name;
		size_t at;
	} rows[] = {
	    {"on_device", offsetof(struct digest_bin, device)},
	    {"on_host", offsetof(struct digest_bin, host)},
	    {"managed", offsetof(struct digest_bin, managed)},
	    {"system", offsetof(struct digest_bin, system)},
	    {"driver", offsetof(struct digest_bin, driver)},
	    {"budget", offsetof(struct digest_bin, budget)},
	    {"bytes_in", offsetof(struct digest_bin, bytes_in)},
	    {"bytes_out", offsetof(struct digest_bin, bytes_out)},
	    {"gap_ns", offsetof(struct digest_bin, gap_ns)},
	    {"wait_ns", offsetof(struct digest_bin, wait_ns)},
	    {"waiting_ns", offsetof(struct digest_bin, waiting_ns)},
	    {"submits", offsetof(struct digest_bin, submits)},
	    {"faults_gpu", offsetof(struct digest_bin, faults_gpu)},
	    {"faults_cpu", offsetof(struct digest_bin, faults_cpu)},
	    {"fault_in", offsetof(struct digest_bin, fault_in)},
	    {"fault_out", offsetof(struct digest_bin, fault_out)},
	};

	open_with("series", '{');
	number("bin_ns", digest->bin_ns);
	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++)
		put_row(digest, device, rows[row].name, rows[row].at);
	put_peer_series(digest, device);
	close_with('}');
}

static void put_cells(const char *name, const uint8_t *cells, size_t n)
{
	next(name);
	putchar('"');
	for (size_t i = 0; i < n; i++) {
		putchar("0123456789abcdef"[cells[i] >> 4]);
		putchar("0123456789abcdef"[cells[i] & 15]);
	}
	putchar('"');
}

static void put_map(const struct digest_map *map)
{
	char address[24];

	if (!map->rows) {
		text("map", NULL);
		return;
	}
	open_with("map", '{');
	number("rows", map->rows);
	number("columns", map->columns);
	number("row_bytes", map->row_bytes);
	number("column_ns", map->column_ns);
	open_with("addresses", '[');
	for (uint32_t i = 0; i < map->rows; i++) {
		snprintf(address, sizeof(address), "0x%" PRIx64, map->address[i]);
		text(NULL, address);
	}
	close_with(']');
	open_with("backends", '[');
	for (uint32_t i = 0; i < map->rows; i++)
		text(NULL, digest_backend_name(map->backend[i]));
	close_with(']');
	put_cells("used", map->used, (size_t)map->rows * map->columns);
	put_cells("host", map->host, (size_t)map->rows * map->columns);
	close_with('}');
}

static void put_device(const struct digest *digest, unsigned which)
{
	const struct digest_device *device = &digest->devices[which];
	bool tells_peers = digest->trace->tells_peers;

	open_with(NULL, '{');
	number("device", which);
	truth("sampled", device->sampled);
	text("name", *device->name ? device->name : NULL);
	number_or_null("memory", device->total, device->total != 0);
	number_or_null("budget", device->budget, device->budget != 0);
	open_with("most", '{');
	number("on_device", device->device);
	number("on_host", device->host);
	number("managed", device->managed);
	number("system", device->system);
	number("driver", device->driver);
	number("together", device->need);
	number_or_null("on_host_alone", device->host_alone, tells_peers);
	number_or_null("on_peers", device->peers, tells_peers);
	number_or_null("lent", device->lent, tells_peers && device->sampled);
	close_with('}');
	number("on_host_ns", device->over_ns);
	number("moves_in", device->moves_in);
	number("moves_out", device->moves_out);
	number("bytes_in", device->bytes_in);
	number("bytes_out", device->bytes_out);
	number_or_null("peer_bytes_in", device->peer_in, tells_peers);
	number_or_null("peer_bytes_out", device->peer_out, tells_peers);
	number("gaps", device->gaps);
	number("gaps_given_up", device->gaps_given_up);
	number("gap_ns", device->gap_ns);
	number("waits", device->waits);
	number("wait_ns", device->wait_ns);
	number("waiting_ns", device->waiting_ns);
	put_faults(device);
	put_step_times(device);
	put_series(digest, device);
	put_map(&device->map);
	close_with('}');
}

/* ---- tables ---- */

static void put_sums(const struct digest_group *group)
{
	number("allocations", group->allocations);
	number("refused", group->refused);
	number("bytes", group->bytes);
	number("peak", group->peak);
	number("live", group->live);
	number("on_host", group->on_host);
	number("moves_in", group->moves_in);
	number("moves_out", group->moves_out);
	number("bytes_in", group->bytes_in);
	number("bytes_out", group->bytes_out);
	number("refetches", group->refetches);
	number("submits", group->submits);
	number("faults", group->faults);
	number("wait_ns", group->wait_ns);
}

static void put_table(const struct digest *digest, const char *name, enum digest_by by)
{
	const struct digest_table *table = &digest->tables[by];
	char made[64];

	open_with(name, '[');
	for (size_t i = 0; i < table->n && i < REPORT_LIST; i++) {
		open_with(NULL, '{');
		text("name", digest_group_name(digest, by, table->groups[i].number, made, sizeof(made)));
		put_sums(&table->groups[i]);
		close_with('}');
	}
	close_with(']');
}

static void put_allocation(const struct digest *digest, uint32_t which)
{
	const struct trace_block *block = &digest->trace->blocks[which];
	char made[64];

	open_with(NULL, '{');
	number("id", block->id);
	number("device", block->device);
	number("bytes", block->bytes);
	text("backend", digest_backend_name(block->backend));
	text("rule", digest_group_name(digest, DIGEST_BY_RULE, digest_group_of(digest, DIGEST_BY_RULE, block), made,
				       sizeof(made)));
	text("site", digest_group_name(digest, DIGEST_BY_SITE, digest_group_of(digest, DIGEST_BY_SITE, block), made,
				       sizeof(made)));
	number("made_ns", block->made - digest->trace->first);
	number_or_null("freed_ns", block->freed - digest->trace->first, block->freed != UINT64_MAX);
	number("bytes_in", block->bytes_in);
	number("bytes_out", block->bytes_out);
	number("submits", block->submits);
	number("wait_ns", digest->block_wait_ns[which]);
	close_with('}');
}

static void put_lists(const struct digest *digest)
{
	uint32_t blocks[REPORT_LIST];
	size_t n = report_blocks(digest, blocks, REPORT_LIST), every = digest->n_steps / STEPS_SHOWN + 1;

	open_with("largest", '[');
	for (size_t i = 0; i < n; i++)
		put_allocation(digest, blocks[i]);
	close_with(']');
	open_with("functions", '[');
	for (size_t i = 0; i < digest->n_functions && i < REPORT_LIST; i++) {
		const struct digest_function *function = &digest->functions[i];

		open_with(NULL, '{');
		text("name", trace_text(digest->trace, TRACE_FUNCTIONS, function->number));
		number("submits", function->submits);
		number("waits", function->waits);
		number("wait_ns", function->wait_ns);
		close_with('}');
	}
	close_with(']');
	open_with("steps", '[');
	for (size_t i = 0; i < digest->n_steps; i += every) {
		open_with(NULL, '{');
		number("device", digest->steps[i].device);
		number("time_ns", digest->steps[i].time);
		number_or_null("ns", digest->steps[i].ns, digest->steps[i].ns != 0);
		number("submits", digest->steps[i].submissions);
		close_with('}');
	}
	close_with(']');
	open_with("idle_rules", '[');
	for (size_t i = 0; i < digest->n_idle_rules && i < REPORT_LIST; i++)
		text(NULL, trace_text(digest->trace, TRACE_RULES, digest->idle_rules[i]));
	close_with(']');
}

static void put_reasons(const char *name, const uint64_t bytes[TRACE_WHYS])
{
	open_with(name, '{');
	for (unsigned why = 0; why < TRACE_WHYS; why++)
		number(digest_why_name(why), bytes[why]);
	close_with('}');
}

static void put_moves(const struct digest *digest)
{
	open_with("moves", '{');
	number("n", digest->n_moves);
	number("stayed", digest->moves_stayed);
	number("open", digest->moves_open);
	put_reasons("in_by_reason", digest->move_why[0]);
	put_reasons("out_by_reason", digest->move_why[1]);
	close_with('}');
}

static void put_links(const struct digest *digest)
{
	open_with("links", '[');
	for (size_t i = 0; i < digest->n_links; i++) {
		const struct digest_link *link = &digest->links[i];

		open_with(NULL, '{');
		number("device", link->device);
		number_or_null("lender", link->lender, link->lender != DIGEST_HOST);
		number("moves_in", link->moves_in);
		number("moves_out", link->moves_out);
		number("bytes_in", link->bytes_in);
		number("bytes_out", link->bytes_out);
		number("in_ns", link->in_ns);
		number("out_ns", link->out_ns);
		close_with('}');
	}
	close_with(']');
}

static void put_curve(const struct digest *digest)
{
	if (!digest->n_curve) {
		text("what_if", NULL);
		return;
	}
	open_with("what_if", '{');
	number("peak", digest->peak);
	number("submits", digest->curve_submits);
	number("ns", digest->curve_ns);
	number_or_null("steps", digest->curve_steps, digest->curve_steps != 0);
	open_with("points", '[');
	for (unsigned i = 0; i < digest->n_curve; i++) {
		open_with(NULL, '{');
		number("percent", digest->curve[i].percent);
		number("budget", digest->curve[i].budget);
		number("bytes_in", digest->curve[i].bytes_in);
		number("bytes_out", digest->curve[i].bytes_out);
		number("over", digest->curve[i].over);
		close_with('}');
	}
	close_with(']');
	close_with('}');
}

static void put_run(const struct digest *digest)
{
	static const char *const tables[DIGEST_TABLES] = {"rules", "sites", "sizes", "lives", "move_counts"};

	open_with(NULL, '{');
	number("schema", 1);
	put_file(digest->trace);
	put_process(digest->trace);
	put_answer(digest);
	open_with("devices", '[');
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		if (digest->devices[i].seen)
			put_device(digest, i);
	close_with(']');
	put_moves(digest);
	put_links(digest);
	open_with("total", '{');
	put_sums(&digest->total);
	close_with('}');
	for (int by = 0; by < DIGEST_TABLES; by++)
		put_table(digest, tables[by], (enum digest_by)by);
	put_lists(digest);
	put_curve(digest);
	close_with('}');
}

void report_json(const struct digest *digest)
{
	fresh = true;
	put_run(digest);
	putchar('\n');
}

void report_compare_json(const struct digest *digests, size_t n)
{
	fresh = true;
	open_with(NULL, '[');
	for (size_t i = 0; i < n; i++)
		put_run(&digests[i]);
	close_with(']');
	putchar('\n');
}
