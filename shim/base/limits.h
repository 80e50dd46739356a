/*
 * limits.h: sizes that several rooms share.
 */
#ifndef SPILLWAY_LIMITS_H
#define SPILLWAY_LIMITS_H

/* Most devices of one process; device masks are 64-bit words. */
#define DEVICE_MOST 64

#endif
