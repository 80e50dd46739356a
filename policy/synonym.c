/* Words that users of CUDA are likely to write for a value, and the names of CUDA functions for an API. */
#include "policy/synonym.h"

#include <string.h>
#include <strings.h>

static const struct {
	enum policy_set set;
	const char *typed, *meant;
} synonyms[] = {
    /* The heap spans device and host; `place` chooses between them. */
    {POLICY_SET_USE, "host", "heap (and place: host)"},
    {POLICY_SET_USE, "cpu", "heap (and place: host)"},
    {POLICY_SET_USE, "ram", "heap (and place: host)"},
    {POLICY_SET_USE, "pinned", "heap (and place: host)"},
    {POLICY_SET_USE, "device", "heap (and place: device)"},
    {POLICY_SET_USE, "gpu", "heap (and place: device)"},
    {POLICY_SET_USE, "vram", "heap (and place: device)"},
    {POLICY_SET_USE, "spill", "heap"},
    {POLICY_SET_USE, "spillway", "heap"},
    {POLICY_SET_USE, "vmm", "heap"},
    {POLICY_SET_USE, "uvm", "managed"},
    {POLICY_SET_USE, "unified", "managed"},
    {POLICY_SET_USE, "cudaMallocManaged", "managed"},
    {POLICY_SET_USE, "pageable", "system"},
    {POLICY_SET_USE, "malloc", "system"},
    {POLICY_SET_USE, "hmm", "system"},
    {POLICY_SET_USE, "ats", "system"},
    {POLICY_SET_USE, "cuda", "driver"},
    {POLICY_SET_USE, "native", "driver"},
    {POLICY_SET_USE, "passthrough", "driver"},
    {POLICY_SET_USE, "cudaMalloc", "driver"},
    {POLICY_SET_USE, "none", "deny"},
    {POLICY_SET_USE, "oom", "deny"},
    {POLICY_SET_API, "device", "malloc"},
    {POLICY_SET_API, "unified", "managed"},
    {POLICY_SET_API, "uvm", "managed"},
    {POLICY_SET_API, "pinned", "host"},
    {POLICY_SET_API, "stream", "async"},
    {POLICY_SET_API, "cuMemCreate", "vmm"},
    {POLICY_SET_API, "cuMemMap", "vmm"},
    {POLICY_SET_PLACE, "gpu", "device"},
    {POLICY_SET_PLACE, "vram", "device"},
    {POLICY_SET_PLACE, "cpu", "host"},
    {POLICY_SET_PLACE, "ram", "host"},
    {POLICY_SET_PLACE, "pinned", "host"},
    {POLICY_SET_PLACE, "lazy", "on-use"},
    {POLICY_SET_PLACE, "peers", "stripe"},
    {POLICY_SET_PLACE, "interleave", "stripe"},
    {POLICY_SET_SPILL, "no", "off"},
    {POLICY_SET_SPILL, "none", "off"},
    {POLICY_SET_SPILL, "yes", "exact"},
    {POLICY_SET_SPILL, "on", "exact"},
    {POLICY_SET_SPILL, "auto", "exact"},
    {POLICY_SET_SPILL, "move", "exact"},
    {POLICY_SET_SPILL, "host", "static"},
    {POLICY_SET_SPILL, "async", "fast"},
    {POLICY_SET_ASYNC, "pool", "driver"},
};

/*
 * Returns true if the text is one of the names in a list such as "cudaMalloc, cuMemAlloc". "cuMemAlloc_v2" is another
 * version of "cuMemAlloc".
 */
static bool is_in_list(const char *list, const char *text)
{
	size_t n = strlen(text);
	const char *end = strrchr(text, '_');

	if (end && end != text && (end[1] == 'v' || end[1] == 'p'))
		n = (size_t)(end - text);
	for (const char *name = list; name && *name; name = strchr(name, ','), name = name ? name + 1 : NULL) {
		name += strspn(name, " ");
		size_t n_name = strcspn(name, ",");

		if (n_name == n && strncasecmp(name, text, n) == 0)
			return true;
	}
	return false;
}

const char *policy_synonym(enum policy_set set, const char *text)
{
	const struct policy_value *value = NULL;

	for (size_t i = 0; i < sizeof(synonyms) / sizeof(*synonyms); i++)
		if (synonyms[i].set == set && strcasecmp(synonyms[i].typed, text) == 0)
			return synonyms[i].meant;
	/* The help of an API in keys.def lists its functions. */
	while (set == POLICY_SET_API && (value = policy_value_next(set, value)))
		if (is_in_list(value->help, text))
			return value->name;
	return NULL;
}
