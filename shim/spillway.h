/*
 * spillway.h: for programs that know of Spillway. Nothing has to be linked: the functions are there when the program
 * runs under libspillway.so (`spillway run`, LD_PRELOAD) and absent when it does not. Two ways to ask:
 *
 * 1. Weak references, which is how this header declares them. The address is NULL without Spillway:
 *
 *        #include <spillway.h>
 *        if (spillway_suspend && spillway_suspend() == 0)
 *                ... the GPU is somebody else's now ...
 *
 *    The code must be compiled as position-independent (-fPIC or -fPIE, the default of most compilers of today): in
 *    other code the linker settles weak references for good, to NULL, when the program is linked.
 *
 * 2. dlsym(RTLD_DEFAULT, "spillway_suspend"), in any program and from any language.
 *
 * All may be called from any thread, but not from a callback of the driver (cuLaunchHostFunc and the like). Functions
 * that return int return 0 or a negative errno value, and leave errno as it is.
 */
#ifndef SPILLWAY_H
#define SPILLWAY_H

#ifdef __cplusplus
extern "C" {
#endif

/* The library itself defines what others refer to. */
#ifndef SPILLWAY_API
#define SPILLWAY_API __attribute__((weak))
#endif

/*
 * Give the GPU's memory back for a while. From now on every call that submits work to the GPU waits, on whichever
 * thread; all memory that can move goes to the host; device memory goes back to the driver. Returns when that is done.
 * What runs on the host goes on; addresses and contents stay as they are. Suspended already: 0.
 *
 *   -ENOMEM   the host budget does not hold it
 *   -EBUSY    no safe point came in time: a stream capture is open, or the GPU does not become idle
 *   -ENOTSUP  there is nothing that could move: no memory of this process is in the heap, spill.mode is off or static,
 *             or Spillway is switched off
 *   -EIO      the driver failed; stderr says how
 *
 * After any of them nothing is suspended. The thread that called must not submit work before some other thread, or
 * `spillway resume PID`, has called spillway_resume().
 */
SPILLWAY_API int spillway_suspend(void);

/* Let submissions go on; memory comes back to the GPU as it is used. Not suspended: 0. -ENOTSUP, -EIO as above. */
SPILLWAY_API int spillway_resume(void);

/* The version of the library, "0.1.0"; constant, never NULL. */
SPILLWAY_API const char *spillway_version(void);

#ifdef __cplusplus
}
#endif

#endif
