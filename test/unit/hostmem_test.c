// SPDX-License-Identifier: Apache-2.0
/* hostmem_test.c: what the kernel's files say about host memory, read from a folder that only looks like / . */
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "shim/base/hostmem.h"
#include "test/test.h"

#define MEMINFO                                                                                                        \
	"MemTotal:        8388608 kB\nMemFree:          102400 kB\nMemAvailable:    4194304 kB\nBuffers:           1 " \
	"kB\n"

static char root[64];

static int make_root(void **state)
{
	strcpy(root, "/tmp/hostmem_test.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
	char command[80];

	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

EACH_TEST(make_root, drop_root)

static uint64_t headroom(void)
{
	return hostmem_read(root).cgroup_headroom;
}

/* Write a file below the root, with the folders on the way. */
static void put(const char *path, const char *text)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0700);
		*slash = '/';
	}
	FILE *file = fopen(full, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static uint64_t inode(const char *path)
{
	char full[512];
	struct stat status;

	snprintf(full, sizeof(full), "%s%s", root, path);
	assert_int_equal(stat(full, &status), 0);
	return status.st_ino;
}

/* Of available memory the kernel says less without its files: not what it would reclaim. */
TEST(without_any_file_the_kernel_is_asked)
{
	struct hostmem memory = hostmem_read(root);
	struct sysinfo info;

	assert_int_equal(sysinfo(&info), 0);
	assert_int_equal(memory.total, info.totalram * (uint64_t)info.mem_unit);
	assert_true(memory.available > 0 && memory.available <= memory.total);
	assert_true(memory.cgroup_headroom == UINT64_MAX);
	assert_int_equal(hostmem_default_budget(&memory), memory.available / 2);
}

/* A container's own group is the root of what is mounted there. */
TEST(without_the_name_of_its_group_the_limits_at_the_root_count)
{
	put("/sys/fs/cgroup/memory.max", "104857600\n");
	put("/sys/fs/cgroup/memory.current", "1048576\n");
	assert_int_equal(headroom(), 99 * MIB);
	assert_int_equal(hostmem_read(root).domain, inode("/sys/fs/cgroup"));
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n");
	assert_int_equal(headroom(), 3 * MIB);
}

TEST(without_a_cgroup_half_of_what_is_available)
{
	put("/proc/meminfo", MEMINFO);
	struct hostmem memory = hostmem_read(root);
	assert_int_equal(memory.total, 8192 * MIB);
	assert_int_equal(memory.available, 4096 * MIB);
	assert_int_equal(hostmem_default_budget(&memory), 2048 * MIB);
}

TEST(version_2_limit_minus_usage)
{
	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "0::/job\n");
	put("/sys/fs/cgroup/job/memory.max", "1073741824\n");
	put("/sys/fs/cgroup/job/memory.current", "536870912\n");
	struct hostmem memory = hostmem_read(root);
	assert_int_equal(memory.cgroup_headroom, 512 * MIB);
	assert_int_equal(hostmem_default_budget(&memory), 256 * MIB);
}

TEST(the_word_max_is_no_limit)
{
	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "0::/job\n");
	put("/sys/fs/cgroup/job/memory.max", "max\n");
	put("/sys/fs/cgroup/job/memory.current", "536870912\n");
	struct hostmem memory = hostmem_read(root);
	assert_true(memory.cgroup_headroom == UINT64_MAX);
	assert_int_equal(hostmem_default_budget(&memory), 2048 * MIB);
}

TEST(the_tightest_group_on_the_way_up_counts)
{
	put("/proc/self/cgroup", "0::/a/b/c\n");
	put("/sys/fs/cgroup/a/b/c/memory.max", "4294967296\n");
	put("/sys/fs/cgroup/a/b/c/memory.current", "0\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1\n");
	put("/sys/fs/cgroup/a/memory.max", "2147483648\n");
	put("/sys/fs/cgroup/a/memory.current", "2146435072\n");
	assert_int_equal(headroom(), MIB);
}

/* In a container the path is the host's, and only the mount's own root is there. */
TEST(a_group_that_is_not_there_is_looked_for_at_the_root)
{
	put("/proc/self/cgroup", "0::/kubepods/pod1/abc\n");
	put("/sys/fs/cgroup/memory.max", "104857600\n");
	put("/sys/fs/cgroup/memory.current", "1048576\n");
	assert_int_equal(headroom(), 99 * MIB);
}

TEST(usage_over_the_limit_leaves_nothing)
{
	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/memory.max", "1000\n");
	put("/sys/fs/cgroup/memory.current", "2000\n");
	struct hostmem memory = hostmem_read(root);
	assert_int_equal(memory.cgroup_headroom, 0);
	assert_int_equal(hostmem_default_budget(&memory), 0);
}

TEST(version_1_has_its_own_folder_and_files)
{
	put("/proc/self/cgroup", "12:cpuset:/x\n5:memory:/docker/1\n1:name=systemd:/y\n0::/z\n");
	put("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "3145728\n");
	put("/sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "1048576\n");
	/* Another controller's files say nothing about memory. */
	put("/sys/fs/cgroup/x/memory.max", "1\n");
	assert_int_equal(headroom(), 2 * MIB);
}

/* A container that has read a data set: 63 of 64 GiB used, of which 60 are files that can be read again. */
TEST(what_is_cached_of_files_is_not_used_in_version_2)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/sys/fs/cgroup/job/memory.max", "68719476736\n");
	put("/sys/fs/cgroup/job/memory.current", "67645734912\n");
	assert_int_equal(headroom(), 1024 * MIB);
	put("/sys/fs/cgroup/job/memory.stat", "anon 2147483648\nfile 66571993088\nshmem 2147483648\n"
					      "inactive_anon 1\nactive_anon 1\ninactive_file 42949672960\n"
					      "active_file 21474836480\nunevictable 4096\n"
					      "slab_reclaimable 1048576\nslab_unreclaimable 9\n");
	assert_int_equal(headroom(), 61 * 1024 * MIB + MIB);
}

TEST(what_is_cached_of_files_is_not_used_in_version_1)
{
	put("/proc/self/cgroup", "5:memory:/job\n");
	put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "68719476736\n");
	put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "67645734912\n");
	put("/sys/fs/cgroup/memory/job/memory.soft_limit_in_bytes", "1048576\n"); /* limits nothing */
	/* What is below a group counts as well: the fields without total_ are of the group alone. */
	put("/sys/fs/cgroup/memory/job/memory.stat", "cache 1\ninactive_file 1\nactive_file 1\n"
						     "total_inactive_file 42949672960\n"
						     "total_active_file 21474836480\n");
	assert_int_equal(headroom(), 61 * 1024 * MIB);
}

TEST(no_figure_of_the_cache_leaves_more_than_the_limit)
{
	static const char *const stats[] = {
	    "inactive_file 99999999999999\nactive_file 1\nslab_reclaimable 1\n",
	    "inactive_file 18446744073709551615\nactive_file 18446744073709551615\nslab_reclaimable 2\n",
	    "inactive_file -1\nactive_file 1048576\nslab_reclaimable nonsense\n",
	};

	put("/proc/self/cgroup", "0::/job\n");
	put("/sys/fs/cgroup/job/memory.max", "3145728\n");
	put("/sys/fs/cgroup/job/memory.current", "2097152\n");
	for (unsigned i = 0; i < sizeof(stats) / sizeof(*stats); i++) {
		put("/sys/fs/cgroup/job/memory.stat", stats[i]);
		assert_int_equal(headroom(), 3 * MIB);
	}
}

/* The kernel writes more into it with each version. */
TEST(the_figures_may_lie_anywhere_in_a_long_file)
{
	static char text[40000];
	size_t at = 0;

	while (at < 30000)
		at += (size_t)sprintf(text + at, "a_field_of_a_later_kernel_%zu 1048576\n", at);
	memset(text + at, 'x', 1000);                        /* a line longer than any we read */
	strcpy(text + at + 1000, "\ninactive_file 1048576"); /* and one without an end */
	put("/proc/self/cgroup", "0::/job\n");
	put("/sys/fs/cgroup/job/memory.max", "3145728\n");
	put("/sys/fs/cgroup/job/memory.current", "2097152\n");
	put("/sys/fs/cgroup/job/memory.stat", text);
	assert_int_equal(headroom(), 2 * MIB);
}

TEST(above_memory_high_nothing_is_left_either)
{
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "4194304\n");
	put("/sys/fs/cgroup/a/b/memory.high", "3145728\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1048576\n");
	assert_int_equal(headroom(), 2 * MIB);
	put("/sys/fs/cgroup/a/b/memory.high", "max\n");
	assert_int_equal(headroom(), 3 * MIB);
	/* Alone it is a limit as well, and whose memory it is follows from it. */
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/memory.high", "2097152\n");
	put("/sys/fs/cgroup/a/memory.current", "1048576\n");
	assert_int_equal(headroom(), MIB);
	assert_int_equal(hostmem_read(root).domain, inode("/sys/fs/cgroup/a"));
}

TEST(version_1_without_a_limit_writes_a_huge_number)
{
	put("/proc/self/cgroup", "5:memory:/\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
	assert_true(headroom() == UINT64_MAX);
}

TEST(version_1_controllers_may_share_a_mount)
{
	put("/proc/self/cgroup", "5:hugetlb,memory:/job\n");
	put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3145728\n");
	put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1048576\n");
	assert_int_equal(headroom(), 2 * MIB);
}

/* containerd names groups so when it is told the wrong cgroup driver. */
TEST(a_colon_in_the_path_is_part_of_the_path)
{
	put("/proc/self/cgroup", "0::/system.slice:cri:abc\n");
	put("/sys/fs/cgroup/system.slice:cri:abc/memory.max", "3145728\n");
	put("/sys/fs/cgroup/system.slice:cri:abc/memory.current", "1048576\n");
	assert_int_equal(headroom(), 2 * MIB);
}

TEST(a_file_of_nonsense_is_no_limit)
{
	char path[1024] = "0::/";

	put("/proc/meminfo", "no such fields here\n");
	put("/proc/self/cgroup", "nonsense\n\n::\n0::\n");
	put("/sys/fs/cgroup/memory.max", "");
	struct hostmem memory = hostmem_read(root);
	assert_true(memory.total > 0);
	assert_true(memory.cgroup_headroom == UINT64_MAX);
	/* A path longer than any we expect is left out, not cut. */
	memset(path + 4, 'x', sizeof(path) - 5);
	put("/proc/self/cgroup", path);
	put("/sys/fs/cgroup/memory.max", "4096\n");
	assert_true(headroom() == UINT64_MAX);
}

TEST(the_domain_is_the_nearest_group_with_a_limit)
{
	put("/proc/self/cgroup", "0::/a/b/c\n");
	put("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
	put("/sys/fs/cgroup/a/memory.max", "1048576\n");
	put("/sys/fs/cgroup/a/memory.current", "0\n");
	assert_int_equal(hostmem_read(root).domain, inode("/sys/fs/cgroup/a"));
	/* The same for another process below it, though the limit of a/b is looser. */
	put("/sys/fs/cgroup/a/b/memory.max", "1073741824\n");
	assert_int_equal(hostmem_read(root).domain, inode("/sys/fs/cgroup/a/b"));
	put("/proc/self/cgroup", "0::/a/b/d\n");
	assert_int_equal(hostmem_read(root).domain, inode("/sys/fs/cgroup/a/b"));
	put("/proc/self/cgroup", "5:memory:/v1\n0::/\n");
	put("/sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "3145728\n");
	assert_int_equal(hostmem_read(root).domain, inode("/sys/fs/cgroup/memory/v1"));
}

TEST(without_a_limit_the_domain_is_the_machine)
{
	assert_int_equal(hostmem_read(root).domain, 0);
	put("/proc/self/cgroup", "0::/a\n");
	put("/sys/fs/cgroup/a/memory.max", "max\n");
	assert_int_equal(hostmem_read(root).domain, 0);
}

TEST(this_machine_can_be_read)
{
	struct hostmem memory = hostmem_read("");

	assert_true(memory.total >= memory.available && memory.available > 0);
}
