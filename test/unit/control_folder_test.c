// SPDX-License-Identifier: Apache-2.0
/*
 * Where the control socket lies: which folder is taken, which is refused, and what dead processes left in it. Each
 * promise is kept in a process of its own, with new empty folders for XDG_RUNTIME_DIR and for /tmp.
 */
#include "shim/serve/control.h"
#include "test/test.h"

#include <sys/stat.h>

#include "test/unit/control_help.h"

/* ---- the folder ---- */

static void uses_the_fallback(void)
{
	struct user_dir folder;

	control_start();
	CHECK(user_dir_open_xdg(runtime, &folder) != 0);
	CHECK(user_dir_open_tmp(fallback, &folder) == 0 && asked_in(&folder));
	control_stop();
	CHECK(n_entries(fallback) == 0);
}

static void has_no_runtime_dir(void)
{
	unsetenv("XDG_RUNTIME_DIR");
	uses_the_fallback();
}

static void has_a_relative_runtime_dir(void)
{
	CHECK(chdir(runtime) == 0 && mkdir("here", 0700) == 0);
	setenv("XDG_RUNTIME_DIR", "here", 1);
	uses_the_fallback();
}

static void has_a_lost_runtime_dir(void)
{
	CHECK(rmdir(runtime) == 0);
	uses_the_fallback();
}

static void has_an_open_runtime_dir(void)
{
	CHECK(chmod(runtime, 0755) == 0);
	uses_the_fallback();
}

static void has_a_link_for_runtime_dir(void)
{
	char moved[sizeof(runtime) + 8];

	snprintf(moved, sizeof(moved), "%s.real", runtime);
	CHECK(rename(runtime, moved) == 0 && symlink(moved, runtime) == 0);
	uses_the_fallback();
}

static void has_a_runtime_dir_of_another(void)
{
	CHECK(chown(runtime, STRANGER, STRANGER) == 0);
	uses_the_fallback();
}

/* As its last user does, in the moment between the making and the opening. */
TEST_IN_CHILD(a_folder_that_is_removed_meanwhile_is_made_again)
{
	char below[PATH_MAX];
	struct user_dir folder;
	bool found = true;

	snprintf(below, sizeof(below), "%s/spillway", runtime);
	pid_t remover = fork();
	if (!remover)
		for (;;)
			rmdir(below);
	for (unsigned i = 0; i < 20000 && found; i++) {
		found = user_dir_make(&folder) == 0 && !strcmp(folder.name, "spillway");
		user_dir_close(&folder, false);
	}
	kill(remover, SIGKILL);
	waitpid(remover, NULL, 0);
	CHECK(found);
}

TEST(without_a_fit_runtime_dir_the_fallback_is_used)
{
	IN_CHILD(has_no_runtime_dir);
	IN_CHILD(has_a_relative_runtime_dir);
	IN_CHILD(has_a_lost_runtime_dir);
	IN_CHILD(has_an_open_runtime_dir);
	IN_CHILD(has_a_link_for_runtime_dir);
	if (geteuid() == 0)
		IN_CHILD(has_a_runtime_dir_of_another);
}

/* Nothing is made in either folder, nothing but one line is said, and the process goes on. */
static void makes_nothing(void)
{
	control_start();
	CHECK(n_threads_of_ours() == 0 && n_sockets(runtime) == 0 && n_sockets(fallback) == 0);
	control_stop();
}

static char *folder_below(const char *parent, const char *format)
{
	static char path[128];
	char name[32];

	snprintf(name, sizeof(name), format, (unsigned)geteuid());
	snprintf(path, sizeof(path), "%s/%s", parent, name);
	return path;
}

static void finds_a_link(void)
{
	CHECK(symlink(fallback, folder_below(runtime, "spillway")) == 0);
	makes_nothing();
}

static void finds_a_link_in_tmp(void)
{
	unsetenv("XDG_RUNTIME_DIR");
	CHECK(symlink(runtime, folder_below(fallback, "spillway-%u")) == 0);
	makes_nothing();
}

static void finds_an_open_folder(void)
{
	char *path = folder_below(runtime, "spillway");

	CHECK(mkdir(path, 0700) == 0 && chmod(path, 0750) == 0);
	makes_nothing();
}

static void finds_an_open_folder_in_tmp(void)
{
	char *path = folder_below(fallback, "spillway-%u");

	unsetenv("XDG_RUNTIME_DIR");
	CHECK(mkdir(path, 0700) == 0 && chmod(path, 0777) == 0);
	makes_nothing();
}

static void finds_a_file(void)
{
	close(open(folder_below(runtime, "spillway"), O_CREAT | O_WRONLY, 0600));
	makes_nothing();
}

static void finds_the_folder_of_another(void)
{
	char *path = folder_below(fallback, "spillway-%u");

	unsetenv("XDG_RUNTIME_DIR");
	CHECK(mkdir(path, 0700) == 0 && chown(path, STRANGER, STRANGER) == 0);
	makes_nothing();
}

TEST(a_folder_that_is_not_ours_alone_is_refused)
{
	IN_CHILD(finds_a_link);
	IN_CHILD(finds_a_link_in_tmp);
	IN_CHILD(finds_an_open_folder);
	IN_CHILD(finds_an_open_folder_in_tmp);
	IN_CHILD(finds_a_file);
	if (geteuid() == 0)
		IN_CHILD(finds_the_folder_of_another);
}

TEST_IN_CHILD(a_path_longer_than_a_socket_address_is_no_matter)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", runtime);
	for (int i = 0; i < 8; i++) {
		size_t length = strlen(path);

		path[length] = '/';
		memset(path + length + 1, 'd', 200);
		path[length + 201] = 0;
		CHECK(mkdir(path, 0700) == 0);
	}
	setenv("XDG_RUNTIME_DIR", path, 1);
	control_start();
	CHECK(says("status\n", "ok 0 running\n"));
	control_stop();
	CHECK(n_entries(path) == 0);
}

/* ---- what others left ---- */

TEST_IN_CHILD(the_socket_of_a_dead_process_is_removed_by_the_next)
{
	struct user_dir folder;

	CHECK(user_dir_make(&folder) == 0);
	int live = user_dir_listen(&folder, "1-live.ctl", 1), dead = user_dir_listen(&folder, "2-dead.ctl", 1);
	int fresh = user_dir_listen(&folder, "3-fresh.ctl", 1), full = user_dir_listen(&folder, "4-full.ctl", 0);
	CHECK(live >= 0 && dead >= 0 && fresh >= 0 && full >= 0);
	while (user_dir_connect(&folder, "4-full.ctl", 0) >= 0)
		;
	close(dead);
	close(fresh);
	close(openat(folder.fd, "5-file.ctl", O_CREAT | O_WRONLY, 0600));
	CHECK(symlinkat("2-dead.ctl", folder.fd, "6-link.ctl") == 0);
	make_old(&folder, "1-live.ctl");
	make_old(&folder, "2-dead.ctl");
	make_old(&folder, "4-full.ctl");
	make_old(&folder, "5-file.ctl");
	control_start();
	CHECK(says("status\n", "ok 0 running\n")); /* the thread looks round before it serves */
	CHECK(faccessat(folder.fd, "1-live.ctl", F_OK, 0) == 0);
	CHECK(faccessat(folder.fd, "2-dead.ctl", F_OK, 0) != 0);
	CHECK(faccessat(folder.fd, "3-fresh.ctl", F_OK, 0) == 0);
	CHECK(faccessat(folder.fd, "4-full.ctl", F_OK, 0) == 0);
	CHECK(faccessat(folder.fd, "5-file.ctl", F_OK, 0) == 0);
	CHECK(faccessat(folder.fd, "6-link.ctl", F_OK, AT_SYMLINK_NOFOLLOW) == 0);
}

/* ---- a folder that is removed under a process ---- */

/* Waits for a socket of this process below a value of XDG_RUNTIME_DIR, or else in /tmp, and for its answer. */
static bool is_found_again(bool in_fallback)
{
	for (int i = 0; i < 20000; i++, usleep(1000)) {
		struct user_dir folder;
		char name[NAME_MAX + 1];

		if ((in_fallback ? user_dir_open_tmp(fallback, &folder) : user_dir_open_xdg(runtime, &folder)) != 0)
			continue;
		bool found = socket_name(&folder, name) && asked_in(&folder);
		user_dir_close(&folder, false);
		if (found)
			return true;
	}
	return false;
}

static void remove_folder(void)
{
	struct user_dir folder;
	char name[NAME_MAX + 1];

	CHECK(user_dir_open_xdg(runtime, &folder) == 0);
	CHECK(socket_name(&folder, name) && unlinkat(folder.fd, name, 0) == 0);
	user_dir_close(&folder, true);
	CHECK(n_entries(runtime) == 0);
}

static void lost_its_folder(void)
{
	int before = n_descriptors();

	control_start();
	int during = n_descriptors();
	for (int i = 0; i < 2; i++) {
		remove_folder();
		CHECK(is_found_again(false));
	}
	for (int i = 0; i < 1000 && n_descriptors() != during; i++)
		usleep(1000);
	CHECK(n_descriptors() == during && all_close_on_exec(before));
	control_stop();
	CHECK(n_threads_of_ours() == 0 && n_descriptors() == before && n_entries(runtime) == 0);
}

/* As a log-out does it: the folder of the user's session goes as well. */
static void lost_its_session(void)
{
	control_start();
	remove_folder();
	CHECK(rmdir(runtime) == 0);
	CHECK(is_found_again(true));
	control_stop();
	CHECK(n_entries(fallback) == 0 && mkdir(runtime, S_IRWXU) == 0);
}

/* By a cleaner of old files: the folder stays. */
static void lost_its_socket(void)
{
	struct user_dir folder;
	char name[NAME_MAX + 1];

	control_start();
	open_runtime(&folder, name);
	CHECK(unlinkat(folder.fd, name, 0) == 0);
	user_dir_close(&folder, false);
	CHECK(is_found_again(false));
	control_stop();
	CHECK(n_entries(runtime) == 0);
}

TEST(a_socket_that_was_removed_is_made_again)
{
	IN_CHILD(lost_its_folder);
	IN_CHILD(lost_its_session);
	IN_CHILD(lost_its_socket);
}
