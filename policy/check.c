// SPDX-License-Identifier: Apache-2.0
/* Checks what is valid value by value: values that contradict each other, and rules that never match or never serve. */
#include "policy/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds a warning about the policy as a whole, or about a rule of it. */
#define WARN(policy, ...) policy_warning_add(errors, (policy)->name, POLICY_WHOLE, __VA_ARGS__)
#define WARN_RULE(policy, rule, ...)                                                                                   \
	policy_warning_add(errors, (policy)->files[(rule)->file], (rule)->written, __VA_ARGS__)

/* ---- values that contradict each other ---- */

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
		WARN(policy, "host.budget is more than host.total, which no process gets more than; write a "
			     "host.budget of at most host.total");
	if (!nothing || settings->observe)
		return;
	if (settings->spill == POLICY_SPILL_OFF)
		policy_error_add(errors, policy->name, POLICY_WHOLE,
				 "device.budget: 0 with spill.mode: off leaves the heap no memory at all; write "
				 "device.budget: auto or a SIZE, or another spill.mode");
	else
		WARN(policy, "device.budget: 0 leaves the heap no device memory: nothing can be moved there, and "
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
	const char *instead = "remove place";

	if (rule->place == POLICY_PLACE_AUTO || has_place(rule))
		return;
	if (rule->use == POLICY_USE_MANAGED)
		instead = rule->place == POLICY_PLACE_HOST ? "write managed.advise: preferred-host, or use: heap"
							   : "write managed.advise: preferred-device, or use: heap";
	else if (rule->use == POLICY_USE_SYSTEM)
		instead = "remove place, or write use: heap";
	WARN_RULE(policy, rule,
		  "rule %u: place says where heap memory lies, and use: %s is none, so it changes nothing; %s",
		  rule->number_in_file, policy_use_name((enum policy_use)rule->use), instead);
}

static void check_limit(const struct policy *policy, const struct policy_rule *rule, struct policy_errors *errors)
{
	if (rule->given & 1u << policy_key_find(&policy_rule_keys, "spill.limit") && !has_place(rule))
		WARN_RULE(
		    policy, rule,
		    "rule %u: spill.limit is about heap memory, and use: %s is none, so it changes nothing; write "
		    "cap, or use: heap",
		    rule->number_in_file, policy_use_name((enum policy_use)rule->use));
}

static bool moves(const struct policy_settings *settings)
{
	return settings->spill == POLICY_SPILL_EXACT || settings->spill == POLICY_SPILL_FAST;
}

/*
 * Memory that the program makes with cuMemCreate moves in `exact`, and in `fast` where PyTorch reports its tensors
 * (shim/serve/serve.h).
 */
static void check_vmm(const struct policy *policy, struct policy_errors *errors)
{
	static const char text[] = "vmm.spill: move moves nothing with spill.mode: %s; write spill.mode: exact, or "
				   "vmm.spill: no";
	const struct policy_settings *settings = &policy->settings;
	const char *mode = policy_spill_name((enum policy_spill)settings->spill);

	if (moves(settings) || settings->observe)
		return;
	if (settings->vmm_spill == POLICY_VMM_MOVES)
		WARN(policy, text, mode);
	for (size_t i = 0; i < policy->n_rules; i++) {
		const struct policy_rule *rule = &policy->rules[i];
		bool given = rule->given & 1u << policy_key_find(&policy_rule_keys, "vmm.spill");

		if (given && rule->vmm_spill == POLICY_VMM_MOVES)
			WARN_RULE(policy, rule, text, mode);
	}
}

/* Host memory is pinned ahead by the thread of the control socket, for memory that moves. */
static void check_pin_ahead(const struct policy *policy, struct policy_errors *errors)
{
	const struct policy_settings *settings = &policy->settings;
	bool none = settings->host_pin_ahead.kind == POLICY_SIZE_BYTES && settings->host_pin_ahead.value == 0;

	if (none || settings->observe)
		return;
	if (!moves(settings))
		WARN(policy,
		     "host.pin_ahead pins nothing with spill.mode: %s, which moves nothing; write "
		     "spill.mode: exact or fast, or host.pin_ahead: 0",
		     policy_spill_name((enum policy_spill)settings->spill));
	else if (!settings->control)
		WARN(policy, "host.pin_ahead pins nothing with control: no, whose thread does it; write control: "
			     "yes, or host.pin_ahead: 0");
}

void policy_check_whole(const struct policy *policy, struct policy_errors *errors)
{
	check_budgets(policy, errors);
	check_vmm(policy, errors);
	check_pin_ahead(policy, errors);
	for (size_t i = 0; i < policy->n_rules; i++) {
		check_place(policy, &policy->rules[i], errors);
		check_limit(policy, &policy->rules[i], errors);
	}
}

/*
 * ---- unreachable rules ---- The union of the size ranges of all earlier rules without other conditions is kept as a
 * sorted list of pieces with gaps between them; a rule is unreachable if one piece contains its range. Rules with other
 * conditions are compared one by one: an earlier rule covers a later one if none of its conditions is narrower. Several
 * such rules that only together cover a later one are not found.
 */

static bool cover_holds(const struct policy_range *outer, const struct policy_range *inner)
{
	return outer->lo <= inner->lo && inner->hi <= outer->hi;
}

static bool is_any(const struct policy_range *range, int number)
{
	return range->lo <= (number == POLICY_NUMBER_ORDER ? 1u : 0u) && range->hi == UINT64_MAX;
}

/* Returns true if the rule has no condition other than the size. */
static bool is_plain(const struct policy_rule *rule)
{
	bool plain = !rule->apis && !rule->devices && !rule->ranks.n && !rule->process.n && !rule->arguments.n;

	for (int i = 0; i < POLICY_N_NUMBERS; i++)
		plain = plain && is_any(&rule->number[i], i);
	for (int i = 0; i < POLICY_N_TEXTS; i++)
		plain = plain && !rule->text[i].n;
	return plain;
}

static bool bits_cover(uint64_t outer, uint64_t inner)
{
	return !outer || (inner && !(inner & ~outer));
}

/* Returns true if outer matches every request that inner matches. */
static bool cover_covers(const struct policy_rule *outer, const struct policy_rule *inner)
{
	if (!cover_holds(&outer->size, &inner->size) || policy_rule_apis(inner) & ~policy_rule_apis(outer) ||
	    !bits_cover(outer->devices, inner->devices) || !policy_ranks_cover(&outer->ranks, &inner->ranks))
		return false;
	for (int i = 0; i < POLICY_N_NUMBERS; i++)
		if (!is_any(&outer->number[i], i) && !cover_holds(&outer->number[i], &inner->number[i]))
			return false;
	for (int i = 0; i < POLICY_N_TEXTS; i++)
		if (!policy_globs_cover(&outer->text[i], &inner->text[i]))
			return false;
	return policy_globs_cover(&outer->process, &inner->process) &&
	       policy_globs_cover(&outer->arguments, &inner->arguments);
}

/* Returns the index of the first piece that ends at or after lo - 1, that is, that touches or lies beyond lo. */
static size_t first_touching(const struct policy_range *pieces, size_t n, uint64_t lo)
{
	size_t from = 0, to = n;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (lo > 0 && pieces[middle].hi < lo - 1)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/*
 * Adds a range to the union and joins the pieces that it touches. pieces must have room for one more. Returns the new
 * number of pieces.
 */
static size_t cover_insert(struct policy_range *pieces, size_t n, struct policy_range range)
{
	size_t at = first_touching(pieces, n, range.lo), end = at;

	while (end < n && (range.hi == UINT64_MAX || pieces[end].lo <= range.hi + 1)) {
		if (pieces[end].lo < range.lo)
			range.lo = pieces[end].lo;
		if (pieces[end].hi > range.hi)
			range.hi = pieces[end].hi;
		end++;
	}
	memmove(pieces + at + 1, pieces + end, (n - end) * sizeof(*pieces));
	pieces[at] = range;
	return n + 1 - (end - at);
}

/* Writes "rule 3 (line 7)", with the file if it is another one. */
static void name_rule(const struct policy *policy, const struct policy_rule *rule, unsigned file, char name[120])
{
	if (rule->file == file)
		snprintf(name, 120, "rule %u (line %u)", rule->number_in_file, rule->written.line);
	else
		snprintf(name, 120, "rule %u of %.64s (line %u)", rule->number_in_file, policy->files[rule->file],
			 rule->written.line);
}

static void cover_warn(const struct policy *policy, size_t at, struct policy_errors *errors)
{
	const struct policy_rule *rules = policy->rules, *dead = &rules[at];
	char name[120];
	size_t by = 0;

	while (by < at && !cover_covers(&rules[by], dead))
		by++;
	if (by == at) {
		WARN_RULE(policy, dead,
			  "rule %u is unreachable: the rules before it together match all that it matches; "
			  "move it up or remove it",
			  dead->number_in_file);
		return;
	}
	name_rule(policy, &rules[by], dead->file, name);
	WARN_RULE(policy, dead, "rule %u is unreachable: %s matches %s; move it up or remove it", dead->number_in_file,
		  name, is_plain(&rules[by]) && is_any(&rules[by].size, -1) ? "everything" : "all that it matches");
}

/* Returns true if one of the earlier rules with other conditions than the size covers this rule. */
static bool is_covered(const struct policy *policy, const size_t *special, size_t n, size_t at)
{
	for (size_t i = 0; i < n; i++)
		if (cover_covers(&policy->rules[special[i]], &policy->rules[at]))
			return true;
	return false;
}

void policy_warn_unreachable(const struct policy *policy, struct policy_errors *errors)
{
	struct policy_range *pieces = malloc((policy->n_rules + 1) * sizeof(*pieces));
	size_t *special = malloc((policy->n_rules + 1) * sizeof(*special)), n = 0, n_special = 0;

	for (size_t i = 0; pieces && special && i < policy->n_rules; i++) {
		const struct policy_rule *rule = &policy->rules[i];
		size_t at = first_touching(pieces, n, rule->size.lo);

		/*
		 * A touching piece may end just before lo; then a gap follows, so the next one cannot contain the
		 * range.
		 */
		if (at < n && cover_holds(&pieces[at], &rule->size) && !(policy_rule_apis(rule) & ~POLICY_APIS_ANY))
			cover_warn(policy, i, errors);
		else if (is_plain(rule))
			n = cover_insert(pieces, n, rule->size);
		else if (is_covered(policy, special, n_special, i))
			cover_warn(policy, i, errors);
		else
			special[n_special++] = i;
	}
	free(pieces);
	free(special);
}

/* ---- rules that no device here can serve ---- */

/*
 * Each use needs abilities of the device. If no device of a rule can serve any of its uses, the driver serves what the
 * rule matches, which the user may not know.
 */

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
			if (!(mask & 1ull << device))
				continue;
			const char *what = able_lacks(&devices[device], (enum policy_use)uses[i], system, place);

			if (!what)
				return NULL;
			first = first ? first : what;
		}
	return first;
}

static void warn_rule(const struct policy *policy, const struct policy_rule *rule, const struct policy_device *devices,
		      int n, struct policy_errors *errors)
{
	uint64_t here = (1ull << n) - 1, mask = rule->devices ? rule->devices & here : here;
	unsigned char uses[POLICY_MAX_USES] = {(unsigned char)rule->use};

	if (!mask) {
		WARN_RULE(policy, rule, "rule %u: none of its devices is here, there %s %d; it matches nothing",
			  rule->number_in_file, n == 1 ? "is" : "are", n);
		return;
	}
	for (unsigned i = 0; i < rule->fallback.n; i++)
		uses[1 + i] = rule->fallback.use[i];
	const char *what = all_lack(devices, n, mask, uses, 1 + rule->fallback.n, &rule->system, rule->place);
	if (what)
		WARN_RULE(policy, rule,
			  "rule %u: no device here can serve use: %s%s (there is no %s); the driver serves what it "
			  "matches",
			  rule->number_in_file, policy_use_name((enum policy_use)rule->use),
			  rule->fallback.n ? " or its fallback" : "", what);
}

void policy_warn_devices(const struct policy *policy, const struct policy_device *devices, int n,
			 struct policy_errors *errors)
{
	unsigned char use = (unsigned char)policy->settings.use;

	if (n <= 0)
		return;
	if (n > POLICY_MAX_DEVICES)
		n = POLICY_MAX_DEVICES;
	const char *what = all_lack(devices, n, (1ull << n) - 1, &use, 1, &policy->settings.system, POLICY_PLACE_AUTO);
	if (what)
		WARN(policy,
		     "default: no device here can serve %s (there is no %s); the driver serves what no rule matches",
		     policy_use_name((enum policy_use)use), what);
	for (size_t i = 0; i < policy->n_rules; i++)
		warn_rule(policy, &policy->rules[i], devices, n, errors);
}
