/*
 * Bodies of the entry points that allocate and free, except those in stream order (entry_async.c). Each does three
 * things: counts the call, asks enter.h whether the library serves it, and passes a plain request to serve.c. A call
 * that is not served goes to the real function with the same arguments.
 */
#include "shim/process/enter.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/entry/hook.h"
#include "shim/serve/typed_alloc.h"
#include "shim/serve/serve.h"
#include "shim/serve/oom_retry.h"

/* ---- cuMemAlloc, cuMemAllocPitch ---- */

HOOK_EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct backend_request request = {.bytes = bytesize, .caller = __builtin_return_address(0)};
	struct enter_scope scope;

	stats_call(HOOK_cuMemAlloc_v2);
	if (!lifecycle_enter(&scope))
		return serve_refusal() ? serve_refusal() : REAL(cuMemAlloc_v2)(dptr, bytesize);
	if (!dptr || !bytesize)
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	return enter_leave(&scope, serve_alloc(&request, dptr, NULL));
}

/*
 * The pitch is the width rounded up as the driver rounds it. The documentation allows elements of 4, 8 or 16 bytes.
 * Returns false if the arguments are wrong or rows * pitch overflows.
 */
static bool pitch_request(struct backend_request *request, size_t width, size_t height, size_t element)
{
	size_t pitch = (width + BACKEND_PITCH - 1) / BACKEND_PITCH * BACKEND_PITCH;

	*request = (struct backend_request){.width = width, .height = height, .element = element};
	if (!width || !height || pitch < width || (element != 4 && element != 8 && element != 16))
		return false;
	return !__builtin_mul_overflow(pitch, height, &request->bytes);
}

HOOK_EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
						unsigned int ElementSizeBytes)
{
	struct backend_request request;
	struct enter_scope scope;

	stats_call(HOOK_cuMemAllocPitch_v2);
	if (!lifecycle_enter(&scope))
		return serve_refusal() ? serve_refusal()
				       : REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	if (!dptr || !pPitch || !pitch_request(&request, WidthInBytes, Height, ElementSizeBytes))
		return enter_leave(&scope, CUDA_ERROR_INVALID_VALUE);
	request.caller = __builtin_return_address(0);
	return enter_leave(&scope, serve_alloc(&request, dptr, pPitch));
}

HOOK_EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemFree_v2);
	if (!enter_serve(&scope))
		return serve_is_late_free(dptr) ? CUDA_SUCCESS : REAL(cuMemFree_v2)(dptr);
	return enter_leave(&scope, serve_free(dptr));
}

HOOK_EXPORT CUresult CUDAAPI cuMemFree(CUdeviceptr_v1 dptr)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemFree);
	if (!enter_serve(&scope))
		return REAL(cuMemFree)(dptr);
	return enter_leave(&scope, serve_free(dptr));
}

/* ---- managed memory: the driver serves it, unless a rule names it (typed_alloc.h) ---- */

HOOK_EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct enter_scope scope;

	stats_call(HOOK_cuMemAllocManaged);
	if (!lifecycle_enter(&scope))
		return serve_refusal() ? serve_refusal() : REAL(cuMemAllocManaged)(dptr, bytesize, flags);
	return enter_leave(&scope, typed_alloc_managed(dptr, bytesize, flags, __builtin_return_address(0)));
}

/* ---- allocations that the driver serves and the library counts ---- */

/*
 * If the driver has no memory left, the heap makes room, and the call is made again (oom_retry.h). With a bad policy
 * and SPILLWAY_STRICT every allocation of device memory is refused.
 */
#define DRIVER_ALLOC(name, kind, params, args, wanted, bytes)                                                          \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!lifecycle_enter(&scope))                                                                          \
			return serve_refusal() ? serve_refusal() : REAL(name) args;                                    \
		struct oom_retry room = {0};                                                                           \
		CUresult result;                                                                                       \
		do                                                                                                     \
			result = REAL(name) args;                                                                      \
		while (result == CUDA_ERROR_OUT_OF_MEMORY && oom_retry_make(&room, -1, wanted));                       \
		oom_retry_end(&room, result);                                                                          \
		if (result == CUDA_SUCCESS)                                                                            \
			account_note(kind, *dptr, bytes, -1);                                                          \
		return enter_leave(&scope, result);                                                                    \
	}

/* Addresses of 32 bits (CUDA before 3.2) cannot reach the heap. */
DRIVER_ALLOC(cuMemAlloc, LEDGER_DRIVER, (CUdeviceptr_v1 * dptr, unsigned int bytesize), (dptr, bytesize), bytesize,
	     bytesize)
DRIVER_ALLOC(cuMemAllocPitch, LEDGER_DRIVER,
	     (CUdeviceptr_v1 * dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
	      unsigned int ElementSizeBytes),
	     (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes), (uint64_t)WidthInBytes *Height,
	     (size_t)*pPitch *Height)

/* ---- pinned host memory ---- */

#define ALLOC_HOST(name, params, args)                                                                                 \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
		struct account_claim claim;                                                                            \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!lifecycle_enter(&scope))                                                                          \
			return REAL(name) args;                                                                        \
		if (!typed_alloc_claim(POLICY_API_HOST, NULL, bytesize, __builtin_return_address(0), &claim))          \
			return enter_leave(&scope, CUDA_ERROR_OUT_OF_MEMORY);                                          \
		CUresult result = REAL(name) args;                                                                     \
		if (result == CUDA_SUCCESS)                                                                            \
			account_note_claimed(LEDGER_PINNED, (uint64_t)(uintptr_t)*pp, bytesize, -1, &claim);           \
		else                                                                                                   \
			account_claim_end(&claim, bytesize);                                                           \
		return enter_leave(&scope, result);                                                                    \
	}
ALLOC_HOST(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned int Flags), (pp, bytesize, Flags))
ALLOC_HOST(cuMemAllocHost_v2, (void **pp, size_t bytesize), (pp, bytesize))
ALLOC_HOST(cuMemAllocHost, (void **pp, unsigned int bytesize), (pp, bytesize))

static CUresult note_registered(CUresult result, const void *address, size_t bytes)
{
	struct enter_scope scope;

	if (result != CUDA_SUCCESS || !lifecycle_enter(&scope))
		return result;
	account_note(LEDGER_REGISTERED, (uint64_t)(uintptr_t)address, bytes, -1);
	return enter_leave(&scope, result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	stats_call(HOOK_cuMemHostRegister_v2);
	return note_registered(REAL(cuMemHostRegister_v2)(p, bytesize, Flags), p, bytesize);
}

HOOK_EXPORT CUresult CUDAAPI cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	stats_call(HOOK_cuMemHostRegister);
	return note_registered(REAL(cuMemHostRegister)(p, bytesize, Flags), p, bytesize);
}

/* The row is removed before the driver's call and restored if the call fails. */
#define FREE_HOST(name, kind)                                                                                          \
	HOOK_EXPORT CUresult CUDAAPI name(void *p)                                                                     \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter_serve(&scope))                                                                       \
			return REAL(name)(p);                                                                          \
		struct ledger_row *row = account_forget(kind, (uint64_t)(uintptr_t)p);                                 \
		CUresult result = REAL(name)(p);                                                                       \
		account_forgotten(row, result == CUDA_SUCCESS);                                                        \
		return enter_leave(&scope, result);                                                                    \
	}
FREE_HOST(cuMemFreeHost, LEDGER_PINNED)
FREE_HOST(cuMemHostUnregister, LEDGER_REGISTERED)
