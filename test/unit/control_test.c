// SPDX-License-Identifier: Apache-2.0
/*
 * The control socket without CUDA: the engine is a pair of fakes, and each promise is kept in a process of its own, as
 * a process has one socket for its life. Every process has new empty folders for XDG_RUNTIME_DIR and for /tmp.
 */
#include "shim/lifecycle/lifecycle.h"
#include "test/test.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "test/unit/control_help.h"

/* ---- requests ---- */

static void answers_each_request(void)
{
	control_start();
	CHECK(says("status\n", "ok 0 running\n"));
	CHECK(says("suspend\n", "ok 1000\n") && says("status\n", "ok 1000 suspended\n"));
	fake_bytes = 0;
	CHECK(says("suspend\n", "ok 0\n") && says("status\n", "ok 1000 suspended\n"));
	fake_bytes = 1000;
	CHECK(says("resume\n", "ok 1000\n") && says("status\n", "ok 0 running\n"));
	CHECK(control_suspend(NULL, NULL) == SW_OK && says("status\n", "ok 1000 suspended\n"));
	CHECK(control_resume(NULL) == SW_OK && says("status\n", "ok 0 running\n"));
	/*
	 * Whose turn it is not waits, and goes on when it is, not when it is resumed: the engines know which of them
	 * wait for that, and the answer is that of the suspension.
	 */
	atomic_store(&fake_away, true);
	CHECK(says("status\n", "ok 0 waiting\n"));
	CHECK(says("suspend\n", "ok 1000\n") && says("status\n", "ok 1000 suspended\n"));
	int calls = fake_calls;
	fake_status = SW_BUSY;
	CHECK(says("resume\n", "ok 1000\n") && says("status\n", "ok 0 waiting\n") && fake_calls == calls + 1);
	fake_status = SW_OK;
	atomic_store(&fake_away, false);
}

static void says_why_not(void)
{
	static const enum sw_status all[] = {SW_NO_MEMORY, SW_NOT_SUPPORTED, SW_BUSY, SW_DRIVER};
	static const char *const words[] = {"host.budget", "spill.mode", "no safe point", "driver"};

	control_start();
	for (int i = 0; i < 4; i++) {
		char reply[256];

		fake_status = all[i];
		ask("suspend\n", 8, reply);
		CHECK(!strncmp(reply, "error ", 6) && strstr(reply, words[i]) && strchr(reply, '\n'));
		CHECK(says("status\n", "ok 0 running\n"));
	}
}

static void answers_in_the_version_that_is_asked(void)
{
	static const char *const bad[] = {
	    "suspend version=\n",   "suspend version=x\n",           "suspend version=0\n",  "suspend version=1 \n",
	    "suspend version=-1\n", "suspend version=1 version=1\n", "suspend  version=1\n", " version=1\n"};
	char reply[256];

	control_start();
	CHECK(says("status version=1\n", "ok 0 running version=1\n"));
	/* A newer tool. */
	ask("suspend version=2\n", 18, reply);
	CHECK(!strncmp(reply, "error ", 6) && strstr(reply, "version 2") && strstr(reply, "older Spillway") &&
	      strstr(reply, "version 1: use the older spillway\n"));
	ask("suspend version=99999999999999999999\n", 37, reply);
	CHECK(!strncmp(reply, "error ", 6) && strstr(reply, "use the older spillway\n"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ask(bad[i], strlen(bad[i]), reply);
		CHECK(!strncmp(reply, "error unknown request", 21));
	}
	CHECK(says("status\n", "ok 0 running\n"));
	CHECK(says("suspend version=1\n", "ok 1000 version=1\n"));
}

static void refuses_what_is_no_request(void)
{
	static const struct {
		const char *text;
		size_t bytes;
	} bad[] = {{"suspend", 7},    {"suspend\nsuspend\n", 16}, {"sus\0pend\n", 9}, {"\n", 1},
		   {"SUSPEND\n", 8},  {" suspend\n", 9},          {"suspend \n", 9},  {"%s%n\n", 5},
		   {"suspend\r\n", 9}};
	static char large[100000];
	char reply[256];

	control_start();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ask(bad[i].text, bad[i].bytes, reply);
		CHECK(!strncmp(reply, "error ", 6));
	}
	memset(large, 'a', sizeof(large));
	for (size_t bytes = 60; bytes < 70; bytes++) {
		large[bytes - 1] = '\n';
		ask(large, bytes, reply);
		CHECK(!strncmp(reply, "error ", 6));
		large[bytes - 1] = 'a';
	}
	large[sizeof(large) - 1] = '\n';
	ask(large, sizeof(large), reply);
	CHECK(!strncmp(reply, "error ", 6));
	CHECK(fake_calls == 0 && says("status\n", "ok 0 running\n"));
}

static void is_patient_and_not_for_ever(void)
{
	char reply[256];

	control_start();
	int silent = caller(), several = caller(), gone = caller();
	CHECK(send(several, "status\n", 7, 0) == 7 && send(several, "status\n", 7, 0) == 7);
	CHECK(send(gone, "suspend\n", 8, 0) == 8);
	close(gone); /* its reply meets nobody: no SIGPIPE */
	CHECK(says("status\n", "ok 1000 suspended\n"));
	CHECK(receive(several, reply) && !strcmp(reply, "ok 0 running\n"));
	CHECK(!receive(silent, reply)); /* the end, without a word */
}

TEST(each_request_has_its_answer)
{
	IN_CHILD(answers_each_request);
	IN_CHILD(says_why_not);
	IN_CHILD(refuses_what_is_no_request);
	IN_CHILD(answers_in_the_version_that_is_asked);
	IN_CHILD(is_patient_and_not_for_ever);
}

/* ---- who may ask ---- */

static void serves_a_stranger(void)
{
	int ready[2], end[2];
	char byte = 0, reply[256] = "";

	CHECK(chown(runtime, STRANGER, STRANGER) == 0 && pipe(ready) == 0 && pipe(end) == 0);
	pid_t pid = fork();
	if (!pid) {
		close(end[1]);
		CHECK(setgid(STRANGER) == 0 && setuid(STRANGER) == 0);
		control_start();
		CHECK(says("status\n", "ok 0 running\n"));
		CHECK(write(ready[1], &byte, 1) == 1 && read(end[0], &byte, 1) == 0);
		control_stop();
		_exit(fake_calls);
	}
	close(ready[1]);
	CHECK(read(ready[0], &byte, 1) == 1);
	/* We are root, who can reach any socket. */
	CHECK(seteuid(STRANGER) == 0);
	struct user_dir folder;
	CHECK(user_dir_open_xdg(runtime, &folder) == 0 && seteuid(0) == 0);
	ask_in(&folder, "suspend\n", 8, reply);
	CHECK(strstr(reply, "error only the user"));
	close(end[1]);
	CHECK(ended(pid) == 0);
}

TEST(another_user_and_be_it_root_is_refused)
{
	if (geteuid() != 0)
		skip();
	IN_CHILD(serves_a_stranger);
}

TEST_IN_CHILD(folder_and_socket_are_closed_to_others)
{
	struct user_dir folder;
	struct stat status;
	char name[NAME_MAX + 1];

	umask(0);
	control_start();
	CHECK(user_dir_open_xdg(runtime, &folder) == 0);
	CHECK(fstat(folder.fd, &status) == 0 && (status.st_mode & 07777) == 0700);
	CHECK(socket_name(&folder, name) && fstatat(folder.fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0);
	CHECK(S_ISSOCK(status.st_mode) && (status.st_mode & 07777) == 0600);
	CHECK(says("status\n", "ok 0 running\n"));
}

/* ---- one process ---- */

static void leaves_nothing(void)
{
	int before = n_descriptors();

	control_start();
	control_start();
	CHECK(n_threads_of_ours() == 1 && signals_are_blocked());
	int during = n_descriptors();
	CHECK(all_close_on_exec(before));
	for (int i = 0; i < 300; i++)
		CHECK(says("status\n", "ok 0 running\n"));
	/* The caller hears the end before the thread has closed its own descriptor. */
	for (int i = 0; i < 1000 && n_descriptors() != during; i++)
		usleep(1000);
	CHECK(n_descriptors() == during);
	control_stop();
	control_stop();
	CHECK(n_threads_of_ours() == 0 && n_descriptors() == before && n_entries(runtime) == 0);
	control_start();
	CHECK(n_threads_of_ours() == 0 && n_entries(runtime) == 0);
}

static void never_uses_it(void)
{
	CHECK(n_threads_of_ours() == 0);
	control_child();
	control_stop();
	CHECK(n_threads_of_ours() == 0 && n_entries(runtime) == 0 && n_entries(fallback) == 0);
}

static void may_not_use_it(void)
{
	fake_policy("control=no");
	control_start();
	never_uses_it();
}

TEST(a_process_has_one_thread_and_leaves_no_file_and_no_descriptor)
{
	IN_CHILD(leaves_nothing);
	IN_CHILD(never_uses_it);
	IN_CHILD(may_not_use_it);
}

static void ends_in_mid_request(void)
{
	control_start();
	atomic_store(&fake_hold, true);
	int fd = caller();
	CHECK(send(fd, "suspend\n", 8, 0) == 8);
	UNTIL(atomic_load(&fake_calls));
	long before = now_ms();
	control_stop();
	CHECK(now_ms() - before < 1000 && n_sockets(runtime) == 0);
	atomic_store(&fake_hold, false);
}

static void ends_with_a_silent_caller(void)
{
	control_start();
	caller();
	CHECK(says("status\n", "ok 0 running\n"));
	int silent = caller();
	usleep(20000); /* whether it is being waited for by now or not, the end comes at once */
	long before = now_ms();
	control_stop();
	CHECK(now_ms() - before < 900 && n_threads_of_ours() == 0);
	close(silent);
}

TEST(the_end_of_a_process_is_not_held_up)
{
	IN_CHILD(ends_in_mid_request);
	IN_CHILD(ends_with_a_silent_caller);
}

static void forks(void)
{
	int before = n_descriptors();

	control_start();
	pid_t pid = fork();
	if (!pid) {
		control_child();
		CHECK(n_descriptors() == before);
		control_start();
		control_stop();
		CHECK(n_descriptors() == before && n_sockets(runtime) == 1);
		_exit(0);
	}
	CHECK(ended(pid) == 0 && says("status\n", "ok 0 running\n"));
	/* One that was not made by the C library's fork(). */
	pid = fork();
	if (!pid) {
		control_stop();
		_exit(n_sockets(runtime) != 1);
	}
	CHECK(ended(pid) == 0 && says("status\n", "ok 0 running\n"));
}

static void forks_with_a_caller(void)
{
	char reply[256];
	int end[2];

	control_start();
	atomic_store(&fake_hold, true);
	int fd = caller();
	CHECK(send(fd, "suspend\n", 8, 0) == 8 && pipe(end) == 0);
	UNTIL(atomic_load(&fake_calls));
	pid_t pid = fork();
	if (!pid) {
		close(fd);
		close(end[1]);
		CHECK(read(end[0], reply, 1) == 0); /* holds what it inherited until the parent is done */
		_exit(0);
	}
	atomic_store(&fake_hold, false);
	CHECK(receive(fd, reply) && !strcmp(reply, "ok 1000\n") && !receive(fd, reply));
	close(end[1]);
	CHECK(ended(pid) == 0);
}

/* ---- the program's own doings ---- */

static void close_all(void)
{
	for (int fd = 3; fd < 64; fd++)
		close(fd);
}

/* Waits until the socket of that name gives that reply. Who asks at the old one hears the end. */
static bool comes_back(const char *name, const char *request, const char *reply)
{
	char got[256] = "";

	for (int ms = 0; ms < WAIT_MS && !got[0]; ms++, usleep(1000)) {
		struct user_dir folder;

		CHECK(user_dir_open_xdg(runtime, &folder) == 0);
		int fd = user_dir_connect(&folder, name, 0);
		if (fd >= 0 && send(fd, request, strlen(request), MSG_NOSIGNAL) > 0)
			receive(fd, got);
		if (fd >= 0)
			close(fd);
		user_dir_close(&folder, false);
	}
	return !strcmp(got, reply);
}

static void closes_everything(void)
{
	struct user_dir folder;
	char name[NAME_MAX + 1];
	struct stat status;
	int mine[16];

	control_start();
	CHECK(says("suspend\n", "ok 1000\n"));
	open_runtime(&folder, name);
	close_all();
	close(STDIN_FILENO);
	for (int i = 0; i < 16; i++)
		mine[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(mine[0]);
	CHECK(comes_back(name, "resume\n", "ok 1000\n") && says("status\n", "ok 0 running\n"));
	CHECK(mine[0] == STDIN_FILENO && fcntl(mine[0], F_GETFD) < 0);
	for (int i = 1; i < 16; i++)
		CHECK(fstat(mine[i], &status) == 0 && S_ISCHR(status.st_mode));
	control_stop();
	for (int i = 1; i < 16; i++)
		CHECK(fstat(mine[i], &status) == 0 && S_ISCHR(status.st_mode));
	CHECK(n_threads_of_ours() == 0 && n_entries(runtime) == 0);
}

static bool state_is(const char *state)
{
	char reply[CONTROL_MOST_REPLY];

	control_request("status", reply);
	return !strcmp(reply, state);
}

static void await_ticks(int n)
{
	int until = fake_ticks + n;

	for (long end = now_ms() + WAIT_MS; fake_ticks < until && now_ms() < end;)
		usleep(10000);
	CHECK(fake_ticks >= until);
}

/* A folder takes the place of its socket. */
static void cannot_listen_again(void)
{
	struct user_dir folder;
	char name[NAME_MAX + 1];

	control_start();
	CHECK(says("suspend\n", "ok 1000\n"));
	open_runtime(&folder, name);
	CHECK(unlinkat(folder.fd, name, 0) == 0 && mkdirat(folder.fd, name, S_IRWXU) == 0);
	close_all();
	await_ticks(2);
	CHECK(state_is("ok 0 running") && fake_calls == 2);
	/* What the program has suspended itself it can resume. */
	CHECK(control_suspend(NULL, NULL) == SW_OK);
	await_ticks(2);
	CHECK(state_is("ok 1000 suspended") && fake_calls == 3);
	CHECK(user_dir_open_xdg(runtime, &folder) == 0 && unlinkat(folder.fd, name, AT_REMOVEDIR) == 0);
	CHECK(comes_back(name, "resume\n", "ok 1000\n"));
}

static void has_no_descriptor_left(void)
{
	struct rlimit limit = {64, 64};
	char reply[256];
	int n = 0, last = -1, fd;

	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	control_start();
	int waiting = caller();
	CHECK(send(waiting, "status\n", 7, 0) == 7 && receive(waiting, reply));
	close(waiting);
	waiting = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct user_dir folder;
	char name[NAME_MAX + 1];
	open_runtime(&folder, name);
	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
		last = fd;
		n++;
	}
	CHECK(errno == EMFILE && n > 0);
	connect_with(waiting, &folder, name);
	CHECK(send(waiting, "status\n", 7, 0) == 7);
	struct timespec before, after;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	usleep(300000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 100);
	close(last);
	CHECK(receive(waiting, reply) && !strcmp(reply, "ok 0 running\n"));
}

static void *start_and_say(void *unused)
{
	control_start();
	return unused;
}

static void starts_everywhere_and_stops(void)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, start_and_say, NULL);
	control_stop();
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	/* Where the machine stalls, a stop does not wait for the end of the thread, and the folder stays. */
	for (int i = 0; i < 1000 && n_threads_of_ours(); i++)
		usleep(10000);
	CHECK(n_threads_of_ours() == 0 && n_sockets(runtime) == 0);
}

/* Somebody asks all the time. */
TEST_IN_CHILD(ticks_come_beside_callers)
{
	control_start();
	for (long end = now_ms() + WAIT_MS; fake_ticks < 2 && now_ms() < end;)
		CHECK(says("status\n", "ok 0 running\n"));
	CHECK(fake_ticks >= 2);
}

static void ticks_still_come(void)
{
	int before = fake_ticks;

	usleep(1500000); /* one a second */
	_exit(fake_ticks != before);
}

/* They give memory back, and the driver may not be called while it is taken down. */
TEST_IN_CHILD(no_tick_comes_when_the_program_has_begun_to_end)
{
	CHECK(atexit(ticks_still_come) == 0); /* as the driver's, which was there first */
	control_start();
	for (long end = now_ms() + WAIT_MS; !fake_ticks && now_ms() < end;)
		usleep(10000);
	CHECK(fake_ticks);
	exit(0);
}

TEST(the_child_of_a_fork_lets_its_parents_socket_be)
{
	IN_CHILD(forks);
	IN_CHILD(forks_with_a_caller);
}

TEST(what_the_program_does_with_descriptors_and_threads_is_survived)
{
#ifndef __SANITIZE_THREAD__ /* it calls the program's close() a race with our fstat(), which it is */
	IN_CHILD(closes_everything);
	IN_CHILD(cannot_listen_again);
#else
#endif
	IN_CHILD(has_no_descriptor_left);
	for (int i = 0; i < 50; i++)
		IN_CHILD(starts_everywhere_and_stops);
}
