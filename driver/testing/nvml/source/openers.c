#include "openers.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <unistd.h>

static struct {
    int is_open, file;
    uint32_t minor; /* of the node that is open: a reset may change it */
} nodes[MAX_CARDS];

static int open_node(const struct card *card) {
    char path[PATH_MAX];
    machine_path(path, sizeof path, "dev/nvidia%u", card->minor);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void open_card(const struct card *card) {
    long number = card - machine->cards;
    if (nodes[number].is_open && nodes[number].minor == card->minor)
        return;
    close_card(card);
    int file = open_node(card);
    if (file < 0)
        return;
    flock(file, LOCK_SH | LOCK_NB);
    nodes[number].is_open = 1;
    nodes[number].file = file;
    nodes[number].minor = card->minor;
}

static void close_node(long number) {
    if (nodes[number].is_open)
        close(nodes[number].file);
    nodes[number].is_open = 0;
}

void close_card(const struct card *card) { close_node(card - machine->cards); }

void close_cards(void) {
    for (int i = 0; i < MAX_CARDS; i++)
        close_node(i);
}

int is_open_elsewhere(const struct card *card) {
    int file = open_node(card);
    if (file < 0)
        return 0;
    int is_open = flock(file, LOCK_EX | LOCK_NB) != 0;
    close(file);
    return is_open;
}
