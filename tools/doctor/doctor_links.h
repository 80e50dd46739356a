/*
 * doctor_links.h: what one GPU has to do with the others: rows of doctor_device.c. They have nothing to say where there is
 * one GPU.
 */
#ifndef TOOLS_DOCTOR_LINKS_H
#define TOOLS_DOCTOR_LINKS_H

#include "tools/doctor/doctor.h"

/* As far as the driver says. */
enum doctor_link_kind {
	DOCTOR_LINK_NONE, /* it does not reach the other's memory */
	DOCTOR_LINK_PCIE,
	DOCTOR_LINK_NVLINK,
	DOCTOR_LINK_UNKNOWN, /* it does, over what is not known */
};
enum doctor_link_kind doctor_link_kind(const struct doctor *doctor, int from, int to);

void doctor_peers(const struct doctor *doctor, int device, struct doctor_finding *finding);
void doctor_peer_links(const struct doctor *doctor, int device, struct doctor_finding *finding);
void doctor_peer_rates(const struct doctor *doctor, int device, struct doctor_finding *finding);

#endif
