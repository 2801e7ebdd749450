/* Persistence mode, and the reset of a card. */

#include "reset.h"

#include <string.h>

#include "handles.h"
#include "openers.h"
#include "processes.h"

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *is_on) {
    struct found found;
    ENTER();
    NEEDS(is_on);
    LEAVE_ON_ERROR(find_card(device, &found));
    *is_on = found.card->is_persistent;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_card(device, &found));
    if (mode > 1)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    found.card->is_persistent = mode;
    LEAVE(NVML_SUCCESS);
}

void reset_card(struct card *card) {
    memset(card->instances, 0, sizeof card->instances);
    card->mig_current = card->mig_pending;
    card->minor = card->minor_after_reset;
    card->compute_mode = card->remap_pending = card->recovery_action = 0;
    card->gpu_percent = card->memory_percent = 0;
    card->energy_mj = 0;
    card->activity = (struct activity){0};
    card->resets++;
}

/* Persistence mode keeps a card open, as a process does. */
static int is_in_use(const struct card *card) {
    return card->is_persistent || has_process(card, NO_INSTANCE, NO_INSTANCE) || is_open_elsewhere(card);
}

/* What the stand-in for nvidia-smi calls for --gpu-reset: NVML has no function for it. This process closes the card. */
EXPORT nvmlReturn_t kerfResetCard(nvmlDevice_t device) {
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_card(device, &found));
    struct card *card = found.card;
    if (card->is_passthrough)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    close_card(card);
    if (is_in_use(card))
        LEAVE(NVML_ERROR_IN_USE);
    begin_change(card);
    reset_card(card);
    end_change();
    LEAVE(NVML_SUCCESS);
}
