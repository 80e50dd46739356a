/*
 * fault_report.h: the report that is logged when `fast` has stopped a job. Only the mover's thread may call these
 * functions.
 */
#ifndef SPILLWAY_FAULT_REPORT_H
#define SPILLWAY_FAULT_REPORT_H

struct engine;

struct travels *fault_report_new(void); /* NULL if there is no memory; the caller must free() it */
/* Notes what is in transit. To be called once in each pass of the mover, before it changes anything. */
void fault_report_note(struct engine *engine);
/*
 * To be called when the context died of an illegal address in `fast`. If anything was in transit within a second before
 * the last pass in which all was well, logs what was, what ran, and what avoids the failure. Makes no driver calls.
 */
void fault_report_tell(struct engine *engine);

#endif
