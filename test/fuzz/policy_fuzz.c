// SPDX-License-Identifier: Apache-2.0
/*
 * policy_fuzz.c: libFuzzer on the policy language (clang, -DSPILLWAY_FUZZ=ON), and the function that policy_mutate.c
 * calls without it. The input is a policy file; what stands behind its first 0xff byte, which no UTF-8 has, is what
 * SPILLWAY_SET would hold.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/parse.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What must hold of every problem. */
static void problems_check(const struct policy_errors *errors)
{
	char line[700];

	if (errors->n_kept > errors->n || errors->n_errors > errors->n || errors->n_kept > 100)
		abort();
	for (size_t i = 0; i < errors->n_kept; i++) {
		policy_error_format(&errors->kept[i], line, sizeof(line));
		for (const char *c = line; *c; c++)
			if ((unsigned char)*c < 0x20 || *c == 0x7f)
				abort();
	}
}

/* What must hold of every decision: it is the one that the explanations lead to, and its uses are. */
static void decision_check(const struct policy *policy, const struct policy_request *request)
{
	struct policy_decision decision = policy_decide(policy, request);
	char why[POLICY_EXPLAIN_BYTES];

	if (decision.rule >= (int)policy_n_rules(policy) || !*policy_rule_name(policy, decision.rule))
		abort();
	for (int i = 0; i < (int)policy_n_rules(policy) && i <= decision.rule; i++)
		if (policy_explain(policy, i, request, why) != (i == decision.rule))
			abort();
	if (decision.n_uses < 1 || decision.n_uses > POLICY_MAX_USES || decision.uses[0] != decision.use)
		abort();
	for (unsigned i = 0; i < decision.n_uses; i++)
		if (decision.uses[i] >= POLICY_USE_COUNT)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const uint8_t *mark = bytes ? memchr(data, 0xff, bytes) : NULL;
	size_t n_text = mark ? (size_t)(mark - data) : bytes, n_set = mark ? bytes - n_text - 1 : 0;
	/* Copies of just the size, so that the sanitizer sees a read past either end. */
	char *text = malloc(n_text ? n_text : 1), *set = malloc(n_set + 1);
	struct policy_errors errors;

	if (!text || !set)
		abort();
	if (n_text)
		memcpy(text, data, n_text);
	if (n_set)
		memcpy(set, mark + 1, n_set);
	set[n_set] = '\0';
	struct policy *policy = policy_read_text("fuzz.yaml", text, n_text, set, &errors);
	if ((policy == NULL) != (errors.n_errors > 0))
		abort();
	problems_check(&errors);
	if (policy) {
		policy_bind(policy, "python3", "a b", 3);
		decision_check(policy, &(struct policy_request){.bytes = n_text});
		decision_check(policy, &(struct policy_request){
					   .bytes = 1 << 20,
					   .device = 1,
					   .known = POLICY_NEED_ORDER | POLICY_NEED_LIVE | POLICY_NEED_FREE,
					   .order = 5,
					   .live = n_text,
					   .device_free = 1 << 30,
					   .library = "libnccl.so",
					   .thread = "t",
					   .caller = "train.py:3 in f",
				       });
	}
	policy_free(policy);
	policy_errors_free(&errors);
	free(text);
	free(set);
	return 0;
}
