/* The library itself, the system, and what can be asked of cards and MIG devices. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handles.h"
#include "openers.h"

#define MIB (1024ull * 1024)

static nvmlReturn_t copy_text(char *target, unsigned size, const char *text) {
    if (!target)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(target, text);
    return NVML_SUCCESS;
}

/* ---- library and system ---- */

EXPORT nvmlReturn_t nvmlInit_v2(void) { return open_session(); }

EXPORT nvmlReturn_t nvmlInit(void) { return open_session(); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags; /* whether cards are attached makes no difference here */
    return open_session();
}

EXPORT nvmlReturn_t nvmlShutdown(void) { return close_session(); }

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "NVML was not first initialized with nvmlInit()";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED: return "Already Initialized";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_INSUFFICIENT_POWER: return "Insufficient External Power";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_IRQ_ISSUE: return "Interrupt Request Issue";
    case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_CORRUPTED_INFOROM: return "Corrupted infoROM";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires restart";
    case NVML_ERROR_OPERATING_SYSTEM: return "The operating system has blocked the request.";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_NO_DATA: return "No data";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    case NVML_ERROR_UNKNOWN: break;
    }
    return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER();
    LEAVE(copy_text(version, length, machine->driver_version));
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    ENTER();
    LEAVE(copy_text(version, length, machine->nvml_version));
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER();
    NEEDS(version);
    *version = machine->cuda_version;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER();
    NEEDS(version);
    *version = machine->cuda_version;
    LEAVE(NVML_SUCCESS);
}

/* ---- handles ---- */

/* The card with this index among those that are enumerated; NULL: there are not so many. */
static struct card *card_at(unsigned index) {
    for (unsigned i = 0; i < machine->n_cards; i++)
        if (machine->cards[i].presence != REMOVED && index-- == 0)
            return &machine->cards[i];
    return NULL;
}

static nvmlReturn_t give_card(const struct card *card, nvmlDevice_t *device) {
    if (!card)
        return NVML_ERROR_NOT_FOUND;
    if (card->presence == LOST)
        return NVML_ERROR_GPU_IS_LOST;
    open_card(card);
    *device = card_handle(card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER();
    NEEDS(count);
    for (*count = 0; card_at(*count); ++*count)
        ;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    ENTER();
    NEEDS(device);
    const struct card *card = card_at(index);
    LEAVE(card ? give_card(card, device) : NVML_ERROR_INVALID_ARGUMENT);
}

/* Programs of before version 2 of these names call them without it; parameters and answers are the same. */
EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER();
    NEEDS(uuid && device);
    for (unsigned i = 0; i < machine->n_cards; i++) {
        const struct card *card = &machine->cards[i];
        if (card->presence == REMOVED)
            continue;
        if (strcmp(card->uuid, uuid) == 0)
            LEAVE(give_card(card, device));
        for (unsigned gi = 0; card->presence == PRESENT && gi < MAX_GPU_INSTANCES; gi++)
            for (unsigned ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++)
                if (card->instances[gi].compute[ci].exists && strcmp(card->mig_uuids[gi][ci], uuid) == 0) {
                    *device = mig_handle(card, gi, ci);
                    LEAVE(NVML_SUCCESS);
                }
    }
    LEAVE(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    unsigned domain, bus, number;
    ENTER();
    NEEDS(bus_id && device);
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &number) != 3)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < machine->n_cards; i++) {
        const struct card *card = &machine->cards[i];
        int is_there = card->pci_domain == domain && card->pci_bus == bus && card->pci_device == number;
        if (is_there && card->presence != REMOVED)
            LEAVE(give_card(card, device));
    }
    LEAVE(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    struct found found;
    ENTER();
    NEEDS(index);
    LEAVE_ON_ERROR(find_card(device, &found));
    for (*index = 0; card_at(*index) != found.card; ++*index)
        ;
    LEAVE(NVML_SUCCESS);
}

/* ---- cards and MIG devices ---- */

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    char text[sizeof((struct card *)0)->name + sizeof((struct profile *)0)->name + 2];
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_device(device, &found));
    if (!found.gpu_instance)
        LEAVE(copy_text(name, length, found.card->name));
    const struct profile *profile = &found.card->profiles[found.gpu_instance->profile];
    snprintf(text, sizeof text, "%s %s", found.card->name,
             profile->compute_profiles[found.compute_instance->profile].name);
    LEAVE(copy_text(name, length, text));
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_device(device, &found));
    const char *text =
        found.gpu_instance ? found.card->mig_uuids[found.gpu_instance_id][found.compute_instance_id] : found.card->uuid;
    LEAVE(copy_text(uuid, length, text));
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    struct found found;
    ENTER();
    NEEDS(minor);
    LEAVE_ON_ERROR(find_card(device, &found));
    *minor = found.card->minor;
    LEAVE(NVML_SUCCESS);
}

void describe_pci(const struct card *card, nvmlPciInfo_t *pci) {
    *pci = (nvmlPciInfo_t){.domain = card->pci_domain,
                           .bus = card->pci_bus,
                           .device = card->pci_device,
                           .pciDeviceId = card->pci_device_id,
                           .pciSubSystemId = card->pci_subsystem_id};
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", card->pci_domain & 0xffff,
             card->pci_bus & 0xff, card->pci_device & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", card->pci_domain, card->pci_bus, card->pci_device);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    struct found found;
    ENTER();
    NEEDS(pci);
    LEAVE_ON_ERROR(find_card(device, &found));
    describe_pci(found.card, pci);
    LEAVE(NVML_SUCCESS);
}

/* The bytes that a device has, and those that processes use of it. */
static void measure_memory(const struct found *found, unsigned long long *total, unsigned long long *used) {
    unsigned number = (unsigned)(found->card - machine->cards);
    *total = found->card->memory_bytes;
    if (found->gpu_instance)
        *total = found->card->profiles[found->gpu_instance->profile].memory_mib * MIB;
    *used = 0;
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &machine->processes[i];
        if (process->pid && process->card == number &&
            (!found->gpu_instance || process->gpu_instance == found->gpu_instance_id))
            *used += process->memory_bytes;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct found found;
    ENTER();
    NEEDS(memory);
    LEAVE_ON_ERROR(find_device(device, &found));
    measure_memory(&found, &memory->total, &memory->used);
    memory->free = memory->total - memory->used;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct found found;
    ENTER();
    NEEDS(memory);
    if (memory->version != VERSION_TAG(nvmlMemory_v2_t, 2))
        LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    LEAVE_ON_ERROR(find_device(device, &found));
    measure_memory(&found, &memory->total, &memory->used);
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    LEAVE(NVML_SUCCESS);
}

/* The bytes of the window through which the host sees a device's memory: a power of two, as PCI sizes windows, that the
 * card's memory fits into; an instance has its memory slices' part but one MiB (MIG User Guide: of 65536 MiB a 3g.20gb
 * has 32767). */
static unsigned long long measure_window(const struct found *found) {
    unsigned long long bytes = MIB;
    unsigned slices = 0;
    while (bytes < found->card->memory_bytes)
        bytes *= 2;
    if (!found->gpu_instance)
        return bytes;
    for (unsigned i = 0; i < found->card->n_profiles; i++) {
        const struct profile *profile = &found->card->profiles[i];
        for (unsigned j = 0; j < profile->n_placements; j++) {
            unsigned end = profile->placements[j].start + profile->placements[j].size;
            slices = end > slices ? end : slices;
        }
    }
    const struct profile *own = &found->card->profiles[found->gpu_instance->profile];
    return bytes / slices * own->placements[found->gpu_instance->placement].size - MIB;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    struct found found;
    ENTER();
    NEEDS(memory);
    LEAVE_ON_ERROR(find_device(device, &found));
    *memory = (nvmlBAR1Memory_t){.bar1Total = measure_window(&found)};
    memory->bar1Free = memory->bar1Total;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    struct found found;
    ENTER();
    NEEDS(major && minor);
    LEAVE_ON_ERROR(find_device(device, &found));
    *major = (int)found.card->cuda_major;
    *minor = (int)found.card->cuda_minor;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
    struct found found;
    ENTER();
    NEEDS(architecture);
    LEAVE_ON_ERROR(find_device(device, &found));
    *architecture = found.card->architecture;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand) {
    struct found found;
    ENTER();
    NEEDS(brand);
    LEAVE_ON_ERROR(find_device(device, &found));
    *brand = found.card->brand;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    struct found found;
    ENTER();
    NEEDS(node);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (found.card->memory_node < 0) /* only where the card's memory is a NUMA node of the machine */
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    *node = (unsigned)found.card->memory_node;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *nodes,
                                                unsigned scope) {
    const unsigned bits = 8 * sizeof *nodes;
    struct found found;
    ENTER();
    (void)scope; /* node and socket are one here */
    LEAVE_ON_ERROR(find_device(device, &found));
    unsigned node = found.card->numa_node < 0 ? 0 : (unsigned)found.card->numa_node;
    if (!nodes || size <= node / bits)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    memset(nodes, 0, size * sizeof *nodes);
    nodes[node / bits] = 1ul << node % bits;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    struct found found;
    ENTER();
    NEEDS(mode);
    LEAVE_ON_ERROR(find_card(device, &found));
    *mode = found.card->compute_mode;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode) {
    struct found found;
    ENTER();
    LEAVE_ON_ERROR(find_card(device, &found));
    if (mode > 3)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    if (found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    found.card->compute_mode = mode;
    LEAVE(NVML_SUCCESS);
}

/* No card of the machine is a vGPU, or gives vGPUs to others. */
EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned *mode) {
    struct found found;
    ENTER();
    NEEDS(mode);
    LEAVE_ON_ERROR(find_card(device, &found));
    *mode = found.card->is_passthrough ? NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH : NVML_GPU_VIRTUALIZATION_MODE_NONE;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *waiting) {
    struct found found;
    ENTER();
    NEEDS(current && waiting);
    LEAVE_ON_ERROR(find_card(device, &found));
    *current = *waiting = 1;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                              unsigned *is_pending, unsigned *is_failed) {
    struct found found;
    ENTER();
    NEEDS(correctable && uncorrectable && is_pending && is_failed);
    LEAVE_ON_ERROR(find_card(device, &found));
    *correctable = found.card->remapped_correctable;
    *uncorrectable = found.card->remapped_uncorrectable;
    *is_pending = found.card->remap_pending;
    *is_failed = found.card->remap_failed;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    struct found found;
    ENTER();
    NEEDS(reasons);
    LEAVE_ON_ERROR(find_card(device, &found));
    *reasons = found.card->clocks_event_reasons;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct found found;
    ENTER();
    NEEDS(values);
    LEAVE_ON_ERROR(find_card(device, &found));
    for (int i = 0; i < count; i++) {
        int is_energy = values[i].fieldId == NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION;
        int is_known = is_energy || values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
        values[i].nvmlReturn = is_known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[i].valueType = is_energy ? NVML_VALUE_TYPE_UNSIGNED_LONG_LONG : NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.ullVal = !is_known ? 0 : is_energy ? found.card->energy_mj : found.card->recovery_action;
    }
    LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) {
    struct found found;
    nvmlReturn_t result = find_device(device, &found);
    if (result != NVML_SUCCESS)
        return result;
    unsigned number = (unsigned)(found.card - machine->cards), there = 0;
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &machine->processes[i];
        int is_in = !found.gpu_instance || (process->gpu_instance == found.gpu_instance_id &&
                                            process->compute_instance == found.compute_instance_id);
        if (!process->pid || process->card != number || !is_in)
            continue;
        if (infos && there < *count)
            infos[there] = (nvmlProcessInfo_t){.pid = process->pid,
                                               .usedGpuMemory = process->memory_bytes,
                                               .gpuInstanceId = process->gpu_instance,
                                               .computeInstanceId = process->compute_instance};
        there++;
    }
    int is_enough = there <= *count && (infos || there == 0);
    *count = there;
    return is_enough ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *infos) {
    ENTER();
    NEEDS(count);
    LEAVE(list_processes(device, count, infos));
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             nvmlProcessInfo_t *infos) {
    struct found found;
    ENTER();
    NEEDS(count);
    (void)infos; /* every process here computes */
    LEAVE_ON_ERROR(find_device(device, &found));
    *count = 0;
    LEAVE(NVML_SUCCESS);
}
