/* GPM: the use of cards and of GPU instances between two samples.
 *
 * A control sets how much each metric is used from then on; the state keeps the time that was used before. A sample has
 * that time up to now, so two samples give the average between them, whatever changed there. */

#include <math.h>
#include <stdlib.h>

#include "handles.h"

#define GPM_VERSION 1      /* of nvmlGpmMetricsGet_t and nvmlGpmSupport_t */
#define HOPPER 9           /* NVML_DEVICE_ARCH_HOPPER, the first with GPM */
#define REFRESH_US 100000  /* samples are refreshed at this interval (nvmlGpmMetricsGet) */
#define MOST_METRICS 477   /* NVML_GPM_METRIC_MAX of the newest bindings: more are no array of a caller's */
#define DRAM_BW 10         /* NVML_GPM_METRIC_DRAM_BW_UTIL */

struct gpm_sample {
    int is_taken;
    const struct card *card;
    unsigned gpu_instance; /* NO_INSTANCE: of the whole card */
    uint32_t serial, resets, loads; /* of the instance, of the card, of the driver: others begin to count again */
    uint64_t at_us;
    double used_us[GPM_METRICS];
};

static const struct {
    unsigned id;
    nvmlGpmMetricInfo_t info;
} metrics[GPM_METRICS] = {
    {1, {"GRACT", "Graphics Engine Activity", "%"}}, {2, {"SMACT", "SM Activity", "%"}},
    {3, {"SMOCC", "SM Occupancy", "%"}},             {5, {"TENSO", "Tensor Activity", "%"}},
    {DRAM_BW, {"DRAMA", "DRAM Activity", "%"}},
};

static int has_gpm(const struct card *card) { return card->architecture >= HOPPER; }

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    struct found found;
    ENTER();
    NEEDS(support);
    if (support->version != GPM_VERSION)
        LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    LEAVE_ON_ERROR(find_card(device, &found));
    support->isSupportedDevice = has_gpm(found.card);
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    ENTER();
    NEEDS(sample);
    *sample = calloc(1, sizeof **sample);
    LEAVE(*sample ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    ENTER();
    NEEDS(sample);
    free(sample);
    LEAVE(NVML_SUCCESS);
}

static void take(nvmlGpmSample_t sample, const struct card *card, const struct activity *activity) {
    *sample = (struct gpm_sample){.is_taken = 1,
                                  .card = card,
                                  .gpu_instance = NO_INSTANCE,
                                  .resets = card->resets,
                                  .loads = machine->loads,
                                  .at_us = now_us()};
    uint64_t passed_us = sample->at_us > activity->since_us ? sample->at_us - activity->since_us : 0;
    for (int i = 0; i < GPM_METRICS; i++)
        sample->used_us[i] = activity->used_us[i] + activity->percent[i] / 100 * (double)passed_us;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    struct found found;
    ENTER();
    NEEDS(sample);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (!has_gpm(found.card))
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    take(sample, found.card, &found.card->activity);
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gpu_instance, nvmlGpmSample_t sample) {
    struct found found;
    ENTER();
    NEEDS(sample);
    LEAVE_ON_ERROR(find_card(device, &found));
    if (!has_gpm(found.card) || !found.card->mig_current)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (gpu_instance >= MAX_GPU_INSTANCES || !found.card->instances[gpu_instance].exists)
        LEAVE(NVML_ERROR_NOT_FOUND);
    const struct gpu_instance *instance = &found.card->instances[gpu_instance];
    take(sample, found.card, &instance->activity);
    sample->gpu_instance = gpu_instance;
    sample->serial = instance->serial;
    LEAVE(NVML_SUCCESS);
}

/* Whether both samples are of one card or instance, and the first one is the older one. */
static int are_of_one(const struct gpm_sample *first, const struct gpm_sample *second) {
    return first->is_taken && second->is_taken && first->card == second->card &&
           first->gpu_instance == second->gpu_instance && first->serial == second->serial &&
           first->resets == second->resets && first->loads == second->loads && first->at_us <= second->at_us;
}

static void measure(nvmlGpmMetric_t *metric, const struct gpm_sample *first, const struct gpm_sample *second) {
    double passed_us = (double)(second->at_us - first->at_us);
    metric->value = 0;
    metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < GPM_METRICS; i++) {
        if (metrics[i].id != metric->metricId)
            continue;
        metric->metricInfo = metrics[i].info;
        metric->nvmlReturn = NVML_SUCCESS;
        if (passed_us >= REFRESH_US)
            metric->value = (second->used_us[i] - first->used_us[i]) / passed_us * 100;
        else if (metric->metricId == DRAM_BW) /* as on an H100: 0 of 0 bytes */
            metric->value = NAN;
    }
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    ENTER();
    NEEDS(get);
    if (get->version != GPM_VERSION)
        LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    NEEDS(get->sample1 && get->sample2 && are_of_one(get->sample1, get->sample2));
    NEEDS(get->numMetrics <= MOST_METRICS);
    for (unsigned i = 0; i < get->numMetrics; i++)
        measure(&get->metrics[i], get->sample1, get->sample2);
    LEAVE(NVML_SUCCESS);
}
