// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the digest as JSON. spillway-report(1) describes its keys, and a test compares the two. The page
 * embeds the same text, so texts are escaped for HTML, too.
 */
#include "tools/common/json.h"
#include "tools/common/units.h"
#include "tools/report/report.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLED_BY " < " /* between the callers of a site: spillway-trace(5) */
enum { STEPS_SHOWN = 1000, VALUE_ROOM = 4096 };

static void put_file(struct json *json, const struct trace *trace)
{
	json_open(json, "file", '{');
	json_text(json, "path", trace->path);
	JSON_NUMBERS(json, {"bytes", trace->bytes}, {"events", trace->n_rows}, {"lost_events", trace->n_lost});
	json_truth(json, "ended", trace->ended);
	json_truth(json, "cut", trace->cut);
	json_truth(json, "damaged", trace->damaged);
	json_text(json, "problem", trace->damaged ? trace->problem : NULL);
	json_close(json, '}');
}

static void put_process(struct json *json, const struct trace *trace)
{
	static const char *const keys[] = {"pid",     "host",   "rank",        "local_rank", "ranks",   "job",
					   "command", "policy", "policy_hash", "mode",       "spillway"};
	char *room = malloc(VALUE_ROOM);

	json_open(json, "process", '{');
	for (size_t i = 0; room && i < sizeof(keys) / sizeof(*keys); i++) {
		trace_value(trace, keys[i], room, VALUE_ROOM);
		json_text(json, keys[i], *room ? room : NULL);
	}
	json_text(json, "start", text_date(trace->start));
	json_number(json, "start_ns", trace->start);
	json_close(json, '}');
	free(room);
}

static void put_answer(struct json *json, const struct digest *digest)
{
	json_text(json, "verdict", digest->verdict);
	json_number(json, "run_ns", digest->run_ns);
	json_number(json, "lost_ns", digest->lost_ns);
	json_open(json, "costs", '[');
	for (unsigned i = 0; i < digest->n_costs; i++) {
		const struct digest_cost *cost = &digest->costs[i];

		json_open(json, NULL, '{');
		json_text(json, "kind", digest_cost_names[cost->kind]);
		json_number_or_null(json, "ns", cost->ns, cost->known);
		json_text(json, "evidence", cost->evidence);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_open(json, "advice", '[');
	for (unsigned i = 0; i < digest->n_advice; i++)
		json_text(json, NULL, digest->advice[i]);
	json_close(json, ']');
	JSON_OBJECT(json, "time", {"waiting_ns", digest->wait_ns}, {"gaps_ns", digest->gap_ns},
		    {"both_ns", digest->both_ns}, {"suspended_ns", digest->suspended_ns},
		    {"allocating_ns", digest->ask_ns}, {"link_ns", digest->link_ns});
}

/* ---- devices ---- */

static void put_row(struct json *json, const struct digest *digest, const struct digest_device *device,
		    const char *name, size_t at)
{
	json_open(json, name, '[');
	for (size_t i = 0; i < digest->n_bins; i++)
		json_number(json, NULL, *(const uint64_t *)((const char *)&device->bins[i] + at));
	json_close(json, ']');
}

static void put_series(struct json *json, const struct digest *digest, const struct digest_device *device)
{
	/* Older traces tell nothing of other devices, lent bytes are known only from samples. */
	const bool peers = digest->trace->tells_peers, lent = peers && device->sampled, alive = device->tells_alive;
	const struct {
		const char *name;
		size_t at;
		bool known;
	} rows[] = {
	    {"on_device", offsetof(struct digest_bin, device), true},
	    {"on_host", offsetof(struct digest_bin, host), true},
	    {"managed", offsetof(struct digest_bin, managed), true},
	    {"system", offsetof(struct digest_bin, system), true},
	    {"driver", offsetof(struct digest_bin, driver), true},
	    {"budget", offsetof(struct digest_bin, budget), true},
	    {"bytes_in", offsetof(struct digest_bin, bytes_in), true},
	    {"bytes_out", offsetof(struct digest_bin, bytes_out), true},
	    {"gap_ns", offsetof(struct digest_bin, gap_ns), true},
	    {"wait_ns", offsetof(struct digest_bin, wait_ns), true},
	    {"waiting_ns", offsetof(struct digest_bin, waiting_ns), true},
	    {"lost_ns", offsetof(struct digest_bin, lost_ns), true},
	    {"submits", offsetof(struct digest_bin, submits), true},
	    {"faults_gpu", offsetof(struct digest_bin, faults_gpu), true},
	    {"faults_cpu", offsetof(struct digest_bin, faults_cpu), true},
	    {"fault_in", offsetof(struct digest_bin, fault_in), true},
	    {"fault_out", offsetof(struct digest_bin, fault_out), true},
	    {"on_peers", offsetof(struct digest_bin, peers), peers},
	    {"lent", offsetof(struct digest_bin, lent), lent},
	    {"peer_bytes_in", offsetof(struct digest_bin, peer_in), peers},
	    {"peer_bytes_out", offsetof(struct digest_bin, peer_out), peers},
	    {"cache", offsetof(struct digest_bin, cache), alive},
	    {"cache_alive", offsetof(struct digest_bin, cache_alive), alive},
	    {"cache_dead", offsetof(struct digest_bin, cache_dead), alive},
	};

	json_open(json, "series", '{');
	json_number(json, "bin_ns", digest->bin_ns);
	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++)
		if (rows[row].known)
			put_row(json, digest, device, rows[row].name, rows[row].at);
		else
			json_text(json, rows[row].name, NULL);
	json_close(json, '}');
}

static void put_device(struct json *json, const struct digest *digest, unsigned which)
{
	const struct digest_device *device = &digest->devices[which];
	bool tells_peers = digest->trace->tells_peers;

	json_open(json, NULL, '{');
	json_number(json, "device", which);
	json_truth(json, "sampled", device->sampled);
	json_text(json, "name", *device->name ? device->name : NULL);
	JSON_NUMBERS(json, {"memory", device->total ? device->total : JSON_UNKNOWN},
		     {"budget", device->budget ? device->budget : JSON_UNKNOWN});
	JSON_OBJECT(json, "most", {"on_device", device->device}, {"on_host", device->host},
		    {"managed", device->managed}, {"system", device->system}, {"driver", device->driver},
		    {"together", device->need}, {"on_host_alone", tells_peers ? device->host_alone : JSON_UNKNOWN},
		    {"on_peers", tells_peers ? device->peers : JSON_UNKNOWN},
		    {"lent", tells_peers && device->sampled ? device->lent : JSON_UNKNOWN},
		    {"cache", device->tells_alive ? device->cache : JSON_UNKNOWN},
		    {"cache_alive", device->tells_alive ? device->cache_alive : JSON_UNKNOWN},
		    {"cache_dead", device->tells_alive ? device->cache_dead : JSON_UNKNOWN});
	JSON_NUMBERS(json, {"on_host_ns", device->over_ns}, {"moves_in", device->moves_in},
		     {"moves_out", device->moves_out}, {"bytes_in", device->bytes_in}, {"bytes_out", device->bytes_out},
		     {"peer_bytes_in", tells_peers ? device->peer_in : JSON_UNKNOWN},
		     {"peer_bytes_out", tells_peers ? device->peer_out : JSON_UNKNOWN},
		     {"uncopied_bytes_in", digest->trace->tells_uncopied ? device->uncopied_in : JSON_UNKNOWN},
		     {"uncopied_bytes_out", digest->trace->tells_uncopied ? device->uncopied_out : JSON_UNKNOWN},
		     {"gaps", device->gaps}, {"gaps_given_up", device->gaps_given_up}, {"gap_ns", device->gap_ns},
		     {"waits", device->waits}, {"wait_ns", device->wait_ns}, {"waiting_ns", device->waiting_ns},
		     {"lost_ns", device->lost_ns});
	if (device->faults_known)
		JSON_OBJECT(json, "faults", {"gpu", device->faults_gpu}, {"cpu", device->faults_cpu},
			    {"bytes_in", device->fault_in}, {"bytes_out", device->fault_out});
	else
		json_text(json, "faults", NULL);
	if (device->n_steps)
		JSON_OBJECT(json, "step_time", {"n", device->n_steps}, {"median_ns", device->step_median},
			    {"least_ns", device->step_least}, {"most_ns", device->step_most});
	else
		json_text(json, "step_time", NULL);
	put_series(json, digest, device);
	json_close(json, '}');
}

/* ---- tables ---- */

static void put_sums(struct json *json, const struct digest_group *group)
{
	JSON_NUMBERS(json, {"allocations", group->allocations}, {"refused", group->refused}, {"bytes", group->bytes},
		     {"peak", group->peak}, {"live", group->live}, {"on_host", group->on_host},
		     {"moves_in", group->moves_in}, {"moves_out", group->moves_out}, {"bytes_in", group->bytes_in},
		     {"bytes_out", group->bytes_out}, {"refetches", group->refetches}, {"submits", group->submits},
		     {"faults", group->faults}, {"wait_ns", group->wait_ns}, {"tensors", group->tensors},
		     {"tensor_bytes", group->tensor_bytes}, {"managed_used", group->managed_used},
		     {"managed_touches", group->managed_touches}, {"managed_back", group->managed_back});
}

/* A chain of callers as a list; null if it is not known. */
static void put_callers(struct json *json, const char *callers)
{
	char name[VALUE_ROOM];

	if (!callers) {
		json_text(json, "callers", NULL);
		return;
	}
	json_open(json, "callers", '[');
	for (const char *end; *callers; callers = end) {
		end = strstr(callers, CALLED_BY);
		size_t n = end ? (size_t)(end - callers) : strlen(callers);
		snprintf(name, sizeof(name), "%.*s", (int)(n < sizeof(name) ? n : sizeof(name) - 1), callers);
		json_text(json, NULL, name);
		end = end ? end + strlen(CALLED_BY) : callers + n;
	}
	json_close(json, ']');
}

static void put_table(struct json *json, const struct digest *digest, const char *name, enum digest_by by)
{
	const struct digest_table *table = &digest->tables[by];
	char made[64];

	json_open(json, name, '[');
	for (size_t i = 0; i < table->n && i < REPORT_LIST; i++) {
		json_open(json, NULL, '{');
		json_text(json, "name", digest_group_name(digest, by, table->groups[i].number, made, sizeof(made)));
		if (by == DIGEST_BY_CALLS)
			put_callers(json, digest_callers(digest, table->groups[i].number));
		put_sums(json, &table->groups[i]);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void put_allocation(struct json *json, const struct digest *digest, uint32_t which)
{
	const struct trace_block *block = &digest->trace->blocks[which];
	char made[64];

	json_open(json, NULL, '{');
	JSON_NUMBERS(json, {"id", block->id}, {"device", block->device}, {"bytes", block->bytes});
	json_text(json, "backend", digest_backend_name(block->backend));
	for (int by = DIGEST_BY_RULE; by <= DIGEST_BY_SITE; by++) {
		uint64_t group = digest_group_of(digest, by, block->rule, block->site);

		json_text(json, digest_by_names[by], digest_group_name(digest, by, group, made, sizeof(made)));
	}
	JSON_NUMBERS(json, {"made_ns", block->made - digest->trace->first},
		     {"freed_ns", block->freed != UINT64_MAX ? block->freed - digest->trace->first : JSON_UNKNOWN},
		     {"bytes_in", block->bytes_in}, {"bytes_out", block->bytes_out}, {"submits", block->submits},
		     {"wait_ns", digest->block_wait_ns[which]});
	json_close(json, '}');
}

static void put_lists(struct json *json, const struct digest *digest)
{
	uint32_t blocks[REPORT_LIST];
	size_t n = report_blocks(digest, blocks, REPORT_LIST), every = digest->n_steps / STEPS_SHOWN + 1;

	json_open(json, "largest", '[');
	for (size_t i = 0; i < n; i++)
		put_allocation(json, digest, blocks[i]);
	json_close(json, ']');
	json_open(json, "functions", '[');
	for (size_t i = 0; i < digest->n_functions && i < REPORT_LIST; i++) {
		const struct digest_function *function = &digest->functions[i];

		json_open(json, NULL, '{');
		json_text(json, "name", trace_text(digest->trace, TRACE_FUNCTIONS, function->number));
		JSON_NUMBERS(json, {"submits", function->submits}, {"waits", function->waits},
			     {"wait_ns", function->wait_ns});
		json_close(json, '}');
	}
	json_close(json, ']');
	json_open(json, "steps", '[');
	for (size_t i = 0; i < digest->n_steps; i += every)
		JSON_OBJECT(json, NULL, {"device", digest->steps[i].device}, {"time_ns", digest->steps[i].time},
			    {"ns", digest->steps[i].ns ? digest->steps[i].ns : JSON_UNKNOWN},
			    {"submits", digest->steps[i].submissions});
	json_close(json, ']');
	json_open(json, "idle_rules", '[');
	for (size_t i = 0; i < digest->n_idle_rules && i < REPORT_LIST; i++)
		json_text(json, NULL, trace_text(digest->trace, TRACE_RULES, digest->idle_rules[i]));
	json_close(json, ']');
}

static void put_reasons(struct json *json, const char *name, const uint64_t bytes[TRACE_WHYS])
{
	json_open(json, name, '{');
	for (unsigned why = 0; why < TRACE_WHYS; why++)
		json_number(json, digest_why_name(why), bytes[why]);
	json_close(json, '}');
}

static void put_moves(struct json *json, const struct digest *digest)
{
	json_open(json, "moves", '{');
	JSON_NUMBERS(json, {"n", digest->n_moves}, {"stayed", digest->moves_stayed}, {"open", digest->moves_open});
	put_reasons(json, "in_by_reason", digest->move_why[0]);
	put_reasons(json, "out_by_reason", digest->move_why[1]);
	json_close(json, '}');
}

static void put_links(struct json *json, const struct digest *digest)
{
	json_open(json, "links", '[');
	for (size_t i = 0; i < digest->n_links; i++) {
		const struct digest_link *link = &digest->links[i];

		JSON_OBJECT(json, NULL, {"device", link->device},
			    {"lender", link->lender != DIGEST_HOST ? link->lender : JSON_UNKNOWN},
			    {"moves_in", link->moves_in}, {"moves_out", link->moves_out}, {"bytes_in", link->bytes_in},
			    {"bytes_out", link->bytes_out}, {"in_ns", link->in_ns}, {"out_ns", link->out_ns});
	}
	json_close(json, ']');
}

static void put_curve(struct json *json, const struct digest *digest)
{
	if (!digest->n_curve) {
		json_text(json, "what_if", NULL);
		return;
	}
	json_open(json, "what_if", '{');
	JSON_NUMBERS(json, {"peak", digest->peak}, {"submits", digest->curve_submits}, {"ns", digest->curve_ns},
		     {"steps", digest->curve_steps ? digest->curve_steps : JSON_UNKNOWN});
	json_open(json, "points", '[');
	for (unsigned i = 0; i < digest->n_curve; i++)
		JSON_OBJECT(json, NULL, {"percent", digest->curve[i].percent}, {"budget", digest->curve[i].budget},
			    {"bytes_in", digest->curve[i].bytes_in}, {"bytes_out", digest->curve[i].bytes_out},
			    {"over", digest->curve[i].over});
	json_close(json, ']');
	json_close(json, '}');
}

static void put_run(struct json *json, const struct digest *digest)
{
	static const char *const tables[DIGEST_TABLES] = {"rules", "sites", "calls"};

	json_open(json, NULL, '{');
	json_number(json, "schema", 2);
	put_file(json, digest->trace);
	put_process(json, digest->trace);
	put_answer(json, digest);
	json_open(json, "devices", '[');
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		if (digest->devices[i].seen)
			put_device(json, digest, i);
	json_close(json, ']');
	put_moves(json, digest);
	put_links(json, digest);
	json_open(json, "total", '{');
	put_sums(json, &digest->total);
	json_close(json, '}');
	JSON_OBJECT(json, "rest", {"bytes_in", digest->rest.bytes_in}, {"bytes_out", digest->rest.bytes_out},
		    {"wait_ns", digest->rest.wait_ns});
	for (int by = 0; by < DIGEST_TABLES; by++)
		put_table(json, digest, tables[by], (enum digest_by)by);
	put_lists(json, digest);
	put_curve(json, digest);
	json_close(json, '}');
}

/* For embedding in a page, each member is on a line of its own. */
static const struct json writer = {.comma = ",", .line = "\n", .script = true};

void report_json(const struct digest *digest)
{
	struct json json = writer;

	put_run(&json, digest);
	putchar('\n');
}

void report_compare_json(const struct digest *digests, size_t n)
{
	struct json json = writer;

	json_open(&json, NULL, '[');
	for (size_t i = 0; i < n; i++)
		put_run(&json, &digests[i]);
	json_close(&json, ']');
	putchar('\n');
}

/*
 * Writes one page for a browser: the report_page files with the digest of one run, or of two, embedded as JSON, which
 * the page's script displays. The page loads nothing else; its head forbids it.
 *
 * In report_page.html, a line that consists of "@NAME@" is replaced by a part.
 */

/* Embeds the bytes of a file, from `name` to `name`_end. */
#define EMBED(name, file)                                                                                              \
	__asm__(".section .rodata\n" #name ":\n"                                                                       \
		".incbin \"" REPORT_PAGE_FOLDER "/" file "\"\n" #name "_end:\n"                                        \
		".byte 0\n"                                                                                            \
		".previous\n");                                                                                        \
	extern const char name[] __attribute__((visibility("hidden")));                                                \
	extern const char name##_end[] __attribute__((visibility("hidden")))

EMBED(report_page_html, "report_page.html");
EMBED(report_page_css, "report_page.css");
EMBED(report_page_js, "report_page.js");
EMBED(report_charts_js, "report_charts.js");
EMBED(report_flame_js, "report_flame.js");

static void put_line(const struct digest *digests, size_t n, const char *line, const char *end)
{
	const struct {
		const char *mark, *begin, *end;
	} parts[] = {
	    {"@STYLE@", report_page_css, report_page_css_end},
	    {"@CHARTS@", report_charts_js, report_charts_js_end},
	    {"@FLAME@", report_flame_js, report_flame_js_end},
	    {"@SCRIPT@", report_page_js, report_page_js_end},
	    {"@DATA@", NULL, NULL},
	    {NULL, line, end}, /* the line itself */
	};
	size_t i = 0, length = (size_t)(end - line);

	while (parts[i].mark && (length != strlen(parts[i].mark) || memcmp(line, parts[i].mark, length) != 0))
		i++;
	if (parts[i].begin)
		fwrite(parts[i].begin, 1, (size_t)(parts[i].end - parts[i].begin), stdout);
	else
		n > 1 ? report_compare_json(digests, n) : report_json(digests);
	if (!parts[i].mark)
		putchar('\n');
}

void report_html(const struct digest *digests, size_t n)
{
	for (const char *line = report_page_html; line < report_page_html_end;) {
		const char *end = memchr(line, '\n', (size_t)(report_page_html_end - line));

		end = end ? end : report_page_html_end;
		put_line(digests, n, line, end);
		line = end + 1;
	}
}
