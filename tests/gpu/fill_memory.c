/* Fills some memory of the first CUDA device, reads it back, and prints the device's UUID: `fill_memory LIBCUDA`.
 *
 * It loads the driver's library by the path given, and needs the C library alone. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS (16u << 20) /* 64 MiB */
#define PATTERN 0x5EEDu

static void *library;

/* Call a function of the driver; end with its name and error code where it fails. */
#define CALL(name, types, ...)                                                                                         \
    do {                                                                                                               \
        int (*function) types = (int (*) types)dlsym(library, #name);                                                  \
        int code = function ? function(__VA_ARGS__) : -1;                                                              \
        if (code) {                                                                                                    \
            fprintf(stderr, "%s: error %d\n", #name, code);                                                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

int main(int count, char **arguments) {
    unsigned char uuid[16];
    unsigned long long memory;
    void *context;
    int devices, device;
    unsigned *words = malloc(WORDS * sizeof *words);
    if (count != 2 || !words || !(library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL))) {
        fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: fill_memory LIBCUDA");
        return 2;
    }
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGetCount, (int *), &devices);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDeviceGetUuid, (unsigned char *, int), uuid, device);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuMemAlloc_v2, (unsigned long long *, size_t), &memory, WORDS * sizeof *words);
    CALL(cuMemsetD32_v2, (unsigned long long, unsigned, size_t), memory, PATTERN, WORDS);
    CALL(cuMemcpyDtoH_v2, (void *, unsigned long long, size_t), words, memory, WORDS * sizeof *words);
    for (unsigned i = 0; i < WORDS; i++)
        if (words[i] != PATTERN) {
            fprintf(stderr, "word %u is 0x%x\n", i, words[i]);
            return 3;
        }
    printf("%d GPU-", devices);
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    printf("\n");
    return 0;
}
