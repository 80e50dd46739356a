// SPDX-License-Identifier: Apache-2.0
/*
 * A program that uses libyaml itself, dynamically: ours is inside us and does not meet it. Names of this program that
 * libyaml also has must not be called by ours either.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#include <yaml.h>

static unsigned scalars(const char *text)
{
	yaml_parser_t parser;
	yaml_event_t event;
	unsigned n = 0;
	bool more = true;

	assert_true(yaml_parser_initialize(&parser));
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
	while (more && yaml_parser_parse(&parser, &event)) {
		n += event.type == YAML_SCALAR_EVENT;
		more = event.type != YAML_STREAM_END_EVENT;
		yaml_event_delete(&event);
	}
	assert_false(more);
	yaml_parser_delete(&parser);
	return n;
}

TEST(the_programs_libyaml_and_ours_do_not_meet)
{
	CUdeviceptr block;

	assert_int_equal(scalars("a: [1, 2, 3]\nb: c\n"), 6);
	driver_start(0);
	assert_int_equal(cu.cuMemAlloc_v2(&block, 4 * MIB), CUDA_SUCCESS); /* reads a policy file */
	assert_false(driver_is_heap(block));
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	assert_int_equal(scalars("a: [1, 2, 3]\nb: c\n"), 6);
}
