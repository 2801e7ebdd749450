/* Which processes have a card open, as the kernel driver knows it.
 *
 * A process has a card open from its first handle of the card to the end of its use of NVML, or its own end. It keeps
 * the card's node of the machine's dev open and locked (flock, shared): the kernel ends that with the process, however
 * it ends, and /proc/PID/fd shows it. */

#ifndef OPENERS_H
#define OPENERS_H

#include "session.h"

/* Have the card open from now on, by the node that it has now. */
void open_card(const struct card *card);

/* Close one card, or all of them. */
void close_card(const struct card *card);
void close_cards(void);

/* Whether another process has the card open. This one must have closed it. */
int is_open_elsewhere(const struct card *card);

#endif
