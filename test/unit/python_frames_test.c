// SPDX-License-Identifier: Apache-2.0
/*
 * Frames of Python in made-up memory, laid out as each version lays them out; the layouts that 3.13 and 3.14 tell; and
 * memory that is damaged at random, which must lead to some name or none, and never outside.
 */
#include "shim/base/python.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define BASE   UINT64_C(0x7f0000000000)
#define CODE   UINT64_C(0x1000) /* addresses of types */
#define TEXT   UINT64_C(0x2000)
#define BYTES  UINT64_C(0x3000)
#define SELF   UINT64_C(0x4444)
#define THREAD BASE

static unsigned char image[1 << 16];
static size_t used;
static struct python_layout layout; /* of the version that is looked at */
static char room[PYTHON_NAME];      /* what was found last */

static size_t read_image(void *context, uint64_t address, void *to, size_t bytes)
{
	if (address < BASE || address - BASE >= sizeof(image))
		return 0;
	if (bytes > sizeof(image) - (address - BASE))
		bytes = sizeof(image) - (address - BASE);
	memcpy(to, image + (address - BASE), bytes);
	return bytes;
}

static uint64_t make(size_t bytes)
{
	uint64_t address = BASE + used;

	used += (bytes + 15) / 16 * 16;
	assert_true(used <= sizeof(image));
	return address;
}

static void set(uint64_t address, unsigned offset, uint64_t value, size_t bytes)
{
	memcpy(image + (address - BASE) + offset, &value, bytes);
}

static uint64_t make_text(const char *text)
{
	size_t n = strlen(text);
	uint64_t object = make(layout.text_ascii_head + n + 1);

	set(object, PYTHON_TYPE, TEXT, 8);
	set(object, PYTHON_TEXT_LENGTH, n, 8);
	set(object, PYTHON_TEXT_STATE, 0x40 | 0x20 | 1 << 2, 4);
	memcpy(image + (object - BASE) + layout.text_ascii_head, text, n);
	return object;
}

/* width: bytes of a character. */
static uint64_t make_wide(unsigned width, const uint32_t *text, size_t n)
{
	uint64_t object = make(layout.text_other_head + n * width);

	set(object, PYTHON_TYPE, TEXT, 8);
	set(object, PYTHON_TEXT_LENGTH, n, 8);
	set(object, PYTHON_TEXT_STATE, 0x20 | width << 2, 4);
	for (size_t i = 0; i < n; i++)
		set(object, layout.text_other_head + (unsigned)i * width, text[i], width);
	return object;
}

/* A function whose first 4 bytes are of line 10, all others of line 20. */
static uint64_t make_code(uint64_t file, uint64_t name)
{
	static const unsigned char lines[3][6] = {
	    {4, 10, 0, 0, 0, 0},
	    {4, 0, 200, 10, 0, 0},
	    {0xe8 | 1, 0, 0xe8 | 7, 20, 0, 0},
	};
	static const size_t n[3] = {2, 4, 4};
	uint64_t code = make(512), table = make(64);

	set(table, PYTHON_TYPE, BYTES, 8);
	set(table, PYTHON_BYTES_SIZE, n[layout.lines], 8);
	memcpy(image + (table - BASE) + PYTHON_BYTES_HEAD, lines[layout.lines], n[layout.lines]);
	set(code, PYTHON_TYPE, CODE, 8);
	set(code, layout.code_file, file, 8);
	set(code, layout.code_name, name, 8);
	set(code, layout.code_first_line, 10, 4);
	set(code, layout.code_lines, table, 8);
	return code;
}

/* at: bytes of instructions. */
static uint64_t make_frame(uint64_t back, uint64_t code, uint64_t at)
{
	uint64_t frame = make(128);

	set(frame, layout.frame_back, back, 8);
	set(frame, layout.frame_code, code, 8);
	if (layout.code_instructions != PYTHON_NONE)
		set(frame, layout.frame_instruction, code + layout.code_instructions + at, 8);
	else
		set(frame, layout.frame_instruction, layout.lines == PYTHON_LINES_LINETABLE ? at / 2 : at, 4);
	return frame;
}

static void set_thread(uint64_t frame)
{
	set(THREAD, layout.thread_id, SELF, 8);
	if (layout.cframe_frame != PYTHON_NONE) {
		uint64_t cframe = make(64);

		set(cframe, layout.cframe_frame, frame, 8);
		frame = cframe;
	}
	set(THREAD, layout.thread_frame, frame, 8);
}

static uint64_t of_file(uint64_t back, const char *file, const char *name, uint64_t at)
{
	return make_frame(back, make_code(make_text(file), make_text(name)), at);
}

/* ---- layouts ---- */

/* What the interpreter of 3.13.0 has there, and with the fields that 3.14 added in between. */
static void make_words(uint64_t words[PYTHON_WORDS], unsigned minor)
{
	static const uint64_t thread[] = {304, 0, 8, 16, 72, 152, 160, 232, 32};
	static const uint64_t frame[] = {80, 8, 0, 56, 72, 70};
	static const uint64_t code[] = {208, 112, 120, 128, 136, 68, 52, 96, 104, 200};
	static const uint64_t object[] = {16, 8}, bytes[] = {40, 16, 32}, text[] = {64, 32, 16, 40};
	bool new = minor == 14;

	memset(words, 0, PYTHON_WORDS * sizeof(*words));
	memcpy(words, "xdebugpy", 8);
	words[1] = 0x03000000 | minor << 16 | 0xf0;
	memcpy(words + (new ? 22 : 19), thread, sizeof(thread));
	memcpy(words + (new ? 31 : 28), frame, sizeof(frame));
	memcpy(words + (new ? 39 : 34), code, sizeof(code));
	memcpy(words + (new ? 50 : 44), object, sizeof(object));
	memcpy(words + (new ? 74 : 64), bytes, sizeof(bytes));
	memcpy(words + (new ? 77 : 67), text, sizeof(text));
}

/* Memory in which there is nothing yet but a thread, of that version. */
static void start(unsigned minor)
{
	uint64_t words[PYTHON_WORDS];

	make_words(words, minor);
	assert_true(python_layout_find(0x03000000 | minor << 16, minor < 13 ? NULL : words, &layout));
	memset(image, 0, sizeof(image));
	used = 0;
	make(512); /* the thread's state */
}

static enum python_found find_of(uint64_t thread, uint64_t self, char *callers)
{
	const struct python python = {
	    .layout = layout, .memory = {read_image, NULL}, .code_type = CODE, .text_type = TEXT, .bytes_type = BYTES};

	return python_frames_find(&python, thread, self, room, callers);
}

/* The thread is in this frame: it is of the user, and so it is called. */
static void is_named(uint64_t frame, const char *name)
{
	set_thread(frame);
	assert_int_equal(find_of(THREAD, SELF, NULL), PYTHON_OF_USER);
	assert_string_equal(room, name);
}

TEST(versions_that_are_not_known_have_no_layout)
{
	uint64_t words[PYTHON_WORDS];

	assert_false(python_layout_find(0x03080000, NULL, &layout));
	assert_false(python_layout_find(0x02070000, NULL, &layout));
	assert_false(python_layout_find(0x030d00f0, NULL, &layout)); /* it cannot be read */
	make_words(words, 15);
	assert_false(python_layout_find(0x030f00f0, words, &layout));
	make_words(words, 13);
	assert_false(python_layout_find(0x030e00f0, words, &layout)); /* the table is of 3.13 */
	words[1] = 0x030e00f0;
	assert_false(python_layout_find(0x030e00f0, words, &layout)); /* it says another version, but is as before */
	make_words(words, 13);
	words[2] = 1; /* without the GIL */
	assert_false(python_layout_find(0x030d00f0, words, &layout));
	make_words(words, 14);
	words[26] = 1 << 20; /* no offset of a field */
	assert_false(python_layout_find(0x030e00f0, words, &layout));
	make_words(words, 14);
	words[0]++;
	assert_false(python_layout_find(0x030e00f0, words, &layout));
}

/* ---- frames ---- */

TEST(the_innermost_frame_of_the_user_is_named)
{
	for (unsigned minor = 9; minor <= 14; minor++) {
		start(minor);
		uint64_t at = of_file(0, "<frozen runpy>", "_run_code", 0);
		at = of_file(at, "/home/user/train.py", "<module>", 2);
		at = of_file(at, "/home/user/net/train.py", "forward", 4);
		at = of_file(at, "/opt/lib/python3.12/site-packages/torch/nn/linear.py", "forward", 4);
		at = of_file(at, "/usr/lib/python3.12/contextlib.py", "inner", 4);
		is_named(at, "train.py:20 in forward");
		/* The state of another thread, and none. */
		assert_int_equal(find_of(THREAD, SELF + 1, NULL), PYTHON_NO_FRAMES);
		assert_string_equal(room, "");
		assert_int_equal(find_of(0, SELF, NULL), PYTHON_NO_FRAMES);
		/* A thread that runs no Python. */
		set_thread(0);
		assert_int_equal(find_of(THREAD, SELF, NULL), PYTHON_NO_FRAMES);
	}
}

TEST(frames_that_are_not_of_python_are_passed)
{
	for (unsigned minor = 11; minor <= 14; minor++) {
		start(minor);
		uint64_t at = of_file(0, "run.py", "<module>", 0);
		at = make_frame(at, 0x123456789, 0);
		set(at, layout.frame_owner, PYTHON_OWNER_NONE, 1);
		is_named(at, "run.py:10 in <module>");
	}
}

static enum python_found found_in(const char *path)
{
	start(12);
	set_thread(of_file(0, path, "f", 0));
	return find_of(THREAD, SELF, NULL);
}

TEST(whose_a_file_is_its_path_says)
{
	assert_int_equal(found_in("/home/u/a.py"), PYTHON_OF_USER);
	assert_int_equal(found_in("<stdin>"), PYTHON_OF_USER);
	assert_string_equal(room, "<stdin>:10 in f");
	assert_int_equal(found_in("<string>"), PYTHON_OF_PACKAGE); /* if there is nothing better */
	assert_string_equal(room, "<string>:10 in f");
	assert_int_equal(found_in("/tmp/torchinductor_u/ab/cab.py"), PYTHON_NOT_NAMED);
	assert_int_equal(found_in("<ipython-input-3-abc>"), PYTHON_OF_USER);
	assert_int_equal(found_in("<eval_with_key>.5"), PYTHON_NOT_NAMED);
	assert_int_equal(found_in("<frozen importlib._bootstrap>"), PYTHON_NOT_NAMED);
	assert_string_equal(room, "");
	assert_int_equal(found_in("/usr/lib/python3.11/threading.py"), PYTHON_NOT_NAMED);
	assert_int_equal(found_in("/usr/lib64/python3.9/threading.py"), PYTHON_NOT_NAMED);
	assert_int_equal(found_in("/opt/lib/python311.zip/threading.py"), PYTHON_NOT_NAMED);
	assert_int_equal(found_in("/home/u/python3.11/a.py"), PYTHON_OF_USER);
	assert_int_equal(found_in("/home/u/lib/python3-things/a.py"), PYTHON_OF_USER);
	assert_int_equal(found_in("/v/lib/python3.11/site-packages/torch/nn/x.py"), PYTHON_NOT_NAMED);
	assert_int_equal(found_in("/v/lib/python3.11/site-packages/torchtune/x.py"), PYTHON_OF_PACKAGE);
	assert_string_equal(room, "x.py:10 in f");
	assert_int_equal(found_in("/usr/lib/python3/dist-packages/cupy/x.py"), PYTHON_NOT_NAMED);
	assert_int_equal(found_in("/home/u/pack/__init__.py"), PYTHON_OF_USER);
	assert_string_equal(room, "pack/__init__.py:10 in f");
	assert_int_equal(found_in("__main__.py"), PYTHON_OF_USER);
	assert_string_equal(room, "__main__.py:10 in f");
}

TEST(texts_of_any_script_are_written_as_utf_8)
{
	static const uint32_t latin[] = {'/', 'h', '/', 0xe4, '.', 'p', 'y'}, wide[] = {0x8bad, 0x7ec3, 7},
			      widest[] = {0x1f600, 'x'}, lone[] = {0xdc80, 0x9b, 0xdfff, 0xe000};
	for (unsigned minor = 9; minor <= 14; minor++) {
		start(minor);
		uint64_t file = make_wide(1, latin, 7), name = make_wide(2, wide, 3);
		is_named(make_frame(0, make_code(file, name), 0), "\u00e4.py:10 in \u8bad\u7ec3?");
		file = make_text("/h/a.py"), name = make_wide(4, widest, 2);
		is_named(make_frame(0, make_code(file, name), 0), "a.py:10 in \U0001f600x");
		name = make_wide(2, lone, 4);
		is_named(make_frame(0, make_code(file, name), 0), "a.py:10 in ???\ue000");
	}
}

TEST(callers_are_named_from_the_inside_out)
{
	char callers[PYTHON_CALLERS];
	const char *once = "m.py:10 in f";

	for (unsigned minor = 9; minor <= 14; minor++) {
		start(minor);
		uint64_t at = of_file(0, "/h/run.py", "<module>", 0);
		set_thread(at);
		assert_int_equal(find_of(THREAD, SELF, callers), PYTHON_OF_USER);
		assert_string_equal(room, "run.py:10 in <module>");
		assert_string_equal(callers, "");
		/* Frames of a framework stand between those of the user, and below the innermost. */
		at = of_file(at, "/x/site-packages/torch/nn/module.py", "_call_impl", 0);
		at = of_file(at, "/h/gpt.py", "forward", 0);
		at = of_file(at, "/x/site-packages/torch/nn/linear.py", "forward", 0);
		set_thread(at);
		assert_int_equal(find_of(THREAD, SELF, callers), PYTHON_OF_USER);
		assert_string_equal(room, "gpt.py:10 in forward");
		assert_string_equal(callers, "run.py:10 in <module>");
	}
	/* Seven callers are all there; of an eighth it is said that there is one. */
	for (unsigned most = PYTHON_CALLERS_MOST; most <= PYTHON_CALLERS_MOST + 1; most++) {
		char expected[PYTHON_CALLERS] = "";
		uint64_t at = 0;

		start(12);
		for (unsigned i = 0; i <= most; i++)
			at = of_file(at, "/h/m.py", "f", 0);
		set_thread(at);
		for (unsigned i = 0; i < PYTHON_CALLERS_MOST; i++)
			snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%s%s",
				 i ? PYTHON_CALLED_BY : "", once);
		if (most > PYTHON_CALLERS_MOST)
			strcat(expected, PYTHON_CALLED_BY PYTHON_FURTHER);
		assert_int_equal(find_of(THREAD, SELF, callers), PYTHON_OF_USER);
		assert_string_equal(callers, expected);
	}
}

TEST(long_texts_are_cut)
{
	char text[3001];

	start(11);
	memset(text, 'n', 3000);
	text[3000] = 0;
	set_thread(of_file(0, "/home/u/a.py", text, 0));
	assert_int_equal(find_of(THREAD, SELF, NULL), PYTHON_OF_USER);
	assert_memory_equal(room, "a.py:10 in nnnn", 15);
	start(11);
	text[0] = '/';
	set_thread(of_file(0, text, text, 0));
	assert_int_equal(find_of(THREAD, SELF, NULL), PYTHON_OF_USER);
	assert_int_equal(strlen(room), PYTHON_NAME - 1);
}

TEST(frames_in_a_circle_end)
{
	start(13);
	uint64_t frame = of_file(0, "/usr/lib/python3.13/ast.py", "visit", 0);
	set(frame, layout.frame_back, frame, 8);
	set_thread(frame);
	assert_int_equal(find_of(THREAD, SELF, NULL), PYTHON_NOT_NAMED);
}

TEST(damaged_memory_leads_nowhere)
{
	static unsigned char good[sizeof(image)];
	struct seed seed = seed_start("python_frames_test");
	for (unsigned minor = 9; minor <= 14; minor++) {
		start(minor);
		uint64_t at = of_file(0, "/home/user/train.py", "<module>", 2);
		for (unsigned i = 0; i < 6; i++)
			at = of_file(at, "/v/site-packages/torch/a.py", "forward", 4);
		set_thread(at);
		memcpy(good, image, sizeof(image));
		for (unsigned round = 0; round < 4000; round++) {
			memcpy(image, good, used);
			for (uint64_t n = 1 + seed_below(&seed, 20); n; n--) {
				uint64_t where = seed_below(&seed, used / 8) * 8;

				/* A byte, or a pointer to somewhere inside, or to the very end. */
				if (seed_next(&seed) & 1)
					image[where + seed_below(&seed, 8)] = (unsigned char)seed_next(&seed);
				else
					set(BASE + where, 0,
					    BASE + (seed_next(&seed) & 1 ? seed_below(&seed, used)
									 : sizeof(image) - 1 - seed_below(&seed, 64)),
					    8);
			}
			memset(room, 'x', sizeof(room));
			find_of(THREAD, SELF, NULL);
			assert_non_null(memchr(room, 0, sizeof(room)));
		}
	}
}
