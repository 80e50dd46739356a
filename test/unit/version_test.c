// SPDX-License-Identifier: Apache-2.0
/*
 * version_test.c: what processes under Spillway show of themselves and what they write is read by the `spillway` of
 * another version, too: an older one and a newer one. Each reader says in one line what it found and which side is
 * older, and takes no number from it. The data are those of the real writers, with the version exchanged, and the size
 * where it differs.
 *
 * The library's sides of it: control_test.c (requests of another version) and quota_file_test.c (the shared file).
 */
#include "shim/base/user_dir.h"
#include "shim/serve/control.h"
#include "test/slow.h"
#include "test/test.h"
#include "test/unit/page_make.h"
#include "test/unit/temporary.h"
#include "test/unit/trace_file.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static char said[1 << 16]; /* stdout and stderr of the last tool() */
static int status;

static void tool(const char *arguments, ...) __attribute__((format(printf, 1, 2)));
static void tool(const char *arguments, ...)
{
	char line[512];
	va_list list;
	int n = snprintf(line, sizeof(line), "exec timeout %d %s ", 20 * TEST_SLOWNESS, TOOL);

	va_start(list, arguments);
	vsnprintf(line + n, sizeof(line) - (size_t)n, arguments, list);
	va_end(list);
	strcat(line, " 2>&1");
	FILE *pipe = popen(line, "r");
	assert_non_null(pipe);
	said[fread(said, 1, sizeof(said) - 1, pipe)] = 0;
	int ended = pclose(pipe);
	assert_true(WIFEXITED(ended));
	status = WEXITSTATUS(ended);
}

static void has(const char *text)
{
	if (!strstr(said, text))
		fail_msg("\"%s\" is not in: %s", text, said);
}

static void has_not(const char *text)
{
	if (strstr(said, text))
		fail_msg("\"%s\" is in: %s", text, said);
}

BEFORE_EACH
{
	page_make_begin();
}

AFTER_EACH
{
	page_make_end();
}

/* ---- the page of figures ---- */

static void show_page(uint64_t version, size_t bytes)
{
	struct stats_page *whole = page_make(getpid());
	struct stats_page *page = aligned_alloc(_Alignof(struct stats_page), 2 * sizeof(*page));

	assert_non_null(page);
	memset((void *)page, 0, 2 * sizeof(*page));
	memcpy((void *)page, (const void *)whole, sizeof(*page));
	page->version = version;
	page->bytes = bytes;
	page_make_write(page, bytes);
	free(page);
	free(whole);
}

TEST(pages_of_other_versions_are_said_to_be)
{
	static const struct {
		int version;
		size_t bytes;
		const char *row;
	} other[] = {
	    {STATS_VERSION + 1, sizeof(struct stats_page), "use the newer spillway"},
	    {STATS_VERSION + 1, sizeof(struct stats_page) + STATS_ALIGN, "use the newer spillway"},
	    {STATS_VERSION - 1, sizeof(struct stats_page), "use the older spillway"},
	    {STATS_VERSION - 1, sizeof(struct stats_page) - STATS_ALIGN, "use the older spillway"},
	    {STATS_VERSION - 1, 4096, "use the older spillway"},
	};
	char row[128];

	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		show_page((uint64_t)other[i].version, other[i].bytes);
		tool("top --once %d", (int)getpid());
		assert_int_equal(status, 0);
		snprintf(row, sizeof(row), "(its figures are of version %d; this tool knows version %d: %s)\n",
			 other[i].version, STATS_VERSION, other[i].row);
		has(row);
		has_not("train.py");
		tool("top --once --json %d", (int)getpid());
		snprintf(row, sizeof(row), "\"version\": %d", other[i].version);
		has("\"state\": \"other version\"");
		has(row);
		has_not("train.py");
	}
}

/* The size is a part of the version: within one the page does not grow, and one that did would be read wrongly. */
TEST(a_page_of_this_version_and_another_size_is_broken)
{
	show_page(STATS_VERSION, sizeof(struct stats_page) + STATS_ALIGN);
	tool("top --once %d", (int)getpid());
	assert_int_equal(status, 0);
	has("(its file is broken: its size is ");
	has_not("train.py");
}

/* ---- the trace ---- */

static void save_trace(const char *version, const char *more)
{
	char head[512];

	snprintf(head, sizeof(head), "%s\nstart=1000\nclock=50\nmode=exact\n%s", version, more);
	struct trace_file file = file_new(head);
	file_frame(&file, 1, 100);
	FILE_ADD(&file, made, 100, 1, 4096, 4096);
	file_save(&file, temporary);
	file_free(&file);
}

TEST(traces_of_other_versions_are_said_to_be)
{
	static const struct {
		const char *version, *says;
	} other[] = {
	    {"version=2",
	     "is of version 2; this reader knows version 1: read it with the newer spillway that wrote it\n"},
	    {"version=0",
	     "is of version 0; this reader knows version 1: read it with the older spillway that wrote it\n"},
	    {"version=99999999999999999999",
	     "this reader knows version 1: read it with the newer spillway that wrote it\n"},
	    {"version=1.5", "is of version 1.5; this reader knows version 1\n"},
	    {"version=-1", "is of version -1; this reader knows version 1\n"},
	    {"version=", "is of version ?; this reader knows version 1\n"},
	    {"host=a", "is of version ?; this reader knows version 1\n"},
	};

	assert_int_equal(TRACE_VERSION, 1);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		save_trace(other[i].version, "");
		tool("report %s", temporary);
		assert_int_equal(status, 2);
		has(other[i].says);
		assert_ptr_equal(strchr(said, '\n') + 1, strchr(said, 0));
		tool("replay %s", temporary);
		assert_int_equal(status, 2);
		has(other[i].says);
		assert_ptr_equal(strchr(said, '\n') + 1, strchr(said, 0));
	}
	save_trace("version=1", "");
	tool("report %s", temporary);
	assert_int_equal(status, 0);
}

/* ---- the control socket ---- */

/* A process whose library gives this reply to whatever it is asked. */
static pid_t answer_with(const char *reply)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		char request[64];
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(address.sun_path, sizeof(address.sun_path), "%s/%d-00000000000000ab" USER_DIR_SOCKET,
			 page_make_folder(), (int)getpid());
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 8) ||
		    write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;) {
			int caller = accept(fd, NULL, NULL);

			/* The tool looks at sockets that it then does not ask. */
			if (recv(caller, request, sizeof(request), 0) > 0)
				send(caller, reply, strlen(reply), MSG_NOSIGNAL);
			close(caller);
		}
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void end_answers(pid_t pid)
{
	char path[256];

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	snprintf(path, sizeof(path), "%s/%d-00000000000000ab" USER_DIR_SOCKET, page_make_folder(), (int)pid);
	unlink(path);
}

TEST(replies_are_read_by_their_version)
{
	static const struct {
		const char *reply;
		int status;
		const char *says;
	} replies[] = {
	    {"ok 1048576\n", 0,
	     "suspended, 1.0 MiB of device memory given back\n"}, /* from before there were numbers */
	    {"ok 1048576 version=1\n", 0, "suspended, 1.0 MiB of device memory given back\n"},
	    {"ok 1048576 version=2\n", 1,
	     "its library answers in version 2, and this tool knows version 1: use the newer spillway; `spillway top` "
	     "shows whether it is suspended\n"},
	    {"done everything version=2\n", 1, "this tool knows version 1: use the newer spillway"},
	    {"ok 1048576 version=0\n", 1, "this tool knows version 1: use the older spillway"},
	    {"error it speaks version=2 only\n", 1, "not suspended: it speaks version=2 only\n"},
	    {"ok\n", 1, "its answer is not understood: ok\n"},
	};

	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		pid_t pid = answer_with(replies[i].reply);

		tool("suspend %d", (int)pid);
		end_answers(pid);
		assert_int_equal(status, replies[i].status);
		has(replies[i].says);
		assert_ptr_equal(strchr(said, '\n') + 1, strchr(said, 0));
	}
}

TEST(the_list_shows_the_version_that_it_cannot_read)
{
	static const struct {
		const char *reply, *state;
	} replies[] = {
	    {"ok 0 running\n", "  running    "},           {"ok 0 suspended version=1\n", "  suspended  "},
	    {"ok 0 running version=2\n", "  v2         "}, {"gone fishing version=3\n", "  v3         "},
	    {"error unknown request\n", "  ?          "},
	};
	char row[64];

	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		pid_t pid = answer_with(replies[i].reply);

		tool("list");
		end_answers(pid);
		assert_int_equal(status, 0);
		snprintf(row, sizeof(row), "%7d%s", (int)pid, replies[i].state);
		has(row);
	}
}

GROUP(temporary_make, temporary_remove)
