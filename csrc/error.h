/* The message of each thread's last failed call. */
#ifndef COW_ERROR_H
#define COW_ERROR_H

#include "bridge.h"

/* The calling thread's message: COW_MESSAGE_SIZE bytes. */
char* cow_error_buffer(void);

/* A call that can fail begins. */
void cow_error_clear(void);

/* Set the message and return the status, in one line at the place of failure. */
__attribute__((format(printf, 2, 3))) cow_mlx_status cow_error(cow_mlx_status status,
                                                               const char* format, ...);

#endif
