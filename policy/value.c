/*
 * Reads the values of keys, with one function for each type. A value that may be a list is read by element; every
 * other value by policy_value_parse().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/glob.h"
#include "policy/keys.h"
#include "policy/ranks.h"
#include "policy/size.h"
#include "policy/text.h"

static bool enum_parse(const struct policy_key *key, const char *text, int *ret_value, char *ret_why)
{
	struct policy_suggestion suggestion = {.typed = text};
	const struct policy_value *v = NULL;
	char quoted[POLICY_QUOTED_BYTES];

	while ((v = policy_value_next(key->set, v))) {
		if (strcmp(text, v->name) == 0) {
			*ret_value = v->value;
			return true;
		}
		policy_suggest(&suggestion, v->name);
	}
	if (!*text)
		snprintf(ret_why, POLICY_MAX_WHY, "has no value; write ");
	else if (suggestion.best)
		snprintf(ret_why, POLICY_MAX_WHY, "%s is unknown; did you mean %s? Write ", policy_quote(text, quoted),
			 suggestion.best);
	else
		snprintf(ret_why, POLICY_MAX_WHY, "%s is unknown; write ", policy_quote(text, quoted));
	policy_values_list(key->set, ret_why);
	if ((key->set == POLICY_SET_BOOL || key->set == POLICY_SET_VMM || key->set == POLICY_SET_MOVABLE ||
	     key->set == POLICY_SET_SUMMARY) &&
	    policy_is_digit(*text))
		policy_why_append(ret_why, " (a number is not taken as yes or no)");
	return false;
}

static bool fail_listed(const char *text, char *ret_why)
{
	char quoted[POLICY_QUOTED_BYTES];

	snprintf(ret_why, POLICY_MAX_WHY, "%s is listed already; remove it", policy_quote(text, quoted));
	return false;
}

static bool flag_add(const struct policy_key *key, const char *text, int *flags, char *ret_why)
{
	int value;

	if (!enum_parse(key, text, &value, ret_why))
		return false;
	if (*flags & 1 << value)
		return fail_listed(text, ret_why);
	*flags |= 1 << value;
	return true;
}

static bool use_add(const struct policy_key *key, const char *text, struct policy_uses *uses, char *ret_why)
{
	int value;

	if (!enum_parse(key, text, &value, ret_why))
		return false;
	for (unsigned i = 0; i < uses->n; i++)
		if (uses->use[i] == value)
			return fail_listed(text, ret_why);
	uses->use[uses->n++] = (unsigned char)value;
	return true;
}

/* Names are printed in reports and logs, so they must be complete printable text. */
static bool text_parse(const char *text, char *ret_text, char *ret_why)
{
	char printable[POLICY_MAX_NAME + 1];

	if (!*text) {
		snprintf(ret_why, POLICY_MAX_WHY, "has no value; write a short text or leave the key out");
		return false;
	}
	if (strlen(text) > POLICY_MAX_NAME) {
		snprintf(ret_why, POLICY_MAX_WHY, "is longer than %d bytes; write a shorter text", POLICY_MAX_NAME);
		return false;
	}
	if (strcmp(policy_printable(text, printable, sizeof(printable)), text) != 0) {
		snprintf(ret_why, POLICY_MAX_WHY,
			 "has line breaks or control characters in it; write one line of plain text");
		return false;
	}
	strcpy(ret_text, text);
	return true;
}

static bool bytes_parse(const char *text, struct policy_size *ret_size, char *ret_why)
{
	uint64_t bytes;

	if (strcmp(text, "auto") == 0) {
		*ret_size = (struct policy_size){.kind = POLICY_SIZE_AUTO};
		return true;
	}
	if (!policy_size_bytes_parse(text, &bytes, ret_why))
		return false;
	*ret_size = (struct policy_size){.kind = POLICY_SIZE_BYTES, .value = bytes};
	return true;
}

static bool budget_parse(const char *text, struct policy_size *ret_size, char *ret_why)
{
	if (strcmp(text, "start") != 0)
		return policy_size_parse(text, ret_size, ret_why);
	*ret_size = (struct policy_size){.kind = POLICY_SIZE_START};
	return true;
}

static bool most_parse(const char *text, struct policy_size *ret_size, char *ret_why)
{
	struct policy_size size = {.kind = POLICY_SIZE_BYTES};

	if (strcmp(text, "none") == 0)
		size.kind = POLICY_SIZE_AUTO;
	else if (strchr(text, '%') ? !policy_size_parse(text, &size, ret_why)
				   : !policy_size_bytes_parse(text, &size.value, ret_why))
		return false;
	*ret_size = size;
	return true;
}

static bool chunk_parse(const char *text, struct policy_size *ret_size, char *ret_why)
{
	char quoted[POLICY_QUOTED_BYTES], next[POLICY_SIZE_BYTES_TEXT];
	struct policy_size size;

	if (!bytes_parse(text, &size, ret_why))
		return false;
	if (size.kind == POLICY_SIZE_BYTES && (size.value < POLICY_CHUNK_LEAST || size.value > POLICY_CHUNK_MOST)) {
		snprintf(ret_why, POLICY_MAX_WHY, "%s is no size of a chunk; write auto or a size from 2MiB to 128MiB",
			 policy_quote(text, quoted));
		return false;
	}
	if (size.kind == POLICY_SIZE_BYTES && size.value % POLICY_CHUNK_LEAST) {
		policy_size_format(size.value - size.value % POLICY_CHUNK_LEAST, next);
		snprintf(ret_why, POLICY_MAX_WHY, "%s is no multiple of 2MiB; write %s", policy_quote(text, quoted),
			 next);
		return false;
	}
	*ret_size = size;
	return true;
}

static bool limit_parse(const char *text, uint64_t *ret_bytes, char *ret_why)
{
	if (strcmp(text, "none") == 0) {
		*ret_bytes = POLICY_NO_CAP;
		return true;
	}
	return policy_size_bytes_parse(text, ret_bytes, ret_why);
}

/* Reads digits, an optional fraction of at most 3 digits, and a unit: ms, s or min. */
static bool time_read(const char *text, uint64_t *ret_ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"ms", 1000000}, {"s", 1000000000}, {"min", 60000000000}};
	uint64_t most = 3600000000000, number, thousandths = 0, scale = 100;
	const char *end;
	bool good = policy_number_read(text, &number, &end) && number <= most / 1000000;
	for (end += good && *end == '.'; good && policy_is_digit(*end) && scale; end++, scale /= 10)
		thousandths += (uint64_t)(*end - '0') * scale;
	for (size_t i = 0; good && i < sizeof(units) / sizeof(*units); i++) {
		uint64_t ns = number * units[i].ns + thousandths * (units[i].ns / 1000);

		if (strcmp(end, units[i].name) == 0 && ns >= 1000000 && ns <= most) {
			*ret_ns = ns;
			return true;
		}
	}
	return false;
}

/* Reads "auto" or a time. */
static bool time_parse(const char *text, uint64_t *ret_ns, char *ret_why)
{
	char quoted[POLICY_QUOTED_BYTES];

	if (strcmp(text, "auto") == 0) {
		*ret_ns = 0;
		return true;
	}
	if (time_read(text, ret_ns))
		return true;
	snprintf(ret_why, POLICY_MAX_WHY, "%s is no time; write auto or a time from 1ms to 60min, as in 500ms or 2.5s",
		 policy_quote(text, quoted));
	return false;
}

/* Reads "yes", "no", their other spellings, or a time. */
static bool wait_parse(const char *text, uint64_t *ret_ns, char *ret_why)
{
	static const char *const names[2][3] = {{"no", "false", "off"}, {"yes", "true", "on"}};
	char quoted[POLICY_QUOTED_BYTES];

	for (unsigned i = 0; i < 6; i++)
		if (strcmp(text, names[i / 3][i % 3]) == 0) {
			*ret_ns = i / 3 ? POLICY_WAIT_ALWAYS : 0;
			return true;
		}
	if (time_read(text, ret_ns))
		return true;
	snprintf(ret_why, POLICY_MAX_WHY,
		 "%s is none of yes and no; write yes, no or a time from 1ms to 60min, as in 10min",
		 policy_quote(text, quoted));
	return false;
}

static bool weight_parse(const char *text, int *ret_weight, char *ret_why)
{
	char quoted[POLICY_QUOTED_BYTES];
	const char *end;
	uint64_t weight;

	if (!policy_number_read(text, &weight, &end) || *end || weight < 1 || weight > POLICY_WEIGHT_MOST) {
		snprintf(ret_why, POLICY_MAX_WHY, "%s is no weight; write a number from 1 to %d",
			 policy_quote(text, quoted), POLICY_WEIGHT_MOST);
		return false;
	}
	*ret_weight = (int)weight;
	return true;
}

bool policy_size_read(const char *text, struct policy_size *ret_size, char *ret_why)
{
	return policy_size_parse(text, ret_size, ret_why);
}

bool policy_weight_read(const char *text, int *ret_weight, char *ret_why)
{
	return weight_parse(text, ret_weight, ret_why);
}

/* Reads "3" or "3 .. 5", with nothing behind. Blanks around the dots are ignored. */
static bool numbers_read(const char *text, struct policy_range *ret_range)
{
	const char *end;

	if (!policy_number_read(text, &ret_range->lo, &end))
		return false;
	ret_range->hi = ret_range->lo;
	if (!*end)
		return true;
	end += strspn(end, " ");
	if (strncmp(end, "..", 2) != 0)
		return false;
	end += 2 + strspn(end + 2, " ");
	return policy_number_read(end, &ret_range->hi, &end) && !*end;
}

static bool devices_add(const char *text, uint64_t *devices, char *ret_why)
{
	char quoted[POLICY_QUOTED_BYTES];
	struct policy_range range;

	if (!numbers_read(text, &range) || range.lo > range.hi || range.hi >= POLICY_MAX_DEVICES) {
		snprintf(ret_why, POLICY_MAX_WHY, "%s is no device; write a number from 0 to %d, or \"0 .. 3\"",
			 policy_quote(text, quoted), POLICY_MAX_DEVICES - 1);
		return false;
	}
	for (uint64_t device = range.lo; device <= range.hi; device++) {
		if (*devices & 1ull << device)
			return fail_listed(text, ret_why);
		*devices |= 1ull << device;
	}
	return true;
}

static bool node_parse(const char *text, int *ret_node, char *ret_why)
{
	enum { MAX_NODE = 1023 }; /* the kernel's largest CONFIG_NODES_SHIFT */
	char quoted[POLICY_QUOTED_BYTES];
	const char *end;
	uint64_t node;

	if (strcmp(text, "auto") == 0) {
		*ret_node = POLICY_NODE_AUTO;
		return true;
	}
	if (!policy_number_read(text, &node, &end) || *end || node > MAX_NODE) {
		snprintf(ret_why, POLICY_MAX_WHY, "%s is no NUMA node; write auto or a number from 0 to %d",
			 policy_quote(text, quoted), MAX_NODE);
		return false;
	}
	*ret_node = (int)node;
	return true;
}

/* Reads "first N", "after N" or "N .. M". The first allocation is number 1. */
static bool order_parse(const char *text, struct policy_range *ret_range, char *ret_why)
{
	bool first = strncmp(text, "first ", 6) == 0, after = strncmp(text, "after ", 6) == 0;
	char quoted[POLICY_QUOTED_BYTES];
	struct policy_range range;
	const char *end;
	uint64_t n;

	policy_quote(text, quoted);
	if (first || after) {
		if (!policy_number_read(text + 6 + strspn(text + 6, " "), &n, &end) || *end) {
			snprintf(ret_why, POLICY_MAX_WHY, "%s has no plain number; write \"%s 100\"", quoted,
				 first ? "first" : "after");
			return false;
		}
		if (first && n == 0) {
			snprintf(ret_why, POLICY_MAX_WHY, "%s matches nothing; write \"first 1\" or remove the rule",
				 quoted);
			return false;
		}
		*ret_range = first ? (struct policy_range){1, n} : (struct policy_range){n + 1, UINT64_MAX};
		return true;
	}
	if (!strstr(text, "..") || !numbers_read(text, &range)) {
		snprintf(ret_why, POLICY_MAX_WHY,
			 "%s is no order; write \"first 100\", \"after 100\" or \"100 .. 200\"", quoted);
		return false;
	}
	if (range.lo == 0 || range.lo > range.hi) {
		snprintf(ret_why, POLICY_MAX_WHY, "%s matches nothing; the first is number 1, write \"1 .. 200\"",
			 quoted);
		return false;
	}
	*ret_range = range;
	return true;
}

static bool pressure_parse(const char *text, struct policy_range *ret_range, char *ret_why)
{
	static const char what[] = "device.free";
	char quoted[POLICY_QUOTED_BYTES];

	if (strncmp(text, what, sizeof(what) - 1) != 0) {
		snprintf(ret_why, POLICY_MAX_WHY, "%s is no pressure; write \"device.free < 2GiB\"",
			 policy_quote(text, quoted));
		return false;
	}
	text += sizeof(what) - 1;
	return policy_condition_parse(text + strspn(text, " "), ret_range, ret_why);
}

bool policy_value_is_list(const struct policy_key *key)
{
	return key->type == POLICY_TYPE_FLAGS || key->type == POLICY_TYPE_USES || key->type == POLICY_TYPE_GLOBS ||
	       key->type == POLICY_TYPE_DEVICES || key->type == POLICY_TYPE_RANKS;
}

void policy_value_clear(const struct policy_key *key, void *target)
{
	void *field = (char *)target + key->offset;

	if (key->type == POLICY_TYPE_FLAGS)
		*(int *)field = 0;
	else if (key->type == POLICY_TYPE_USES)
		((struct policy_uses *)field)->n = 0;
	else if (key->type == POLICY_TYPE_GLOBS)
		policy_globs_free(field);
	else if (key->type == POLICY_TYPE_RANKS)
		policy_ranks_free(field);
	else if (key->type == POLICY_TYPE_DEVICES)
		*(uint64_t *)field = 0;
}

bool policy_value_add(const struct policy_key *key, const char *text, void *target, char *ret_why)
{
	void *field = (char *)target + key->offset;

	switch (key->type) {
	case POLICY_TYPE_SIZE:
		return policy_size_parse(text, field, ret_why);
	case POLICY_TYPE_BUDGET:
		return budget_parse(text, field, ret_why);
	case POLICY_TYPE_MOST:
		return most_parse(text, field, ret_why);
	case POLICY_TYPE_BYTES:
		return bytes_parse(text, field, ret_why);
	case POLICY_TYPE_CHUNK:
		return chunk_parse(text, field, ret_why);
	case POLICY_TYPE_TIME:
		return time_parse(text, field, ret_why);
	case POLICY_TYPE_WAIT:
		return wait_parse(text, field, ret_why);
	case POLICY_TYPE_WEIGHT:
		return weight_parse(text, field, ret_why);
	case POLICY_TYPE_LIMIT:
		return limit_parse(text, field, ret_why);
	case POLICY_TYPE_ENUM:
		return enum_parse(key, text, field, ret_why);
	case POLICY_TYPE_FLAGS:
		return flag_add(key, text, field, ret_why);
	case POLICY_TYPE_USES:
		return use_add(key, text, field, ret_why);
	case POLICY_TYPE_TEXT:
		return text_parse(text, field, ret_why);
	case POLICY_TYPE_GLOBS:
		return policy_globs_add(field, text, ret_why);
	case POLICY_TYPE_DEVICES:
		return devices_add(text, field, ret_why);
	case POLICY_TYPE_RANKS:
		return policy_ranks_add(field, text, ret_why);
	case POLICY_TYPE_NODE:
		return node_parse(text, field, ret_why);
	case POLICY_TYPE_CONDITION:
		return policy_condition_parse(text, field, ret_why);
	case POLICY_TYPE_PRESSURE:
		return pressure_parse(text, field, ret_why);
	case POLICY_TYPE_ORDER:
		return order_parse(text, field, ret_why);
	case POLICY_TYPE_RULES:
	case POLICY_TYPE_LIMITS:
	case POLICY_TYPE_INCLUDE:
		break;
	}
	snprintf(ret_why, POLICY_MAX_WHY, "is a list; write it in a policy file");
	return false;
}

bool policy_value_parse(const struct policy_key *key, const char *text, void *target, char *ret_why)
{
	policy_value_clear(key, target);
	return policy_value_add(key, text, target, ret_why);
}

const char *policy_value_example(const struct policy_key *key)
{
	static const struct {
		enum policy_type type;
		const char *example;
	} examples[] = {
	    {POLICY_TYPE_CONDITION, "\">= 64MiB\""}, {POLICY_TYPE_TEXT, "some text"},
	    {POLICY_TYPE_GLOBS, "\"*name*\""},       {POLICY_TYPE_DEVICES, "0"},
	    {POLICY_TYPE_ORDER, "\"first 100\""},    {POLICY_TYPE_PRESSURE, "\"device.free < 2GiB\""},
	    {POLICY_TYPE_INCLUDE, "other.yaml"},     {POLICY_TYPE_RANKS, "0"},
	};

	for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++)
		if (examples[i].type == key->type)
			return examples[i].example;
	return key->standard && *key->standard ? key->standard : policy_value_next(key->set, NULL)->name;
}

void policy_value_copy(const struct policy_key *to_key, void *to, const struct policy_key *from_key, const void *from)
{
	size_t bytes = to_key->type == POLICY_TYPE_BYTES ? sizeof(struct policy_size) : sizeof(int);

	memcpy((char *)to + to_key->offset, (const char *)from + from_key->offset, bytes);
}

void policy_keys_standard(const struct policy_keys *keys, void *target)
{
	char why[POLICY_MAX_WHY];

	/* The values in the table are valid: a test reads every one of them. "" leaves a field empty. */
	for (size_t i = 0; i < keys->n; i++)
		if (keys->keys[i].standard && *keys->keys[i].standard)
			policy_value_parse(&keys->keys[i], keys->keys[i].standard, target, why);
}

bool policy_api_read(const char *text, enum policy_api *ret_api, char *ret_why)
{
	static const struct policy_key key = {.name = "api", .type = POLICY_TYPE_ENUM, .set = POLICY_SET_API};
	int value;

	if (!enum_parse(&key, text, &value, ret_why))
		return false;
	*ret_api = (enum policy_api)value;
	return true;
}

bool policy_bytes_read(const char *text, uint64_t *ret_bytes, char *ret_why)
{
	return policy_size_bytes_parse(text, ret_bytes, ret_why);
}
