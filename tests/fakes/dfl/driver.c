/* The calls of the kernel's DFL driver on a machine that is a folder (machine.py makes it).
 *
 * It stands before libc by LD_PRELOAD, or is called through ctypes. Files outside of such folders are left to the
 * kernel. A machine's `ports` has a line for each port: FME number, interface, port id, port number, folder of the port,
 * file of the FPGA manager's status, both below the machine. All state is in files, so it outlives every process:
 *
 *   reset/dfl-port.N  the count of what has put the port into reset and has not ended that (disable_count of the driver,
 *                     drivers/fpga/dfl-afu-main.c of Linux 6.12): while it is not 0, afu_id is EBUSY
 *   users/dfl-port.N  is there while a process of the test's story has the port open; one that has opened the node through
 *                     this library has it open as well, alone with O_EXCL
 *   faults            lines "CALL EFFECT [ARGUMENT]", each for one call; CALL is pr, reset, clear or open, EFFECT errno
 *                     (number, perhaps with the manager's status after it), delay (ms), die-before, die-halfway,
 *                     die-after, wrong-id (hex), log-errors (hex)
 *   log               a line for each call that changed something
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define PORT_RESET 0xb640
#define PORT_PR 0xb680
#define NO_ID "ffffffffffffffffffffffffffffffff"

struct port_pr {
    uint32_t argsz, flags, port_id, buffer_size;
    uint64_t buffer_address;
};

struct port {
    int fme, id, number;
    char interface[33], folder[512], status[512];
};

struct fault {
    char effect[32], argument[256];
};

static int fail(int number) {
    errno = number;
    return -1;
}

/* The machine's folder of a file in it, which is `depth` folders above; "" if there is no machine. */
static const char *machine_of(const char *path, const char *part, char *machine) {
    const char *at = strstr(path, part);
    if (!at || at - path >= PATH_MAX - 64)
        return "";
    snprintf(machine, PATH_MAX, "%.*s", (int)(at - path), path);
    char ports[PATH_MAX + 8];
    snprintf(ports, sizeof ports, "%s/ports", machine);
    return access(ports, F_OK) == 0 ? machine : "";
}

static const char *path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

/* Find a port of the machine: by its node's number, or by FME and id (number -1). */
static int find_port(const char *machine, int number, int fme, int id, struct port *port) {
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/ports", machine);
    FILE *file = fopen(path, "r");
    int found = 0;
    while (file && !found && fscanf(file, "%d %32s %d %d %511s %511s", &port->fme, port->interface, &port->id,
                                    &port->number, port->folder, port->status) == 6)
        found = number >= 0 ? port->number == number : port->fme == fme && port->id == id;
    if (file)
        fclose(file);
    return found;
}

static void write_file(const char *machine, const char *name, const char *content) {
    char path[2 * PATH_MAX], temporary[2 * PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/%s", machine, name);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (!file)
        return;
    fputs(content, file);
    fclose(file);
    rename(temporary, path);
}

static void log_call(const char *machine, const char *format, ...) {
    char path[PATH_MAX + 8], line[256];
    snprintf(path, sizeof path, "%s/log", machine);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    int log = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (log >= 0) {
        syscall(SYS_write, log, line, (size_t)length);
        close(log);
    }
}

/* Take the next fault of this call out of the file. */
static struct fault take_fault(const char *machine, const char *call) {
    struct fault found = {"", ""};
    char path[PATH_MAX + 8], left[8192] = "", line[512];
    snprintf(path, sizeof path, "%s/faults", machine);
    int lock = (int)syscall(SYS_openat, AT_FDCWD, machine, O_RDONLY | O_DIRECTORY, 0);
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
        write_file(machine, "faults", left);
    close(lock);
    return found;
}

static int is(const struct fault *fault, const char *effect) {
    return strcmp(fault->effect, effect) == 0;
}

static void die_if(const struct fault *fault, const char *effect) {
    if (is(fault, effect))
        kill(getpid(), SIGKILL);
}

static void delay_if(const struct fault *fault) {
    if (is(fault, "delay")) {
        long ms = atol(fault->argument);
        struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&wait, NULL);
    }
}

/* The number of an errno fault, and what follows it: the status. */
static int error_of(const struct fault *fault, const char **status) {
    char *rest;
    int number = (int)strtol(fault->argument, &rest, 10);
    *status = *rest ? rest + 1 : "";
    return number;
}

static void set_id(const char *machine, const struct port *port, const char *id) {
    char name[600], content[64];
    snprintf(name, sizeof name, "%s/afu_id", port->folder);
    snprintf(content, sizeof content, "%s\n", id);
    write_file(machine, name, content);
}

static void set_errors(const char *machine, const struct port *port, const char *errors) {
    char name[600], content[64];
    snprintf(name, sizeof name, "%s/errors/errors", port->folder);
    snprintf(content, sizeof content, "%s\n", errors);
    write_file(machine, name, content);
}

static void set_status(const char *machine, const struct port *port, const char *status) {
    char content[300];
    snprintf(content, sizeof content, "%s\n", status);
    write_file(machine, port->status, content);
}

/* The FPGA manager's state, which is beside its status. */
static void set_state(const char *machine, const struct port *port, const char *state) {
    char name[600], content[64];
    snprintf(name, sizeof name, "%.*s/state", (int)(strrchr(port->status, '/') - port->status), port->status);
    snprintf(content, sizeof content, "%s\n", state);
    write_file(machine, name, content);
}

/* Add to the count of what keeps a port in reset, and return it. */
static int count_reset(const char *machine, int number, int change) {
    char path[PATH_MAX + 64], name[64], content[32];
    int count = 0;
    snprintf(name, sizeof name, "reset/dfl-port.%d", number);
    snprintf(path, sizeof path, "%s/%s", machine, name);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d", &count) != 1)
            count = 0;
        fclose(file);
    }
    if (change) {
        count += change;
        snprintf(content, sizeof content, "%d\n", count);
        write_file(machine, name, content);
    }
    return count;
}

/* End a load as one that failed: the port stays in reset. */
static int fail_load(const char *machine, const struct port *port, int number) {
    set_state(machine, port, "write complete error"); /* where the DFL manager waits for the end of a load */
    return fail(number);
}

static void to_hex(const unsigned char *bytes, char *hex) {
    for (int at = 0; at < 16; at++)
        sprintf(hex + 2 * at, "%02x", bytes[at]);
}

static int program(const char *machine, int fme, const struct port_pr *request) {
    struct port port;
    if (request->argsz < sizeof *request || request->flags)
        return fail(EINVAL);
    if (!find_port(machine, -1, fme, (int)request->port_id, &port))
        return fail(EINVAL);
    if (!request->buffer_size)
        return fail(ENOMEM); /* of the kernel's vmalloc(9) */
    const unsigned char *bits = (const unsigned char *)(uintptr_t)request->buffer_address;
    struct fault fault = take_fault(machine, "pr");
    die_if(&fault, "die-before");
    if (is(&fault, "errno")) {
        const char *status;
        int number = error_of(&fault, &status);
        set_status(machine, &port, status);
        if (number == EIO)
            set_id(machine, &port, NO_ID);
        if (number != EIO && number != ETIMEDOUT)
            return fail(number); /* the load has not begun */
        count_reset(machine, port.number, 1);
        return fail_load(machine, &port, number);
    }
    if (is(&fault, "die-halfway")) { /* a load in the kernel would go on, and end the reset */
        set_id(machine, &port, NO_ID);
        die_if(&fault, "die-halfway");
    }
    count_reset(machine, port.number, 1);
    set_state(machine, &port, "write complete");
    set_id(machine, &port, NO_ID);
    delay_if(&fault);
    char interface[33], id[33];
    if (request->buffer_size < 36 || memcmp(bits, "BITS", 4) != 0)
        return set_status(machine, &port, "reconfig incompatible image"), fail_load(machine, &port, EIO);
    to_hex(bits + 4, interface);
    if (strcmp(interface, port.interface) != 0)
        return set_status(machine, &port, "reconfig incompatible image"), fail_load(machine, &port, EIO);
    to_hex(bits + 20, id);
    set_id(machine, &port, is(&fault, "wrong-id") ? fault.argument : id);
    if (is(&fault, "log-errors"))
        set_errors(machine, &port, fault.argument);
    set_status(machine, &port, "");
    set_state(machine, &port, "operating");
    count_reset(machine, port.number, -1);
    log_call(machine, "pr %d %u\n", port.number, request->buffer_size);
    die_if(&fault, "die-after");
    return 0;
}

static int reset(const char *machine, int number, uintptr_t argument) {
    struct fault fault = take_fault(machine, "reset");
    if (argument)
        return fail(EINVAL);
    die_if(&fault, "die-before");
    if (is(&fault, "errno")) {
        const char *status;
        int error = error_of(&fault, &status);
        if (error == ETIMEDOUT)
            count_reset(machine, number, 1);
        return fail(error);
    }
    log_call(machine, "reset %d\n", number);
    die_if(&fault, "die-after");
    return 0;
}

EXPORT int ioctl(int descriptor, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    char path[PATH_MAX], folder[PATH_MAX];
    const char *machine = machine_of(path_of(descriptor, path), "/dev/dfl-", folder);
    int number = atoi(strrchr(path, '.') ? strrchr(path, '.') + 1 : "-1");
    if (*machine && strstr(path, "/dev/dfl-fme."))
        return request == PORT_PR ? program(machine, number, argument) : fail(EINVAL);
    if (*machine && strstr(path, "/dev/dfl-port."))
        return request == PORT_RESET ? reset(machine, number, (uintptr_t)argument) : fail(EINVAL);
    return (int)syscall(SYS_ioctl, descriptor, request, argument);
}

static int open_file(const char *path, int flags, mode_t mode) {
    char folder[PATH_MAX], users[PATH_MAX + 64];
    const char *machine = machine_of(path, "/dev/dfl-", folder);
    if (*machine) {
        struct fault fault = take_fault(machine, "open");
        if (is(&fault, "errno")) {
            const char *status;
            return fail(error_of(&fault, &status));
        }
        snprintf(users, sizeof users, "%s/users/%s", machine, strrchr(path, '/') + 1);
        if (flags & O_EXCL && access(users, F_OK) == 0)
            return fail(EBUSY);
        int node = (int)syscall(SYS_openat, AT_FDCWD, path, flags & ~O_EXCL, mode);
        /* A lock of the open file ends where the kernel's count of a node's users goes down. */
        if (node >= 0 && flock(node, (flags & O_EXCL ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
            close(node);
            return fail(EBUSY);
        }
        return node;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

EXPORT int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_file(path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_file(path, flags, mode);
}

/* A port forgets the errors that are written to it, if they are those that it has logged. */
static ssize_t clear(const char *machine, const char *path, const void *data, size_t size) {
    char logged[64] = "", wanted[64];
    FILE *file = fopen(path, "r");
    if (file) {
        if (!fgets(logged, sizeof logged, file))
            logged[0] = 0;
        fclose(file);
    }
    snprintf(wanted, sizeof wanted, "%.*s", (int)size, (const char *)data);
    struct fault fault = take_fault(machine, "clear");
    die_if(&fault, "die-before");
    if (is(&fault, "errno")) {
        const char *status;
        return fail(error_of(&fault, &status));
    }
    if (strtoull(wanted, NULL, 0) != strtoull(logged, NULL, 0))
        return fail(EINVAL);
    write_file("", path, "0x0\n");
    log_call(machine, "clear %s\n", strtok(wanted, "\n"));
    die_if(&fault, "die-after");
    return (ssize_t)size;
}

EXPORT ssize_t write(int descriptor, const void *data, size_t size) {
    char path[PATH_MAX], folder[PATH_MAX];
    path_of(descriptor, path);
    if (strstr(path, "/dfl-port.") && strstr(path, "/errors/errors")) {
        const char *machine = machine_of(path, "/sys/", folder);
        if (*machine)
            return clear(machine, path, data, size);
    }
    return syscall(SYS_write, descriptor, data, size);
}

/* A port in reset does not say which function it has. */
EXPORT ssize_t read(int descriptor, void *data, size_t size) {
    char path[PATH_MAX], folder[PATH_MAX];
    const char *port = strstr(path_of(descriptor, path), "/dfl-port."), *name = strrchr(path, '/');
    if (port && strcmp(name, "/afu_id") == 0) {
        const char *machine = machine_of(path, "/sys/", folder);
        if (*machine && count_reset(machine, atoi(port + strlen("/dfl-port.")), 0))
            return fail(EBUSY);
    }
    return syscall(SYS_read, descriptor, data, size);
}
