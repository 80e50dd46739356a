#include "test/core/log_help.h"

#include "shim/mover/engine.h"

void (*log_then)(void);

bool __real_engine_log(struct engine *to, uint64_t function, const struct named *named, unsigned n,
		       struct ticket ticket);
bool __wrap_engine_log(struct engine *to, uint64_t function, const struct named *named, unsigned n,
		       struct ticket ticket);
bool __wrap_engine_log(struct engine *to, uint64_t function, const struct named *named, unsigned n,
		       struct ticket ticket)
{
	bool heard = __real_engine_log(to, function, named, n, ticket);
	void (*then)(void) = log_then;

	if (then) {
		log_then = NULL;
		then();
	}
	return heard;
}
