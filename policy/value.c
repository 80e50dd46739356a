// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the values of keys: policy_value_add() one element of a list or a value that is no list, and
 * policy_value_parse() a value from one text. Also writes ranks and patterns.
 */
#include "policy/keys.h"
#include "policy/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * ---- ranks ---- Ranges are kept in order, and ranges that touch are joined; so ranges that are listed twice are found
 * at once, and whether one condition covers another is a simple comparison.
 */

bool policy_ranks_match(const struct policy_ranks *ranks, int64_t rank)
{
	for (unsigned i = 0; rank >= 0 && i < ranks->n; i++)
		if ((uint64_t)rank >= ranks->range[i].lo && (uint64_t)rank <= ranks->range[i].hi)
			return true;
	return false;
}

bool policy_ranks_cover(const struct policy_ranks *outer, const struct policy_ranks *inner)
{
	unsigned at = 0;

	if (!outer->n)
		return true;
	for (unsigned i = 0; i < inner->n; i++) {
		while (at < outer->n && outer->range[at].hi < inner->range[i].lo)
			at++;
		if (at == outer->n || outer->range[at].lo > inner->range[i].lo ||
		    outer->range[at].hi < inner->range[i].hi)
			return false;
	}
	return inner->n > 0;
}

/* ---- reading ---- */

/* Reads a number, with blanks in front and nothing behind. */
static bool last_number(const char *text, uint64_t *ret_number)
{
	return policy_number_read(text + strspn(text, " "), ret_number, &text) && !*text;
}

/* Reads "3" or "3 .. 5", with nothing behind. Blanks around the dots are ignored. */
static bool numbers_read(const char *text, struct policy_range *ret_range)
{
	if (!policy_number_read(text, &ret_range->lo, &text))
		return false;
	ret_range->hi = ret_range->lo;
	if (!*text)
		return true;
	text += strspn(text, " ");
	return strncmp(text, "..", 2) == 0 && last_number(text + 2, &ret_range->hi);
}

/* Reads a comparison, as for sizes. An empty range has lo > hi. */
static bool comparison_read(const char *text, struct policy_range *ret_range)
{
	bool equal = text[1] == '=';
	uint64_t number;

	if ((*text == '=' && !equal) || !last_number(text + 1 + equal, &number))
		return false;
	*ret_range = (struct policy_range){number, number};
	if (*text == '>')
		*ret_range = (struct policy_range){equal ? number : number + 1, UINT64_MAX};
	else if (*text == '<' && !equal && !number)
		*ret_range = (struct policy_range){1, 0};
	else if (*text == '<')
		*ret_range = (struct policy_range){0, equal ? number : number - 1};
	return true;
}

static bool ranks_read(const char *text, struct policy_range *ret_range, char *ret_why)
{
	bool compares = *text && strchr("<>=", *text);

	if (!(compares ? comparison_read(text, ret_range) : numbers_read(text, ret_range)))
		return policy_wrong(ret_why, text, "is no rank; write a number, \"0 .. 3\" or \">= 4\"");
	if (ret_range->lo <= ret_range->hi)
		return true;
	if (compares)
		return policy_wrong(ret_why, text, "matches nothing; write \"== 0\" or remove the rule");
	return policy_wrong(ret_why, text, "matches nothing; write \"%llu .. %llu\"", (unsigned long long)ret_range->hi,
			    (unsigned long long)ret_range->lo);
}

/* Joins the range at the index with the one before, if they touch. */
static void ranks_join(struct policy_ranks *ranks, unsigned at)
{
	struct policy_range *here = ranks->range + at;

	if (at == 0 || at >= ranks->n || here[-1].hi + 1 != here->lo)
		return;
	here[-1].hi = here->hi;
	memmove(here, here + 1, (ranks->n - at - 1) * sizeof(*here));
	ranks->n--;
}

/* Adds ranks: "3", "0 .. 3", ">= 4" and the other comparisons that sizes have. */
static bool ranks_add(struct policy_ranks *ranks, const char *text, char *ret_why)
{
	struct policy_range range, *more;
	unsigned at = 0;

	if (!ranks_read(text, &range, ret_why))
		return false;
	while (at < ranks->n && ranks->range[at].hi < range.lo)
		at++;
	if (at < ranks->n && ranks->range[at].lo <= range.hi)
		return policy_wrong(ret_why, text, POLICY_LISTED);
	more = realloc(ranks->range, (ranks->n + 1) * sizeof(*more));
	if (!more)
		return policy_wrong(ret_why, NULL, POLICY_NO_MEMORY);
	ranks->range = more;
	memmove(more + at + 1, more + at, (ranks->n - at) * sizeof(*more));
	more[at] = range;
	ranks->n++;
	ranks_join(ranks, at + 1);
	ranks_join(ranks, at);
	if (ranks->n > POLICY_MAX_RANKS)
		return policy_wrong(ret_why, NULL, "has more than %d ranks apart from each other; write ranges",
				    POLICY_MAX_RANKS);
	return true;
}

void policy_ranks_free(struct policy_ranks *ranks)
{
	free(ranks->range);
	*ranks = (struct policy_ranks){0};
}

char *policy_ranks_format(const struct policy_ranks *ranks, char *buffer, size_t bytes)
{
	size_t used = 0;

	*buffer = '\0';
	for (unsigned i = 0; i < ranks->n && used < bytes; i++) {
		unsigned long long lo = ranks->range[i].lo, hi = ranks->range[i].hi;
		const char *format = hi == UINT64_MAX ? "%s>= %llu" : lo == hi ? "%s%llu" : "%s%llu .. %llu";

		used += (size_t)snprintf(buffer + used, bytes - used, format, i ? " or " : "", lo, hi);
	}
	return buffer;
}

/*
 * ---- patterns with * and ? ---- fnmatch(3) may allocate and depends on the locale, which deciding must not. Time is
 * at most the product of both lengths, because the search only ever goes back to the last star.
 */

/* Recognizes "*word*", the form of most patterns: the C library searches for a word many bytes at a time. */
static bool is_word_anywhere(const char *pattern, size_t length)
{
	return length > 2 && pattern[0] == '*' && pattern[length - 1] == '*' &&
	       strcspn(pattern + 1, "*?") == length - 2;
}

bool policy_glob_match(const char *pattern, const char *text)
{
	const char *star = NULL, *from = NULL;
	size_t length = strlen(pattern);

	if (is_word_anywhere(pattern, length))
		return memmem(text, strlen(text), pattern + 1, length - 2) != NULL;
	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			from = text;
		} else if (*pattern == '?' || *pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

bool policy_globs_match(const struct policy_globs *globs, const char *text)
{
	const char *pattern = globs->text;

	for (unsigned i = 0; text && i < globs->n; i++, pattern += strlen(pattern) + 1)
		if (policy_glob_match(pattern, text))
			return true;
	return false;
}

static bool glob_holds(const struct policy_globs *globs, const char *pattern)
{
	const char *own = globs->text;

	for (unsigned i = 0; i < globs->n; i++, own += strlen(own) + 1)
		if (strcmp(own, "*") == 0 || strcmp(own, pattern) == 0)
			return true;
	return false;
}

bool policy_globs_cover(const struct policy_globs *outer, const struct policy_globs *inner)
{
	const char *pattern = inner->text;

	if (!outer->n)
		return true;
	for (unsigned i = 0; i < inner->n; i++, pattern += strlen(pattern) + 1)
		if (!glob_holds(outer, pattern))
			return false;
	return inner->n > 0;
}

static bool globs_add(struct policy_globs *globs, const char *pattern, char *ret_why)
{
	size_t bytes = strlen(pattern) + 1;
	char *more;

	if (bytes == 1)
		return policy_wrong(ret_why, NULL, "has no value; write a name, or a pattern as in \"*nccl*\"");
	if (bytes > POLICY_MAX_GLOB + 1)
		return policy_wrong(ret_why, NULL, "is longer than %d bytes; write a shorter pattern with a *",
				    POLICY_MAX_GLOB);
	if (!policy_is_printable(pattern))
		return policy_wrong(ret_why, NULL, POLICY_NOT_PLAIN);
	if (globs->n == POLICY_MAX_GLOBS)
		return policy_wrong(ret_why, NULL, "has more than %d patterns; write fewer, with a *",
				    POLICY_MAX_GLOBS);
	if (globs->n && policy_globs_cover(globs, &(struct policy_globs){(char *)pattern, 1, (unsigned)bytes}))
		return policy_wrong(ret_why, pattern, POLICY_LISTED);
	more = realloc(globs->text, globs->bytes + bytes);
	if (!more)
		return policy_wrong(ret_why, NULL, POLICY_NO_MEMORY);
	memcpy(more + globs->bytes, pattern, bytes);
	*globs = (struct policy_globs){more, globs->n + 1, globs->bytes + (unsigned)bytes};
	return true;
}

void policy_globs_free(struct policy_globs *globs)
{
	free(globs->text);
	*globs = (struct policy_globs){0};
}

char *policy_globs_format(const struct policy_globs *globs, char *buffer, size_t bytes)
{
	const char *pattern = globs->text;
	size_t used = 0;

	*buffer = '\0';
	for (unsigned i = 0; i < globs->n && used < bytes; i++, pattern += strlen(pattern) + 1)
		used += (size_t)snprintf(buffer + used, bytes - used, "%s%s", i ? " or " : "", policy_quoted(pattern));
	return buffer;
}

/* ---- values, with one function for each type ---- */

static bool enum_parse(enum policy_set set, const char *text, int *ret_value, char *ret_why)
{
	struct policy_suggestion suggestion = {.typed = text};
	const struct policy_value *v = NULL;

	while ((v = policy_value_next(set, v))) {
		if (strcmp(text, v->name) == 0) {
			*ret_value = v->value;
			return true;
		}
		policy_suggest(&suggestion, v->name);
	}
	if (!*text)
		policy_wrong(ret_why, NULL, "has no value; write ");
	else if (suggestion.best)
		policy_wrong(ret_why, text, "is unknown; did you mean %s? Write ", suggestion.best);
	else
		policy_wrong(ret_why, text, "is unknown; write ");
	policy_values_list(set, ret_why);
	if ((set == POLICY_SET_BOOL || set == POLICY_SET_VMM || set == POLICY_SET_MOVABLE ||
	     set == POLICY_SET_SUMMARY) &&
	    policy_is_digit(*text))
		policy_why_append(ret_why, " (a number is not taken as yes or no)");
	return false;
}

static bool flag_add(enum policy_set set, const char *text, int *flags, char *ret_why)
{
	int value;

	if (!enum_parse(set, text, &value, ret_why))
		return false;
	if (*flags & 1 << value)
		return policy_wrong(ret_why, text, POLICY_LISTED);
	*flags |= 1 << value;
	return true;
}

static bool use_add(enum policy_set set, const char *text, struct policy_uses *uses, char *ret_why)
{
	int value;

	if (!enum_parse(set, text, &value, ret_why))
		return false;
	if (memchr(uses->use, value, uses->n))
		return policy_wrong(ret_why, text, POLICY_LISTED);
	uses->use[uses->n++] = (unsigned char)value;
	return true;
}

/* Names are printed in reports and logs, so they must be complete printable text. */
static bool text_parse(const char *text, char *ret_text, char *ret_why)
{
	if (!*text)
		return policy_wrong(ret_why, NULL, "has no value; write a short text or leave the key out");
	if (strlen(text) > POLICY_MAX_NAME)
		return policy_wrong(ret_why, NULL, "is longer than %d bytes; write a shorter text", POLICY_MAX_NAME);
	if (!policy_is_printable(text))
		return policy_wrong(ret_why, NULL, POLICY_NOT_PLAIN);
	strcpy(ret_text, text);
	return true;
}

static bool chunk_check(const char *text, uint64_t bytes, char *ret_why)
{
	if (bytes < POLICY_CHUNK_LEAST || bytes > POLICY_CHUNK_MOST)
		return policy_wrong(ret_why, text, "is no size of a chunk; write auto or a size from 2MiB to 128MiB");
	if (bytes % POLICY_CHUNK_LEAST)
		return policy_wrong(ret_why, text, "is no multiple of 2MiB; write %s",
				    policy_size_text(bytes - bytes % POLICY_CHUNK_LEAST));
	return true;
}

/* Reads a size, and the words and shares that this kind of it takes. */
static bool size_parse(enum policy_set kind, const char *text, struct policy_size *ret_size, char *ret_why)
{
	bool shares =
	    kind == POLICY_SET_NONE || kind == POLICY_SET_START || (kind == POLICY_SET_MOST && strchr(text, '%'));
	struct policy_size size = {.kind = POLICY_SIZE_BYTES};

	if (strcmp(text, kind == POLICY_SET_MOST || kind == POLICY_SET_CAP ? "none" : "auto") == 0)
		size.kind = POLICY_SIZE_AUTO;
	else if (kind == POLICY_SET_START && strcmp(text, "start") == 0)
		size.kind = POLICY_SIZE_START;
	else if (shares ? !policy_size_read(text, &size, ret_why) : !policy_bytes_read(text, &size.value, ret_why))
		return false;
	if (kind == POLICY_SET_CHUNK && size.kind == POLICY_SIZE_BYTES && !chunk_check(text, size.value, ret_why))
		return false;
	*ret_size = size;
	return true;
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

/* Reads a time, or "auto"; a time to wait is also "yes", "no" or one of their other spellings. */
static bool time_parse(enum policy_set kind, const char *text, uint64_t *ret_ns, char *ret_why)
{
	bool waits = kind == POLICY_SET_WAIT;
	int word = 0;

	if (time_read(text, ret_ns))
		return true;
	if (waits ? !enum_parse(POLICY_SET_BOOL, text, &word, ret_why) : strcmp(text, "auto") != 0)
		return policy_wrong(
		    ret_why, text,
		    waits ? "is none of yes and no; write yes, no or a time from 1ms to 60min, as in 10min"
			  : "is no time; write auto or a time from 1ms to 60min, as in 500ms or 2.5s");
	*ret_ns = word ? POLICY_WAIT_ALWAYS : 0;
	return true;
}

/* Reads a weight, or a NUMA node. */
static bool number_parse(enum policy_set kind, const char *text, int *ret_number, char *ret_why)
{
	enum { MAX_NODE = 1023 }; /* the kernel's largest CONFIG_NODES_SHIFT */
	bool is_node = kind == POLICY_SET_NODE;
	uint64_t number, least = is_node ? 0 : 1, most = is_node ? MAX_NODE : POLICY_WEIGHT_MOST;
	const char *end;

	if (is_node && strcmp(text, "auto") == 0) {
		*ret_number = POLICY_NODE_AUTO;
		return true;
	}
	if (!policy_number_read(text, &number, &end) || *end || number < least || number > most)
		return policy_wrong(ret_why, text, "is no %s; write %sa number from %d to %d",
				    is_node ? "NUMA node" : "weight", is_node ? "auto or " : "", (int)least, (int)most);
	*ret_number = (int)number;
	return true;
}

bool policy_weight_read(const char *text, int *ret_weight, char *ret_why)
{
	return number_parse(POLICY_SET_WEIGHT, text, ret_weight, ret_why);
}

static bool devices_add(const char *text, uint64_t *devices, char *ret_why)
{
	struct policy_range range;

	if (!numbers_read(text, &range) || range.lo > range.hi || range.hi >= POLICY_MAX_DEVICES)
		return policy_wrong(ret_why, text, "is no device; write a number from 0 to %d, or \"0 .. 3\"",
				    POLICY_MAX_DEVICES - 1);
	for (uint64_t device = range.lo; device <= range.hi; device++) {
		if (*devices & 1ull << device)
			return policy_wrong(ret_why, text, POLICY_LISTED);
		*devices |= 1ull << device;
	}
	return true;
}

/* Reads "first N", "after N" or "N .. M". The first allocation is number 1. */
static bool order_parse(const char *text, struct policy_range *ret_range, char *ret_why)
{
	bool first = strncmp(text, "first ", 6) == 0, after = strncmp(text, "after ", 6) == 0;
	struct policy_range range;
	const char *end;
	uint64_t n;

	if (first || after) {
		if (!policy_number_read(text + 6 + strspn(text + 6, " "), &n, &end) || *end)
			return policy_wrong(ret_why, text, "has no plain number; write \"%s 100\"",
					    first ? "first" : "after");
		if (first && n == 0)
			return policy_wrong(ret_why, text, "matches nothing; write \"first 1\" or remove the rule");
		*ret_range = first ? (struct policy_range){1, n} : (struct policy_range){n + 1, UINT64_MAX};
		return true;
	}
	if (!strstr(text, "..") || !numbers_read(text, &range))
		return policy_wrong(ret_why, text, "is no order; write \"first 100\", \"after 100\" or \"100 .. 200\"");
	if (range.lo == 0 || range.lo > range.hi)
		return policy_wrong(ret_why, text, "matches nothing; the first is number 1, write \"1 .. 200\"");
	*ret_range = range;
	return true;
}

static bool range_parse(enum policy_set kind, const char *text, struct policy_range *ret_range, char *ret_why)
{
	static const char what[] = "device.free";

	if (kind == POLICY_SET_ORDER)
		return order_parse(text, ret_range, ret_why);
	if (kind == POLICY_SET_PRESSURE) {
		if (strncmp(text, what, sizeof(what) - 1) != 0)
			return policy_wrong(ret_why, text, "is no pressure; write \"device.free < 2GiB\"");
		text += sizeof(what) - 1;
		text += strspn(text, " ");
	}
	return policy_condition_parse(text, ret_range, ret_why);
}

/* The bytes of a value that may be a list; 0: it may not. Zeroed, it is empty. */
static const size_t list_bytes[POLICY_TYPE_PART + 1] = {
    [POLICY_TYPE_FLAGS] = sizeof(int),
    [POLICY_TYPE_USES] = sizeof(struct policy_uses),
    [POLICY_TYPE_GLOBS] = sizeof(struct policy_globs),
    [POLICY_TYPE_DEVICES] = sizeof(uint64_t),
    [POLICY_TYPE_RANKS] = sizeof(struct policy_ranks),
};

bool policy_value_is_list(const struct policy_key *key)
{
	return list_bytes[key->type] != 0;
}

void policy_value_clear(const struct policy_key *key, void *target)
{
	void *field = (char *)target + key->offset;

	if (key->type == POLICY_TYPE_GLOBS)
		policy_globs_free(field);
	else if (key->type == POLICY_TYPE_RANKS)
		policy_ranks_free(field);
	else
		memset(field, 0, list_bytes[key->type]);
}

bool policy_value_add(const struct policy_key *key, const char *text, void *target, char *ret_why)
{
	void *field = (char *)target + key->offset;

	switch (key->type) {
	case POLICY_TYPE_SIZE:
		return size_parse(key->set, text, field, ret_why);
	case POLICY_TYPE_TIME:
		return time_parse(key->set, text, field, ret_why);
	case POLICY_TYPE_NUMBER:
		return number_parse(key->set, text, field, ret_why);
	case POLICY_TYPE_ENUM:
		return enum_parse(key->set, text, field, ret_why);
	case POLICY_TYPE_FLAGS:
		return flag_add(key->set, text, field, ret_why);
	case POLICY_TYPE_USES:
		return use_add(key->set, text, field, ret_why);
	case POLICY_TYPE_TEXT:
		return text_parse(text, field, ret_why);
	case POLICY_TYPE_GLOBS:
		return globs_add(field, text, ret_why);
	case POLICY_TYPE_DEVICES:
		return devices_add(text, field, ret_why);
	case POLICY_TYPE_RANKS:
		return ranks_add(field, text, ret_why);
	case POLICY_TYPE_RANGE:
		return range_parse(key->set, text, field, ret_why);
	case POLICY_TYPE_PART:
		break;
	}
	return policy_wrong(ret_why, NULL, "is a list; write it in a policy file");
}

bool policy_value_parse(const struct policy_key *key, const char *text, void *target, char *ret_why)
{
	policy_value_clear(key, target);
	return policy_value_add(key, text, target, ret_why);
}

const char *policy_value_example(const struct policy_key *key)
{
	switch (key->type) {
	case POLICY_TYPE_RANGE:
		return key->set == POLICY_SET_ORDER      ? "\"first 100\""
		       : key->set == POLICY_SET_PRESSURE ? "\"device.free < 2GiB\""
							 : "\">= 64MiB\"";
	case POLICY_TYPE_TEXT:
		return "some text";
	case POLICY_TYPE_GLOBS:
		return "\"*name*\"";
	case POLICY_TYPE_DEVICES:
	case POLICY_TYPE_RANKS:
		return "0";
	case POLICY_TYPE_PART:
		return "other.yaml";
	default:
		return key->standard && *key->standard ? key->standard : policy_value_next(key->set, NULL)->name;
	}
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
	int value;

	if (!enum_parse(POLICY_SET_API, text, &value, ret_why))
		return false;
	*ret_api = (enum policy_api)value;
	return true;
}
