/*
 * doctor_measure_clock.c: loads the driver's functions and reads the clock, for both measurements.
 */
#include "tools/doctor/doctor_measure.h"

#include <time.h>

void *measure_functions[MEASURE_N_FUNCTIONS];

double measure_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
