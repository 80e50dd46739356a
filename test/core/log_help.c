// SPDX-License-Identifier: Apache-2.0
#include "test/core/log_help.h"

#include "shim/submit/channel.h"

void (*log_then)(void);

bool __real_submission_log_write(struct submission_log *log, uint64_t function, const struct named *named, unsigned n,
				 struct inflight_ticket ticket);
bool __wrap_submission_log_write(struct submission_log *log, uint64_t function, const struct named *named, unsigned n,
				 struct inflight_ticket ticket);
bool __wrap_submission_log_write(struct submission_log *log, uint64_t function, const struct named *named, unsigned n,
				 struct inflight_ticket ticket)
{
	bool heard = __real_submission_log_write(log, function, named, n, ticket);
	void (*then)(void) = log_then;

	if (then) {
		log_then = NULL;
		then();
	}
	return heard;
}
