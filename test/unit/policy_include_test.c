// SPDX-License-Identifier: Apache-2.0
/*
 * policy_include_test.c: policies in several files.
 */
#include "test/unit/policy_help.h"

#include <sys/stat.h>

/* The tests' working folder is theirs alone, so paths in messages are short. */
FIXTURE(enter)
{
	enter_folder(NULL);
	assert_int_equal(mkdir("sub", 0700), 0);
}

GROUP(enter, leave_folder)

TEST(included_rules_come_first_and_keys_are_overridden)
{
	const struct policy_request small = {.bytes = 1}, middle = {.bytes = 2000}, large = {.bytes = MIB};

	write_file("sub/one.yaml", "spill.mode: off\ndevice.budget: 1GiB\nmanaged.advise: [read-mostly, accessed-by]\n"
				   "rules: [{name: one, match: {size: < 1KiB}, use: driver}]\n");
	write_file("sub/two.yaml", "include: one.yaml\ndevice.budget: 2GiB\n"
				   "rules: [{name: two, match: {size: < 10KiB}, use: deny}]\n");
	write_file("top.yaml", "rules: [{name: top, match: {size: < 100KiB}, use: driver}, {use: system}]\n"
			       "managed.advise: preferred-host\nspill.mode: static\n"
			       "include: [sub/two.yaml]\n");
	struct policy *policy = good_policy_read("./top.yaml", NULL);
	assert_int_equal(policy_n_rules(policy), 4);
	assert_string_equal(policy_rule_name(policy, 0), "one");
	assert_string_equal(policy_rule_name(policy, 1), "two");
	assert_string_equal(policy_rule_name(policy, 2), "top");
	assert_string_equal(policy_rule_name(policy, 3), "rule 4");
	assert_int_equal(policy_decide(policy, &small).rule, 0);
	assert_int_equal(policy_decide(policy, &middle).use, POLICY_USE_DENY);
	assert_int_equal(policy_decide(policy, &large).use, POLICY_USE_SYSTEM);
	assert_int_equal(policy_settings(policy)->spill, POLICY_SPILL_STATIC);
	assert_true(policy_settings(policy)->device_budget.value == 2ull << 30);
	assert_int_equal(policy_decide(policy, &large).managed->advise, 1 << POLICY_ADVISE_PREFERRED_HOST);
}

TEST(built_in_policies_can_be_included)
{
	write_file("p.yaml", "include: training-fast\ndevice.budget: 1GiB\n");
	struct policy *policy = good_policy_read("p.yaml", NULL);
	assert_int_equal(policy_settings(policy)->spill, POLICY_SPILL_FAST);
	assert_string_equal(policy_rule_name(policy, 0), "communication libraries");
	write_file("p.yaml", "include: [heap, heap]\n");
	expect_problems_read("p.yaml",
			     "p.yaml:1:17: error: include: \"heap\" is read already; name each policy once\n");
}

TEST(problems_name_their_file_and_stay_together)
{
	write_file("base.yaml", "version: 2\nrules:\n- {use: heap}\n- {use: hep}\n");
	write_file("p.yaml", "foo: 1\ninclude: base.yaml\nversion: 3\nspill.mode: *a\n");
	expect_problems_read("p.yaml", "p.yaml:1:1: error: unknown key \"foo\"; write one of: version, include, "
				       "observe, device, share, host, heap, spill, contents, managed, system, "
				       "async, vmm, submit, report, faults, control, ipc, limits, default, rules\n"
				       "p.yaml:3:10: error: version: \"3\" is unknown; write 1\n"
				       "p.yaml:4:13: error: an alias (*name) has no use in a policy; write the "
				       "value in full, or in quotes if it begins with *\n"
				       "base.yaml:1:10: error: version: \"2\" is unknown; write 1\n"
				       "base.yaml:4:9: error: rule 2: use: \"hep\" is unknown; did you mean heap? "
				       "Write heap, managed, system, driver or deny\n");
}

TEST(a_rule_that_an_included_one_covers_is_warned_of)
{
	write_file("base.yaml", "rules:\n- {match: {api: malloc}, use: heap}\n- {use: heap}\n");
	write_file("p.yaml", "include: base.yaml\nrules:\n- {use: driver}\n- {match: {api: malloc}, use: driver}\n");
	expect_problems_read("p.yaml", "p.yaml:3:3: warning: rule 1 is unreachable: rule 2 of base.yaml (line 3) "
				       "matches everything; move it up or remove it\n"
				       "p.yaml:4:3: warning: rule 2 is unreachable: rule 1 of base.yaml (line 2) "
				       "matches all that it matches; move it up or remove it\n");
}

TEST(a_circle_is_an_error)
{
	write_file("p.yaml", "include: p.yaml\n");
	expect_problems_read(
	    "p.yaml",
	    "p.yaml:1:10: error: include: \"p.yaml\" is read already, or includes this file; name each file once\n");
	write_file("a.yaml", "include: [sub/b.yaml]\n");
	write_file("sub/b.yaml", "version: 1\ninclude: ../a.yaml\n");
	expect_problems_read("a.yaml", "sub/b.yaml:2:10: error: include: \"../a.yaml\" is read already, or includes "
				       "this file; name each file once\n");
}

TEST(what_cannot_be_read_is_an_error_at_the_include)
{
	char text[9000] = "include: /";

	write_file("empty.yaml", "");
	write_file("p.yaml", "include: [none.yaml, sub, [x], '', empty.yaml, 'sub/../none.yaml']\nversion: 1\n");
	expect_problems_read(
	    "p.yaml",
	    "p.yaml:1:11: error: include: \"none.yaml\": there is no such file; write the path of one, or the name of "
	    "a built-in policy\n"
	    "p.yaml:1:22: error: include: \"sub\": it is a folder, not a regular file; write the path of a file\n"
	    "p.yaml:1:27: error: include: a name was expected; write the path of a file, or a list of paths\n"
	    "p.yaml:1:32: error: include: a name was expected; write the path of a file, or a list of paths\n"
	    "p.yaml:1:48: error: include: \"sub/../none.yaml\": there is no such file; write the path of one, or the "
	    "name of a built-in policy\n"
	    "empty.yaml: error: nothing is in it; write at least version: 1\n");
	write_file("p.yaml", "include: *x\ninclude: a.yaml\n");
	expect_problems_read(
	    "p.yaml", "p.yaml:1:10: error: an alias (*name) has no use in a policy; write the value in full, or in "
		      "quotes if it begins with *\n"
		      "p.yaml:2:1: error: include is given twice, first in line 1 column 1; remove one of them\n");
	memset(text + 10, 'a', 5000);
	write_file("p.yaml", text);
	expect_problems_read(
	    "p.yaml", "p.yaml:1:10: error: include: \"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\" "
		      "is too long a path; write a shorter one\n");
}

TEST(depth_and_number_of_files_are_bounded)
{
	char name[32], text[4096] = "include: [";

	for (int i = 0; i <= 9; i++) {
		char chain[64];

		snprintf(name, sizeof(name), "chain%d.yaml", i);
		snprintf(chain, sizeof(chain), i < 9 ? "include: chain%d.yaml\n" : "version: 1\n", i + 1);
		write_file(name, chain);
	}
	expect_problems_read("chain0.yaml", "chain8.yaml:1:10: error: include: \"chain9.yaml\" is included more "
					    "than 8 files deep; put some of them into one\n");
	good_policy_read("chain1.yaml", NULL);
	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "w%d.yaml", i);
		write_file(name, "version: 1\n");
		sprintf(text + strlen(text), "%s,", name);
	}
	strcat(text, "]\n");
	write_file("p.yaml", text);
	expect_problems_read("p.yaml",
			     "p.yaml:1:568: error: include: \"w63.yaml\" is one file too many; a policy may have 64\n");
}

TEST(rules_of_all_files_together_are_bounded)
{
	char *text = calloc(1, 1 << 20), *end = text + sprintf(text, "rules:\n");

	for (int i = 0; i < 6000; i++)
		end += sprintf(end, "- {match: {size: == %dB}, use: heap}\n", i);
	write_file("one.yaml", text);
	strcpy(text, "include: one.yaml\nrules:\n");
	end = text + strlen(text);
	for (int i = 0; i < 6000; i++)
		end += sprintf(end, "- {match: {size: == %dKiB}, use: heap}\n", i + 6);
	write_file("p.yaml", text);
	expect_problems_read(
	    "p.yaml", "p.yaml:3:1: error: rules: with those of other files they are more than 10000; write fewer\n");
	free(text);
}

TEST(set_cannot_include)
{
	struct policy_errors errors;

	assert_null(policy_read("heap", "include=x.yaml", &errors));
	assert_string_equal(errors.kept[0].text, "include is a list and cannot be set here; write it in a policy file");
	policy_errors_free(&errors);
}
