/*
 * limits.h: sizes that several rooms share.
 */
#ifndef SPILLWAY_LIMITS_H
#define SPILLWAY_LIMITS_H

/* Devices of one process, by ordinal; each is a bit of a 64-bit word. */
#define DEVICE_MOST 64

#endif
