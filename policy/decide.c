/*
 * Deciding is a walk over the packed tests: a few comparisons a rule without a branch between them, so that 1,000 rules
 * take one or two microseconds. A search tree over the sizes would be faster and stops working with the first condition
 * that is no size. What few rules have is looked at only when the test holds, texts last; equal patterns of several
 * rules are tried once.
 */
#include "policy/glob.h"
#include "policy/model.h"

/* Which patterns have been tried for this request, and which of them matched: a bit each, by policy_more.memo. */
struct tried {
	uint64_t done, matched;
};

static bool text_matches(const struct policy_more *more, int which, const char *text, struct tried *tried)
{
	uint64_t bit = more->memo[which] ? 1ull << more->memo[which] : 0;
	bool matches;

	if (tried->done & bit)
		return tried->matched & bit;
	matches = policy_globs_match(more->text[which], text);
	tried->done |= bit;
	tried->matched |= matches ? bit : 0;
	return matches;
}

static bool more_matches(const struct policy_more *more, const struct policy_request *request, struct tried *tried)
{
	const uint64_t number[POLICY_N_NUMBERS] = {request->order, request->live, request->device_free};
	const char *const text[POLICY_N_TEXTS] = {request->library, request->thread, request->nvtx};

	if (more->known & ~request->known)
		return false;
	for (int i = 0; i < POLICY_N_NUMBERS; i++)
		if (more->known & 1 << i && (number[i] < more->number[i].lo || number[i] > more->number[i].hi))
			return false;
	for (int i = 0; i < POLICY_N_TEXTS; i++)
		if (more->text[i] && !text_matches(more, i, text[i], tried))
			return false;
	return true;
}

static struct policy_decision decision_of(const struct policy_rule *rule, int index)
{
	struct policy_decision decision = {
	    .use = (enum policy_use)rule->use,
	    .rule = index,
	    .movable = rule->movable != 0,
	    .place = (enum policy_place_of)rule->place,
	    .n_uses = 1 + rule->fallback.n,
	    .uses = {(unsigned char)rule->use},
	    .cap = rule->cap,
	    .vmm_spill = rule->vmm_spill != 0,
	    .managed = &rule->managed,
	    .system = &rule->system,
	};

	for (unsigned i = 0; i < rule->fallback.n; i++)
		decision.uses[1 + i] = rule->fallback.use[i];
	return decision;
}

/* No rule matched. */
static struct policy_decision standard(const struct policy *policy, enum policy_api api)
{
	int use = POLICY_APIS_ANY & 1 << api ? policy->use : POLICY_USE_DRIVER;

	return (struct policy_decision){
	    .use = (enum policy_use)use,
	    .rule = -1,
	    .movable = true,
	    .n_uses = 1,
	    .uses = {(unsigned char)use},
	    .cap = POLICY_NO_CAP,
	    .vmm_spill = policy->vmm_spill != 0,
	    .managed = &policy->managed,
	    .system = &policy->system,
	};
}

struct policy_decision policy_decide(const struct policy *policy, const struct policy_request *request)
{
	bool known = request->device >= 0 && request->device < POLICY_MAX_DEVICES;
	uint64_t bytes = request->bytes, device = 1ull << (known ? request->device : POLICY_MAX_DEVICES);
	const struct policy_test *tests = policy->tests;
	uint32_t api = 1u << request->api;
	struct tried tried = {0};

	for (size_t i = 0; i < policy->n_rules; i++)
		if (((bytes >= tests[i].lo) & (bytes <= tests[i].hi) & ((tests[i].devices & device) != 0) &
		     ((tests[i].apis & api) != 0)) &&
		    !(tried.done & ~tried.matched & 1ull << tests[i].memo) &&
		    (!tests[i].more || more_matches(&policy->more[i], request, &tried)))
			return decision_of(&policy->rules[i], (int)i);
	return standard(policy, request->api);
}
