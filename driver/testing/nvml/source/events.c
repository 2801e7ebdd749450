/* Event sets. Controls, tests and changes of instances enter events into the state; a set delivers those that are newer
 * than itself. */

#include <stdlib.h>
#include <time.h>

#include "handles.h"

#define POLL_NS 2000000 /* between two looks at the state: a wait costs little and ends soon */
#define SUPPORTED (NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC | NVML_EVENT_XID | NVML_EVENT_MIG_CONFIG_CHANGE)

struct event_set {
    uint64_t seen;                 /* serial of the last event that it delivered or is older than */
    uint64_t types[MAX_CARDS];     /* registered types of each card's events */
};

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER();
    NEEDS(set);
    *set = calloc(1, sizeof **set);
    if (!*set)
        LEAVE(NVML_ERROR_MEMORY);
    (*set)->seen = machine->event_serial;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER();
    NEEDS(set);
    free(set);
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    struct found found;
    ENTER();
    NEEDS(types);
    LEAVE_ON_ERROR(find_card(device, &found));
    *types = SUPPORTED;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    struct found found;
    ENTER();
    NEEDS(set);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (types & ~(unsigned long long)SUPPORTED)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    set->types[found.card - machine->cards] |= types;
    LEAVE(NVML_SUCCESS);
}

/* The oldest event that the set has not delivered; NULL: there is none. */
static const struct event *next_event(struct event_set *set) {
    const struct event *next = NULL;
    for (int i = 0; i < MAX_EVENTS; i++) {
        const struct event *event = &machine->events[i];
        if (event->serial > set->seen && event->type & set->types[event->card] &&
            (!next || event->serial < next->serial))
            next = event;
    }
    if (next)
        set->seen = next->serial;
    return next;
}

static int has_lost_card(const struct event_set *set) {
    for (unsigned i = 0; i < machine->n_cards; i++)
        if (set->types[i] && machine->cards[i].presence != PRESENT)
            return 1;
    return 0;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    const struct timespec interval = {.tv_nsec = POLL_NS};
    for (uint64_t waited_ns = 0;; waited_ns += POLL_NS) {
        ENTER();
        NEEDS(data && set);
        const struct event *event = next_event(set);
        if (event) {
            *data = (nvmlEventData_t){.device = card_handle(&machine->cards[event->card]),
                                      .eventType = event->type,
                                      .eventData = event->data,
                                      .gpuInstanceId = event->gpu_instance,
                                      .computeInstanceId = event->compute_instance};
            LEAVE(NVML_SUCCESS);
        }
        if (has_lost_card(set))
            LEAVE(NVML_ERROR_GPU_IS_LOST);
        leave(NVML_SUCCESS);
        if (waited_ns >= timeout_ms * 1000000ull)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&interval, NULL);
    }
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
