/*
 * Offsets in CPython. See python_layout.h.
 */
#include "shim/base/python_layout.h"

#include <string.h>

static const struct python_layout layout_3_9 = {
    .lines = PYTHON_LINES_LNOTAB,
    .thread_frame = 24,
    .cframe_frame = PYTHON_NONE,
    .thread_id = 176,
    .frame_back = 24,
    .frame_code = 32,
    .frame_instruction = 104,
    .frame_owner = PYTHON_NONE,
    .code_file = 104,
    .code_name = 112,
    .code_first_line = 40,
    .code_lines = 120,
    .code_instructions = PYTHON_NONE,
    .text_ascii_head = 48,
    .text_other_head = 72,
};

static const struct python_layout layout_3_10 = {
    .lines = PYTHON_LINES_LINETABLE,
    .thread_frame = 24,
    .cframe_frame = PYTHON_NONE,
    .thread_id = 176,
    .frame_back = 24,
    .frame_code = 32,
    .frame_instruction = 96,
    .frame_owner = PYTHON_NONE,
    .code_file = 104,
    .code_name = 112,
    .code_first_line = 40,
    .code_lines = 120,
    .code_instructions = PYTHON_NONE,
    .text_ascii_head = 48,
    .text_other_head = 72,
};

static const struct python_layout layout_3_11 = {
    .lines = PYTHON_LINES_LOCATIONS,
    .thread_frame = 56,
    .cframe_frame = 8,
    .thread_id = 152,
    .frame_back = 48,
    .frame_code = 32,
    .frame_instruction = 56,
    .frame_owner = 69,
    .code_file = 112,
    .code_name = 120,
    .code_first_line = 72,
    .code_lines = 136,
    .code_instructions = 184,
    .text_ascii_head = 48,
    .text_other_head = 72,
};

static const struct python_layout layout_3_12 = {
    .lines = PYTHON_LINES_LOCATIONS,
    .thread_frame = 56,
    .cframe_frame = 0,
    .thread_id = 136,
    .frame_back = 8,
    .frame_code = 0,
    .frame_instruction = 56,
    .frame_owner = 70,
    .code_file = 112,
    .code_name = 120,
    .code_first_line = 68,
    .code_lines = 136,
    .code_instructions = 192,
    .text_ascii_head = 40,
    .text_other_head = 56,
};

/* Which of the words of _Py_DebugOffsets has what. The first: "xdebugpy", the version, 1 if without the GIL. */
struct words {
	unsigned thread_frame, thread_id;
	unsigned frame_back, frame_code, frame_instruction, frame_owner;
	unsigned code_file, code_name, code_first_line, code_lines, code_instructions;
	unsigned object_type, bytes_size, bytes_head, text_state, text_length, text_ascii_head;
};

static const struct words words_3_13 = {
    .thread_frame = 23,
    .thread_id = 24,
    .frame_back = 29,
    .frame_code = 30,
    .frame_instruction = 31,
    .frame_owner = 33,
    .code_file = 35,
    .code_name = 36,
    .code_lines = 38,
    .code_first_line = 39,
    .code_instructions = 43,
    .object_type = 45,
    .bytes_size = 65,
    .bytes_head = 66,
    .text_state = 68,
    .text_length = 69,
    .text_ascii_head = 70,
};

static const struct words words_3_14 = {
    .thread_frame = 26,
    .thread_id = 27,
    .frame_back = 32,
    .frame_code = 33,
    .frame_instruction = 34,
    .frame_owner = 36,
    .code_file = 40,
    .code_name = 41,
    .code_lines = 43,
    .code_first_line = 44,
    .code_instructions = 48,
    .object_type = 51,
    .bytes_size = 75,
    .bytes_head = 76,
    .text_state = 78,
    .text_length = 79,
    .text_ascii_head = 80,
};

/*
 * Sets *into. Returns false if the number cannot be the offset of something of this size in a small structure: then the
 * table is another one than is known.
 */
static bool take(const uint64_t *words, unsigned which, unsigned bytes, uint16_t *into)
{
	if (words[which] > 4096 || words[which] % bytes)
		return false;
	*into = (uint16_t)words[which];
	return true;
}

static bool from_words(const uint64_t *words, uint64_t version, const struct words *at, struct python_layout *into)
{
	static const char cookie[] = "xdebugpy";

	if (memcmp(words, cookie, 8) != 0 || words[1] >> 16 != version >> 16 || words[2] != 0)
		return false;
	/* What is the same in all versions proves that the table is the expected one. */
	if (words[at->object_type] != PYTHON_TYPE || words[at->bytes_size] != PYTHON_BYTES_SIZE ||
	    words[at->bytes_head] != PYTHON_BYTES_HEAD || words[at->text_state] != PYTHON_TEXT_STATE ||
	    words[at->text_length] != PYTHON_TEXT_LENGTH)
		return false;
	into->lines = PYTHON_LINES_LOCATIONS;
	into->cframe_frame = PYTHON_NONE;
	if (!take(words, at->text_ascii_head, 8, &into->text_ascii_head))
		return false;
	into->text_other_head = into->text_ascii_head + 16; /* utf8_length, utf8 */
	return take(words, at->thread_frame, 8, &into->thread_frame) &&
	       take(words, at->thread_id, 8, &into->thread_id) && take(words, at->frame_back, 8, &into->frame_back) &&
	       take(words, at->frame_code, 8, &into->frame_code) &&
	       take(words, at->frame_instruction, 8, &into->frame_instruction) &&
	       take(words, at->frame_owner, 1, &into->frame_owner) && take(words, at->code_file, 8, &into->code_file) &&
	       take(words, at->code_name, 8, &into->code_name) &&
	       take(words, at->code_first_line, 4, &into->code_first_line) &&
	       take(words, at->code_lines, 8, &into->code_lines) &&
	       take(words, at->code_instructions, 2, &into->code_instructions);
}

bool python_layout_find(uint64_t version, const uint64_t words[PYTHON_WORDS], struct python_layout *ret_layout)
{
	switch (version >> 16) {
	case 0x0309:
		*ret_layout = layout_3_9;
		return true;
	case 0x030a:
		*ret_layout = layout_3_10;
		return true;
	case 0x030b:
		*ret_layout = layout_3_11;
		return true;
	case 0x030c:
		*ret_layout = layout_3_12;
		return true;
	case 0x030d:
		return words && from_words(words, version, &words_3_13, ret_layout);
	case 0x030e:
		return words && from_words(words, version, &words_3_14, ret_layout);
	default:
		return false;
	}
}
