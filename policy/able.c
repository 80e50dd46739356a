/*
 * Warns about rules that no device here can serve. Each use needs abilities of the device; a rule without a use that
 * one of its devices can serve has no effect, which the user may not know.
 */
#include "policy/error.h"
#include "policy/model.h"

#include <stdio.h>

/* Returns what a use needs that this device lacks, or NULL. */
static const char *able_lacks(const struct policy_device *device, enum policy_use use,
			      const struct policy_system *system, int place)
{
	switch (use) {
	case POLICY_USE_HEAP:
		if (!device->heap)
			return "virtual memory management";
		return place == POLICY_PLACE_HOST && !device->heap_on_host ? "host-backed virtual memory" : NULL;
	case POLICY_USE_MANAGED:
		return device->managed ? NULL : "concurrent managed access";
	case POLICY_USE_SYSTEM:
		if (device->pageable)
			return NULL;
		if (!system->register_pages)
			return "access to pageable memory, and system.register is no";
		return device->registers ? NULL : "access to pageable memory, or one address for registered pages";
	default:
		return NULL;
	}
}

/*
 * Returns NULL if one of the uses can be served on one of the devices in mask; otherwise what the first of them
 * lacks.
 */
static const char *all_lack(const struct policy_device *devices, int n, uint64_t mask, const unsigned char *uses,
			    unsigned n_uses, const struct policy_system *system, int place)
{
	const char *first = NULL;

	for (unsigned i = 0; i < n_uses; i++)
		for (int device = 0; device < n; device++) {
			const char *what = NULL;

			if (!(mask & 1ull << device))
				continue;
			what = able_lacks(&devices[device], (enum policy_use)uses[i], system, place);
			if (!what)
				return NULL;
			if (!first)
				first = what;
		}
	return first;
}

static void warn_rule(const struct policy *policy, const struct policy_rule *rule, const struct policy_device *devices,
		      int n, struct policy_errors *errors)
{
	uint64_t here = (1ull << n) - 1, mask = rule->devices ? rule->devices & here : here;
	struct policy_place place = {rule->line, rule->column};
	const char *file = policy->files[rule->file], *what;
	unsigned char uses[POLICY_MAX_USES] = {(unsigned char)rule->use};

	if (!mask) {
		policy_warning_add(errors, file, place,
				   "rule %u: none of its devices is here, there %s %d; it matches nothing",
				   rule->number_in_file, n == 1 ? "is" : "are", n);
		return;
	}
	for (unsigned i = 0; i < rule->fallback.n; i++)
		uses[1 + i] = rule->fallback.use[i];
	what = all_lack(devices, n, mask, uses, 1 + rule->fallback.n, &rule->system, rule->place);
	if (what)
		policy_warning_add(
		    errors, file, place,
		    "rule %u: no device here can serve use: %s%s (there is no %s); the driver serves what it "
		    "matches",
		    rule->number_in_file, policy_use_name((enum policy_use)rule->use),
		    rule->fallback.n ? " or its fallback" : "", what);
}

void policy_warn_devices(const struct policy *policy, const struct policy_device *devices, int n,
			 struct policy_errors *errors)
{
	unsigned char use = (unsigned char)policy->settings.use;
	const char *what;

	if (n <= 0)
		return;
	if (n > POLICY_MAX_DEVICES)
		n = POLICY_MAX_DEVICES;
	what = all_lack(devices, n, (1ull << n) - 1, &use, 1, &policy->settings.system, POLICY_PLACE_AUTO);
	if (what)
		policy_warning_add(
		    errors, policy->name, (struct policy_place){0},
		    "default: no device here can serve %s (there is no %s); the driver serves what no rule matches",
		    policy_use_name((enum policy_use)use), what);
	for (size_t i = 0; i < policy->n_rules; i++)
		warn_rule(policy, &policy->rules[i], devices, n, errors);
}
