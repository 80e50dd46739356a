// SPDX-License-Identifier: Apache-2.0
/*
 * trace_file.h: trace files for tests, written through the encoder into memory and from there to disk.
 */
#ifndef SPILLWAY_TEST_TRACE_FILE_H
#define SPILLWAY_TEST_TRACE_FILE_H

#include "test/libc.h"
#include "shim/trace/trace_code.h"

struct trace_file {
	struct trace_writer *writer;
	uint8_t *bytes;
	size_t n, room;
	bool open; /* a frame is begun */
};

static inline void file_put(struct trace_file *file, const void *bytes, size_t n)
{
	while (file->room - file->n < n) {
		file->room = file->room ? 2 * file->room : 1 << 16;
		file->bytes = realloc(file->bytes, file->room);
	}
	if (n)
		memcpy(file->bytes + file->n, bytes, n);
	file->n += n;
}

static inline struct trace_file file_new(const char *head)
{
	struct trace_file file = {.writer = trace_writer_new()};
	char room[1024];

	file_put(&file, room, trace_head(head, room, sizeof(room)));
	return file;
}

static inline void file_end_frame(struct trace_file *file)
{
	size_t n = 0;
	const void *frame = file->open ? trace_frame_end(file->writer, &n) : NULL;

	file_put(file, frame, n);
	file->open = false;
}

/* Ends the frame before. */
static inline void file_frame(struct trace_file *file, uint32_t thread, uint64_t time)
{
	file_end_frame(file);
	trace_frame_begin(file->writer, thread, time);
	file->open = true;
}

/* Fields in the order of trace.def; those that are left out are 0. */
#define FILE_ADD(file, what, when, ...)                                                                                \
	trace_frame_add((file)->writer,                                                                                \
			&(struct trace_event){.kind = TRACE_##what, .time = (when), .field = {__VA_ARGS__}})

static inline bool file_name(struct trace_file *file, uint64_t list, uint64_t number, const char *text, size_t n)
{
	struct trace_event event = {.kind = TRACE_name, .field = {list, number}, .text = text, .text_bytes = n};

	return trace_frame_add(file->writer, &event);
}

static inline bool file_submit(struct trace_file *file, uint64_t time, uint64_t function,
			       const struct trace_named *named, uint64_t n)
{
	struct trace_event event = {.kind = TRACE_submit, .time = time, .field = {function, 0, n}, .named = named};

	return trace_frame_add(file->writer, &event);
}

static inline void file_save(struct trace_file *file, const char *path)
{
	file_end_frame(file);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, file->bytes, file->n) != (ssize_t)file->n || close(fd))
		abort();
}

static inline void file_free(struct trace_file *file)
{
	trace_writer_free(file->writer);
	free(file->bytes);
	*file = (struct trace_file){0};
}

#endif
