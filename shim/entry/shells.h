/*
 * shells.h: the exported functions, around the bodies of one file: static functions serve_NAME() with the parameters
 * of the row in hooks.def, whose kind says what stands around them. The file includes this at its end, and says which
 * subject of hooks.def its bodies are of:
 *
 *	#define HOOKS_OF HOOKS_MEMORY
 *	#include "shim/entry/shells.h"
 *
 * A row without a body does not link, and a body whose types differ from its row's does not compile.
 */
#include "shim/entry/entry.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/serve/serve.h"

/* clang-format off */
#define SHELL(name, params, args, enter, elsewhere)                                                                    \
	static CUresult serve_##name params;                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter(&scope))                                                                                    \
			return elsewhere;                                                                              \
		return enter_leave(&scope, serve_##name args);                                                         \
	}
#define FIRST(first, ...) first
#define SHELL_SERVE(name, params, args) SHELL(name, params, args, enter_serve, REAL(name) args)
#define SHELL_START(name, params, args) SHELL(name, params, args, lifecycle_enter, REAL(name) args)
#define SHELL_ALLOC(name, params, args)                                                                                 \
	SHELL(name, params, args, lifecycle_enter, serve_refusal() ? serve_refusal() : REAL(name) args)
#define SHELL_FREE(name, params, args)                                                                                  \
	SHELL(name, params, args, enter_serve, serve_is_late_free(FIRST args) ? CUDA_SUCCESS : REAL(name) args)
#define SHELL_OWN(name, params, args)                                                                                   \
	static CUresult serve_##name params;                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		return serve_##name args;                                                                              \
	}
#define HOOK_BODY(kind, name, params, args) SHELL_##kind(name, params, args)
#include "shim/driver/hooks.def"
/* clang-format on */
