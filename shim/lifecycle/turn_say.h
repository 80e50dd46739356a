/* turn_say.h: what the log says about turns (turn.h), once each. */
#ifndef SPILLWAY_TURN_SAY_H
#define SPILLWAY_TURN_SAY_H

#include "shim/accounting/gpu_account.h"
#include "shim/base/status.h"

struct device;

/* Names the process whose memory leaves no room for turns, if there is one. */
void turn_say_refused(const struct gpu_account_view *view, const struct gpu_turn_view *turns);
void turn_say_turns(const struct device *device, const struct gpu_account_view *view);
void turn_say_clock(const struct device *device);
/* This process could not stop, or its memory could not leave. */
void turn_say_not_gone(enum sw_status status);

#endif
