/*
 * Decides one request by a walk over the packed tests: a few comparisons for each rule without a branch between them,
 * so that 1,000 rules take one or two microseconds. A search tree over the sizes would be faster, but fails with the
 * first condition that is not a size. Conditions that few rules have are tested only if the packed test holds, texts
 * last; equal patterns of several rules are tested once.
 */
#include "policy/glob.h"
#include "policy/model.h"

/* A request in the form that rules are tested against. */
struct asked {
	uint64_t number[POLICY_N_NUMBERS];
	const char *text[POLICY_N_TEXTS];
	unsigned known;         /* bits: numbers that are known */
	unsigned skip;          /* bits: texts that are decided already */
	uint64_t done, matched; /* bits by policy_more.memo: patterns that have been tested, and those that matched */
};

static bool text_matches(const struct policy_more *more, int which, struct asked *asked)
{
	uint64_t bit = more->memo[which] ? 1ull << more->memo[which] : 0;
	bool matches;

	if (asked->done & bit)
		return asked->matched & bit;
	matches = policy_globs_match(more->text[which], asked->text[which]);
	asked->done |= bit;
	asked->matched |= matches ? bit : 0;
	return matches;
}

static bool texts_match(const struct policy_more *more, struct asked *asked)
{
	for (unsigned left = more->texts & ~asked->skip; left; left &= left - 1)
		if (!text_matches(more, __builtin_ctz(left), asked))
			return false;
	return true;
}

/* Rules with a number condition mostly have one, which costs about a nanosecond. */
static inline bool more_matches(const struct policy_more *more, struct asked *asked)
{
	if (more->known & ~asked->known)
		return false;
	for (unsigned left = more->known; left; left &= left - 1) {
		int i = __builtin_ctz(left);

		if (asked->number[i] < more->number[i].lo || asked->number[i] > more->number[i].hi)
			return false;
	}
	return texts_match(more, asked);
}

static struct policy_decision decision_of(const struct policy_rule *rule, int index)
{
	struct policy_decision decision = {
	    .use = (enum policy_use)rule->use,
	    .rule = index,
	    .movable = rule->movable != POLICY_MOVABLE_NO && rule->place != POLICY_PLACE_STRIPE,
	    .keep = rule->movable == POLICY_MOVABLE_EXACT && rule->place != POLICY_PLACE_STRIPE,
	    .place = (enum policy_place_of)rule->place,
	    .n_uses = 1 + rule->fallback.n,
	    .uses = {(unsigned char)rule->use},
	    .cap = policy_cap(rule),
	    .vmm_spill = (enum policy_vmm)rule->vmm_spill,
	    .managed = &rule->managed,
	    .system = &rule->system,
	};

	for (unsigned i = 0; i < rule->fallback.n; i++)
		decision.uses[1 + i] = rule->fallback.use[i];
	return decision;
}

/* The decision if no rule matched. */
static struct policy_decision decide_standard(const struct policy *policy, enum policy_api api)
{
	int use = POLICY_APIS_ANY & 1 << api ? policy->settings.use : POLICY_USE_DRIVER;

	return (struct policy_decision){
	    .use = (enum policy_use)use,
	    .rule = -1,
	    .movable = true,
	    .n_uses = 1,
	    .uses = {(unsigned char)use},
	    .cap = POLICY_NO_CAP,
	    .vmm_spill = (enum policy_vmm)policy->settings.vmm_spill,
	    .managed = &policy->settings.managed,
	    .system = &policy->settings.system,
	};
}

/* Tests what the packed test leaves open; most rules fail before the last line. */
static inline bool rest_matches(const struct policy *policy, size_t i, const uint64_t *matching, struct asked *asked)
{
	const struct policy_test *test = &policy->tests[i];

	if (matching && !(matching[test->library / 64] >> test->library % 64 & 1))
		return false;
	const struct policy_range *range = &policy->numbers[i];
	uint64_t number = asked->number[test->more / POLICY_MORE_NUMBER];
	if ((number < range->lo) | (number > range->hi))
		return false;
	unsigned more = test->more & (matching ? POLICY_MORE_OTHER : POLICY_MORE_OTHER | POLICY_MORE_LIBRARY);
	if (!more)
		return true;
	return !(asked->done & ~asked->matched & 1ull << test->memo) && more_matches(&policy->more[i], asked);
}

struct policy_decision policy_decide(const struct policy *policy, const struct policy_request *request)
{
	bool known = request->device >= 0 && request->device < POLICY_MAX_DEVICES;
	uint64_t bytes = request->bytes, device = 1ull << (known ? request->device : POLICY_MAX_DEVICES);
	const struct policy_test *tests = policy->tests;
	const uint64_t *matching = request->library_known ? request->library_known->bits : NULL;
	unsigned api = 1u << request->api;
	struct asked asked = {
	    .number = {request->order, request->live, request->device_free},
	    .text = {request->library, request->thread, request->caller},
	    .known = request->known,
	    .skip = matching ? 1u << POLICY_TEXT_LIBRARY : 0,
	};

	for (size_t i = 0; i < policy->n_rules; i++)
		if (((bytes >= tests[i].lo) & (bytes <= tests[i].hi) & ((tests[i].devices & device) != 0) &
		     ((tests[i].apis & api) != 0)) &&
		    rest_matches(policy, i, matching, &asked))
			return decision_of(&policy->rules[i], (int)i);
	return decide_standard(policy, request->api);
}
