// SPDX-License-Identifier: Apache-2.0
/*
 * quota_file_test.c: processes that share pinned host memory, where the file by which they do is not what it should be,
 * or somebody has changed what is in it.
 */
#include "test/test.h"
#include "test/unit/quota_help.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void put_file(const void *bytes, size_t n, mode_t mode)
{
	char below[80];

	snprintf(below, sizeof(below), "%s/spillway", folder);
	mkdir(below, 0700);
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	fchmod(fd, mode);
	close(fd);
}

TEST(garbage_that_nobody_uses_is_replaced)
{
	static char bytes[2 * sizeof(struct quota_page)];
	static const size_t sizes[] = {1,
				       100,
				       sizeof(struct quota_page) - 1,
				       sizeof(struct quota_page),
				       sizeof(struct quota_page) + 1,
				       sizeof(bytes)};
	uint32_t seed = seed_of_test();

	for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
		for (size_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = i % 2 ? (char)next_random(&seed) : 0;
		put_file(bytes, sizes[i / 2], 0600);
		struct rank a = share_taking(40), b = share_start();

		assert_false(rank_ask(&b, 't', 40));
		ranks_end(&a, &b);
	}
}

/* Contents behind a head that is as it should be. */
TEST(nonsense_in_the_slots_leaves_each_its_own_budget)
{
	static struct quota_page page;
	uint32_t seed = seed_of_test();

	for (unsigned round = 0; round < 50; round++) {
		for (size_t j = 0; j < sizeof(page); j++)
			((unsigned char *)&page)[j] = (unsigned char)next_random(&seed);
		page.head.file = (struct shared_head){
		    .bytes = sizeof(page), .version = QUOTA_VERSION, .magic = QUOTA_MAGIC, .total = ROOM};
		page.slot[0].owner.pid = 77;
		page.slot[0].owner.space = round % 2 ? 0 : page.slot[0].owner.space;
		put_file(&page, sizeof(page), 0600);
		struct rank a = share_start();
		/* Whatever it makes of it, it answers, and it can have what it could have alone. */
		assert_true(rank_ask(&a, 't', 64));
		rank_ask(&a, 'o', 0);
		rank_ask(&a, 'f', 0);
		rank_ask(&a, 'k', 0);
		rank_ask(&a, 'g', 64);
		rank_kill(&a);
		unlink(file);
	}
}

static struct quota_page *map_file(void)
{
	int fd = open(file, O_RDWR);

	assert_true(fd >= 0);
	struct quota_page *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(page != MAP_FAILED);
	close(fd);
	return page;
}

static void the_total_is_not_given_out_beside_another_version(int versions, off_t longer)
{
	struct rank a = share_taking(60), b = share_start();

	struct quota_page *page = map_file();
	page->head.file.version += (uint64_t)versions;
	page->head.file.bytes += (uint64_t)longer;
	assert_int_equal(truncate(file, (off_t)page->head.file.bytes), 0);
	struct quota_head before = page->head;

	assert_false(rank_ask(&b, 't', 1));
	rank_ask(&b, 'k', 0);
	assert_false(rank_ask(&b, 't', 1));
	assert_memory_equal(&page->head, &before, sizeof(before));
	assert_int_equal(page->slot[0].used, 60 * MIB);
	for (unsigned i = 1; i < 16; i++)
		assert_int_equal(page->slot[i].owner.pid, 0);
	/* Who comes later finds the same, and a process that ends takes nothing away. */
	rank_end(&b);
	assert_int_equal(access(file, F_OK), 0);
	struct rank c = share_start();
	assert_false(rank_ask(&c, 't', 1));
	/* The last of the others has ended: now there is a file of our version. */
	rank_kill(&a);
	assert_true(rank_ask(&c, 't', 60));
	assert_false(rank_ask(&c, 't', 60));
	rank_end(&c);
	munmap(page, sizeof(*page));
}

TEST(beside_a_newer_version_nothing_is_taken)
{
	the_total_is_not_given_out_beside_another_version(1, 0);
	the_total_is_not_given_out_beside_another_version(1, 4096);
}

TEST(beside_an_older_version_nothing_is_taken)
{
	the_total_is_not_given_out_beside_another_version(-1, 0);
	the_total_is_not_given_out_beside_another_version(-1, -4096);
}

/* New files are made below XDG_RUNTIME_DIR; those who started before it was there have theirs elsewhere. */
TEST(another_version_is_found_in_each_place)
{
	char memory[128], below[160], old_file[192];
	const char *usual = user_dir_memory;

	snprintf(memory, sizeof(memory), "%s/memory", folder);
	assert_int_equal(mkdir(memory, 0700), 0);
	user_dir_memory = memory;
	assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
	struct rank a = share_taking(60);

	snprintf(below, sizeof(below), "%s/spillway-%u", memory, (unsigned)geteuid());
	snprintf(old_file, sizeof(old_file), "%s/host.quota", below);
	const uint64_t newer = QUOTA_VERSION + 1;
	share_overwrite(old_file, offsetof(struct quota_head, file.version), &newer, sizeof(newer));
	assert_int_equal(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
	struct rank b = share_start();
	assert_false(rank_ask(&b, 't', 1));
	assert_int_equal(access(file, F_OK), -1);
	rank_kill(&a);
	assert_true(rank_ask(&b, 't', 60));
	rank_end(&b);
	unlink(old_file);
	rmdir(below);
	rmdir(memory);
	user_dir_memory = usual;
}

TEST(nonsense_that_comes_later_leaves_each_its_own_budget)
{
	struct rank a = share_taking(60), b = share_taking(4);

	struct quota_page *page = map_file();
	uint64_t was = page->slot[0].used;
	page->slot[0].used = UINT64_MAX;
	assert_true(rank_ask(&b, 't', 100));
	assert_true(rank_ask(&b, 'g', 104));
	page->slot[0].used = was;
	page->slot[0].number++; /* somebody else's now */
	assert_true(rank_ask(&a, 't', 100));
	assert_true(rank_ask(&a, 'g', 160));
	assert_int_equal(page->slot[0].used, was);
	page->slot[0].owner.pid = 0;
	munmap(page, sizeof(*page));
}

static bool has_no_locks;

/* Comes before the C library's. */
int fcntl(int fd, int command, ...)
{
	static int (*next)(int, int, ...);
	va_list list;

	va_start(list, command);
	void *argument = va_arg(list, void *);
	va_end(list);
	if (has_no_locks && (command == F_OFD_SETLK || command == F_OFD_GETLK)) {
		errno = EINVAL;
		return -1;
	}
	if (!next)
		next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl");
	return next(fd, command, argument);
}

TEST(a_file_open_to_others_a_link_and_a_pipe_are_not_used)
{
	char target[128];

	for (unsigned i = 0; i < 4; i++) {
		snprintf(target, sizeof(target), "%s/target", folder);
		put_file("", 0, 0600);
		if (i == 0)
			assert_int_equal(chmod(file, 0644), 0);
		else
			assert_int_equal(unlink(file), 0);
		if (i == 1)
			assert_int_equal(symlink(target, file), 0);
		else if (i == 2)
			assert_int_equal(mkfifo(file, 0600), 0);
		else if (i == 3)
			assert_int_equal(mkdir(file, 0700), 0);
		struct rank a = share_taking(1000);

		rank_end(&a);
		assert_int_equal(access(target, F_OK), -1);
		assert_int_equal(i == 3 ? rmdir(file) : unlink(file), 0);
	}
}

TEST(where_files_may_not_be_large_there_is_none)
{
	int status;

	pid_t child = fork();
	if (!child) {
		struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};

		CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
		arrange(ROOM, false);
		CHECK(quota_take(1000 * MIB));
		_exit(0);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	unlink(file);
}

TEST(where_a_file_cannot_be_locked_each_has_its_own_budget)
{
	has_no_locks = true;
	struct rank a = share_start(), b = share_start();
	has_no_locks = false;
	assert_true(rank_ask(&a, 'p', 10) && rank_ask(&b, 'p', 10));
	assert_true(rank_ask(&a, 't', 60) && rank_ask(&b, 't', 60));
}

static void fill(struct quota_page *page, const struct shared_owner *owner)
{
	for (unsigned i = 0; i < SHARED_SLOTS; i++)
		if (!page->slot[i].owner.pid)
			page->slot[i] = (struct quota_slot){.owner = *owner, .number = 1000 + i};
}

TEST(a_full_table_leaves_the_next_its_own_budget)
{
	struct rank a = share_taking(1), b = share_start(), c = share_start(), d = share_start();
	struct shared_owner owner = {0};

	struct quota_page *page = map_file();
	owner = page->slot[0].owner;
	owner.pid = (uint64_t)getpid();
	/* They are all this process, which was not started when a was. */
	fill(page, &owner);
	assert_true(rank_ask(&b, 't', 64 - 1));
	rank_end(&b);
	assert_true(rank_ask(&d, 't', 1));
	for (unsigned i = 0; i < SHARED_SLOTS; i++)
		if (page->slot[i].owner.pid == (uint64_t)d.pid)
			owner = page->slot[i].owner;
	assert_int_equal(owner.pid, d.pid);
	fill(page, &owner);
	assert_true(rank_ask(&c, 't', 1000));
	rank_kill(&d);
	ranks_end(&a, &c);
	munmap(page, sizeof(*page));
}

/* On a busy machine many that start together enter one after the other, and it is never free when this one looks. */
TEST(who_enters_after_many_others_gets_its_part)
{
	struct rank a = share_taking(32), b = share_start();

	int fd = open(file, O_RDWR | O_CLOEXEC);
	assert_true(shared_try_byte(fd, 0));
	assert_true(rank_ask(&b, 't', 32));
	assert_false(rank_ask(&a, 't', 1) || rank_ask(&b, 't', 1));
	close(fd);
}

/* A pid of another namespace says nothing: the lock does. */
TEST(of_another_namespace_the_lock_decides)
{
	struct rank a = share_taking(30), b = share_taking(30), c = share_start();

	struct quota_page *page = map_file();
	page->slot[0].owner.space++;
	page->slot[0].owner.pid = 1 << 30; /* nobody's here */
	page->slot[1].owner.space = 0;
	assert_false(rank_ask(&c, 't', 10));
	rank_kill(&a);
	assert_true(rank_ask(&c, 't', 10));
	assert_int_equal(rank_ask(&c, 'r', 0), 1);
	assert_false(rank_ask(&c, 't', 30));
	rank_kill(&b);
	assert_true(rank_ask(&c, 't', 50));
	munmap(page, sizeof(*page));
}

EACH_TEST(make_folder, drop_folder)
