// SPDX-License-Identifier: Apache-2.0
/*
 * A process with a control socket, a fake engine behind it, for control_tool_test.sh: says that it is ready, ends when
 * its standard input does. Arguments: "no" an engine that refuses, "slow" one that takes until a byte comes on standard
 * input; "full": no engine, but two sockets in the same folder that nobody serves, and whose queues are full.
 */
#include "shim/lifecycle/lifecycle.h"
#include "test/unit/control_help.h"

static void fill_two_queues(void)
{
	struct user_dir folder;
	char name[40];

	if (user_dir_make(&folder) != 0)
		abort();
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%d-full%d.ctl", (int)getpid(), i);
		if (user_dir_listen(&folder, name, 0) < 0)
			abort();
		while (user_dir_connect(&folder, name, 0) >= 0)
			;
	}
}

int main(int argc, char **argv)
{
	char byte;

	if (argc > 1 && !strcmp(argv[1], "full"))
		fill_two_queues();
	if (argc > 1 && !strcmp(argv[1], "no"))
		fake_status = SW_BUSY;
	fake_hold = argc > 1 && !strcmp(argv[1], "slow");
	fake_bytes = 3 << 20;
	if (argc < 2 || strcmp(argv[1], "full") != 0)
		control_start();
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		fake_hold = false;
	control_stop();
	return 0;
}
