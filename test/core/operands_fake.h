// SPDX-License-Identifier: Apache-2.0
/*
 * operands_fake.h: a struct submission that writes down what it is told, in place of submission.c; and a graph that
 * names nothing.
 */
#ifndef SPILLWAY_TEST_OPERANDS_FAKE_H
#define SPILLWAY_TEST_OPERANDS_FAKE_H

#include "shim/driver/real.h"
#include "shim/submit/submission.h"
#include "test/test.h"

#define FAKE_NAMES 8192

struct fake_name {
	CUdeviceptr address;
	size_t bytes;
};

struct fake_seen {
	CUstream stream;
	bool per_thread;
	unsigned n_stream, n_function, n_unknown, n_named_only, n;
	uint64_t function;
	struct fake_name name[FAKE_NAMES];
};

/* Each thread has its own. */
extern __thread struct fake_seen seen;

void fake_forget(void);
/* What was named since, in this order and nothing else. what: for the message. */
void fake_expect(const char *what, const struct fake_name *names, unsigned n);

#endif
