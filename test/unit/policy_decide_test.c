// SPDX-License-Identifier: Apache-2.0
/*
 * policy_decide_test.c: the rule that wins is the first that matches, for any rules.
 */
#include "test/unit/policy_help.h"

/* A condition as written and as a naive test of it. */
struct naive {
	char text[80], operator[3];
	uint64_t a, b;
	int use;
};

static bool naive_matches(const struct naive *rule, uint64_t bytes)
{
	if (!strcmp(rule->operator, ".."))
		return bytes >= rule->a && bytes <= rule->b;
	if (!strcmp(rule->operator, ">="))
		return bytes >= rule->a;
	if (!strcmp(rule->operator, ">"))
		return bytes > rule->a;
	if (!strcmp(rule->operator, "<="))
		return bytes <= rule->a;
	if (!strcmp(rule->operator, "<"))
		return bytes < rule->a;
	return bytes == rule->a;
}

static void naive_make(struct naive *rule)
{
	static const char *const operators[] = {">=", ">", "<=", "<", "=="};

	rule->a = 1 + (uint64_t)random() % 5000;
	rule->b = rule->a + (uint64_t)random() % 10;
	rule->use = (int)(random() % 2);
	/* Open-ended conditions are rare, so that later rules are reached too. */
	if (random() % 20) {
		strcpy(rule->operator, "..");
		sprintf(rule->text, "%lluB .. %lluB", (unsigned long long)rule->a, (unsigned long long)rule->b);
	} else {
		strcpy(rule->operator, operators[random() % 5]);
		sprintf(rule->text, "%s %lluB", rule->operator,(unsigned long long) rule->a);
	}
}

static unsigned seed;

TEST(random_conditions_decide_as_a_naive_reading_does)
{
	enum { N = 60 };
	struct naive rules[N];
	char *text = malloc(N * 128);

	print_message("seed %u (SPILLWAY_SEED repeats it)\n", seed);
	srandom(seed);
	for (int round = 0; round < 50; round++) {
		char *end = text + sprintf(text, "default: driver\nrules:\n");

		for (int i = 0; i < N; i++) {
			naive_make(&rules[i]);
			end += sprintf(end, "- {match: {size: \"%s\"}, use: %s}\n", rules[i].text,
				       rules[i].use ? "heap" : "driver");
		}
		struct policy *policy = any_policy(text);
		for (uint64_t bytes = 0; bytes < 5100; bytes++) {
			struct policy_request request = {.bytes = bytes};
			struct policy_decision decision = policy_decide(policy, &request);
			int i = 0;

			while (i < N && !naive_matches(&rules[i], bytes))
				i++;
			assert_int_equal(decision.rule, i < N ? i : -1);
			assert_int_equal(decision.use, i < N && rules[i].use ? POLICY_USE_HEAP : POLICY_USE_DRIVER);
		}
	}
	free(text);
}

TEST(a_thousand_rules_are_decided_right_and_fast)
{
	char *text = malloc(1 << 17), *end = text + sprintf(text, "rules:\n");
	struct timespec begin, now;
	uint64_t sum = 0;

	for (int i = 0; i < 1000; i++)
		end += sprintf(end, "- {match: {size: == %dKiB}, use: driver}\n", i + 1);
	struct policy *policy = any_policy(text);
	for (int i = 0; i <= 1000; i++) {
		struct policy_request request = {.bytes = 1024ull * (unsigned)(i + 1)};

		assert_int_equal(policy_decide(policy, &request).rule, i < 1000 ? i : -1);
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (uint64_t i = 0; i < 20000; i++) {
		struct policy_request request = {.bytes = i};

		sum += (uint64_t)policy_decide(policy, &request).rule;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	double each = ((double)(now.tv_sec - begin.tv_sec) * 1e9 + (double)(now.tv_nsec - begin.tv_nsec)) / 20000;
	/* Printed, not asserted: how fast the machine is, is not the code's promise. */
	print_message("%.0f ns a decision of 1,000 rules (%llu)\n", each, (unsigned long long)sum);
	free(text);
}

/* With what is known of a library and without it: the same answer, whatever else a rule asks for. */
TEST(what_is_known_of_a_library_changes_no_decision)
{
	enum { N = 300 };
	char *text = malloc(N * 160), *end = text + sprintf(text, "rules:\n"), path[64];
	static const char *const more[] = {"", ", size: < 1MiB", ", live: \">= 1GiB\"", ", thread: t",
					   ", order: first 3"};

	for (int i = 0; i < N; i++)
		end += sprintf(end, "- {match: {library: ['*lib%d.so', '*x%d?']%s}, use: heap}\n", i / 2, i % 70,
			       more[i % 5]);
	sprintf(end, "- {match: {thread: last}, use: driver}\n");
	struct policy *policy = any_policy(text);
	free(text);
	for (int i = 0; i < 1000; i++) {
		struct policy_request request = {
		    .bytes = i % 3 ? 1000 : 2 * MIB,
		    .known = i % 4 ? POLICY_NEED_LIVE | POLICY_NEED_ORDER : 0,
		    .live = i % 2 ? 2048 * MIB : 0,
		    .order = (uint64_t)(i % 5),
		    .library = path,
		    .thread = i % 7 ? "t" : "last",
		};
		snprintf(path, sizeof(path), i % 10 == 9 ? "/x%d." : "/lib%d.so", i % 170);
		struct policy_library *known = policy_library_new(policy, path);
		int rule = policy_decide(policy, &request).rule;

		assert_true(policy_library_is(known, path) && !policy_library_is(known, "/other"));
		request.library_known = known;
		assert_int_equal(policy_decide(policy, &request).rule, rule);
		free(known);
	}
}

TEST(memory_of_a_kind_is_decided_about_by_rules_that_name_it)
{
	struct policy *policy = any_policy("default: deny\nvmm.spill: move\nrules:\n"
					   "- {use: heap, match: {size: < 1MiB}}\n"
					   "- {use: driver, match: {api: [host, malloc], size: < 2MiB}}\n"
					   "- {use: driver, match: {api: vmm, size: < 3MiB}, vmm.spill: no}\n"
					   "- {use: deny, match: {api: host, process: other}}\n");
	struct policy_request request = {.device = -1};
	char why[POLICY_EXPLAIN_BYTES];

	for (int api = 0; api < POLICY_API_COUNT; api++) {
		bool named = !(POLICY_APIS_ANY & 1 << api);
		request.api = (enum policy_api)api;
		assert_int_equal(policy_decides(policy, request.api), api != POLICY_API_MANAGED);
		request.bytes = 1000;
		assert_int_equal(policy_explain(policy, 0, &request, why), !named);
		assert_int_equal(policy_decide(policy, &request).use, named ? POLICY_USE_DRIVER : POLICY_USE_HEAP);
		request.bytes = 100 * MIB;
		assert_int_equal(policy_decide(policy, &request).rule, -1);
		assert_int_equal(policy_decide(policy, &request).use, named ? POLICY_USE_DRIVER : POLICY_USE_DENY);
		assert_true(policy_decide(policy, &request).vmm_spill);
	}
	request = (struct policy_request){.api = POLICY_API_HOST, .bytes = 1000};
	assert_int_equal(policy_decide(policy, &request).rule, 1);
	policy_explain(policy, 0, &request, why);
	assert_string_equal(why, "about api host only rules decide that name it");
	request.api = POLICY_API_VMM;
	assert_false(policy_decide(policy, &request).vmm_spill);
	assert_true(policy_vmm_spill(policy));
}

int main(void)
{
	const char *given = getenv("SPILLWAY_SEED");

	seed = given ? (unsigned)atoi(given) : (unsigned)time(NULL);
	return test_run();
}
