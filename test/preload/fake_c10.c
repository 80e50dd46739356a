// SPDX-License-Identifier: Apache-2.0
/*
 * fake_c10.c: libc10.so as far as the library knows it: the function that reports births and deaths to PyTorch's
 * profiler, under PyTorch's own name. It records what it is called with.
 */
#include "test/preload/fake_torch.h"

#include <pthread.h>

void FAKE_TORCH_REPORT(void *address, int64_t bytes, size_t allocated, size_t reserved, struct fake_device device);
struct fake_reports fake_c10_reports(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_reports reports;

void FAKE_TORCH_REPORT(void *address, int64_t bytes, size_t allocated, size_t reserved, struct fake_device device)
{
	pthread_mutex_lock(&lock);
	reports.n++;
	reports.last = (struct fake_report){address, bytes, allocated, reserved, device};
	pthread_mutex_unlock(&lock);
}

struct fake_reports fake_c10_reports(void)
{
	pthread_mutex_lock(&lock);
	struct fake_reports ret = reports;
	pthread_mutex_unlock(&lock);
	return ret;
}
