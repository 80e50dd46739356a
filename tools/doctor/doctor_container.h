/*
 * doctor_container.h: determines whether the tool runs in a container, where missing parts must be added when the
 * container is started.
 */
#ifndef TOOLS_DOCTOR_CONTAINER_H
#define TOOLS_DOCTOR_CONTAINER_H

#include "tools/doctor/doctor.h"

bool doctor_is_container(const struct doctor *doctor);

#endif
