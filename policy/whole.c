/*
 * Checks combinations of values that are each valid: budgets, places of rules, vmm.spill and host.pin_ahead with the
 * spill mode.
 */
#include "policy/whole.h"

#include "policy/keys.h"
#include "policy/size.h"

static const struct policy_place whole = {0};

/* Returns true if a is known to be less than b. A share and a number of bytes can be compared only on a machine. */
static bool is_less(struct policy_size a, struct policy_size b)
{
	return a.kind == b.kind && a.kind != POLICY_SIZE_AUTO && a.value < b.value;
}

static void check_budgets(const struct policy *policy, struct policy_errors *errors)
{
	const struct policy_settings *settings = &policy->settings;
	bool given =
	    settings->device_budget.kind == POLICY_SIZE_BYTES || settings->device_budget.kind == POLICY_SIZE_PERCENT;
	bool nothing = given && settings->device_budget.value == 0;

	if (is_less(settings->host_total, settings->host_budget) && settings->host_share != POLICY_SHARE_OFF)
		policy_warning_add(errors, policy->name, whole,
				   "host.budget is more than host.total, which no process gets more than; write a "
				   "host.budget of at most host.total");
	if (!nothing || settings->observe)
		return;
	if (settings->spill == POLICY_SPILL_OFF)
		policy_error_add(errors, policy->name, whole,
				 "device.budget: 0 with spill.mode: off leaves the heap no memory at all; write "
				 "device.budget: auto or a SIZE, or another spill.mode");
	else
		policy_warning_add(errors, policy->name, whole,
				   "device.budget: 0 leaves the heap no device memory: nothing can be moved there, and "
				   "kernels reach all of it over the link; write auto, a SIZE or N%%");
}

/*
 * Returns true if the rule can place memory: by the heap, or by the driver for memory whose kind the program has
 * chosen itself.
 */
static bool has_place(const struct policy_rule *rule)
{
	bool has = rule->use == POLICY_USE_HEAP || rule->use == POLICY_USE_DRIVER;

	for (unsigned i = 0; i < rule->fallback.n; i++)
		has |= rule->fallback.use[i] == POLICY_USE_HEAP || rule->fallback.use[i] == POLICY_USE_DRIVER;
	return has;
}

static void check_place(const struct policy *policy, const struct policy_rule *rule, struct policy_errors *errors)
{
	const char *use = policy_use_name((enum policy_use)rule->use), *instead = "remove place";

	if (rule->place == POLICY_PLACE_AUTO || has_place(rule))
		return;
	if (rule->use == POLICY_USE_MANAGED && rule->place == POLICY_PLACE_HOST)
		instead = "write managed.advise: preferred-host, or use: heap";
	else if (rule->use == POLICY_USE_MANAGED)
		instead = "write managed.advise: preferred-device, or use: heap";
	else if (rule->use == POLICY_USE_SYSTEM)
		instead = "remove place, or write use: heap";
	policy_warning_add(errors, policy->files[rule->file], (struct policy_place){rule->line, rule->column},
			   "rule %u: place says where heap memory lies, and use: %s is none, so it changes nothing; %s",
			   rule->number_in_file, use, instead);
}

/*
 * Memory that the program makes with cuMemCreate moves in `exact`, and in `fast` where PyTorch reports its tensors
 * (shim/serve/vmm.h).
 */
static void check_vmm(const struct policy *policy, struct policy_errors *errors)
{
	static const char text[] =
	    "vmm.spill: move moves nothing with spill.mode: %s; write spill.mode: exact, or "
	    "vmm.spill: no";
	const struct policy_settings *settings = &policy->settings;
	const char *mode = policy_spill_name((enum policy_spill)settings->spill);

	if (settings->spill == POLICY_SPILL_EXACT || settings->spill == POLICY_SPILL_FAST || settings->observe)
		return;
	if (settings->vmm_spill == POLICY_VMM_MOVES)
		policy_warning_add(errors, policy->name, whole, text, mode);
	for (size_t i = 0; i < policy->n_rules; i++) {
		const struct policy_rule *rule = &policy->rules[i];
		bool given = rule->given & 1u << policy_key_find(&policy_rule_keys, "vmm.spill");

		if (given && rule->vmm_spill == POLICY_VMM_MOVES)
			policy_warning_add(errors, policy->files[rule->file],
					   (struct policy_place){rule->line, rule->column}, text, mode);
	}
}

/* Host memory is pinned ahead by the thread of the control socket, for memory that moves. */
static void check_pin_ahead(const struct policy *policy, struct policy_errors *errors)
{
	const struct policy_settings *settings = &policy->settings;
	bool moves = settings->spill == POLICY_SPILL_EXACT || settings->spill == POLICY_SPILL_FAST;
	bool none = settings->host_pin_ahead.kind == POLICY_SIZE_BYTES && settings->host_pin_ahead.value == 0;

	if (none || settings->observe)
		return;
	if (!moves)
		policy_warning_add(errors, policy->name, whole,
				   "host.pin_ahead pins nothing with spill.mode: %s, which moves nothing; write "
				   "spill.mode: exact or fast, or host.pin_ahead: 0",
				   policy_spill_name((enum policy_spill)settings->spill));
	else if (!settings->control)
		policy_warning_add(errors, policy->name, whole,
				   "host.pin_ahead pins nothing with control: no, whose thread does it; write control: "
				   "yes, or host.pin_ahead: 0");
}

void policy_check_whole(const struct policy *policy, struct policy_errors *errors)
{
	check_budgets(policy, errors);
	check_vmm(policy, errors);
	check_pin_ahead(policy, errors);
	for (size_t i = 0; i < policy->n_rules; i++)
		check_place(policy, &policy->rules[i], errors);
}
