// SPDX-License-Identifier: Apache-2.0
#include "test/test.h"
#include "test/unit/top_show_help.h"

#include "tools/prom/prom.h"

struct stats_page *page;
struct figures figures;
pid_t self[1];
static struct process_name self_name;
const struct figures_choice choice = {.only = (uid_t)-1, .name = &self_name, .n = 1};
struct top_view view;
static char *shown;

int begin(void **state)
{
	page_make_begin();
	self[0] = self_name.pid = getpid();
	page = page_make(self[0]);
	view = (struct top_view){.sort = (unsigned)top_column_named("device")};
	return 0;
}

int end(void **state)
{
	free(shown);
	shown = NULL;
	figures_free(&figures);
	free(page);
	page_make_end();
	return 0;
}

void read_it(void)
{
	page_make_write(page, sizeof(*page));
	assert_true(figures_read(&figures, &choice));
	assert_int_equal(figures.n, 1);
}

void read_twice(void)
{
	read_it();
	page_make_grow(page, 10);
	read_it();
	figures.process[0].seconds = figures.seconds = 10;
}

/*
 * Every word that is this process's id becomes PID, in as many columns. A longer word that has the same digits, as a
 * UUID may have, stays.
 */
static void hide_pid(char *text)
{
	char pid[16];
	size_t length = (size_t)snprintf(pid, sizeof(pid), "%d", (int)self[0]);

	for (char *at = text; (at = strstr(at, pid)); at++) {
		if ((at > text && !strchr(" \n", at[-1])) || !strchr(" ,\n", at[length]))
			continue;
		memset(at, ' ', length);
		if (length >= 3)
			memcpy(at + length - 3, "PID", 3);
	}
}

const char *text_of(void)
{
	size_t bytes;
	free(shown);
	FILE *out = open_memstream(&shown, &bytes);

	top_print_text(out, &figures, &view);
	fclose(out);
	hide_pid(shown);
	return shown;
}

const char *prom_of(void)
{
	size_t bytes;
	free(shown);
	FILE *out = open_memstream(&shown, &bytes);

	prom_print(out, &figures);
	fclose(out);
	return shown;
}

/* JSON goes to stdout. */
const char *json_of(void)
{
	FILE *file = tmpfile();

	fflush(stdout);
	int saved = dup(STDOUT_FILENO);
	dup2(fileno(file), STDOUT_FILENO);
	top_print_json(&figures, &view);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	long bytes = lseek(fileno(file), 0, SEEK_END);
	free(shown);
	shown = calloc(1, (size_t)bytes + 1);
	assert_int_equal(pread(fileno(file), shown, (size_t)bytes, 0), bytes);
	fclose(file);
	return shown;
}

void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

void has_not(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" is in:\n%s", part, text);
}
