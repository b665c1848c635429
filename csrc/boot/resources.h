/* Whether the system has free threads, memory and descriptors. Libraries below us do not check:
 * when they run out, they end the process or wait forever. */
#ifndef COW_RESOURCES_H
#define COW_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether so many threads can be started. Starts twice as many, which end at once: the system
 * counts a thread for a moment after it was joined. */
bool cow_resources_threads(int count);

/* Whether so many bytes can be mapped now. */
bool cow_resources_memory(size_t size);

/* Return memory to the system that free() has kept for malloc(), where the C library can. */
void cow_resources_give_back(void);

/* The bytes of a Mac's memory that are not wired, and those that are free or hold copies of files;
 * false elsewhere, where the engine reads /proc. */
bool cow_resources_system_memory(uint64_t* most, uint64_t* easy);

/* 0 if two files can be opened now, the least that a start needs; else EMFILE or ENFILE. */
int cow_resources_files(void);

#endif
