/* How a thread that waits helps those that compute. */
#ifndef COW_HELPER_H
#define COW_HELPER_H

#include <stdbool.h>

typedef struct cow_helper {
  void (*look)(bool begins); /* a thread begins to look for parts, or ends; one at a time */
  bool (*help)(void);        /* compute parts; false if there was none */
} cow_helper;

#endif
