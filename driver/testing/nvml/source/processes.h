/* Processes that use cards; controls and tests enter them into the state. */

#ifndef PROCESSES_H
#define PROCESSES_H

#include "session.h"

/* Whether a process uses the card; with ids the GPU instance, the compute instance. */
static inline int has_process(const struct card *card, unsigned gpu_instance, unsigned compute_instance) {
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &machine->processes[i];
        if (!process->pid || &machine->cards[process->card] != card)
            continue;
        if (gpu_instance != NO_INSTANCE && process->gpu_instance != gpu_instance)
            continue;
        if (compute_instance == NO_INSTANCE || process->compute_instance == compute_instance ||
            process->compute_instance == NO_INSTANCE)
            return 1;
    }
    return 0;
}

#endif
