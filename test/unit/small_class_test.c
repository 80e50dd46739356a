// SPDX-License-Identifier: Apache-2.0
/* small_class_test.c: the size classes of small allocations, for every size there is. */
#include "shim/heap/block.h"
#include "test/test.h"

TEST(classes_rise_and_are_multiples_of_512)
{
	for (unsigned i = 0; i < SMALL_CLASSES; i++) {
		assert_int_equal(small_class_bytes(i) % 512, 0);
		assert_true(i == 0 || small_class_bytes(i) > small_class_bytes(i - 1));
	}
	assert_int_equal(small_class_bytes(0), 512);
	assert_int_equal(small_class_bytes(SMALL_CLASSES - 1), SMALL_MOST);
}

TEST(every_size_gets_the_smallest_class_that_holds_it)
{
	for (size_t bytes = 1; bytes <= SMALL_MOST; bytes++) {
		unsigned size_class = small_class_of(bytes);

		/* One assertion in the loop, for a million sizes. */
		if (size_class >= SMALL_CLASSES || small_class_bytes(size_class) < bytes ||
		    (size_class && small_class_bytes(size_class - 1) >= bytes))
			fail_msg("size %zu got class %u", bytes, size_class);
	}
}

TEST(at_most_a_fifth_of_a_slot_is_wasted)
{
	for (size_t bytes = 1; bytes <= SMALL_MOST; bytes++) {
		size_t slot = small_class_bytes(small_class_of(bytes)), waste = slot - bytes;

		if (bytes <= 4096 ? waste >= 512 : waste * 5 >= slot)
			fail_msg("size %zu wastes %zu of %zu", bytes, waste, slot);
	}
}

/* What is left over at the end of a slab counts too: three slots of 640 KiB, two of 768. */
TEST(a_full_slab_is_at_least_three_fifths_contents)
{
	for (size_t bytes = 4097; bytes <= SMALL_MOST; bytes++) {
		size_t slots = HEAP_UNIT / small_class_bytes(small_class_of(bytes));

		if (slots * bytes * 5 < HEAP_UNIT * 3)
			fail_msg("size %zu: a full slab holds %zu", bytes, slots * bytes);
	}
}
