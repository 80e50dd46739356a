/* Defines what the room keeps for the process: its object, and faults_queue_on, which inline functions read. */
#include "shim/faults/faults_state.h"

atomic_bool faults_queue_on;

struct faults_state faults_state = {.events = {.lock = LOCK_INIT(LOCK_FAULTS)}};
