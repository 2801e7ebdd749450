/* Runs in a container: what the linker finds of each library that is named, and what CUDA's first call gives. */

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        if (!library) {
            printf("%s: %s\n", argv[i], dlerror());
            continue;
        }
        int (*function)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
        printf("%s: %s\n", argv[i], function ? (function(0) == 0 ? "cuInit" : "failed") : "loaded");
    }
    return 0;
}
