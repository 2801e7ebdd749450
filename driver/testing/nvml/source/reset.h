/* What a reset does to a card. */

#ifndef RESET_H
#define RESET_H

#include "session.h"

/* Reset the card: its instances are gone, its pending MIG mode is current, and its counters begin again. To be called
 * between begin_change and end_change. */
void reset_card(struct card *card);

#endif
