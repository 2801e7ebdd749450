/* What the kernel driver shows of the cards in /proc and /dev, as files below the machine's folder. */

#ifndef TREE_H
#define TREE_H

/* Make the files true: those that differ from what was written last, or all where that is unknown. */
void write_tree(void);

#endif
