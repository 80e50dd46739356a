/*
 * A process with a control socket, a fake engine behind it, for control_tool_test.sh: says that it is ready, ends when
 * its standard input does. Arguments: "no" an engine that refuses, "slow" one that takes until
 * a byte comes on standard input.
 */
#include "shim/lifecycle/control_request.h"
#include "test/unit/control_help.h"

#include <string.h>

int main(int argc, char **argv)
{
	char byte;

	if (argc > 1 && !strcmp(argv[1], "no"))
		fake_status = SW_BUSY;
	fake_hold = argc > 1 && !strcmp(argv[1], "slow");
	fake_bytes = 3 << 20;
	control_start();
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		fake_hold = false;
	control_stop();
	return 0;
}
