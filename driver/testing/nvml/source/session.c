#define _GNU_SOURCE
#include "session.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "openers.h"
#include "tree.h"

/* The variable that names the machine's folder. Without it the folder is the one in whose driver root the library is:
 * FOLDER/driver/usr/lib64/libnvidia-ml.so.1. */
#define VARIABLE "KERF_FAKE_NVML"
#define LEVELS_BELOW_THE_FOLDER 4

struct state *machine;

static char folder[PATH_MAX];
static int file = -1;
static unsigned users, loads;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* flock does not keep threads of one process apart */
static __thread enum fault_action pending; /* the death that the present call's fault wants */

static void find_folder(void) {
    const char *chosen = getenv(VARIABLE);
    Dl_info library;
    folder[0] = 0;
    if (chosen && *chosen) {
        snprintf(folder, sizeof folder, "%s", chosen);
    } else if (dladdr(&machine, &library) && library.dli_fname) {
        if (!realpath(library.dli_fname, folder))
            folder[0] = 0;
        for (int level = 0; level < LEVELS_BELOW_THE_FOLDER; level++) {
            char *slash = strrchr(folder, '/');
            if (slash)
                *slash = 0;
        }
    }
}

void machine_path(char *path, unsigned long size, const char *format, ...) {
    va_list arguments;
    int length = snprintf(path, size, "%s/", folder);
    va_start(arguments, format);
    if (length >= 0 && (unsigned long)length < size)
        vsnprintf(path + length, size - length, format, arguments);
    va_end(arguments);
}

static void unmap(void) {
    close_cards();
    if (machine)
        munmap(machine, sizeof *machine);
    if (file >= 0)
        close(file);
    machine = NULL;
    file = -1;
}

static nvmlReturn_t map(void) {
    char path[PATH_MAX];
    struct stat status;
    find_folder();
    machine_path(path, sizeof path, "state");
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    void *mapped = MAP_FAILED;
    if (fstat(file, &status) == 0 && status.st_size == sizeof *machine)
        mapped = mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED || ((struct state *)mapped)->magic != MAGIC) {
        fprintf(stderr, "libnvidia-ml stand-in: %s was made for another version of it: make the machine again\n", path);
        if (mapped != MAP_FAILED)
            munmap(mapped, sizeof *machine);
        unmap();
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    machine = mapped;
    return NVML_SUCCESS;
}

static void lock(void) {
    while (flock(file, LOCK_EX) != 0)
        ;
    if (machine->is_changing) { /* the process that began this was killed in the middle of it */
        machine->cards[machine->changing] = machine->undo;
        machine->is_tree_stale = 1;
        machine->is_changing = 0;
    }
    if (machine->is_tree_stale) {
        write_tree();
        machine->is_tree_stale = 0;
    }
}

static void unlock(void) { flock(file, LOCK_UN); }

static nvmlReturn_t check_driver(void) {
    if (!machine->is_loaded)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (strcmp(machine->driver_version, machine->kernel_version) != 0)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    return NVML_SUCCESS;
}

nvmlReturn_t open_session(void) {
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (users == 0) {
        result = map();
        if (result == NVML_SUCCESS) {
            lock();
            result = check_driver();
            loads = machine->loads;
            unlock();
            if (result != NVML_SUCCESS)
                unmap();
        }
    }
    if (result == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t close_session(void) {
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (users == 0)
        result = NVML_ERROR_UNINITIALIZED;
    else if (--users == 0)
        unmap();
    pthread_mutex_unlock(&mutex);
    return result;
}

#define EVERY_FUNCTION "*"

static int concerns(const struct fault *fault, const char *function) {
    return strcmp(fault->function, function) == 0 || strcmp(fault->function, EVERY_FUNCTION) == 0;
}

/* The next fault for a call of `function`, and one call less for all of them; NULL: there is none. */
static struct fault *take_fault(const char *function) {
    struct fault *found = NULL;
    for (int i = 0; i < MAX_FAULTS; i++) {
        struct fault *fault = &machine->faults[i];
        if (fault->action == FAULT_NONE || !concerns(fault, function))
            continue;
        if (fault->skip > 0) {
            fault->skip--;
        } else if (!found && fault->remaining > 0) {
            found = fault;
            if (fault->remaining != UINT32_MAX && --fault->remaining == 0)
                fault->function[0] = 0; /* spent: what it says is still read by the caller */
        }
    }
    return found;
}

static void die(void) {
    raise(SIGKILL);
    for (;;)
        pause();
}

/* Sleep without the lock: other cards go on. */
static nvmlReturn_t wait_outside(uint64_t delay_us) {
    struct timespec delay = {.tv_sec = delay_us / 1000000, .tv_nsec = delay_us % 1000000 * 1000};
    unlock();
    pthread_mutex_unlock(&mutex);
    nanosleep(&delay, NULL);
    pthread_mutex_lock(&mutex);
    if (!machine)
        return NVML_ERROR_UNINITIALIZED;
    lock();
    return NVML_SUCCESS;
}

nvmlReturn_t enter(const char *function) {
    pthread_mutex_lock(&mutex);
    if (!machine) {
        pthread_mutex_unlock(&mutex);
        return NVML_ERROR_UNINITIALIZED;
    }
    lock();
    pending = FAULT_NONE;
    const struct fault *fault = take_fault(function);
    if (fault && fault->action == FAULT_DELAY) {
        if (wait_outside(fault->delay_us) != NVML_SUCCESS) {
            pthread_mutex_unlock(&mutex);
            return NVML_ERROR_UNINITIALIZED;
        }
    } else if (fault && fault->action == FAULT_ERROR) {
        return leave((nvmlReturn_t)fault->error);
    } else if (fault) {
        pending = (enum fault_action)fault->action;
    }
    if (pending == FAULT_KILL_BEFORE)
        die();
    if (loads != machine->loads) /* the driver was loaded again, or the machine has booted: handles mean nothing now */
        return leave(NVML_ERROR_DRIVER_NOT_LOADED);
    nvmlReturn_t result = check_driver();
    return result == NVML_SUCCESS ? result : leave(result);
}

nvmlReturn_t leave(nvmlReturn_t result) {
    if (pending == FAULT_KILL_AFTER)
        die();
    unlock();
    pthread_mutex_unlock(&mutex);
    return result;
}

void begin_change(struct card *card) {
    machine->undo = *card;
    machine->changing = card - machine->cards;
    __atomic_store_n(&machine->is_changing, 1, __ATOMIC_SEQ_CST); /* not before undo is complete */
}

void end_change(void) {
    if (pending == FAULT_KILL_HALFWAY)
        die();
    write_tree();
    __atomic_store_n(&machine->is_changing, 0, __ATOMIC_SEQ_CST);
}

void add_event(const struct card *card, uint64_t type, uint64_t data, unsigned gpu_instance) {
    uint64_t serial = ++machine->event_serial;
    machine->events[serial % MAX_EVENTS] = (struct event){.serial = serial,
                                                          .card = (uint32_t)(card - machine->cards),
                                                          .gpu_instance = gpu_instance,
                                                          .compute_instance = NO_INSTANCE,
                                                          .type = type,
                                                          .data = data};
}

uint64_t now_us(void) {
    struct timespec now;
    if (machine->clock_us)
        return machine->clock_us;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
