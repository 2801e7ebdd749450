/* Counts the system calls that a process makes on files below some folders, and lets one of them be its last, or fail.
 *
 * Loaded by LD_PRELOAD. Calls are seen where a library calls libc: Python's, SQLite's and gRPC's are; what libc does by
 * itself, and what is written to mapped memory, is not. SQLite's locks around its writes to mapped memory are.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096

/* What a call does, as bits; __init__.py has the same. */
enum { CHANGE = 1, SPACE = 2, LOOK = 4, LOCK = 8, UNLOCK = 16 }; /* SPACE: fails on a full disk */
/* What befalls the call; __init__.py has the same. */
enum fault { NONE = 0, KILL_BEFORE, KILL_HALFWAY, KILL_AFTER, FAIL, FULL, DENY };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char folders[4096]; /* each with a line feed at its end */
static unsigned kinds;
static enum fault wanted;
static long at, count;
static int error, log_descriptor = -1, skips_syncs;
static int sync_log = -1, sync_gate = -1;

/* Watch the folders from now on. Syncs are counted, and not made where `without_syncs`: a kill needs none. */
EXPORT void watch_folders(const char *names, int without_syncs) {
    snprintf(folders, sizeof folders, "%s", names);
    skips_syncs = without_syncs;
}

/* Count calls of these kinds from 1, write each to the log, and let `fault` befall number `number`; 0: none. */
EXPORT void arm(unsigned these_kinds, enum fault fault, long number, int error_number, int log) {
    pthread_mutex_lock(&mutex);
    kinds = these_kinds, wanted = fault, at = number, error = error_number, log_descriptor = log, count = 0;
    pthread_mutex_unlock(&mutex);
}

/* Let all calls go well again; returns how many there were. */
EXPORT long disarm(void) {
    pthread_mutex_lock(&mutex);
    long seen = count;
    kinds = 0, wanted = NONE;
    pthread_mutex_unlock(&mutex);
    return seen;
}

static int is_watched(const char *path) {
    for (const char *folder = folders; *folder;) {
        size_t length = strcspn(folder, "\n");
        if (strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0))
            return 1;
        folder += length + (folder[length] == '\n');
    }
    return 0;
}

/* The path of `name` in the folder `descriptor`, or of the descriptor itself where there is no name. */
static const char *path_of(int descriptor, const char *name, char *path) {
    if (name && (name[0] == '/' || descriptor == AT_FDCWD))
        return name;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0)
        return "";
    snprintf(path + length, PATH_MAX - length, name && *name ? "/%s" : "%s", name ? name : "");
    return path;
}

/* Let each sync of a watched folder write its name to `log`, and wait for a byte from `gate` before it is made. */
EXPORT void hold_syncs(int log, int gate) { sync_log = log, sync_gate = gate; }

static void hold(const char *call, int descriptor) {
    char buffer[PATH_MAX], line[PATH_MAX + 64];
    const char *path = sync_gate < 0 ? "" : path_of(descriptor, NULL, buffer);
    if (!is_watched(path))
        return;
    syscall(SYS_write, sync_log, line, snprintf(line, sizeof line, "%s %s\n", call, path));
    syscall(SYS_read, sync_gate, line, 1);
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Count a call, and return what befalls it; it does not return for one that is killed before. */
static enum fault enter(unsigned kind, const char *call, int descriptor, const char *name) {
    char buffer[PATH_MAX], line[PATH_MAX + 64];
    if (!(kinds & kind))
        return NONE;
    int before = errno;
    const char *path = path_of(descriptor, name, buffer);
    enum fault fault = NONE;
    if (is_watched(path)) {
        pthread_mutex_lock(&mutex);
        if (kinds & kind) {
            count++;
            int length = snprintf(line, sizeof line, "%s %s\n", call, path);
            if (log_descriptor >= 0)
                syscall(SYS_write, log_descriptor, line, length);
            if (count == at || (wanted == FULL && at && count > at))
                fault = wanted;
        }
        if (fault == KILL_BEFORE)
            die();
        pthread_mutex_unlock(&mutex);
    }
    errno = before;
    return fault;
}

static long leave(enum fault fault, long result) {
    if (fault == KILL_AFTER || fault == KILL_HALFWAY)
        die();
    if (fault == DENY && result >= 0) {
        errno = error;
        return -1;
    }
    return result;
}

#define REAL(name) ((__typeof__(&name))real(#name, &real_##name))
static void *real(const char *name, void **known) {
    if (!*known)
        *known = dlsym(RTLD_NEXT, name);
    return *known;
}

/* A function whose error is -1: `where` are its folder's descriptor and its path. */
#define WRAP(result_type, name, parameters, arguments, kind, where)                                                    \
    static void *real_##name;                                                                                          \
    EXPORT result_type name parameters {                                                                               \
        enum fault fault = enter(kind, #name, where);                                                                  \
        if (fault == FAIL || fault == FULL)                                                                            \
            return errno = error, -1;                                                                                  \
        return (result_type)leave(fault, (long)REAL(name) arguments);                                                  \
    }
#define AT(descriptor, path) descriptor, path
#define PATH(path) AT_FDCWD, path
#define DESCRIPTOR(descriptor) descriptor, NULL

WRAP(int, rename, (const char *old, const char *new), (old, new), CHANGE | SPACE, PATH(new))
WRAP(int, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new), CHANGE | SPACE,
     AT(to, new))
WRAP(int, renameat2, (int from, const char *old, int to, const char *new, unsigned flags), (from, old, to, new, flags),
     CHANGE | SPACE, AT(to, new))
WRAP(int, link, (const char *old, const char *new), (old, new), CHANGE | SPACE, PATH(new))
WRAP(int, linkat, (int from, const char *old, int to, const char *new, int flags), (from, old, to, new, flags),
     CHANGE | SPACE, AT(to, new))
WRAP(int, symlink, (const char *target, const char *path), (target, path), CHANGE | SPACE, PATH(path))
WRAP(int, symlinkat, (const char *target, int folder, const char *path), (target, folder, path), CHANGE | SPACE,
     AT(folder, path))
WRAP(int, unlink, (const char *path), (path), CHANGE, PATH(path))
WRAP(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), CHANGE, AT(folder, path))
WRAP(int, rmdir, (const char *path), (path), CHANGE, PATH(path))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), CHANGE | SPACE, PATH(path))
WRAP(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode), CHANGE | SPACE, AT(folder, path))
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode), CHANGE, PATH(path))
WRAP(int, fchmod, (int file, mode_t mode), (file, mode), CHANGE, DESCRIPTOR(file))
WRAP(int, fchmodat, (int folder, const char *path, mode_t mode, int flags), (folder, path, mode, flags), CHANGE,
     AT(folder, path))
WRAP(int, chown, (const char *path, uid_t user, gid_t group), (path, user, group), CHANGE, PATH(path))
WRAP(int, fchown, (int file, uid_t user, gid_t group), (file, user, group), CHANGE, DESCRIPTOR(file))
WRAP(int, truncate, (const char *path, off_t size), (path, size), CHANGE | SPACE, PATH(path))
WRAP(int, truncate64, (const char *path, off64_t size), (path, size), CHANGE | SPACE, PATH(path))
WRAP(int, ftruncate, (int file, off_t size), (file, size), CHANGE | SPACE, DESCRIPTOR(file))
WRAP(int, ftruncate64, (int file, off64_t size), (file, size), CHANGE | SPACE, DESCRIPTOR(file))
WRAP(int, fallocate, (int file, int mode, off_t from, off_t size), (file, mode, from, size), CHANGE | SPACE,
     DESCRIPTOR(file))
WRAP(int, fallocate64, (int file, int mode, off64_t from, off64_t size), (file, mode, from, size), CHANGE | SPACE,
     DESCRIPTOR(file))
WRAP(ssize_t, read, (int file, void *data, size_t size), (file, data, size), LOOK, DESCRIPTOR(file))
WRAP(ssize_t, pread, (int file, void *data, size_t size, off_t from), (file, data, size, from), LOOK, DESCRIPTOR(file))
WRAP(ssize_t, pread64, (int file, void *data, size_t size, off64_t from), (file, data, size, from), LOOK,
     DESCRIPTOR(file))
WRAP(int, stat, (const char *path, struct stat *status), (path, status), LOOK, PATH(path))
WRAP(int, stat64, (const char *path, struct stat64 *status), (path, status), LOOK, PATH(path))
WRAP(int, lstat, (const char *path, struct stat *status), (path, status), LOOK, PATH(path))
WRAP(int, lstat64, (const char *path, struct stat64 *status), (path, status), LOOK, PATH(path))
WRAP(int, fstat, (int file, struct stat *status), (file, status), LOOK, DESCRIPTOR(file))
WRAP(int, fstat64, (int file, struct stat64 *status), (file, status), LOOK, DESCRIPTOR(file))
WRAP(int, fstatat, (int folder, const char *path, struct stat *status, int flags), (folder, path, status, flags), LOOK,
     AT(folder, path))
WRAP(int, fstatat64, (int folder, const char *path, struct stat64 *status, int flags), (folder, path, status, flags),
     LOOK, AT(folder, path))
WRAP(int, access, (const char *path, int mode), (path, mode), LOOK, PATH(path))
WRAP(int, flock, (int file, int operation), (file, operation), operation & LOCK_UN ? UNLOCK : LOCK, DESCRIPTOR(file))

/* The descriptor is gone whatever close says. */
static void *real_close;
EXPORT int close(int file) {
    enum fault fault = enter(LOOK, "close", file, NULL);
    int result = (int)leave(fault, REAL(close)(file));
    if (fault == FAIL)
        return errno = error, -1;
    return result;
}

#define WRAP_SYNC(name)                                                                                                \
    static void *real_##name;                                                                                          \
    EXPORT int name(int file) {                                                                                        \
        hold(#name, file);                                                                                             \
        enum fault fault = enter(CHANGE | SPACE, #name, file, NULL);                                                   \
        if (fault == FAIL || fault == FULL)                                                                            \
            return errno = error, -1;                                                                                  \
        return (int)leave(fault, skips_syncs ? 0 : REAL(name)(file));                                                  \
    }
WRAP_SYNC(fsync)
WRAP_SYNC(fdatasync)

/* How much of a write there is before the next page begins: Linux ends a write only there, when its process is killed
 * or the disk is full. */
static size_t part(size_t size, off64_t from) {
    size_t first = PAGE - (size_t)(from % PAGE);
    return size > first ? first : 0;
}

#define WRAP_WRITE(name, parameters, from, whole, short_)                                                              \
    static void *real_##name;                                                                                          \
    EXPORT ssize_t name parameters {                                                                                   \
        enum fault fault = enter(CHANGE | SPACE, #name, file, NULL);                                                   \
        if (fault == KILL_HALFWAY || fault == FULL) {                                                                  \
            size_t first = part(size, from);                                                                           \
            if (fault == FULL && !first)                                                                               \
                return errno = error, -1;                                                                              \
            return leave(fault, first ? REAL(name) short_ : 0);                                                        \
        }                                                                                                              \
        if (fault == FAIL)                                                                                             \
            return errno = error, -1;                                                                                  \
        return leave(fault, REAL(name) whole);                                                                         \
    }
WRAP_WRITE(write, (int file, const void *data, size_t size), lseek64(file, 0, SEEK_CUR), (file, data, size),
           (file, data, first))
WRAP_WRITE(pwrite, (int file, const void *data, size_t size, off_t from), from, (file, data, size, from),
           (file, data, first, from))
WRAP_WRITE(pwrite64, (int file, const void *data, size_t size, off64_t from), from, (file, data, size, from),
           (file, data, first, from))
WRAP(ssize_t, writev, (int file, const struct iovec *parts, int number), (file, parts, number), CHANGE | SPACE,
     DESCRIPTOR(file))

static unsigned kind_of_open(int folder, const char *path, int flags) {
    int before = errno;
    int is_there = syscall(SYS_faccessat, folder, path, F_OK) == 0;
    errno = before;
    if (flags & O_CREAT && !is_there)
        return CHANGE | SPACE;
    return flags & O_TRUNC ? CHANGE : LOOK;
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define WRAP_OPEN(name, parameters, folder, arguments)                                                                 \
    static void *real_##name;                                                                                          \
    EXPORT int name parameters {                                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = mode_of(flags, more);                                                                            \
        va_end(more);                                                                                                  \
        enum fault fault = kinds ? enter(kind_of_open(folder, path, flags), #name, folder, path) : NONE;               \
        if (fault == FAIL || fault == FULL)                                                                            \
            return errno = error, -1;                                                                                  \
        int file = REAL(name) arguments;                                                                               \
        if (fault == DENY && file >= 0)                                                                                \
            syscall(SYS_close, file);                                                                                  \
        return (int)leave(fault, file);                                                                                \
    }
WRAP_OPEN(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
WRAP_OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
WRAP_OPEN(openat, (int in, const char *path, int flags, ...), in, (in, path, flags, mode))
WRAP_OPEN(openat64, (int in, const char *path, int flags, ...), in, (in, path, flags, mode))

#define WRAP_FCNTL(name)                                                                                               \
    static void *real_##name;                                                                                          \
    EXPORT int name(int file, int command, ...) {                                                                      \
        va_list more;                                                                                                  \
        va_start(more, command);                                                                                       \
        void *argument = va_arg(more, void *);                                                                         \
        va_end(more);                                                                                                  \
        enum fault fault = NONE;                                                                                       \
        if (command == F_SETLK || command == F_SETLKW)                                                                 \
            fault = enter(((struct flock *)argument)->l_type == F_UNLCK ? UNLOCK : LOCK, #name, file, NULL);           \
        if (fault == FAIL)                                                                                             \
            return errno = error, -1;                                                                                  \
        return (int)leave(fault, REAL(name)(file, command, argument));                                                 \
    }
WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

#define WRAP_MMAP(name, offset_type)                                                                                   \
    static void *real_##name;                                                                                          \
    EXPORT void *name(void *address, size_t size, int access, int flags, int file, offset_type from) {                 \
        enum fault fault = file < 0 ? NONE : enter(LOOK, #name, file, NULL);                                           \
        if (fault == FAIL)                                                                                             \
            return errno = error, MAP_FAILED;                                                                          \
        return REAL(name)(address, size, access, flags, file, from);                                                   \
    }
WRAP_MMAP(mmap, off_t)
WRAP_MMAP(mmap64, off64_t)

static void *real_opendir;
EXPORT DIR *opendir(const char *path) {
    if (enter(LOOK, "opendir", AT_FDCWD, path) == FAIL)
        return errno = error, NULL;
    return REAL(opendir)(path);
}

static void *real_bind;
EXPORT int bind(int file, const struct sockaddr *address, socklen_t size) {
    enum fault fault = NONE;
    if (address->sa_family == AF_UNIX)
        fault = enter(CHANGE | SPACE, "bind", AT_FDCWD, ((const struct sockaddr_un *)address)->sun_path);
    if (fault == FAIL || fault == FULL)
        return errno = error, -1;
    return (int)leave(fault, REAL(bind)(file, address, size));
}
