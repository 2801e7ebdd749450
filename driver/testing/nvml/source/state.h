/* The state of the machine: one file that every process maps, changed only while its lock (flock) is held.
 *
 * driver/testing/nvml/layout.py has the same structures and fills them from Kerf's table of models; there is no table
 * of models here. The compiler checks that both sides agree on the sizes. Nothing here says who made what. */

#ifndef STATE_H
#define STATE_H

#include "abi.h"

enum {
    MAX_CARDS = 16,
    MAX_PROFILES = 18,
    MAX_PLACEMENTS = 8,
    MAX_GPU_INSTANCES = 16,
    MAX_COMPUTE_INSTANCES = 8,
    MAX_COMPUTE_PROFILES = 9,
    MAX_PROCESSES = 64,
    MAX_EVENTS = 64,
    MAX_FAULTS = 16,
    MAX_MINORS = 32,
    GPM_METRICS = 5,
    MAX_NVLINKS = 18, /* NVML_NVLINK_MAX_LINKS of NVML 13.0 */
};

#define MAGIC 0x6b66766du
#define UUID_SIZE 48

enum presence { PRESENT = 0, LOST = 1, REMOVED = 2 }; /* LOST: fell off the bus; REMOVED: no longer enumerated */
enum mig_switch { NOT_CAPABLE = 0, NEEDS_RESET = 1, IMMEDIATE = 2 };
enum fault_action { FAULT_NONE = 0, FAULT_ERROR, FAULT_DELAY, FAULT_KILL_BEFORE, FAULT_KILL_HALFWAY, FAULT_KILL_AFTER };

struct engines {
    uint32_t copy, decoders, encoders, jpeg, ofa;
};

struct compute_profile {
    uint32_t profile_enum, id, slices, multiprocessors;
    char name[32];
};

struct placement {
    uint32_t start, size;
    uint32_t instance_id; /* the id that a GPU instance at this place gets */
};

struct profile {
    uint32_t profile_enum, id, slices, max_instances, multiprocessors;
    struct engines engines;
    uint32_t n_placements, n_compute_profiles;
    uint64_t memory_mib;
    char name[32];
    struct placement placements[MAX_PLACEMENTS]; /* ascending */
    uint32_t order[MAX_PLACEMENTS];              /* in which the driver tries them when the caller names none */
    struct compute_profile compute_profiles[MAX_COMPUTE_PROFILES];
};

struct compute_instance {
    uint32_t exists, profile; /* profile: index into the GPU instance's profile's compute_profiles */
    uint32_t start, size;     /* compute slices */
    uint32_t serial;
};

/* How much of a card or instance is used, for each metric of gpm.c: how much since a time, and for how long before. */
struct activity {
    uint64_t since_us;
    double percent[GPM_METRICS], used_us[GPM_METRICS];
};

struct gpu_instance { /* at the index that is its id */
    uint32_t exists, profile, placement; /* indexes into the card's profiles, and its placements */
    uint32_t serial;
    struct compute_instance compute[MAX_COMPUTE_INSTANCES];
    struct activity activity;
};

struct nvlink {
    uint32_t is_on;
    int32_t remote; /* index of the card at its other end; -1: a switch */
};

struct card {
    uint32_t presence, mig_switch, is_passthrough, mig_current, mig_pending;
    uint32_t minor, minor_after_reset;
    uint32_t architecture, cuda_major, cuda_minor, brand, compute_mode;
    uint32_t is_persistent, is_persistent_at_load; /* persistence mode, and as it is when the driver is loaded */
    int32_t numa_node, memory_node; /* memory_node: the NUMA node of the card's own memory; -1: it is none */
    uint32_t pci_domain, pci_bus, pci_device, pci_device_id, pci_subsystem_id;
    uint32_t remapped_correctable, remapped_uncorrectable, remap_pending, remap_failed;
    uint32_t recovery_action, clocks_event_reasons;
    uint32_t compute_slices, multiprocessors;
    struct engines engines, exclusive; /* exclusive: not 0 for those that instances compete for */
    uint32_t n_profiles, serial;
    uint32_t gpu_percent, memory_percent; /* utilization rates */
    uint32_t resets, n_nvlinks;
    struct nvlink nvlinks[MAX_NVLINKS];
    uint64_t memory_bytes, energy_mj;
    struct activity activity;
    char uuid[UUID_SIZE], name[96];
    struct profile profiles[MAX_PROFILES];
    struct gpu_instance instances[MAX_GPU_INSTANCES];
    char mig_uuids[MAX_GPU_INSTANCES][MAX_COMPUTE_INSTANCES][UUID_SIZE]; /* by the ids of both instances */
};

struct process {
    uint32_t pid; /* 0: unused */
    uint32_t card, gpu_instance, compute_instance;
    uint32_t sm_percent, memory_percent; /* what it uses of the multiprocessors, and of the memory's bandwidth */
    uint64_t memory_bytes;
};

struct event {
    uint64_t serial; /* 0: unused */
    uint32_t card, gpu_instance, compute_instance;
    uint64_t type, data;
};

struct fault {
    char function[64]; /* empty: unused; "*": every function */
    uint32_t action, error;
    uint32_t skip;      /* calls before the first one that it concerns */
    uint32_t remaining; /* calls that it concerns; 0xffffffff: all */
    uint64_t delay_us;
};

struct tree { /* what /proc and /dev show, by minor number */
    uint32_t cards[MAX_MINORS];         /* index of the card, plus 1; 0: there is none */
    uint32_t gpu_instances[MAX_MINORS]; /* a bit for each id */
    uint8_t compute_instances[MAX_MINORS][MAX_GPU_INSTANCES];
};

struct state {
    uint32_t magic, size;
    uint32_t is_loaded, loads; /* whether the kernel driver is loaded, and how often it was */
    uint32_t is_tree_stale;    /* it is unknown what /proc and /dev show: write everything again */
    uint32_t is_changing, changing; /* a change of the card with this index was begun: undo has what it was */
    uint32_t n_cards;
    int32_t cuda_version;
    uint64_t event_serial;
    uint64_t clock_us; /* 0: the clock is that of the machine that this runs on */
    char driver_version[32], kernel_version[32], nvml_version[32];
    struct process processes[MAX_PROCESSES];
    struct event events[MAX_EVENTS];
    struct fault faults[MAX_FAULTS];
    struct tree tree;
    struct card cards[MAX_CARDS];
    struct card undo;
};

/* The sizes that layout.py has: given by the command that compiles. */
_Static_assert(sizeof(struct profile) == SIZEOF_PROFILE, "profile differs from layout.py");
_Static_assert(sizeof(struct gpu_instance) == SIZEOF_GPU_INSTANCE, "gpu_instance differs from layout.py");
_Static_assert(sizeof(struct card) == SIZEOF_CARD, "card differs from layout.py");
_Static_assert(sizeof(struct state) == SIZEOF_STATE, "state differs from layout.py");

#endif
