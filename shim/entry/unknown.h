/*
 * unknown.h: functions of the driver that no row knows: a newer driver has them, and their parameters are not known. The
 * program gets a body of ours in place of each that it asks for. A call of it counts as a submission that may touch
 * anything, on a stream and a context that are not known; arguments and result are the driver's.
 *
 * A function that does not submit works as well, but costs what a submission does: where memory moves, its calls wait for
 * what is in transit, and nothing moves while one is inside the driver; and what is backed on use has all its memory from
 * then on. If there is none for it, the function is not called: the program gets the error.
 */
#ifndef SPILLWAY_UNKNOWN_H
#define SPILLWAY_UNKNOWN_H

/* The most functions that get a body; about twice as many as all that CUDA 13.1 to 13.5 have added. */
#define UNKNOWN_MOST 128

/*
 * Returns the body for a function, always the same one; or NULL if all are taken. Any thread may call it. Locking: none.
 */
void *unknown_body(void *function);

#endif
