/*
 * trace_sources.h: the functions of later rooms that the trace calls.
 */
#ifndef SPILLWAY_TRACE_SOURCES_H
#define SPILLWAY_TRACE_SOURCES_H

#include "shim/trace/trace.h"

extern const struct trace_sources trace_sources;

#endif
