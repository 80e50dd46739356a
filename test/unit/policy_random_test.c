// SPDX-License-Identifier: Apache-2.0
/*
 * policy_random_test.c: random rules and requests: deciding and explaining never differ.
 */
#include "test/unit/policy_help.h"
#include "test/unit/seed.h"

static struct seed seed;

static void random_rule(char **end)
{
	static const char *const conditions[] = {
	    "size: 10B .. 20B",
	    "size: \">= 15B\"",
	    "api: [malloc, async]",
	    "api: vmm",
	    "device: 0..1",
	    "device: [0, 3]",
	    "order: first 5",
	    "order: after 3",
	    "live: \">= 4B\"",
	    "live: 2B .. 5B",
	    "pressure: 'device.free < 6B'",
	    "library: 'a*'",
	    "library: ['*b', c]",
	    "thread: [a, b]",
	    "caller: ['b*', ab]",
	    "process: 'p*'",
	    "arguments: '*x*'",
	    "rank: [0, 3 .. 4]",
	    "rank: '>= 2'",
	};
	/* Two conditions on one thing would be a key given twice. */
	static const unsigned char same[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8, 9, 10, 11, 11};
	unsigned used = 0;

	*end += sprintf(*end, "- use: driver\n  match:\n    size: \">= 1B\"\n");
	used |= 1u << 0;
	for (uint64_t i = seed_below(&seed, 5); i-- > 0;) {
		size_t pick = (size_t)seed_below(&seed, sizeof(same));

		if (used & 1u << same[pick])
			continue;
		used |= 1u << same[pick];
		*end += sprintf(*end, "    %s\n", conditions[pick]);
	}
}

static struct policy_request random_request(void)
{
	static const char *const texts[] = {NULL, "a", "ab", "b", "c", "aab", ""};
	const size_t n = sizeof(texts) / sizeof(*texts);

	return (struct policy_request){
	    .bytes = seed_below(&seed, 25),
	    .api = (enum policy_api)seed_below(&seed, POLICY_API_COUNT),
	    .device = (int)seed_below(&seed, 5) - 1,
	    .known = (unsigned)seed_below(&seed, 8),
	    .order = 1 + seed_below(&seed, 8),
	    .live = seed_below(&seed, 8),
	    .device_free = seed_below(&seed, 8),
	    .library = texts[seed_below(&seed, n)],
	    .thread = texts[seed_below(&seed, n)],
	    .caller = texts[seed_below(&seed, n)],
	};
}

TEST(random_rules_are_decided_as_they_are_explained)
{
	enum { N = 30 };
	char why[POLICY_EXPLAIN_BYTES];

	seed = seed_start("random_rules");
	for (int round = 0; round < 200; round++) {
		char text[N * 300] = "rules:\n", *end = text + strlen(text);
		struct policy_errors errors;

		for (int i = 0; i < N; i++)
			random_rule(&end);
		struct policy *policy = policy_read_text("p.yaml", text, strlen(text), NULL, &errors);
		if (!policy)
			fail_msg("%u: %s", errors.kept[0].line, errors.kept[0].text);
		policy_bind(policy, round % 2 ? "python" : "sh", round % 3 ? "x y" : NULL, round % 7 - 1);
		for (int i = 0; i < 100; i++) {
			struct policy_request request = random_request();
			int rule = 0;

			while (rule < N && !policy_explain(policy, rule, &request, why))
				rule++;
			assert_int_equal(policy_decide(policy, &request).rule, rule < N ? rule : -1);
			/* A rule that can never be reached is never reached. */
			for (size_t e = 0; e < errors.n_kept && rule < N; e++) {
				unsigned unreachable;

				assert_int_equal(sscanf(errors.kept[e].text, "rule %u", &unreachable), 1);
				assert_int_not_equal((int)unreachable - 1, rule);
			}
		}
		policy_free(policy);
		policy_errors_free(&errors);
	}
}
