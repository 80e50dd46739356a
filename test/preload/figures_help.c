// SPDX-License-Identifier: Apache-2.0
#include "test/preload/figures_help.h"

#include <sys/mman.h>
#include <sys/stat.h>

CUdeviceptr blocks[N_BLOCKS];

void work(void)
{
	driver_start(0);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		blocks[i] = child_alloc(BLOCK);
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < N_BLOCKS; i++)
			MUST(driver_fill(NULL, blocks[i], round + i, N_WORDS));
	MUST(cu.cuCtxSynchronize());
}

void free_blocks(void)
{
	for (unsigned i = 0; i < N_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(blocks[i]));
}

const struct stats_page *page_there(void)
{
	struct stat status;
	char path[256];

	CHECK(folder_files(STATS_TAIL, path) == 1);
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &status) == 0 && (status.st_mode & 0777) == 0400);
	CHECK((size_t)status.st_size == sizeof(struct stats_page));
	const struct stats_page *page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(page != MAP_FAILED);
	close(fd);
	CHECK(page->bytes == sizeof(*page) && page->version == STATS_VERSION && page->magic == STATS_MAGIC);
	return page;
}
