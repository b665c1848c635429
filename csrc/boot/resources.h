/* What the system gives: free threads, memory and descriptors, which libraries below us do not
 * check (when they run out, they end the process or wait forever), and the quality-of-service class
 * of the dispatch thread, which macOS schedules by. */
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

/* What the names accepted by cow_quality_is_known() are, for messages. */
extern const char* const cow_quality_names;

/* Whether a class has that name; NULL is the default one. */
bool cow_quality_is_known(const char* name);

/* Give the calling thread a class, and so those that it starts. Other systems have none. */
void cow_quality_set(const char* name);

#endif
