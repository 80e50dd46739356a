/*
 * Writes one page for a browser: the report_page files with the digest of one run, or of two, embedded as JSON, which the
 * page's script displays. The page loads nothing else; its head forbids it.
 *
 * In report_page.html, a line that consists of "@NAME@" is replaced by a part.
 */
#include "tools/report/report.h"

#include <string.h>

/* Embeds the bytes of a file, from `name` to `name`_end. */
#define EMBED(name, file)                                                                                              \
	__asm__(".section .rodata\n" #name ":\n"                                                                       \
		".incbin \"" REPORT_PAGE_FOLDER "/" file "\"\n" #name "_end:\n"                                        \
		".byte 0\n"                                                                                            \
		".previous\n");                                                                                        \
	extern const char name[] __attribute__((visibility("hidden")));                                                \
	extern const char name##_end[] __attribute__((visibility("hidden")))

EMBED(report_page_html, "report_page.html");
EMBED(report_page_css, "report_page.css");
EMBED(report_page_js, "report_page.js");
EMBED(report_charts_js, "report_charts.js");
EMBED(report_flame_js, "report_flame.js");

static void html_put(const char *begin, const char *end)
{
	fwrite(begin, 1, (size_t)(end - begin), stdout);
}

static bool html_is(const char *line, const char *end, const char *mark)
{
	return (size_t)(end - line) == strlen(mark) && memcmp(line, mark, strlen(mark)) == 0;
}

static void put_line(const struct digest *digests, size_t n, const char *line, const char *end)
{
	if (html_is(line, end, "@STYLE@"))
		html_put(report_page_css, report_page_css_end);
	else if (html_is(line, end, "@CHARTS@"))
		html_put(report_charts_js, report_charts_js_end);
	else if (html_is(line, end, "@FLAME@"))
		html_put(report_flame_js, report_flame_js_end);
	else if (html_is(line, end, "@SCRIPT@"))
		html_put(report_page_js, report_page_js_end);
	else if (html_is(line, end, "@DATA@"))
		n > 1 ? report_compare_json(digests, n) : report_json(digests);
	else {
		html_put(line, end);
		putchar('\n');
	}
}

void report_html(const struct digest *digests, size_t n)
{
	for (const char *line = report_page_html; line < report_page_html_end;) {
		const char *end = memchr(line, '\n', (size_t)(report_page_html_end - line));

		end = end ? end : report_page_html_end;
		put_line(digests, n, line, end);
		line = end + 1;
	}
}
