// SPDX-License-Identifier: Apache-2.0
/*
 * policy_test.c: what the policy language promises. Each test reads texts and compares problems word by word with their
 * places, or asks for decisions.
 */
#include "test/unit/policy_help.h"

#include <dirent.h>
#include <sys/stat.h>

#include "policy/keys.h"

static struct policy *read_policy(const char *text, const char *set, struct policy_errors *errors)
{
	return policy_read_text("p.yaml", text, strlen(text), set, errors);
}

TEST(every_standard_value_of_the_key_table_can_be_read)
{
	const struct policy_keys *const tables[] = {&policy_file_keys, &policy_rule_keys};
	union {
		struct policy policy;
		struct policy_rule rule;
	} target;
	char why[POLICY_MAX_WHY];

	for (size_t t = 0; t < 2; t++)
		for (size_t i = 0; i < tables[t]->n; i++) {
			const struct policy_key *key = &tables[t]->keys[i];

			assert_true(strlen(key->name) < POLICY_MAX_KEY);
			if (key->standard && *key->standard)
				assert_true(policy_value_parse(key, key->standard, &target, why));
		}
}

TEST(nested_and_dotted_keys_mean_the_same)
{
	static const char *const texts[] = {
	    "device: {budget: 4GiB}\nhost:\n  budget: 50%\nspill: {mode: off}\nreport: {capacity: device+host, "
	    "summary: no}\n",
	    "device.budget: 4GiB\nhost.budget: 50%\nspill.mode: off\nreport.capacity: device+host\nreport.summary: "
	    "off\n",
	    "report.summary: 'false'\nreport: {capacity: \"device+host\"}\r\nspill.mode: off\nhost.budget: 50%\n"
	    "device.budget: 4GiB # and a comment\n",
	    "report: none\ndevice.budget: 4GiB\nhost.budget: 50%\nspill.mode: off\nreport.capacity: device+host\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		const struct policy_settings *settings = good_settings(texts[i], NULL);

		assert_true(settings->device_budget.kind == POLICY_SIZE_BYTES);
		assert_true(settings->device_budget.value == 4096 * MIB);
		assert_true(settings->host_budget.kind == POLICY_SIZE_PERCENT);
		assert_int_equal(settings->host_budget.value, 5000);
		assert_int_equal(settings->spill, POLICY_SPILL_OFF);
		assert_int_equal(settings->capacity, POLICY_CAPACITY_DEVICE_HOST);
		assert_int_equal(settings->report, POLICY_REPORT_NONE);
	}
}

TEST(what_processes_share_is_a_size_and_with_whom)
{
	const struct policy_settings *settings = good_settings("host: {share: off, total: 64GiB}\n", NULL);

	assert_int_equal(settings->host_share, POLICY_SHARE_OFF);
	assert_true(settings->host_total.kind == POLICY_SIZE_BYTES);
	assert_true(settings->host_total.value == 65536 * MIB);
	assert_true(settings->host_budget.kind == POLICY_SIZE_AUTO);
}

TEST(absent_keys_have_their_standard_values)
{
	struct policy *policy = good_policy("version: 1\n");
	const struct policy_settings *settings = policy_settings(policy);
	struct policy_decision decision = policy_decide(policy, &(struct policy_request){.bytes = MIB});

	assert_true(settings->device_budget.kind == POLICY_SIZE_START);
	assert_true(settings->host_budget.kind == POLICY_SIZE_AUTO);
	assert_true(settings->host_total.kind == POLICY_SIZE_AUTO);
	assert_int_equal(settings->host_share, POLICY_SHARE_USER);
	assert_int_equal(settings->spill, POLICY_SPILL_EXACT);
	assert_int_equal(settings->capacity, POLICY_CAPACITY_PHYSICAL);
	assert_int_equal(settings->report, POLICY_REPORT_SHORT);
	assert_true(settings->control);
	assert_int_equal(decision.use, POLICY_USE_HEAP);
	assert_int_equal(decision.rule, -1);
	assert_string_equal(policy_rule_name(policy, -1), "(no rule)");
	assert_string_equal(policy_name(policy), "p.yaml");
}

/* A block of so many bytes is decided about by that rule, and so. */
static void decides(struct policy *policy, uint64_t bytes, int rule, enum policy_use use)
{
	struct policy_decision decision = policy_decide(policy, &(struct policy_request){.bytes = bytes});

	assert_int_equal(decision.rule, rule);
	assert_int_equal(decision.use, use);
}

TEST(first_rule_that_matches_wins)
{
	struct policy *policy = good_policy("rules:\n"
					    "  - {name: middle, match: {size: 1MiB .. 64MiB}, use: driver}\n"
					    "  - {match.size: \">= 32MiB\", use: heap}\n"
					    "default: driver\n");

	assert_int_equal(policy_n_rules(policy), 2);
	decides(policy, 1, -1, POLICY_USE_DRIVER);
	decides(policy, 64 * MIB, 0, POLICY_USE_DRIVER);
	decides(policy, 64 * MIB + 1, 1, POLICY_USE_HEAP);
	assert_string_equal(policy_rule_name(policy, 0), "middle");
	assert_string_equal(policy_rule_name(policy, 1), "rule 2");
}

TEST(what_no_rule_calls_unmovable_is_movable)
{
	struct policy *policy = good_policy("rules:\n"
					    "  - {match.size: \"< 1MiB\", use: heap, movable: no}\n"
					    "  - {match.size: \"< 2MiB\", use: heap, movable: yes}\n"
					    "  - {match.size: \"< 3MiB\", use: heap, movable: exact}\n");
	static const struct {
		uint64_t bytes;
		bool movable, keep;
	} rows[] = {{MIB - 1, false, false}, {MIB, true, false}, {2 * MIB, true, true}, {3 * MIB, true, false}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct policy_request request = {.bytes = rows[i].bytes};
		struct policy_decision decision = policy_decide(policy, &request);

		assert_int_equal(decision.use, POLICY_USE_HEAP);
		assert_int_equal(decision.movable, rows[i].movable);
		assert_int_equal(decision.keep, rows[i].keep);
	}
	expect_problems("rules:\n- {use: heap, moveable: no}\n",
			"p.yaml:2:15: error: rule 1: unknown key \"moveable\"; did you mean \"movable\"?\n");
	expect_problems("rules:\n- {use: heap, movable: 0}\n",
			"p.yaml:2:24: error: rule 1: movable: \"0\" is unknown; write yes, no, exact, true, false, on "
			"or off (a number is not taken as yes or no)\n");
}

TEST(all_errors_come_in_one_go_in_the_order_of_the_file)
{
	expect_problems_set(
	    "version: 2\n"
	    "devcie:\n"
	    "  budget: 4GiB\n"
	    "device.budget: \"64\"\n"
	    "device:\n"
	    "  budget: 64M\n"
	    "  bugdet: 3GiB\n"
	    "report: {summary: 1, capacity: devicehost}\n"
	    "spill.mode: [a]\n"
	    "default:\n"
	    "rules:\n"
	    "- {match: {size: \">= 64MiB\"}, use: hep}\n"
	    "- match: \">= 3MiB\"\n"
	    "- foo\n",
	    "rules=3, devcie.budget=0, report.summary=yes,device=0,,report.summary=no,version",
	    "p.yaml:1:10: error: version: \"2\" is unknown; write 1\n"
	    "p.yaml:2:1: error: unknown key \"devcie\"; did you mean \"device\"?\n"
	    "p.yaml:4:16: error: device.budget: \"64\" has no unit; write 64MiB, 64GiB or 50%\n"
	    "p.yaml:6:3: error: device.budget is given twice, first in line 4 column 1; remove one of them\n"
	    "p.yaml:7:3: error: unknown key \"device.bugdet\"; did you mean \"budget\"?\n"
	    "p.yaml:8:19: error: report.summary: \"1\" is unknown; write yes, no, full, true, false, on or off (a "
	    "number is not taken as yes or no)\n"
	    "p.yaml:8:32: error: report.capacity: \"devicehost\" is unknown; did you mean device+host? Write physical, "
	    "budget or device+host\n"
	    "p.yaml:9:13: error: spill.mode: one value was expected, not a list; write spill.mode: exact\n"
	    "p.yaml:10:9: error: default: has no value; write heap, managed, system, driver or deny\n"
	    "p.yaml:12:36: error: rule 1: use: \"hep\" is unknown; did you mean heap? Write heap, managed, system, "
	    "driver or deny\n"
	    "p.yaml:13:3: error: rule 2: \"use\" is missing; write use: heap\n"
	    "p.yaml:13:10: error: rule 2: match is a group of keys, not a value; write match.size: \">= 64MiB\"\n"
	    "p.yaml:14:3: error: rule 3: a rule is a map; write - {match: {size: \">= 64MiB\"}, use: driver}\n"
	    "SPILLWAY_SET:1:1: error: rules is a list and cannot be set here; write it in a policy file\n"
	    "SPILLWAY_SET:1:10: error: unknown key \"devcie.budget\"; did you mean \"device.budget\"?\n"
	    "SPILLWAY_SET:1:46: error: \"device\" is a group of keys; write one of them, as in device.budget=start\n"
	    "SPILLWAY_SET:1:55: error: nothing stands between two commas or at an end; remove one comma\n"
	    "SPILLWAY_SET:1:56: error: report.summary is given twice, first in column 27; remove one of them\n"
	    "SPILLWAY_SET:1:74: error: \"version\" has no \"=\"; write key=value, as in device.budget=4GiB\n");
}

/* Texts with one problem each. */
TEST(odd_texts_are_refused_with_their_place)
{
	static const char *const rows[][2] = {
	    {"", "p.yaml: error: nothing is in it; write at least version: 1\n"},
	    {"# nothing\n", "p.yaml: error: nothing is in it; write at least version: 1\n"},
	    {"{}", "p.yaml: error: nothing is in it; write at least version: 1\n"},
	    {"- x", "p.yaml:1:1: error: a policy is a map of keys; write lines of \"key: value\", as in version: 1\n"},
	    {"version: 1\nversion: 1\n",
	     "p.yaml:2:1: error: version is given twice, first in line 1 column 1; remove one of them\n"},
	    {"device: {budget: 1GiB}\ndevice: {budget: 1GiB}\n",
	     "p.yaml:2:1: error: device is given twice, first in line 1 column 1; remove one of them\n"
	     "p.yaml:2:10: error: device.budget is given twice, first in line 1 column 10; remove one of them\n"},
	    {"budget: 4GiB", "p.yaml:1:1: error: unknown key \"budget\"; did you mean \"device.budget\"?\n"},
	    {"zzz: 1", "p.yaml:1:1: error: unknown key \"zzz\"; write one of: version, include, observe, device, "
		       "share, host, heap, spill, contents, managed, system, async, vmm, submit, report, faults, "
		       "control, ipc, limits, default, rules\n"},
	    {"device: 1GiB", "p.yaml:1:9: error: device is a group of keys, not a value; write device.budget: start\n"},
	    {"device: {}", "p.yaml:1:9: error: device is empty; remove it, or write device.budget: start\n"},
	    {"[a]: b", "p.yaml:1:1: error: a key must be plain text, not a list or a map; write key: value\n"},
	    {"rules: 3", "p.yaml:1:8: error: rules: a list was expected; write each rule on a line that begins with "
			 "\"- \", or remove the key\n"},
	    {"version: &a 1",
	     "p.yaml:1:10: error: an anchor (&name) has no use in a policy; remove it and write the value in full\n"},
	    {"version: *a", "p.yaml:1:10: error: an alias (*name) has no use in a policy; write the value in full, or "
			    "in quotes if it begins with *\n"},
	    {"version: !!int 1",
	     "p.yaml:1:10: error: a tag (!name) has no use in a policy; remove it and write the value alone\n"},
	    {"version: 1\n---\nversion: 1\n",
	     "p.yaml:2:1: error: a second document begins here; write one policy a file and remove this \"---\"\n"},
	    {"device:\n\tbudget: 1GiB\n", "p.yaml:2:1: error: a tab is used to indent; write spaces\n"},
	    {"%YAML 1.1\n---\nversion: 1\n",
	     "p.yaml:1:1: error: a directive (%) has no use in a policy; remove the line\n"},
	    {"version: \"1\\0\"", "p.yaml:1:10: error: the text has a NUL character (\\0) in it; write plain text\n"},
	    {"rules:\n- {use: heap, match: {size: >= 3MiB}}\n",
	     "p.yaml:2:29: error: a value that begins with > must be in quotes; write \">= 64MiB\"\n"},
	    {"rules:\n- use: heap\n  match.size: >= 3MiB\n",
	     "p.yaml:3:16: error: a value that begins with > or | must be in quotes; write size: \">= 64MiB\"\n"},
	    {"device.budget: %50",
	     "p.yaml:1:16: error: a value cannot begin with %; write the number first, as in 50%\n"},
	    {"version: \"1", "p.yaml:1:12: error: a quote is not closed; write the second quote\n"},
	    {"version: 1\n host: x\n",
	     "p.yaml:1:10: error: version: \"1 host\" is unknown; write 1\n"
	     "p.yaml:2:6: error: a \":\" is not expected here; write one \"key: value\" a line, keys of one map in one "
	     "column, and quotes around a value with \": \" in it\n"},
	    {"version: \xff", "p.yaml:1:10: error: this is not UTF-8; save the file as UTF-8 text\n"},
	    {"version: 1\n\x01", "p.yaml:2:1: error: a control character; write plain text in UTF-8\n"},
	    {"rules:\n- use: heap\n  name: \"a\\nb\"\n", "p.yaml:3:9: error: rule 1: name: has line breaks or control "
							 "characters in it; write one line of plain text\n"},
	    {"rules:\n- use: heap\n  name: 12345678901234567890123456789012345678901234567890123456789012345\n",
	     "p.yaml:3:9: error: rule 1: name: is longer than 64 bytes; write a shorter text\n"},
	    {"rules:\n- nme: x\n  use: heap\n",
	     "p.yaml:2:3: error: rule 1: unknown key \"nme\"; did you mean \"name\"?\n"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		expect_problems(rows[i][0], rows[i][1]);
}

TEST(nul_bytes_are_refused_with_their_place)
{
	static const char text[] = "version: 1\n# \xc3\xa9\0\n";
	struct policy_errors errors;
	struct policy *policy = policy_read_text("p.yaml", text, sizeof(text) - 1, NULL, &errors);

	expect_problems_of(policy, &errors,
			   "p.yaml:2:4: error: the file has a NUL byte in it; write plain text in UTF-8\n");
}

TEST(deep_nesting_is_refused)
{
	char text[100010] = "rules: ";

	memset(text + 7, '[', 100000);
	expect_problems(
	    text,
	    "p.yaml:1:9: error: rule 1: a rule is a map; write - {match: {size: \">= 64MiB\"}, use: driver}\n"
	    "p.yaml:1:23: error: lists and maps are nested more than 16 deep; write a flat policy, 4 are enough\n");
}

TEST(rules_that_can_never_match_are_warned_of)
{
	expect_problems("rules:\n"
			"- {match: {size: < 1MiB}, use: driver}\n"
			"- {match: {size: == 4KiB}, use: heap}\n"
			"- {match: {size: 1MiB .. 2MiB}, use: heap}\n"
			"- {match: {size: 512KiB .. 1.5MiB}, use: heap}\n"
			"- {match: {size: 512KiB .. 3MiB}, use: heap}\n"
			"- {use: heap}\n"
			"- {use: driver}\n",
			"p.yaml:3:3: warning: rule 2 is unreachable: rule 1 (line 2) matches all that it matches; move "
			"it up or remove it\n"
			"p.yaml:5:3: warning: rule 4 is unreachable: the rules before it together match all that it "
			"matches; move it up or remove it\n"
			"p.yaml:8:3: warning: rule 7 is unreachable: rule 6 (line 7) matches everything; move it up or "
			"remove it\n");
}

TEST(set_goes_on_top_of_the_file)
{
	struct policy *policy =
	    good_policy_set("device.budget: 1GiB\nspill.mode: off\n", " device.budget = 2GiB,default=driver");

	assert_true(policy_settings(policy)->device_budget.value == 2048 * MIB);
	assert_int_equal(policy_settings(policy)->spill, POLICY_SPILL_OFF);
	decides(policy, 1, -1, POLICY_USE_DRIVER);
}

/* The settings where these are made. */
static const struct policy_settings *with(const char *set)
{
	return good_settings("version: 1", set);
}

static enum policy_pdl pdl_with(const char *set)
{
	return policy_pdl(good_policy_set("version: 1", set));
}

TEST(every_way_of_overlapping_kernels_has_its_word)
{
	assert_int_equal(pdl_with(""), POLICY_PDL_AUTO);
	assert_int_equal(pdl_with("submit.pdl=auto"), POLICY_PDL_AUTO);
	assert_int_equal(pdl_with("submit.pdl=keep"), POLICY_PDL_KEEP);
	assert_int_equal(pdl_with("submit.pdl=off"), POLICY_PDL_OFF);
	assert_int_equal(pdl_with("submit.pdl=off,observe=yes"), POLICY_PDL_KEEP);
	expect_problems(
	    "submit.pdl: of\n",
	    "p.yaml:1:13: error: submit.pdl: \"of\" is unknown; did you mean off? Write auto, keep or off\n");
}

TEST(what_is_kept_when_memory_moves_has_its_word)
{
	assert_int_equal(with("")->contents, POLICY_CONTENTS_ALIVE);
	assert_int_equal(with("contents=alive")->contents, POLICY_CONTENTS_ALIVE);
	assert_int_equal(with("contents=all")->contents, POLICY_CONTENTS_ALL);
	assert_int_equal(with("contents=poison")->contents, POLICY_CONTENTS_POISON);
	expect_problems(
	    "contents: poisson\n",
	    "p.yaml:1:11: error: contents: \"poisson\" is unknown; did you mean poison? Write alive, all or poison\n");
}

TEST(every_way_to_count_faults_has_its_word)
{
	assert_int_equal(with("")->faults, POLICY_FAULTS_AUTO);
	assert_int_equal(with("faults=auto")->faults, POLICY_FAULTS_AUTO);
	assert_int_equal(with("faults=off")->faults, POLICY_FAULTS_OFF);
	assert_int_equal(with("faults=events")->faults, POLICY_FAULTS_EVENTS);
	assert_int_equal(with("faults=cupti")->faults, POLICY_FAULTS_CUPTI);
	expect_problems(
	    "faults: event\n",
	    "p.yaml:1:9: error: faults: \"event\" is unknown; did you mean events? Write auto, off, events or cupti\n");
}

TEST(every_spill_mode_has_its_word)
{
	static const char *const words[] = {
	    [POLICY_SPILL_OFF] = "off",
	    [POLICY_SPILL_STATIC] = "static",
	    [POLICY_SPILL_EXACT] = "exact",
	    [POLICY_SPILL_FAST] = "fast",
	};
	char set[32];

	for (unsigned mode = 0; mode < sizeof(words) / sizeof(*words); mode++) {
		snprintf(set, sizeof(set), "spill.mode=%s", words[mode]);
		assert_int_equal(with(set)->spill, mode);
		assert_string_equal(policy_spill_name((enum policy_spill)mode), words[mode]);
	}
	expect_problems("spill.mode: exakt\n",
			"p.yaml:1:13: error: spill.mode: \"exakt\" is unknown; did you mean exact? "
			"Write off, static, exact or fast\n");
}

TEST(control_can_be_switched_off)
{
	assert_false(good_settings("control: no\n", NULL)->control);
}

TEST(ipc_can_be_switched_on)
{
	assert_true(good_settings("ipc: yes\n", NULL)->ipc);
	assert_false(good_settings("control: no\n", NULL)->ipc);
}

TEST(booleans_are_words)
{
	assert_int_equal(with("report.summary=yes")->report, POLICY_REPORT_SHORT);
	assert_int_equal(with("report.summary=true")->report, POLICY_REPORT_SHORT);
	assert_int_equal(with("report.summary=on")->report, POLICY_REPORT_SHORT);
	assert_int_equal(with("report.summary=no")->report, POLICY_REPORT_NONE);
	assert_int_equal(with("report.summary=false")->report, POLICY_REPORT_NONE);
	assert_int_equal(with("report.summary=off")->report, POLICY_REPORT_NONE);
	assert_int_equal(with("report=none")->report, POLICY_REPORT_NONE);
	assert_int_equal(with("report=summary")->report, POLICY_REPORT_SHORT);
	assert_int_equal(with("report=full")->report, POLICY_REPORT_FULL);
	assert_int_equal(with("report.summary=full")->report, POLICY_REPORT_FULL);
}

TEST(shipped_policies_are_built_in_and_without_fault)
{
	DIR *folder = opendir(POLICY_FOLDER);
	struct dirent *entry;
	size_t n_files = 0, n_names = 0;

	assert_non_null(folder);
	while ((entry = readdir(folder)))
		n_files += strstr(entry->d_name, ".yaml") != NULL;
	closedir(folder);
	for (const char *const *name = policy_builtin_names(); *name; name++, n_names++)
		assert_string_equal(policy_name(good_policy_read(*name, NULL)), *name);
	assert_int_equal(n_files, n_names);
}

TEST(heap_is_the_policy_when_none_is_named_and_passthrough_leaves_all_to_the_driver)
{
	struct policy *heap = good_policy_read(NULL, NULL);

	assert_string_equal(policy_name(heap), "heap");
	decides(heap, 1, -1, POLICY_USE_HEAP);
	assert_int_equal(policy_settings(heap)->spill, POLICY_SPILL_EXACT);
	decides(good_policy_read("passthrough", ""), 1, -1, POLICY_USE_DRIVER);
}

/* One problem of policy_read(name), without its file. */
static void expect_refused(const char *name, const char *text)
{
	struct policy_errors errors;

	assert_null(policy_read(name, NULL, &errors));
	assert_int_equal(errors.n_errors, 1);
	assert_int_equal(errors.kept[0].line, 0);
	assert_string_equal(errors.kept[0].text, text);
	policy_errors_free(&errors);
}

TEST(what_is_no_small_regular_file_is_refused_and_never_waited_for)
{
	char folder[] = "/tmp/policy_test.XXXXXX", path[64];

	alarm(20); /* instead of hanging on a FIFO, fail */
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/p.yaml", folder);
	expect_refused(path, "there is no such file; write the path of one, or the name of a built-in policy");
	assert_int_equal(mkfifo(path, 0600), 0);
	expect_refused(path, "it is a pipe, not a regular file; write the path of a file");
	unlink(path);
	FILE *file = fopen(path, "w");
	for (int i = 0; i <= 1 << 20; i++)
		fputc('#', file);
	fclose(file);
	expect_refused(path, "it is larger than 1 MiB, so it is hardly a policy; write the path of a smaller file");
	unlink(path);
	rmdir(folder);
	expect_refused("/tmp/", "it is a folder, not a regular file; write the path of a file");
	expect_refused("/dev/zero", "it is a device or a socket, not a regular file; write the path of a file");
	expect_refused("heep", "there is no built-in policy \"heep\"; did you mean \"heap\"?");
	expect_refused(
	    "zzz", "there is no built-in policy \"zzz\"; write one of heap, passthrough, managed, managed-to-heap, system, "
		   "training, training-fast, inference, observe, or the path of a file (with a / or ending in .yaml)");
	alarm(0);
}

TEST(a_hundred_problems_are_kept_and_errors_before_warnings)
{
	struct policy_errors errors;
	char *text = calloc(1, 1 << 16);

	strcpy(text, "rules:\n- {use: heap}\n");
	for (int i = 0; i < 200; i++)
		strcat(text, "- {use: heap}\n");
	assert_null(read_policy(text, "bad", &errors));
	assert_int_equal(errors.n, 201);
	assert_int_equal(errors.n_errors, 1);
	assert_int_equal(errors.n_kept, 100);
	assert_string_equal(errors.kept[99].file, "SPILLWAY_SET");
	assert_int_equal(errors.kept[98].line, 101);
	policy_errors_free(&errors);
	free(text);
}

TEST(more_than_ten_thousand_rules_are_refused)
{
	char *text = calloc(1, 1 << 20), *end = text + sprintf(text, "rules:\n");
	struct policy_errors errors;

	for (int i = 0; i < 10000; i++)
		end += sprintf(end, "- {match: {size: == %dB}, use: heap}\n", i);
	policy_free(read_policy(text, NULL, &errors));
	assert_int_equal(errors.n, 0);
	strcat(end, "- {use: heap}\n");
	assert_null(read_policy(text, NULL, &errors));
	assert_int_equal(errors.n, 1);
	assert_string_equal(errors.kept[0].text, "a list of more than 10000 entries; write fewer rules");
	policy_errors_free(&errors);
	free(text);
}
