/* MIG mode, GPU-instance profiles and GPU instances.
 *
 * The rules are those of NVML's reference and of listings of cards: see docs/testing-without-gpus.md. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handles.h"
#include "openers.h"
#include "processes.h"
#include "reset.h"

static int has_instances(const struct card *card) {
    for (int i = 0; i < MAX_GPU_INSTANCES; i++)
        if (card->instances[i].exists)
            return 1;
    return 0;
}

/* ---- MIG mode ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *waiting) {
    struct found found;
    ENTER();
    NEEDS(current && waiting);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (found.card->mig_switch == NOT_CAPABLE)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    *current = found.card->mig_current;
    *waiting = found.card->mig_pending;
    LEAVE(NVML_SUCCESS);
}

/* A card that resets by itself for another mode does not while another process has it open (DCGM, an exporter). */
static int is_reset_refused(const struct card *card) {
    if (card->mig_switch != NEEDS_RESET)
        return 0;
    close_card(card);
    int is_refused = is_open_elsewhere(card);
    open_card(card);
    return is_refused;
}

/* The call succeeds when the mode is pending; `activation` says whether it is current, too. With instances on the card
 * it fails, and nothing is pending. */
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation) {
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_card(device, &found));
    struct card *card = found.card;
    if (card->mig_switch == NOT_CAPABLE)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (mode > NVML_DEVICE_MIG_ENABLE || !activation)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    *activation = NVML_SUCCESS;
    if (mode != card->mig_current && has_instances(card))
        LEAVE(NVML_ERROR_IN_USE);
    begin_change(card);
    card->mig_pending = mode;
    if (mode == card->mig_current) {
        *activation = NVML_SUCCESS;
    } else if (has_process(card, NO_INSTANCE, NO_INSTANCE) || is_reset_refused(card)) {
        *activation = NVML_ERROR_IN_USE;
    } else if (card->mig_switch == NEEDS_RESET && card->is_passthrough) {
        *activation = NVML_ERROR_RESET_REQUIRED;
    } else {
        card->mig_current = mode;
        if (card->mig_switch == NEEDS_RESET) /* the driver resets the card by itself */
            reset_card(card);
    }
    end_change();
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    struct found found;
    ENTER();
    NEEDS(count);
    LEAVE_ON_ERROR(find_card(device, &found));
    *count = found.card->mig_current ? found.card->compute_slices : 0;
    LEAVE(NVML_SUCCESS);
}

/* ---- profiles ---- */

/* Release 580 of the driver does not know the last one, NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX. */
static unsigned count_known_profiles(void) {
    return atoi(machine->driver_version) > 580 ? NVML_GPU_INSTANCE_PROFILE_COUNT : NVML_GPU_INSTANCE_PROFILE_COUNT - 1;
}

static nvmlReturn_t find_by_enum(const struct card *card, unsigned profile_enum, const struct profile **profile) {
    for (unsigned i = 0; i < card->n_profiles; i++)
        if (card->profiles[i].profile_enum == profile_enum) {
            *profile = &card->profiles[i];
            return NVML_SUCCESS;
        }
    return profile_enum < count_known_profiles() ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t find_by_id(const struct card *card, unsigned id, const struct profile **profile) {
    for (unsigned i = 0; i < card->n_profiles; i++)
        if (card->profiles[i].id == id) {
            *profile = &card->profiles[i];
            return NVML_SUCCESS;
        }
    return card->mig_switch == NOT_CAPABLE ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

/* What all versions of the structure have in common; MIG devices of one card cannot reach each other (P2P). */
#define DESCRIBE(info, profile)                                                                                        \
    do {                                                                                                               \
        (info)->id = (profile)->id;                                                                                    \
        (info)->sliceCount = (profile)->slices;                                                                        \
        (info)->instanceCount = (profile)->max_instances;                                                              \
        (info)->multiprocessorCount = (profile)->multiprocessors;                                                      \
        (info)->copyEngineCount = (profile)->engines.copy;                                                             \
        (info)->decoderCount = (profile)->engines.decoders;                                                            \
        (info)->encoderCount = (profile)->engines.encoders;                                                            \
        (info)->jpegCount = (profile)->engines.jpeg;                                                                   \
        (info)->ofaCount = (profile)->engines.ofa;                                                                     \
        (info)->memorySizeMB = (profile)->memory_mib;                                                                  \
    } while (0)

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned profile_enum,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(info);
    LEAVE_ON_ERROR(find_card(device, &found));
    LEAVE_ON_ERROR(find_by_enum(found.card, profile_enum, &profile));
    memset(info, 0, sizeof *info);
    DESCRIBE(info, profile);
    LEAVE(NVML_SUCCESS);
}

/* Fill the structure whose version tag the caller has set: version 2 or 3. The tag is 0 afterwards. */
static nvmlReturn_t describe(const struct profile *profile, void *structure) {
    unsigned version = *(unsigned *)structure;
    if (version == VERSION_TAG(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        nvmlGpuInstanceProfileInfo_v2_t *info = structure;
        memset(info, 0, sizeof *info);
        DESCRIBE(info, profile);
        snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
        return NVML_SUCCESS;
    }
    if (version == VERSION_TAG(nvmlGpuInstanceProfileInfo_v3_t, 3)) {
        nvmlGpuInstanceProfileInfo_v3_t *info = structure;
        memset(info, 0, sizeof *info);
        DESCRIBE(info, profile);
        snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned profile_enum, void *info) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(info);
    LEAVE_ON_ERROR(find_card(device, &found));
    LEAVE_ON_ERROR(find_by_enum(found.card, profile_enum, &profile));
    LEAVE(describe(profile, info));
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned id, void *info) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(info);
    LEAVE_ON_ERROR(find_card(device, &found));
    LEAVE_ON_ERROR(find_by_id(found.card, id, &profile));
    LEAVE(describe(profile, info));
}

/* All placements that the card allows, whether they are free or not, also while MIG mode is off. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                                  nvmlGpuInstancePlacement_t *placements,
                                                                  unsigned *count) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(count);
    LEAVE_ON_ERROR(find_card(device, &found));
    LEAVE_ON_ERROR(find_by_id(found.card, id, &profile));
    *count = profile->n_placements;
    for (unsigned i = 0; placements && i < profile->n_placements; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){profile->placements[i].start, profile->placements[i].size};
    LEAVE(NVML_SUCCESS);
}

/* Counts compute slices, as nvidia-smi's Free does: it may be more than there are places for. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned id, unsigned *count) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(count);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (!found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    LEAVE_ON_ERROR(find_by_id(found.card, id, &profile));
    unsigned of_profile = 0, slices = 0;
    for (int i = 0; i < MAX_GPU_INSTANCES; i++) {
        const struct gpu_instance *instance = &found.card->instances[i];
        if (!instance->exists)
            continue;
        slices += found.card->profiles[instance->profile].slices;
        of_profile += &found.card->profiles[instance->profile] == profile;
    }
    unsigned free_slices = slices < found.card->compute_slices ? found.card->compute_slices - slices : 0;
    unsigned by_slices = free_slices / profile->slices;
    unsigned by_count = of_profile < profile->max_instances ? profile->max_instances - of_profile : 0;
    *count = by_slices < by_count ? by_slices : by_count;
    LEAVE(NVML_SUCCESS);
}

/* ---- GPU instances ---- */

static int engine_is_short(uint32_t is_exclusive, uint32_t wanted, uint32_t taken, uint32_t there) {
    return is_exclusive && wanted + taken > there;
}

/* Whether an instance of `profile` fits beside the others at this placement. */
static int has_room(const struct card *card, const struct profile *profile, const struct placement *place) {
    struct engines taken = {0};
    unsigned of_profile = 0;
    for (int i = 0; i < MAX_GPU_INSTANCES; i++) {
        const struct gpu_instance *instance = &card->instances[i];
        if (!instance->exists)
            continue;
        const struct profile *other = &card->profiles[instance->profile];
        const struct placement *there = &other->placements[instance->placement];
        if (place->start < there->start + there->size && there->start < place->start + place->size)
            return 0;
        of_profile += other == profile;
        taken.copy += other->engines.copy;
        taken.decoders += other->engines.decoders;
        taken.encoders += other->engines.encoders;
        taken.jpeg += other->engines.jpeg;
        taken.ofa += other->engines.ofa;
    }
    const struct engines *wanted = &profile->engines, *all = &card->engines, *exclusive = &card->exclusive;
    return of_profile < profile->max_instances &&
           !engine_is_short(exclusive->copy, wanted->copy, taken.copy, all->copy) &&
           !engine_is_short(exclusive->decoders, wanted->decoders, taken.decoders, all->decoders) &&
           !engine_is_short(exclusive->encoders, wanted->encoders, taken.encoders, all->encoders) &&
           !engine_is_short(exclusive->jpeg, wanted->jpeg, taken.jpeg, all->jpeg) &&
           !engine_is_short(exclusive->ofa, wanted->ofa, taken.ofa, all->ofa);
}

static nvmlReturn_t create(struct card *card, const struct profile *profile, unsigned place,
                           nvmlGpuInstance_t *instance) {
    unsigned id = profile->placements[place].instance_id;
    if (card->instances[id].exists || !has_room(card, profile, &profile->placements[place]))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    begin_change(card);
    card->instances[id] = (struct gpu_instance){.exists = 1,
                                                .profile = (uint32_t)(profile - card->profiles),
                                                .placement = place,
                                                .serial = ++card->serial};
    add_event(card, NVML_EVENT_MIG_CONFIG_CHANGE, 0, id);
    end_change();
    *instance = gpu_instance_handle(card, id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(instance);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (!found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    LEAVE_ON_ERROR(find_by_id(found.card, id, &profile));
    for (unsigned i = 0; i < profile->n_placements; i++)
        if (create(found.card, profile, profile->order[i], instance) == NVML_SUCCESS)
            LEAVE(NVML_SUCCESS);
    LEAVE(NVML_ERROR_INSUFFICIENT_RESOURCES);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id,
                                                             const nvmlGpuInstancePlacement_t *placement,
                                                             nvmlGpuInstance_t *instance) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(placement && instance);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (!found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    LEAVE_ON_ERROR(find_by_id(found.card, id, &profile));
    for (unsigned i = 0; i < profile->n_placements; i++)
        if (profile->placements[i].start == placement->start && profile->placements[i].size == placement->size)
            LEAVE(create(found.card, profile, i, instance));
    LEAVE(NVML_ERROR_INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances,
                                              unsigned *count) {
    const struct profile *profile;
    struct found found;
    ENTER();
    NEEDS(instances && count);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (!found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    LEAVE_ON_ERROR(find_by_id(found.card, id, &profile));
    *count = 0;
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++) {
        const struct gpu_instance *instance = &found.card->instances[i];
        if (instance->exists && &found.card->profiles[instance->profile] == profile)
            instances[(*count)++] = gpu_instance_handle(found.card, i);
    }
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    struct found found;
    ENTER();
    NEEDS(instance);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (found.card->mig_switch == NOT_CAPABLE)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (id >= MAX_GPU_INSTANCES || !found.card->instances[id].exists)
        LEAVE(NVML_ERROR_NOT_FOUND);
    *instance = gpu_instance_handle(found.card, id);
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    struct found found;
    ENTER();
    NEEDS(info);
    LEAVE_ON_ERROR(find_gpu_instance(instance, &found));
    const struct profile *profile = &found.card->profiles[found.gpu_instance->profile];
    const struct placement *place = &profile->placements[found.gpu_instance->placement];
    *info = (nvmlGpuInstanceInfo_t){.device = card_handle(found.card),
                                    .id = found.gpu_instance_id,
                                    .profileId = profile->id,
                                    .placement = {place->start, place->size}};
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_gpu_instance(instance, &found));
    for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++)
        if (found.gpu_instance->compute[ci].exists)
            LEAVE(NVML_ERROR_IN_USE);
    if (has_process(found.card, found.gpu_instance_id, NO_INSTANCE))
        LEAVE(NVML_ERROR_IN_USE);
    begin_change(found.card);
    found.gpu_instance->exists = 0;
    add_event(found.card, NVML_EVENT_MIG_CONFIG_CHANGE, 0, found.gpu_instance_id);
    end_change();
    LEAVE(NVML_SUCCESS);
}
