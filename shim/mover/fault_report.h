/*
 * fault_report.h: what is said when `fast` has stopped a job. The mover's thread only.
 */
#ifndef SPILLWAY_FAULT_REPORT_H
#define SPILLWAY_FAULT_REPORT_H

struct engine;

struct travels *fault_report_new(void); /* NULL without memory; free() */
/* Once a look of the mover, before it changes anything: what is in transit. */
void fault_report_note(struct engine *engine);
/*
 * The context died of an illegal address in `fast`: if anything was in transit within a second before the last look at
 * which all was well, say what, what ran, and what avoids it. Asks the driver nothing.
 */
void fault_report_tell(struct engine *engine);

#endif
