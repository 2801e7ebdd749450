/* The functions of NVML that the stand-in does not have. A program that calls one gets the answer that NVML has for a
 * card that lacks the feature, after that of the session and of faults.
 *
 * They need no parameters: by the calling conventions of C on Linux the caller removes them, and none is read. */

#include "functions.h"
#include "session.h"

static nvmlReturn_t refuse(const char *function, nvmlReturn_t answer) {
    nvmlReturn_t refusal = enter(function);
    return refusal == NVML_SUCCESS ? leave(answer) : refusal;
}

#define DEFINE(name, answer)                                                                                           \
    EXPORT nvmlReturn_t name(void) { return refuse(__func__, answer); }

FOR_EACH_UNMODELED_FUNCTION(DEFINE)
