// SPDX-License-Identifier: Apache-2.0
/*
 * policy_bench.c: what reading and deciding cost, for 1,000 rules of several kinds. The request matches none, so every
 * rule is looked at. Prints the least of some rounds, for the machine has other things to do. No CUDA. Bars of the
 * project: 10 ms to read, 2 us to decide.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/parse.h"

enum { N_RULES = 1000, ROUNDS = 15, DECISIONS = 2000 };

/* The rules of one kind; i makes them differ. */
static const struct kind {
	const char *name, *format;
} kinds[] = {
    {"size", "- {match: {size: == %dKiB}, use: driver}\n"},
    {"size, api, device", "- {match: {size: \">= %dKiB\", api: [managed, host], device: 1}, use: driver}\n"},
    {"live", "- {match: {size: \">= 1B\", live: == %dMiB}, use: driver}\n"},
    {"one library", "- {match: {size: \"< %dGiB\", library: [\"*libnccl*\", \"*libucp*\"]}, use: driver}\n"},
    {"1,000 libraries", "- {match: {library: \"*lib%d.so*\"}, use: driver}\n"},
};

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static char *text_of(const struct kind *kind)
{
	char *text = malloc(N_RULES * 128), *end = text;

	if (!text)
		exit(1);
	end += sprintf(end, "version: 1\nrules:\n");
	for (int i = 0; i < N_RULES; i++)
		/* The formats are those of the table. */
		end += sprintf(end, kind->format, i + 5);
	return text;
}

/* Seconds to read; the policy of the last round is kept. */
static double read_time(const char *text, struct policy **ret_policy)
{
	double least = 1e9;

	for (int round = 0; round < ROUNDS; round++) {
		struct policy_errors errors;
		double begin = seconds(), took;

		policy_free(*ret_policy);
		*ret_policy = policy_read_text("bench.yaml", text, strlen(text), NULL, &errors);
		took = seconds() - begin;
		least = took < least ? took : least;
		policy_errors_free(&errors);
	}
	return least;
}

static double decide_time(const struct policy *policy)
{
	struct policy_request request = {
	    .bytes = 1000,
	    .known = POLICY_NEED_LIVE,
	    .library = "/usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cuda.so",
	};
	struct policy_library *known = policy_library_new(policy, request.library);
	double least = 1e9;

	/* As the shim does it: what is known of a library is found out once. */
	request.library_known = known;
	for (int round = 0; round < ROUNDS; round++) {
		double begin = seconds(), took;

		for (int i = 0; i < DECISIONS; i++) {
			/* What is decided must not be known before. */
			__asm__ volatile("" : : "r"(&request) : "memory");
			if (policy_decide(policy, &request).rule != -1) {
				fprintf(stderr, "a rule matched that should not\n");
				exit(1);
			}
		}
		took = (seconds() - begin) / DECISIONS;
		least = took < least ? took : least;
	}
	free(known);
	return least;
}

int main(void)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct policy *policy = NULL;
		char *text = text_of(&kinds[i]);
		double reading = read_time(text, &policy);

		if (!policy)
			return 1;
		printf("policy_%-20s read %6.2f ms, decide %6.2f us\n", kinds[i].name, reading * 1e3,
		       decide_time(policy) * 1e6);
		policy_free(policy);
		free(text);
	}
	return 0;
}
