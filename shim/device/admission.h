/*
 * admission.h: `share.queue`: a process that would share a device waits at its first allocation as long as host.total
 * does not hold what all of them need beyond device.total. So each process that takes turns can give up its memory.
 */
#ifndef SPILLWAY_ADMISSION_H
#define SPILLWAY_ADMISSION_H

struct device;

/*
 * To be called before memory of the heap is allocated. Waits if the policy says so, until there is room, the time is
 * up, or the process ends. Cheap once the process is admitted. Locking: the caller must hold no lock.
 */
void admission_wait(struct device *device);
/* On the control thread, now and then: lets the next process be admitted, once the needs of this one are known. */
void admission_look(struct device *device);
/* In the child of a fork: the place in the line is the parent's. Async-signal-safe. */
void admission_child(struct device *device);

#endif
