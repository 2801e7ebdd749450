#include "handles.h"

#include <stddef.h>

#include "openers.h"

enum kind { CARD = 1, MIG = 2, GPU_INSTANCE = 3, COMPUTE_INSTANCE = 4 };

/* From the lowest bit: kind 4, card 8, GPU instance 8, compute instance 8, serial 32. */
static uintptr_t encode(enum kind kind, const struct card *card, unsigned gpu_instance, unsigned compute_instance,
                        uint32_t serial) {
    uintptr_t number = card - machine->cards;
    return kind | number << 4 | (uintptr_t)gpu_instance << 12 | (uintptr_t)compute_instance << 20 |
           (uintptr_t)serial << 28;
}

nvmlDevice_t card_handle(const struct card *card) { return (nvmlDevice_t)encode(CARD, card, 0, 0, 0); }

nvmlDevice_t mig_handle(const struct card *card, unsigned gi, unsigned ci) {
    return (nvmlDevice_t)encode(MIG, card, gi, ci, card->instances[gi].compute[ci].serial);
}

nvmlGpuInstance_t gpu_instance_handle(const struct card *card, unsigned gi) {
    return (nvmlGpuInstance_t)encode(GPU_INSTANCE, card, gi, 0, card->instances[gi].serial);
}

nvmlComputeInstance_t compute_instance_handle(const struct card *card, unsigned gi, unsigned ci) {
    return (nvmlComputeInstance_t)encode(COMPUTE_INSTANCE, card, gi, ci, card->instances[gi].compute[ci].serial);
}

static nvmlReturn_t decode(uintptr_t handle, unsigned kinds, struct found *found) {
    unsigned kind = handle & 0xf, number = handle >> 4 & 0xff;
    unsigned gi = handle >> 12 & 0xff, ci = handle >> 20 & 0xff;
    uint32_t serial = handle >> 28;
    *found = (struct found){.gpu_instance_id = NO_INSTANCE, .compute_instance_id = NO_INSTANCE};
    if (!(kinds & 1u << kind) || number >= machine->n_cards || gi >= MAX_GPU_INSTANCES || ci >= MAX_COMPUTE_INSTANCES)
        return NVML_ERROR_INVALID_ARGUMENT;
    found->card = &machine->cards[number];
    if (found->card->presence != PRESENT) {
        close_card(found->card);
        return NVML_ERROR_GPU_IS_LOST;
    }
    open_card(found->card);
    if (kind == CARD)
        return NVML_SUCCESS;
    found->gpu_instance = &found->card->instances[gi];
    found->gpu_instance_id = gi;
    if (kind == GPU_INSTANCE) {
        int is_same = found->gpu_instance->exists && found->gpu_instance->serial == serial;
        return is_same ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    }
    found->compute_instance = &found->gpu_instance->compute[ci];
    found->compute_instance_id = ci;
    int is_same = found->compute_instance->exists && found->compute_instance->serial == serial;
    return is_same ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t find_device(nvmlDevice_t handle, struct found *found) {
    return decode((uintptr_t)handle, 1u << CARD | 1u << MIG, found);
}

nvmlReturn_t find_card(nvmlDevice_t handle, struct found *found) {
    return decode((uintptr_t)handle, 1u << CARD, found);
}

nvmlReturn_t find_mig(nvmlDevice_t handle, struct found *found) {
    return decode((uintptr_t)handle, 1u << MIG, found);
}

nvmlReturn_t find_gpu_instance(nvmlGpuInstance_t handle, struct found *found) {
    return decode((uintptr_t)handle, 1u << GPU_INSTANCE, found);
}

nvmlReturn_t find_compute_instance(nvmlComputeInstance_t handle, struct found *found) {
    return decode((uintptr_t)handle, 1u << COMPUTE_INSTANCE, found);
}
