// SPDX-License-Identifier: Apache-2.0
/*
 * A program that is linked to the driver, and ends as its argument says: by exit(), by _exit(), by a signal, or as
 * another program. "fork": a child that asks for a function, too.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *end = argc > 1 ? argv[1] : "exit";
	CUcontext context;
	CUdeviceptr block;

	if (strcmp(end, "fork") == 0) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
		waitpid(pid, NULL, 0);
	}
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
	    cuMemAlloc_v2(&block, 4096) || cuMemFree_v2(block))
		return 1;
	if (strcmp(end, "_exit") == 0)
		_exit(0);
	if (strcmp(end, "signal") == 0)
		raise(SIGKILL);
	if (strcmp(end, "exec") == 0)
		execlp("true", "true", (char *)NULL);
	return strcmp(end, "seven") == 0 ? 7 : 0;
}
