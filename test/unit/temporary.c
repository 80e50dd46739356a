// SPDX-License-Identifier: Apache-2.0
#include "test/test.h"
#include "test/unit/temporary.h"

char temporary[64];

int temporary_make(void **state)
{
	snprintf(temporary, sizeof(temporary), "/tmp/%s.XXXXXX", program_invocation_short_name);
	int fd = mkstemp(temporary);
	return fd < 0 ? -1 : close(fd);
}

int temporary_remove(void **state)
{
	return unlink(temporary);
}

void temporary_save(const void *bytes, size_t n)
{
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && close(fd) == 0);
}
