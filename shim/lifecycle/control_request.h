/*
 * control_request.h: suspends and resumes the process, on request through the socket (serve/control.h) or by the
 * program itself (spillway.h).
 */
#ifndef SPILLWAY_CONTROL_REQUEST_H
#define SPILLWAY_CONTROL_REQUEST_H

#include "shim/base/status.h"
#include "shim/serve/control.h"

#include <stdint.h>

/* Answers a request from the socket. */
control_answer control_request;

/* Call spill_suspend() or spill_resume() (spill.h); `status` reports the last of them that succeeded. */
enum sw_status control_suspend(uint64_t *ret_bytes);
enum sw_status control_resume(uint64_t *ret_bytes);

/* Called when nobody can reach this process any more: resumes it if it was suspended through the socket. */
void control_cut_off(void);

#endif
