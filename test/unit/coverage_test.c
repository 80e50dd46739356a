// SPDX-License-Identifier: Apache-2.0
/*
 * coverage_test.c: NVIDIA's header against hooks.def. Every function of the driver API has exactly one row, hooked,
 * used or exempt; and a function whose parameters can name memory is hooked, unless its exemption has a reason that is
 * good enough for what it names. COVERAGE_FILE is cuda.h after the preprocessor.
 */
#include "test/test.h"

#include <ctype.h>

/* clang-format off */
enum list { HOOKED, USED, EXEMPTED };
static const struct row {
	const char *name, *reason;
	enum list list;
} rows[] = {
#define HOOK_NAME(name) {#name, "", HOOKED},
#define USE_NAME(name) {#name, "", USED},
#define EXEMPT(name, reason) {#name, #reason, EXEMPTED},
#include "shim/driver/hooks.def"
};
/* clang-format on */
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

/*
 * Types that name memory, and the reasons that may exempt a function that takes one all the same. A trailing star
 * stands for any rest of the name. No reason at all: such a function must be hooked.
 *
 *   SHAPE    structure of a graph, no memory named       ORDER  state of a capture: which graph, which nodes
 *   SAMPLER  state of textures, reading it back          ARRAY  description of an array the driver placed
 *   CODE     occupancy: a launch is described, none made
 *
 * INTEROP and PRIVATE are for names that are not in cuda.h, and excuse nothing that is.
 */
static const struct rule {
	const char *type, *reasons;
} rules[] = {
    {"CUdeviceptr*", ""},
    {"CUmemGenericAllocationHandle*", ""},
    {"CUmemoryPool", ""},
    {"CUmemPool*", ""},
    {"CUmemLocation*", ""},
    {"CUmemAccess*", ""},
    {"CUmemAllocationProp*", ""},
    {"CUmemFabricHandle*", ""},
    {"CUmemDecompressParams*", ""},
    {"CUmemcpyAttributes*", ""},
    {"CUmem_advise", ""},
    {"CUmem_range_attribute", ""},
    {"CUpointer_attribute", ""},
    {"CUipcMemHandle*", ""},
    {"CUarrayMapInfo*", ""},
    {"CUtensorMap", ""},
    {"CUstreamBatchMemOpParams*", ""},
    {"CUDA_MEMCPY*", ""},
    {"CUDA_LAUNCH_PARAMS*", ""},
    {"CUDA_EXTERNAL_MEMORY_*", ""},
    {"CUexternalMemory", ""},
    {"CUDA_KERNEL_NODE_PARAMS*", ""},
    {"CUDA_MEMSET_NODE_PARAMS*", ""},
    {"CUDA_MEM_*_NODE_PARAMS*", ""},
    {"CUDA_BATCH_MEM_OP_NODE_PARAMS*", ""},
    {"CUDA_GRAPH_INSTANTIATE_PARAMS*", ""},
    {"CUgraphNodeParams", ""},
    {"CUgraphMem_attribute", ""},
    {"CUlaunchConfig", "CODE"},
    {"CUgraph", "SHAPE ORDER"},
    {"CUgraphNode", "SHAPE ORDER"},
    {"CUgraphExec", "SHAPE"},
    {"CUtexObject*", "SAMPLER"},
    {"CUsurfObject*", "SAMPLER"},
    {"CUtexref", "SAMPLER"},
    {"CUsurfref", "SAMPLER"},
    {"CUDA_RESOURCE_DESC*", "SAMPLER"},
    {"CUarray", "ARRAY SAMPLER"},
    {"CUmipmappedArray", "ARRAY SAMPLER"},
    {"CUgraphicsResource", "ARRAY"},
    {"CUmulticastObjectProp*", "ARRAY"},
};

/* Functions whose parameters are harsher judged than they deserve: they only read back what a hooked one was told. */
static const char *const read_back[] = {"cuTexRefGetAddress", "cuTexRefGetAddress_v2"};

/* ---- reading prototypes ---- */

struct prototype {
	char name[96];
	char *params; /* the text between the brackets; owned */
};

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static const char *skip_space(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

/* The prototype that starts at the word CUresult, or false. */
static bool read_prototype(const char *at, struct prototype *ret)
{
	size_t length = 0;
	int depth = 0;

	at = skip_space(at + strlen("CUresult"));
	while (is_word(at[length]))
		length++;
	if (strncmp(at, "cu", 2) != 0 || !isupper((unsigned char)at[2]) || length >= sizeof(ret->name))
		return false;
	memcpy(ret->name, at, length);
	ret->name[length] = 0;
	at = skip_space(at + length);
	if (*at != '(')
		return false;
	const char *end = at;
	do {
		depth += (*end == '(') - (*end == ')');
	} while (*++end && depth);
	if (*skip_space(end) != ';')
		return false;
	ret->params = strndup(at + 1, (size_t)(end - at) - 2);
	return true;
}

/* Every "CUresult cuName(...);" of a text; returns how many. */
static size_t read_prototypes(const char *text, struct prototype *list, size_t room)
{
	size_t n = 0;

	for (const char *at = strstr(text, "CUresult"); at && n < room; at = strstr(at + 1, "CUresult"))
		if ((at == text || !is_word(at[-1])) && !is_word(at[strlen("CUresult")]))
			n += read_prototype(at, &list[n]);
	return n;
}

static char *read_whole(const char *path)
{
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	long bytes = ftell(file);
	rewind(file);
	char *text = malloc((size_t)bytes + 1);
	assert_non_null(text);
	assert_int_equal(fread(text, 1, (size_t)bytes, file), bytes);
	text[bytes] = 0;
	fclose(file);
	return text;
}

/* ---- judging ---- */

/* Does the word match a pattern with stars? */
static bool matches(const char *pattern, const char *word, size_t length)
{
	if (*pattern == '*')
		return matches(pattern + 1, word, length) || (length && matches(pattern, word + 1, length - 1));
	if (!*pattern || !length)
		return !*pattern && !length;
	return *pattern == *word && matches(pattern + 1, word + 1, length - 1);
}

/* The first type among the parameters that this reason does not excuse; NULL when there is none. */
static const struct rule *unexcused(const char *params, const char *reason)
{
	for (const char *at = params; *at;) {
		size_t length = 0;

		while (is_word(at[length]))
			length++;
		for (size_t i = 0; length && i < sizeof(rules) / sizeof(rules[0]); i++)
			if (matches(rules[i].type, at, length) && (!*reason || !strstr(rules[i].reasons, reason)))
				return &rules[i];
		at += length ? length : 1;
	}
	return NULL;
}

static bool only_reads_back(const char *name)
{
	for (size_t i = 0; i < sizeof(read_back) / sizeof(read_back[0]); i++)
		if (!strcmp(name, read_back[i]))
			return true;
	return false;
}

/* Is this function covered? Prints why not. */
static bool is_covered(const struct prototype *function)
{
	const struct row *row = NULL;
	size_t n = 0;

	for (size_t i = 0; i < N_ROWS; i++) {
		if (strcmp(rows[i].name, function->name) != 0)
			continue;
		row = &rows[i];
		n++;
	}
	if (n != 1) {
		print_message("%s(%s) has %zu rows, not one\n", function->name, function->params, n);
		return false;
	}
	if (row->list == HOOKED || only_reads_back(function->name))
		return true;
	const struct rule *rule = unexcused(function->params, row->reason);
	if (!rule)
		return true;
	print_message("%s takes %s and is not hooked (%s)\n", function->name, rule->type,
		      row->list == USED ? "HOOK_USE" : row->reason);
	return false;
}

static struct prototype *prototypes;
static size_t n_prototypes;
#define MOST 4000

FIXTURE(read_header)
{
	char *text = read_whole(COVERAGE_FILE);

	prototypes = calloc(MOST, sizeof(*prototypes));
	n_prototypes = read_prototypes(text, prototypes, MOST);
	free(text);
}

FIXTURE(drop_header)
{
	for (size_t i = 0; i < n_prototypes; i++)
		free(prototypes[i].params);
	free(prototypes);
}

GROUP(read_header, drop_header)

TEST(the_header_was_read)
{
	/* 13.0 has 634 in cuda.h; a parser that lost its way would find none or a few. */
	assert_in_range(n_prototypes, 600, MOST - 1);
}

TEST(every_driver_function_is_hooked_or_exempt_for_a_good_reason)
{
	size_t bad = 0;

	for (size_t i = 0; i < n_prototypes; i++)
		bad += !is_covered(&prototypes[i]);
	assert_int_equal(bad, 0);
}

/* OpenGL, EGL and VDPAU have headers of their own that need more than a CUDA Toolkit; private names have none. */
static bool is_declared_elsewhere(const struct row *row)
{
	if (!strcmp(row->reason, "INTEROP"))
		return strstr(row->name, "GL") || strstr(row->name, "Egl") || strstr(row->name, "VDPAU");
	return !strcmp(row->reason, "PRIVATE");
}

TEST(no_row_names_a_function_that_does_not_exist)
{
	size_t bad = 0;

	for (size_t i = 0; i < N_ROWS; i++) {
		bool found = false;

		for (size_t j = 0; j < n_prototypes && !found; j++)
			found = !strcmp(rows[i].name, prototypes[j].name);
		/* Whether it is there depends on how new the header is. */
		if (strcmp(rows[i].reason, "NEWER") != 0 && found == is_declared_elsewhere(&rows[i])) {
			print_message("%s %s\n", rows[i].name,
				      found ? "is in cuda.h after all" : "is in none of NVIDIA's headers");
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

TEST(no_function_has_two_rows)
{
	for (size_t i = 0; i < N_ROWS; i++)
		for (size_t j = 0; j < i; j++)
			if (!strcmp(rows[i].name, rows[j].name))
				fail_msg("%s has two rows", rows[i].name);
}

/* The test must be able to fail: made-up functions that nobody covers, and excuses that do not hold. */
TEST(a_made_up_function_is_found_out)
{
	static const char text[] = "typedef CUresult (*CUfn)(int);\n"
				   "CUresult cuMemTeleport(CUdeviceptr\n *where, int (*how)(void), size_t n) ;\n"
				   "extern __attribute__((x)) CUresult  cuInit(unsigned int Flags);\n"
				   "struct a { CUresult cuNot; }; myCUresult cuNor(void);\n";
	struct prototype list[8];

	assert_int_equal(read_prototypes(text, list, 8), 2);
	assert_string_equal(list[0].name, "cuMemTeleport");
	assert_string_equal(list[1].name, "cuInit");
	assert_false(is_covered(&list[0]));
	assert_true(is_covered(&list[1]));
	strcpy(list[1].name, "cuEventRecord"); /* HOOK_USE: fine without memory, not with it */
	assert_true(is_covered(&list[1]));
	free(list[1].params);
	list[1].params = strdup("const CUDA_MEMCPY2D_v2 *pCopy");
	assert_false(is_covered(&list[1]));
	free(list[0].params);
	free(list[1].params);
}

TEST(reasons_excuse_only_what_they_are_about)
{
	assert_null(unexcused("CUgraph hGraph, CUgraphNode *nodes", "SHAPE"));
	assert_non_null(unexcused("CUgraph hGraph, CUgraphNode *nodes", "DEVICE"));
	assert_non_null(unexcused("CUgraphNode *n, const CUDA_MEMSET_NODE_PARAMS *p", "SHAPE"));
	assert_non_null(unexcused("CUgraphNode *n, CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p", "SHAPE"));
	assert_null(unexcused("CUgraphNode *n, const CUDA_HOST_NODE_PARAMS *p", "SHAPE"));
	assert_non_null(unexcused("CUdeviceptr_v1 *dptr", "CODE"));
	assert_non_null(unexcused("CUtexObject t", ""));
	assert_null(unexcused("CUtexObject t", "SAMPLER"));
	assert_null(unexcused("CUstream hStream, CUevent e", "ORDER"));
}
