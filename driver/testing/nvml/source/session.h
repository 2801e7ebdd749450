/* A process's use of the machine: it maps the state, and every call has the lock from ENTER to LEAVE. */

#ifndef SESSION_H
#define SESSION_H

#include "state.h"

extern struct state *machine; /* NULL: not initialized. Valid between ENTER and LEAVE. */

/* Open the machine, or count one more user of it. */
nvmlReturn_t open_session(void);
nvmlReturn_t close_session(void);

/* Take the lock for a call of `function`, after its faults and delays. Not NVML_SUCCESS: the call ends with it. */
nvmlReturn_t enter(const char *function);
nvmlReturn_t leave(nvmlReturn_t result);

/* Between the two a card is changed as one: a process that is killed there has changed nothing. */
void begin_change(struct card *card);
void end_change(void);

/* Enter an event of a card, or of one of its GPU instances, for the sets of all processes. */
void add_event(const struct card *card, uint64_t type, uint64_t data, unsigned gpu_instance);

/* Microseconds since 1970, or what a control has set the machine's clock to. */
uint64_t now_us(void);

/* The path of a file of the machine, such as "proc/driver/nvidia". */
void machine_path(char *path, unsigned long size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define ENTER()                                                                                                        \
    do {                                                                                                               \
        nvmlReturn_t refusal_ = enter(__func__);                                                                       \
        if (refusal_ != NVML_SUCCESS)                                                                                  \
            return refusal_;                                                                                           \
    } while (0)
/* End the call where a pointer is NULL through which the caller has to give or get something. */
#define NEEDS(pointers)                                                                                                \
    do {                                                                                                               \
        if (!(pointers))                                                                                               \
            return leave(NVML_ERROR_INVALID_ARGUMENT);                                                                 \
    } while (0)
#define LEAVE(result) return leave(result)
#define LEAVE_ON_ERROR(result)                                                                                         \
    do {                                                                                                               \
        nvmlReturn_t result_ = (result);                                                                               \
        if (result_ != NVML_SUCCESS)                                                                                   \
            return leave(result_);                                                                                     \
    } while (0)

#endif
