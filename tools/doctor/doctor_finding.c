// SPDX-License-Identifier: Apache-2.0
/*
 * doctor_finding.c: helpers of checks: the text of a finding, and files below the root.
 */
#include "tools/doctor/doctor.h"
#include "tools/common/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void doctor_write(char *text, size_t from, size_t room, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(text + from, room - from, format, list);
	va_end(list);
	for (char *c = text + from; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

int doctor_n_devices(const struct doctor *doctor)
{
	return doctor->cuda.n_devices < DOCTOR_DEVICES ? doctor->cuda.n_devices : DOCTOR_DEVICES;
}

bool doctor_path(const struct doctor *doctor, const char *path, char ret_path[PATH_MAX])
{
	return snprintf(ret_path, PATH_MAX, "%s%s", doctor->root, path) < PATH_MAX;
}

bool doctor_exists(const struct doctor *doctor, const char *path)
{
	char full[PATH_MAX];

	return doctor_path(doctor, path, full) && access(full, F_OK) == 0;
}

size_t doctor_count_files(const struct doctor *doctor, const char *pattern)
{
	char full[PATH_MAX];
	size_t n = 0;
	glob_t found;

	if (doctor_path(doctor, pattern, full) && glob(full, 0, NULL, &found) == 0) {
		n = found.gl_pathc;
		globfree(&found);
	}
	return n;
}

bool doctor_read(const struct doctor *doctor, const char *path, char *buffer, size_t room)
{
	char full[PATH_MAX];
	size_t at = 0;
	ssize_t n = 1;

	*buffer = '\0';
	/* O_NONBLOCK: a pipe in place of the file must not block the tool. */
	int fd = doctor_path(doctor, path, full) ? open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd < 0)
		return false;
	while (at < room - 1 && n != 0) {
		n = read(fd, buffer + at, room - 1 - at);
		if (n < 0 && errno != EINTR)
			break;
		at += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	while (at && buffer[at - 1] == '\n')
		at--;
	buffer[at] = '\0';
	return at > 0;
}

struct doctor_finding *doctor_add(struct doctor *doctor, const char *subject, const char *id, const char *title,
				  int device)
{
	if (!grow(&doctor->findings, doctor->n, &doctor->room, sizeof(*doctor->findings)))
		return NULL;
	doctor->findings[doctor->n] =
	    (struct doctor_finding){.id = id, .subject = subject, .title = title, .device = device};
	return &doctor->findings[doctor->n++];
}

bool doctor_is_container(const struct doctor *doctor)
{
	static const char *const words[] = {"docker", "kubepods", "libpod", "lxc", "containerd"};
	char text[4096];
	struct stat status;

	/*
	 * With cgroups of version 2 there is no other sign inside a container. The first PID namespace has this number
	 * in every kernel.
	 */
	if (!*doctor->root && stat("/proc/self/ns/pid", &status) == 0 && status.st_ino != 0xeffffffc)
		return true;
	if (doctor_exists(doctor, "/.dockerenv") || doctor_exists(doctor, "/run/.containerenv"))
		return true;
	if (!doctor_read(doctor, "/proc/1/cgroup", text, sizeof(text)))
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strstr(text, words[i]))
			return true;
	return false;
}
