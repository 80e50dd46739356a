// SPDX-License-Identifier: Apache-2.0
#include "operands_fake.h"

#include "shim/submit/graph.h"

__thread struct fake_seen seen;

void fake_forget(void)
{
	seen.n_stream = seen.n_function = seen.n_unknown = seen.n_named_only = seen.n = 0;
}

void fake_expect(const char *what, const struct fake_name *names, unsigned n)
{
	for (unsigned i = 0; i < n && i < seen.n; i++)
		if (seen.name[i].address != names[i].address || seen.name[i].bytes != names[i].bytes)
			fail_msg("%s named %#llx + %zu and not %#llx + %zu", what, seen.name[i].address,
				 seen.name[i].bytes, names[i].address, names[i].bytes);
	if (seen.n != n)
		fail_msg("%s named %u addresses and not %u", what, seen.n, n);
}

void submission_stream(struct submission *use, CUstream stream, bool per_thread)
{
	seen.n_stream++;
	seen.stream = stream;
	seen.per_thread = per_thread;
}

void submission_function(struct submission *use, uint64_t function)
{
	seen.n_function++;
	seen.function = function;
}

void submission_name(struct submission *use, CUdeviceptr address, size_t bytes)
{
	if (seen.n < FAKE_NAMES)
		seen.name[seen.n++] = (struct fake_name){address, bytes};
}

bool submission_means_heap(CUdeviceptr address)
{
	return false;
}

void submission_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes)
{
	*ret_first = 0;
	*ret_bytes = 0;
}

void submission_stores(struct submission *use, CUdeviceptr address)
{
}

void submission_named_only(struct submission *use)
{
	seen.n_named_only++;
}

void submission_unknown(struct submission *use)
{
	seen.n_unknown++;
}

uint64_t submission_what(const struct submission *use)
{
	return 0;
}

bool submission_is_heap(CUdeviceptr address)
{
	return false;
}

void graph_operands(struct submission *use, CUgraphExec exec)
{
	submission_function(use, (uintptr_t)exec);
}
