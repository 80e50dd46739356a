// SPDX-License-Identifier: Apache-2.0
/*
 * policy_rules_test.c: what rules may ask and say: conditions and decisions.
 */
#include "test/unit/policy_help.h"

static const struct policy_request plain = {.bytes = MIB};

/* A policy of one rule with this condition: does the request match it? Deciding and explaining must agree. */
static bool matches(const char *condition, struct policy_request request)
{
	char text[400], why[POLICY_EXPLAIN_BYTES];

	snprintf(text, sizeof(text), "rules:\n- match: {%s}\n  use: driver\n", condition);
	struct policy *policy = good_policy(text);
	bool yes = policy_decide(policy, &request).rule == 0;
	assert_int_equal(policy_explain(policy, 0, &request, why), yes);
	assert_int_equal(*why == '\0', yes);
	return yes;
}

TEST(each_api_has_its_word)
{
	static const char *const words[] = {"malloc", "pitch", "managed", "async", "pool", "host", "vmm"};

	for (int i = 0; i < POLICY_API_COUNT; i++) {
		char condition[64];

		snprintf(condition, sizeof(condition), "api: %s", words[i]);
		for (int j = 0; j < POLICY_API_COUNT; j++)
			assert_int_equal(matches(condition, (struct policy_request){.api = (enum policy_api)j}),
					 i == j);
		assert_string_equal(policy_api_name((enum policy_api)i), words[i]);
	}
	assert_true(matches("api: [async, pool]", (struct policy_request){.api = POLICY_API_POOL}));
	assert_false(matches("api: [async, pool]", (struct policy_request){.api = POLICY_API_MALLOC}));
}

TEST(devices_are_numbers_ranges_or_lists)
{
	assert_true(matches("device: 0", plain));
	assert_false(matches("device: 1", plain));
	assert_true(matches("device: 1 .. 3", (struct policy_request){.device = 3}));
	assert_false(matches("device: 1 .. 3", (struct policy_request){.device = 4}));
	assert_true(matches("device: [0, 2..4, 62]", (struct policy_request){.device = 62}));
	assert_false(matches("device: [0, 2..4, 62]", (struct policy_request){.device = 1}));
}

TEST(a_device_that_is_not_known_matches_only_rules_without_one)
{
	assert_false(matches("device: 0 .. 62", (struct policy_request){.device = -1}));
	assert_false(matches("device: 0 .. 62", (struct policy_request){.device = 63}));
	assert_true(matches("size: \">= 0\"", (struct policy_request){.device = -1}));
	assert_true(matches("size: \">= 0\"", (struct policy_request){.device = 63}));
}

TEST(order_live_and_pressure_hold_at_their_edges)
{
	static const struct {
		const char *condition;
		unsigned need;
		uint64_t value;
		bool yes;
	} rows[] = {
	    {"order: first 100", POLICY_NEED_ORDER, 1, true},
	    {"order: first 100", POLICY_NEED_ORDER, 100, true},
	    {"order: first 100", POLICY_NEED_ORDER, 101, false},
	    {"order: after 100", POLICY_NEED_ORDER, 100, false},
	    {"order: after 100", POLICY_NEED_ORDER, 101, true},
	    {"order: 5 .. 7", POLICY_NEED_ORDER, 4, false},
	    {"order: 5..7", POLICY_NEED_ORDER, 7, true},
	    {"live: \">= 8GiB\"", POLICY_NEED_LIVE, 8192 * MIB, true},
	    {"live: \">= 8GiB\"", POLICY_NEED_LIVE, 8192 * MIB - 1, false},
	    {"live: == 0", POLICY_NEED_LIVE, 0, true},
	    {"live: == 0", POLICY_NEED_LIVE, 1, false},
	    {"pressure: device.free < 2GiB", POLICY_NEED_FREE, 2048 * MIB - 1, true},
	    {"pressure: device.free < 2GiB", POLICY_NEED_FREE, 2048 * MIB, false},
	    {"pressure: device.free 1GiB .. 2GiB", POLICY_NEED_FREE, 2048 * MIB, true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct policy_request request = {.known = rows[i].need};

		request.order = request.live = request.device_free = rows[i].value;
		if (matches(rows[i].condition, request) != rows[i].yes)
			fail_msg("%s of %llu", rows[i].condition, (unsigned long long)rows[i].value);
		request.known = ~rows[i].need;
		assert_false(matches(rows[i].condition, request)); /* not known: no match */
	}
}

TEST(patterns_match_whole_names)
{
	static const struct {
		const char *pattern, *text;
		bool yes;
	} rows[] = {
	    {"*libnccl*", "/usr/lib/libnccl.so.2", true},
	    {"*libnccl*", "/usr/lib/libncc.so", false},
	    {"*libnccl*", "libnccl", true},
	    {"libnccl", "libnccl.so", false},
	    {"libnccl.so", "libnccl.so", true},
	    {"*.so", "a.so.so", true},
	    {"*.so", "a.so.2", false},
	    {"lib?cl*", "libxcl.so", true},
	    {"lib?cl*", "libcl.so", false},
	    {"*a*b*c", "xxaxxbxxbc", true},
	    {"*a*b*c", "xxaxxbxxbcd", false},
	    {"*", "", true},
	    {"?", "", false},
	    {"**", "x", true},
	    {"a*a", "a", false},
	    {"[a]", "[a]", true},
	    {"[a]", "a", false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char condition[64];

		snprintf(condition, sizeof(condition), "library: '%s'", rows[i].pattern);
		if (matches(condition, (struct policy_request){.library = rows[i].text}) != rows[i].yes)
			fail_msg("%s on %s", rows[i].pattern, rows[i].text);
	}
}

TEST(a_text_that_is_not_known_matches_no_pattern)
{
	struct policy_request request = {.library = "lib", .thread = "t", .caller = "a.py:3 in f"};

	assert_false(matches("caller: '*'", plain));
	assert_true(matches("caller: [backward, 'a.py:* in f']", request));
	assert_false(matches("caller: 'a.py:3'", request));
	assert_false(matches("library: '*'", plain));
	assert_false(matches("thread: '*'", plain));
	assert_true(matches("library: 'lib'", request));
	assert_true(matches("thread: [x, t]", request));
	assert_true(matches("thread: '?'", request));
	assert_false(matches("thread: [x, y], library: lib", request));
}

TEST(all_conditions_of_a_rule_must_hold)
{
	const char *const all = "size: \">= 1MiB\", api: async, device: 1, thread: \"loader*\"";
	const struct policy_request good = {
	    .bytes = 5 * MIB, .api = POLICY_API_ASYNC, .device = 1, .thread = "loader 3"};

	assert_true(matches(all, good));
	for (unsigned i = 0; i < 4; i++) {
		struct policy_request request = good;

		request.bytes = i == 0 ? 1 : good.bytes;
		request.device = i == 1 ? 0 : good.device;
		request.api = i == 2 ? POLICY_API_POOL : good.api;
		request.thread = i == 3 ? "main" : good.thread;
		assert_false(matches(all, request));
	}
}

TEST(equal_patterns_of_many_rules_are_told_apart_from_others)
{
	char text[16384] = "rules:\n", *end = text + strlen(text);
	struct policy_request request = {.library = "lib99", .thread = "lib98"};

	/* More than are remembered for a request; and the same words as library and as thread. */
	for (int i = 0; i < 100; i++)
		end += sprintf(end, "- {match: {library: lib%d, size: < 1KiB}, use: heap}\n", i);
	for (int i = 0; i < 100; i++)
		end += sprintf(end, "- {match: {thread: lib%d}, use: heap}\n", i);
	sprintf(end, "- {match: {library: lib99}, use: heap}\n");
	struct policy *policy = good_policy(text);
	assert_int_equal(policy_decide(policy, &request).rule, 99);
	request.bytes = MIB;
	assert_int_equal(policy_decide(policy, &request).rule, 198);
	request.thread = "lib";
	assert_int_equal(policy_decide(policy, &request).rule, 200);
}

/* A rule does not match the request, for that reason. */
static void explains(struct policy *policy, int rule, const struct policy_request *request, const char *reason)
{
	char why[POLICY_EXPLAIN_BYTES];

	assert_false(policy_explain(policy, rule, request, why));
	assert_string_equal(why, reason);
}

TEST(binding_settles_what_concerns_the_process)
{
	struct policy *policy = good_policy("rules:\n"
					    "- {match: {process: \"py*\", thread: t}, use: driver}\n"
					    "- {match: {arguments: [\"*--big*\", x]}, use: managed}\n");
	struct policy_request request = {.thread = "t"};

	assert_int_equal(policy_needs(policy), POLICY_NEED_PROCESS);
	assert_int_equal(policy_decide(policy, &request).rule, -1);
	explains(policy, 0, &request, "the name of the process is not known; the rule wants \"py*\"");
	explains(policy, 1, &request,
		 "the arguments of the process are not known; the rule wants \"*--big*\" or \"x\"");
	policy_bind(policy, "python3", "train.py --big 1", POLICY_NO_RANK);
	assert_int_equal(policy_needs(policy), POLICY_NEED_PROCESS | POLICY_NEED_THREAD);
	assert_int_equal(policy_decide(policy, &request).rule, 0);
	policy_bind(policy, "sh", "train.py --big 1", POLICY_NO_RANK);
	assert_int_equal(policy_needs(policy), POLICY_NEED_PROCESS);
	assert_int_equal(policy_decide(policy, &request).rule, 1);
	policy_bind(policy, "sh", "train.py", POLICY_NO_RANK);
	assert_int_equal(policy_decide(policy, &request).rule, -1);
	explains(policy, 1, &request, "the arguments of the process do not match; the rule wants \"*--big*\" or \"x\"");
	policy_bind(policy, "sh", NULL, POLICY_NO_RANK);
	explains(policy, 0, &request, "the name of the process does not match; the rule wants \"py*\"");
}

/* Does a rule with this condition decide about a process of that rank? Deciding and explaining must agree. */
static bool of_rank(const char *condition, int64_t rank, char why[POLICY_EXPLAIN_BYTES])
{
	char text[400];

	snprintf(text, sizeof(text), "rules:\n- {match.rank: %s, use: driver}\n", condition);
	struct policy *policy = good_policy(text);
	assert_int_equal(policy_needs(policy), POLICY_NEED_PROCESS);
	assert_int_equal(policy_decide(policy, &plain).rule, -1); /* not bound */
	policy_bind(policy, NULL, NULL, rank);
	bool yes = policy_decide(policy, &plain).rule == 0;
	assert_int_equal(policy_explain(policy, 0, &plain, why), yes);
	return yes;
}

TEST(a_rule_may_be_about_some_ranks)
{
	static const struct {
		const char *condition, *ranks; /* of the first ten, those that it is about */
	} rows[] = {
	    {"0", "0"},
	    {"7", "7"},
	    {"1 .. 3", "123"},
	    {"1..3", "123"},
	    {"[0, 2..4, 8]", "02348"},
	    {"[8, 4, 0, 3, 2]", "02348"},
	    {"[5, 3, 4]", "345"},
	    {"'== 4'", "4"},
	    {"'>= 8'", "89"},
	    {"'>7'", "89"},
	    {"< 2", "01"},
	    {"<= 2", "012"},
	    {"[< 2, '> 8']", "019"},
	    {"[0 .. 3, '>= 4']", "0123456789"},
	};
	char why[POLICY_EXPLAIN_BYTES], got[16];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t n = 0;

		for (int rank = 0; rank < 10; rank++)
			if (of_rank(rows[i].condition, rank, why))
				got[n++] = (char)('0' + rank);
		got[n] = '\0';
		assert_string_equal(got, rows[i].ranks);
		/* A process without a rank is of none of them. */
		assert_false(of_rank(rows[i].condition, POLICY_NO_RANK, why));
	}
	assert_true(of_rank("'> 3'", 99999999999, why));
	assert_string_equal(why, "");
	assert_false(of_rank("[9 .. 11, 3, '>= 20', 4]", 12, why));
	assert_string_equal(why, "the rank is 12, not 3 .. 4 or 9 .. 11 or >= 20");
	assert_false(of_rank("[0, 2]", POLICY_NO_RANK, why));
	assert_string_equal(why, "the process has no rank; the rule wants 0 or 2");
}

TEST(a_rule_of_another_rank_needs_nothing)
{
	struct policy *policy = good_policy("rules:\n- {match: {rank: 1, api: host, thread: t}, use: deny}\n");

	policy_bind(policy, NULL, NULL, 0);
	assert_int_equal(policy_needs(policy), POLICY_NEED_PROCESS);
	assert_false(policy_decides(policy, POLICY_API_HOST));
	policy_bind(policy, NULL, NULL, 1);
	assert_int_equal(policy_needs(policy), POLICY_NEED_PROCESS | POLICY_NEED_THREAD);
	assert_true(policy_decides(policy, POLICY_API_HOST));
}

TEST(only_what_rules_ask_for_is_needed)
{
	static const struct {
		const char *condition;
		unsigned needs;
	} rows[] = {
	    {"size: \">= 1MiB\", api: malloc, device: 0", 0},
	    {"order: first 1", POLICY_NEED_ORDER},
	    {"order: after 0", 0},
	    {"live: \">= 0\"", 0},
	    {"live: \">= 1B\"", POLICY_NEED_LIVE},
	    {"pressure: device.free < 1GiB", POLICY_NEED_FREE},
	    {"library: x", POLICY_NEED_LIBRARY},
	    {"thread: x", POLICY_NEED_THREAD},
	    {"caller: x", POLICY_NEED_CALLER},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char text[200];

		snprintf(text, sizeof(text), "rules:\n- match: {%s}\n  use: driver\n", rows[i].condition);
		struct policy *policy = good_policy(text);
		assert_int_equal(policy_needs(policy), rows[i].needs);
	}
}

TEST(a_decision_lists_the_uses_in_order)
{
	struct policy *policy = good_policy(
	    "rules:\n"
	    "- {match: {size: < 1MiB}, use: managed, fallback: [system, heap, deny], place: device, cap: 10GiB}\n"
	    "- {match: {size: < 2MiB}, use: driver, fallback: heap, place: host}\n"
	    "default: system\n");
	struct policy_request small = {.bytes = 1}, middle = {.bytes = MIB}, large = {.bytes = 2 * MIB};
	struct policy_decision decision = policy_decide(policy, &small);

	assert_int_equal(decision.n_uses, 4);
	assert_int_equal(decision.use, POLICY_USE_MANAGED);
	assert_memory_equal(
	    decision.uses, ((unsigned char[]){POLICY_USE_MANAGED, POLICY_USE_SYSTEM, POLICY_USE_HEAP, POLICY_USE_DENY}),
	    4);
	assert_int_equal(decision.place, POLICY_PLACE_DEVICE);
	assert_true(decision.cap == 10240 * MIB);
	assert_true(policy_rule_cap(policy, 0) == 10240 * MIB);
	decision = policy_decide(policy, &middle);
	assert_int_equal(decision.n_uses, 2);
	assert_int_equal(decision.uses[1], POLICY_USE_HEAP);
	assert_int_equal(decision.place, POLICY_PLACE_HOST);
	assert_true(decision.cap == POLICY_NO_CAP && policy_rule_cap(policy, 1) == POLICY_NO_CAP);
	decision = policy_decide(policy, &large);
	assert_int_equal(decision.rule, -1);
	assert_int_equal(decision.n_uses, 1);
	assert_int_equal(decision.uses[0], POLICY_USE_SYSTEM);
	assert_true(decision.cap == POLICY_NO_CAP && policy_rule_cap(policy, -1) == POLICY_NO_CAP);
	assert_true(policy_uses(policy, POLICY_USE_HEAP) && policy_uses(policy, POLICY_USE_SYSTEM));
}

TEST(a_rule_takes_the_files_settings_where_it_has_none)
{
	struct policy *policy = good_policy(
	    "rules:\n"
	    "- {match: {size: < 1MiB}, use: managed, managed: {prefetch: on-alloc}, system.numa_node: auto}\n"
	    "- {use: system, managed.advise: [], system.huge_pages: yes}\n"
	    "managed: {advise: [preferred-host, read-mostly], prefetch: none}\n"
	    "system: {register: no, huge_pages: no, numa_node: 3}\n");
	struct policy_request small = {.bytes = 1}, large = {.bytes = MIB};
	struct policy_decision decision = policy_decide(policy, &small);

	assert_int_equal(decision.managed->advise, 1 << POLICY_ADVISE_PREFERRED_HOST | 1 << POLICY_ADVISE_READ_MOSTLY);
	assert_int_equal(decision.managed->prefetch, POLICY_PREFETCH_ON_ALLOC);
	assert_false(decision.system->register_pages);
	assert_int_equal(decision.system->numa_node, POLICY_NODE_AUTO);
	decision = policy_decide(policy, &large);
	assert_int_equal(decision.managed->advise, 0);
	assert_int_equal(decision.managed->prefetch, POLICY_PREFETCH_NONE);
	assert_true(decision.system->huge_pages);
	assert_int_equal(decision.system->numa_node, 3);
}

TEST(keys_of_the_file_are_read)
{
	struct policy *policy = good_policy("observe: yes\nheap: {chunk: 8MiB, release_threshold: 0}\n"
					    "async: {use: heap, release_threshold: 2GiB}\ndefault: managed\n");

	assert_true(policy_settings(policy)->observe);
	assert_true(policy_settings(policy)->heap_chunk.value == 8 * MIB);
	assert_true(policy_settings(policy)->heap_release_threshold.kind == POLICY_SIZE_BYTES);
	assert_true(policy_settings(policy)->async_release_threshold.value == 2048 * MIB);
	assert_int_equal(policy_settings(policy)->async_use, POLICY_ASYNC_HEAP);
	/* Whoever observes has the driver serve everything. */
	assert_true(policy_uses(policy, POLICY_USE_DRIVER) && !policy_uses(policy, POLICY_USE_MANAGED));
}

TEST(shipped_policies_send_to_the_heap_what_pools_cannot_serve)
{
	static const struct {
		const char *name;
		enum policy_async use;
	} rows[] = {
	    {"heap", POLICY_ASYNC_AUTO},          {"training", POLICY_ASYNC_AUTO},
	    {"training-fast", POLICY_ASYNC_AUTO}, {"inference", POLICY_ASYNC_AUTO},
	    {"managed-to-heap", POLICY_ASYNC_AUTO},
	    {"managed", POLICY_ASYNC_DRIVER},     {"system", POLICY_ASYNC_DRIVER},
	    {"passthrough", POLICY_ASYNC_DRIVER}, {"observe", POLICY_ASYNC_DRIVER},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(policy_settings(good_policy_read(rows[i].name, NULL))->async_use, rows[i].use);
	assert_int_equal(good_settings("async.use: auto\n", NULL)->async_use, POLICY_ASYNC_AUTO);
	assert_int_equal(good_settings("default: heap\n", NULL)->async_use, POLICY_ASYNC_DRIVER);
}

TEST(shipped_policies_leave_communication_libraries_to_the_driver)
{
	static const char *const libraries[] = {"/usr/lib/libnccl.so.2", "libucp.so.0", "/x/libuct_cuda.so",
						"libucm.so", "/opt/nvshmem_bootstrap.so"};

	for (const char *const *name = policy_builtin_names(); *name; name++) {
		struct policy *policy = good_policy_read(*name, NULL);

		for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++) {
			struct policy_request request = {.bytes = 64 * MIB, .library = libraries[i]};

			assert_int_equal(policy_decide(policy, &request).use, POLICY_USE_DRIVER);
			request.library = "/usr/lib/libtorch_cuda.so";
			if (strcmp(*name, "passthrough") != 0)
				assert_int_not_equal(policy_decide(policy, &request).use, POLICY_USE_DRIVER);
		}
	}
}

TEST(host_memory_is_pinned_ahead_for_all_or_for_so_much)
{
	static const struct {
		const char *text;
		struct policy_size size;
	} rows[] = {
	    {"host.pin_ahead: auto\n", {.kind = POLICY_SIZE_AUTO}},
	    {"version: 1\n", {.kind = POLICY_SIZE_BYTES}},
	    {"spill.mode: fast\nhost: {pin_ahead: 34GiB, budget: 40GiB}\n",
	     {.kind = POLICY_SIZE_BYTES, .value = 34 * GIB}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct policy_size size = good_settings(rows[i].text, NULL)->host_pin_ahead;

		assert_int_equal(size.kind, rows[i].size.kind);
		assert_int_equal(size.value, rows[i].size.value);
	}
	good_policy("host.pin_ahead: 0\nspill.mode: off\n");
	good_policy("host.pin_ahead: 1GiB\nspill.mode: static\nobserve: yes\n");
	expect_problems("host.pin_ahead: 1GiB\nspill.mode: static\n",
			"p.yaml: warning: host.pin_ahead pins nothing with spill.mode: static, which moves nothing; "
			"write spill.mode: exact or fast, or host.pin_ahead: 0\n");
	expect_problems("host.pin_ahead: auto\ncontrol: no\n",
			"p.yaml: warning: host.pin_ahead pins nothing with control: no, whose thread does it; write "
			"control: yes, or host.pin_ahead: 0\n");
	expect_problems("host.pin_ahead: 10%\n",
			"p.yaml:1:17: error: host.pin_ahead: a share is not taken here; write bytes, as in 64MiB\n");
}

TEST(how_processes_take_turns)
{
	const struct policy_turns standard = good_settings("control: no\n", NULL)->turns;
	const struct policy_turns turns =
	    good_settings(
		"share: turns\nshare.weight: 3\nshare.quantum: 2.5s\nshare.wait.max: 1min\nshare.job: train\n", NULL)
		->turns;
	const struct policy_turns nested =
	    good_settings("share: {quantum: 20ms, wait: {max: auto}, queue: yes}\n", NULL)->turns;

	assert_int_equal(standard.mode, POLICY_TURNS_OFF);
	assert_int_equal(standard.weight, 1);
	assert_string_equal(standard.job, "");
	assert_int_equal(standard.quantum, 0);
	assert_int_equal(standard.patience, 10000 * MS);
	assert_int_equal(standard.queue, 0);
	assert_int_equal(turns.mode, POLICY_TURNS_ON);
	assert_int_equal(turns.weight, 3);
	assert_string_equal(turns.job, "train");
	assert_int_equal(turns.quantum, 2500 * MS);
	assert_int_equal(turns.patience, 60000 * MS);
	assert_int_equal(nested.quantum, 20 * MS);
	assert_int_equal(nested.patience, 0);
	assert_true(nested.queue == POLICY_WAIT_ALWAYS);
	assert_int_equal(good_settings("share.queue: 10min\n", NULL)->turns.queue, 600000 * MS);
}

TEST(names_and_sizes_can_be_read_alone)
{
	enum policy_api api = POLICY_API_VMM;
	char why[POLICY_EXPLAIN_BYTES];
	uint64_t bytes = 7;

	assert_true(policy_api_read("pool", &api, why));
	assert_int_equal(api, POLICY_API_POOL);
	assert_false(policy_api_read("poool", &api, why));
	assert_string_equal(
	    why, "\"poool\" is unknown; did you mean pool? Write malloc, pitch, managed, async, pool, host or vmm");
	assert_true(policy_bytes_read("1.5KiB", &bytes, why));
	assert_int_equal(bytes, 1536);
	assert_false(policy_bytes_read("", &bytes, why));
	assert_string_equal(why, "has no value; write 64MiB");
	assert_false(policy_bytes_read("1%", &bytes, why));
	assert_int_equal(bytes, 1536);
	assert_string_equal(policy_place_name(POLICY_PLACE_HOST), "host");
	assert_string_equal(policy_prefetch_name(POLICY_PREFETCH_ON_ALLOC), "on-alloc");
	assert_string_equal(policy_advise_name(POLICY_ADVISE_ACCESSED_BY), "accessed-by");
	assert_string_equal(policy_use_name(POLICY_USE_DENY), "deny");
	assert_string_equal(policy_use_name(POLICY_USE_COUNT), "?");
}
