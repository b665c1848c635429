/* A semaphore that a signal handler may post, which no condition variable allows. */
#ifndef COW_WAKE_SEMAPHORE_H
#define COW_WAKE_SEMAPHORE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __APPLE__
#include <mach/mach.h>
typedef semaphore_t cow_semaphore; /* sem_init() fails there */
#else
#include <semaphore.h>
typedef sem_t cow_semaphore;
#endif

/* With the count 0. It is never destroyed. False if the system has none to give. */
bool cow_semaphore_init(cow_semaphore* semaphore);

/* Async-signal-safe; errno stays as it is. */
void cow_semaphore_post(cow_semaphore* semaphore);

void cow_semaphore_wait(cow_semaphore* semaphore);

/* False if nobody has posted when the time is over, or a signal came first. */
bool cow_semaphore_wait_for(cow_semaphore* semaphore, int64_t microseconds);

#endif
