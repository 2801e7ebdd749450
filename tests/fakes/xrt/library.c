/* The functions of libxrt on a machine that is a folder (machine.py makes it): two above the one in which this library
 * lies. Each machine has a copy of its own. What the driver would do to a card is done to its files, so it outlives every
 * process:
 *
 *   faults   lines "CALL EFFECT [ARGUMENT]", each for one call; CALL is start, open or load, EFFECT abort, exit
 *            (status), hang, errno (number, which the library may leave negative, 0: none), delay (ms), wrong-id (UUID);
 *            die-before, die-halfway and die-after kill the plugin, whose child this process is and goes on
 *   log      a line for each call that changed something
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct axlf_section {
    uint32_t kind;
    char name[16];
    uint64_t offset, size;
};

struct axlf { /* struct axlf of xclbin.h, without the names that are not needed */
    char magic[8];
    int32_t signature_length;
    unsigned char reserved[28], key_block[256];
    uint64_t unique_id, length, times[2];
    unsigned char version[4];
    uint16_t mode, action_mask;
    unsigned char interface[16];
    char platform[64];
    unsigned char uuid[16];
    char debug[16];
    uint32_t sections;
    struct axlf_section section[];
};

struct fault {
    char effect[32], argument[256];
};

static const char *machine(void) {
    static char folder[PATH_MAX];
    Dl_info info;
    if (!folder[0] && dladdr((void *)machine, &info)) {
        snprintf(folder, sizeof folder, "%s", info.dli_fname);
        for (int level = 0; level < 3; level++)
            *strrchr(folder, '/') = 0;
    }
    return folder;
}

static int fail(int number) {
    errno = number;
    return -1;
}

static void card_file(const char *bdf, const char *name, char *path) {
    snprintf(path, PATH_MAX, "%s/sys/bus/pci/drivers/xocl/%s/%s", machine(), bdf, name);
}

static size_t read_file(const char *path, char *content, size_t size) {
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(content, 1, size - 1, file) : 0;
    content[length] = 0;
    if (file)
        fclose(file);
    return length;
}

static void write_file(const char *path, const char *content) {
    char temporary[PATH_MAX + 8];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (!file)
        return;
    fputs(content, file);
    fclose(file);
    rename(temporary, path);
}

/* Take the next fault of this call out of the file. */
static struct fault take_fault(const char *call) {
    struct fault found = {"", ""};
    char path[PATH_MAX], left[8192] = "", line[512];
    snprintf(path, sizeof path, "%s/faults", machine());
    int lock = open(machine(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    flock(lock, LOCK_EX);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        char name[32];
        struct fault fault = {"", ""};
        if (!found.effect[0] && sscanf(line, "%31s %31s %255[^\n]", name, fault.effect, fault.argument) >= 2 &&
            strcmp(name, call) == 0)
            found = fault;
        else if (strlen(left) + strlen(line) < sizeof left)
            strcat(left, line);
    }
    if (file)
        fclose(file);
    if (found.effect[0])
        write_file(path, left);
    close(lock);
    return found;
}

static int is(const struct fault *fault, const char *effect) {
    return strcmp(fault->effect, effect) == 0;
}

static void wait_ms(long ms) {
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&wait, NULL);
}

/* Kill the plugin. A process that is to end with it never gets to the end of the wait. */
static void die_if(const struct fault *fault, const char *effect) {
    if (is(fault, effect)) {
        kill(getppid(), SIGKILL);
        wait_ms(60000);
    }
}

/* What befalls the process, whatever it was called for. */
static void end_if(const struct fault *fault) {
    if (is(fault, "abort"))
        abort();
    if (is(fault, "exit"))
        exit(atoi(fault->argument));
    while (is(fault, "hang"))
        pause();
}

__attribute__((constructor)) static void start(void) {
    struct fault fault = take_fault("start");
    end_if(&fault);
}

static void format_uuid(const unsigned char *bytes, char *text) {
    static const char dashes[] = {4, 6, 8, 10};
    for (int at = 0; at < 16; at++) {
        if (memchr(dashes, at, sizeof dashes))
            *text++ = '-';
        text += sprintf(text, "%02x", bytes[at]);
    }
}

static int is_null(const unsigned char *uuid) {
    static const unsigned char none[16];
    return memcmp(uuid, none, sizeof none) == 0;
}

EXPORT void *xrtDeviceOpenByBDF(const char *bdf) {
    struct fault fault = take_fault("open");
    char path[PATH_MAX];
    end_if(&fault);
    card_file(bdf, "ready", path);
    if (is(&fault, "errno"))
        fail(atoi(fault.argument));
    else if (access(path, F_OK) != 0)
        fail(ENODEV);
    else
        return strdup(bdf);
    return NULL;
}

EXPORT int xrtDeviceClose(void *device) {
    free(device);
    return 0;
}

/* What the driver does with an image (xocl_ioctl.c): checks, then the bits, then the new UUID. */
EXPORT int xrtDeviceLoadXclbin(void *device, const struct axlf *image) {
    const char *bdf = device;
    char path[PATH_MAX], interfaces[4096], wanted[40], own[40], users[4096];
    struct fault fault = take_fault("load");
    end_if(&fault);
    die_if(&fault, "die-before");
    if (is(&fault, "delay"))
        wait_ms(atol(fault.argument));
    if (is(&fault, "errno"))
        return fail(atoi(fault.argument));
    if (memcmp(image->magic, "xclbin2", 8) != 0 || is_null(image->uuid) || image->length < sizeof *image)
        return fail(EINVAL);
    card_file(bdf, "interface_uuids", path);
    read_file(path, interfaces, sizeof interfaces);
    format_uuid(image->interface, wanted);
    char plain[40], *to = plain;
    for (const char *from = wanted; *from; from++)
        if (*from != '-')
            *to++ = *from;
    *to = 0;
    if (!strstr(interfaces, plain))
        return fail(EINVAL);
    card_file(bdf, "kdsstat", path);
    read_file(path, users, sizeof users);
    const char *contexts = strstr(users, "contexts:");
    if (contexts && atoi(contexts + strlen("contexts:")) > 0)
        return fail(EBUSY);
    card_file(bdf, "xclbinuuid", path);
    write_file(path, "");
    die_if(&fault, "die-halfway");
    format_uuid(image->uuid, own);
    strcat(own, "\n");
    snprintf(wanted, sizeof wanted, "%.36s\n", fault.argument);
    write_file(path, is(&fault, "wrong-id") ? wanted : own);
    snprintf(path, sizeof path, "%s/log", machine());
    FILE *log = fopen(path, "a");
    if (log) {
        fprintf(log, "load %s %.36s %llu\n", bdf, own, (unsigned long long)image->length);
        fclose(log);
    }
    die_if(&fault, "die-after");
    return 0;
}
