/* A file descriptor by which a host's event loop learns that there is an item to take.
 *
 * A pipe holds one byte while there is an item. The host has a duplicate of the reading end, and
 * must only wait for it. If it reads the byte, its next call puts it back; if it closes the
 * descriptor, it can ask for another. Nothing here blocks, or touches a file that the host opens
 * under a number that it has closed. Its owner's lock guards it. */
#ifndef COW_WAKE_FD_H
#define COW_WAKE_FD_H

#include <stdbool.h>

typedef struct cow_wake_fd {
  bool made; /* all zero: no */
  int reading;
  int writing;
  int host;    /* the host's descriptor */
  bool raised; /* as it was last shown */
} cow_wake_fd;

/* The host's descriptor, the same one as long as it is open, or -1 with errno. */
int cow_wake_fd_get(cow_wake_fd* wake);

/* Be readable, or not. Nothing happens if there is no descriptor. */
void cow_wake_fd_show(cow_wake_fd* wake, bool ready);

/* Close the pipe, and the host's descriptor unless the host has. */
void cow_wake_fd_close(cow_wake_fd* wake);

#endif
