/* Compute instances, and the MIG devices that they are. */

#include <stdio.h>
#include <string.h>

#include "handles.h"
#include "processes.h"

static const struct profile *profile_of(const struct found *found) {
    return &found->card->profiles[found->gpu_instance->profile];
}

/* ---- profiles ---- */

static nvmlReturn_t find_by_enum(const struct profile *profile, unsigned profile_enum, unsigned engine_profile,
                                 const struct compute_profile **compute) {
    if (profile_enum >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT ||
        engine_profile != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < profile->n_compute_profiles; i++)
        if (profile->compute_profiles[i].profile_enum == profile_enum) {
            *compute = &profile->compute_profiles[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t find_by_id(const struct profile *profile, unsigned id, const struct compute_profile **compute) {
    for (unsigned i = 0; i < profile->n_compute_profiles; i++)
        if (profile->compute_profiles[i].id == id) {
            *compute = &profile->compute_profiles[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_INVALID_ARGUMENT;
}

#define DESCRIBE(info, profile, compute)                                                                               \
    do {                                                                                                               \
        (info)->id = (compute)->id;                                                                                    \
        (info)->sliceCount = (compute)->slices;                                                                        \
        (info)->instanceCount = (profile)->slices / (compute)->slices;                                                 \
        (info)->multiprocessorCount = (compute)->multiprocessors;                                                      \
        (info)->sharedCopyEngineCount = (profile)->engines.copy;                                                       \
        (info)->sharedDecoderCount = (profile)->engines.decoders;                                                      \
        (info)->sharedEncoderCount = (profile)->engines.encoders;                                                      \
        (info)->sharedJpegCount = (profile)->engines.jpeg;                                                             \
        (info)->sharedOfaCount = (profile)->engines.ofa;                                                               \
    } while (0)

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned profile_enum,
                                                                 unsigned engine_profile,
                                                                 nvmlComputeInstanceProfileInfo_t *info) {
    const struct compute_profile *compute;
    struct found found;
    ENTER();
    NEEDS(info);
    LEAVE_ON_ERROR(find_gpu_instance(instance, &found));
    LEAVE_ON_ERROR(find_by_enum(profile_of(&found), profile_enum, engine_profile, &compute));
    DESCRIBE(info, profile_of(&found), compute);
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned profile_enum,
                                                                  unsigned engine_profile,
                                                                  nvmlComputeInstanceProfileInfo_v2_t *info) {
    const struct compute_profile *compute;
    struct found found;
    ENTER();
    NEEDS(info);
    if (info->version != VERSION_TAG(nvmlComputeInstanceProfileInfo_v2_t, 2))
        LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    LEAVE_ON_ERROR(find_gpu_instance(instance, &found));
    LEAVE_ON_ERROR(find_by_enum(profile_of(&found), profile_enum, engine_profile, &compute));
    DESCRIBE(info, profile_of(&found), compute);
    snprintf(info->name, sizeof info->name, "%s", compute->name);
    LEAVE(NVML_SUCCESS);
}

/* ---- compute instances ---- */

/* Whether compute slices of the GPU instance are free. */
static int is_free(const struct found *found, unsigned start, unsigned size) {
    if (start + size > profile_of(found)->slices)
        return 0;
    for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
        const struct compute_instance *there = &found->gpu_instance->compute[ci];
        if (there->exists && start < there->start + there->size && there->start < start + size)
            return 0;
    }
    return 1;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned id,
                                                                       unsigned *count) {
    const struct compute_profile *compute;
    struct found found;
    ENTER();
    NEEDS(count);
    LEAVE_ON_ERROR(find_gpu_instance(instance, &found));
    LEAVE_ON_ERROR(find_by_id(profile_of(&found), id, &compute));
    *count = 0;
    for (unsigned start = 0; start < profile_of(&found)->slices;)
        if (is_free(&found, start, compute->slices)) {
            start += compute->slices;
            ++*count;
        } else {
            start++;
        }
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned id,
                                                                        nvmlGpuInstancePlacement_t *placements,
                                                                        unsigned *count) {
    const struct compute_profile *compute;
    struct found found;
    ENTER();
    NEEDS(count);
    LEAVE_ON_ERROR(find_gpu_instance(instance, &found));
    LEAVE_ON_ERROR(find_by_id(profile_of(&found), id, &compute));
    *count = 0;
    for (unsigned start = 0; start + compute->slices <= profile_of(&found)->slices; start++) {
        if (placements)
            placements[*count] = (nvmlGpuInstancePlacement_t){start, compute->slices};
        ++*count;
    }
    LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t create(const struct found *found, const struct compute_profile *compute, unsigned start,
                           nvmlComputeInstance_t *instance) {
    unsigned ci = 0;
    while (ci < MAX_COMPUTE_INSTANCES && found->gpu_instance->compute[ci].exists)
        ci++;
    if (ci == MAX_COMPUTE_INSTANCES || !is_free(found, start, compute->slices))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    begin_change(found->card);
    found->gpu_instance->compute[ci] =
        (struct compute_instance){.exists = 1,
                                  .profile = (uint32_t)(compute - profile_of(found)->compute_profiles),
                                  .start = start,
                                  .size = compute->slices,
                                  .serial = ++found->card->serial};
    end_change();
    *instance = compute_instance_handle(found->card, found->gpu_instance_id, ci);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                         nvmlComputeInstance_t *instance) {
    const struct compute_profile *compute;
    struct found found;
    ENTER();
    NEEDS(instance);
    LEAVE_ON_ERROR(find_gpu_instance(gpu_instance, &found));
    LEAVE_ON_ERROR(find_by_id(profile_of(&found), id, &compute));
    for (unsigned start = 0; start < profile_of(&found)->slices; start++)
        if (is_free(&found, start, compute->slices))
            LEAVE(create(&found, compute, start, instance));
    LEAVE(NVML_ERROR_INSUFFICIENT_RESOURCES);
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                                      const nvmlGpuInstancePlacement_t *placement,
                                                                      nvmlComputeInstance_t *instance) {
    const struct compute_profile *compute;
    struct found found;
    ENTER();
    NEEDS(placement && instance);
    LEAVE_ON_ERROR(find_gpu_instance(gpu_instance, &found));
    LEAVE_ON_ERROR(find_by_id(profile_of(&found), id, &compute));
    if (placement->size != compute->slices || placement->start + placement->size > profile_of(&found)->slices)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    LEAVE(create(&found, compute, placement->start, instance));
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                       nvmlComputeInstance_t *instances, unsigned *count) {
    const struct compute_profile *compute;
    struct found found;
    ENTER();
    NEEDS(instances && count);
    LEAVE_ON_ERROR(find_gpu_instance(gpu_instance, &found));
    LEAVE_ON_ERROR(find_by_id(profile_of(&found), id, &compute));
    *count = 0;
    for (unsigned ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
        const struct compute_instance *there = &found.gpu_instance->compute[ci];
        if (there->exists && &profile_of(&found)->compute_profiles[there->profile] == compute)
            instances[(*count)++] = compute_instance_handle(found.card, found.gpu_instance_id, ci);
    }
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                          nvmlComputeInstance_t *instance) {
    struct found found;
    ENTER();
    NEEDS(instance);
    LEAVE_ON_ERROR(find_gpu_instance(gpu_instance, &found));
    if (id >= MAX_COMPUTE_INSTANCES || !found.gpu_instance->compute[id].exists)
        LEAVE(NVML_ERROR_NOT_FOUND);
    *instance = compute_instance_handle(found.card, found.gpu_instance_id, id);
    LEAVE(NVML_SUCCESS);
}

/* `device` is the handle of the MIG device. */
EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
    struct found found;
    ENTER();
    NEEDS(info);
    LEAVE_ON_ERROR(find_compute_instance(instance, &found));
    const struct compute_instance *there = found.compute_instance;
    *info = (nvmlComputeInstanceInfo_t){
        .device = mig_handle(found.card, found.gpu_instance_id, found.compute_instance_id),
        .gpuInstance = gpu_instance_handle(found.card, found.gpu_instance_id),
        .id = found.compute_instance_id,
        .profileId = profile_of(&found)->compute_profiles[there->profile].id,
        .placement = {there->start, there->size}};
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance) {
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_compute_instance(instance, &found));
    if (has_process(found.card, found.gpu_instance_id, found.compute_instance_id))
        LEAVE(NVML_ERROR_IN_USE);
    begin_change(found.card);
    found.compute_instance->exists = 0;
    end_change();
    LEAVE(NVML_SUCCESS);
}

/* ---- MIG devices ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    struct found found;
    ENTER();
    NEEDS(mig);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (found.card->mig_current && index >= found.card->compute_slices)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned gi = 0; gi < MAX_GPU_INSTANCES; gi++)
        for (unsigned ci = 0; found.card->instances[gi].exists && ci < MAX_COMPUTE_INSTANCES; ci++)
            if (found.card->instances[gi].compute[ci].exists && index-- == 0) {
                *mig = mig_handle(found.card, gi, ci);
                LEAVE(NVML_SUCCESS);
            }
    LEAVE(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    struct found found;
    ENTER();
    NEEDS(is_mig);
    LEAVE_ON_ERROR(find_device(device, &found));
    *is_mig = found.gpu_instance != NULL;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    struct found found;
    ENTER();
    NEEDS(id);
    LEAVE_ON_ERROR(find_mig(device, &found));
    *id = found.gpu_instance_id;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    struct found found;
    ENTER();
    NEEDS(id);
    LEAVE_ON_ERROR(find_mig(device, &found));
    *id = found.compute_instance_id;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    struct found found;
    ENTER();
    NEEDS(device);
    LEAVE_ON_ERROR(find_mig(mig, &found));
    *device = card_handle(found.card);
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    struct found found;
    ENTER();
    NEEDS(attributes);
    LEAVE_ON_ERROR(find_device(device, &found));
    if (!found.gpu_instance) /* NVML has attributes of MIG devices only */
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    const struct profile *profile = profile_of(&found);
    const struct compute_profile *compute = &profile->compute_profiles[found.compute_instance->profile];
    *attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = compute->multiprocessors,
                                           .sharedCopyEngineCount = profile->engines.copy,
                                           .sharedDecoderCount = profile->engines.decoders,
                                           .sharedEncoderCount = profile->engines.encoders,
                                           .sharedJpegCount = profile->engines.jpeg,
                                           .sharedOfaCount = profile->engines.ofa,
                                           .gpuInstanceSliceCount = profile->slices,
                                           .computeInstanceSliceCount = compute->slices,
                                           .memorySizeMB = profile->memory_mib};
    LEAVE(NVML_SUCCESS);
}
