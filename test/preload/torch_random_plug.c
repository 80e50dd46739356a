/*
 * torch_random_plug.c: an allocator that the cache is given: it keeps what it gets back, and gives it to anybody.
 */
#include "test/preload/torch_random.h"

static struct {
	pthread_mutex_t lock;
	struct {
		CUdeviceptr at;
		size_t bytes;
		bool used;
	} part[256];
	unsigned n;
} plug = {.lock = PTHREAD_MUTEX_INITIALIZER};

CUdeviceptr plug_take(size_t bytes, size_t *ret_bytes)
{
	CUdeviceptr at = 0;

	pthread_mutex_lock(&plug.lock);
	for (unsigned i = 0; i < plug.n && !at; i++)
		if (!plug.part[i].used && (!bytes || plug.part[i].bytes == bytes)) {
			plug.part[i].used = true;
			at = plug.part[i].at;
			*ret_bytes = plug.part[i].bytes;
		}
	if (!at && bytes && plug.n < sizeof(plug.part) / sizeof(plug.part[0])) {
		GO(cuMemAlloc_v2(&at, bytes));
		plug.part[plug.n].at = at;
		plug.part[plug.n].bytes = bytes;
		plug.part[plug.n++].used = true;
	}
	pthread_mutex_unlock(&plug.lock);
	return at;
}

CUdeviceptr plug_allocate(size_t bytes)
{
	return plug_take(bytes, &bytes);
}

void plug_release(CUdeviceptr at)
{
	pthread_mutex_lock(&plug.lock);
	for (unsigned i = 0; i < plug.n; i++)
		if (plug.part[i].at == at)
			plug.part[i].used = false;
	pthread_mutex_unlock(&plug.lock);
}
