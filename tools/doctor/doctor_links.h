/*
 * doctor_links.h: checks of the links between GPUs, used as rows in doctor_device.c. They do not apply to a machine
 * with one GPU.
 */
#ifndef TOOLS_DOCTOR_LINKS_H
#define TOOLS_DOCTOR_LINKS_H

#include "tools/doctor/doctor.h"

/* Kind of a link, as far as the driver reports it. */
enum doctor_link_kind {
	DOCTOR_LINK_NONE, /* the device cannot access the other's memory */
	DOCTOR_LINK_PCIE,
	DOCTOR_LINK_NVLINK,
	DOCTOR_LINK_UNKNOWN, /* it can, over a link of unknown kind */
};
enum doctor_link_kind doctor_link_kind(const struct doctor *doctor, int from, int to);

void doctor_peers(const struct doctor *doctor, int device, struct doctor_finding *finding);
void doctor_peer_links(const struct doctor *doctor, int device, struct doctor_finding *finding);
void doctor_peer_rates(const struct doctor *doctor, int device, struct doctor_finding *finding);

#endif
