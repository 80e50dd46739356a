// SPDX-License-Identifier: Apache-2.0
/*
 * policy_mutate.c: the fuzzer's function without libFuzzer, for machines without clang: two seconds of mutations of the
 * policies that ship and of one that uses every kind of value. The seed is printed; TEST_SEED=number repeats the same
 * texts, and TEST_ROUNDS=number makes that many of them.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/keys.h"
#include "test/unit/seed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST_TEXTS = 32, ROOM = 8192 };

static struct {
	char data[ROOM];
	size_t bytes;
} texts[MOST_TEXTS], work;
static unsigned n_texts;
static struct seed seed;

static const char everything[] =
    "version: 1\ninclude: heap\nobserve: no\ndevice: {budget: 50%}\nmanaged: {advise: [read-mostly], prefetch: none}\n"
    "rules:\n- name: all\n  match: {size: 1MiB .. 2MiB, api: [malloc, pool], device: 0 .. 3, process: 'py*', "
    "arguments: "
    "'*', library: ['*a*', b?], thread: t, caller: 'a.py:* in f', rank: [3, '> 5'], order: first 10, live: '< "
    "1GiB', pressure: "
    "'device.free > 1B'}\n"
    "  use: managed\n  fallback: [system, deny]\n  place: host\n  movable: no\n  cap: 1.5GiB\n  system.numa_node: 1\n"
    "\xff spill.mode=fast,host.budget=1%";

static void texts_read(void)
{
	DIR *folder = opendir(POLICY_FOLDER);
	struct dirent *entry;
	char path[512];

	memcpy(texts[n_texts].data, everything, sizeof(everything) - 1);
	texts[n_texts++].bytes = sizeof(everything) - 1;
	while (folder && (entry = readdir(folder)) && n_texts < MOST_TEXTS) {
		FILE *file;

		snprintf(path, sizeof(path), "%s/%s", POLICY_FOLDER, entry->d_name);
		if (!strstr(entry->d_name, ".yaml") || !(file = fopen(path, "r")))
			continue;
		texts[n_texts].bytes = fread(texts[n_texts].data, 1, ROOM / 2, file);
		n_texts++;
		fclose(file);
	}
	if (folder)
		closedir(folder);
}

/* Put bytes in place of length others at at, as far as they fit. */
static void splice(size_t at, size_t length, const char *with, size_t bytes)
{
	if (work.bytes - length + bytes > ROOM)
		return;
	memmove(work.data + at + bytes, work.data + at + length, work.bytes - at - length);
	memmove(work.data + at, with, bytes);
	work.bytes += bytes - length;
}

/* Some word of the language, or what breaks it. */
static const char *random_word(void)
{
	static const char *const odd[] = {"&a ",
					  "*a",
					  "!!int ",
					  "- ",
					  ": ",
					  "{",
					  "}",
					  "[",
					  "]",
					  "\n",
					  "\t",
					  "\"",
					  "'",
					  "#",
					  "%",
					  "..",
					  "-1",
					  "1e9",
					  "auto",
					  "none",
					  "\xff",
					  "\xc3",
					  "---\n",
					  "\n  ",
					  "18446744073709551616B",
					  "99999999999999999999"};
	const size_t n_odd = sizeof(odd) / sizeof(*odd);
	const struct policy_keys *keys = seed_below(&seed, 2) ? &policy_file_keys : &policy_rule_keys;
	const struct policy_value *value = NULL;
	uint64_t kind = seed_below(&seed, 3);

	if (kind == 0)
		return odd[seed_below(&seed, n_odd)];
	if (kind == 1)
		return keys->keys[seed_below(&seed, keys->n)].name;
	value = policy_value_next((enum policy_set)(1 + seed_below(&seed, POLICY_SET_BOOL)), NULL);
	return value ? value->name : "0";
}

static void mutate(void)
{
	size_t at = (size_t)seed_below(&seed, work.bytes + 1), length = work.bytes - at, from;
	const char *word = random_word();

	if (length > 40)
		length = 40;
	length = (size_t)seed_below(&seed, length + 1);
	switch (seed_below(&seed, 5)) {
	case 0: /* a byte */
		if (at < work.bytes)
			work.data[at] = (char)seed_next(&seed);
		break;
	case 1: /* gone */
		splice(at, length, "", 0);
		break;
	case 2: /* a word in between */
		splice(at, 0, word, strlen(word));
		break;
	case 3: /* a word instead */
		splice(at, length, word, strlen(word));
		break;
	default: /* a piece twice */
		from = (size_t)seed_below(&seed, work.bytes + 1);
		if (from + length <= work.bytes) {
			char piece[40];

			memcpy(piece, work.data + from, length);
			splice(at, 0, piece, length);
		}
		break;
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
	const char *given = getenv("TEST_ROUNDS");
	unsigned long rounds = given ? strtoul(given, NULL, 0) : 0, round;
	double end = seconds() + 2;

	seed = seed_start("policy_mutate");
	texts_read();
	if (n_texts < 3) {
		printf("the shipped policies are not in %s\n", POLICY_FOLDER);
		return 1;
	}
	for (round = 0; rounds ? round < rounds : seconds() < end; round++) {
		work = texts[seed_below(&seed, n_texts)];
		for (uint64_t i = seed_below(&seed, 6); i-- > 0;)
			mutate();
		LLVMFuzzerTestOneInput((const uint8_t *)work.data, work.bytes);
	}
	printf("%lu texts\n", round);
	return 0;
}
