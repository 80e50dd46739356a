// SPDX-License-Identifier: Apache-2.0
#include "test/preload/trace_help.h"

#include <dirent.h>

char trace_folder[32] = "/tmp/trace_test.XXXXXX", trace_path[64], trace_setting[96];
struct trace trace;

int trace_main(void)
{
	if (!mkdtemp(trace_folder))
		return 1;
	snprintf(trace_path, sizeof(trace_path), "%s/t", trace_folder);
	snprintf(trace_setting, sizeof(trace_setting), "SPILLWAY_TRACE=%s", trace_path);
	int failed = test_run();
	rmdir(trace_folder);
	return failed;
}

int trace_teardown(void **state)
{
	DIR *dir = opendir(trace_folder);

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	trace_free(&trace);
	return run_end(state);
}

unsigned long trace_told(const char *text, const char *word)
{
	const char *line = strstr(text, word);

	if (!line)
		fail_msg("no '%s' in\n%s\n%s", word, ran.out, ran.err);
	return strtoul(line + strlen(word), NULL, 10);
}
