// SPDX-License-Identifier: Apache-2.0
/*
 * Decides one request by a walk over the packed tests: a few comparisons for each rule without a branch between them,
 * so that 1,000 rules take one or two microseconds. A search tree over the sizes would be faster, but fails with the
 * first condition that is not a size. Conditions that few rules have are tested only if the packed test holds, texts
 * last; equal patterns of several rules are tested once.
 */
#include "policy/keys.h"

#include <stdlib.h>
#include <string.h>

/*
 * ---- binding ---- Conditions that are the same for every request of the process are evaluated once, and not when
 * deciding: policy_bind() packs the tests again, and a rule for another process gets a test that nothing passes.
 */

/* Keys of a rule that are also keys of the file take the file's value if they are absent. */
static void bind_inherit(const struct policy *policy, struct policy_rule *rule)
{
	for (size_t i = 0; i < policy_rule_keys.n; i++) {
		const struct policy_key *key = &policy_rule_keys.keys[i];
		int outer = policy_key_find(&policy_file_keys, key->name);

		if (outer >= 0 && !(rule->given & 1u << i))
			/* All others of these are an int. */
			memcpy((char *)rule + key->offset,
			       (const char *)&policy->settings + policy_file_keys.keys[outer].offset,
			       key->type == POLICY_TYPE_SIZE ? sizeof(struct policy_size) : sizeof(int));
	}
}

static bool same_globs(const struct policy_globs *a, const struct policy_globs *b)
{
	return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
}

/* The patterns seen so far, by number; those beyond the array get no number and are tested each time. */
struct memo {
	struct {
		const struct policy_globs *globs;
		int which;
	} seen[64];
	unsigned n;
};

static unsigned char memo_number(struct memo *memo, const struct policy_globs *globs, int which)
{
	for (unsigned i = 1; i <= memo->n; i++)
		if (memo->seen[i].which == which && same_globs(memo->seen[i].globs, globs))
			return (unsigned char)i;
	if (memo->n + 1 == sizeof(memo->seen) / sizeof(*memo->seen))
		return 0;
	memo->n++;
	memo->seen[memo->n].globs = globs;
	memo->seen[memo->n].which = which;
	return (unsigned char)memo->n;
}

static unsigned more_pack(struct policy_more *more, const struct policy_rule *rule, struct memo *memo)
{
	unsigned needs = 0;

	*more = (struct policy_more){0};
	for (int i = 0; i < POLICY_N_NUMBERS; i++) {
		more->number[i] = rule->number[i];
		if (rule->number[i].lo > (i == POLICY_NUMBER_ORDER ? 1u : 0u) || rule->number[i].hi != UINT64_MAX)
			more->known |= (unsigned char)(1 << i);
	}
	needs = more->known;
	for (int i = 0; i < POLICY_N_TEXTS; i++) {
		if (!rule->text[i].n)
			continue;
		more->text[i] = &rule->text[i];
		more->memo[i] = memo_number(memo, &rule->text[i], i);
		more->texts |= (unsigned char)(1 << i);
		needs |= (unsigned)POLICY_NEED_LIBRARY << i;
	}
	return needs;
}

/* The bits of enum policy_need are in the order of the numbers and the texts. */
_Static_assert(POLICY_NEED_ORDER == 1 << POLICY_NUMBER_ORDER && POLICY_NEED_LIVE == 1 << POLICY_NUMBER_LIVE &&
		   POLICY_NEED_FREE == 1 << POLICY_NUMBER_FREE &&
		   POLICY_NEED_THREAD == POLICY_NEED_LIBRARY << POLICY_TEXT_THREAD &&
		   POLICY_NEED_CALLER == POLICY_NEED_LIBRARY << POLICY_TEXT_CALLER,
	       "packing relies on it");

static void bind_pack(struct policy *policy)
{
	struct memo memo = {.n = 0};

	policy->needs = 0;
	policy->decided = 0;
	for (size_t i = 0; i < policy->n_rules; i++) {
		const struct policy_rule *rule = &policy->rules[i];
		struct policy_test *test = &policy->tests[i];
		unsigned needs = more_pack(&policy->more[i], rule, &memo);

		*test = (struct policy_test){
		    .lo = rule->size.lo,
		    .hi = rule->size.hi,
		    .devices = rule->devices ? rule->devices : UINT64_MAX,
		    .apis = (uint16_t)policy_rule_apis(rule),
		    .more = (uint16_t)((needs & POLICY_NEED_LIBRARY ? POLICY_MORE_LIBRARY : 0) |
				       (needs & ~(unsigned)POLICY_NEED_LIBRARY ? POLICY_MORE_OTHER : 0)),
		    .library = rule->library,
		};
		policy->numbers[i] = (struct policy_range){0, UINT64_MAX};
		if (policy->more[i].known) {
			unsigned which = (unsigned)__builtin_ctz(policy->more[i].known);

			policy->numbers[i] = policy->more[i].number[which];
			test->more |= (uint16_t)(which * POLICY_MORE_NUMBER);
		}
		for (int text = 0; text < POLICY_N_TEXTS; text++)
			if (policy->more[i].memo[text])
				test->memo = policy->more[i].memo[text];
		if (rule->process.n || rule->arguments.n || rule->ranks.n)
			policy->needs |= POLICY_NEED_PROCESS;
		if (rule->process_is == POLICY_PROCESS_OURS) {
			policy->needs |= needs;
			policy->decided |= policy_rule_apis(rule);
		} else {
			*test = (struct policy_test){.lo = 1, .hi = 0};
		}
	}
}

static enum policy_process bind_judge(const struct policy_rule *rule, const char *process, const char *arguments,
				      int64_t rank)
{
	if (rule->process.n && !policy_globs_match(&rule->process, process))
		return process ? POLICY_PROCESS_NAME : POLICY_PROCESS_NO_NAME;
	if (rule->arguments.n && !policy_globs_match(&rule->arguments, arguments))
		return arguments ? POLICY_PROCESS_ARGUMENTS : POLICY_PROCESS_NO_ARGUMENTS;
	if (rule->ranks.n && !policy_ranks_match(&rule->ranks, rank))
		return rank >= 0 ? POLICY_PROCESS_RANK : POLICY_PROCESS_NO_RANK;
	return POLICY_PROCESS_OURS;
}

void policy_bind(struct policy *policy, const char *process, const char *arguments, int64_t rank)
{
	policy->rank = rank;
	for (size_t i = 0; i < policy->n_rules; i++)
		policy->rules[i].process_is = bind_judge(&policy->rules[i], process, arguments, rank);
	bind_pack(policy);
}

/* ---- libraries ---- */

static uint32_t hash_of(const struct policy_globs *globs)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (unsigned i = 0; i < globs->bytes; i++)
		hash = (hash ^ (unsigned char)globs->text[i]) * 16777619u;
	return hash;
}

/*
 * Gives equal library patterns equal numbers. slots: hash table from pattern to number, zeroed; n_slots is a power of
 * two and at least twice the number of rules.
 */
static void number_libraries(struct policy *policy, uint16_t *slots, size_t n_slots)
{
	for (size_t i = 0; i < policy->n_rules; i++) {
		struct policy_rule *rule = &policy->rules[i];
		const struct policy_globs *globs = &rule->text[POLICY_TEXT_LIBRARY];
		size_t at = hash_of(globs) & (n_slots - 1);

		if (!globs->n)
			continue;
		while (slots[at] && !same_globs(policy->libraries[slots[at]], globs))
			at = (at + 1) & (n_slots - 1);
		if (!slots[at]) {
			slots[at] = (uint16_t)++policy->n_libraries;
			policy->libraries[slots[at]] = globs;
		}
		rule->library = slots[at];
	}
}

static bool libraries_find(struct policy *policy)
{
	size_t n_slots = 2;

	while (n_slots < 2 * policy->n_rules)
		n_slots *= 2;
	uint16_t *slots = calloc(n_slots, sizeof(*slots));
	policy->libraries = calloc(policy->n_rules + 1, sizeof(*policy->libraries));
	if (slots && policy->libraries)
		number_libraries(policy, slots, n_slots);
	free(slots);
	return slots && policy->libraries;
}
_Static_assert((int)POLICY_MAX_RULES < (int)UINT16_MAX, "numbers of libraries must fit");

struct policy_library *policy_library_new(const struct policy *policy, const char *path)
{
	size_t words = policy->n_libraries / 64 + 1, bytes = strlen(path) + 1;
	struct policy_library *library = calloc(1, sizeof(*library) + words * sizeof(uint64_t) + bytes);

	if (!library)
		return NULL;
	library->path = memcpy(library->bits + words, path, bytes);
	library->bits[0] = 1;
	for (unsigned i = 1; i <= policy->n_libraries; i++)
		if (policy_globs_match(policy->libraries[i], path))
			library->bits[i / 64] |= 1ull << i % 64;
	return library;
}

bool policy_library_is(const struct policy_library *library, const char *path)
{
	return strcmp(library->path, path) == 0;
}

bool policy_finish(struct policy *policy)
{
	policy->tests = calloc(policy->n_rules + 1, sizeof(*policy->tests));
	policy->more = calloc(policy->n_rules + 1, sizeof(*policy->more));
	policy->numbers = calloc(policy->n_rules + 1, sizeof(*policy->numbers));
	if (!policy->tests || !policy->more || !policy->numbers || !libraries_find(policy))
		return false;
	for (size_t i = 0; i < policy->n_rules; i++)
		bind_inherit(policy, &policy->rules[i]);
	policy_bind(policy, NULL, NULL, POLICY_NO_RANK);
	return true;
}

/* ---- deciding ---- */

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

	if (asked->done & bit)
		return asked->matched & bit;
	bool matches = policy_globs_match(more->text[which], asked->text[which]);
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
	    .spill_limit = rule->spill_limit,
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
	    .spill_limit = policy->settings.spill_limit,
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
