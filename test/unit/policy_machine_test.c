// SPDX-License-Identifier: Apache-2.0
/*
 * policy_machine_test.c: the machine's policy: it is the policy of who names none, its limits hold for every policy,
 * and it is ignored if others can write it. The file is one of the test's, and the test's user stands in for root.
 */
#include "test/unit/policy_help.h"

#include <sys/stat.h>

static char inside[80], path[128];

/* Writes the machine's policy; NULL: there is none. */
static void machine(const char *text)
{
	unlink(path);
	if (!text)
		return;
	write_file(path, text);
	assert_int_equal(chmod(path, 0644), 0);
}

FIXTURE(enter)
{
	enter_folder(NULL);
	snprintf(inside, sizeof(inside), "%s/etc", own_folder);
	snprintf(path, sizeof(path), "%s/policy.yaml", inside);
	assert_int_equal(mkdir(inside, 0755), 0);
	policy_machine_path = path;
	policy_machine_owner = geteuid();
}

GROUP(enter, leave_folder)

/* All problems, with "MACHINE" for the path of the machine's policy. Frees both. */
static const char *problems(const char *name, const char *set, bool is_good)
{
	static char all[4096];
	struct policy_errors errors;
	struct policy *policy = policy_read(name, set, &errors);
	char *at;

	snprintf(all, sizeof(all), "%s", problems_of(&errors));
	while ((at = strstr(all, path))) {
		memcpy(at, "MACHINE", 7);
		memmove(at + 7, at + strlen(path), strlen(at + strlen(path)) + 1);
	}
	assert_int_equal(policy != NULL, is_good);
	policy_free(policy);
	policy_errors_free(&errors);
	return all;
}

static struct policy_setting setting_of(const struct policy *policy, const char *key)
{
	struct policy_setting setting;

	for (unsigned i = 0; policy_setting(policy, i, &setting); i++)
		if (!strcmp(setting.key, key))
			return setting;
	fail_msg("no setting %s", key);
	return setting;
}

static void setting_is(const struct policy *policy, const char *key, const char *value, const char *cut,
		       const char *limit, const char *file, unsigned line)
{
	struct policy_setting setting = setting_of(policy, key);

	assert_string_equal(setting.value, value);
	assert_string_equal(setting.cut, cut);
	assert_string_equal(setting.limit, limit);
	assert_string_equal(setting.file ? setting.file : "(none)", file ? file : "(none)");
	assert_int_equal(setting.line, line);
}

TEST(who_names_no_policy_gets_the_machines)
{
	machine(NULL);
	assert_string_equal(policy_name(good_policy_read(NULL, NULL)), "heap");
	machine("include: other.yaml\nspill.mode: static\n");
	write_file("etc/other.yaml", "device.budget: 3GiB\n");
	for (int i = 0; i < 2; i++) {
		struct policy *policy = good_policy_read(i ? "" : NULL, "host.budget=1GiB");

		assert_string_equal(policy_name(policy), path);
		assert_false(policy_is_builtin(policy));
		assert_int_equal(policy_settings(policy)->spill, POLICY_SPILL_STATIC);
		assert_int_equal(policy_settings(policy)->device_budget.value, 3ull << 30);
		assert_int_equal(policy_settings(policy)->host_budget.value, 1ull << 30);
	}
	assert_int_equal(policy_settings(good_policy_read("heap", NULL))->spill, POLICY_SPILL_EXACT);
}

TEST(no_policy_and_no_setting_exceeds_a_limit)
{
	machine("limits:\n  device: {budget: 4GiB, total: 50%}\n  host.budget: 25%\n  host.total: 64GiB\n"
		"  spill.mode: exact\n");
	assert_string_equal(problems("heap", "spill.mode=fast,device.budget=5GiB,host.total=65GiB", true),
			    "SPILLWAY_SET:1:1: warning: spill.mode: fast is more than this machine allows; exact holds "
			    "(limits of MACHINE)\n"
			    "SPILLWAY_SET:1:17: warning: device.budget: 5GiB is more than this machine allows; 4GiB "
			    "holds (limits of MACHINE)\n"
			    "SPILLWAY_SET:1:36: warning: host.total: 65GiB is more than this machine allows; 64GiB "
			    "holds (limits of MACHINE)\n");
	struct policy *policy = any_policy_read("heap", "spill.mode=fast,device.budget=5GiB,host.total=65GiB");
	assert_int_equal(policy_settings(policy)->spill, POLICY_SPILL_EXACT);
	assert_int_equal(policy_settings(policy)->device_budget.value, 4ull << 30);
	assert_int_equal(policy_settings(policy)->host_total.value, 64ull << 30);
	/* In a file the place is that of the key; a file that the policy includes is the one that is named. */
	write_file("base.yaml", "version: 1\nhost.budget: 30%\n");
	write_file("p.yaml", "include: base.yaml\n");
	assert_string_equal(problems("./p.yaml", NULL, true), "./base.yaml:2:1: warning: host.budget: 30% is more than "
							      "this machine allows; 25% holds (limits of MACHINE)\n");
	/*
	 * What stays below, and what only the machine can compare, is left. A value that nobody wrote is cut silently.
	 */
	const struct policy_settings *settings =
	    policy_settings(good_policy_read("training-fast", "device.budget=4GiB,host.budget=1GiB,spill.mode=static"));
	assert_int_equal(settings->spill, POLICY_SPILL_STATIC);
	assert_int_equal(settings->host_budget.value, 1ull << 30);
	assert_int_equal(settings->limits.most[POLICY_LIMIT_HOST_BUDGET].kind, POLICY_SIZE_PERCENT);
	assert_int_equal(settings->limits.most[POLICY_LIMIT_HOST_BUDGET].value, 2500);
	/* The processes share the device, though the policy does not say so. */
	assert_int_equal(settings->device_total.kind, POLICY_SIZE_PERCENT);
	assert_int_equal(settings->device_total.value, 5000);
	machine("limits: {spill.mode: static}\n");
	/* heap says exact, but nobody here has written that */
	for (int i = 0; i < 2; i++)
		assert_int_equal(policy_settings(good_policy_read(i ? NULL : "heap", NULL))->spill,
				 POLICY_SPILL_STATIC);
	settings = policy_settings(good_policy_read(NULL, NULL));
	assert_int_equal(settings->limits.most[POLICY_LIMIT_DEVICE_BUDGET].kind, POLICY_SIZE_AUTO);
}

TEST(a_setting_says_where_it_comes_from_and_what_cut_it)
{
	struct policy_errors errors;

	machine("limits: {device.budget: 4GiB, host.budget: 12.5%}\n");
	write_file("p.yaml", "version: 1\n\ndevice.budget: 5GiB\nmanaged.advise: [read-mostly]\n");
	struct policy *policy = policy_read("./p.yaml", "spill.mode=off", &errors);
	assert_int_equal(errors.n, 1);
	policy_errors_free(&errors);
	setting_is(policy, "device.budget", "4GiB", "5GiB", "4GiB", "./p.yaml", 3);
	setting_is(policy, "host.budget", "auto", "", "12.50%", NULL, 0);
	setting_is(policy, "spill.mode", "off", "", "", "SPILLWAY_SET", 0);
	assert_string_equal(setting_of(policy, "managed.advise").value, "...");
	assert_string_equal(setting_of(policy, "system.numa_node").value, "auto");
	assert_string_equal(setting_of(policy, "report.summary").value, "yes");
	policy_free(policy);
}

TEST(it_is_ignored_if_others_can_write_it)
{
	static const char refused[] = "MACHINE: warning: the file and its folder must be root's, and nobody else may "
				      "write there; it is ignored, and with it the limits of this machine\n";
	static const char limits[] = "limits: {spill.mode: off}\n";

	machine(limits);
	assert_int_equal(chmod(path, 0646), 0);
	assert_string_equal(problems("heap", NULL, true), refused);
	assert_int_equal(policy_settings(any_policy_read("heap", NULL))->spill, POLICY_SPILL_EXACT);
	assert_int_equal(chmod(path, 0644), 0);
	assert_string_equal(problems("heap", NULL, true), "");
	assert_int_equal(chmod(inside, 0777), 0);
	assert_string_equal(problems(NULL, NULL, true), refused);
	assert_int_equal(chmod(inside, 0755), 0);
	policy_machine_owner = geteuid() + 1;
	assert_string_equal(problems(NULL, NULL, true), refused);
	policy_machine_owner = geteuid();
	unlink(path);
	assert_int_equal(mkfifo(path, 0644), 0);
	assert_string_equal(problems(NULL, NULL, true),
			    "MACHINE: warning: it is a pipe, not a regular file; write the path of a file; it is "
			    "ignored, and with it the limits of this machine\n");
	unlink(path);
	assert_int_equal(symlink(path, path), 0);
	assert_string_equal(problems(NULL, NULL, true),
			    "MACHINE: warning: it cannot be opened by this user; allow reading with chmod; it is "
			    "ignored, and with it the limits of this machine\n");
}

TEST(an_error_in_it_is_one_of_every_policy)
{
	machine("limits: {device.budget: auto, host.budget: 1, x: 1}\nspill.mode: fats\n");
	assert_string_equal(problems("heap", NULL, false), problems(NULL, NULL, false));
	assert_string_equal(problems("heap", NULL, false),
			    "MACHINE:1:25: error: limits: device.budget: \"auto\" is not a size; write 64MiB\n"
			    "MACHINE:1:44: error: limits: host.budget: \"1\" has no unit; write 1MiB or 1GiB\n"
			    "MACHINE:1:47: error: limits: unknown key \"x\"; write one of: device, host, spill\n"
			    "MACHINE:2:13: error: spill.mode: \"fats\" is unknown; did you mean fast? Write off, "
			    "static, exact or fast\n");
	/* Its warnings concern those who use it. */
	machine("rules: [{use: driver}, {use: heap}]\nlimits: {host.budget: none}\n");
	assert_string_equal(problems("heap", NULL, true), "");
	assert_non_null(strstr(problems(NULL, NULL, true), "MACHINE:1:24: warning: rule 2 is unreachable"));
}

TEST(limits_elsewhere_limit_nothing)
{
	machine("limits: {host.budget: 2GiB}\n");
	write_file("p.yaml", "host.budget: 3GiB\nlimits:\n  host.budget: 1GiB\n  device.budget: 1GiB\n");
	assert_string_equal(problems("./p.yaml", NULL, true),
			    "./p.yaml:1:1: warning: host.budget: 3GiB is more than this machine allows; 2GiB holds "
			    "(limits of MACHINE)\n"
			    "./p.yaml:3:3: warning: limits hold in MACHINE alone; here they limit nothing\n");
	const struct policy_settings *settings = policy_settings(any_policy_read("./p.yaml", NULL));
	assert_int_equal(settings->host_budget.value, 2ull << 30);
	assert_int_equal(settings->limits.most[POLICY_LIMIT_DEVICE_BUDGET].kind, POLICY_SIZE_AUTO);
	expect_problems(
	    "limits: [1]\n",
	    "p.yaml:1:9: error: limits: a map was expected; write limits: {host.budget: 64GiB}, or remove it\n");
	expect_problems_set(
	    "version: 1", "limits=1",
	    "SPILLWAY_SET:1:1: error: limits is a map and cannot be set here; write it in a policy file\n");
}
