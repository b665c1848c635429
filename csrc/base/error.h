/* Each thread's last failed call: a message for people, and an object for programs. */
#ifndef COW_ERROR_H
#define COW_ERROR_H

#include "bridge.h"
#include "base/details.h"

/* The call was "" if there was none that failed. */
typedef struct cow_failure {
  char message[COW_MESSAGE_SIZE];
  char details[COW_DETAILS_SIZE]; /* a JSON object, or "" */
} cow_failure;

/* The calling thread's. */
cow_failure* cow_error_failure(void);

void cow_error_copy(cow_failure* to, const cow_failure* from);

/* A call that can fail begins. */
void cow_error_clear(void);

/* Set the message, "operation: " before it, and the details; return the status. In one statement at
 * the place of failure. `details` is NULL or made by DETAILS(). */
__attribute__((format(printf, 5, 6))) cow_mlx_status cow_error(cow_mlx_status status,
                                                               const char* operation,
                                                               cow_reason reason,
                                                               const cow_detail* details,
                                                               const char* format, ...);

#endif
