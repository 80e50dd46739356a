// SPDX-License-Identifier: Apache-2.0
/*
 * Parses the options of a command with getopt_long() and prints its help, both from one table.
 */
#include "tools/common/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/text.h"
#include "tools/common/tool.h"

enum { MOST_ROWS = 24, FIRST_CODE = 256 };

static void print_row(const struct option_row *row, int column)
{
	int at = printf("  --%s", row->name);

	if (row->value)
		at += printf("%s%s", *row->value == '[' ? "" : " ", row->value);
	printf("%*s", at < column ? column - at : 1, "");
	for (const char *c = row->help; *c; c++) {
		putchar(*c);
		if (*c == '\n')
			printf("%*s", column, "");
	}
	if (row->more)
		row->more();
	putchar('\n');
}

static void print_help(const struct options *options)
{
	fputs(options->head, stdout);
	if (options->n)
		printf("\noptions:\n");
	for (size_t i = 0; i < options->n; i++)
		print_row(&options->rows[i], options->column);
	printf("\n%s", options->tail);
	if (options->more)
		options->more();
}

/* Says which argument getopt_long() refused. optind may still point to a cluster of short options. */
static int options_refuse(const struct options *options, char **argv, int code)
{
	const char *last = argv[optind - 1];
	bool is_cluster = optopt > 0 && optopt < FIRST_CODE && argv[optind] && last[strlen(last) - 1] != optopt;

	return tool_bad(code == ':' ? "%s needs a value; `spillway %s --help` gives an example"
				    : "unknown option %s; `spillway %s --help` lists them",
			policy_quoted(is_cluster ? argv[optind] : last), options->command);
}

static bool options_take(const struct option_row *row, void *request)
{
	char why[POLICY_EXPLAIN_BYTES] = "";
	void *at = (char *)request + row->at;

	if (row->read) {
		if (row->read(request, row->code, optarg, why))
			return true;
		if (*why)
			tool_say("--%s: %s", row->name, why);
		return false;
	}
	if (row->value)
		*(const char **)at = optarg;
	else
		*(bool *)at = true;
	return true;
}

int options_read(const struct options *options, int argc, char **argv, void *request)
{
	struct option table[MOST_ROWS + 2] = {0};
	char letters[2 * MOST_ROWS + 8] = "+:h", *end = letters + 3;
	int code;

	for (size_t i = 0; i < options->n; i++) {
		const struct option_row *row = &options->rows[i];

		int takes = !row->value ? no_argument : *row->value == '[' ? optional_argument : required_argument;

		table[i] = (struct option){row->name, takes, NULL, FIRST_CODE + (int)i};
		if (row->letter)
			end += sprintf(end, "%c%s", row->letter, row->value ? ":" : "");
	}
	table[options->n] = (struct option){"help", no_argument, NULL, 'h'};
	opterr = 0;
	optind = 0;
	while ((code = getopt_long(argc, argv, letters + !options->program, table, NULL)) != -1) {
		const struct option_row *row = options->rows;

		if (code == 'h') {
			print_help(options);
			return TOOL_OK;
		}
		if (code == '?' || code == ':')
			return options_refuse(options, argv, code);
		while (code < FIRST_CODE ? row->letter != code : row != &options->rows[code - FIRST_CODE])
			row++;
		if (!options_take(row, request))
			return TOOL_BAD;
	}
	return OPTIONS_GO_ON;
}

bool options_whole(const char *text, uint64_t least, uint64_t most, uint64_t *ret_number, char *why)
{
	char *end = NULL;
	unsigned long long number = policy_is_digit(*text) && strlen(text) < 20 ? strtoull(text, &end, 10) : 0;

	if (end && !*end && number >= least && number <= most) {
		*ret_number = number;
		return true;
	}
	snprintf(why, POLICY_EXPLAIN_BYTES, "%s is no number from %llu to %llu", policy_quoted(text),
		 (unsigned long long)least, (unsigned long long)most);
	return false;
}
