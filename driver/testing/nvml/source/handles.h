/* Handles of cards and instances.
 *
 * A handle is no pointer but a number that says what it names: kind, card, ids, and the serial of the instance, so that
 * a handle of an instance that is gone does not name the next one with its id. */

#ifndef HANDLES_H
#define HANDLES_H

#include "session.h"

struct found {
    struct card *card;
    struct gpu_instance *gpu_instance;         /* NULL: the handle is a card's */
    struct compute_instance *compute_instance; /* NULL: the handle is a card's or a GPU instance's */
    unsigned gpu_instance_id, compute_instance_id;
};

nvmlDevice_t card_handle(const struct card *card);
nvmlDevice_t mig_handle(const struct card *card, unsigned gpu_instance, unsigned compute_instance);
nvmlGpuInstance_t gpu_instance_handle(const struct card *card, unsigned gpu_instance);
nvmlComputeInstance_t compute_instance_handle(const struct card *card, unsigned gpu_instance,
                                              unsigned compute_instance);

/* Find what a handle names: a card or a MIG device, a card, a MIG device, an instance.
 * NVML_ERROR_INVALID_ARGUMENT: it names nothing (any more), or something else; NVML_ERROR_GPU_IS_LOST. */
nvmlReturn_t find_device(nvmlDevice_t handle, struct found *found);
nvmlReturn_t find_card(nvmlDevice_t handle, struct found *found);
nvmlReturn_t find_mig(nvmlDevice_t handle, struct found *found);
nvmlReturn_t find_gpu_instance(nvmlGpuInstance_t handle, struct found *found);
nvmlReturn_t find_compute_instance(nvmlComputeInstance_t handle, struct found *found);

/* Say where a card is on the PCI bus. */
void describe_pci(const struct card *card, nvmlPciInfo_t *pci);

#endif
