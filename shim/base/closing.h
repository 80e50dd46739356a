/*
 * closing.h: hears that the program closes an object, whoever closes it, as the object's own destructors do: the C
 * library calls what was registered for the handle of an object (__cxa_atexit) before it unmaps it. The handle is the
 * address of __dso_handle, which each object has from its compiler (crtbegin): not exported, it contains its own
 * address.
 */
#ifndef SPILLWAY_CLOSING_H
#define SPILLWAY_CLOSING_H

#include <stdbool.h>

/*
 * From now on heard() is called, perhaps repeatedly, when the object that contains the address is closed or the process
 * exits, by the thread that does it, and perhaps under the loader's lock. The caller must hold the object, or be called
 * by it. Returns false if that would not be heard. Returns true for a program at a fixed address, which has no handle,
 * and is never closed. Locking: as caller_name.h.
 */
bool closing_hear(const void *address, void (*heard)(void *argument), void *argument);

#endif
