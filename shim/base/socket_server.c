// SPDX-License-Identifier: Apache-2.0
/*
 * The socket of a server and its thread.
 *
 * One caller is served at a time, then the connection ends; the others wait in the kernel's queue. Callers that gave up
 * stay in it until the thread comes to them, so it is as long as the system allows. Only the owner gets an answer: the
 * modes of the folder and of the socket exclude other users already, and SO_PEERCRED is a second check. Root counts as
 * another user, since `sudo -u OWNER spillway ...` works without a second rule here.
 *
 * Programs that become daemons close every descriptor they find, also the library's, and may reuse the number. So each
 * descriptor is identified by its inode, too, and one that has become another file is neither used nor closed.
 *
 * If the socket was removed, or the program has closed it, the thread replaces the listener and the folder by new ones,
 * under the same descriptor numbers where these are still its own. A concurrent stop that has just read such a number
 * shuts the new listener down. A stop that reads before the new number and inode are stored does nothing, but has set
 * OVER before, which the thread sees afterwards.
 *
 * States: NONE -> STARTING -> SERVING -> OVER. The thread that ends SERVING takes the server apart. A stop during
 * STARTING only sets OVER; the starting thread finds that when it is done, and takes the server apart. A child of a
 * fork starts as OVER or NONE, never in the parent's state.
 */
#include "shim/base/socket_server.h"
#include "shim/base/clock.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	STOP_MS = 100,  /* longest delay of the program's exit */
	PAUSE_MS = 200, /* delay before accept() is tried again if the process has no descriptor or memory left */
	TICK_MS = 1000,
	TRIES = 4,             /* another process that exits may remove the folder between two steps */
	STACK_BYTES = 1 << 20, /* driver calls are made on this thread; only touched pages use memory */
};

enum { NONE, STARTING, SERVING, OVER };

/* ---- descriptors ---- */

static void socket_server_hold(struct socket_server_held *held, int fd)
{
	struct stat status;

	if (fstat(fd, &status) == 0)
		atomic_store(&held->inode, status.st_ino);
	atomic_store(&held->fd_and_1, fd + 1);
}

/* Returns the descriptor, or -1 if its number refers to another file by now. Async-signal-safe. */
static int socket_server_still(struct socket_server_held *held)
{
	int fd = atomic_load(&held->fd_and_1) - 1;
	struct stat status;

	if (fd < 0 || fstat(fd, &status) != 0 || status.st_ino != atomic_load(&held->inode))
		return -1;
	return S_ISSOCK(status.st_mode) || S_ISDIR(status.st_mode) ? fd : -1;
}

static void let_go(struct socket_server_held *held)
{
	int fd = socket_server_still(held);

	atomic_store(&held->fd_and_1, 0);
	if (fd >= 0)
		close(fd);
}

/* ---- one caller ---- */

static bool is_over(struct socket_server *server)
{
	return atomic_load(&server->state) == OVER;
}

static long now_ms(void)
{
	return (long)(clock_now() / 1000000);
}

bool socket_server_wait(struct socket_server *server, int fd, int wait_ms)
{
	struct pollfd both[2] = {{.fd = fd, .events = POLLIN}, {.fd = atomic_load(&server->listener.fd_and_1) - 1}};
	long end = now_ms() + wait_ms;

	for (;;) {
		long left = end - now_ms();
		int n = poll(both, 2, left > 0 ? (int)left : 0);

		if (is_over(server) || n == 0 || (n < 0 && errno != EINTR))
			return false;
		if (n > 0 && both[0].revents)
			return true;
		if (n > 0) /* the listener was closed for another reason: do not spin */
			return false;
	}
}

bool socket_server_peer_is_owner(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && bytes == sizeof(peer) &&
	       peer.uid == geteuid();
}

/* ---- replacing a socket ---- */

static const char *socket_server_why(int error)
{
	return error == -EPERM ? "the folder for it (spillway in XDG_RUNTIME_DIR, or spillway-UID in /tmp) is a link, "
				 "another user's or open to others"
			       : strerror(-error);
}

/* Notes the path and the inode of the socket. If the path is not known, a removed socket is not replaced. */
static void note_path(struct socket_server *server)
{
	struct stat status;

	server->path[0] = 0;
	if (fstatat(server->folder.fd, server->name, &status, AT_SYMLINK_NOFOLLOW) != 0)
		return;
	server->device = status.st_dev;
	server->inode = status.st_ino;
	if (!user_dir_path_of(&server->folder, server->name, server->path, sizeof(server->path)))
		server->path[0] = 0;
}

/*
 * Moves fd to the held number, or if the program has closed that to a new one: never a standard descriptor, which a
 * program may have closed to open it anew. Returns the number, or -1.
 */
static int socket_server_replace(struct socket_server_held *held, int fd)
{
	int old = socket_server_still(held);
	int moved = old >= 0 ? dup3(fd, old, O_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

	close(fd);
	if (moved >= 0)
		socket_server_hold(held, moved);
	return moved;
}

/* Makes the socket again, under the same name. Returns 0 or a negative errno. Runs on the server's thread. */
static int make_again(struct socket_server *server)
{
	struct user_dir folder;
	int error = user_dir_make(&folder);

	if (error)
		return error;
	/* The name of a socket that was closed stays. */
	if (user_dir_leads_to(folder.fd, server->name, server->device, server->inode))
		unlinkat(folder.fd, server->name, 0);
	int fd = user_dir_listen(&folder, server->name, SOMAXCONN);
	if (fd < 0) { /* another socket has the name, or there is no space or descriptor */
		user_dir_close(&folder, false);
		return fd;
	}
	memcpy(server->folder.name, folder.name, sizeof(folder.name));
	fd = socket_server_replace(&server->listener, fd);
	server->folder.fd = socket_server_replace(&server->place, folder.fd);
	if (fd < 0 || server->folder.fd < 0)
		return -EMFILE;
	note_path(server);
	return 0;
}

/* Replaces a socket that was removed. The thread tries again a second later if it fails. */
static void find_again(struct socket_server *server)
{
	if (server->path[0] && !user_dir_leads_to(AT_FDCWD, server->path, server->device, server->inode) &&
	    socket_server_still(&server->listener) >= 0 && make_again(server) == 0 && user_dir_is_first_loss())
		log_line(USER_DIR_LOSS);
}

/* Replaces a socket that cannot be waited for: the program has closed it. Returns false if that fails. */
static bool open_again(struct socket_server *server)
{
	int error = make_again(server);

	if (!error)
		return true;
	log_once("the program closed our socket, and no other can be made (%s): %s process %d any more",
		 socket_server_why(error), server->cannot, (int)getpid());
	if (server->cut_off && !is_over(server))
		server->cut_off();
	return false;
}

/* ---- the thread ---- */

static long look_due(const struct socket_server *server)
{
	return server->looked + (server->look_ms ? (long)server->look_ms : TICK_MS);
}

/* Returns after how many ms there is something to do; 0: now. */
static int until_due(const struct socket_server *server)
{
	long due = server->ticked + TICK_MS;

	due = (server->look && look_due(server) < due ? look_due(server) : due) - now_ms();
	return due > 0 ? (int)due : 0;
}

/* Looks and ticks if it is time. Returns whether it ticked. */
static bool do_what_is_due(struct socket_server *server)
{
	if (server->look && now_ms() >= look_due(server)) {
		server->look_ms = server->look();
		server->looked = now_ms();
	}
	if (is_over(server) || now_ms() - server->ticked < TICK_MS)
		return false;
	if (server->tick)
		server->tick();
	find_again(server);
	server->ticked = now_ms();
	return true;
}

/* Serves the next caller. Returns false if the thread has no socket to wait for. */
static bool serve_next(struct socket_server *server)
{
	struct pollfd wait = {.fd = socket_server_still(&server->listener), .events = POLLIN};

	if (wait.fd < 0)
		return false;
	int n = poll(&wait, 1, until_due(server)), error = errno;
	/* The tick runs even if callers follow one another without a pause. */
	if (is_over(server) || do_what_is_due(server) || is_over(server))
		return true;
	if (n == 0 || (n < 0 && error == EINTR))
		return true;
	if (n < 0 || socket_server_still(&server->listener) < 0)
		return false;
	int fd = accept4(wait.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		socket_server_hold(&server->caller, fd);
		server->serve(server, fd);
		/*
		 * close() does not suffice: a child process may hold a copy, and the caller waits for the end of the
		 * connection.
		 */
		if (socket_server_still(&server->caller) >= 0)
			shutdown(fd, SHUT_RDWR);
		let_go(&server->caller);
		return true;
	}
	switch (errno) {
	case EINTR:
	case EAGAIN:
	case ECONNABORTED:
		return true;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		socket_server_wait(server, -1, PAUSE_MS);
		return true;
	default:
		return false;
	}
}

/*
 * There is no socket for a second, but what is looked at must go on: submissions may be waiting for what a look
 * decides. A stop cannot wake the thread; it waits STOP_MS for it.
 */
static void go_on_without(struct socket_server *server)
{
	for (long until = now_ms() + TICK_MS; !is_over(server) && now_ms() < until; do_what_is_due(server)) {
		int ms = until_due(server);

		ms = ms < STOP_MS / 2 ? ms : STOP_MS / 2;
		clock_sleep((uint64_t)ms * 1000000);
	}
}

static void *socket_server_serve(void *argument)
{
	struct socket_server *server = argument;

	prctl(PR_SET_NAME, server->thread_name);
	server->ticked = server->looked = now_ms();
	user_dir_sweep(&server->folder, server->tail);
	while (!is_over(server))
		if (!serve_next(server) && !open_again(server))
			go_on_without(server);
	return NULL;
}

/* ---- start and end ---- */

/* Makes a name that is also unique if processes of several PID namespaces share the folder, and after an exec(). */
static void make_name(struct socket_server *server)
{
	char identity[IDENTITY_TEXT];
	unsigned random;

	if (server->is_identified) {
		snprintf(server->name, sizeof(server->name), "%d-%s%s", (int)getpid(),
			 identity_text(identity_get(), identity), server->tail);
		return;
	}
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
		random = (unsigned)clock_wall();
	snprintf(server->name, sizeof(server->name), "%d-%08x%s", (int)getpid(), random, server->tail);
}

/* Returns 0 or a negative errno. */
static int open_socket(struct socket_server *server)
{
	int fd = -ENOENT;

	for (int i = 0; i < TRIES && (fd == -ENOENT || fd == -EADDRINUSE); i++) {
		int error = user_dir_make(&server->folder);

		if (error == -ENOENT)
			continue;
		if (error)
			return error;
		make_name(server);
		fd = user_dir_listen(&server->folder, server->name, SOMAXCONN);
		if (fd < 0)
			user_dir_close(&server->folder, true);
	}
	if (fd < 0)
		return fd;
	server->owner = getpid();
	socket_server_hold(&server->place, server->folder.fd);
	socket_server_hold(&server->listener, fd);
	note_path(server);
	return 0;
}

static void close_socket(struct socket_server *server)
{
	if (socket_server_still(&server->place) >= 0) {
		unlinkat(server->folder.fd, server->name, 0);
		user_dir_close(&server->folder, true);
	}
	atomic_store(&server->place.fd_and_1, 0);
	let_go(&server->listener);
}

/*
 * Waits for the thread, STOP_MS at most. Returns false if it still runs. Does not use pthread_timedjoin_np(), whose
 * clock may be set back, nor pthread_clockjoin_np(), which ThreadSanitizer of gcc 12 does not support.
 */
static bool socket_server_join(struct socket_server *server)
{
	long end = now_ms() + STOP_MS;

	while (pthread_tryjoin_np(server->thread, NULL) != 0) {
		if (now_ms() >= end)
			return false;
		clock_sleep(200000);
	}
	return true;
}

/* The caller must have set the state to OVER. */
static void take_apart(struct socket_server *server)
{
	int fd = socket_server_still(&server->listener), folder = socket_server_still(&server->place);

	/* Remove the name first, so that no new caller connects while the thread ends. */
	if (folder >= 0)
		unlinkat(folder, server->name, 0);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	if (socket_server_join(server))
		close_socket(server);
	else /* a request is being served; the descriptors are closed when the process ends */
		pthread_detach(server->thread);
}

static void socket_server_start_thread(struct socket_server *server)
{
	int starting = STARTING, error = open_socket(server);

	if (!error) {
		error = -thread_start(socket_server_serve, server, STACK_BYTES, true, &server->thread);
		if (error)
			close_socket(server);
	}
	if (error) {
		log_once("no socket, so that %s process %d: %s", server->cannot, (int)getpid(),
			 socket_server_why(error));
		atomic_store(&server->state, OVER);
	} else if (!atomic_compare_exchange_strong(&server->state, &starting, SERVING)) {
		take_apart(server);
	}
}

bool socket_server_start(struct socket_server *server)
{
	int saved = errno, none = NONE, cancel;

	if (!atomic_compare_exchange_strong(&server->state, &none, STARTING))
		return none == SERVING;
	/* A cancellation of the thread here would leave a socket without a server. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	socket_server_start_thread(server);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return atomic_load(&server->state) == SERVING;
}

const char *socket_server_name(struct socket_server *server)
{
	return atomic_load(&server->state) == SERVING ? server->name : NULL;
}

void socket_server_stop(struct socket_server *server)
{
	int saved = errno;

	/* A child process not created by fork() has the parent's state, but neither its thread nor its socket. */
	if (atomic_load(&server->state) != SERVING || server->owner == getpid()) {
		if (atomic_exchange(&server->state, OVER) == SERVING)
			take_apart(server);
	}
	errno = saved;
}

void socket_server_child(struct socket_server *server)
{
	int saved = errno;

	if (atomic_load(&server->state) != NONE) {
		atomic_store(&server->state, OVER);
		let_go(&server->caller);
		let_go(&server->listener);
		let_go(&server->place);
	}
	errno = saved;
}
