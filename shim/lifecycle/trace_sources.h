/*
 * trace_sources.h: what the trace asks of the modules above it.
 */
#ifndef SPILLWAY_TRACE_SOURCES_H
#define SPILLWAY_TRACE_SOURCES_H

#include "shim/trace/trace.h"

extern const struct trace_sources trace_sources;

#endif
