/*
 * Writes tables for spreadsheets and scripts: RFC 4180 except for the line ends. Times are in ns since the first
 * event, sizes in bytes; an unknown value is an empty field. A text that a spreadsheet would take for a formula is
 * prefixed with '.
 */
#include "tools/report/report.h"
#include "policy/text.h"

#include <inttypes.h>
#include <string.h>

static void put_text(const char *text)
{
	putchar('"');
	if (*text && strchr("=+-@\t\r", *text))
		putchar('\'');
	for (size_t n; *text; text += n ? n : 1) {
		n = policy_character_length(text);
		if (*text == '"')
			putchar('"');
		if (!n || (unsigned char)*text < 0x20 || *text == 0x7f)
			putchar('?');
		else
			fwrite(text, 1, n, stdout);
	}
	putchar('"');
}

static void put_group_name(const struct digest *digest, enum digest_by by, uint64_t number)
{
	char made[64];

	put_text(digest_group_name(digest, by, number, made, sizeof(made)));
}

static void put_known(uint64_t value, bool known)
{
	putchar(',');
	if (known)
		printf("%" PRIu64, value);
}

static void csv_allocations(const struct digest *digest)
{
	const struct trace *trace = digest->trace;

	printf(
	    "id,device,address,bytes,on_host,backend,rule,site,made_ns,freed_ns,moves_in,moves_out,bytes_in,bytes_out,"
	    "refetches,submits,wait_ns,on_peers\n");
	for (size_t i = 0; i < trace->n_blocks; i++) {
		const struct trace_block *block = &trace->blocks[i];

		printf("%" PRIu64 ",%" PRIu32 ",0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",%s,", block->id, block->device,
		       block->address, block->bytes, block->on_host, digest_backend_name(block->backend));
		put_group_name(digest, DIGEST_BY_RULE, digest_group_of(digest, DIGEST_BY_RULE, block));
		putchar(',');
		put_group_name(digest, DIGEST_BY_SITE, digest_group_of(digest, DIGEST_BY_SITE, block));
		printf(",%" PRIu64 ",", block->made - trace->first);
		if (block->freed != UINT64_MAX)
			printf("%" PRIu64, block->freed - trace->first);
		printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
		       block->moves_in, block->moves_out, block->bytes_in, block->bytes_out, block->refetches,
		       block->submits, digest->block_wait_ns[i]);
		put_known(block->on_peers, trace->tells_peers);
		putchar('\n');
	}
}

static void put_bin(const struct digest *digest, unsigned number, size_t at)
{
	const struct digest_device *device = &digest->devices[number];
	const struct digest_bin *bin = &device->bins[at];

	printf("%" PRIu64 ",%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", at * digest->bin_ns,
	       number, bin->device, bin->host, bin->managed, bin->system, bin->driver);
	if (bin->budget)
		printf("%" PRIu64, bin->budget);
	printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, bin->bytes_in, bin->bytes_out, bin->gap_ns,
	       bin->wait_ns, bin->submits);
	if (device->faults_known)
		printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, bin->faults_gpu, bin->faults_cpu, bin->fault_in,
		       bin->fault_out);
	else
		printf(",,,,");
	put_known(bin->peers, digest->trace->tells_peers);
	put_known(bin->lent, digest->trace->tells_peers && device->sampled);
	put_known(bin->peer_in, digest->trace->tells_peers);
	put_known(bin->peer_out, digest->trace->tells_peers);
	printf(",%" PRIu64 "\n", bin->waiting_ns);
}

static void csv_series(const struct digest *digest)
{
	printf(
	    "time_ns,device,on_device,on_host,managed,system,driver,budget,bytes_in,bytes_out,gap_ns,wait_ns,submits,"
	    "faults_gpu,faults_cpu,fault_bytes_in,fault_bytes_out,on_peers,lent,peer_bytes_in,peer_bytes_out,waiting_"
	    "ns\n");
	for (unsigned i = 0; i < DIGEST_DEVICES; i++)
		for (size_t bin = 0; digest->devices[i].seen && bin < digest->n_bins; bin++)
			put_bin(digest, i, bin);
}

/* Writes the device at the other end; nothing for the host or a device beyond the limit. */
static void put_other(uint32_t device)
{
	putchar(',');
	if (device < DIGEST_DEVICES)
		printf("%" PRIu32, device);
}

static const char *csv_destination(const struct digest_move *move)
{
	if (!move->to_host)
		return "device";
	return move->lender == DIGEST_HOST ? "host" : "peer";
}

static void csv_moves(const struct digest *digest)
{
	printf("begin_ns,end_ns,device,address,bytes,to,why,stayed,allocation,rule,lender,left\n");
	for (size_t i = 0; i < digest->n_moves; i++) {
		const struct digest_move *move = &digest->moves[i];

		printf("%" PRIu64 ",", move->begin);
		if (move->end != UINT64_MAX)
			printf("%" PRIu64, move->end);
		putchar(',');
		if (move->device < DIGEST_DEVICES)
			printf("%" PRIu32, move->device);
		printf(",0x%" PRIx64 ",%" PRIu64 ",%s,%s,%s,", move->address, move->bytes, csv_destination(move),
		       digest_why_name(move->why),
		       move->end == UINT64_MAX ? ""
		       : move->stayed          ? "yes"
					       : "no");
		if (move->block != TRACE_NONE) {
			const struct trace_block *block = &digest->trace->blocks[move->block];

			printf("%" PRIu64 ",", block->id);
			put_group_name(digest, DIGEST_BY_RULE, digest_group_of(digest, DIGEST_BY_RULE, block));
		} else
			putchar(',');
		put_other(move->lender);
		put_other(move->left);
		putchar('\n');
	}
}

static void put_group(const struct digest_group *group)
{
	printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
	       ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n",
	       group->allocations, group->refused, group->bytes, group->peak, group->live, group->on_host,
	       group->moves_in, group->moves_out, group->bytes_in, group->bytes_out, group->refetches, group->submits,
	       group->wait_ns);
}

static void csv_rules(const struct digest *digest)
{
	const struct digest_table *table = &digest->tables[DIGEST_BY_RULE];
	const struct digest_group nothing = {0};

	printf(
	    "rule,allocations,refused,bytes,peak,live,on_host,moves_in,moves_out,bytes_in,bytes_out,refetches,submits,"
	    "wait_ns\n");
	for (size_t i = 0; i < table->n; i++) {
		put_group_name(digest, DIGEST_BY_RULE, table->groups[i].number);
		put_group(&table->groups[i]);
	}
	for (size_t i = 0; i < digest->n_idle_rules; i++) {
		put_group_name(digest, DIGEST_BY_RULE, digest->idle_rules[i]);
		put_group(&nothing);
	}
}

static const struct table {
	const char *name;
	void (*put)(const struct digest *digest);
} tables[] = {{"allocations", csv_allocations}, {"series", csv_series}, {"moves", csv_moves}, {"rules", csv_rules}};

static const struct table *csv_find(const char *name)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		if (!strcmp(tables[i].name, name))
			return &tables[i];
	return NULL;
}

bool report_csv_known(const char *table)
{
	return csv_find(table) != NULL;
}

void report_csv(const struct digest *digest, const char *table)
{
	csv_find(table)->put(digest);
}
