/*
 * A process with a control socket, a fake engine behind it, for control_tool_test.sh: says that it is ready, ends when
 * its standard input does. Arguments: "no" an engine that refuses, "slow" one that takes five seconds.
 */
#include "shim/lifecycle/control_request.h"
#include "test/unit/control_help.h"

#include <pthread.h>
#include <string.h>

static void *let_go(void *unused)
{
	sleep(5);
	fake_hold = false;
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char byte;

	if (argc > 1 && !strcmp(argv[1], "no"))
		fake_status = SW_BUSY;
	if (argc > 1 && !strcmp(argv[1], "slow")) {
		fake_hold = true;
		CHECK(pthread_create(&thread, NULL, let_go, NULL) == 0);
	}
	fake_bytes = 3 << 20;
	control_start();
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	control_stop();
	return 0;
}
