// SPDX-License-Identifier: Apache-2.0
/*
 * control.c: the control socket: its packets. One packet in, one packet out (SOCK_SEQPACKET keeps them apart); a
 * caller that sends nothing is dropped after a second. socket_server.c has the rest.
 */
#include "shim/serve/control.h"
#include "shim/base/socket_server.h"
#include "shim/process/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
	MOST_REQUEST = 64, /* bytes of a request, with its newline; a setting has up to 48 */
	REQUEST_MS = 1000, /* a caller that has connected must send its request within this time */
	MOST_LEFT = 16,    /* packets of a caller that are drained unread */
};

static struct {
	control_answer *answer_with; /* set before the thread starts */
	struct socket_server server; /* control_give() sets its functions */
	_Atomic bool asked; /* whether the policy wants the socket has been looked at; the first caller sets it */
} control = {
    .server =
	{
	    .tail = USER_DIR_SOCKET,
	    .is_identified = true,
	    .thread_name = "spillway-ctl",
	    .cannot = "`spillway suspend` cannot reach",
	},
};

/*
 * Reads the caller's request, without its newline. Returns false if none came. *ret_text is NULL if it is not a line.
 */
static bool read_request(struct socket_server *server, int fd, char buffer[MOST_REQUEST], const char **ret_text)
{
	*ret_text = NULL;
	if (!socket_server_wait(server, fd, REQUEST_MS))
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

static void serve_caller(struct socket_server *server, int fd)
{
	char buffer[MOST_REQUEST], reply[CONTROL_MOST_REPLY] = "";
	const char *request;

	/* The request is read in any case, see below. A caller that sends nothing gets no reply. */
	if (!read_request(server, fd, buffer, &request))
		return;
	if (!socket_server_peer_is_owner(fd))
		snprintf(reply, sizeof(reply), "error only the user whose process this is may ask");
	else if (!request)
		snprintf(reply, sizeof(reply), "error a request is one line of at most %d bytes", MOST_REQUEST);
	else
		control.answer_with(request, reply);
	/* Unread packets would turn our reply into "connection reset" on the other side. */
	char byte;
	shutdown(fd, SHUT_RD);
	for (int i = 0; i < MOST_LEFT && recv(fd, &byte, 1, MSG_DONTWAIT) > 0; i++)
		;
	size_t length = strnlen(reply, sizeof(reply) - 1);
	reply[length++] = '\n';
	/* If the caller has gone, the failure is ignored: what it asked for is done. */
	while (send(fd, reply, length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR)
		;
}

void control_give(control_answer *answer, void (*tick)(void), unsigned (*look)(void), void (*cut_off)(void))
{
	control.answer_with = answer;
	control.server.serve = serve_caller;
	control.server.tick = tick;
	control.server.look = look;
	control.server.cut_off = cut_off;
}

void control_start(void)
{
	if (atomic_load_explicit(&control.asked, memory_order_relaxed) || atomic_exchange(&control.asked, true))
		return;
	if (!process_settings()->control)
		return;
	socket_server_start(&control.server);
	/* Runs before the driver's own handlers, which were registered earlier: ticks call the driver. */
	atexit(control_stop);
}

void control_stop(void)
{
	socket_server_stop(&control.server);
}

void control_child(void)
{
	socket_server_child(&control.server);
}
