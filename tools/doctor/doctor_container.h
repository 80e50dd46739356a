/*
 * doctor_container.h: do we run in a container? What is missing is then mended where it was started.
 */
#ifndef TOOLS_DOCTOR_CONTAINER_H
#define TOOLS_DOCTOR_CONTAINER_H

#include "tools/doctor/doctor.h"

bool doctor_is_container(const struct doctor *doctor);

#endif
