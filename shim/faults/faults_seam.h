/*
 * faults_seam.h: the five system calls that read page faults, as a table, so that a substitute for the driver's device
 * can be put behind them. Plain C: the simulated GPU of the tests includes it.
 *
 * How the substitute is chosen: the library looks up FAULTS_SEAM in the libcuda.so.1 that the process has loaded.
 * NVIDIA's has no such symbol, the simulated one has. So everything above the table, from parsing the driver's version
 * to the search through /proc/self/fd and the self-test, is the same code on a real and on a simulated GPU, and the
 * faults of every program on the simulated GPU are counted without any setting. An environment variable is not used,
 * because nothing in the environment may point a process at another device file; a function for tests is not used,
 * because it would not reach whole programs. A user who can put another libcuda.so.1 into a process runs code in it
 * already, and gains nothing.
 */
#ifndef SPILLWAY_FAULTS_SEAM_H
#define SPILLWAY_FAULTS_SEAM_H

#include <stddef.h>
#include <sys/types.h>

#define FAULTS_TOOLS   "/dev/nvidia-uvm-tools"
#define FAULTS_UVM     "/dev/nvidia-uvm"
#define FAULTS_VERSION "/proc/driver/nvidia/version"

/* Each works as the libc function: returns -1 and sets errno on failure. */
struct faults_seam {
	size_t size; /* of this struct; a table of another version is not used */
	int (*open)(const char *path, int flags);
	int (*close)(int fd);
	int (*ioctl)(int fd, unsigned long request, void *parameters);
	ssize_t (*link)(int fd, char *buffer, size_t room); /* target of the link /proc/self/fd/N */
	int (*wait)(int fd, int wait_ms); /* poll() for POLLIN: 0 if the time is up, > 0 if half of the queue is full */
};

#define FAULTS_SEAM "spillway_sim_uvm"

#endif
