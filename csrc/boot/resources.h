/* Whether the system still has what is needed next. Libraries below us do not ask: where they run
 * out, they end the process or wait for ever. */
#ifndef COW_RESOURCES_H
#define COW_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>

/* Whether so many threads can be started next. Twice as many are, and end at once: the system
 * counts a thread for a moment after it was joined. */
bool cow_resources_threads(int count);

/* Whether so many bytes can be mapped now. */
bool cow_resources_memory(size_t size);

/* Let the system have what free() has kept for malloc(); what it could not be told of stays. */
void cow_resources_give_back(void);

/* 0 if so many files can be opened now, else errno's reason: EMFILE or ENFILE. */
int cow_resources_files(int count);

#endif
