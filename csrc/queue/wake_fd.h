/* A file descriptor that tells a host's event loop that there is something to take.
 *
 * A pipe holds one byte as long as there is. The host has a descriptor of its own for the reading
 * end, and must only wait for it. If it reads the byte, its next call puts it back; if it closes
 * the descriptor, it can ask for another. Nothing here blocks, and what the host opens under a
 * number that it closed is left alone. Its owner's lock guards it. */
#ifndef COW_WAKE_FD_H
#define COW_WAKE_FD_H

#include <stdbool.h>

typedef struct cow_wake_fd {
  bool made; /* all zero: not */
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
