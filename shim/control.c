/*
 * The control socket and its thread.
 *
 * One caller is served at a time: one packet in, one packet out (SOCK_SEQPACKET keeps them apart), then the connection
 * ends; a caller that says nothing is dropped after a second, a few wait in the kernel's queue. Only the owner is
 * answered: the folder and the socket keep others out already, SO_PEERCRED says it again. Root is one of the others:
 * `sudo -u OWNER spillway ...` does it without a second rule here.
 *
 * The descriptors live in somebody else's process. Programs that become daemons close every descriptor they find, and
 * the number is then some other file's. So each is known by its inode too, and a descriptor that is not ours any more is
 * neither used nor closed.
 *
 * States: NONE -> STARTING -> SERVING -> OVER. Whoever moves it out of SERVING takes it apart; a stop that finds
 * STARTING leaves that to the starter, who finds OVER when it is done. A child of a fork starts OVER or NONE, never with
 * the parent's.
 */
#include "shim/control.h"
#include "shim/log.h"
#include "shim/rundir.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	MOST_REQUEST = 64,     /* bytes of a request, its newline too; the longest has 8 */
	REQUEST_MS = 1000,     /* a caller that has connected says what it wants at once */
	STOP_MS = 100,         /* the end of a program is not held up longer */
	PAUSE_MS = 200,        /* before accept() is tried again when the process has no descriptor or memory left */
	BACKLOG = 4,           /* callers that wait while one is served; the next are told to come again */
	MOST_LEFT = 16,        /* packets of a caller that go unread */
	TRIES = 4,             /* the folder may be removed by the last other process that leaves, between our steps */
	STACK_BYTES = 1 << 20, /* the engine makes driver calls on this thread; only what is touched is memory */
};

enum { NONE, STARTING, SERVING, OVER };

struct held {
	_Atomic int fd;
	_Atomic ino_t inode;
};

static _Atomic int server_state;
static struct held listener = {.fd = -1}, caller = {.fd = -1}, place = {.fd = -1};
/* Written while STARTING, constant after it. */
static struct {
	pid_t owner;
	struct rundir folder;
	char name[48];
	pthread_t thread;
	control_answer *answer;
} server;

/* ---- descriptors ---- */

static void hold(struct held *held, int fd)
{
	struct stat status;

	if (fstat(fd, &status) == 0)
		atomic_store(&held->inode, status.st_ino);
	atomic_store(&held->fd, fd);
}

/* The descriptor, or -1 when the number is not ours any more. Async-signal-safe. */
static int still(struct held *held)
{
	int fd = atomic_load(&held->fd);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) != 0 || status.st_ino != atomic_load(&held->inode))
		return -1;
	return held == &place || S_ISSOCK(status.st_mode) ? fd : -1;
}

static void let_go(struct held *held)
{
	int fd = still(held);

	atomic_store(&held->fd, -1);
	if (fd >= 0)
		close(fd);
}

/* ---- one caller ---- */

static bool is_over(void)
{
	return atomic_load(&server_state) == OVER;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Wait until fd (-1: nothing) can be read, at most wait_ms. False: it cannot, or the process ends: control_stop() shuts
 * the listener down, which wakes whoever waits with it.
 */
static bool wait_for(int fd, int wait_ms)
{
	struct pollfd both[2] = {{.fd = fd, .events = POLLIN}, {.fd = atomic_load(&listener.fd)}};
	long end = now_ms() + wait_ms;

	for (;;) {
		long left = end - now_ms();
		int n = poll(both, 2, left > 0 ? (int)left : 0);

		if (is_over() || n == 0 || (n < 0 && errno != EINTR))
			return false;
		if (n > 0 && both[0].revents)
			return true;
		if (n > 0) /* the listener has gone for another reason: do not spin */
			return false;
	}
}

/* The caller's request as a text without its newline. False: none came. *ret_text NULL: it is not a line. */
static bool read_request(int fd, char buffer[MOST_REQUEST], const char **ret_text)
{
	*ret_text = NULL;
	if (!wait_for(fd, REQUEST_MS))
		return false;
	ssize_t bytes = recv(fd, buffer, MOST_REQUEST, MSG_TRUNC | MSG_DONTWAIT);
	if (bytes <= 0)
		return false;
	if (bytes <= MOST_REQUEST && memchr(buffer, '\n', (size_t)bytes) == buffer + bytes - 1 &&
	    !memchr(buffer, 0, (size_t)bytes)) {
		buffer[bytes - 1] = 0;
		*ret_text = buffer;
	}
	return true;
}

static bool is_owner(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && bytes == sizeof(peer) &&
	       peer.uid == geteuid();
}

/* Unread packets would turn our reply into "connection reset" on the other side. */
static void drain(int fd)
{
	char byte;

	shutdown(fd, SHUT_RD);
	for (int i = 0; i < MOST_LEFT && recv(fd, &byte, 1, MSG_DONTWAIT) > 0; i++)
		;
}

static void serve_caller(int fd)
{
	char buffer[MOST_REQUEST], reply[CONTROL_MOST_REPLY] = "";
	const char *request;

	/* It is read in any case, see drain(). Who says nothing gets nothing. */
	if (!read_request(fd, buffer, &request))
		return;
	if (!is_owner(fd))
		snprintf(reply, sizeof(reply), "error only the user whose process this is may ask");
	else if (!request)
		snprintf(reply, sizeof(reply), "error a request is one line of at most %d bytes", MOST_REQUEST);
	else
		server.answer(request, reply);
	drain(fd);
	size_t length = strnlen(reply, sizeof(reply) - 1);
	reply[length++] = '\n';
	/* A caller that has gone is no matter: what it asked for is done. */
	while (send(fd, reply, length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR)
		;
}

/* ---- the thread ---- */

/* Take the next caller. False: the thread has nothing more to wait for. */
static bool serve_next(void)
{
	struct pollfd wait = {.fd = atomic_load(&listener.fd), .events = POLLIN};
	int n = poll(&wait, 1, -1);

	if (is_over())
		return false;
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 || still(&listener) < 0) {
		log_once("the program closed our control socket: `spillway suspend` cannot reach process %d any more",
			 (int)getpid());
		return false;
	}
	int fd = accept4(atomic_load(&listener.fd), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		hold(&caller, fd);
		serve_caller(fd);
		/* Not by close() alone: a child of the program may hold a copy, and the caller waits for the end. */
		if (still(&caller) >= 0)
			shutdown(fd, SHUT_RDWR);
		let_go(&caller);
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
		wait_for(-1, PAUSE_MS);
		return true;
	default:
		return false;
	}
}

static void *serve(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "spillway-ctl");
	rundir_sweep(&server.folder);
	while (serve_next())
		;
	return NULL;
}

/* ---- start and end ---- */

/* Unique also where processes of several PID namespaces share the folder, and after exec of the same process. */
static void make_name(void)
{
	struct timespec now;
	unsigned random;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
		clock_gettime(CLOCK_REALTIME, &now);
		random = (unsigned)now.tv_nsec;
	}
	snprintf(server.name, sizeof(server.name), "%d-%08x" RUNDIR_SOCKET, (int)getpid(), random);
}

/* 0 or a negative errno. */
static int open_socket(void)
{
	int fd = -ENOENT;

	for (int i = 0; i < TRIES && (fd == -ENOENT || fd == -EADDRINUSE); i++) {
		int error = rundir_make(&server.folder);

		if (error == -ENOENT)
			continue;
		if (error)
			return error;
		make_name();
		fd = rundir_listen(&server.folder, server.name, BACKLOG);
		if (fd < 0)
			rundir_close(&server.folder, true);
	}
	if (fd < 0)
		return fd;
	server.owner = getpid();
	hold(&place, server.folder.fd);
	hold(&listener, fd);
	return 0;
}

static void close_socket(void)
{
	if (still(&place) >= 0) {
		unlinkat(server.folder.fd, server.name, 0);
		rundir_close(&server.folder, true);
	}
	atomic_store(&place.fd, -1);
	let_go(&listener);
}

/* 0 or an errno. The thread takes no signals: they are the program's. */
static int start_thread(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	int error = pthread_create(&server.thread, &attributes, serve, NULL);
	if (error == EINVAL) /* the thread-local memory of all libraries does not fit into such a stack */
		error = pthread_create(&server.thread, NULL, serve, NULL);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

/*
 * Wait for the thread, STOP_MS at most. Not by pthread_timedjoin_np(), whose clock may be set back, nor by
 * pthread_clockjoin_np(), which ThreadSanitizer of gcc 12 does not know.
 */
static bool join(void)
{
	const struct timespec step = {.tv_nsec = 200000};
	long end = now_ms() + STOP_MS;

	while (pthread_tryjoin_np(server.thread, NULL) != 0) {
		if (now_ms() >= end)
			return false;
		nanosleep(&step, NULL);
	}
	return true;
}

/* The state is OVER. */
static void take_apart(void)
{
	int fd = still(&listener);

	/* The name goes first: nobody new finds us while the thread ends. */
	if (still(&place) >= 0)
		unlinkat(server.folder.fd, server.name, 0);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	if (join())
		close_socket();
	else /* It is in the middle of a request; its descriptors go with the process. */
		pthread_detach(server.thread);
}

static void start(void)
{
	int starting = STARTING, error = open_socket();

	if (!error) {
		error = -start_thread();
		if (error)
			close_socket();
	}
	if (error) {
		log_once("no control socket, so that `spillway suspend` cannot reach process %d: %s", (int)getpid(),
			 error == -EPERM ? "the folder for it (spillway in XDG_RUNTIME_DIR, or spillway-UID in /tmp) "
					   "is a link, another user's or open to others"
					 : strerror(-error));
		atomic_store(&server_state, OVER);
	} else if (!atomic_compare_exchange_strong(&server_state, &starting, SERVING)) {
		take_apart();
	}
}

void control_serve(control_answer *answer)
{
	int saved = errno, none = NONE, cancel;

	if (!atomic_compare_exchange_strong(&server_state, &none, STARTING))
		return;
	server.answer = answer;
	/* A thread that is cancelled here would leave a socket without an owner. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	start();
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}

void control_stop(void)
{
	int saved = errno;

	/* A child made by other means than fork() has the parent's state, but neither its thread nor its socket. */
	if (atomic_load(&server_state) != SERVING || server.owner == getpid()) {
		if (atomic_exchange(&server_state, OVER) == SERVING)
			take_apart();
	}
	errno = saved;
}

void control_child(void)
{
	int saved = errno;

	if (atomic_load(&server_state) != NONE) {
		atomic_store(&server_state, OVER);
		let_go(&caller);
		let_go(&listener);
		let_go(&place);
	}
	errno = saved;
}
