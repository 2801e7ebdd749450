/* The first program of the guest: it has the machine's own files as root, read-only, and runs one command there.
 *
 * The kernel's modules are in /modules, in the order of their names; the virtio transport of 9p shares the machine's
 * files under the tag "root". /command has the working directory, the environment and the command, as lines: "DIRECTORY",
 * "NAME=VALUE" lines, an empty line, and the arguments. Line "kerf-init: ..." of the console says what failed; the
 * command's own output goes to the console, too. At the end the guest is switched off.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 64

static void end(const char *what) {
    if (what)
        printf("kerf-init: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    sync();
    sleep(1); /* the console's last bytes */
    reboot(RB_POWER_OFF);
    exit(1);
}

static void load_module(const char *name) {
    char path[300], *parameters = "";
    snprintf(path, sizeof path, "/modules/%s", name);
    FILE *file = fopen("/parameters", "r");
    static char line[500];
    if (strstr(name, "kerf_dfl_card") && file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        parameters = line;
    }
    if (file)
        fclose(file);
    int module = open(path, O_RDONLY | O_CLOEXEC);
    if (module < 0 || syscall(SYS_finit_module, module, parameters, 0))
        end(path);
    close(module);
}

static void load_modules(void) {
    struct dirent **names;
    int count = scandir("/modules", &names, NULL, alphasort);
    for (int at = 0; at < count; at++)
        if (names[at]->d_name[0] != '.')
            load_module(names[at]->d_name);
}

static void mount_at(const char *kind, const char *path) {
    if (mount(kind, path, kind, 0, NULL))
        end(path);
}

static void write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0)
        end(path);
    close(file);
}

static void run(char **lines) {
    if (chdir(lines[0])) {
        printf("kerf-init: %s: %s\n", lines[0], strerror(errno));
        _exit(1);
    }
    clearenv();
    for (lines++; *lines && **lines; lines++)
        putenv(*lines);
    lines++;
    execvp(lines[0], lines);
    printf("kerf-init: %s: %s\n", lines[0], strerror(errno));
    _exit(1);
}

int main(void) {
    static char text[16384], *lines[LINES + 1];
    mkdir("/dev", 0755);
    mount_at("devtmpfs", "/dev");
    int console = open("/dev/console", O_RDWR);
    for (int descriptor = 0; descriptor < 3; descriptor++)
        dup2(console, descriptor);
    setvbuf(stdout, NULL, _IONBF, 0);
    load_modules();
    int command = open("/command", O_RDONLY | O_CLOEXEC);
    if (command < 0 || read(command, text, sizeof text - 1) < 0)
        end("/command");
    char *rest = text;
    for (int at = 0; at < LINES && rest && *rest; at++)
        lines[at] = strsep(&rest, "\n");

    mkdir("/root", 0755);
    if (mount("root", "/root", "9p", MS_RDONLY, "trans=virtio,version=9p2000.L,msize=262144,cache=loose"))
        end("the machine's files by 9p");
    mount_at("proc", "/root/proc");
    mount_at("sysfs", "/root/sys");
    mount_at("devtmpfs", "/root/dev");
    mount_at("tmpfs", "/root/run");
    if (chroot("/root") || chdir("/"))
        end("/root");
    write_file("/sys/bus/pci/drivers/dfl-pci/new_id", "1234 1111");

    pid_t child = fork();
    if (child == 0)
        run(lines);
    int status = 0;
    while (child > 0 && waitpid(-1, &status, 0) != child)
        ;
    printf("kerf-init: the command ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    end(NULL);
}
