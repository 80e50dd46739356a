/*
 * policy_fuzz.c: libFuzzer on the policy language (clang, -DSPILLWAY_FUZZ=ON). The input is a policy file; what stands
 * behind its first 0xff byte, which no UTF-8 has, is what SPILLWAY_SET would hold.
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const uint8_t *mark = bytes ? memchr(data, 0xff, bytes) : NULL;
	size_t n_text = mark ? (size_t)(mark - data) : bytes, n_set = mark ? bytes - n_text - 1 : 0;
	/* Copies of just the size, so that the sanitizer sees a read past either end. */
	char *text = malloc(n_text ? n_text : 1), *set = malloc(n_set + 1);
	struct policy_errors errors;
	struct policy *policy;

	if (!text || !set)
		abort();
	if (n_text)
		memcpy(text, data, n_text);
	if (n_set)
		memcpy(set, mark + 1, n_set);
	set[n_set] = '\0';
	policy = policy_read_text("fuzz.yaml", text, n_text, set, &errors);
	if ((policy == NULL) != (errors.n_errors > 0))
		abort();
	problems_check(&errors);
	if (policy) {
		struct policy_request request = {n_text};
		struct policy_decision decision = policy_decide(policy, &request);

		if (decision.rule >= (int)policy_n_rules(policy) || !*policy_rule_name(policy, decision.rule))
			abort();
	}
	policy_free(policy);
	policy_errors_free(&errors);
	free(text);
	free(set);
	return 0;
}
