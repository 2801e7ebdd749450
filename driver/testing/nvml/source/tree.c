#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "session.h"

/* Minor numbers of capabilities, as /proc/driver/nvidia-caps/mig-minors lists them: 1 and 2 are the machine's, then
 * each GPU instance has one, followed by its compute instances'. */
#define FIRST_CAPABILITY 3
#define GPU_INSTANCES_LISTED 15
#define GPU_INSTANCE "proc/driver/nvidia/capabilities/gpu%u/mig/gi%u"
#define CAPABILITIES_OF_AN_INSTANCE (1 + MAX_COMPUTE_INSTANCES)

/* The null device (null(4)). */
#define NULL_MAJOR 1
#define NULL_MINOR 3

static void write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        return;
    if (write(file, text, strlen(text)) < 0)
        perror(path);
    close(file);
}

/* A node for programs that look for one in the driver's root: the null device, which opens and does nothing. Without the
 * right to make devices it is a link to the machine's own. */
static void write_null_node(const char *path) {
    const mode_t everyone = 0666;
    if (mknod(path, S_IFCHR | everyone, makedev(NULL_MAJOR, NULL_MINOR)) == 0)
        chmod(path, everyone); /* whatever the umask */
    else if (errno != EEXIST && symlink("/dev/null", path) != 0)
        perror(path);
}

static unsigned capability(unsigned minor, unsigned gi, unsigned place) {
    return FIRST_CAPABILITY + (minor * GPU_INSTANCES_LISTED + gi) * CAPABILITIES_OF_AN_INSTANCE + place;
}

/* Whether the file exists that these words name. */
static int exists(const char *format, unsigned minor, unsigned gi) {
    char path[PATH_MAX];
    machine_path(path, sizeof path, format, minor, gi);
    return access(path, F_OK) == 0;
}

/* Show or hide the capability `number`, whose folder is `directory`. */
static void show_capability(const char *directory, unsigned number, int is_there) {
    char access[PATH_MAX + 16], node[PATH_MAX], text[96];
    snprintf(access, sizeof access, "%s/access", directory);
    machine_path(node, sizeof node, "dev/nvidia-caps/nvidia-cap%u", number);
    if (is_there) {
        snprintf(text, sizeof text, "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", number);
        mkdir(directory, 0755);
        write_file(access, text);
        write_file(node, "");
    } else {
        unlink(access);
        unlink(node);
        rmdir(directory);
    }
}

static void show_instances(unsigned minor, const struct card *card, int is_stale) {
    char directory[PATH_MAX];
    for (unsigned gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
        const struct gpu_instance *instance = card ? &card->instances[gi] : NULL;
        int is_there = instance && instance->exists;
        int was_there = machine->tree.gpu_instances[minor] >> gi & 1;
        if (is_stale) /* what is there is removed or written again */
            was_there = !is_there && exists(GPU_INSTANCE, minor, gi);
        unsigned wanted = 0, shown = machine->tree.compute_instances[minor][gi];
        for (unsigned ci = 0; is_there && ci < MAX_COMPUTE_INSTANCES; ci++)
            wanted |= (unsigned)(instance->compute[ci].exists != 0) << ci;
        unsigned changed = wanted ^ shown;
        if (is_stale)
            changed = is_there || was_there ? (1u << MAX_COMPUTE_INSTANCES) - 1 : 0;
        if (is_there && !was_there) {
            machine_path(directory, sizeof directory, GPU_INSTANCE, minor, gi);
            show_capability(directory, capability(minor, gi, 0), 1);
        }
        for (unsigned ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
            if (!(changed >> ci & 1))
                continue;
            machine_path(directory, sizeof directory, "proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/ci%u", minor, gi,
                         ci);
            show_capability(directory, capability(minor, gi, 1 + ci), wanted >> ci & 1);
        }
        if (was_there && !is_there) {
            machine_path(directory, sizeof directory, GPU_INSTANCE, minor, gi);
            show_capability(directory, capability(minor, gi, 0), 0);
        }
        machine->tree.gpu_instances[minor] &= ~(1u << gi);
        machine->tree.gpu_instances[minor] |= (uint32_t)is_there << gi;
        machine->tree.compute_instances[minor][gi] = (uint8_t)wanted;
    }
}

/* Show the card with this minor number; NULL: there is none (any more). */
static void show_card(unsigned minor, const struct card *card) {
    char node[PATH_MAX], null_node[PATH_MAX], capabilities[PATH_MAX], mig[PATH_MAX];
    machine_path(node, sizeof node, "dev/nvidia%u", minor);
    machine_path(null_node, sizeof null_node, "driver/dev/nvidia%u", minor);
    machine_path(capabilities, sizeof capabilities, "proc/driver/nvidia/capabilities/gpu%u", minor);
    machine_path(mig, sizeof mig, "proc/driver/nvidia/capabilities/gpu%u/mig", minor);
    if (!card) {
        rmdir(mig);
        rmdir(capabilities);
        unlink(null_node);
        unlink(node); /* last: where it is missing nothing else is left */
        return;
    }
    write_file(node, "");
    write_null_node(null_node);
    if (card->mig_switch != NOT_CAPABLE) {
        mkdir(capabilities, 0755);
        mkdir(mig, 0755);
    }
}

static void show_information(const struct card *card) {
    char directory[PATH_MAX], path[PATH_MAX + 16], text[512];
    machine_path(directory, sizeof directory, "proc/driver/nvidia/gpus/%04x:%02x:%02x.0", card->pci_domain,
                 card->pci_bus, card->pci_device);
    snprintf(path, sizeof path, "%s/information", directory);
    if (card->presence == REMOVED) {
        unlink(path);
        rmdir(directory);
        return;
    }
    snprintf(text, sizeof text,
             "Model: \t\t %s\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t %04x:%02x:%02x.0\nDevice Minor: \t %u\n",
             card->name, card->uuid, card->pci_domain, card->pci_bus, card->pci_device, card->minor);
    mkdir(directory, 0755);
    write_file(path, text);
}

void write_tree(void) {
    int is_stale = machine->is_tree_stale != 0, is_moved = is_stale;
    for (unsigned minor = 0; minor < MAX_MINORS; minor++) {
        const struct card *card = NULL;
        for (unsigned i = 0; i < machine->n_cards; i++)
            if (machine->cards[i].minor == minor && machine->cards[i].presence != REMOVED)
                card = &machine->cards[i];
        uint32_t shown = card ? (uint32_t)(card - machine->cards) + 1 : 0;
        int is_another = is_stale || shown != machine->tree.cards[minor];
        if (!card && (!is_another || !exists("dev/nvidia%u", minor, 0))) {
            machine->tree.cards[minor] = machine->tree.gpu_instances[minor] = 0;
            memset(machine->tree.compute_instances[minor], 0, sizeof machine->tree.compute_instances[minor]);
            continue;
        }
        if (card && is_another)
            show_card(minor, card);
        show_instances(minor, card, is_another);
        if (!card)
            show_card(minor, NULL);
        machine->tree.cards[minor] = shown;
        is_moved |= is_another;
    }
    for (unsigned i = 0; is_moved && i < machine->n_cards; i++)
        show_information(&machine->cards[i]);
}
