// SPDX-License-Identifier: Apache-2.0
#include "test/preload/folder.h"
#include "test/libc.h"

#include <dirent.h>

char folder[64], runtime[96];

int folder_make(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/%s-XXXXXX", program_invocation_short_name);
	if (!mkdtemp(folder))
		return -1;
	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", folder);
	/* GPUs of its own: an account that is in use is found in any place. */
	return setenv("SIM_UUID", folder + strlen(folder) - 6, 1);
}

int folder_make_for_all(void **state)
{
	return folder_make(state) || setenv("XDG_RUNTIME_DIR", folder, 1);
}

int folder_remove(void **state)
{
	folder_clear();
	return rmdir(folder);
}

static DIR *open_inner(char ret_path[96])
{
	snprintf(ret_path, 96, "%s/spillway", folder);
	return opendir(ret_path);
}

unsigned folder_files(const char *part, char ret_path[256])
{
	char path[96];
	unsigned n = 0;
	DIR *dir = open_inner(path);

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		if (entry->d_name[0] == '.' || !strstr(entry->d_name, part))
			continue;
		n++;
		if (ret_path)
			snprintf(ret_path, 256, "%s/%.100s", path, entry->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

void folder_clear(void)
{
	char path[96];
	DIR *dir = open_inner(path);

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(path);
}
