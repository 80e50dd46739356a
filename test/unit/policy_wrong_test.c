// SPDX-License-Identifier: Apache-2.0
/*
 * policy_wrong_test.c: the mistakes in rules, word by word and with their places, and rules that are never reached.
 */
#include "test/unit/policy_help.h"

#include "policy/text.h"

TEST(wrong_values_say_what_to_write_instead)
{
	static const char *const rows[][2] = {
	    {"use: heap, match.api: mallok",
	     "api: \"mallok\" is unknown; did you mean malloc? Write malloc, pitch, managed, async, pool, host or vmm"},
	    {"use: heap, match.api: [pool, pool]", "api: \"pool\" is listed already; remove it"},
	    {"use: heap, match.api: []", "api: an empty list matches nothing; write match.api: malloc, or remove it"},
	    {"use: heap, match.api: [[a]]", "api: one value was expected, not a list; write match.api: malloc"},
	    {"use: heap, match.library: {a: b}",
	     "library: one value was expected, not a map; write match.library: \"*name*\""},
	    {"use: heap, match.device: x", "device: \"x\" is no device; write a number from 0 to 62, or \"0 .. 3\""},
	    {"use: heap, match.device: 63", "device: \"63\" is no device; write a number from 0 to 62, or \"0 .. 3\""},
	    {"use: heap, match.device: -1", "device: \"-1\" is no device; write a number from 0 to 62, or \"0 .. 3\""},
	    {"use: heap, match.device: 3..1",
	     "device: \"3..1\" is no device; write a number from 0 to 62, or \"0 .. 3\""},
	    {"use: heap, match.device: 99999999999999999999",
	     "device: \"99999999999999999999\" is no device; write a number from 0 to 62, or \"0 .. 3\""},
	    {"use: heap, match.device: [1, 0..2]", "device: \"0..2\" is listed already; remove it"},
	    {"use: heap, match.rank: x", "rank: \"x\" is no rank; write a number, \"0 .. 3\" or \">= 4\""},
	    {"use: heap, match.rank: ''", "rank: \"\" is no rank; write a number, \"0 .. 3\" or \">= 4\""},
	    {"use: heap, match.rank: -1", "rank: \"-1\" is no rank; write a number, \"0 .. 3\" or \">= 4\""},
	    {"use: heap, match.rank: 4 ..", "rank: \"4 ..\" is no rank; write a number, \"0 .. 3\" or \">= 4\""},
	    {"use: heap, match.rank: = 4", "rank: \"= 4\" is no rank; write a number, \"0 .. 3\" or \">= 4\""},
	    {"use: heap, match.rank: < 4MiB", "rank: \"< 4MiB\" is no rank; write a number, \"0 .. 3\" or \">= 4\""},
	    {"use: heap, match.rank: 99999999999999999999",
	     "rank: \"99999999999999999999\" is no rank; write a number, \"0 .. 3\" or \">= 4\""},
	    {"use: heap, match.rank: 3 .. 1", "rank: \"3 .. 1\" matches nothing; write \"1 .. 3\""},
	    {"use: heap, match.rank: < 0", "rank: \"< 0\" matches nothing; write \"== 0\" or remove the rule"},
	    {"use: heap, match.rank: [0 .. 3, 7, '> 2']", "rank: \"> 2\" is listed already; remove it"},
	    {"use: heap, match.rank: [7, 0, 7]", "rank: \"7\" is listed already; remove it"},
	    {"use: heap, match.rank: [3 .. 4, 2 .. 3]", "rank: \"2 .. 3\" is listed already; remove it"},
	    {"use: heap, match.rank: []", "rank: an empty list matches nothing; write match.rank: 0, or remove it"},
	    {"use: heap, match.thread: ''", "thread: has no value; write a name, or a pattern as in \"*nccl*\""},
	    {"use: heap, match.thread: \"a\\nb\"",
	     "thread: has line breaks or control characters in it; write one line of plain text"},
	    {"use: heap, match.thread: [a, b, a]", "thread: \"a\" is listed already; remove it"},
	    {"use: heap, match.order: first",
	     "order: \"first\" is no order; write \"first 100\", \"after 100\" or \"100 .. 200\""},
	    {"use: heap, match.order: first x", "order: \"first x\" has no plain number; write \"first 100\""},
	    {"use: heap, match.order: after -1", "order: \"after -1\" has no plain number; write \"after 100\""},
	    {"use: heap, match.order: first 0",
	     "order: \"first 0\" matches nothing; write \"first 1\" or remove the rule"},
	    {"use: heap, match.order: 7",
	     "order: \"7\" is no order; write \"first 100\", \"after 100\" or \"100 .. 200\""},
	    {"use: heap, match.order: 9 .. 7",
	     "order: \"9 .. 7\" matches nothing; the first is number 1, write \"1 .. 200\""},
	    {"use: heap, match.pressure: free < 1GiB",
	     "pressure: \"free < 1GiB\" is no pressure; write \"device.free < 2GiB\""},
	    {"use: heap, match.pressure: device.free < 10%",
	     "pressure: a share cannot be a condition; write bytes, as in \"< 64MiB\""},
	    {"use: heap, match.live: 8",
	     "live: \"8\" is a size, not a condition; write \"== 64MiB\", \">= 64MiB\" or \"1MiB .. 64MiB\""},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct policy_errors errors;
		char text[300];

		snprintf(text, sizeof(text), "rules:\n- {%s}\n", rows[i][0]);
		assert_null(policy_read_text("p.yaml", text, strlen(text), NULL, &errors));
		assert_int_equal(errors.n, 1);
		assert_int_equal(errors.kept[0].line, 2);
		assert_memory_equal(errors.kept[0].text, "rule 1: match.", 14);
		assert_string_equal(errors.kept[0].text + 14, rows[i][1]);
		policy_errors_free(&errors);
	}
}

TEST(wrong_decisions_say_what_to_write_instead)
{
	expect_problems(
	    "rules:\n"
	    "- {use: heap, fallback: heap}\n"
	    "- {use: heap, fallback: [deny, driver]}\n"
	    "- {use: deny, fallback: driver}\n"
	    "- {use: heap, fallback: [driver, driver], cap: 5}\n"
	    "- {use: heap, place: hsot, cap: 50%}\n"
	    "- {use: managed, managed.advise: [preferred-device, preferred-host]}\n"
	    "- {use: system, system: {numa_node: 1024, register: 1}, cap: -1MiB}\n"
	    "- {use: heap, managed: {prefetch: never}, cap: 16777216TiB}\n"
	    "heap.chunk: 2\n"
	    "async: heap\n"
	    "managed.advise: [preferred-host, preferred-device]\n",
	    "p.yaml:2:15: error: rule 1: fallback: heap is what the rule uses first; remove it\n"
	    "p.yaml:3:15: error: rule 2: fallback: deny is the end; remove what stands behind it\n"
	    "p.yaml:4:15: error: rule 3: fallback: a rule that denies asks nobody else; remove it\n"
	    "p.yaml:5:34: error: rule 4: fallback: \"driver\" is listed already; remove it\n"
	    "p.yaml:5:48: error: rule 4: cap: \"5\" has no unit; write 5MiB or 5GiB\n"
	    "p.yaml:6:22: error: rule 5: place: \"hsot\" is unknown; did you mean host? Write auto, device, host, "
	    "on-use or stripe\n"
	    "p.yaml:6:33: error: rule 5: cap: a share is not taken here; write bytes, as in 64MiB\n"
	    "p.yaml:7:18: error: rule 6: managed.advise: memory cannot prefer the device and the host; remove one of "
	    "them\n"
	    "p.yaml:8:37: error: rule 7: system.numa_node: \"1024\" is no NUMA node; write auto or a number from 0 to "
	    "1023\n"
	    "p.yaml:8:53: error: rule 7: system.register: \"1\" is unknown; write yes, no, true, false, on or off (a "
	    "number is not taken as yes or no)\n"
	    "p.yaml:8:62: error: rule 7: cap: \"-1MiB\" is negative; write 0 or more, as in 64MiB\n"
	    "p.yaml:9:35: error: rule 8: managed.prefetch: \"never\" is unknown; write none or on-alloc\n"
	    "p.yaml:9:48: error: rule 8: cap: \"16777216TiB\" is more than 64 bits of bytes (16384 PiB) can say; write "
	    "a smaller size\n"
	    "p.yaml:10:13: error: heap.chunk: \"2\" has no unit; write 2MiB or 2GiB\n"
	    "p.yaml:11:8: error: async is a group of keys, not a value; write async.use: driver\n"
	    "p.yaml:12:1: error: managed.advise: memory cannot prefer the device and the host; remove one of them\n");
}

/* Up to 0.2.0 there were these. */
TEST(what_is_no_longer_known_is_an_error_that_says_what_is)
{
	expect_problems("managed: {headroom: 1GiB}\n"
			"vmm.spill: yes\n"
			"managed.prefetch: before-launch\n"
			"rules:\n"
			"- {match: {nvtx: x}, use: heap}\n",
			"p.yaml:1:11: error: unknown key \"managed.headroom\"; write one of: advise, prefetch\n"
			"p.yaml:2:12: error: vmm.spill: \"yes\" is unknown; write no, move, false or off\n"
			"p.yaml:3:19: error: managed.prefetch: \"before-launch\" is unknown; write none or on-alloc\n"
			"p.yaml:5:12: error: rule 1: unknown key \"match.nvtx\"; write one of: size, api, device, "
			"rank, process, arguments, library, caller, thread, order, live, pressure\n");
}

TEST(memory_that_is_taken_on_use_moves)
{
	expect_problems("rules:\n"
			"- {use: heap, place: on-use, movable: exact}\n"
			"- {use: heap, place: onuse}\n",
			"p.yaml:3:22: error: rule 2: place: \"onuse\" is unknown; did you mean on-use? Write auto, "
			"device, host, on-use or stripe\n");
	expect_problems("rules:\n"
			"- {use: heap, place: on-use, movable: no}\n",
			"p.yaml:2:30: error: rule 1: movable: memory that never moves is made at once, and place: "
			"on-use makes none; remove one of them\n");
}

TEST(memory_of_a_kind_can_be_of_few_others)
{
	expect_problems(
	    "rules:\n"
	    "- {match: {api: managed}, use: managed}\n"
	    "- {match: {api: [malloc, host]}, use: managed}\n"
	    "- {match: {api: vmm}, use: driver, fallback: [system, deny]}\n"
	    "- {match: {api: managed}, use: system, fallback: [driver, deny]}\n"
	    "- {match: {api: [host, vmm]}, use: deny}\n",
	    "p.yaml:2:27: error: rule 1: use: managed cannot serve api managed, for the driver makes such memory "
	    "itself; "
	    "write heap, system, driver or deny, or a rule of its own for it\n"
	    "p.yaml:3:34: error: rule 2: use: managed cannot serve api host, for it is the driver's own; write driver "
	    "or "
	    "deny, or a rule of its own for it\n"
	    "p.yaml:4:36: error: rule 3: fallback: system cannot serve api vmm, for the program has the handles of it; "
	    "write driver or deny, or a rule of its own for it\n");
}

TEST(rules_that_name_no_api_do_not_cover_those_that_name_memory_of_a_kind)
{
	expect_problems("rules:\n"
			"- {use: heap}\n"
			"- {match: {api: managed}, use: system}\n"
			"- {match: {api: [pool, vmm]}, use: driver}\n"
			"- {match: {api: [managed, malloc], size: < 1GiB}, use: driver}\n"
			"- {match: {api: managed, size: < 1GiB}, use: driver}\n"
			"- {match: {api: [pool, malloc]}, use: driver}\n",
			"p.yaml:6:3: warning: rule 5 is unreachable: rule 2 (line 3) matches all that it matches; move "
			"it up or remove it\n"
			"p.yaml:7:3: warning: rule 6 is unreachable: rule 1 (line 2) matches everything; move it up or "
			"remove it\n");
}

/* What is warned of on two devices of that kind. */
static void expect_warnings(struct policy_device device, const char *text, const char *expected)
{
	struct policy_device devices[2] = {device, device};
	struct policy_errors errors;
	struct policy *policy = policy_read_text("p.yaml", text, strlen(text), NULL, &errors);

	assert_non_null(policy);
	policy_warn_devices(policy, devices, 0, &errors);
	assert_int_equal(errors.n, 0); /* nothing is known */
	policy_warn_devices(policy, devices, 2, &errors);
	expect_problems_of(policy, &errors, expected);
}

TEST(what_no_device_can_serve_is_warned_of)
{
	const struct policy_device bare = {.heap = true}, none = {0}, all = {true, true, true, true, true};

	expect_warnings(all, "default: system\nrules:\n- {use: heap, place: host}\n", "");
	expect_warnings(bare,
			"default: managed\nrules:\n- {use: heap, place: host, match.size: < 1MiB}\n- {use: system}\n",
			"p.yaml: warning: default: no device here can serve managed (there is no concurrent managed "
			"access); the driver serves what no rule matches\n"
			"p.yaml:3:3: warning: rule 1: no device here can serve use: heap (there is no host-backed "
			"virtual memory); the driver serves what it matches\n"
			"p.yaml:4:3: warning: rule 2: no device here can serve use: system (there is no access to "
			"pageable memory, or one address for registered pages); the driver serves what it matches\n");
	expect_warnings(none,
			"default: driver\nrules:\n- {use: heap, fallback: deny, match.size: < 1MiB}\n- {use: heap}\n",
			"p.yaml:4:3: warning: rule 2: no device here can serve use: heap (there is no virtual memory "
			"management); the driver serves what it matches\n");
}

TEST(rules_about_other_devices_than_there_are_match_nothing)
{
	const struct policy_device bare = {.heap = true};
	static const char device62[] = "rules:\n- {match: {device: 62}, use: managed}\n";
	struct policy_device many[70];
	struct policy_errors errors;
	struct policy *policy = policy_read_text("p.yaml", device62, sizeof(device62) - 1, NULL, &errors);

	expect_warnings(bare,
			"rules:\n- {match: {device: [2, 1]}, use: managed}\n- {match: {device: 7}, use: heap}\n"
			"- {use: system, system.register: no}\n",
			"p.yaml:2:3: warning: rule 1: no device here can serve use: managed (there is no concurrent "
			"managed access); the driver serves what it matches\n"
			"p.yaml:3:3: warning: rule 2: none of its devices is here, there are 2; it matches nothing\n"
			"p.yaml:4:3: warning: rule 3: no device here can serve use: system (there is no access to "
			"pageable memory, and system.register is no); the driver serves what it matches\n");
	/* No rule can be about more. */
	for (int i = 0; i < 70; i++)
		many[i] = (struct policy_device){.heap = true, .managed = i == 62};
	assert_non_null(policy);
	policy_warn_devices(policy, many, 70, &errors);
	assert_int_equal(errors.n, 0);
	policy_warn_devices(policy, many, 1, &errors);
	assert_non_null(strstr(errors.kept[0].text, "there is 1; it matches nothing"));
	policy_free(policy);
	policy_errors_free(&errors);
}

TEST(chunks_have_sizes_of_their_own)
{
	expect_problems("heap.chunk: 1MiB\n", "p.yaml:1:13: error: heap.chunk: \"1MiB\" is no size of a chunk; write "
					      "auto or a size from 2MiB to 128MiB\n");
	expect_problems("heap.chunk: 130MiB\n", "p.yaml:1:13: error: heap.chunk: \"130MiB\" is no size of a chunk; "
						"write auto or a size from 2MiB to 128MiB\n");
	for (unsigned i = 0; i < 6; i++) {
		static const char *const times[] = {"3", "0.5ms", "61min", "1.2345s", "2h", "99999999999999999999s"};
		char text[64], problem[256];

		snprintf(text, sizeof(text), "share.quantum: %s\n", times[i]);
		snprintf(problem, sizeof(problem),
			 "p.yaml:1:16: error: share.quantum: \"%s\" is no time; write auto or a time from 1ms to "
			 "60min, as in 500ms or 2.5s\n",
			 times[i]);
		expect_problems(text, problem);
	}
	expect_problems("share.weight: 0\n",
			"p.yaml:1:15: error: share.weight: \"0\" is no weight; write a number from 1 to 100\n");
	expect_problems("share.weight: 101\n",
			"p.yaml:1:15: error: share.weight: \"101\" is no weight; write a number from 1 to 100\n");
	expect_problems("share.queue: auto\n", "p.yaml:1:14: error: share.queue: \"auto\" is none of yes and no; write "
					       "yes, no or a time from 1ms to 60min, as in 10min\n");
	expect_problems("share: on\n", "p.yaml:1:8: error: share: \"on\" is unknown; write off, auto or turns\n");
	expect_problems("heap.chunk: 7MiB\n",
			"p.yaml:1:13: error: heap.chunk: \"7MiB\" is no multiple of 2MiB; write 6MiB\n");
	expect_problems("heap.chunk: 128MiB\n", "");
	expect_problems("heap.chunk: auto\n", "");
}

TEST(too_many_or_too_long_patterns_are_refused)
{
	char text[2000] = "rules:\n- {use: heap, match.thread: [", *end = text + strlen(text);

	for (int i = 0; i < 65; i++)
		end += sprintf(end, "t%02d,", i);
	strcpy(end, "]}\n");
	expect_problems(
	    text, "p.yaml:2:286: error: rule 1: match.thread: has more than 64 patterns; write fewer, with a *\n");
	strcpy(text, "rules:\n- {use: heap, match.thread: ");
	end = text + strlen(text);
	memset(end, 'a', 256);
	strcpy(end + 256, "}\n");
	expect_problems(
	    text,
	    "p.yaml:2:29: error: rule 1: match.thread: is longer than 255 bytes; write a shorter pattern with a *\n");
}

TEST(ranks_are_bounded)
{
	char text[16384] = "rules:\n- {use: heap, match.rank: [", *end = text + strlen(text);

	for (int i = 0; i < 1024; i++)
		end += sprintf(end, "%d,", 2 * i);
	strcpy(end, "]}\n");
	good_policy(text);
	/* What joins two of them is no further one. */
	strcpy(end, "1]}\n");
	good_policy(text);
	strcpy(end, "4000]}\n");
	expect_problems(
	    text,
	    "p.yaml:2:4593: error: rule 1: match.rank: has more than 1024 ranks apart from each other; write ranges\n");
}

TEST(rules_with_other_conditions_are_covered_only_by_wider_ones)
{
	expect_problems("rules:\n"
			"- {match: {api: [malloc, pitch], device: 0..3}, use: driver}\n"
			"- {match: {api: malloc, device: 1, size: < 1MiB}, use: heap}\n"
			"- {match: {api: malloc}, use: heap}\n"
			"- {match: {api: managed, device: 1}, use: system}\n"
			"- {match: {library: ['*a*', b], order: first 5}, use: heap}\n"
			"- {match: {library: b, order: first 5}, use: heap}\n"
			"- {match: {library: b, order: first 6}, use: heap}\n"
			"- {match: {thread: b, order: first 5}, use: heap}\n"
			"- {match: {thread: '*'}, use: heap}\n"
			"- {match: {thread: xyz, live: < 1GiB}, use: heap}\n"
			"- {match: {process: p, size: \">= 1MiB\"}, use: heap}\n"
			"- {match: {process: p, size: \">= 2MiB\", pressure: device.free < 1GiB}, use: heap}\n"
			"- {match: {arguments: p, size: \">= 2MiB\"}, use: heap}\n"
			"- {match: {rank: [0 .. 3, 6 .. 7]}, use: heap}\n"
			"- {match: {rank: [7, 1, 2], live: < 1GiB}, use: heap}\n"
			"- {match: {rank: [2 .. 4]}, use: heap}\n"
			"- {match: {rank: '> 5'}, use: heap}\n"
			"- {use: heap}\n"
			"- {match: {caller: x}, use: heap}\n",
			"p.yaml:3:3: warning: rule 2 is unreachable: rule 1 (line 2) matches all that it matches; move "
			"it up or remove it\n"
			"p.yaml:7:3: warning: rule 6 is unreachable: rule 5 (line 6) matches all that it matches; move "
			"it up or remove it\n"
			"p.yaml:11:3: warning: rule 10 is unreachable: rule 9 (line 10) matches all that it matches; "
			"move it up or remove it\n"
			"p.yaml:13:3: warning: rule 12 is unreachable: rule 11 (line 12) matches all that it matches; "
			"move it up or remove it\n"
			"p.yaml:16:3: warning: rule 15 is unreachable: rule 14 (line 15) matches all that it matches; "
			"move it up or remove it\n"
			"p.yaml:20:3: warning: rule 19 is unreachable: rule 18 (line 19) matches everything; move it "
			"up or remove it\n");
}

TEST(what_is_quoted_is_valid_utf_8_without_control_characters)
{
	static const struct {
		const char *text, *printed;
	} cases[] = {
	    {"a\x1b[31mb\x7f", "a?[31mb?"},
	    /* control characters of the second sort */
	    {"\xc2\x9b\xc2\xa0", "??\xc2\xa0"},
	    /* half of a pair, which no text has */
	    {"\xed\xb2\x80\xed\x9f\xbf", "???\xed\x9f\xbf"},
	    /* longer than it must be */
	    {"\xe0\x80\xaf\xf0\x8f\xbf\xbf", "???????"},
	    /* beyond the last character */
	    {"\xf4\x90\x80\x80\xf4\x8f\xbf\xbf", "????\xf4\x8f\xbf\xbf"},
	    /* bytes of another encoding, and a half */
	    {"\xfe\xe4.py\xc3", "??.py?"},
	};
	char room[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(policy_printable(cases[i].text, room, sizeof(room)), cases[i].printed);
}
