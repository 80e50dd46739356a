// SPDX-License-Identifier: Apache-2.0
/*
 * What a launch loses of programmatic dependent launch: one attribute, in a copy, and when.
 */
#include "test/core/core.h"

#include "shim/stats/stats.h"
#include "shim/submit/arguments.h"

#define OVERLAP CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

enum { MOST = 40 };

/* What the driver was handed. */
static CUlaunchConfig seen;
static CUlaunchAttribute seen_attributes[MOST];
static const CUlaunchConfig *seen_at;

static CUresult CUDAAPI driver(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	assert_ptr_equal(function, (void *)1);
	assert_ptr_equal(params, (void *)2);
	assert_ptr_equal(extra, (void *)3);
	seen_at = config;
	if (config) {
		seen = *config;
		if (config->attrs)
			memcpy(seen_attributes, config->attrs, config->numAttrs * sizeof(*config->attrs));
	}
	return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

static void launch(const CUlaunchConfig *config)
{
	assert_int_equal(pdl_launch(driver, config, (CUfunction)1, (void *)2, (void *)3),
			 CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

static CUlaunchConfig config_of(CUlaunchAttribute *attributes, unsigned n)
{
	return (CUlaunchConfig){2, 3, 4, 5, 6, 7, 8, (CUstream)9, attributes, n};
}

TEST(the_one_attribute_is_cleared_in_a_copy)
{
	CUlaunchAttribute given[4], before[4];
	CUlaunchConfig config = config_of(given, 4);
	uint64_t cleared = stats_get(STAT_pdl_cleared);

	memset(given, 0x5a, sizeof(given)); /* padding and the rest of each value are handed on as well */
	given[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	given[1].id = OVERLAP;
	given[1].value.programmaticStreamSerializationAllowed = 1;
	given[2].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	given[3].id = OVERLAP; /* said twice */
	given[3].value.programmaticStreamSerializationAllowed = 2;
	memcpy(before, given, sizeof(given));

	launch(&config);
	assert_memory_equal(given, before, sizeof(given));
	assert_ptr_not_equal(seen_at, &config);
	assert_int_equal(seen.numAttrs, 4);
	assert_memory_equal(&seen, &config, offsetof(CUlaunchConfig, attrs));
	before[1].value.programmaticStreamSerializationAllowed = 0;
	before[3].value.programmaticStreamSerializationAllowed = 0;
	assert_memory_equal(seen_attributes, before, sizeof(before));
	assert_int_equal(stats_get(STAT_pdl_cleared), cleared + 1);
}

TEST(a_launch_that_does_not_ask_for_it_is_handed_on_as_it_is)
{
	CUlaunchAttribute given[2] = {{.id = OVERLAP}, {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE}};
	CUlaunchConfig config = config_of(given, 2), none = config_of(NULL, 0), wrong = config_of(NULL, 1);
	uint64_t cleared = stats_get(STAT_pdl_cleared);
	const CUlaunchConfig *const all[] = {&config, &none, &wrong, NULL};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i] == &wrong)
			continue; /* the fake driver would read it */
		launch(all[i]);
		assert_ptr_equal(seen_at, all[i]);
	}
	assert_int_equal(stats_get(STAT_pdl_cleared), cleared);
}

/* Work that waits for such an event would wait for ever without its record. */
TEST(events_of_a_launch_are_kept_and_counted)
{
	CUlaunchAttribute given[3] = {{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT},
				      {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT},
				      {.id = OVERLAP, .value.programmaticStreamSerializationAllowed = 1}};
	CUlaunchConfig with = config_of(given, 3), without = config_of(given, 2);
	uint64_t events = stats_get(STAT_pdl_events);

	given[0].value.programmaticEvent.event = (CUevent)11;
	given[1].value.launchCompletionEvent.event = (CUevent)12;
	launch(&with);
	assert_memory_equal(seen_attributes, given, 2 * sizeof(given[0]));
	assert_int_equal(seen_attributes[2].value.programmaticStreamSerializationAllowed, 0);
	assert_int_equal(stats_get(STAT_pdl_events), events + 1);
	launch(&without);
	assert_ptr_equal(seen_at, &without);
	assert_int_equal(stats_get(STAT_pdl_events), events + 2);
}

TEST(more_attributes_than_there_are_keep_their_overlap)
{
	CUlaunchAttribute given[MOST];
	CUlaunchConfig config = config_of(given, 32);

	memset(given, 0, sizeof(given));
	for (unsigned i = 0; i < MOST; i++) {
		given[i].id = OVERLAP;
		given[i].value.programmaticStreamSerializationAllowed = 1;
	}
	launch(&config);
	assert_ptr_not_equal(seen_at, &config);
	assert_int_equal(seen_attributes[31].value.programmaticStreamSerializationAllowed, 0);
	config.numAttrs = 33;
	launch(&config);
	assert_ptr_equal(seen_at, &config);
}

TEST(the_policy_says_when)
{
	static const struct {
		enum policy_pdl setting;
		bool at_start, spilled;
	} rows[] = {{POLICY_PDL_KEEP, false, false}, {POLICY_PDL_AUTO, false, true}, {POLICY_PDL_OFF, true, true}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		atomic_store(&pdl_cleared, false);
		pdl_start(rows[i].setting);
		assert_int_equal(pdl_is_cleared(), rows[i].at_start);
		pdl_spilled();
		assert_int_equal(pdl_is_cleared(), rows[i].spilled);
	}
}
