/* How much cards and processes are used, and the energy of cards. Controls enter the readings into the state. */

#include "handles.h"

/* Not for cards in MIG mode, nor for MIG devices. */
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    struct found found;
    ENTER();
    NEEDS(rates);
    LEAVE_ON_ERROR(find_device(device, &found));
    if (found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    *rates = (nvmlUtilization_t){.gpu = found.card->gpu_percent, .memory = found.card->memory_percent};
    LEAVE(NVML_SUCCESS);
}

/* The samples of processes that use the card now, if they are newer than `last_seen_us`. */
static nvmlReturn_t list_samples(const struct card *card, nvmlProcessUtilizationSample_t *samples, unsigned *count,
                                 unsigned long long last_seen_us) {
    uint64_t now = now_us();
    unsigned there = 0;
    for (int i = 0; now > last_seen_us && i < MAX_PROCESSES; i++) {
        const struct process *process = &machine->processes[i];
        if (!process->pid || &machine->cards[process->card] != card)
            continue;
        if (!process->sm_percent && !process->memory_percent)
            continue;
        if (samples && there < *count)
            samples[there] = (nvmlProcessUtilizationSample_t){.pid = process->pid,
                                                              .timeStamp = now,
                                                              .smUtil = process->sm_percent,
                                                              .memUtil = process->memory_percent};
        there++;
    }
    int is_enough = samples && there <= *count;
    *count = there;
    if (there == 0)
        return NVML_ERROR_NOT_FOUND;
    return is_enough ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                    unsigned *count, unsigned long long last_seen_us) {
    struct found found;
    ENTER();
    NEEDS(count);
    LEAVE_ON_ERROR(find_device(device, &found));
    if (found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    LEAVE(list_samples(found.card, samples, count, last_seen_us));
}

/* Of a whole card, since the driver was loaded or the card was reset. */
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules) {
    struct found found;
    ENTER();
    NEEDS(millijoules);
    LEAVE_ON_ERROR(find_card(device, &found));
    *millijoules = found.card->energy_mj;
    LEAVE(NVML_SUCCESS);
}
