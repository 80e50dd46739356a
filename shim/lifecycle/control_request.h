/*
 * control_request.h: being suspended, from outside through the socket (serve/control.h) and by the program itself
 * (spillway.h).
 */
#ifndef SPILLWAY_CONTROL_REQUEST_H
#define SPILLWAY_CONTROL_REQUEST_H

#include "shim/base/status.h"
#include "shim/serve/control.h"

#include <stdint.h>

/* Answers a request that came at the socket. */
control_answer control_request;

/* spill_suspend() and spill_resume() (spill.h); what the last of them that succeeded was is what `status` answers. */
enum sw_status control_suspend(uint64_t *ret_bytes);
enum sw_status control_resume(uint64_t *ret_bytes);

#endif
