/*
 * faults_seam.h: the five calls by which page faults are read from the system, as a table, so that a stand-in for the
 * driver's device can be put behind them. Plain C: the simulated GPU of the tests includes it.
 *
 * How the stand-in is chosen. The library asks the libcuda.so.1 that the process has loaded for FAULTS_SEAM; NVIDIA's has
 * no such symbol, the simulated one does. So everything above the table, from the text of the driver's version to the
 * search through /proc/self/fd and the self-test, is the same code on a real and on a simulated GPU, and every program on
 * the simulated GPU has its faults counted without being told to. Why not by an environment variable, or a function for
 * tests: nothing that the environment says may point a process at another device file, and a function for tests would not
 * reach whole programs. Who can put another libcuda.so.1 into a process runs code in it already, and gains nothing.
 */
#ifndef SPILLWAY_FAULTS_SEAM_H
#define SPILLWAY_FAULTS_SEAM_H

#include <stddef.h>
#include <sys/types.h>

#define FAULTS_TOOLS   "/dev/nvidia-uvm-tools"
#define FAULTS_UVM     "/dev/nvidia-uvm"
#define FAULTS_VERSION "/proc/driver/nvidia/version"

/* Each as the function of libc: -1 and errno. */
struct faults_seam {
	size_t size; /* of this struct: a table of another make is not used */
	int (*open)(const char *path, int flags);
	int (*close)(int fd);
	int (*ioctl)(int fd, unsigned long request, void *parameters);
	ssize_t (*link)(int fd, char *buffer, size_t room); /* what the descriptor is, as /proc/self/fd/N says */
	int (*wait)(int fd, int wait_ms); /* poll() for POLLIN: 0 time is up, more than 0 half of the queue is full */
};

#define FAULTS_SEAM "spillway_sim_uvm"

#endif
